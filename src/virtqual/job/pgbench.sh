#!/bin/bash
# Runs a PostgreSQL server and its client pgbench on the CPUs of this task, called by task.sh as
# `pgbench.sh POSTGRES PLACE SCALE CONNECTIONS CLIENT_CORES SEED LOAD...`.  A LOAD is NAME:SECONDS:RATE, with RATE
# transactions a second at random times, or as many as there can be if it is empty.  NAME.out has what pgbench printed,
# the CPU time of the client, and the log of each of its threads.
. ./postgres.sh
postgres=$1 place=$2 scale=$3 connections=$4 client_cores=$5 seed=$6
shift 6
threads=$((client_cores > 0 ? client_cores : 1))
virtqual_divide_cores "$client_cores"
virtqual_start_postgres "$postgres" "$place" "$scale" "$connections" "${server[@]}"
pgbench=("${client[@]}" "${as_user[@]}" "$bin/pgbench" -h "$directory" -U virtqual)
"${pgbench[@]}" -i -q -s "$scale" postgres > "$directory/load.log" 2>&1 || virtqual_postgres_failed "the load of the tables"
TIMEFORMAT='client %3U %3S'
for load; do
    IFS=: read -r name seconds rate <<< "$load"
    options=(-n -M prepared -c "$connections" -j "$threads" -T "$seconds" "--random-seed=$seed")
    [ -z "$rate" ] || options+=(-R "$rate" -l "--log-prefix=$directory/$name")
    { time "${pgbench[@]}" "${options[@]}" postgres > "$name.out" 2> "$directory/pgbench.log"; } 2> "$directory/time" ||
        virtqual_postgres_failed "load $name of pgbench"
    cat "$directory/time" >> "$name.out"
    for log in "$directory/$name".[0-9]*; do
        [ -e "$log" ] && { echo thread; cat "$log"; rm "$log"; } >> "$name.out"
    done
done
exit 0
