"""Load of the application of `web_events`: a seeded mix of requests, whose answers are read.

Runs on a compute node, as ``python web_load.py ADDRESS PORT PROCESSES SEED WINDOW LOAD...``.  At first each
process asks over `CONNECTIONS` connections without a pause, in windows of WINDOW seconds, until the server is
warm; with a WINDOW of 0 it is.  A LOAD is NAME:SECONDS:RATE.  Its requests begin at random times, RATE a
second, whether the server has answered others or not; those of rate 0 begin as soon as there are answers.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import sys
import time
import urllib.request
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple, NoReturn

from hdrh.histogram import HdrHistogram

from virtqual.programs.text import compute_checksum

#: Requests among 100 by their kind, in the manner of Olio's.
MIX = {"home": 26, "tag": 33, "event": 25, "person": 3}
MIX |= {"sign_up": 6, "remark": 4, "add_event": 2, "add_person": 1}
PEOPLE, EVENTS, TAGS = 1000, 2000, 50  # as in data.sql
CONNECTIONS = 16
#: Of all processes: Tomcat takes 8192.  Of one: select cannot wait for files above 1024.
MAX_CONNECTIONS, MAX_CONNECTIONS_OF_PROCESS = 4000, 900
LONGEST_ANSWER_S, LONGEST_TIME_US = 60.0, 600_000_000
#: The server is warm if so many windows served at most so much more than as many before.
WARM_WINDOWS, WARM_GROWTH, MAX_WINDOWS = 5, 0.03, 60
MICROSECOND = 1e-6


class WebRequest(NamedTuple):
    """A request, and what its answer must hold: texts, and so many rows at least."""

    kind: str
    text: bytes
    expected: tuple[bytes, ...]
    rows: int


class LoadShare(NamedTuple):
    """Response times and lags that one process noted.

    Attributes
    ----------
    responses, lags
        Histograms of us: from the intended begin of requests to their answers, and to their begin.
    waited
        Requests for which there was no connection.
    cpu
        The share of a CPU that the process took.
    """

    seconds: float
    responses: str
    lags: str
    waited: int
    cpu: float
    mistakes: list[str]


def make_request(rng: random.Random, address: str) -> WebRequest:
    """Draw a request."""
    (kind,) = rng.choices(list(MIX), list(MIX.values()))
    event, person = rng.randint(1, EVENTS), rng.randint(1, PEOPLE)
    tag, word = rng.randrange(TAGS), f"{rng.getrandbits(64):016x}"
    path, form, expected, rows = {
        "home": ("/", "", ["<h1>Events</h1>"], 20),
        "tag": (f"/tags/tag{tag}", "", [f"<h1>tag{tag}</h1>"], 20),
        "event": (f"/events/{event}", "", [f"<h1>Event {event}</h1>", "<dd>"], 10),
        "person": (f"/people/{person}", "", [f"<h1>Person {person}</h1>"], 20),
        "sign_up": (f"/events/{event}/people", f"person={person}", [f'"/people/{person}"'], 10),
        "remark": (f"/events/{event}/remarks", f"person={person}&text={word}", [f"<dd>{word}</dd>"], 10),
        "add_event": ("/events", f"title={word}&tag=tag{tag}", [f"<h1>{word}</h1>"], 0),
        "add_person": ("/people", f"name={word}", [f"<h1>{word}</h1>"], 0),
    }[kind]
    head = f"{'POST' if form else 'GET'} {path} HTTP/1.1\r\nHost: {address}\r\n"
    if form:
        head += f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(form)}\r\n"
    texts = tuple(text.encode() for text in (*expected, "</html>"))
    return WebRequest(kind, f"{head}\r\n{form}".encode(), texts, rows)


class Connections:
    """The connections of one process, and what was measured over them."""

    def __init__(self, address: str, port: int, room: int, seed: str) -> None:
        self.place, self.rng = (address, port), random.Random(seed)
        self.responses, self.lags = (HdrHistogram(1, LONGEST_TIME_US, 3) for _ in range(2))
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.room = asyncio.Semaphore(room)
        self.waited = 0
        self.mistakes: list[str] = []

    async def answer(self, request: WebRequest, begin: float) -> None:
        """Send a request over a free connection, or a new one, and record the time since `begin`."""
        self.waited += self.room.locked()
        try:
            async with self.room, asyncio.timeout(LONGEST_ANSWER_S):
                reader, writer = self.free.pop() if self.free else await asyncio.open_connection(*self.place)
                writer.write(request.text)
                mistake = find_mistake(request, *await read_answer(reader))
                self.free.append((reader, writer))
        except TimeoutError:
            mistake = f"no answer in {LONGEST_ANSWER_S:.0f} s"
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            mistake = f"{type(error).__name__} {error}"
        self.responses.record_value(max(1, round((time.perf_counter() - begin) / MICROSECOND)))
        if mistake:
            self.mistakes.append(f"{request.kind}: {mistake}")

    async def ask_without_pause(self, end: float) -> None:
        """Ask again as soon as there is an answer."""
        while (now := time.perf_counter()) < end and not self.mistakes:
            await self.answer(make_request(self.rng, self.place[0]), now)

    async def ask_at_rate(self, rate: float, end: float) -> None:
        """Begin requests at the times of a Poisson process, and wait for all answers at last."""
        begin, answers = time.perf_counter(), []
        while (begin := begin + self.rng.expovariate(rate)) < end:
            request = make_request(self.rng, self.place[0])
            if (wait := begin - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            self.lags.record_value(max(1, round((time.perf_counter() - begin) / MICROSECOND)))
            answers.append(asyncio.create_task(self.answer(request, begin)))
        await asyncio.gather(*answers)

    async def measure(self, rate: float, seconds: float) -> LoadShare:
        """Measure a load, at a rate or without pauses (0)."""
        begin, cpu = time.perf_counter(), time.process_time()
        end = begin + seconds
        if rate:
            await self.ask_at_rate(rate, end)
        else:
            await asyncio.gather(*(self.ask_without_pause(end) for _ in range(CONNECTIONS)))
        took = time.perf_counter() - begin
        for _, writer in self.free:
            writer.close()
        share = (time.process_time() - cpu) / took
        responses, lags = (histogram.encode().decode() for histogram in (self.responses, self.lags))
        return LoadShare(took, responses, lags, self.waited, share, self.mistakes)


async def read_answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the status line and the content of an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in lines if line)
    if b"content-length" in fields:
        return status, await reader.readexactly(int(fields[b"content-length"]))
    parts = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    await reader.readuntil(b"\r\n")
    return status, b"".join(parts)


def find_mistake(request: WebRequest, status: bytes, content: bytes) -> str:
    """Return what is wrong with an answer; empty if nothing is."""
    if status.split()[1:2] != [b"200"]:
        return status.decode(errors="replace")
    for text in request.expected:
        if text not in content:
            return f"no {text.decode()} among {len(content)} bytes"
    rows = content.count(b"<li>")
    return f"{rows} rows of {request.rows}" if rows < request.rows else ""


def run_process(address: str, port: int, room: int, seed: str, rate: float, seconds: float) -> LoadShare:
    """Measure a load in this process; the loop is select's, since epoll rounds times to milliseconds."""

    async def measure() -> LoadShare:
        return await Connections(address, port, room, seed).measure(rate, seconds)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        return runner.run(measure())


