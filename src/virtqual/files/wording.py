"""Words of messages: names, keys and numbers, and the mistakes that pydantic finds."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from textwrap import shorten
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError

Key = tuple[str | int, ...]

# Units of durations in s, each with the longest duration that is shown in it.
_UNITS_S = {"s": (1, 120.0), "min": (60, 7200.0), "h": (3600, float("inf"))}

# Phrases about wrong values, by pydantic's type of mistake.
_PHRASES = {
    "finite_number": "is no finite number",
    "greater_than_equal": "is less than {ge}",
    "less_than_equal": "is more than {le}",
    "greater_than": "must be more than {gt}",
    "less_than": "must be less than {lt}",
    "int_from_float": "is no whole number",
    **dict.fromkeys(("int_type", "int_parsing"), "is no whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "is no number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "is neither True nor False"),
    "string_type": "is no text: put it in quotes",
    **dict.fromkeys(("list_type", "tuple_type"), "is no list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "has no keys"),
    **dict.fromkeys(("date_type", "date_parsing"), "is no date: write YYYY-MM-DD"),
    "date_from_datetime_parsing": "is no date: write YYYY-MM-DD",
    "literal_error": "is not {expected}",
    "string_pattern_mismatch": "is not of the form {pattern}",
    **dict.fromkeys(("string_too_short", "too_short"), "is empty"),
}

#: The kinds of mistake that are about numbers.
_NUMBERS = frozenset(["int_type", "int_parsing", "float_type", "float_parsing"])
#: Words that people write for a name, by the name that they look for.  Spelling does not lead from one to the
#: other.
_SYNONYMS = {
    "better": ("direction", "goal"),
    "budget": ("allowed", "limit", "max", "threshold", "tolerance"),
    "build": ("revision", "version"),
    "check": ("audit", "validate", "verify"),
    "class": ("hypervisor_class", "kind", "type"),
    "compare": ("diff",),
    "expires": ("deadline", "end", "expiration", "expiry", "till", "until", "valid_until"),
    "fetch": ("download", "get"),
    "history": ("log", "trend", "trends"),
    "hypervisor_class": ("class",),
    "init": ("create", "make", "new"),
    "list": ("ls", "sessions"),
    "native": ("bare", "bare-metal", "baremetal", "baseline", "host", "metal", "reference"),
    "node": ("host", "hostname"),
    "owner": ("accepted_by", "approved_by", "approver", "author", "by", "who"),
    "pair": ("ab", "bench", "benchmark", "hyperfine", "measure", "run", "time"),
    "qualify": ("bench", "benchmark", "measure", "run", "start", "test"),
    "reason": ("because", "comment", "description", "note", "why"),
    "register": ("add",),
    "report": ("export", "html"),
    "setting": ("case", "parameter", "parameters", "size"),
    "show": ("cat", "print", "view"),
    "up_to": ("accepted", "allowed", "at_most", "limit", "max", "threshold"),
    "virtual": ("candidate", "cloud", "guest", "vm", "vms"),
}
#: How many valid names a message lists next to those that are similar.
_MAX_LISTED = 12
#: A number with a unit, and the beginning of a date or time.
_WITH_UNIT = re.compile(r"[+-]?[\d.]+ *([^\W\d_]{1,8}|%)")
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?")

# Categories of characters that control a terminal, change the direction of text, or have no width.
_UNPRINTABLE_CATEGORIES = frozenset(["Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"])


class Range(NamedTuple):
    """The least and the most that something may be."""

    low: float
    high: float


def printable(text: str, max_chars: int | None = None) -> str:
    """Return text that can be shown anywhere, shortened to `max_chars` characters.

    U+FFFD replaces control characters, bidirectional overrides and other characters without a shape; line
    feeds and tabs stay.

    Examples
    --------
    >>> printable("a\\x1b[8mb")
    'a\ufffd[8mb'
    """
    if max_chars is not None and len(text) > max_chars:
        text = f"{text[: max_chars - 1]}\N{HORIZONTAL ELLIPSIS}"
    if text.isprintable() and text.isascii():
        return text
    return "".join(
        "\ufffd" if unicodedata.category(c) in _UNPRINTABLE_CATEGORIES and c not in "\n\t" else c
        for c in text
    )


def dotted(key: Key) -> str:
    """Return a key as people write it: ``("budgets", 2, "margin")`` is ``budgets[2].margin``."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def pluralize(count: int, noun: str) -> str:
    """Return such as ``1 node`` and ``2 nodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def mask_numbers(text: str) -> str:
    """Return a text with N for each number, to find texts that differ in numbers only; exit codes stay.

    Examples
    --------
    >>> mask_numbers("job 12 took 1.5 s: exit code 137")
    'job N took N s: exit code 137'
    """
    return re.sub(r"(?<!exit code )(?<![\d.])\d[\d.]*", "N", text)


def format_time(seconds: Range) -> str:
    """Return such as ``20 to 50 min`` or ``1.5 h``."""
    name, unit = next((name, unit) for name, (unit, most) in _UNITS_S.items() if seconds.high < most)
    return f"{format_range(seconds, unit)} {name}"


def format_range(amount: Range, unit: float) -> str:
    """Return both ends in a unit, or one if they are alike."""
    ends = (f"{end / unit:.0f}" if end >= 10 * unit else f"{end / unit:.2g}" for end in amount)
    return " to ".join(dict.fromkeys(ends))


def list_names(names: Sequence[str], max_names: int, separator: str = ", ") -> str:
    """Return the first names and the number of the others: ``vm1, vm2 and 6 more``."""
    more = f" and {len(names) - max_names} more" if len(names) > max_names else ""
    return separator.join(names[:max_names]) + more


def node_sort_key(node: str) -> tuple[int, str]:
    """Return the key that sorts node `vm10` after `vm9`."""
    return len(node), node


def suggest(name: str, valid_names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: names that may be meant, and all if they are few.

    Examples
    --------
    >>> suggest("until", ["build", "expires", "owner"])
    'did you mean expires? Known are build, expires, owner.'
    """
    names = sorted(valid_names)
    guess = suggest_similar(name, names)
    if guess is None:
        return f"known are {', '.join(names) or 'none'}."
    return f"{guess} Known are {', '.join(names)}." if len(names) <= _MAX_LISTED else guess


