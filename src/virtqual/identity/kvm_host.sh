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
    # The CPUs that each vCPU may use now, also where libvirt is in a container; it gives their threads such names.
    for task in "$process"/task/[0-9]*; do
        { read -r thread < "$task/comm"; } 2> /dev/null || continue
        case $thread in 'CPU '[0-9]*/KVM | 'CPU '[0-9]*/TCG) ;; *) continue ;; esac
        while read -r key value; do
            case $key in Cpus_allowed_list:) printf '%s:%s\n' "$process/vcpu" "$value" ;; esac
        done < "$task/status"
    done 2> /dev/null
    # Only root may see which file it runs.
    binary=$(readlink "$process/exe" 2> /dev/null) || continue
    printf %s "$binary" | tr '\n' '?' | mark "$process/exe"
    # A VM in a container (kolla, KubeVirt) runs another file than the one that has this path here. The file is
    # read and never executed, since any user can call a process so.
    if ! [ "$process/exe" -ef "$binary" ]; then
        LC_ALL=C grep -a -o -m 1 'QEMU emulator version [[:print:]]*' "$process/exe" 2> /dev/null |
            head -c 200 | mark "$process/version"
        continue
    fi
    # dpkg-query reads the path as a pattern.
    case $binary in *[][*?\\]*) continue ;; esac
    if owner=$(dpkg-query -S "$binary" 2> /dev/null); then
        dpkg-query -W -f '${binary:Package} ${Version}\n' "${owner%%: *}" | mark "$process/package"
    elif owner=$(rpm -qf --qf '%{NAME} %{VERSION}-%{RELEASE}' "$binary" 2> /dev/null); then
        printf '%s\n' "$owner" | mark "$process/package"
    fi
done
if command -v virsh > /dev/null; then
    # A VM's name may be the number of another one. The description holds the name.
    virsh list --uuid < /dev/null 2> /dev/null | while IFS= read -r uuid; do
        case $uuid in ????????-????-????-????-????????????) ;; *) continue ;; esac
        virsh dumpxml --domain "$uuid" < /dev/null 2> /dev/null | mark "/virsh/$uuid"
    done
fi
