#!/bin/bash
# A stand-in whose rate the test decides.
slow=$(cat "$FAKE_SLURM/slow.$FAKE_PARTITION" 2> /dev/null || echo 1)
read -r seed _ < <(cksum <<< "${VIRTQUAL_JOB:-$SLURM_JOB_ID}")
awk -v slow="$slow" -v seed=$((seed % 65521)) 'BEGIN { srand(seed); print "Triad: " (20000 + 40 * rand()) / slow }'
[ -e "$FAKE_SLURM/fault.valid" ] || echo "Solution Validates"
