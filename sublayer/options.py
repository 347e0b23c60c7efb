"""Options of functions and commands, declared once: for signatures, the command line and docs."""

import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache, wraps
from os import PathLike, fspath
from typing import Annotated, Any, ParamSpec, TypeVar, Union, get_args, get_origin

from sublayer.config.limits import text_problem
from sublayer.errors import ConfigError
from sublayer.values import plain

P = ParamSpec("P")
R = TypeVar("R")

PathText = str | PathLike[str]
"""A path of a file or folder, or the name of a recipe or a study; a run is its own path."""


@dataclass(frozen=True)
class Option:
    """The command-line option of a parameter, as metadata in its ``Annotated`` type."""

    help: str
    flag: str = ""
    """Its name on the command line; ``--PARAMETER`` unless given. ``--yes/--no`` of a choice."""
    alias: str = ""
    """An earlier name, which command lines may still have."""
    metavar: str = ""
    least: float | None = None
    most: float | None = None
    complete: str = ""
    """The function of ``sublayer.cli.candidates`` that completes it."""

    def named(self, parameter: str) -> str:
        """Return the name on the command line of the parameter that this option is of."""
        return self.flag or f"--{parameter.replace('_', '-')}"

    def problem(self, value: Any) -> str:
        """Say why a number or a text is refused; empty where it is not."""
        if isinstance(value, float) and not math.isfinite(value):
            return f"{value} must be finite"
        if isinstance(value, int | float):
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            if self.least is not None and value < self.least:
                return f"{shown} is too small: give at least {shown_limit(self.least)}"
            if self.most is not None and value > self.most:
                return f"{shown} is too large: give at most {shown_limit(self.most)}"
        if isinstance(value, str | PathLike):
            text = fspath(value)
            if problem := text_problem(text):
                from sublayer.config.messages import show  # slow to import

                return f"{show(text)} {problem}"
        return ""


@dataclass(frozen=True)
class Argument(Option):
    """A positional argument of the command line, named by its ``metavar``."""

    def named(self, parameter: str) -> str:
        """Return the metavar, which help shows, or else the parameter's name."""
        return self.metavar or parameter.upper()


def shown_limit(limit: float) -> str:
    """Format the least or the greatest value of an option."""
    return f"{int(limit):,}" if limit == int(limit) else f"{limit:g}"


class OptionError(ConfigError):
    """A value that a parameter does not take; the command line names the option instead."""

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(f"{parameter} {problem}")
        self.parameter, self.problem = parameter, problem


def options_of(function: Callable[..., Any]) -> dict[str, tuple[Any, Option]]:
    """Return the type and the option of each parameter that declares one, by parameter."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if get_origin(parameter.annotation) is Annotated:
            hint, *metadata = get_args(parameter.annotation)
            option = next((one for one in metadata if isinstance(one, Option)), None)
            if option is not None:
                found[name] = (hint, option)
    return found


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a function by the types and options that its signature declares.

    Numbers of numpy become plain ones. Raises ConfigError for a value of another type, out of its
    range, not finite, or that no file can take.
    """

    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            bound = inspect.signature(function).bind(*arguments, **keywords)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        declared = _declared(function)
        for name in bound.arguments.keys() & declared.keys():
            bound.arguments[name] = _accepted(name, *declared[name], bound.arguments[name])
        return function(*bound.args, **bound.kwargs)

    return call


_declared = cache(options_of)


def _accepted(name: str, hint: Any, option: Option, value: Any) -> Any:
    """Return a value as plain Python; raise OptionError where the parameter does not take it."""
    from pydantic import TypeAdapter, ValidationError

    value = _plain(value)
    if isinstance(value, str) and _takes_several(hint):
        value = [value]
    if value is None and type(None) not in members(hint):
        raise OptionError(name, "is None: give one")
    if not (isinstance(value, str | PathLike) and PathLike[str] in members(hint)):
        try:
            TypeAdapter(hint).validate_python(value, strict=True)
        except ValidationError as error:
            message = str(error.errors()[0]["msg"])
            message = message[:1].lower() + message[1:]
            raise OptionError(name, f"= {value!r:.80} is refused: {message}") from None
    for part in value if isinstance(value, list | tuple) else [value]:
        if problem := option.problem(part):
            raise OptionError(name, problem)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    value = value if isinstance(value, PathLike | Mapping) else plain(value)
    return float(value) if isinstance(value, Decimal | Fraction) else value


def members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _takes_several(hint: Any) -> bool:
    """Return whether a type is a sequence of texts, and no text by itself."""
    kinds = [get_origin(member) or member for member in members(hint)]
    return str not in kinds and any(
        isinstance(kind, type) and issubclass(list, kind) for kind in kinds
    )
