"""Commands of training: train and finetune; the next commands for a model."""

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sublayer.api import finetuning, run
from sublayer.api.results import Found
from sublayer.cli.build import Choices, CommandResult, TextPair, client_of, names_among
from sublayer.config.layers import RUN_RECIPE
from sublayer.config.plugins import FOLDER, used_plugins
from sublayer.errors import ConfigError
from sublayer.files.lines import PACKED
from sublayer.files.storage import as_typed
from sublayer.options import Argument, Option
from sublayer.system.processes import is_first_launched
from sublayer.tasks.registry import TASKS

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe


@client_of(
    run.train,
    "sublayer train gpt data.path=book.txt model.n_layers=4 train.minutes=2 --out runs/book",
)
def train(**options: Any) -> CommandResult | None:
    """Train the model of a recipe, and save it with its record in a new folder.

    Ctrl-C saves and stops; the same command with --resume continues, and ends with the same weights
    as an uninterrupted run. With --resume and a longer length, such as train.steps=400, a run
    continues to that length, finished or not. Several processes: torchrun --nproc-per-node 2 -m
    sublayer train RECIPE ... --out FOLDER.
    """
    trained = run.train(**options)
    if not is_first_launched():
        return None
    following = after_training(str(trained.path), trained.recipe, trained["data"])
    return Found(trained, "\n".join([repr(trained), *following]))


@client_of(finetuning.finetune, "sublayer finetune runs/albert-small sst2 --data glue")
def finetune(
    words: Annotated[
        Sequence[str],
        Argument(
            "Tasks by name (`sublayer tasks` lists them), or the file of a table of your own; "
            "then settings such as optimizer.lr=1e-4 (see `sublayer fields`).",
            metavar="TASK|TABLE",
        ),
    ] = (),
    text: Annotated[
        str | None, Option("The column of texts in a table of your own.", metavar="COLUMN")
    ] = None,
    text_pair: TextPair = None,
    label: Annotated[
        str | None,
        Option("The column of labels; with --choices, of the right choice.", metavar="COLUMN"),
    ] = None,
    number: Annotated[bool, Option("Predict the label as a number, not a class.")] = False,
    choices: Choices = None,
    answer: Annotated[
        str | None,
        Option("The column of answers, each a span of the text.", metavar="COLUMN"),
    ] = None,
    answer_start: Annotated[
        str | None,
        Option(
            "The column of each answer's start in the text, in characters. Default: its first "
            "occurrence.",
            metavar="COLUMN",
        ),
    ] = None,
    target: Annotated[
        str | None,
        Option(
            "The column of target texts that a T5 or a decoder learns to write, such as summaries.",
            metavar="COLUMN",
        ),
    ] = None,
    group: Annotated[
        str | None,
        Option(
            "The column of documents or authors, to keep each one's rows together in training or "
            "in scored data.",
            metavar="COLUMN",
        ),
    ] = None,
    id: Annotated[str | None, Option("The column of row ids.", metavar="COLUMN")] = None,
    **options: Any,
) -> CommandResult:
    """Fine-tune a model on a task, and score it against baselines without a model.

    A held-out part of the training examples selects the checkpoint; the published development set
    is scored once, at the end. The score comes with its standard error, the majority answer and a
    linear model of words trained on the same rows. A table of your own is named by its file, and
    its columns by options: `sublayer finetune albert-small my.csv --text review --label stars`. All
    settings form a recipe: `sublayer train RUN` takes the folder's recipe, too.
    """
    names = [word for word in words if "=" not in word]
    source = str(options["source"])
    if options.get("resume") and not names and (Path(source) / RUN_RECIPE).is_file():
        raise ConfigError(
            "--resume of a fine-tuning needs its original task or table; `sublayer train "
            f"{shlex.quote(as_typed(source))} --resume` resumes a run from its folder alone"
        )
    columns = {
        "text": text,
        "text_pair": text_pair,
        "answer": answer,
        "answer_start": answer_start,
        "target": target,
        "group": group,
        "id": id,
        "number" if number else "label": label,
        "choices": names_among(choices),
    }
    roles = {role: column for role, column in columns.items() if column}
    if (roles or number) and not any(map(finetuning.is_table, names)):
        first = next(iter(roles), "number").replace("_", "-")
        missing = "".join(f"; {word!r} does not exist" for word in names if word not in TASKS)
        raise ConfigError(
            f"--{first} needs a table of your own: name its file, such as my.csv{missing}"
        )
    if number and not label and (answer or target):
        raise ConfigError("--number needs a label: leave it out, or give --label")
    settings = [word for word in words if "=" in word]
    return finetuning.finetune(tasks=names, overrides=settings, columns=roles or None, **options)


