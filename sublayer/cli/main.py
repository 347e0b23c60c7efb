"""The commands: what ``sublayer`` lists, and what its exit codes mean."""

import errno
import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from sublayer import __version__
from sublayer.commands.completion.scripts import VARIABLE
from sublayer.commands.shared.arguments import check_arguments
from sublayer.commands.shared.base import has_work, only_results_on_stdout
from sublayer.commands.shared.usage import refuse_repeats, show_words, wrong_value
from sublayer.errors import (
    ConfigError,
    Interrupted,
    Preempted,
    SaidElsewhere,
    SublayerError,
    TrainingError,
    one_line,
)
from sublayer.system.launch import n_launched
from sublayer.system.memory import lacks_memory
from sublayer.system.signals import INTERRUPTED, PREEMPTED, interruptible, interruption
from sublayer.system.terminal import OutputLost, lasting_streams

DONE, LOST, MISTAKE, FAILED = 0, 1, 2, 3
"""Exit codes; 130 is what a shell returns for SIGINT, 128 + 2."""

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("commands.demo", "Compare tiny models on built-in text, in a few minutes."),
    "recipes": ("cli.recipes", "List the recipes, or show one with the origin of each value."),
    "fields": ("commands.fields", "List every field of a recipe: unit, default, when it counts."),
    "plan": (
        "cli.plan",
        "Say what a run or a comparison will cost, without starting it.",
    ),
    "train": ("cli.train", "Train a recipe, or resume a run."),
    "finetune": ("cli.finetune", "Teach a model a task, and say what that is worth."),
    "compare": (
        "cli.compare",
        "Say which variants are better at an equal budget, and how surely.",
    ),
    "judge": (
        "cli.judge",
        "Say which arm is better, of runs of any trainer, with an exit code.",
    ),
    "report": ("cli.report", "Write the HTML report of a run or a comparison again."),
    "runs": (
        "cli.runs",
        "List runs and comparisons: what, when, how good, how to resume.",
    ),
    "tasks": ("commands.tasks.command", "List the tasks, and what a folder has of them."),
    "evaluate": ("cli.evaluate", "Score how well a model predicts a text."),
    "inspect": (
        "cli.inspect",
        "Measure what the blocks of models do to the embeddings of a text.",
    ),
    "generate": ("cli.generate", "Continue a prompt, or fill the gaps of a text."),
    "fill": (
        "cli.fill",
        "Fill the masks of a text by an encoder or a T5, with probabilities.",
    ),
    "embed": ("cli.embed", "Write a vector of each line of a file: pooled hidden states."),
    "predict": (
        "cli.predict",
        "Answer rows by a fine-tuned model, or hand predictions in.",
    ),
    "translate": ("cli.translate", "Translate a text line by line."),
    "tokenize": ("commands.tokenize.command", "Train a tokenizer, or show the tokens of a text."),
    "import": ("commands.import_", "Import a model of transformers or fairseq, or a release."),
    "export": ("commands.export", "Write a model in another system's format."),
    "completion": (
        "commands.completion.command",
        "Complete commands, runs and fields in the shell.",
    ),
}
"""Each command's module below ``sublayer`` and its line of help.

The module has ``command`` and ``EXAMPLE``.
"""

