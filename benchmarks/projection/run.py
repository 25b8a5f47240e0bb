"""Compare the projected cost of noise with that of a program that waits for all of its ranks.

Each rank sleeps for a piece of time, at random for longer, and then waits for all others.  The projection
knows the pieces of one rank that waited for none.  Both costs are those beside the same program without
planted noise, which leaves out what waiting itself takes.
"""

from __future__ import annotations

import time
from multiprocessing import Barrier, Process, SimpleQueue

import numpy as np

from virtqual.report.projection import project
from virtqual.verdict.estimate import Floats

PIECE_S, PIECES = 0.005, 400
#: A share of the pieces takes so much longer.
SHARE, INTERRUPTION_S = 1 / 30, 0.010
ONE_IN = np.array([1, 2, 5, 10, 20, 50, 100])
RANKS = (2, 8)
RUNS = 5


def run_ranks(count: int, share: float, seed: int) -> Floats:
    """Return the durations of the first rank's pieces, and at the end that of the whole, in seconds."""
    barrier, answers = Barrier(count), SimpleQueue()

    def run_rank(rank: int) -> None:
        interruptions = np.random.default_rng([seed, rank]).random(PIECES) < share
        durations = np.zeros(PIECES + 1)
        barrier.wait()
        begin = time.monotonic()
        for piece, interrupted in enumerate(interruptions):
            durations[piece] = -time.monotonic()
            time.sleep(PIECE_S + INTERRUPTION_S * interrupted)
            durations[piece] += time.monotonic()
            barrier.wait()
        durations[-1] = time.monotonic() - begin
        if rank == 0:
            answers.put(durations)

    ranks = [Process(target=run_rank, args=(rank,)) for rank in range(count)]
    for process in ranks:
        process.start()
    durations = answers.get()
    for process in ranks:
        process.join()
    return durations


def find_times(share: float) -> Floats:
    """Return the times that one piece in so many exceeds, shape (n_runs, n_points)."""
    runs = np.array([run_ranks(1, share, seed)[:-1] for seed in range(RUNS)])
    ordered = np.sort(runs, axis=-1)
    return np.stack([ordered[:, 0 if n == 1 else PIECES - PIECES // n] for n in ONE_IN], axis=-1)


def main() -> None:
    noisy, quiet = find_times(SHARE), find_times(0.0)
    print("ranks  planted  projected (bounds)  measured (median and range of five runs)")
    for ranks in RANKS:
        planted = INTERRUPTION_S / PIECE_S * (1 - (1 - SHARE) ** ranks)
        with_noise, without = (project(ONE_IN, times, ranks, ranks) for times in (noisy, quiet))
        projected = [
            (1 + share) / (1 + without.mean) - 1
            for share in (with_noise.mean, with_noise.low, with_noise.high)
        ]
        wholes = [[run_ranks(ranks, share, seed)[-1] for seed in range(RUNS)] for share in (SHARE, 0.0)]
        costs = np.array(wholes[0]) / np.median(wholes[1]) - 1
        print(
            f"{ranks:5}  {planted:7.0%}  {{:.0%}} ({{:.0%}} to {{:.0%}})  ".format(*projected)
            + f"{np.median(costs):.0%} ({costs.min():.0%} to {costs.max():.0%})"
        )


if __name__ == "__main__":
    main()
