"""Checks of all options and arguments before a command begins."""

import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from typer.models import ArgumentInfo, OptionInfo

from sublayer.config.limits import text_problem
from sublayer.errors import ConfigError


def check_arguments(command: Callable[..., None], values: Mapping[str, Any]) -> None:
    """Raise ConfigError for a number that is not finite or a text that no file can take.

    The message names the option. ``values`` are the command's, by parameter. A range that an option
    declares says nothing of what is not a number.
    """
    for name, value in values.items():
        parts = value if isinstance(value, list | tuple) else [value]
        for each in parts:
            problem = _problem(each)
            if problem:
                option = _named(command, name)
                raise ConfigError(f"{option} {_shown(each)} {problem}")


def option_name(info: OptionInfo) -> str | None:
    """Return an option's own name, ``--tokens``; None where it is named as its parameter."""
    # Within Annotated, the first of the names that were given stands where elsewhere a default
    # does.
    for name in (info.default, *(info.param_decls or ())):
        if isinstance(name, str) and name.startswith("--"):
            return name
    return None


def _problem(value: Any) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    if isinstance(value, str | Path):
        return text_problem(str(value))
    return None


def _shown(value: Any) -> str:
    from sublayer.config.messages import show  # takes longer to import than help may

    if isinstance(value, Path):
        return show(str(value))
    return show(value)


def _named(command: Callable[..., None], name: str) -> str:
    """Return what a user knows a parameter as: its option, or what help calls the argument."""
    parameter = inspect.signature(command).parameters[name]
    # Annotated lists the type first, then what typer knows of it.
    infos = get_args(parameter.annotation)[1:]
    for info in infos:
        if isinstance(info, OptionInfo):
            return option_name(info) or f"--{name}"
        if isinstance(info, ArgumentInfo) and info.metavar:
            return info.metavar
    return name
