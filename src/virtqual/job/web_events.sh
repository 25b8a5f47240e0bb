#!/bin/bash
# Runs the application of web_events, its database and its client on the CPUs of this task, called by task.sh as
# `web_events.sh PROGRAM JAVA POSTGRES PYTHON WHERE CLIENT_CORES SEED WINDOW LOAD...`.  If WHERE is 2, the
# first task has application and database, and the second one is the client.  If it is `together`, each task has all of
# them, and no load begins before all servers are warm.  JAVA has options of Java, with commas between them.
# load.N.out has what the client of task N printed, and warm.N.out its warm-up if that was before.
. ./postgres.sh
. ./apart.sh
program=$1 postgres=$3 python=$4 where=$5 client_cores=$6 bin=${3%/*}
IFS=, read -ra java <<< "$2"
shift 6
processes=$((client_cores > 0 ? client_cores : 1))
node=127.0.0.1 address=127.0.0.1 postgres_address=127.0.0.1

start_server() {
    # JDBC needs a port: one that is free.
    postgres_port=$("$python" -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])') ||
        virtqual_give_up "web_events: the Python $python does not run on this node. It must be there as on the login node"
    virtqual_start_postgres /dev/shm 4 32 "${server[@]}"
    log=$directory/application.log
    SPRING_DATASOURCE_PASSWORD=$postgres_password "${server[@]}" "$program" "${java[@]}" \
        "-Dserver.address=$address" -Dserver.port=0 \
        "-Dspring.datasource.url=jdbc:postgresql://127.0.0.1:$postgres_port/postgres" > "$log" 2>&1 &
    application=$!
    trap '{ kill -KILL $application && wait $application; } 2> /dev/null; virtqual_end_postgres' EXIT
    deadline=$((SECONDS + 300))
    until port=$(sed -n 's/.*Tomcat started on port \([0-9]*\).*/\1/p' "$log"); [ -n "$port" ]; do
        if ! kill -0 $application 2> /dev/null || [ $SECONDS -gt $deadline ]; then
            line=$(grep -E '^(Caused by:|Web server failed)' "$log" | tail -n 1)
            virtqual_give_up "web_events: the application did not start: ${line:-$(head -n 2 "$log" | tr '\n' ' ')}"
        fi
        sleep 0.1
    done
}

# `run_client NAME SEED WINDOW LOAD...`
run_client() {
    local output=$1.$SLURM_PROCID.out log=client.$SLURM_PROCID.log
    shift
    "${meet[@]}" "${client[@]}" "$python" web_load.py "$node" "$port" "$processes" "$@" > "$output" 2> "$log" ||
        virtqual_give_up "web_events: the client failed: $(tail -n 1 "$log")"
}

# `warm_up_together SEED WINDOW` waits for the servers of all tasks, which may take longer than together.sh waits.
warm_up_together() {
    local task mistake
    run_client warm "$1" "$2"
    mistake=$(grep -E '^(wrong|cold) ' "warm.$SLURM_PROCID.out") && virtqual_give_up "web_events: the warm-up: $mistake"
    : > "virtqual.warm.$SLURM_PROCID"
    for ((task = 0; task < SLURM_NTASKS; task++)); do virtqual_wait_for "virtqual.warm.$task"; done
    meet=(./together.sh)
}

meet=()
case $where.$SLURM_PROCID in
    1.*)
        virtqual_divide_cores "$client_cores"
        start_server
        run_client load "$@" ;;
    together.*)
        virtqual_divide_cores "$client_cores"
        start_server
        warm_up_together "$1" "$2"
        run_client load "$1" 0 "${@:3}" ;;
    2.0)
        read -r node < /proc/sys/kernel/hostname
        address=0.0.0.0
        start_server
        virtqual_serve node port ;;
    *)
        trap ': > virtqual.client-ended' EXIT
        virtqual_meet_server
        run_client load "$@"
        exit 0 ;;
esac
kill -0 $application 2> /dev/null || virtqual_give_up "web_events: the application ended under load: $(tail -n 1 "$log")"
# It would only say that it could not answer.
! grep -qE 'No space left|PANIC|FATAL' "$directory/server.log" || virtqual_postgres_failed "the database under load"
exit 0
