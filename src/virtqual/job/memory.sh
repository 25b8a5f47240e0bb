#!/bin/sh
# Runs a program on the CPUs of NUMA node 0 with memory of that node (`memory.sh local PROGRAM OPTION...`), or of the
# farthest node (`remote`): the nearest node can be a part of the same socket.  Notes the number of the memory's node.
node=0
if [ "$1" = remote ]; then
    # Nodes without CPUs (another kind of memory) or without memory are skipped.  The last of equally far nodes is
    # taken: it is in another socket even if a VM knows no distances.
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
