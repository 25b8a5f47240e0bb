"""The delivery of notices: each notice once over every channel of ``notify.yaml``.

A receipt is an empty file named by the id of a notice, in the outbox of a channel. A file for the attempt is
written before a delivery and renamed to the receipt after it. A full disk is thus seen before the delivery,
and after a crash in between the notice is sent again with the same id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from virtqual import paths
from virtqual.errors import VirtqualError
from virtqual.files.locking import hold_lock
from virtqual.files.records import sync_directory, write_file
from virtqual.history.channels import Channel
from virtqual.history.nights import Notice

#: A system and a hypervisor class.
Place: TypeAlias = tuple[str, str]
#: When the oldest session of a place began, and the newest that has come to an end.
Span: TypeAlias = tuple[datetime, datetime]


def deliver(
    notices: Iterable[Notice], outbox: Path, channels: Mapping[str, Channel], spans: Mapping[Place, Span]
) -> tuple[int, list[str]]:
    """Send every notice without a receipt, the oldest first; return the number sent, and the failures.

    Notices from before the first delivery of a place over a channel are not sent over it. A notice of the
    oldest session is not sent if older sessions were deleted.
    """
    sent, failures = 0, []
    notices = list(notices)
    for name, send in channels.items():
        try:
            box = paths.make(outbox / name)
            with hold_lock(box / "lock"):
                begins = {place: _read_begin(box, place, newest) for place, (_, newest) in spans.items()}
                for notice in notices:
                    place = notice.system, notice.hypervisor_class
                    begin, (oldest, _) = begins[place], spans[place]
                    is_old = notice.when < begin or (notice.first and oldest > begin)
                    receipt = box / f"{notice.id}.sent"
                    if is_old or receipt.exists():
                        continue
                    attempt = write_file("\n", box / f"{notice.id}.attempt")
                    send(notice)
                    attempt.rename(receipt)
                    sync_directory(box)
                    sent += 1
        except (OSError, VirtqualError) as error:
            # Notices go in their order: those after a failure wait for the next call.
            failures.append(f"{name}: {error}")
        except Exception as error:
            # The text of an unknown error may repeat a secret.
            failures.append(f"{name}: {type(error).__name__}")
    return sent, failures


def _read_begin(box: Path, place: Place, newest: datetime) -> datetime:
    """Return when the session began that was the newest at the first delivery, which stores it."""
    file = box / f"{'.'.join(place)}.since"
    if not file.exists():
        write_file(newest.isoformat(), file)
    return datetime.fromisoformat(file.read_text(encoding="utf-8"))
