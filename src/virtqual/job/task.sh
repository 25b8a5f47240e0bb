#!/bin/sh
# Writes down where this task may run, has each node write down what it is, once; then becomes the program, within
# the command that VIRTQUAL_WITHIN holds.  With VIRTQUAL_TIMED the first task waits for the program, and writes down
# when it began and ended, in seconds since the node's boot.
while read -r key value; do
    case $key in Cpus_allowed_list:) cpus=$value ;; esac
done < /proc/self/status
read -r node < /proc/sys/kernel/hostname
rank=${SLURM_PROCID:-${PMIX_RANK:-${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-0}}}}
echo "$rank $node ${cpus:-unknown} ${VIRTQUAL_JOB:-${SLURM_JOB_ID:-none}}" > "virtqual.task.$rank"
# What a node is and has to bear is noted once, in the job's directory, whichever repetition of the program this is.
notes=${VIRTQUAL_NOTES:-.}
if [ -e "$notes/virtqual.sees.$node" ]; then
    # The job script has begun it.  What is not there after a minute is missing, and the run does not count.
    tries=1200
    until [ -e "$notes/virtqual.saw.$node" ] || [ $((tries -= 1)) -lt 0 ]; do sleep 0.05; done
    links="$LD_LIBRARY_PATH $LD_PRELOAD $OPENBLAS_CORETYPE"
fi
if [ "${links-none}" != "${VIRTQUAL_LINKS-}" ] && (set -C; : > "$notes/virtqual.sees-task.$node") 2> /dev/null; then
    (cd "$notes" && ./see.sh "$1")
fi
# The job script notes what its own node has to bear; on another node the first task does, once more after each step.
note() { :; }
if [ ! -e "$notes/virtqual.sees.$node" ] && [ "${SLURM_LOCALID:-0}" = 0 ]; then
    note() { (cd "$notes" && bash -c '. ./node.sh; virtqual_note "$@"' note "$1" "$node"); }
    [ -e "$notes/virtqual.begin.$node" ] || note begin
elif [ -z "${VIRTQUAL_TIMED-}" ] || [ "$rank" != 0 ]; then
    # shellcheck disable=SC2086  # a command and its options
    exec ${VIRTQUAL_WITHIN:-} "$@"
fi
read -r begin _ < /proc/uptime
# shellcheck disable=SC2086
${VIRTQUAL_WITHIN:-} "$@"
status=$?
read -r end _ < /proc/uptime
echo "$begin $end" >> "virtqual.took.$rank"
note end
exit $status
