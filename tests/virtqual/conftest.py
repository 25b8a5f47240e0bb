"""Series made to measure, and a server that takes notices."""

import json
import os
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
from hypothesis import settings
from made_series import REFERENCES, samples_of

from virtqual.references import References, load_references
from virtqual.references.metrics import load_metrics
from virtqual.verdict.metric import Metric, Metrics
from virtqual.verdict.pairs import Series, pair_up

# No test asserts a time: how long an example takes is a fact about the machine.
settings.register_profile("virtqual", deadline=None)
#: New examples each night, and many of them (.github/workflows/nightly.yml).
settings.register_profile("nightly", deadline=None, max_examples=5000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "virtqual"))


@pytest.fixture(scope="session")
def metrics() -> Metrics:
    return load_metrics(REFERENCES / "metrics")


@pytest.fixture(scope="session")
def references() -> References:
    return load_references(REFERENCES)


@pytest.fixture(scope="session")
def make() -> Callable[..., Series]:
    """Return a function that makes a series from differences d, one row (or number) per pair."""

    def build(
        metric: Metric, differences, points: Sequence[float] = (), setting: str = "here", **how
    ) -> Series:
        rows = [np.atleast_1d(row) for row in differences]
        return pair_up(metric, setting, points, samples_of(metric, rows, **how))

    return build


@pytest.fixture
def webhook():
    """A server that keeps what is posted to it, and takes nothing while `fails` is set."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.requests.append((self.path, self.headers["Idempotency-Key"]))
            server.taken.extend([] if server.fails else [content])
            self.send_response(503 if server.fails else 204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.fails, server.requests, server.taken = False, [], []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
