# Sourced by see.sh.  `virtqual_environment` prints the variables of MPI, maths and threading libraries and of the
# linker, and the loaded modules.  Other variables are not printed: they may hold secrets.
virtqual_environment() (
    set -f
    IFS='
'
    for line in $(export -p); do
        case ${line#* } in
            OMP_*=* | GOMP_*=* | KMP_*=* | MKL_*=* | OPENBLAS_*=* | BLIS_*=* | LOADEDMODULES=* | LD_*=* | \
                GLIBC_*=* | UCX_*=* | FI_*=* | MV2_*=* | MVP_*=* | OMPI_*=* | MPICH_*=* | MPIR_*=* | I_MPI_*=* | OPAL_*=*)
                printf '%s\n' "$line"
                ;;
        esac
    done
)

# `virtqual_seen PROGRAM` prints the binary and the libraries that the program loads on this node.  On emulated CPUs
# a process takes a tenth of a second, and a checksum more.  Therefore the answers of the files are kept in memory
# until the linker finds other files or a file changes.  Paths may hold blanks and patterns.
virtqual_seen() {
    case $1 in
        /*) program=$1 ;;
        */*) program=$PWD/${1#./} ;;
        *) program=$(command -v "$1") || program=$1 ;;
    esac
    # All users may make directories there.  Only a directory of this user is used: others cannot write into it.  The
    # number in its name rises if other questions are asked.
    memory=/dev/shm/virtqual-3.${USER:-$LOGNAME}
    [ -e "$memory" ] || mkdir -m 700 "$memory" 2> /dev/null
    known=/dev/null/nothing
    if [ -d "$memory" ] && [ ! -L "$memory" ] && [ -O "$memory" ]; then known=$memory$program; fi
    newline='
'
    case $program in
        *"$newline"*)
            echo "seen.sh: the path of the program has a line feed" >&2
            return 1
            ;;
    esac
    # A dynamic program answers itself, faster than by ldd.  A static program would run.
    if [ -O "$known.dynamic" ]; then
        loaded=$(LD_TRACE_LOADED_OBJECTS=1 "$program" 2> /dev/null)
    else
        loaded=$(ldd "$program" 2> /dev/null)
    fi
    set -- "$program"
    linked=
    IFS=$newline
    set -f
    for line in $loaded; do
        line=${line%' (0x'*} # addresses are random
        line=${line#"${line%%[![:blank:]]*}"}
        linked=$linked$line$newline
        case $line in
            *' => /'*) set -- "$@" "/${line#*' => /'}" ;;
            /*) set -- "$@" "$line" ;;
        esac
    done
    set +f
    unset IFS
    if [ -O "$known.package" ]; then
        IFS= read -r package < "$known.package"
    else
        # The description of the program's Spack package.
        prefix=$(readlink -f "$program")
        package=
        while [ -n "$prefix" ] && [ -z "$package" ]; do
            prefix=${prefix%/*}
            [ -f "$prefix/.spack/spec.json" ] && package=$prefix/.spack/spec.json
        done
    fi
    [ -z "$package" ] || set -- "$@" "$package"
    while read -r key rest; do
        case "$key $rest" in 'flags'* | 'Features'*) flags=${rest#*: }; break ;; esac
    done < /proc/cpuinfo

    key="$OPENBLAS_CORETYPE$newline$linked$newline$(stat -L -c '%n %d %i %s %.Y %.Z' "$@")$newline"
    old=
    if [ -O "$known.key" ] && [ -O "$known.sums" ]; then
        while IFS= read -r word; do old="$old$word$newline"; done < "$known.key"
    fi
    printf '%s\n' "program $program" "flags $flags" "coretype $OPENBLAS_CORETYPE" \
        environment "$(virtqual_environment)" ldd "$loaded"
    if [ "$old" = "$key" ]; then
        cat "$known.sums"
        return
    fi
    sums="sha256
$(sha256sum "$@")
real
$(readlink -f "$@")
says
$(python3 ./seen_says.py "$@" 2> /dev/null)"
    printf '%s\n' "$sums"
    (
        mkdir -p "${known%/*}" || exit
        case $linked in *'=>'*) : > "$known.dynamic" ;; esac
        printf '%s\n' "$sums" > "$known.sums" && printf '%s\n' "$package" > "$known.package" &&
            printf %s "$key" > "$known.key"
    ) 2> /dev/null || : # the next run only takes longer
}
