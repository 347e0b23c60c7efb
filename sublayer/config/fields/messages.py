"""Format values, types and rules in words, for errors and for the list of fields."""

import itertools
import math
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from sublayer.files.paths import as_typed
from sublayer.nearest import nearest_hint

LONGEST_VALUE = 80
"""Characters of a value in a message."""
_DEEPEST = 4
"""Lists and tables within each other that are written out."""
_MOST_BITS, _DIGITS_PER_BIT = 1024, math.log10(2)
_NAMES: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
_TABLES: dict[Any, str] = {str: "{name = path}", float: "{name = weight}"}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def show(value: Any) -> str:
    """Format a value as one line, text in quotes, shortened where it is long."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = _written(value, _DEEPEST)
    if len(text) <= LONGEST_VALUE:
        return text
    return text[: LONGEST_VALUE - 4] + " ..."


def show_path(value: Any) -> str:
    """Format a value as ``show`` does; a text that is a path below the current folder is short."""
    return show(as_typed(value)) if isinstance(value, str) else show(value)


def setting_in_words(key: str, value: Any) -> str:
    """Format a setting, ``data.path = 'book.txt'``; where it is unset, ``no data.path``."""
    return f"no {key}" if value is None else f"{key} = {show_path(value)}"


def _written(value: Any, deepest: int) -> str:
    """Format any value as ``repr`` does, but no more of it than is shown.

    This holds whatever its length, depth or number of digits.
    """
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        n_digits = round(value.bit_length() * _DIGITS_PER_BIT)
        return f"a whole number of {n_digits:,} digits"
    if isinstance(value, str):
        return repr(value[:LONGEST_VALUE])
    if not isinstance(value, list | tuple | Mapping):
        return repr(value)
    if not deepest:
        return "..."
    # Of so many members the message is full, however short they are.
    shown = itertools.islice(value, LONGEST_VALUE)
    if isinstance(value, Mapping):
        entries = [_entry(key, value[key], deepest) for key in shown]
        return f"{{{', '.join(entries)}}}"
    members = [_written(each, deepest - 1) for each in shown]
    return f"[{', '.join(members)}]"


def _entry(key: Any, value: Any, deepest: int) -> str:
    return f"{_written(key, 0)}: {_written(value, deepest - 1)}"


def choice_error(key: str, value: Any, choices: Iterable[Any]) -> str:
    """Format the message that a value is none of the choices, and which one was probably meant."""
    names = [str(choice) for choice in choices]
    hint = nearest_hint(value, names) if isinstance(value, str) else ""
    return f"{key} = {show(value)} is not one of {', '.join(names)}{hint}"


def type_in_words(annotation: Any) -> str:
    """Format a type: ``a whole number``, ``one of a, b``, ``text or a list of texts``."""
    *others, last = [_one_type(each) for each in alternatives(annotation)]
    if not others:
        return last
    return f"{', '.join(others)} or {last}"


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """Return the values that a type lists, if it lists any; it may take others beside them."""
    for each in alternatives(annotation):
        if _is_literal(each):
            return get_args(each)
    return ()


def is_choice(annotation: Any) -> bool:
    """Return whether a field takes one of a few values and nothing else."""
    return all(_is_literal(each) for each in alternatives(annotation))


def bounds_in_words(info: FieldInfo) -> str:
    """Format a field's limits: ``at least 0, less than 1``; empty where it has none."""
    limits = []
    for rule in info.metadata:
        for short, words in _BOUNDS.items():
            bound = getattr(rule, short, None)
            if bound is not None:
                limits.append(f"{words} {_limit(bound)}")
    return ", ".join(limits)


def rule_in_words(detail: Mapping[str, Any]) -> str | None:
    """Format the limit that a value broke, from one of pydantic's errors; None for a wrong type."""
    context = detail.get("ctx", {})
    for short, words in _BOUNDS.items():
        if short in context:
            return f"must be {words} {_limit(context[short])}"
    return "must be finite" if detail["type"] == "finite_number" else None


def _limit(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    # ``g`` would write these as powers of ten.
    return f"{value:,.0f}" if value in (1e6, 1e7) else f"{value:g}"


def alternatives(annotation: Any) -> list[Any]:
    """Return the types of which a value has one, but for ``None``."""
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        return alternatives(arguments[0])
    if origin not in (Union, types.UnionType):
        return [annotation]
    found = []
    for each in arguments:
        if each is not type(None):
            found += alternatives(each)
    return found


def _is_literal(annotation: Any) -> bool:
    return get_origin(annotation) is Literal


def _one_type(annotation: Any) -> str:
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Literal:
        names = ", ".join(str(each) for each in arguments)
        return names if len(arguments) == 1 else f"one of {names}"
    if origin is dict:
        return _TABLES.get(arguments[1], "{name = column}")
    if origin is tuple:
        if arguments[-1] is not Ellipsis:
            return f"a list of {len(arguments)} numbers"
        return "a list of texts" if arguments[0] is str else "a list of whole numbers"
    return _NAMES[annotation]
