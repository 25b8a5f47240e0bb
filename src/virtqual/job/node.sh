# Sourced by bash.  The output of programs has no labels of srun, and comes to the job's own files.
unset SLURM_LABELIO SLURM_UNBUFFEREDIO SLURM_STDINMODE SLURM_STDOUTMODE SLURM_STDERRMODE

# `virtqual_note begin` before the program and `virtqual_note end` after it note the state of the node.  The job
# script calls them for its own node; the first task of another node adds the node's name.
virtqual_note() {
    local key value rest lines
    {
        # bash has had EPOCHREALTIME since 5.0.
        value=${EPOCHREALTIME:-$(date +%s.%N)}
        echo "time=${value/,/.}"
        echo "job=${VIRTQUAL_JOB:-$SLURM_JOB_ID}"
        read -r key rest < /proc/stat && echo "cpu_ticks=$rest"
        read -r key rest < /proc/pressure/cpu && echo "cpu_waiting_us=${rest##*total=}"
        read -r key value rest < /proc/meminfo && echo "memory_kib=$value"
        # Read at once: `read` returns to the end of each line, and the kernel would count again.
        mapfile -t lines < /proc/vmstat
        for value in "${lines[@]}"; do
            case $value in
                'balloon_inflate '* | 'balloon_deflate '* | 'pswpin '* | 'pswpout '*) echo "${value/ /=}" ;;
            esac
        done
        if [ "$1" = begin ]; then
            read -r value < /proc/sys/kernel/hostname && echo "node=${SLURMD_NODENAME:-$value}"
            read -r value < /sys/devices/system/cpu/online && echo "cpus_online=$value"
            # Seconds since the boot, now and in ticks when this shell began: a login shell and modules take a while.
            read -r value rest < /proc/uptime && echo "uptime=$value"
            read -r rest < /proc/self/stat && read -ra lines <<< "${rest##*) }" && echo "shell_ticks=${lines[19]}"
        fi
    } > "virtqual.$1${2:+.$2}" 2>/dev/null
}

# `virtqual_see PROGRAM` records this node and its software while srun starts, which takes seconds on emulated CPUs.
# Tasks with other libraries than the job script's record them again.
virtqual_see() {
    local node
    read -r node < /proc/sys/kernel/hostname
    node=${SLURMD_NODENAME:-$node}
    export VIRTQUAL_LINKS="$LD_LIBRARY_PATH $LD_PRELOAD $OPENBLAS_CORETYPE" VIRTQUAL_NOTES=$PWD
    : > "virtqual.sees.$node"
    ./see.sh "$1" < /dev/null &
}

# `virtqual_repetition K OUTPUT` before each repetition of the program, `virtqual_repeated K` after it.  The first
# repetition runs in the job's directory.  Each further one has its own directory, with links to the same files.
virtqual_repetition() {
    local GLOBIGNORE='virtqual.*:.*'
    if [ "$1" = 1 ]; then
        virtqual_found=(*)
    else
        # The directory exists if Slurm has restarted the job: its files are of another attempt.
        mkdir "repetition-$1" && cd "repetition-$1" && ln -s "${virtqual_found[@]/#/../}" . && rm -f "$2" &&
            exec 3>&1 > "$2" || exit 1
    fi
}
virtqual_repeated() {
    [ "$1" = 1 ] || { exec >&3 3>&- && cd ..; }
}

# `virtqual_took SECONDS` succeeds if the program took at least so long, by the note of its first task.
virtqual_took() {
    awk -v least="$1" '{ took += $2 - $1 } END { exit !(took >= least) }' virtqual.took.0
}
