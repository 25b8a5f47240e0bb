# Sourced by bash: `virtqual_note begin` before the program, `virtqual_note end` after it; by the job script for its
# own node, and with the node's name as a second word by the first task of each other node.
virtqual_note() {
    local key value rest lines
    {
        echo "time=${EPOCHREALTIME/,/.}"
        echo "job=${VIRTQUAL_JOB:-$SLURM_JOB_ID}"
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
            read -r value < /sys/devices/system/cpu/online && echo "cpus_online=$value"
        fi
    } > "virtqual.$1${2:+.$2}" 2>/dev/null
}

# `virtqual_see PROGRAM`: while srun starts, which takes a while on emulated CPUs, this node already writes down
# what it is.  Tasks that find themselves with other libraries than the job script's write it down again.
virtqual_see() {
    local node
    read -r node < /proc/sys/kernel/hostname
    export VIRTQUAL_LINKS="$LD_LIBRARY_PATH $LD_PRELOAD $OPENBLAS_CORETYPE" VIRTQUAL_NOTES=$PWD
    : > "virtqual.sees.$node"
    ./see.sh "$1" < /dev/null &
}

# `virtqual_repetition K OUTPUT` before each repetition of the program, `virtqual_repeated K` after it.  The first one
# is in the job's directory.  Each further one has a directory of its own, with links to what the first one found.
virtqual_repetition() {
    local GLOBIGNORE='virtqual.*:.*'
    if [ "$1" = 1 ]; then
        virtqual_found=(*)
    else
        # It is there already where Slurm has begun the job again: what is in it is of another attempt.
        mkdir "repetition-$1" && cd "repetition-$1" && ln -s "${virtqual_found[@]/#/../}" . && rm -f "$2" &&
            exec 3>&1 > "$2" || exit 1
    fi
}
virtqual_repeated() {
    [ "$1" = 1 ] || { exec >&3 3>&- && cd ..; }
}

# `virtqual_took SECONDS`: whether the program took so long, by what its first task noted.
virtqual_took() {
    awk -v least="$1" '{ took += $2 - $1 } END { exit !(took >= least) }' virtqual.took.0
}
