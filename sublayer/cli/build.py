"""Commands from functions: options in typer's form, arguments checked, results printed."""

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, Literal, Protocol, TextIO, get_args, get_origin

import typer
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.exceptions import TyperException

from sublayer.cli import completion
from sublayer.config.plugins import blaming, naming
from sublayer.errors import ConfigError
from sublayer.options import (
    Argument,
    Option,
    PathText,
    accepted,
    element_of,
    members,
    on_command_line,
    options_of,
    shown_limit,
    signature_of,
)
from sublayer.system.processes import is_first_launched, n_launched
from sublayer.system.terminal import Stream, display, note, searchable
from sublayer.values import as_json_values

_METAVARS = {int: "N", float: "X", PathText: "PATH", str: "TEXT"}
_DIVIDED = ("train", "finetune", "predict", "evaluate")
"""Commands divided among launched processes."""

Json = Annotated[
    bool,
    Option(
        "Print the result as one JSON object on the last line; all other output goes to standard "
        "error.",
        flag="--json",
    ),
]
Details = Annotated[
    bool,
    Option("Also print the details of the report: intervals, notes, costs, differing settings."),
]
TextPair = Annotated[
    str | None,
    Option("The column of second texts, or of the questions about the texts.", metavar="COLUMN"),
]
Choices = Annotated[str | None, Option("The columns of the answer choices.", metavar="A,B,...")]


def names_among(columns: str | None) -> tuple[str, ...]:
    """Return the comma-separated columns of an option; empty without it."""
    return tuple(name.strip() for name in columns.split(",")) if columns else ()


def refuse(options: Mapping[str, Any], reason: str, but: Sequence[str] = ()) -> None:
    """Raise ConfigError, with a reason, for any given option except those in ``but``."""
    for name, value in options.items():
        if value is not None and name not in but:
            raise ConfigError(f"--{name.replace('_', '-')} {reason}")


