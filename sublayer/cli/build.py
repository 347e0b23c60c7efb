"""Commands from public functions: the options that a function declares, as typer takes them."""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter
from os import PathLike
from typing import Annotated, Any, Literal, Protocol, get_args, get_origin

import typer

from sublayer.commands.shared import candidates
from sublayer.commands.shared.base import emit
from sublayer.options import Argument, Option, OptionError, members, options_of

_METAVARS = {int: "N", float: "X", str: "TEXT"}


class Result(Protocol):
    """The result of a public function; ``str`` is what the command prints."""

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""


def print_result(result: Result, as_json: bool) -> None:
    """Print a result as one JSON object or as text."""
    emit(result.to_dict(), as_json, lambda _: str(result))


def client_of(
    function: Callable[..., Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that a public function declares.

    The command receives the given ones as ``options``, by parameter, as its first argument;
    its other parameters are its own options, such as ``--json``. A value that the function refuses
    is named as it is on the command line.
    """
    shared = {
        name: _parameter(function, name, hint, option)
        for name, (hint, option) in options_of(function).items()
    }
    flags = {name: _flag(name, option) for name, (_, option) in options_of(function).items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(command).parameters.values()

        @wraps(command)
        def run(**values: Any) -> None:
            given = {name: values.pop(name) for name in shared}
            given = {name: value for name, value in given.items() if value not in (None, [])}
            try:
                command(given, **values)
            except OptionError as error:
                name = flags.get(error.parameter, error.parameter)
                raise OptionError(name, error.problem) from None

        own = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own]
        ordered = sorted([*shared.values(), *own], key=lambda one: one.default is not one.empty)
        run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in ordered}
        return run

    return decorate


def _flag(name: str, option: Option) -> str:
    if isinstance(option, Argument):
        return option.metavar
    return option.flag or f"--{name.replace('_', '-')}"


def _parameter(function: Callable[..., Any], name: str, hint: Any, option: Option) -> Parameter:
    """Return a parameter as typer reads it, with typer's types and defaults."""
    kind, is_list = _kind(hint)
    default = inspect.signature(function).parameters[name].default
    complete = getattr(candidates, option.complete) if option.complete else None
    metavar = option.metavar or ("PATH" if _is_path(hint) else _METAVARS.get(kind))
    least, most = option.least, option.most
    info: Any
    if isinstance(option, Argument):
        info = typer.Argument(metavar=metavar, help=option.help, autocompletion=complete)
    else:
        info = typer.Option(
            *filter(None, (_flag(name, option), option.alias)),
            metavar=None if kind is bool else metavar,
            help=option.help,
            min=least if least is None or kind is float else int(least),
            max=most if most is None or kind is float else int(most),
            autocompletion=complete,
        )
    typed = list[kind] if is_list else kind  # type: ignore[valid-type]
    if default is not Parameter.empty and not (kind is bool and default is not None):
        typed = typed | None
        default = None if default == () else default
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[typed, info]
    )


def _kind(hint: Any) -> tuple[Any, bool]:
    """Return the type of an option's value on the command line, and whether it takes several."""
    kinds = [member for member in members(hint) if member is not type(None)]
    for member in kinds:
        if get_origin(member) is Sequence or get_origin(member) is list:
            return _kind(get_args(member)[0])[0], True
    if len(kinds) == 1 and (kinds[0] in (bool, int, float) or get_origin(kinds[0]) is Literal):
        return kinds[0], False
    return str, False


def _is_path(hint: Any) -> bool:
    """Return whether an option takes a path, or several."""
    kinds = members(hint)
    return PathLike[str] in kinds or any(
        get_origin(member) in (Sequence, list) and _is_path(get_args(member)[0]) for member in kinds
    )
