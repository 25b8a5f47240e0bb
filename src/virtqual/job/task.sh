#!/bin/sh
# Notes the CPUs of this task, has each node recorded once, then becomes the program.  VIRTQUAL_WITHIN holds a command
# that runs the program.  With VIRTQUAL_TIMED the first task waits for the program, and notes its begin and end in
# seconds since the node's boot.
while read -r key value; do
    case $key in Cpus_allowed_list:) cpus=$value ;; esac
done < /proc/self/status
read -r host < /proc/sys/kernel/hostname
# Slurm's name of the node, which is that of the system file. The node may call itself otherwise.
node=${SLURMD_NODENAME:-$host}
rank=${SLURM_PROCID:-${PMIX_RANK:-${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-0}}}}
echo "$rank $node ${cpus:-unknown} ${VIRTQUAL_JOB:-${SLURM_JOB_ID:-none}} $host" > "virtqual.task.$rank"
# Nodes are recorded once, in the job's directory, also if this is a further repetition.
notes=${VIRTQUAL_NOTES:-.}
if [ -e "$notes/virtqual.sees.$node" ]; then
    # The job script has begun to record this node.  A record that is missing after a minute invalidates the run.
    tries=1200
    until [ -e "$notes/virtqual.saw.$node" ] || [ $((tries -= 1)) -lt 0 ]; do sleep 0.05; done
    links="$LD_LIBRARY_PATH $LD_PRELOAD $OPENBLAS_CORETYPE"
fi
if [ "${links-none}" != "${VIRTQUAL_LINKS-}" ] && (set -C; : > "$notes/virtqual.sees-task.$node") 2> /dev/null; then
    (cd "$notes" && ./see.sh "$1")
fi
# The job script notes the load of its own node.  On another node the first task does, again after each step.
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
