"""Wording of values, types and rules, for errors and for the list of fields."""

import itertools
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from sublayer.errors import ConfigError, nearest_hint
from sublayer.files.storage import as_typed
from sublayer.numbers import count
from sublayer.values import show

_NAMES: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
_TABLES: dict[Any, str] = {str: "{name = path}", float: "{name = weight}"}
_ENTRIES: dict[Any, str] = {str: " of texts", int: " of whole numbers"}
BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_LENGTHS = {"min_length": "at least", "max_length": "at most"}


def show_path(value: Any) -> str:
    """Format a value as ``show`` does, but a path below the current folder as a relative path."""
    return show(as_typed(value)) if isinstance(value, str) else show(value)


def setting_in_words(key: str, value: Any) -> str:
    """Format a setting, ``data.path = 'book.txt'``, or ``no data.path`` if it is unset."""
    return f"no {key}" if value is None else f"{key} = {show_path(value)}"


def choice_error(key: str, value: Any, choices: Iterable[Any]) -> str:
    """Format the error of a value that is not one of the choices, with the most similar choice."""
    names = [str(choice) for choice in choices]
    hint = nearest_hint(value, names) if isinstance(value, str) else ""
    return f"{key} = {show(value)} is not one of {', '.join(names)}{hint}"


def check_choice(prefix: str, kind: str, value: str, choices: Iterable[str]) -> None:
    """Raise ConfigError, with the most similar choice, for a name that is not one of a kind."""
    names = [*choices]
    if value not in names:
        raise ConfigError(
            f"{prefix}{value} is no {kind}{nearest_hint(value, names)}: there are "
            f"{', '.join(filter(None, names)) or 'none'}"
        )


def type_in_words(annotation: Any) -> str:
    """Format a type: ``a whole number``, ``one of a, b``, ``text or a list of texts``."""
    types = []
    for type_ in alternatives(annotation):
        origin, arguments = get_origin(type_), get_args(type_)
        if choices := _listed(type_):
            names = ", ".join(map(str, choices))
            words = names if len(choices) == 1 else f"one of {names}"
        elif origin is dict:
            kinds, keys = alternatives(arguments[1]), choices_of(arguments[0])
            words = "{name = column}" if len(kinds) > 1 else _TABLES.get(kinds[0], "a table")
            words += f" of {', '.join(keys)}" if keys else ""
        elif origin is tuple and arguments[-1] is not Ellipsis:
            words = f"a list of {len(arguments)} numbers"
        elif origin in (tuple, list):
            words = f"a list{_ENTRIES.get(alternatives(arguments[0])[0], '')}"
        else:
            words = _NAMES.get(type_, "a table")
        types.append(words)
    *others, last = types
    return f"{', '.join(others)} or {last}" if others else last


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """Return the values that a type lists, if any; it may take other values as well."""
    for type_ in alternatives(annotation):
        if choices := _listed(type_):
            return choices
    return ()


def is_choice(annotation: Any) -> bool:
    """Return whether a field takes one of a few values and nothing else."""
    return all(_listed(type_) for type_ in alternatives(annotation))


def show_limit(value: float) -> str:
    """Format the minimum or maximum of a field."""
    if isinstance(value, int):
        return f"{value:,}"
    # The format ``g`` would write these as powers of ten.
    return f"{value:,.0f}" if value in (1e6, 1e7) else f"{value:g}"


def alternatives(annotation: Any) -> list[Any]:
    """Return the types that a value may have, except ``None``."""
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        return alternatives(arguments[0])
    if origin not in (Union, types.UnionType):
        return [annotation]
    members = []
    for argument in arguments:
        if argument is not type(None):
            members += alternatives(argument)
    return members


def _listed(annotation: Any) -> tuple[Any, ...]:
    """Return the values of a literal type, or the names of a table; empty for other types."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(getattr(annotation, "choices", ()))


def field_problem(detail: Mapping[str, Any], key: str, annotation: Any, value: Any) -> str:
    """Describe the fault of a value in one line, from an error of pydantic and the field's type."""
    context = detail.get("ctx", {})
    for short, words in (*BOUNDS.items(), *_LENGTHS.items()):
        if short in _LENGTHS and short in context:
            return f"{key} = {show(value)} must have {words} {count(context[short], 'value')}"
        if short in context:
            names = ", ".join(map(str, choices_of(annotation)))
            words = f"{names} or {words}" if names else words
            return f"{key} = {show(value)} must be {words} {show_limit(context[short])}"
    if detail["type"] == "finite_number":
        return f"{key} = {show(value)} must be finite"
    if is_choice(annotation):
        return choice_error(key, value, choices_of(annotation))
    expected = type_in_words(annotation)
    needs_quotes = "text" in expected and isinstance(value, int | float)
    return f"{key} = {show(value)} is not {expected}{': put it in quotes' * needs_quotes}"


def first_problem(error: ValidationError, file: type[BaseModel]) -> str:
    """Describe the first invalid value of a file, and its fault, in one line.

    An entry of a list of tables is counted from 1: ``scale.cpu.arms 2, name``.
    """
    detail = error.errors(include_url=False)[0]
    steps: list[str | int] = []
    holder: Any = file
    inner: Any = file
    # Pydantic's location also has the members of unions, which are not keys.
    for part in detail["loc"]:
        below = [_below(type_, part) for type_ in alternatives(inner)]
        child = next((type_ for type_ in below if type_ is not None), None)
        if child is not None:
            steps.append(part)
            holder, inner = inner, child
    key, value = "", detail["input"]
    for before, step in itertools.pairwise((None, *steps)):
        if isinstance(step, int):
            key += f" {step + 1}"
        else:
            between = ", " if isinstance(before, int) else "." if key else ""
            key += f"{between}{step}"
    if detail["type"] == "extra_forbidden":
        fields = [name for model in alternatives(holder) for name in model.model_fields]
        return f"{key} is not one of its settings{nearest_hint(str(steps[-1]), fields)}"
    if detail["type"] == "missing":
        return f"{key} is missing"
    if value in ("", [], {}):
        return f"{key} is empty"
    if detail["type"] == "list_type" and isinstance(value, Mapping):
        return f"{key} must be an array of tables: write [[{steps[-1]}]]"
    return field_problem(detail, key, inner, value)


def _below(annotation: Any, key: str | int) -> Any:
    """Return the type of the value under a key of a type; None if there is no such key."""
    arguments, fields = get_args(annotation), getattr(annotation, "model_fields", None)
    if isinstance(key, int) or fields is None:
        kinds = (list, tuple) if isinstance(key, int) else (dict,)
        return arguments[-1 if kinds == (dict,) else 0] if get_origin(annotation) in kinds else None
    return fields[key].annotation if key in fields else Any
