# Sourced by bash.  A server in the first task of a step, and its client in the second one, on another node.

# `virtqual_wait_for FILE` waits for a file of the other task, and ends this one if the other has given up.
virtqual_wait_for() {
    until [ -e "$1" ]; do
        [ ! -e virtqual.why ] || exit 1
        # A change in the directory makes a network file system read it again.
        : > "virtqual.wait.$SLURM_PROCID"
        rm -f "virtqual.wait.$SLURM_PROCID"
        sleep 0.2
    done
}

# `virtqual_serve NAME...` hands variables to the client, and waits until it has ended.
virtqual_serve() {
    local name
    (umask 077; for name; do printf '%s=%q\n' "$name" "${!name}"; done > virtqual.server.part)
    mv virtqual.server.part virtqual.server
    virtqual_wait_for virtqual.client-ended
}

# `virtqual_meet_server` waits for the server, and takes its variables.
virtqual_meet_server() {
    virtqual_wait_for virtqual.server
    . ./virtqual.server
}
