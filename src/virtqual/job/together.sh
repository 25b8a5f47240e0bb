#!/bin/bash
# Runs a program on all tasks at the same time: no task begins before all tasks are there.  Called by task.sh as
# `together.sh PROGRAM OPTION...`.  Notes times by the task's clock for virtqual.job.together.
rank=${SLURM_PROCID:?} tasks=${SLURM_NTASKS:?}
note=virtqual.together.$rank
tries=3000
# bash has had EPOCHREALTIME since 5.0.
now() { now=${EPOCHREALTIME:-$(date +%s.%N)} now=${now/,/.}; }
# The first meeting brings all tasks together.  In the second no task is late, and it shows the difference of clocks.
for meeting in ready set; do
    now; echo "$meeting $now" >> "$note"
    : > "virtqual.$meeting.$rank"
    for ((other = 0; other < tasks; other++)); do
        until [ -e "virtqual.$meeting.$other" ]; do
            [ $((tries -= 1)) -gt 0 ] || { echo "together.sh: task $other did not come" >&2; exit 1; }
            # A change in the directory makes a network file system read it again.
            : > "virtqual.wait.$rank"; rm -f "virtqual.wait.$rank"
            sleep 0.02
        done
        now; echo "saw $other $now" >> "$note"
    done
done
now; echo "begin $now" >> "$note"
"$@"
code=$?
now; echo "end $now" >> "$note"
exit $code
