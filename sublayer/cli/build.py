"""Commands from functions: options as typer takes them, arguments checked, results printed."""

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from inspect import Parameter
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TextIO, get_args, get_origin

import typer
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.exceptions import TyperException

from sublayer.cli import candidates
from sublayer.errors import ConfigError
from sublayer.options import Argument, Option, OptionError, members, options_of, shown_limit
from sublayer.system.launch import is_first_launched, n_launched
from sublayer.system.stages import display, note
from sublayer.system.terminal import Stream, searchable
from sublayer.values import as_json_values

if TYPE_CHECKING:
    from sublayer.study.results import Results

JsonObject = Mapping[str, Any]
"""The result of a command, as ``--json`` prints it."""
_METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}

Settings = Annotated[
    Sequence[str],
    Argument(
        "Settings over the recipe's, such as model.d_ff=512 (see `sublayer fields`).",
        metavar="KEY=VALUE",
        complete="settings",
    ),
]
ModelPath = Annotated[
    Path,
    Argument(
        "A run, a checkpoint, or the folder of an imported model.", metavar="RUN", complete="runs"
    ),
]
Json = Annotated[
    bool,
    Option(
        "Print the result as one JSON object, the last line; all else goes to standard error.",
        flag="--json",
    ),
]
Details = Annotated[
    bool, Option("Print what the report has, too: intervals, notes, costs, what arms differ by.")
]

TextPair = Annotated[
    str | None,
    Option("The column of second texts, or of the questions about the texts.", metavar="COLUMN"),
]
Choices = Annotated[str | None, Option("The columns of answers to choose from.", metavar="A,B,...")]


def names_among(columns: str | None) -> tuple[str, ...]:
    """Return the columns that an option names, divided by commas; none where it is not given."""
    return tuple(name.strip() for name in columns.split(",")) if columns else ()


class Result(Protocol):
    """The result of a public function; ``str`` is the text that the command prints."""

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""


def print_result(result: Result, as_json: bool) -> None:
    """Print a result as one JSON object or as text."""
    emit(result.to_dict(), as_json, lambda _: str(result))


def print_compared(
    results: "Results", report: Path, *, as_json: bool, details: bool = False
) -> None:
    """Print a study's results, as JSON or for people; ``report`` is where its report stands."""
    from sublayer.reporting.files import results_to_json
    from sublayer.reporting.terminal import render, summarize

    form = render if details else summarize
    emit(results_to_json(results, report), as_json, lambda _: form(results, report))


_RESULTS: ContextVar[TextIO | None] = ContextVar("results", default=None)


def emit(result: JsonObject, as_json: bool, render: Callable[[JsonObject], str]) -> None:
    """Print a command's result: one line of JSON, or the text that ``render`` makes of it.

    In JSON, numbers that are not finite become null, which it has, and paths become texts. Raises
    OutputLost where nothing can be printed.
    """
    if as_json:
        write_result(f"{json.dumps(as_json_values(result), allow_nan=False)}\n")
    else:
        write_result(f"{searchable(render(result))}\n")


def write_result(text: str) -> None:
    """Write a part of a result to standard output; raise OutputLost where that fails."""
    output = _RESULTS.get() or sys.stdout
    with display().hidden() if output.isatty() else nullcontext():
        output.write(text)
        output.flush()
    if isinstance(output, Stream):
        output.require()


@contextmanager
def only_results_on_stdout() -> Iterator[None]:
    """Redirect other output to standard error, so that standard output holds JSON alone."""
    results = sys.stdout
    token = _RESULTS.set(results)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = results
        _RESULTS.reset(token)


def has_work(name: str) -> bool:
    """Return whether this process does a command, of several that were started together.

    That is the first, where the work is not divided, and it says so. Raises ConfigError for
    commands that start processes themselves.
    """
    if n_launched() == 1:
        return True
    if name in ("compare", "demo"):
        raise ConfigError(f"{name} starts its runs itself: start it without a launcher")
    if is_first_launched():
        note(f"{name} is not divided: the first of {n_launched()} processes does it")
    return is_first_launched()


