#!/bin/sh
# Writes down what this node is, and what a program loads on it.  Called as `see.sh PROGRAM`, once a node.
read -r node < /proc/sys/kernel/hostname
trap ': > "virtqual.saw.$node"' EXIT
. ./gather.sh > "virtqual.node.$node"
. ./seen.sh
virtqual_seen "$1" > "virtqual.seen.$node"
