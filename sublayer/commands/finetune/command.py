"""``sublayer finetune``: teach a model a task, and say what that is worth."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from sublayer.commands.finetune.options import (
    AnswerOption,
    AnswerStartOption,
    DataOption,
    GroupOption,
    IdOption,
    LabelOption,
    NumberOption,
    OutOption,
    PresetOption,
    ResumeOption,
    SeedsOption,
    StartArgument,
    TargetOption,
    TextOption,
    WordsArgument,
)
from sublayer.commands.finetune.own_table import ColumnOptions, table_among
from sublayer.commands.finetune.presets import describe_preset
from sublayer.commands.finetune.rendering import render_finetuned, result_of
from sublayer.commands.shared.base import DeviceOption, JsonOption, emit, say
from sublayer.commands.shared.column_options import ChoicesOption, TextPairOption
from sublayer.config.layering.finetune import load_finetune
from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.config.presets import DEFAULT
from sublayer.errors import ConfigError
from sublayer.files.paths import as_typed
from sublayer.nearest import nearest_hint
from sublayer.system.launch import is_first_launched
from sublayer.system.stages import stage
from sublayer.tasks.registry import TASKS

EXAMPLE = "sublayer finetune runs/albert-small sst2 --data glue"


def command(
    run: StartArgument,
    words: WordsArgument = None,
    data: DataOption = None,
    text: TextOption = None,
    text_pair: TextPairOption = None,
    label: LabelOption = None,
    number: NumberOption = False,
    choices: ChoicesOption = None,
    answer: AnswerOption = None,
    answer_start: AnswerStartOption = None,
    target: TargetOption = None,
    group: GroupOption = None,
    id_: IdOption = None,
    preset: PresetOption = DEFAULT,
    seeds: SeedsOption = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fine-tune a model on a task, and score it beside what needs no model.

    A part of the training examples is held out to choose the checkpoint; the published development
    set is scored once, in the end. Beside the score stand its standard error, the majority's answer
    and a linear model of words trained on the same rows. A table of your own is named by its file,
    and its columns by options: `sublayer finetune albert-small my.csv --text review --label stars`.
    All settings are those of a recipe: `sublayer train RUN` takes the folder's recipe, too.
    """
    options = ColumnOptions(
        text, text_pair, label, number, choices, answer, answer_start, target, group, id_
    )
    names = [word for word in words or () if not is_setting(word)]
    settings = [word for word in words or () if is_setting(word)]
    if resume and not names and (Path(run) / RUN_RECIPE).is_file():
        raise ConfigError(
            "--resume of a fine-tuning takes the task or table that it began with; `sublayer "
            f"train {shlex.quote(as_typed(run))} --resume` resumes a run as its folder says"
        )
    table = table_among(names, options, data)
    if table is None:
        check_tasks(names)
        finetuning = load_finetune(run, names, data, settings, preset=preset)
    else:
        columns = options.columns(table)
        finetuning = load_finetune(run, (), table, settings, preset=preset, columns=columns)
    loaded = finetuning.loaded
    if is_first_launched():
        for line in describe_preset(finetuning):
            say(line)

    with stage("starting PyTorch"):
        from sublayer.runs.finetuning import finetune_seeds
        from sublayer.runs.folder import chosen_folder
        from sublayer.training.processes.joining import leave_world

    try:
        folder = chosen_folder(out, loaded, resume=resume)
        results = finetune_seeds(loaded, folder, seeds, resume=resume, device=device)
    finally:
        leave_world()
    if is_first_launched():
        emit(result_of(folder, results, loaded.recipe), as_json, render_finetuned)


def is_setting(word: str) -> bool:
    """Return whether a word is a setting, and neither a task nor a table."""
    return "=" in word


def check_tasks(tasks: Sequence[str]) -> None:
    """Raise ConfigError for a task that there is not, and for none."""
    for name in tasks:
        if name not in TASKS:
            raise ConfigError(
                f"{name} is no task, and no table is there of that name; `sublayer tasks` lists "
                f"the tasks{nearest_hint(name, tuple(TASKS))}"
            )
    if not tasks:
        raise ConfigError(
            "no task is named: give one, such as sst2 (`sublayer tasks` lists them), or the file "
            "of a table of your own with the names of its columns, such as my.csv --text review "
            "--label stars"
        )
