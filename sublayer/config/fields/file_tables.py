"""What is wrong with a file of tables, such as a study's or a suite's, in words."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from sublayer.config.fields.messages import alternatives, rule_in_words, show
from sublayer.nearest import nearest_hint

_TYPES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "a text",
    "list": "a list",
    "dict": "a table",
    "model": "a table",
}
"""What pydantic's errors begin with, by type."""


def first_problem(error: ValidationError, file: type[BaseModel]) -> str:
    """Say in one line what is wrong with the first value that a file's table does not take.

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
    """Say what a value should have been, by one of pydantic's errors; empty for a rule."""
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