class CommandResult(Protocol):
    """The result of a command; ``str`` is the printed text, ``exit_code`` 0 unless set."""

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``--json``."""


_RESULTS: ContextVar[TextIO | None] = ContextVar("results", default=None)


def print_result(result: CommandResult, *, as_json: bool) -> None:
    """Print a result as one line of JSON or as text; raise OutputLost on failure."""
    if as_json:
        write_result(f"{json.dumps(as_json_values(result.to_dict()), allow_nan=False)}\n")
    else:
        write_result(f"{searchable(str(result))}\n")


def write_result(text: str) -> None:
    """Write a part of a result to standard output; raise OutputLost on failure."""
    output = _RESULTS.get() or sys.stdout
    with display().hidden() if output.isatty() else nullcontext():
        output.write(text)
        output.flush()
    if isinstance(output, Stream):
        output.require()


@contextmanager
def only_results_on_stdout() -> Iterator[None]:
    """Redirect other output to standard error, so that standard output is only JSON."""
    results = sys.stdout
    token = _RESULTS.set(results)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = results
        _RESULTS.reset(token)


def has_work(name: str) -> bool:
    """Return whether this process, of those launched, runs a command.

    Work that is not divided runs in the first process only, with a message. Raises ConfigError for
    commands that start processes themselves.
    """
    if n_launched() == 1:
        return True
    if name in ("compare", "demo"):
        raise ConfigError(f"{name} starts its runs itself: start it without a launcher")
    if is_first_launched():
        note(f"{name} runs in one process: the first of {n_launched()} does it")
    return is_first_launched()


def client_of(
    function: Callable[..., Any] | None = None, example: str = ""
) -> Callable[[Callable[..., CommandResult | None]], Callable[..., None]]:
    """Make a command of a function that returns the result to print, or None if printed.

    The command's options follow those declared by ``function``, and ``--json`` unless it has one.
    It receives values that differ from their defaults, by ``accepted``, and may set ``exit_code``
    of its result. The plugins of ``--plugin`` are loaded before.
    """

    def decorate(command: Callable[..., CommandResult | None]) -> Callable[..., None]:
        declared = {**(options_of(function) if function else {}), **options_of(command)}
        parameters = {
            **(signature_of(function).parameters if function else {}),
            **signature_of(command).parameters,
        }
        command_name = command.__name__.rstrip("_")
        # A text that equals a default counts as not given; "None" is a text.
        defaults = {
            name: str(parameter.default)
            for name, parameter in parameters.items()
            if parameter.default not in (None, Parameter.empty)
        }
        prints_json = "as_json" in declared
        if not prints_json:
            declared["as_json"] = get_args(Json)
            parameters["as_json"] = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False)

        @wraps(command)
        def run(**values: Any) -> None:
            if command_name not in _DIVIDED and not has_work(command_name):
                return
            as_json = bool(values.get("as_json"))
            with on_command_line(), only_results_on_stdout() if as_json else nullcontext():
                arguments = {
                    name: accepted(name, *declared[name], value, is_text=True)
                    for name, value in values.items()
                    if value not in (None, []) and str(value) != defaults.get(name)
                }
                for name in arguments:
                    option = declared[name][1]
                    if option.needs and option.needs not in arguments:
                        needed = declared[option.needs][1].named(option.needs)
                        raise ConfigError(
                            f"{option.named(name)} has no effect without {needed}: give both, or "
                            "leave it out"
                        )
                if not prints_json:
                    arguments.pop("as_json", None)
                with naming(arguments.pop("plugins", ())), blaming():
                    result = command(**arguments)
                    if result is not None and is_first_launched():
                        print_result(result, as_json=as_json)
            if code := getattr(result, "exit_code", 0):
                raise typer.Exit(code)

        typed = [_parameter(parameters[name], *declared[name]) for name in declared]
        typed.sort(key=lambda parameter: parameter.default is not Parameter.empty)
        run.__signature__ = inspect.Signature(typed)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in typed}
        run.example, run.declared = example, declared  # type: ignore[attr-defined]
        return run

    return decorate


def _parameter(parameter: Parameter, hint: Any, option: Option) -> Parameter:
    """Return a parameter in typer's form: a flag, a text or a list of texts."""
    kinds = [kind for kind in members(hint) if kind is not type(None)]
    element = next(filter(None, map(element_of, kinds)), hint)
    choices = [str(x) for kind in kinds if get_origin(kind) is Literal for x in get_args(kind)]
    kind = next((kind for kind in _METAVARS if members(kind)[-1] in members(element)), PathText)
    metavar = option.metavar or "|".join(choices) or _METAVARS[kind]
    complete = getattr(completion, option.complete) if option.complete else None
    if choices and not complete:
        complete = lambda incomplete: choices  # noqa: E731
    default = None if parameter.default == () else parameter.default
    is_flag = bool in kinds
    info: Any
    if isinstance(option, Argument):
        info = typer.Argument(metavar=metavar, help=option.help, autocompletion=complete)
    else:
        limits = ""
        if option.least is not None and option.most is not None:
            limits = f"  [{shown_limit(option.least)} to {shown_limit(option.most)}]"
        info = typer.Option(
            *filter(None, (option.named(parameter.name), option.alias)),
            metavar=None if is_flag else metavar,
            help=option.help + limits,
            autocompletion=complete,
        )
    typed: Any = bool if is_flag else str if element is hint else list[str]
    if default is None:
        typed |= None
    elif default is not Parameter.empty and not is_flag:
        default = str(default)
    annotation = Annotated[typed, info]
    return Parameter(parameter.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


class Command(TyperCommand):
    """A command whose help names arguments by metavar; single-valued options are given once."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options of the command."""
        for kind, title in {TyperArgument: "Arguments", TyperOption: "Options"}.items():
            records: list[tuple[str, str]] = []
            for one in self.get_params(ctx):
                record = one.get_help_record(ctx) if isinstance(one, kind) else None
                if record is not None:
                    name = one.metavar if kind is TyperArgument else record[0]
                    records.append((name or record[0], record[1]))
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command line; raise ConfigError for a repeated option."""
        # The parser would silently take the last.
        words = [word.partition("=")[0] for word in args[: [*args, "--"].index("--")]]
        for option in self.params:
            if isinstance(option, TyperOption) and not option.is_flag:
                if ctx.resilient_parsing and args and args[-1] in option.opts:
                    args = args[:-1]  # a shell completes its value
                n_times = sum(map(words.count, option.opts))
                if n_times > 1 and not (option.multiple or ctx.resilient_parsing):
                    raise ConfigError(
                        f"{option.opts[0]} is given {n_times} times but takes one value: give it "
                        "once"
                    )
        try:
            return super().parse_args(ctx, args)
        except TyperException as error:
            # The parser names no command for an option without its value.
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise
