#!/bin/sh
# Runs a program as a server in the first task, and as a client in the second.  The client's last argument is the
# server's name.  Called as `pair.sh SIZES ./task.sh PROGRAM OPTION...`; SIZES is `all` for one run over all sizes, or
# sizes in bytes, separated by commas, for one run each.
sizes=$1
shift
if [ "${SLURM_PROCID:?}" != 0 ]; then
    # The first task has noted the name by which its node calls itself.
    tries=300
    until { read -r _ node _ _ server < virtqual.task.0; } 2> /dev/null; do
        [ $((tries -= 1)) -gt 0 ] || { echo "pair.sh: the server did not start" >&2; exit 1; }
        # A change in the directory makes a network file system read it again.
        : > virtqual.wait.1
        rm -f virtqual.wait.1
        sleep 0.1
    done
    server=${server:-$node}
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
    # The server may not listen yet.  The output of a failed client is dropped.
    tries=60
    until "$@" $sizing "$server" > client.part 2> client.err; do
        [ $((tries -= 1)) -gt 0 ] || { cat client.err >&2; exit 1; }
        sleep 0.2
    done
    case $size in all) ;; *) echo "size $size" >> client.out ;; esac
    cat client.part >> client.out
done
