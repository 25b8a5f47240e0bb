#!/bin/sh
# Records this node, and the software that a program loads on it.  Called as `see.sh PROGRAM`, once per node.
read -r node < /proc/sys/kernel/hostname
node=${SLURMD_NODENAME:-$node}
trap ': > "virtqual.saw.$node"' EXIT
. ./gather.sh > "virtqual.node.$node"
. ./seen.sh
virtqual_seen "$1" > "virtqual.seen.$node"
