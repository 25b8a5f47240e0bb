#!/usr/bin/env bash
# Records what a Debian release's Slurm prints: benchmarks/slurm-versions/record.sh RELEASE [FOLDER]
# RELEASE is bullseye (Slurm 20.11), bookworm (22.05), trixie (24.11), sid (26.05).  The release is unpacked below
# FOLDER and stays there for the next time; without FOLDER it is removed.  Needs root and mmdebstrap.
# Recordings go to tests/outputs/slurm/VERSION.  All daemons live in namespaces that end with this script.
set -euo pipefail
case ${1:-} in "" | -*) sed -n '2,/^set /{/^# /s/^# //p}' "${BASH_SOURCE[0]}"; exit 2 ;; esac
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${2:-$(mktemp -d)}
[ $# -gt 1 ] || trap 'rm -rf "$folder"' EXIT
root=$folder/$1
if [ ! -x "$root/usr/sbin/slurmctld" ]; then
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | grep -m1 '/debian/$')
    database=mariadb-server-core
    [ "$1" != bullseye ] || database=mariadb-server-core-10.5
    # Only the release itself: an old one's updates may have gone.
    mmdebstrap --mode=root --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' \
        --include=slurmctld,slurmd,slurm-client,slurmdbd,munge,procps,$database "$1" "$root" "deb $mirror $1 main"
    case $1 in
        # The client library of MariaDB 11.8.9 refuses slurmdbd's first query.
        trixie | sid)
            mmdebstrap --mode=root --variant=extract --include=libmariadb3 bookworm "$root/opt/bookworm" \
                "deb $mirror bookworm main" ;;
    esac
fi
# Process 1 of the new namespace dies with unshare, and all others with process 1.  It is bash, since Slurm takes a
# process for alive that nobody has waited for.
exec 9> "$root.lock"
flock --nonblock 9 || { echo "$root is in use" >&2; exit 1; }
setpriv --pdeathsig KILL unshare --pid --fork --kill-child --mount --net --uts \
    bash -c '"$@" & wait $!' bash "${PYTHON:-python3}" "$here/record.py" "$root" "$here/../../tests/outputs/slurm" &
trap "kill -KILL $!; exit 143" HUP INT TERM
wait $!
