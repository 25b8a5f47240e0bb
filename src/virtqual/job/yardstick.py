"""Time a fixed piece of work: how fast this CPU is, whatever the program is that cannot run here.

Needs a Python 3 and nothing else.  Prints one line: the name of the work, the median time and all of them, in
seconds.  Another work must have another name.
"""

import time

ROUNDS, STEPS, RESULT = 15, 1_000_000, 359_800


def work() -> int:
    """Return a number that takes many steps, each of which needs the one before."""
    value = 1
    for step in range(STEPS):
        value = (value * 31 + step) % 1_000_003
    return value


times = []
for _ in range(ROUNDS):
    begin = time.perf_counter()
    result = work()
    times.append(time.perf_counter() - begin)
assert result == RESULT, f"this interpreter computes {result}"
shown = " ".join(f"{seconds:.6f}" for seconds in [sorted(times)[ROUNDS // 2], *times])
print(f"yardstick recurrence-1 {shown} s", flush=True)
