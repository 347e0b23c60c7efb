"""How values, types and rules are said in words, for errors and for the list of fields."""

import itertools
import math
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from sublayer.config.catalog import nearest

LONGEST_VALUE = 80
_DEEPEST = 4
_MOST_BITS, _DIGITS_PER_BIT = 1024, math.log10(2)
_NAMES: dict[Any, str] = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def show(value: Any) -> str:
    """Write a value as one line, text in quotes, shortened where it is long."""
    if value is None:
        return "unset"
    text = str(value).lower() if isinstance(value, bool) else _written(value, _DEEPEST)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 4] + " ..."


def _written(value: Any, deepest: int) -> str:
    """Write any value as ``repr`` does, but no more of it than is shown: whatever its length, depth or digits."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a whole number of {round(value.bit_length() * _DIGITS_PER_BIT):,} digits"
    if isinstance(value, str):
        return repr(value[:LONGEST_VALUE])
    if not isinstance(value, list | tuple | Mapping):
        return repr(value)
    if not deepest:
        return "..."
    if isinstance(value, Mapping):
        pairs = itertools.islice(value.items(), LONGEST_VALUE)
        return "{" + ", ".join(f"{_written(key, 0)}: {_written(each, deepest - 1)}" for key, each in pairs) + "}"
    return "[" + ", ".join(_written(each, deepest - 1) for each in value[:LONGEST_VALUE]) + "]"


def choice_error(key: str, value: Any, choices: Iterable[Any]) -> str:
    """Say that a value is none of the choices, and which one was probably meant."""
    names = [str(choice) for choice in choices]
    near = nearest(value, names) if isinstance(value, str) else None
    hint = f": did you mean {near}?" if near else ""
    return f"{key} = {show(value)} is not one of {', '.join(names)}{hint}"


def type_in_words(annotation: Any) -> str:
    """Say what a field takes: ``a whole number``, ``one of a, b``, ``text or a list of texts``."""
    options = [_one_type(each) for each in _alternatives(annotation)]
    return options[0] if len(options) == 1 else ", ".join(options[:-1]) + " or " + options[-1]


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """Return the choices of a field that takes one of a few values, else nothing."""
    found = [get_args(each) for each in _alternatives(annotation) if get_origin(each) is Literal]
    return found[0] if found else ()


def bounds_in_words(info: FieldInfo) -> str:
    """Say a field's limits: ``at least 0, less than 1``; empty where it has none."""
    limits = [
        f"{words} {_limit(getattr(rule, short))}"
        for rule in info.metadata
        for short, words in _BOUNDS.items()
        if getattr(rule, short, None) is not None
    ]
    return ", ".join(limits)


def rule_in_words(detail: Mapping[str, Any]) -> str | None:
    """Say the limit that a value broke, from one of pydantic's errors; None if it is of the wrong type altogether."""
    for short, words in _BOUNDS.items():
        if short in detail.get("ctx", {}):
            return f"must be {words} {_limit(detail['ctx'][short])}"
    return "must be finite" if detail["type"] == "finite_number" else None


def _limit(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if value in (1e6, 1e7) else f"{value:g}"


def _alternatives(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [one for each in get_args(annotation) if each is not type(None) for one in _alternatives(each)]
    return [annotation]


def _one_type(annotation: Any) -> str:
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(str(each) for each in arguments)
    if get_origin(annotation) is dict:
        return "{name = weight}"
    if get_origin(annotation) is tuple:
        return "a list of texts" if arguments[-1] is Ellipsis else f"a list of {len(arguments)} numbers"
    return _NAMES[annotation]