_DIVIDED = ("train", "finetune", "predict", "evaluate")
"""Commands that processes started together share, as far as they do."""
_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the disk quota is used up: free some space",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.ENOENT: "there is no such file",
    errno.EISDIR: "a file is needed, not a folder",
    errno.ENOTDIR: "a folder is needed, not a file",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    0 done, 10 to 12 verdicts of ``judge`` other than better, 2 the user's mistake, 3 training
    failed, 130 interrupted, 75 pre-empted; for these, one line on standard error says what to do. 1
    where the result cannot be printed, 4 where ``report --verify`` finds that results do not follow
    from their plan. A bug is raised as it is.
    """
    given = sys.argv[1:] if arguments is None else arguments
    words = list(given) or ["--help"]
    with interruptible(), lasting_streams() as (output, errors):
        code, message = _end(words)
        output.flush()
        if code == DONE and output.failure is not None and not output.is_gone:
            code, message = LOST, f"error: the result cannot be printed: {output.failed}"
        if message and _is_first_to_say(message):
            errors.write(f"{message}\n")
            errors.flush()
        if message and errors.failure is not None:
            output.write(f"{message}\n")  # where it can be read
    return code


def _is_first_to_say(message: str) -> bool:
    """Return whether no other process of several that were started together has said the same."""
    try:
        if n_launched() == 1:
            return True
    except ConfigError:  # which is what the message says
        return True
    from sublayer.training.processes.world import says_first

    return says_first(message)


def _end(words: list[str]) -> tuple[int, str]:
    """Run a command line; return its exit code and the line that it ends with."""
    try:
        ended = _outcome(words)
        interruption.is_over = True
        return ended
    except BaseException as error:
        # A library may make another error of an interruption.
        if not (interruption.was_raised or isinstance(error, KeyboardInterrupt)):
            raise
    interruption.is_over = True
    return interruption.code, "interrupted"


def _outcome(words: list[str]) -> tuple[int, str]:
    try:
        return _run(words), ""
    except TyperException as error:
        return MISTAKE, _error_line(_usage(error))
    except SaidElsewhere:
        return FAILED, ""
    except TrainingError as error:
        return FAILED, _error_line(str(error))
    except Preempted as error:
        return PREEMPTED, str(error)
    except Interrupted as error:
        return INTERRUPTED, str(error)
    except SublayerError as error:
        return MISTAKE, _error_line(str(error))
    except OutputLost:
        return DONE, ""  # but for what the stream says
    except UnicodeEncodeError as error:
        return MISTAKE, _error_line(f"{error.object!a} is not UTF-8: give another name")
    except OSError as error:
        return MISTAKE, _error_line(_system_error(error))
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        return MISTAKE, _error_line(
            "this machine has too little memory: take a smaller model, batch or context"
        )


def _run(words: list[str]) -> int:
    shell = os.environ.get(VARIABLE)
    if shell:
        return _complete(shell, words)
    wanted = next((word for word in words if not word.startswith("-")), "")
    group = get_command(_app(wanted))
    command = getattr(group, "commands", {}).get(wanted)
    if isinstance(command, TyperCommand):
        show_words(command)
        refuse_repeats(command)
    code = DONE
    try:
        with group.make_context("sublayer", words) as context:
            group.invoke(context)
    except typer.Exit as stop:
        code = stop.exit_code
    return code


def _complete(shell: str, words: list[str]) -> int:
    from sublayer.commands.completion.protocol import answer

    def load(wanted: str) -> TyperGroup:
        group = get_command(_app(wanted))
        assert isinstance(group, TyperGroup)
        return group

    replies = answer(shell, words, load)
    if replies:
        typer.echo(replies)
    return DONE


def _app(wanted: str) -> typer.Typer:
    # Every command has its line of help, but only the module of the wanted one is imported.
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_group)
    for name, (module, line) in COMMANDS.items():
        if name == wanted:
            loaded = import_module(f"sublayer.{module}")
            # \b keeps the example on a line of its own, to be copied.
            epilog = f"\b\nExample: {loaded.EXAMPLE}"
            app.command(name, short_help=line, epilog=epilog)(_framed(name, loaded.command))
        else:
            app.command(name, short_help=line)(_not_wanted)
    return app


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
    raise AssertionError("only the command that is wanted is ever run")


def _framed(name: str, command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def framed(**values: Any) -> None:
        check_arguments(command, values)
        if name not in _DIVIDED and not has_work(name):
            return
        with only_results_on_stdout() if values.get("as_json") else nullcontext():
            command(**values)

    return framed


def _error_line(message: str) -> str:
    return f"error: {one_line(message)}"


def _usage(error: TyperException) -> str:
    option = getattr(error, "option_name", None)
    near = getattr(error, "possibilities", None)
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "sublayer"
    if option and "." in option:
        key = option.lstrip("-").partition("=")[0]
        return f"there is no option {option}: settings are written {key}=VALUE"
    if option:
        key = _key_meant(option, near, context)
        if key:
            return f"there is no option {option}: settings are written {key}=VALUE"
    if option and near:
        return f"there is no option {option}: did you mean {near[0]}?"
    message = error.format_message().rstrip(".")
    wrong = re.fullmatch(r"Invalid value for '([^']+)'.*?: (.*)", message, re.DOTALL)
    if wrong:
        message = wrong_value(wrong[1], wrong[2])
    if message.endswith("?"):  # it suggests a word already
        return message
    return f"{message}; see `{path} --help`"


def _key_meant(option: str, options: Sequence[str] | None, context: Any) -> str | None:
    """Return the field that was written as an option, such as --steps, where it is the nearest."""
    from sublayer.config.catalog import nearest_key
    from sublayer.nearest import nearest

    parameters = context.command.params if context else []
    if not any(parameter.name == "settings" for parameter in parameters):
        return None
    name = option.lstrip("-").replace("-", "_")
    key = nearest_key(name)
    field = (key or "").rpartition(".")[2]
    near = [each.lstrip("-").replace("-", "_") for each in options or ()]
    return key if field and nearest(name, [field, *near]) == field else None


def _system_error(error: OSError) -> str:
    advice = _ADVICE.get(error.errno or 0) or error.strerror or str(error)
    if error.filename is None:
        return advice
    return f"{error.filename}: {advice}"
