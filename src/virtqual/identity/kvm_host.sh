# A part of what `virtqual host --script` prints: lines of the form /path:content about the VMs of a KVM host.
# Root runs this script, and users choose names of VMs and paths of executables: no such text becomes a part of a
# program, a pattern or a line of its own.

# `mark PATH` prints its standard input as lines of one path.
mark() {
    tr '\r' '?' | MARK=$1: LC_ALL=C awk '{ print ENVIRON["MARK"] $0 }'
}

for comm in /proc/[0-9]*/comm; do
    { read -r name < "$comm"; } 2> /dev/null || continue
    # The kernel keeps 15 characters of a name; qemu-img, qemu-nbd and qemu-pr-helper run no VM.
    case $name in qemu-system* | qemu-kvm | kvm) ;; *) continue ;; esac
    process=${comm%/comm}
    tr '\0\n' '\n?' < "$process/cmdline" | mark "$process/cmdline"
    # Only root may see which file it runs.
    binary=$(readlink "$process/exe" 2> /dev/null) || continue
    printf %s "$binary" | tr '\n' '?' | mark "$process/exe"
    # dpkg-query reads the path as a pattern.
    case $binary in *[][*?\\]*) continue ;; esac
    if owner=$(dpkg-query -S "$binary" 2> /dev/null); then
        dpkg-query -W -f '${binary:Package} ${Version}\n' "${owner%%: *}" | mark "$process/package"
    elif owner=$(rpm -qf --qf '%{NAME} %{VERSION}-%{RELEASE}' "$binary" 2> /dev/null); then
        printf '%s\n' "$owner" | mark "$process/package"
    fi
done
if command -v virsh > /dev/null; then
    number=0
    virsh list --name < /dev/null 2> /dev/null | while IFS= read -r name; do
        [ -n "$name" ] || continue
        # The description holds the name.
        number=$((number + 1))
        virsh dumpxml -- "$name" < /dev/null 2> /dev/null | mark "/virsh/$number"
    done
fi
