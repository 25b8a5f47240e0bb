"""web_load: load of the application of `web_events` (source: virtqual/job/web_load.py)."""

from __future__ import annotations

from dataclasses import dataclass

from hdrh.histogram import HdrHistogram

from virtqual.programs.offered import OfferedLoad
from virtqual.programs.text import OutputError, ProgramName, check_lines, find_all, number, positive, single

NAME = ProgramName("web_load", "programs of this version of virtqual")


@dataclass(frozen=True)
class WebLoad:
    """One load: `rate` requests a second were offered, or 0 if there were as many as answers."""

    rate: float
    throughput: float
    offered: OfferedLoad


@dataclass(frozen=True)
class WebLoadRun:
    """One start of the server: the answers in each window until it was warm, and the loads after that."""

    seed: str
    processes: int
    java: str
    processors: int
    windows: list[int]
    loads: dict[str, WebLoad]


def parse(text: str) -> WebLoadRun:
    """Read the output of one run; a server that gave a wrong answer, or did not become warm, is refused."""
    check_lines(NAME, text)
    for word, meaning in (("wrong", "wrong answers"), ("cold", "the server did not become warm")):
        if mistakes := find_all(rf"^{word} (.+)$", text):
            raise OutputError(NAME, f"{meaning}: {mistakes[0][1]}")
    first = single(NAME, r"\A^web_load \S+ seed (\S+) processes (\d+)$", text, "first line")
    java, processors = single(NAME, r"^java (\S+) processors (\d+) heap \d+$", text, "Java").groups()
    windows = find_all(r"^window-\d+ rate 0 seconds \S+ answers (\d+) waited 0 cpu \S+$", text)
    form = (
        r"^(\w+) rate (\S+) seconds (\S+) answers (\d+) waited (\d+) cpu (\S+)\nresponses (\S+)\nlags (\S+)$"
    )
    loads = {load[1]: _read_load(*load.groups()[1:]) for load in find_all(form, text)}
    return WebLoadRun(
        seed=first[1],
        processes=int(first[2]),
        java=java,
        processors=int(processors),
        windows=[int(window[1]) for window in windows],
        loads=loads,
    )


def _read_load(
    rate: str, seconds: str, answers: str, waited: str, cpu: str, responses: str, lags: str
) -> WebLoad:
    times, late = HdrHistogram.decode(responses), HdrHistogram.decode(lags)
    if times.get_total_count() != int(answers) or not int(answers):
        raise OutputError(NAME, f"at rate {rate}: {times.get_total_count()} times of {answers} answers")
    offered = OfferedLoad(
        p50=times.get_value_at_percentile(50) / 1000,
        p99=times.get_value_at_percentile(99) / 1000,
        on_time=100 * (1 - int(waited) / int(answers)),
        client_lag=late.get_value_at_percentile(99) / 1000,
        client_cores=positive(NAME, cpu, "CPU"),
    )
    return WebLoad(number(NAME, rate, "rate"), int(answers) / positive(NAME, seconds, "seconds"), offered)
