#!/bin/sh
# Writes down which binary and which libraries a program really loads on this node: `seen.sh PROGRAM`.
# Checksums are kept in memory until a file changes: on emulated CPUs they would cost seconds a run.
program=$1
here=${0%/*}
files=$program
loaded=$(ldd "$program" 2> /dev/null)
for word in $loaded; do
    case $word in /*) files="$files $word" ;; esac
done
# The Spack package that the program belongs to, if it is of one.
prefix=$(readlink -f "$program")
while [ -n "$prefix" ]; do
    prefix=${prefix%/*}
    [ -f "$prefix/.spack/spec.json" ] && files="$files $prefix/.spack/spec.json" && break
done
while read -r key rest; do
    case "$key $rest" in 'flags'* | 'Features'*) flags=${rest#*: }; break ;; esac
done < /proc/cpuinfo

known=/dev/shm/virtqual.$(id -u)$program
key="$OPENBLAS_CORETYPE
$(stat -L -c '%n %d %i %s %.Y %.Z' $files)"
if ! [ -O "$known.key" ] || [ "$(cat "$known.key")" != "$key" ]; then
    sums="sha256
$(sha256sum $files)
real
$(readlink -f $files)
says
$(python3 "$here/seen_says.py" $files 2> /dev/null)"
    (umask 077; mkdir -p "${known%/*}" && echo "$sums" > "$known.sums" && echo "$key" > "$known.key") 2> /dev/null
else
    sums=$(cat "$known.sums")
fi
echo "program $program
flags $flags
coretype $OPENBLAS_CORETYPE
ldd
$loaded
$sums"
