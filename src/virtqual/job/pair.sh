#!/bin/sh
# Runs a program that is a server without, and a client with, the server's name as its last argument: the first
# task is the server, the second the client.  Called as `pair.sh ./task.sh PROGRAM OPTION...`.
if [ "${SLURM_PROCID:?}" = 0 ]; then exec "$@"; fi
# The first task has written down where it runs.
tries=300
until read -r _ server _ < virtqual.task.0; do
    [ $((tries -= 1)) -gt 0 ] || { echo "pair.sh: the server did not start" >&2; exit 1; }
    sleep 0.1
done 2> /dev/null
# It may not listen yet; what a client in vain has printed does not count.
tries=30
until "$@" "$server" > client.out 2> client.err; do
    [ $((tries -= 1)) -gt 0 ] || { cat client.err >&2; exit 1; }
    sleep 0.5
done
