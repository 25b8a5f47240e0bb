#!/bin/sh
# Writes down where this task may run, has each node write down what it is, once; then becomes the program, within
# the command that VIRTQUAL_WITHIN holds.
while read -r key value; do
    case $key in Cpus_allowed_list:) cpus=$value ;; esac
done < /proc/self/status
read -r node < /proc/sys/kernel/hostname
rank=${SLURM_PROCID:-${PMIX_RANK:-${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-0}}}}
echo "$rank $node ${cpus:-unknown} ${SLURM_JOB_ID:-none}" > "virtqual.task.$rank"
if [ -e "virtqual.sees.$node" ]; then
    # The job script has begun it.  What is not there after a minute is missing, and the run does not count.
    tries=1200
    until [ -e "virtqual.saw.$node" ] || [ $((tries -= 1)) -lt 0 ]; do sleep 0.05; done
    links="$LD_LIBRARY_PATH $LD_PRELOAD $OPENBLAS_CORETYPE"
fi
if [ "${links-none}" != "${VIRTQUAL_LINKS-}" ] && (set -C; : > "virtqual.sees-task.$node") 2> /dev/null; then
    ./see.sh "$1"
fi
# The job script notes what its own node has to bear; on another node the first task does, once more after each step.
if [ ! -e "virtqual.sees.$node" ] && [ "${SLURM_LOCALID:-0}" = 0 ]; then
    note() { bash -c '. ./node.sh; virtqual_note "$@"' note "$1" "$node"; }
    [ -e "virtqual.begin.$node" ] || note begin
    # shellcheck disable=SC2086  # a command and its options
    ${VIRTQUAL_WITHIN:-} "$@"
    status=$?
    note end
    exit $status
fi
# shellcheck disable=SC2086
exec ${VIRTQUAL_WITHIN:-} "$@"
