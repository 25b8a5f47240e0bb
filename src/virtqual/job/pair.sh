#!/bin/sh
# Runs a program that is a server without, and a client with, the server's name as its last argument: the first
# task is the server, the second the client.  Called as `pair.sh SIZES ./task.sh PROGRAM OPTION...`; SIZES is `all`
# for one run over all sizes, or sizes in bytes with commas between them for one run each.
sizes=$1
shift
if [ "${SLURM_PROCID:?}" != 0 ]; then
    # The first task has written down where it runs.
    tries=300
    until { read -r _ server _ < virtqual.task.0; } 2> /dev/null; do
        [ $((tries -= 1)) -gt 0 ] || { echo "pair.sh: the server did not start" >&2; exit 1; }
        # A change of one's own makes a client of a network file system read the directory anew.
        : > virtqual.wait.1
        rm -f virtqual.wait.1
        sleep 0.1
    done
fi
IFS=,
for size in $sizes; do
    unset IFS
    case $size in all) sizing=-a ;; *) sizing="-s $size" ;; esac
    # shellcheck disable=SC2086  # an option and its value
    if [ -z "$server" ]; then
        "$@" $sizing || exit
        continue
    fi
    # It may not listen yet; what a client in vain has printed does not count.
    tries=60
    until "$@" $sizing "$server" > client.part 2> client.err; do
        [ $((tries -= 1)) -gt 0 ] || { cat client.err >&2; exit 1; }
        sleep 0.2
    done
    case $size in all) ;; *) echo "size $size" >> client.out ;; esac
    cat client.part >> client.out
done
