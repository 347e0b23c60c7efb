"""The command group of ``sublayer``, and its exit codes."""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from sublayer import __version__
from sublayer.errors import (
    ConfigError,
    Interrupted,
    Preempted,
    SaidElsewhere,
    SublayerError,
    TrainingError,
    one_line,
)
from sublayer.numbers import NO_BREAK
from sublayer.system.machine import lacks_memory
from sublayer.system.processes import n_launched
from sublayer.system.signals import INTERRUPTED, PREEMPTED, interruptible, interruption
from sublayer.system.terminal import OutputLost, hanging, lasting_streams

DONE, LOST, MISTAKE, FAILED = 0, 1, 2, 3
"""Exit codes; 130 is a shell's code for SIGINT, 128 + 2."""

COMMANDS = {
    "demo": "Compare tiny models on built-in text, in a few minutes.",
    "recipes": "List the recipes, or show one with the origin of each value.",
    "fields": "List every field of a recipe: unit, default, when it has an effect.",
    "plan": "Print the cost of a run or a comparison, without starting it.",
    "train": "Train a recipe, or resume a run.",
    "finetune": "Fine-tune a model on a task, and score it against baselines.",
    "compare": "Test which variants are better at an equal budget, with intervals.",
    "judge": "Test which arm is better, from runs of any trainer, with an exit code.",
    "report": "Rewrite the HTML report of a run or a comparison.",
    "runs": "List runs and comparisons: kind, date, score, next command.",
    "check": "Try the rows of a plugin: counts, gradients, caches, resumption.",
    "tasks": "List the tasks, and their files in a folder.",
    "evaluate": "Score how well a model predicts a text.",
    "inspect": "Measure the effect of the blocks of models on the embeddings of a text.",
    "generate": "Continue a prompt, or fill the gaps of a text.",
    "fill": "Fill the masks of a text with an encoder or a T5, with probabilities.",
    "embed": "Write a vector for each line of a file: pooled hidden states.",
    "predict": "Answer rows with a fine-tuned model, or write a benchmark submission.",
    "translate": "Translate a text line by line.",
    "tokenize": "Train a tokenizer, or show the tokens of a text.",
    "import": "Import a model of transformers or fairseq, or a release.",
    "export": "Export a model to another system's format.",
    "completion": "Complete commands, runs and fields in the shell.",
}
"""Each command's line of help."""
_MODULES = {
    "studies": ("demo", "plan", "compare", "judge", "report", "runs"),
    "training": ("train", "finetune"),
    "models": ("import", "export", "evaluate", "embed", "inspect"),
    "texts": ("generate", "fill", "translate", "tokenize", "predict"),
    "reference": ("recipes", "fields", "check", "tasks", "completion"),
}
"""Modules with several commands; each other command has a module of its own name."""
VARIABLE = "_SUBLAYER_COMPLETE"
"""The environment variable that names the shell requesting completion."""
_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the disk quota is used up: free some space",
    errno.EACCES: "permission denied: name another file or folder, or change who may use it",
    errno.EPERM: "permission denied: name another file or folder, or change who may use it",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EISDIR: "a file is needed, not a folder",
    errno.ENOTDIR: "a folder is needed, not a file",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    0 done, 10 to 12 verdicts of ``judge`` other than better, 2 the user's mistake, 3 training
    failed, 130 interrupted, 75 pre-empted; for these, one line on standard error has the remedy. 1
    if the result cannot be printed, 4 if ``report --verify`` finds that results do not follow from
    their plan, or ``check`` that a row fails. Bugs are raised unchanged.
    """
    argv = sys.argv[1:] if arguments is None else arguments
    words = list(argv) or ["--help"]
    with interruptible(), lasting_streams() as (output, errors):
        code, message = _end(words)
        output.flush()
        if code == DONE and output.failure is not None and not output.is_gone:
            code, message = LOST, f"error: the result cannot be printed: {output.failed}"
        if message and _is_first_to_say(message):
            errors.write(f"{wrapped(message) if errors.isatty() else message}\n")
            errors.flush()
        if message and errors.failure is not None:
            output.write(f"{message}\n")  # where it is readable
    return code


def wrapped(message: str) -> str:
    """Wrap a message at spaces to the terminal's width, without breaking quoted commands."""
    parts = message.split("`")
    parts[1::2] = [part.replace(" ", NO_BREAK) for part in parts[1::2]]
    return hanging("`".join(parts), "", "  ")


