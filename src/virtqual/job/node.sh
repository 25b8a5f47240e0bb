# Sourced by the job script (bash): `virtqual_note begin` before the program, `virtqual_note end` after it.
virtqual_note() {
    local key value rest index lines
    {
        echo "time=$EPOCHREALTIME"
        read -r key rest < /proc/stat && echo "cpu_ticks=$rest"
        read -r key rest < /proc/pressure/cpu && echo "cpu_waiting_us=${rest##*total=}"
        read -r key value rest < /proc/meminfo && echo "memory_kib=$value"
        # At once: going back to the end of each line, as `read` does, makes the kernel count anew.
        mapfile -t lines < /proc/vmstat
        for value in "${lines[@]}"; do
            case $value in
                'balloon_inflate '* | 'balloon_deflate '* | 'pswpin '* | 'pswpout '*) echo "${value/ /=}" ;;
            esac
        done
        if [ "$1" = begin ]; then
            read -r value < /proc/sys/kernel/hostname && echo "node=$value"
            read -r value < /proc/sys/kernel/osrelease && echo "kernel=$value"
            read -r value < /sys/devices/system/clocksource/clocksource0/current_clocksource && echo "clocksource=$value"
            read -r value < /sys/devices/system/cpu/online && echo "cpus_online=$value"
            while read -r key rest; do
                case "$key $rest" in
                    'model name'*) echo "cpu_model=${rest#*: }" ;;
                    'flags'*) echo "cpu_flags=${rest#*: }"; break ;;
                esac
            done < /proc/cpuinfo
            for index in /sys/devices/system/cpu/cpu0/cache/index*; do
                read -r value < "$index/level" && read -r key < "$index/size" \
                    && read -r rest < "$index/shared_cpu_list" && echo "cache_l$value=$key shared by $rest"
            done
            for index in /sys/devices/system/node/node[0-9]*; do
                read -r value < "$index/cpulist" && echo "numa_${index##*/}=$value"
            done
        fi
    } > "virtqual.$1" 2>/dev/null
}