PROMPT, GAPS = '"The "', '"The <extra_id_0> of the book."'
_FILE = "FILE"
"""Placeholder for an unknown text of the user."""


def after_training(run: str, recipe: "Recipe", splits: Collection[str]) -> list[str]:
    """Return next commands for a run; ``splits`` are the splits of its text."""
    data, kind = recipe.data, recipe.model.kind
    copies = (Path(run, FOLDER, used.filename) for used in used_plugins(recipe.model))
    plugins = (word for copy in copies for word in ("--plugin", as_typed(str(copy))))
    name = shlex.join([as_typed(run), *plugins])
    if data.tasks is not None:
        return _listed(f"evaluate {name}", f"predict {name} {_FILE}")
    text = shlex.quote(as_typed(data.path)) if isinstance(data.path, str) else _FILE
    held_out = [split for split in ("test", "valid") if split in splits]
    evaluate = f"evaluate {name} " + (f"--split {held_out[0]}" if held_out else f"--path {text}")
    if kind in ("decoder", "lstm"):
        return _listed(evaluate, f"generate {name} --prompt {PROMPT}")
    if kind == "encoder":
        # The default is the validation split.
        read = "" if "valid" in splits else f" --path {text}"
        return _listed(evaluate, f"inspect layers {name}{read}")
    if data.is_parallel:
        # A file of lines: held out, or else training text.
        paths = (data.test_source_path, data.valid_source_path, data.source_path)
        named = [path for path in paths if path is not None and Path(path).suffix not in PACKED]
        lines = shlex.quote(as_typed(named[0])) if named else _FILE
        return _listed(evaluate, f"translate {name} < {lines}")
    knows_gaps = recipe.objective.n_sentinels(data.context) > 0
    return _listed(evaluate, f"generate {name} --prompt {GAPS if knows_gaps else PROMPT}")


def after_import(
    model: str,
    kind: str,
    *,
    is_translator: bool,
    knows_gaps: bool,
    has_head: bool = True,
    answers: str | None = None,
    lacks_marks: bool = False,
) -> list[str]:
    """Return next commands for an imported model with a tokenizer; its text is unknown.

    ``has_head``: it predicts tokens, or judges pairs of texts; ``answers`` names its task, if any;
    ``lacks_marks``: its tokenizer lacks separators for texts.
    """
    name = shlex.quote(as_typed(model))
    finetuned = f"finetune {name} TASK --data DIR"
    if lacks_marks:
        return _listed(finetuned)
    if answers is not None:
        return _listed(f"evaluate {name}{'' if answers in TASKS else ' --task TASK'} --path DIR")
    if kind in ("decoder", "lstm"):
        return _listed(f"evaluate {name} --path {_FILE}", f"generate {name} --prompt {PROMPT}")
    if kind == "encoder" and has_head:
        return _listed(f"inspect layers {name} --path {_FILE}")
    if kind == "encoder":
        return _listed(f"embed {name} {_FILE} --out vectors.npy", finetuned)
    if is_translator:
        return _listed(f"translate {name} < {_FILE}")
    return _listed(f"generate {name} --prompt {GAPS if knows_gaps else PROMPT}")


def _listed(*commands: str) -> list[str]:
    return [
        f"{'next: ' if number == 0 else '      '}sublayer {command}"
        for number, command in enumerate(commands)
    ]
