"""Words for mistakes in files: which key, what is wrong with it, and what could have been meant."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from textwrap import shorten
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

Key = tuple[str | int, ...]


#: Characters that a terminal obeys, that turn the direction of text or that have no width.
_UNPRINTABLE = frozenset(["Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"])


def printable(text: str, most: int | None = None) -> str:
    """Return text from outside as it can be shown anywhere, of at most `most` characters.

    A control character, a bidirectional override or another character without a shape is replaced by U+FFFD;
    line feeds and tabs stay.

    Examples
    --------
    >>> printable("a\\x1b[8mb")
    'a\ufffd[8mb'
    """
    if most is not None and len(text) > most:
        text = f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
    if text.isprintable() and text.isascii():
        return text
    return "".join(
        "\ufffd" if unicodedata.category(c) in _UNPRINTABLE and c not in "\n\t" else c for c in text
    )


def dotted(key: Key) -> str:
    """Return a key path as people write it: ``("budgets", 2, "margin")`` is ``budgets[2].margin``."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def pluralize(count: int, noun: str) -> str:
    """Return such as ``1 node`` and ``2 nodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def list_names(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first of some names, and how many more there are: ``vm1, vm2 and 6 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def node_sort_key(node: str) -> tuple[int, str]:
    """Return what names of nodes are sorted by: `vm10` after `vm9`."""
    return len(node), node


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the part of an error message that lists what could have been meant instead of `name`."""
    names = sorted(known)
    matches = get_close_matches(name, names, n=3, cutoff=0.5)
    if matches:
        return "did you mean " + " or ".join(matches) + "?"
    return "known are " + (", ".join(names) if names else "none") + "."


def describe_mistakes(
    error: ValidationError, model: type[BaseModel], content: object
) -> list[tuple[Key, str]]:
    """Return each mistake that pydantic found: the key, and a sentence that begins after it.

    Parameters
    ----------
    error
        The error that pydantic raised.
    model
        The model that it checked against.
    content
        The data that pydantic checked: mappings, lists and scalars.
    """
    found: dict[Key, list[tuple[str, str]]] = {}
    for item in error.errors(include_url=False):
        kind, message = item["type"], str(item["msg"]).removeprefix("Value error, ")
        key = _in_content(item["loc"], content, missing=kind == "missing")
        if kind == "missing":
            message = "is missing, and has no default."
        elif kind == "extra_forbidden":
            message = f"is not a key of this kind of entry: {suggest(str(key[-1]), _keys(model, key[:-1]))}"
        elif kind not in ("value_error", "json_invalid"):
            message = f"{message} (found {shorten(repr(item['input']), 60)})."
        found.setdefault(key, []).append((kind, message))
    told = []
    for key, messages in found.items():
        # Of the branches of a union, those of another type altogether explain nothing.
        telling = [message for kind, message in messages if not kind.endswith("_type")]
        told += [(key, message) for message in telling or [messages[0][1]]]
    return told


def describe_first_mistake(error: ValidationError, model: type[BaseModel], content: object) -> str:
    """Return such as ``key runs[0].pair: Input should be a valid integer``; parameters as above."""
    key, message = describe_mistakes(error, model, content)[0]
    return f"key {dotted(key) or '(top)'}: {message}"


def _in_content(loc: tuple[str | int, ...], content: object, *, missing: bool) -> Key:
    """Return the part of pydantic's location that is in the content; it also names branches of unions."""
    key: list[str | int] = []
    for index, part in enumerate(loc):
        children = _children(content)
        if part in children:
            content = children[part]
        elif not (missing and index == len(loc) - 1):
            continue
        key.append(part)
    return tuple(key)


def _children(node: object) -> Mapping[str | int, object]:
    if isinstance(node, Mapping):
        return node
    return dict(enumerate(node)) if isinstance(node, list | tuple) else {}


def _keys(kind: Any, key: Key) -> set[str]:
    """Return the keys that a model, or a type made of models, has at `key`."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
        if not key:
            return set(fields)
        return _keys(fields[str(key[0])], key[1:]) if key[0] in fields else set()
    arguments = get_args(kind)
    if get_origin(kind) is Annotated:
        arguments = arguments[:1]
    elif isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Iterable):
        # A list, a tuple or a mapping: what it holds is one key further down.
        arguments, key = arguments[-1:] if get_origin(kind) is dict else arguments, key[1:]
    return set().union(*(_keys(argument, key) for argument in arguments)) if arguments else set()
