"""Options of functions and commands, declared once: for signatures, the command line and docs."""

import inspect
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import wraps
from inspect import Parameter
from os import PathLike, fspath
from pathlib import PurePath
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from sublayer.config.plugins import naming
from sublayer.config.table import text_problem
from sublayer.errors import ConfigError, SublayerError
from sublayer.values import plain, show

P = ParamSpec("P")
R = TypeVar("R")

PathText = str | PathLike[str]
"""A path of a file or folder, or the name of a recipe or a study; a run is a path."""


def as_text(target: Any, what: str = "a path") -> str:
    """Return a path or a name as text; raise ConfigError for anything else."""
    if isinstance(target, str | PathLike):
        return str(fspath(target))
    raise ConfigError(f"{type(target).__name__} is not {what}: name a file or a folder")


@dataclass(frozen=True, repr=False)
class Option:
    """The command-line option of a parameter, as metadata in its ``Annotated`` type."""

    help: str
    flag: str = ""
    """Its name on the command line; ``--PARAMETER`` unless given. ``--yes/--no`` of a choice."""
    alias: str = ""
    """An earlier name, still accepted on command lines."""
    metavar: str = ""
    least: float | None = None
    most: float | None = None
    complete: str = ""
    """The function in ``sublayer.cli.completion`` that completes it."""
    default: Any = None
    """The default of a key of a TypedDict."""
    needs: str = ""
    """The command's parameter that it needs to have an effect."""

    def __repr__(self) -> str:
        return repr(self.help)  # as in the signature of ``help``

    def named(self, parameter: str) -> str:
        """Return the command-line name of the option's parameter."""
        return self.flag or f"--{parameter.replace('_', '-')}"

    def problem(self, value: Any) -> str:
        """Describe the fault of a number or a text; empty without one."""
        if isinstance(value, float) and not math.isfinite(value):
            return f"{value} must be finite"
        if isinstance(value, int | float):
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            if self.least is not None and value < self.least:
                return f"{shown} is too small: give at least {shown_limit(self.least)}"
            if self.most is not None and value > self.most:
                return f"{shown} is too large: give at most {shown_limit(self.most)}"
        if isinstance(value, str | PurePath) and (fault := text_problem(text := fspath(value))):
            return f"{show(text)} {fault}"
        return ""


@dataclass(frozen=True, repr=False)
class Argument(Option):
    """A positional argument of the command line, named by its ``metavar``."""

    def named(self, parameter: str) -> str:
        """Return the metavar shown in help, or else the parameter's name."""
        return self.metavar or parameter.upper()


def shown_limit(limit: float) -> str:
    """Format the minimum or maximum of an option."""
    return f"{int(limit):,}" if limit == int(limit) else f"{limit:g}"


Declared = Mapping[str, tuple[Any, Option]]
"""Type and option by parameter."""


def options_of(function: Callable[..., Any]) -> Declared:
    """Return the type and the option of each parameter with an option."""
    declared = {}
    for name, parameter in signature_of(function).parameters.items():
        hint, *metadata = get_args(parameter.annotation) or (None,)
        if get_origin(parameter.annotation) is Annotated and isinstance(metadata[0], Option):
            declared[name] = (hint, metadata[0])
    return declared


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return a signature in which the keys of an unpacked TypedDict are keyword parameters."""
    signature = inspect.signature(function)
    parameters: list[Parameter] = []
    for parameter in signature.parameters.values():
        if get_origin(parameter.annotation) is Unpack:
            [table] = get_args(parameter.annotation)
            hints = get_type_hints(table, include_extras=True)
            n_before = sum(param.kind is not Parameter.KEYWORD_ONLY for param in parameters)
            parameters[n_before:n_before] = [
                Parameter(
                    key, Parameter.KEYWORD_ONLY, default=get_args(hint)[1].default, annotation=hint
                )
                for key, hint in hints.items()
            ]
        else:
            parameters.append(parameter)
    return signature.replace(parameters=parameters)


_IS_COMMAND: ContextVar[bool] = ContextVar("is_command", default=False)
"""True during commands, whose users know options, not parameters."""


@contextmanager
def on_command_line() -> Iterator[None]:
    """Name parameters in errors by their command-line options within this context."""
    token = _IS_COMMAND.set(True)
    try:
        yield
    finally:
        _IS_COMMAND.reset(token)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a function by the types and options in its signature.

    NumPy numbers become plain ones, and ``plugins`` are loaded. Raises ConfigError for a value of
    another type, out of range, not finite, or that no file can take. Errors name parameters instead
    of command-line options, except in commands.
    """
    signature, declared = signature_of(function), options_of(function)

    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            bound = signature.bind(*arguments, **keywords)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        for name in bound.arguments.keys() & declared.keys():
            bound.arguments[name] = accepted(name, *declared[name], bound.arguments[name])
        try:
            plugins = bound.arguments.get("plugins")
            with naming(plugins) if plugins else nullcontext():
                return function(*bound.args, **bound.kwargs)
        except SublayerError as error:
            if not _IS_COMMAND.get():
                error.args = (_with_parameters(str(error), declared),)
            raise

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


