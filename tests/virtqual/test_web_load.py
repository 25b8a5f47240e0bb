"""The client of the web application: what it sees of a server that stalls, and of itself."""

import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from virtqual import paths
from virtqual.job.web_load import Client, WebRequest, find_mistake
from virtqual.programs import web_load

SERVER = paths.root() / "tests/fakeslurm/events"


@pytest.fixture
def server(tmp_path):
    env = {**os.environ, "FAKE_SLURM": str(tmp_path), "FAKE_PARTITION": "bare"}
    process = subprocess.Popen([sys.executable, SERVER], env=env, stdout=subprocess.PIPE, text=True)
    process.port = int(re.search(r"port (\d+)", process.stdout.readline())[1])
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def measure(server, capsys):
    """Measure 50 requests a second for 4 s; the server or the client is stopped for half a second of that."""

    def measure(stopped):
        client = Client("127.0.0.1", server.port, 1, "7")
        process = client.pool.submit(os.getpid).result() if stopped == "client" else server.pid
        client.measure("window-1", 0.2)
        for seconds, number in ((2, signal.SIGSTOP), (2.5, signal.SIGCONT)):
            threading.Timer(seconds, os.kill, (process, number)).start()
        client.measure("half", 4, 50)
        with pytest.raises(SystemExit):
            client.end()
        return web_load.parse(capsys.readouterr().out).loads["half"]

    return measure


def test_a_server_that_stalls_is_seen_in_the_slowest_response_times(measure):
    load = measure("server")
    # One request in eight waits, up to half a second: one in 100 for more than 0.4 s.
    assert load.offered.p99 > max(300, 3 * load.offered.p50)
    assert load.throughput == pytest.approx(50, rel=0.4)


def test_a_client_that_stalls_is_the_limit_itself(measure):
    (reason,) = measure("client").offered.find_client_limits()
    assert reason.startswith("the client is the limit: it begins requests")


@pytest.mark.parametrize(
    ("status", "content", "mistake"),
    [
        (b"HTTP/1.1 200", b"<h1>Event 1</h1><li><li></html>", ""),
        (b"HTTP/1.1 500 ", b"<h1>Event 1</h1><li><li></html>", "HTTP/1.1 500 "),
        (b"HTTP/1.1 200", b"<h1>Event 2</h1><li><li></html>", "no <h1>Event 1</h1> among 31 bytes"),
        (b"HTTP/1.1 200", b"<h1>Event 1</h1><li></html>", "1 rows of 2"),
        (b"HTTP/1.1 200", b"<h1>Event 1</h1><li><li>", "no </html> among 24 bytes"),
    ],
)
def test_an_answer_is_right_only_if_its_content_is(status, content, mistake):
    request = WebRequest("event", b"", (b"<h1>Event 1</h1>", b"</html>"), 2)
    assert find_mistake(request, status, content) == mistake
