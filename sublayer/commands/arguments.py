"""What no option or argument of any command may be, checked before the command begins."""

import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from typer.models import ArgumentInfo, OptionInfo

from sublayer.config.texts import text_problem
from sublayer.errors import ConfigError


def check_arguments(command: Callable[..., None], values: Mapping[str, Any]) -> None:
    """Raise ConfigError, naming the option, for a number that is not finite and a text that no file or terminal takes.

    ``values`` are the command's, by parameter. A range that an option declares says nothing of what is not a number.
    """
    for name, value in values.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            problem = _problem(each)
            if problem:
                from sublayer.config.wording import show  # takes longer to import than help may

                raise ConfigError(f"{_named(command, name)} {show(_plain(each))} {problem}")


def option_name(info: OptionInfo) -> str | None:
    """Return what an option is called, ``--tokens``; None where it is called as its parameter is."""
    # Within Annotated, the first of the names that were given stands where elsewhere a default does.
    names = (info.default, *(info.param_decls or ()))
    return next((each for each in names if isinstance(each, str) and each.startswith("--")), None)


def _problem(value: Any) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    return text_problem(str(value)) if isinstance(value, str | Path) else None


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _named(command: Callable[..., None], name: str) -> str:
    """Return what a user knows a parameter as: its option, or what help calls the argument."""
    annotation = inspect.signature(command).parameters[name].annotation
    for info in get_args(annotation)[1:]:
        if isinstance(info, OptionInfo):
            return option_name(info) or f"--{name}"
        if isinstance(info, ArgumentInfo) and info.metavar:
            return info.metavar
    return name