_OPTION = re.compile(r"--[a-z][a-z-]*")


def _with_parameters(message: str, declared: Declared) -> str:
    """Replace options by parameters in a message, except in quoted commands."""
    names = {
        flag: name
        for name, (_, option) in declared.items()
        for flag in (*option.named(name).split("/"), option.alias)
    }
    parts = message.split("`")
    parts[::2] = [_OPTION.sub(lambda match: names.get(match[0], match[0]), x) for x in parts[::2]]
    return "`".join(parts)


def accepted(name: str, hint: Any, option: Option, value: Any, *, is_text: bool = False) -> Any:
    """Return a value as a parameter takes it; ``is_text``: read from a command line.

    Raises ConfigError for a value of another type, out of range, not finite, or that no file takes.
    """
    from pydantic import TypeAdapter, ValidationError

    name = option.named(name) if _IS_COMMAND.get() else name
    value = _plain(value)
    takes_several = str not in members(hint) and any(map(element_of, members(hint)))
    if isinstance(value, str) and takes_several:
        value = [value]
    if value is None and type(None) not in members(hint):
        raise ConfigError(f"{name} is None: give {_expected(hint)}")
    if is_text and "" in (value if isinstance(value, list) else [value]) and _takes_paths(hint):
        raise ConfigError(f"{name} is empty: name a file or a folder")
    if not (isinstance(value, str | PathLike) and PathLike[str] in members(hint)):
        try:
            parsed = TypeAdapter(hint).validate_python(value, strict=not is_text)
        except ValidationError:
            shown = show(value) if isinstance(value, str) else f"{value!r:.80}"
            raise ConfigError(f"{name} {shown} is not accepted: give {_expected(hint)}") from None
        value = parsed if is_text else value
    for part in value if isinstance(value, list | tuple) else [value]:
        if problem := option.problem(part):
            raise ConfigError(f"{name} {problem}")
    return value


def _takes_paths(hint: Any) -> bool:
    """Return whether a type is of paths, or of several."""
    kinds = {*members(hint), *(part for one in members(hint) for part in members(element_of(one)))}
    return any(isinstance(kind, type) and issubclass(kind, PurePath) for kind in kinds) or (
        PathLike[str] in kinds
    )


_EXPECTED = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}
_EXPECTED |= {bytes: "bytes", Mapping: "a mapping"}


def _expected(hint: Any) -> str:
    """Describe the values of a type."""
    described: list[str] = []
    for member in members(hint):
        if get_origin(member) is Literal:
            described += map(str, get_args(member))
        elif several := element_of(member):
            described.append(f"a list, each {_expected(several)}")
        elif member is not type(None):
            described.append(_EXPECTED.get(get_origin(member) or member, "a path"))
    *others, last = dict.fromkeys(described)
    return f"{', '.join(others)} or {last}" if others else last


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    value = value if isinstance(value, PathLike | Mapping) else plain(value)
    return float(value) if isinstance(value, Decimal | Fraction) else value


def members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or a single type."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def element_of(hint: Any) -> Any:
    """Return the type of the elements of a sequence or a list; None for other types."""
    kind = get_origin(hint)
    is_list = isinstance(kind, type) and issubclass(list, kind)
    return get_args(hint)[0] if is_list else None
