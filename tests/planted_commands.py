"""Commands whose values are planted, for both sides of a pair."""

import os
import stat
from pathlib import Path

#: Prints the next line of the file that it gets: a value, or what becomes of the run.
PROGRAM = """#!/bin/sh
n=$(cat "$1.n" 2> /dev/null || echo 0); n=$((n + 1)); echo $n > "$1.n"
value=$(sed -n "${n}p" "$1"); [ -n "$value" ] || value=$(tail -n 1 "$1")
case $value in
    hang)
        (trap '' TERM; exec sleep 60) & echo $! >> pids
        setsid sleep 60 & echo $! >> pids
        echo $$ >> pids; wait ;;
    fail) echo "out of memory" >&2; exit 3 ;;
    kill) kill -SEGV $$ ;;
    pause) touch paused; sleep 60 ;;
    silent) ;;
    *) echo "banner"; echo "Triad: $value MB/s"; echo "Copy: $value MB/s" >&2 ;;
esac
"""
METRIC = ("--metric", r"Triad: +(\S+)", "--unit", "MB/s", "--better", "higher")
ALLOWED = ("--budget", "5%", "--margin", "3%")


def write_program(file, text):
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def is_running(pid):
    """Whether a process has not ended; one that its parent has not noticed yet has."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