class Command(TyperCommand):
    """A command whose help names arguments by metavars; an option of one value is given once."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what stands behind the command's name in the line of usage."""
        arguments = (one for one in self.params if isinstance(one, TyperArgument))
        return [self.options_metavar or "", *map(_in_usage, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options of the command."""
        records: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                is_argument = isinstance(parameter, TyperArgument)
                name = parameter.metavar or record[0] if is_argument else record[0]
                records["Arguments" if is_argument else "Options"].append((name, record[1]))
        for title, rows in records.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command line; raise ConfigError for an option that is repeated."""
        # The parser would take the last, and leave out the others in silence.
        words = [word.partition("=")[0] for word in args[: [*args, "--"].index("--")]]
        for option in self.params:
            if isinstance(option, TyperOption) and not option.is_flag:
                if ctx.resilient_parsing and args and args[-1] in option.opts:
                    args = args[:-1]  # a shell asks for its value
                n_times = sum(map(words.count, option.opts))
                if n_times > 1 and not (option.multiple or ctx.resilient_parsing):
                    raise ConfigError(
                        f"{option.opts[0]} is given {n_times} times, and takes one value: give it "
                        "once"
                    )
        try:
            return super().parse_args(ctx, args)
        except TyperException as error:
            # Of an option without its value the parser names no command.
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise


def _in_usage(argument: TyperArgument) -> str:
    """Return an argument as it stands in a line of usage: ``RUN``, ``[RUN]`` or ``[RUN ...]``."""
    name = argument.metavar or argument.name.upper()
    if name.startswith(("[", "{")):
        return name  # it says itself what may be left out
    if argument.nargs == -1:
        name += " ..."
    if argument.required:
        return f"{{{name}}}" if "|" in name else name
    return f"[{name}]"


def client_of(
    function: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that a function declares, before those of its own.

    The command receives the given ones as ``options``, by parameter, as its first argument; its
    other parameters, such as ``as_json``, declare their options alike. Raises OptionError, by the
    name on the command line, for a value that is not finite, out of its range or that no file
    takes, and for values that the function refuses.
    """
    shared = {} if function is None else options_of(function)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = [*inspect.signature(command).parameters.values()]
        if function is not None:
            of_function = inspect.signature(function).parameters
            parameters[:1] = [of_function[name] for name in shared]
        declared = shared | options_of(command)
        names = {name: option.named(name) for name, (_, option) in declared.items()}

        @wraps(command)
        def run(**values: Any) -> None:
            for name, value in values.items():
                for part in value if isinstance(value, list) else [value]:
                    if problem := declared[name][1].problem(part):
                        raise OptionError(names[name], problem)
            given = {name: value for name, value in values.items() if value not in (None, [])}
            options = {name: given.pop(name) for name in shared if name in given}
            try:
                command(*([] if function is None else [options]), **given)
            except OptionError as error:
                name = names.get(error.parameter, error.parameter)
                raise OptionError(name, error.problem) from None

        typed = [_parameter(parameter, *declared[parameter.name]) for parameter in parameters]
        typed.sort(key=lambda parameter: parameter.default is not Parameter.empty)
        run.__signature__ = inspect.Signature(typed)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in typed}
        return run

    return decorate


def _parameter(parameter: Parameter, hint: Any, option: Option) -> Parameter:
    """Return a parameter as typer reads it, with typer's types and defaults."""
    kind, is_list = _kind(hint)
    default = parameter.default
    complete = getattr(candidates, option.complete) if option.complete else None
    metavar = option.metavar or ("PATH" if _is_path(hint) else _METAVARS.get(kind))
    if get_origin(kind) is Literal:
        metavar = option.metavar or "|".join(map(str, get_args(kind)))
    info: Any
    if isinstance(option, Argument):
        info = typer.Argument(metavar=metavar, help=option.help, autocompletion=complete)
    else:
        limits = ""
        if option.least is not None and option.most is not None:
            limits = f"  [{shown_limit(option.least)} to {shown_limit(option.most)}]"
        info = typer.Option(
            *filter(None, (option.named(parameter.name), option.alias)),
            metavar=None if kind is bool else metavar,
            help=option.help + limits,
            autocompletion=complete,
        )
    typed: Any = list[kind] if is_list else kind  # type: ignore[valid-type]
    if default is not Parameter.empty and not (kind is bool and default is not None):
        typed = typed | None
        default = None if default == () else default
    annotation = Annotated[typed, info, option]
    return Parameter(parameter.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _kind(hint: Any) -> tuple[Any, bool]:
    """Return the type of an option's value on the command line, and whether it takes several."""
    kinds = [member for member in members(hint) if member is not type(None)]
    for member in kinds:
        if get_origin(member) is Sequence or get_origin(member) is list:
            return _kind(get_args(member)[0])[0], True
    if len(kinds) == 1 and (kinds[0] in _METAVARS or kinds[0] is bool):
        return kinds[0], False
    if len(kinds) == 1 and get_origin(kinds[0]) is Literal:
        return kinds[0], False
    return str, False


def _is_path(hint: Any) -> bool:
    """Return whether an option takes a path, or several."""
    kinds = members(hint)
    return PathLike[str] in kinds or any(
        get_origin(member) in (Sequence, list) and _is_path(get_args(member)[0]) for member in kinds
    )
