#!/bin/bash
# Runs a PostgreSQL server and its client pgbench on the CPUs of this task, called by task.sh as
# `pgbench.sh POSTGRES PLACE SCALE CONNECTIONS NODES CLIENT_CORES SEED LOAD...`.  If NODES is 2, the first task is the
# server, and the second one the client.  A LOAD is NAME:SECONDS:RATE, with RATE transactions a second at random times,
# or as many as there can be if it is empty.  NAME.out has what pgbench printed, the CPU time of the client, and the log
# of each of its threads.
. ./postgres.sh
. ./apart.sh
postgres=$1 place=$2 scale=$3 connections=$4 nodes=$5 client_cores=$6 seed=$7 bin=${1%/*}
shift 7
threads=$((client_cores > 0 ? client_cores : 1))
# In every language numbers have a point.
export LC_ALL=C
export PGHOST PGUSER=virtqual PGDATABASE=postgres

start_server() {
    virtqual_start_postgres "$place" "$scale" "$connections" "${server[@]}"
    PGHOST=$directory PGPORT=${postgres_port:-5432} "${as_user[@]}" "$bin/pgbench" -i -q -s "$scale" \
        > "$directory/load.log" 2>&1 || virtqual_postgres_failed "the load of the tables"
}

case $nodes.$SLURM_PROCID in
    1.*)
        virtqual_divide_cores "$client_cores"
        start_server
        PGHOST=$directory ;;
    2.0)
        read -r node < /proc/sys/kernel/hostname
        # Below the ports that systems choose by themselves.
        postgres_port=$((20000 + $$ % 10000)) postgres_address='*'
        start_server
        virtqual_serve node postgres_port postgres_password
        exit ;;
    *)
        virtqual_meet_server
        export PGHOST=$node PGPORT=$postgres_port PGPASSWORD=$postgres_password
        virtqual_make_directory /dev/shm
        trap 'virtqual_end_postgres; : > virtqual.client-ended' EXIT ;;
esac
TIMEFORMAT='client %3U %3S'
for load; do
    IFS=: read -r name seconds rate <<< "$load"
    options=(-n -M prepared -c "$connections" -j "$threads" -T "$seconds" "--random-seed=$seed")
    [ -z "$rate" ] || options+=(-R "$rate" -l "--log-prefix=$directory/$name")
    { time "${client[@]}" "${as_user[@]}" "$bin/pgbench" "${options[@]}" > "$name.out" 2> "$directory/pgbench.log"; } \
        2> "$directory/time" || virtqual_postgres_failed "load $name of pgbench"
    cat "$directory/time" >> "$name.out"
    for log in "$directory/$name".[0-9]*; do
        [ -e "$log" ] && { echo thread; cat "$log"; rm "$log"; } >> "$name.out"
    done
done
exit 0
