# Prints what this machine is, one KEY=VALUE a line.  POSIX sh, fed to `sh -s` on any machine; it changes nothing.
say() { [ -z "$2" ] || printf '%s=%s\n' "$1" "$2"; }
first() { [ ! -r "$1" ] || { IFS= read -r line < "$1"; printf %s "$line"; }; }
say begin virtqual-note
say node "$(uname -n)"
say boot "$(first /proc/sys/kernel/random/boot_id)"
say kernel "$(uname -sr)"
say arch "$(uname -m)"
say os "$(sed -n "s/^PRETTY_NAME=[\"']\{0,1\}\([^\"']*\)[\"']\{0,1\}\$/\1/p" /etc/os-release 2> /dev/null)"
cpu=$(sed -n 's/^model name[[:space:]]*: *//p' /proc/cpuinfo 2> /dev/null | head -n 1)
# Arm has no model name there.
[ -n "$cpu" ] || cpu=$(LC_ALL=C lscpu 2> /dev/null | sed -n 's/^Model name: *//p' | head -n 1)
say cpu "$cpu"
say cpus "$(getconf _NPROCESSORS_ONLN 2> /dev/null)"
# Of those the ones that a command may use here.
say usable_cpus "$(nproc 2> /dev/null)"
say memory_mib "$(awk '/^MemTotal:/ { printf "%d", $2 / 1024 }' /proc/meminfo 2> /dev/null)"
say governor "$(first /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor 2> /dev/null)"
say virt "$(systemd-detect-virt --vm 2> /dev/null)"
say container "$(systemd-detect-virt --container 2> /dev/null)"
case " $(sed -n 's/^flags[[:space:]]*://p' /proc/cpuinfo 2> /dev/null | head -n 1) " in
    *' hypervisor '*) say hypervisor_flag yes ;;
    '  ') ;;
    *) say hypervisor_flag no ;;
esac
say vendor "$(first /sys/class/dmi/id/sys_vendor 2> /dev/null)"
say product "$(first /sys/class/dmi/id/product_name 2> /dev/null)"
say end virtqual-note