class Client:
    """All processes, and the text that the parser reads."""

    def __init__(self, address: str, port: int, processes: int, seed: str) -> None:
        # A proxy of the environment is not for the node itself.
        urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))
        with urllib.request.urlopen(f"http://{address}:{port}/java", timeout=LONGEST_ANSWER_S) as answer:
            java = answer.read().decode()
        self.lines = [f"web_load 1.0 seed {seed} processes {processes}", f"java {java}"]
        room = min(MAX_CONNECTIONS // processes, MAX_CONNECTIONS_OF_PROCESS)
        self.place, self.processes, self.seed = (address, port, room), processes, seed
        self.pool = ProcessPoolExecutor(processes, get_context("fork"))

    def measure(self, name: str, seconds: float, rate: float = 0) -> float:
        """Measure and note a load; return the answers a second, or end if one of them was wrong."""
        seeds = [f"{self.seed} {name} {process}" for process in range(self.processes)]
        own_rate = rate / self.processes
        running = [self.pool.submit(run_process, *self.place, seed, own_rate, seconds) for seed in seeds]
        outcomes = [process.result() for process in running]
        responses, lags = (HdrHistogram(1, LONGEST_TIME_US, 3) for _ in range(2))
        for outcome in outcomes:
            responses.decode_and_add(outcome.responses)
            lags.decode_and_add(outcome.lags)
        took, cpu = max(outcome.seconds for outcome in outcomes), max(outcome.cpu for outcome in outcomes)
        count, waited = responses.get_total_count(), sum(outcome.waited for outcome in outcomes)
        self.lines.append(
            f"{name} rate {rate:.6g} seconds {took:.6f} answers {count} waited {waited} cpu {cpu:.4f}"
        )
        if mistakes := [mistake for outcome in outcomes for mistake in outcome.mistakes]:
            self.end(f"wrong {len(mistakes)} of {count}: {mistakes[0]}")
        if not name.startswith("window"):
            self.lines += [f"responses {responses.encode().decode()}", f"lags {lags.encode().decode()}"]
        return float(count / took)

    def warm_up(self, seconds: float) -> None:
        """Measure windows until the server is warm; end if it never is."""
        rates: list[float] = []
        while len(rates) < MAX_WINDOWS:
            rates.append(self.measure(f"window-{len(rates) + 1}", seconds))
            before, last = rates[-2 * WARM_WINDOWS : -WARM_WINDOWS], rates[-WARM_WINDOWS:]
            if len(before) == WARM_WINDOWS and sum(last) <= (1 + WARM_GROWTH) * sum(before):
                return
        self.end(f"cold {rates[-1]:.0f} answers a second at last")

    def end(self, *last: str) -> NoReturn:
        """Print all lines, and a checksum of them."""
        text = "".join(f"{line}\n" for line in (*self.lines, *last))
        print(f"{text}end {compute_checksum(text)}")
        sys.exit()


def main(address: str, port: str, processes: str, seed: str, window: str, *loads: str) -> None:
    """Warm the server up, and measure each load."""
    client = Client(address, int(port), int(processes), seed)
    if float(window):
        client.warm_up(float(window))
    for load in loads:
        name, seconds, rate = load.split(":")
        client.measure(name, float(seconds), float(rate))
    client.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
