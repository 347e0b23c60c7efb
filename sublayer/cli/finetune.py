"""``sublayer finetune``: fine-tune a model on a task, and score it beside baselines."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from sublayer.api.finetuning import finetune, is_table
from sublayer.cli.build import Choices, Json, TextPair, client_of, names_among, print_result
from sublayer.config.sources import RUN_RECIPE
from sublayer.errors import ConfigError
from sublayer.files.paths import as_typed
from sublayer.options import Argument, Option
from sublayer.system.launch import is_first_launched
from sublayer.tasks.registry import TASKS

EXAMPLE = "sublayer finetune runs/albert-small sst2 --data glue"

Words = Annotated[
    Sequence[str],
    Argument(
        "Tasks by name (`sublayer tasks` lists them), or the file of a table of your own; "
        "then settings such as optimizer.lr=1e-4 (see `sublayer fields`).",
        metavar="{TASK|TABLE} ...",
    ),
]
Text = Annotated[
    str | None, Option("Of a table of your own: the column of texts.", metavar="COLUMN")
]
Label = Annotated[
    str | None,
    Option("The column of labels; with --choices of the right one.", metavar="COLUMN"),
]
Answer = Annotated[
    str | None, Option("The column of answers that are a part of the text.", metavar="COLUMN")
]
AnswerStart = Annotated[
    str | None,
    Option(
        "Where the answer begins in the text, in characters. Default: where it first stands.",
        metavar="COLUMN",
    ),
]
Target = Annotated[
    str | None,
    Option(
        "The column of texts that a T5 or a decoder learns to write: any words, such as a summary.",
        metavar="COLUMN",
    ),
]
Group = Annotated[
    str | None,
    Option(
        "The column of the document or author: rows of one are never divided between what is "
        "trained on and what is scored.",
        metavar="COLUMN",
    ),
]


@client_of(finetune)
def command(
    options: dict[str, Any],
    words: Words = (),
    text: Text = None,
    text_pair: TextPair = None,
    label: Label = None,
    number: Annotated[bool, Option("The label is a number to predict, and no class.")] = False,
    choices: Choices = None,
    answer: Answer = None,
    answer_start: AnswerStart = None,
    target: Target = None,
    group: Group = None,
    id: Annotated[str | None, Option("The column of the rows' ids.", metavar="COLUMN")] = None,
    as_json: Json = False,
) -> None:
    """Fine-tune a model on a task, and score it beside what needs no model.

    A part of the training examples is held out to choose the checkpoint; the published development
    set is scored once, in the end. Beside the score stand its standard error, the majority's answer
    and a linear model of words trained on the same rows. A table of your own is named by its file,
    and its columns by options: `sublayer finetune albert-small my.csv --text review --label stars`.
    All settings are those of a recipe: `sublayer train RUN` takes the folder's recipe, too.
    """
    names = [word for word in words if "=" not in word]
    settings = [word for word in words if "=" in word]
    source = str(options["source"])
    if options.get("resume") and not names and (Path(source) / RUN_RECIPE).is_file():
        raise ConfigError(
            "--resume of a fine-tuning takes the task or table that it began with; `sublayer "
            f"train {shlex.quote(as_typed(source))} --resume` resumes a run as its folder says"
        )
    columns: dict[str, Any] = {
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
    columns = {role: column for role, column in columns.items() if column}
    if (columns or number) and not any(map(is_table, names)):
        first = next(iter(columns), "number").replace("_", "-")
        missing = "".join(f"; {word} is not there" for word in names if word not in TASKS)
        raise ConfigError(
            f"--{first} is of a table of your own: name its file, such as my.csv{missing}"
        )
    if number and not label and (answer or target):
        raise ConfigError(
            "--number is of a label, and none is given: leave it out, or give --label"
        )
    tuned = finetune(tasks=names, overrides=settings, columns=columns or None, **options)
    if is_first_launched():
        print_result(tuned, as_json)
