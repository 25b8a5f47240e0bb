#!/bin/sh
# Runs a program on the CPUs of NUMA node 0 with memory of that node (`memory.sh local PROGRAM OPTION...`), or of the
# one that is farthest from it (`remote`): the next one may be a part of the same socket.  Writes down which it took.
node=0
if [ "$1" = remote ]; then
    # Nodes without CPUs (memory of another kind) or without memory do not count; of equally far ones the last does,
    # which is of another socket also where a VM is told no distances.
    node=$(LC_ALL=C numactl --hardware | awk '
        $1 == "node" && $3 == "cpus:" && NF > 3 { cpus[$2] = 1 }
        $1 == "node" && $3 == "size:" && $4 > 0 { memory[$2] = 1 }
        $1 == "node" && $2 ~ /^[0-9]+$/ && $3 !~ /:$/ { split($0, column) }
        $1 == "0:" {
            for (i = 2; i <= NF; i++)
                if (column[i] != 0 && cpus[column[i]] && memory[column[i]] && $i >= most) {
                    most = $i
                    far = column[i]
                }
        }
        END { print far }')
    if [ -z "$node" ]; then
        echo "memory.sh: numactl --hardware shows no distance to another NUMA node with CPUs and memory" >&2
        exit 1
    fi
fi
shift
echo "$node" > virtqual.memory
exec numactl --cpunodebind=0 --membind="$node" "$@"
