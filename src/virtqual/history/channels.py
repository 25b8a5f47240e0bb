"""``notify.yaml``: the channels over which notices are sent; `apprise` delivers to their URLs."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from pydantic import Field, model_validator

from virtqual import paths
from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import execute
from virtqual.files.datafile import DataModel, parse
from virtqual.history.nights import Notice

COMMAND_TIMEOUT_S = 60
#: The file of the site directory that names the channels of notices.
NOTIFY = "notify.yaml"
#: Sends a notice, or raises an error that repeats no secret.
Channel: TypeAlias = Callable[[Notice], None]
#: Names a directory of the outbox, too.
ChannelName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
_SUBJECTS = {
    "over": "OVER budget",
    "resolved": "within budget again",
    "undecided": "undecided",
    "failed": "no answer",
    "none": "no session",
}
_NOTIFY_TYPES = {"over": "failure", "failed": "failure", "resolved": "success"}
#: Services of apprise to which a URL may add headers (``+``) and fields of the content (``:``).
_SCHEMES_WITH_FIELDS = ("json", "jsons", "xml", "xmls", "form", "forms")
#: Names of fields and headers that hold secrets.
_SECRET_NAMES = re.compile("auth|cookie|^key|api.?key|passw|secret|^sig|token", re.IGNORECASE)


class ApprisePlace(DataModel):
    """A URL of apprise, or the place where it is kept if it holds a secret."""

    url: str | None = None
    url_file: Annotated[Path | None, Field(strict=False)] = None
    url_variable: str | None = None

    @model_validator(mode="after")
    def _check(self) -> ApprisePlace:
        if sum(value is not None for value in (self.url, self.url_file, self.url_variable)) != 1:
            raise ValueError("state one of `url`, `url_file` and `url_variable`.")
        if self.url and has_secret(self.url):
            raise ValueError(
                "the URL holds a secret, which does not belong here: write it to a file of mode 600 that "
                "`url_file` names, or to an environment variable that `url_variable` names."
            )
        return self

    def read_url(self) -> str:
        """Return the URL.

        Raises
        ------
        UsageError
            The file cannot be read, others own or can read it, or the variable is not set.
        """
        if self.url_variable is not None:
            if not (url := os.environ.get(self.url_variable)):
                raise UsageError(f"the variable {self.url_variable} is not set: it holds the URL")
            return url
        if (file := self.url_file) is None:
            return self.url or ""
        try:
            status = file.stat()
            if status.st_uid not in paths.trusted_owners():
                raise UsageError(f"{file}: it belongs to user {status.st_uid}: name a file of your own")
            if status.st_mode & 0o077:
                raise UsageError(f"{file}: others may read it, and it holds a secret: chmod 600")
            return file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}: name a file that others cannot read") from error

    def send(self, notice: Notice) -> None:
        """Send a notice.

        Raises
        ------
        UsageError
            See `read_url`; or apprise knows no such URL.
        InfrastructureError
            The service did not take the notice.
        """
        # Only a delivery pays for this import.
        from apprise import Apprise, AppriseAsset, NotifyFormat

        fields, url = list_fields(notice), self.read_url()
        if urlsplit(url).scheme in _SCHEMES_WITH_FIELDS:
            extras = {"+Idempotency-Key": notice.id}
            extras |= {f":{name}": value for name, value in fields.items() if name not in ("subject", "text")}
            url += f"{'&' if '?' in url else '?'}{urlencode(extras, quote_via=quote)}"
        # A redirected POST would arrive without its content.
        service = Apprise.instantiate(url, asset=AppriseAsset(http_redirects=False))
        if service is None:
            raise UsageError("apprise cannot read its URL: see https://github.com/caronc/apprise/wiki")
        result = Apprise([service]).notify(
            title=fields["subject"],
            body=f"{fields['text']}\n[{notice.id}]",
            notify_type=_NOTIFY_TYPES.get(notice.kind, "warning"),
            body_format=NotifyFormat.TEXT,
        )
        if not result:
            reasons = " ".join(str(entry.message) for entry in result.logs())
            raise InfrastructureError(reasons or "apprise could not deliver, and gives no reason")


class Notify(DataModel):
    """The content of ``notify.yaml``."""

    schema_: Annotated[Literal["virtqual-notify/1"], Field(alias="schema")]
    #: Longest time between the begins of two sessions.
    expected_within_hours: Annotated[float, Field(gt=0)] | None = None
    #: Shell command that gets the sentence as standard input, and `list_fields` as ``VIRTQUAL_NOTICE_...``.
    command: str | None = None
    #: URLs of apprise by names of the site.
    channels: dict[ChannelName, ApprisePlace] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Notify:
        if self.command and "command" in self.channels:
            raise ValueError("channel `command` has the name of the key: choose another name.")
        return self

    @property
    def expected(self) -> timedelta | None:
        """``expected_within_hours`` as a duration."""
        return None if self.expected_within_hours is None else timedelta(hours=self.expected_within_hours)

    def senders(self) -> Mapping[str, Channel]:
        """Return the channels by name."""
        senders: dict[str, Channel] = {name: place.send for name, place in self.channels.items()}
        if self.command:
            senders["command"] = partial(run_command, self.command)
        return senders


def read_site_notify(*, sends: bool) -> Notify | None:
    """Read ``notify.yaml`` of the site directory; None if there is none.  See `read_notify`."""
    file = paths.site() / NOTIFY
    return read_notify(file, sends=sends) if file.exists() else None


def read_notify(file: Path, *, sends: bool = True) -> Notify:
    """Read ``notify.yaml``.

    Raises
    ------
    virtqual.errors.UsageError
        Its mistakes by file, line and key; or, for a command that `sends`, that other users can write it.
    """
    status = file.lstat()
    if sends and not paths.is_trusted(status):
        raise UsageError(
            f"{file}: it belongs to user {status.st_uid}, and names commands to run; write your own"
        )
    is_writable = status.st_mode & 0o022 and not stat.S_ISLNK(status.st_mode)
    if sends and is_writable and not paths.is_state_shared():
        raise UsageError(f"{file}: others can write it, and it names commands to run: chmod go-w")
    return parse(file, links=False).read(Notify)


def has_secret(url: str) -> bool:
    """Return whether a URL of apprise has a password, a token or another part that apprise itself hides."""
    parts = urlsplit(url)
    names = [name for name, value in parse_qsl(parts.query) if value]
    if parts.password or any(_SECRET_NAMES.search(name) for name in names):
        return True
    if parts.scheme in _SCHEMES_WITH_FIELDS:
        return False
    # Only other services pay for this import.
    from apprise import Apprise

    service = Apprise.instantiate(url)
    if service is None:
        return False
    shown, whole = (service.url(privacy=hides) for hides in (True, False))  # type: ignore[no-untyped-call]
    return bool(shown != whole)


def list_fields(notice: Notice) -> dict[str, str]:
    """Return the fields of a notice without control characters, which no header or variable takes."""
    subject = f"virtqual {notice.system}: {_SUBJECTS[notice.kind]}"
    fields = {
        "id": notice.id,
        "kind": notice.kind,
        "system": notice.system,
        "class": notice.hypervisor_class,
        "metric": notice.subject,
        "session": notice.session,
        "when": notice.when.isoformat(),
        "subject": f"{subject}: {notice.subject}" if notice.subject else subject,
        "text": notice.text,
    }
    return {name: re.sub(r"[\x00-\x1f\x7f]+", " ", text) for name, text in fields.items()}


def run_command(command: str, notice: Notice) -> None:
    """Run a shell command for a notice.

    Raises
    ------
    InfrastructureError
        It ends with another code than 0.
    """
    fields = list_fields(notice)
    variables = {f"VIRTQUAL_NOTICE_{name.upper()}": value for name, value in fields.items()}
    result = execute.run(
        ["sh", "-c", command],
        env={**os.environ, **variables},
        seconds=COMMAND_TIMEOUT_S,
        stdin=fields["text"] + "\n",
    )
    if result.returncode != 0:
        raise InfrastructureError(f"ended with {result.returncode}: {result.stderr.strip()[-200:]}")
