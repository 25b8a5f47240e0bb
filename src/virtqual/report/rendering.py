"""HTML pages of one file: no script, no network, and the same bytes for the same content."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from virtqual.files.wording import printable
from virtqual.report import plots
from virtqual.verdict.notation import format_value


def render_page(template: str | Template, title: str, **content: Any) -> str:
    """Return a page with the style of the report; a template may be a name or one of `make_environment`."""
    environment = make_environment()
    style = environment.get_template("report.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template(template).render(
        title=title, style=Markup(style), style_hash=digest, **content
    )


@cache
def make_environment() -> Environment:
    """Return the environment of the templates, which escapes every text."""
    environment = Environment(
        loader=PackageLoader("virtqual.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_finalize,
    )
    environment.filters["value"] = format_value
    environment.filters["time"] = format_time
    environment.filters["with_code"] = _mark_code
    environment.globals.update(BAR=plots.BAR, WIDTH=plots.WIDTH, WIDE=plots.WIDE, HEIGHT=plots.HEIGHT)
    return environment


def _mark_code(text: str) -> Markup:
    """Return a text in which a command between backticks is marked as one."""
    parts = [escape(printable(part)) for part in text.split("`")]
    code = [
        Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in enumerate(parts)
    ]
    return Markup("").join(code) if len(parts) % 2 else escape(printable(text))


def _finalize(value: Any) -> Any:
    """Return what a template shows of a value."""
    if isinstance(value, float):
        return f"{value:g}"
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return printable(value)


def format_time(created: str) -> str:
    """Return an ISO time such as ``2026-11-29 22:54 UTC``."""
    return f"{datetime.fromisoformat(created).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
