"""The delivery of notices: each one once, by every way that a site has stated.

A notice is due until its receipt, an empty file with its id, lies in the outbox of a way.  Before a delivery
there is a file for the attempt, which becomes the receipt: where there is no room for it nothing is sent, and
after a crash in between the notice is sent again, with the same id.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import smtplib
import ssl
import stat
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from email.message import EmailMessage
from email.utils import localtime
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from virtqual import paths
from virtqual.errors import InfrastructureError, UsageError, VirtqualError
from virtqual.files import execute, reading
from virtqual.files.datafile import DataModel, parse
from virtqual.files.locking import hold_lock
from virtqual.files.records import sync_directory, write_file
from virtqual.history.nights import Notice

#: A way that takes longer than this has failed, seconds.
PATIENCE = 60
RECEIPT, ATTEMPT = ".sent", ".attempt"
#: Sends a notice; returns what went wrong although it was delivered, or nothing.
Way: TypeAlias = Callable[[Notice], str]
#: A system and a hypervisor class.
Place: TypeAlias = tuple[str, str]
#: When the oldest and the newest session of a place began.
Span: TypeAlias = tuple[datetime, datetime]
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class Smtp(DataModel):
    """Mail by an SMTP server; its password stands in a file of its own."""

    host: str
    port: int = 25
    sender: str
    to: Annotated[list[str], Field(min_length=1)]
    starttls: bool = False
    user: str = ""
    password_file: Annotated[Path | None, Field(strict=False)] = None

    @model_validator(mode="after")
    def _encrypted(self) -> Smtp:
        if self.password_file and not self.starttls:
            raise ValueError("a password goes over an encrypted connection only: state `starttls: true`.")
        return self


class Webhook(DataModel):
    """JSON to a URL; where whoever knows it may post, it is a secret, and stands in a file of its own."""

    url: str = ""
    url_file: Annotated[Path | None, Field(strict=False)] = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Webhook:
        if bool(self.url) == (self.url_file is not None):
            raise ValueError("state either `url` or `url_file`.")
        return self


class Notify(DataModel):
    """``notify.yaml``: whom to tell, and how.

    Attributes
    ----------
    expected_within_hours
        So long after one session the next one has to begin; nobody waits for it where it is not stated.
    command
        Gets the sentence on its standard input, and what it is about in variables ``VIRTQUAL_NOTICE_...``.
    smtp, webhook
        See `Smtp` and `Webhook`.
    """

    schema_: Annotated[Literal["virtqual-notify/1"], Field(alias="schema")]
    expected_within_hours: Annotated[float, Field(gt=0)] | None = None
    command: str = ""
    smtp: Smtp | None = None
    webhook: Webhook | None = None

    @property
    def expected(self) -> timedelta | None:
        """The same as a duration."""
        return None if self.expected_within_hours is None else timedelta(hours=self.expected_within_hours)

    def ways(self) -> Mapping[str, Way]:
        """Return how notices are sent, by name."""
        found: dict[str, Way] = {}
        if command := self.command:
            found["command"] = lambda notice: _run(command, notice)
        if smtp := self.smtp:
            found["smtp"] = lambda notice: _mail(smtp, notice)
        if webhook := self.webhook:
            found["webhook"] = lambda notice: _post(webhook, notice)
        return found


def read(file: Path) -> Notify:
    """Read whom to tell.

    Raises
    ------
    virtqual.errors.UsageError
        With every mistake, by file, line and key; or other users can write the file, which names commands.
    """
    status = file.lstat()
    if not paths.is_trusted(status):
        raise UsageError(
            f"{file}: it belongs to user {status.st_uid}, and names commands to run; write your own"
        )
    if status.st_mode & 0o022 and not stat.S_ISLNK(status.st_mode) and not paths.is_state_shared():
        raise UsageError(f"{file}: others can write it, and it names commands to run: chmod go-w")
    try:
        text = reading.read_bytes(file, reading.MAX_REVIEWED_BYTES, links=False).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: cannot be read: {getattr(error, 'strerror', error)}") from None
    return parse(file, text).read(Notify)


def deliver(
    notices: Iterable[Notice], outbox: Path, ways: Mapping[str, Way], spans: Mapping[Place, Span]
) -> tuple[int, list[str]]:
    """Send every notice that has no receipt, the oldest first; return how many were sent, and what failed.

    Parameters
    ----------
    notices
        All that there are.
    outbox
        Directory of receipts.
    ways
        How they are sent, by name.
    spans
        When the oldest session of each system and class began, and the newest that has come to an end.  What
        was before the newest one when a way is first asked is no news, and is not sent by it; neither is what
        the oldest session shows where older ones are gone.
    """
    sent, failed = 0, []
    every = list(notices)
    for name, send in ways.items():
        try:
            with _held(outbox / name) as box:
                since = {place: _begun(box, place, newest) for place, (_, newest) in spans.items()}
                for notice in every:
                    place = notice.system, notice.hypervisor_class
                    old = notice.when < since[place] or (notice.first and spans[place][0] > since[place])
                    if not old and not (box / f"{notice.id}{RECEIPT}").exists():
                        if odd := _send(box, notice, send):
                            failed.append(f"{name}: {odd}")
                        sent += 1
        except (OSError, VirtqualError) as error:
            # What is older goes first: those after it wait for the next time.
            failed.append(f"{name}: {error}")
        except Exception as error:
            # Whatever else went wrong: the other channels go on, and no secret is said.
            failed.append(f"{name}: {type(error).__name__}")
    return sent, failed


@contextmanager
def _held(box: Path) -> Iterator[Path]:
    """Hold the outbox of a way: nobody else delivers from it meanwhile."""
    paths.make(box)
    with hold_lock(box / "lock"):
        yield box


def _begun(box: Path, place: Place, first: datetime) -> datetime:
    file = box / f"{'.'.join(place)}.since"
    if not file.exists():
        write_file(first.isoformat(), file)
    return datetime.fromisoformat(file.read_text(encoding="utf-8"))


def _send(box: Path, notice: Notice, send: Way) -> str:
    # A full disk is noticed before anything is sent.
    attempt = write_file("\n", box / f"{notice.id}{ATTEMPT}")
    odd = send(notice)
    attempt.rename(box / f"{notice.id}{RECEIPT}")
    sync_directory(box)
    return odd


def _subject(notice: Notice) -> str:
    words = {
        "over": "OVER budget",
        "resolved": "within budget again",
        "undecided": "undecided",
        "failed": "no answer",
        "none": "no session",
    }
    return f"virtqual {notice.system}: {words[notice.kind]}" + (
        f": {notice.subject}" if notice.subject else ""
    )


def _facts(notice: Notice) -> dict[str, str]:
    said = {
        "id": notice.id,
        "kind": notice.kind,
        "system": notice.system,
        "class": notice.hypervisor_class,
        "metric": notice.subject,
        "session": notice.session,
        "when": notice.when.isoformat(),
        "subject": _subject(notice),
        "text": notice.text,
    }
    # Neither a header of a mail nor a variable of the environment takes them.
    return {name: _CONTROL.sub(" ", text) for name, text in said.items()}


def _run(command: str, notice: Notice) -> str:
    facts = _facts(notice)
    told = {f"VIRTQUAL_NOTICE_{name.upper()}": value for name, value in facts.items()}
    done = execute.run(
        ["sh", "-c", command], env={**os.environ, **told}, seconds=PATIENCE, stdin=facts["text"] + "\n"
    )
    if done.returncode != 0:
        raise InfrastructureError(f"ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    return ""


def _mail(way: Smtp, notice: Notice) -> str:
    message, facts = EmailMessage(), _facts(notice)
    message["Date"] = localtime()
    message["Subject"], message["From"], message["To"] = facts["subject"], way.sender, ", ".join(way.to)
    message["Message-ID"] = f"<{notice.id}@virtqual.invalid>"
    message.set_content(facts["text"])
    try:
        with smtplib.SMTP(way.host, way.port, timeout=PATIENCE) as server:
            if way.starttls:
                server.starttls(context=ssl.create_default_context())
            if way.password_file:
                server.login(way.user, secret(way.password_file))
            # Others have got it: it is not sent again for those who never will.
            refused = server.send_message(message)
    except smtplib.SMTPException as error:
        raise InfrastructureError(f"{way.host}: {type(error).__name__}") from None
    return f"{way.host} refuses the recipients {', '.join(refused)}" if refused else ""


def _post(way: Webhook, notice: Notice) -> str:
    url = way.url or secret(way.url_file or Path())
    if not re.fullmatch(r"https?://\S+", url):
        raise InfrastructureError("its URL is none of http or https, or has blanks in it")
    content = json.dumps(_facts(notice)).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": notice.id}
    try:
        request = urllib.request.Request(url, content, headers)
        post = urllib.request.build_opener(_NoRedirect).open
        with post(request, timeout=PATIENCE):
            pass
    except (OSError, ValueError, http.client.HTTPException) as error:
        # The URL is not said: it may be a secret.
        raise InfrastructureError(f"{type(error).__name__} {getattr(error, 'code', '')}".strip()) from None
    return ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Would follow by a GET without the notice: what is moved is an error."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def secret(file: Path) -> str:
    """Return what stands in a file that nobody else may read.

    Raises
    ------
    virtqual.errors.UsageError
        Others may, or it cannot be read.
    """
    try:
        if file.stat().st_mode & 0o077:
            raise UsageError(f"{file}: others may read it, and it holds a secret: chmod 600")
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}: name a file that others cannot read") from error
