"""Values, types and rules in words, for errors and for the list of fields."""

import itertools
import math
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
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


_TYPES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "a text",
    "list": "a list",
    "dict": "a table",
    "model": "a table",
}
"""Words for types, by the beginning of pydantic's errors."""


def first_problem(error: ValidationError, file: type[BaseModel]) -> str:
    """Describe in one line the first value that a file's table does not take, and its fault.

    An entry of a list of tables is counted from 1: ``scale.cpu.arms 2, name``.
    """
    detail = error.errors(include_url=False)[0]
    steps, holder = _walked(detail["loc"], file)
    place = _in_words(steps)
    kind = detail["type"]
    value = detail["input"]
    if kind == "extra_forbidden":
        hint = nearest_hint(str(steps[-1]), tuple(_fields(holder)))
        return f"{place} is no setting of it{hint}"
    if kind == "missing":
        return f"{place} is missing"
    if value in ("", []) or (kind == "too_short" and not value):
        return f"{place} is empty"
    if kind in ("too_short", "too_long"):
        context = detail["ctx"]
        least, most = context.get("min_length"), context.get("max_length")
        bound = f"at least {least:,}" if kind == "too_short" else f"at most {most:,}"
        return f"{place}: {len(value):,} given, and {bound} needed"
    # Of a value that may be of several types there is an error for each.
    expectations = [
        _expected(each)
        for each in error.errors(include_url=False)
        if _in_words(_walked(each["loc"], file)[0]) == place and each["input"] is value
    ]
    if len(expectations) > 1 and all(expectations):
        return f"{place} = {show(value)} is not {' or '.join(dict.fromkeys(expectations))}"
    if kind == "literal_error":
        return f"{place} = {show(value)} is not {detail['ctx']['expected']}"
    rule = rule_in_words(detail)
    if rule:
        return f"{place} = {show(value)} {rule}"
    expected = _expected(detail)
    if not expected:
        return f"{place} = {show(value)}: {detail['msg']}"
    if expected == "a list" and isinstance(value, Mapping):
        return f"{place} is one table: write [[{steps[-1]}]], of which there may be several"
    return f"{place} = {show(value)} is not {expected}"


def _expected(detail: Any) -> str:
    """Name the values expected instead, by one of pydantic's errors; empty for a rule."""
    if detail["type"] == "literal_error":
        return str(detail["ctx"]["expected"])
    return "" if rule_in_words(detail) else _TYPES.get(detail["type"].split("_")[0], "")


_UNION = object()
"""Stands for a part of a location that is no key."""


def _walked(location: Sequence[str | int], file: type[BaseModel]) -> tuple[list[str | int], Any]:
    """Return the keys of a place in a file, and the type of what holds the last of them.

    Pydantic names the members of a union, which are no keys, in between.
    """
    steps: list[str | int] = []
    holder: Any = file
    inner: Any = file
    for part in location:
        below = _below(inner, part)
        if below is _UNION:
            continue
        steps.append(part)
        holder, inner = inner, below
    return steps, holder


def _below(annotation: Any, key: str | int) -> Any:
    """Return the type of what stands under a key of a type; ``_UNION`` where it is no key."""
    for each in alternatives(annotation):
        if isinstance(key, int) and get_origin(each) is list:
            return get_args(each)[0]
        if isinstance(key, str) and get_origin(each) is dict:
            return get_args(each)[1]
        if isinstance(key, str) and _fields(each):
            info = each.model_fields.get(key)
            return Any if info is None else info.annotation
    return _UNION


def _fields(annotation: Any) -> Mapping[str, Any]:
    for each in alternatives(annotation):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each.model_fields
    return {}


def _in_words(steps: Sequence[str | int]) -> str:
    words = ""
    between = ""
    for part in steps:
        if isinstance(part, int):
            words, between = f"{words} {part + 1}", ", "
        else:
            words, between = f"{words}{between}{part}", "."
    return words