def _is_first_to_say(message: str) -> bool:
    """Return whether no other launched process has printed this message."""
    try:
        if n_launched() == 1:
            return True
    except ConfigError:  # the message says the same
        return True
    from sublayer.training.world import says_first

    return says_first(message)


def _end(words: list[str]) -> tuple[int, str]:
    """Run a command line; return its exit code and the line that it ends with."""
    try:
        ended = _outcome(words)
        interruption.is_over = True
        return ended
    except BaseException as error:
        # A library may turn an interruption into another error.
        if not (interruption.was_raised or isinstance(error, KeyboardInterrupt)):
            raise
    interruption.is_over = True
    return interruption.code, "interrupted"


_CODES = {Preempted: PREEMPTED, Interrupted: INTERRUPTED, TrainingError: FAILED}
"""Exit code by error, except the user's mistakes."""


def _outcome(words: list[str]) -> tuple[int, str]:
    try:
        return _run(words), ""
    except TyperException as error:
        message = _usage(error)
    except OutputLost:
        return DONE, ""  # the stream says the rest
    except SublayerError as error:
        code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), MISTAKE)
        is_said = isinstance(error, SaidElsewhere)
        line = str(error) if isinstance(error, Interrupted) else _error_line(str(error))
        return code, "" if is_said else line
    except UnicodeEncodeError as error:
        message = f"{error.object!a} is not UTF-8: give another name"
    except OSError as error:
        name = error.filename
        if error.errno == errno.ENOENT and isinstance(name, str) and not os.path.lexists(name):
            from sublayer.files.storage import describe_absence

            message = describe_absence(name)
        else:
            advice = _ADVICE.get(error.errno or 0) or error.strerror or str(error)
            message = advice if name is None else f"{name}: {advice}"
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        message = "this machine has too little memory: take a smaller model, batch or context"
    return MISTAKE, _error_line(message)


def _run(words: list[str]) -> int:
    if shell := os.environ.get(VARIABLE):
        from sublayer.cli.completion import answer

        if replies := answer(shell, words, group_with):
            typer.echo(replies)
        return DONE
    group = group_with(next((word for word in words if not word.startswith("-")), ""))
    try:
        with group.make_context("sublayer", words) as context:
            group.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    return DONE


def group_with(wanted: str) -> TyperGroup:
    """Return all commands with their lines of help, with options for the wanted one."""
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_group)
    for name, line in COMMANDS.items():
        if name == wanted:
            from sublayer.cli.build import Command

            command = command_of(name)
            # \b keeps the example on a separate line, to be copied.
            epilog = f"\b\nExample: {command.example}"
            app.command(name, cls=Command, short_help=line, epilog=epilog)(command)
        else:
            app.command(name, short_help=line)(_not_wanted)
    group = get_command(app)
    assert isinstance(group, TyperGroup), "there are several commands"
    return group


def command_of(name: str) -> Any:
    """Import a command: a function of that name, with an ``example``."""
    module = next((module for module, names in _MODULES.items() if name in names), name)
    function = f"{name}_" if iskeyword(name) else name
    return getattr(import_module(f"sublayer.cli.{module}"), function)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"sublayer {__version__}")
        raise typer.Exit


def _group(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Compose, pre-train, generate with and fairly compare Transformer language models."""


def _not_wanted() -> None:
    raise AssertionError("only the wanted command ever runs")


def _error_line(message: str) -> str:
    return f"error: {one_line(message)}"


def _usage(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    option, options = str(getattr(error, "option_name", "")), getattr(error, "possibilities", ())
    key = None
    if hasattr(error, "possibilities") and "." in option:
        key = option.lstrip("-").partition("=")[0]
    elif hasattr(error, "possibilities"):
        # The nearest field of a mistaken option such as --steps, if any.
        from sublayer.config.recipe import nearest_key
        from sublayer.errors import nearest

        takes_settings = any(
            parameter.name in ("overrides", "words") and parameter.param_type_name == "argument"
            for parameter in (context.command.params if context else [])
        )
        name = option.lstrip("-").replace("-", "_")
        meant = nearest_key(name) if takes_settings else None
        field = (meant or "").rpartition(".")[2]
        near = [other.lstrip("-").replace("-", "_") for other in options or ()]
        key = meant if field and nearest(name, [field, *near]) == field else None
    if key:
        return f"{option} is not an option: write the setting {key}=VALUE"
    message = error.format_message().replace("Value error, ", "").rstrip(".")
    if message.endswith("?"):  # it already suggests a word
        return message
    return f"{message}; see `{context.command_path if context else 'sublayer'} --help`"