def suggest_similar(name: str, valid_names: Iterable[str]) -> str | None:
    """Return a question with the names that an unknown one means, or is spelt like; None if there is none."""
    names = sorted(valid_names)
    meant = [known for known in names if name.lower().replace(" ", "_") in _SYNONYMS.get(known, ())]
    # Of a name of two letters one may be wrong.
    likeness = 0.5 if len(name) <= 3 else 0.6
    begun = [known for known in names if len(name) > 2 and known.startswith(name)]
    matches = meant or get_close_matches(name, names, n=3, cutoff=likeness) or begun
    return f"did you mean {' or '.join(matches)}?" if matches else None


def describe_mistakes(
    error: ValidationError, model: type[BaseModel] | None = None, content: object = None
) -> list[tuple[Key, str]]:
    """Return the key of each mistake, and a message that begins after the key.

    With the model similar names are suggested. With the content the keys have no branches of unions.
    """
    messages_by_key: dict[Key, list[tuple[str, str]]] = {}
    for mistake in error.errors(include_url=False):
        kind, message = mistake["type"], str(mistake["msg"]).removeprefix("Value error, ")
        key = mistake["loc"]
        if content is not None:
            key = _locate(key, content, is_missing=kind == "missing")
        if kind == "missing":
            message = "is missing, and has no default"
        elif kind == "extra_forbidden":
            names = f": {suggest(str(key[-1]), _list_keys(model, key[:-1]))}" if model and key else ""
            message = f"is not a key of this kind of entry{names}"
        elif kind not in ("value_error", "json_invalid"):
            message = describe_value(mistake)
        messages_by_key.setdefault(key, []).append((kind, message))
    mistakes = []
    for key, messages in messages_by_key.items():
        # In a union, branches of another type explain nothing.
        of_this_type = [message for kind, message in messages if not kind.endswith("_type")]
        mistakes += [(key, message) for message in of_this_type or [messages[0][1]]]
    return mistakes


def describe_value(mistake: Mapping[str, Any]) -> str:
    """Return the value of one of pydantic's mistakes, and what is wrong with it.

    Examples
    --------
    >>> describe_value({"type": "int_type", "msg": "Input should be a valid integer", "input": "all"})
    "'all' is no whole number"
    """
    value = shorten(repr(mistake["input"]), 60)
    if mistake["type"] in _NUMBERS and isinstance(mistake["input"], str):
        if _DATE.match(mistake["input"]):
            return f"{value} is a date, not a number: write seconds"
        if unit := _WITH_UNIT.fullmatch(mistake["input"].strip()):
            return f"{value} has a unit: write the number alone, in the unit of this key, not in {unit[1]}"
    phrase = _PHRASES.get(mistake["type"])
    if phrase is None:
        return f"{str(mistake['msg']).removeprefix('Value error, ')} (found {value})"
    return f"{value} {phrase.format(**mistake.get('ctx', {}))}"


def describe_first_mistake(
    error: ValidationError, model: type[BaseModel] | None = None, content: object = None
) -> str:
    """Return such as ``key runs[0].pair: 'x' is no whole number``."""
    key, message = describe_mistakes(error, model, content)[0]
    return f"key {dotted(key)}: {message}" if key else message


def _locate(location: tuple[str | int, ...], content: object, *, is_missing: bool) -> Key:
    """Return pydantic's location without the branches of unions, which are not in the content."""
    key: list[str | int] = []
    for index, part in enumerate(location):
        children: Mapping[Any, object] = {}
        if isinstance(content, Mapping):
            children = content
        elif isinstance(content, list | tuple):
            children = dict(enumerate(content))
        if part in children:
            content = children[part]
        elif not (is_missing and index == len(location) - 1):
            continue
        key.append(part)
    return tuple(key)


def _list_keys(kind: Any, key: Key) -> set[str]:
    """Return the keys that a model, or a type made of models, has at `key`."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
        if not key:
            return set(fields)
        return _list_keys(fields[str(key[0])], key[1:]) if key[0] in fields else set()
    arguments, origin = get_args(kind), get_origin(kind)
    if origin is Annotated:
        arguments = arguments[:1]
    elif isinstance(origin, type) and issubclass(origin, Iterable):
        # The content of a list, a tuple or a mapping is one key further down.
        arguments, key = arguments[-1:] if origin is dict else arguments, key[1:]
    return set().union(*(_list_keys(argument, key) for argument in arguments)) if arguments else set()
