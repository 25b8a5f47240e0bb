# Sourced by bash.  A PostgreSQL server of the run's own, in a new directory that is removed in the end.

# `virtqual_give_up SENTENCE` ends the job; the check shows the sentence.
virtqual_give_up() {
    echo "$*" > virtqual.why
    echo "$*" >&2
    exit 1
}

# `virtqual_postgres_failed WHAT` gives up with the last error in the logs.
virtqual_postgres_failed() {
    local line
    line=$(grep -hE 'could not bind|No space left' "$directory"/*.log | tail -n 1)
    [ -n "$line" ] || line=$(grep -hE 'FATAL|PANIC|ERROR|error:' "$directory"/*.log | tail -n 1)
    virtqual_give_up "PostgreSQL: $1 failed: ${line:-$(cat "$directory"/*.log | tail -n 1)}"
}

# `virtqual_make_directory PLACE` makes the `directory` of this run there, and sets `as_user`, which runs a command in it:
# the server refuses to run as root.
virtqual_make_directory() {
    local place=$1 user=nobody
    directory=$(mktemp -d "$place/virtqual-XXXXXX") || virtqual_give_up "PostgreSQL: no directory can be made in $place"
    trap virtqual_end_postgres EXIT
    as_user=(env -C "$directory")
    if [ "$EUID" = 0 ]; then
        chown "$user" "$directory"
        as_user+=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups)
        "${as_user[@]}" test -x "$postgres" ||
            virtqual_give_up "PostgreSQL: $user cannot run $postgres. Let all users enter its directories"
    fi
}

# `virtqual_start_postgres PLACE SCALE CONNECTIONS COMMAND...` makes a database below PLACE, and starts the server
# `$postgres` by COMMAND (`env`, `taskset -c 0-3`).  Its socket is in `directory`.  With `postgres_port` it has this port,
# too, at `postgres_address`, for those who know `postgres_password`.
virtqual_start_postgres() {
    local place=$1 scale=$2 connections=$3 free needed settings
    shift 3
    needed=$((128 + 64 * scale))
    free=$(df -Pm "$place" | awk 'END { print $4 }')
    [ "${free:-0}" -ge "$needed" ] ||
        virtqual_give_up "PostgreSQL: $place has ${free:-no} MiB free, and $needed are needed. Free them, or choose other storage"
    virtqual_make_directory "$place"
    read -r postgres_password < /proc/sys/kernel/random/uuid
    "${as_user[@]}" sh -c 'umask 077; cat > password' <<< "$postgres_password"
    # The directory of its socket is this user's alone.
    "${as_user[@]}" "$bin/initdb" -D "$directory/data" -U virtqual --auth-local=trust --auth-host=scram-sha-256 \
        --pwfile=password --no-sync --locale=C --encoding=UTF8 > "$directory/initdb.log" 2>&1 ||
        virtqual_postgres_failed initdb
    "${as_user[@]}" sh -c 'cat >> data/pg_hba.conf' <<< "host all all all scram-sha-256"
    # What the server does by itself now and then would fall into some runs.
    settings="-c listen_addresses=${postgres_address-} -p ${postgres_port:-5432} -k $directory -c max_connections=$((connections + 10)) -c shared_buffers=$((64 + 16 * scale))MB"
    settings+=" -c max_wal_size=$((64 + 32 * scale))MB -c checkpoint_timeout=1h -c autovacuum=off -c jit=off"
    # Else it has files in /dev/shm, too, which would outlive a job that Slurm kills.
    settings+=" -c dynamic_shared_memory_type=mmap"
    "$@" "${as_user[@]}" "$bin/pg_ctl" start -s -w -t 120 -D "$directory/data" -l "$directory/server.log" -o "$settings" \
        > "$directory/start.log" 2>&1 || virtqual_postgres_failed "the start of the server"
}

virtqual_end_postgres() {
    "${as_user[@]}" "$bin/pg_ctl" stop -s -m immediate -D "$directory/data" > /dev/null 2>&1
    rm -rf "$directory"
}

# The commands that start server and client: by default both have all cores of their task.
server=(env) client=(env)

# `virtqual_divide_cores COUNT` sets them: the last COUNT of this task's cores are the client's, unless COUNT is 0.
virtqual_divide_cores() {
    local key value range cpu siblings list=() order=() server_cpus='' client_cpus=''
    local -A cores
    [ "$1" != 0 ] || return 0
    while read -r key value; do
        [ "$key" != Cpus_allowed_list: ] || IFS=, read -ra list <<< "$value"
    done < /proc/self/status
    for range in "${list[@]}"; do
        for ((cpu = ${range%-*}; cpu <= ${range#*-}; cpu++)); do
            siblings=$cpu
            { read -r siblings < "/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list"; } 2> /dev/null
            [ -n "${cores[$siblings]}" ] || order+=("$siblings")
            cores[$siblings]+=,$cpu
        done
    done
    for siblings in "${order[@]:0:${#order[@]}-$1}"; do server_cpus+=${cores[$siblings]}; done
    for siblings in "${order[@]:${#order[@]}-$1}"; do client_cpus+=${cores[$siblings]}; done
    server=(taskset -c "${server_cpus#,}") client=(taskset -c "${client_cpus#,}")
}
