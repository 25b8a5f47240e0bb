# A part of what `virtqual host --script` prints: lines of the form /path:content about the VMs of a KVM host.
# A line without content says that there is a directory, though no IOMMU group may be in it.
if [ -d /sys/kernel/iommu_groups ]; then
    echo /sys/kernel/iommu_groups:
    for group in /sys/kernel/iommu_groups/*; do
        [ ! -d "$group" ] || echo "/sys/kernel/iommu_groups:${group##*/}"
    done
fi
for comm in /proc/[0-9]*/comm; do
    { read -r name < "$comm"; } 2> /dev/null || continue
    case $name in qemu* | kvm) ;; *) continue ;; esac
    process=${comm%/comm}
    tr '\0' '\n' < "$process/cmdline" | sed "s|^|$process/cmdline:|"
    # Only root may see which file it runs.
    binary=$(readlink "$process/exe" 2> /dev/null) || continue
    echo "$process/exe:$binary"
    if owner=$(dpkg-query -S "$binary" 2> /dev/null); then
        dpkg-query -W -f "$process/package:\${binary:Package} \${Version}\n" "${owner%%: *}"
    elif owner=$(rpm -qf --qf '%{NAME} %{VERSION}-%{RELEASE}' "$binary" 2> /dev/null); then
        echo "$process/package:$owner"
    fi
done
if command -v virsh > /dev/null; then
    for name in $(virsh list --name 2> /dev/null); do
        virsh dumpxml "$name" 2> /dev/null | sed "s|^|/virsh/$name:|"
    done
fi
