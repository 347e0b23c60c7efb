"""Inference in natural language beside GLUE's: SNLI and SciTail.

Sources: Bowman et al. 2015 (1508.05326); Khot et al. 2018.
"""

from pathlib import Path

from sublayer.tasks.columns import Columns, may_be_of, read_columns
from sublayer.tasks.finding import SUFFIXES, Layout, find_splits
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.suite import Found, Suite
from sublayer.tasks.task import Task

_TEXTS = {"premise": ("premise", "sentence1"), "hypothesis": ("hypothesis", "sentence2")}
_NO_MAJORITY = "no label that most annotators gave (-)"
_COLUMNS = {
    "snli": Columns(
        _TEXTS,
        label=("gold_label", "label"),
        ids=("pairID", "idx", "index", "id"),
        source="premise",
        # The hub's copies number that, in the test split too.
        no_labels={"-": _NO_MAJORITY, "-1": _NO_MAJORITY},
        may_end_early=True,
    ),
    "scitail": Columns(
        _TEXTS,
        label=("gold_label", "label"),
        # Its hypotheses are questions with their answers, each beside several premises.
        source="hypothesis",
        without_header=("premise", "hypothesis", "label"),
        synonyms={"entails": "entailment"},
    ),
}
_LAYOUTS = {
    "snli": Layout(
        ("SNLI", "snli_1.0"), below=("", "data", "plain_text"), suffixes=(*SUFFIXES, ".txt")
    ),
    "scitail": Layout(
        ("SciTail", "SciTailV1.1", "scitail_1.0", "scitail_1.0_structure"),
        below=("", "data", "tsv_format", "snli_format", "predictor_format"),
        suffixes=(*SUFFIXES, ".txt"),
    ),
}


def _find(task: Task, folder: Path) -> Found:
    found = find_splits(folder, _LAYOUTS[task.name], may_be_of(task, _COLUMNS[task.name]))
    return {split: found[split] for split in task.splits if split in found}


def _read(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    return read_columns(task, split, paths, _COLUMNS[task.name])


NLI = Suite(
    "nli",
    tasks=(
        Task("snli", "SNLI", "nli", "classes", ("premise", "hypothesis"), ("accuracy",),
             labels=("entailment", "neutral", "contradiction")),
        Task("scitail", "SciTail", "nli", "classes", ("premise", "hypothesis"), ("accuracy",),
             labels=("entailment", "neutral")),
    ),
    find=_find,
    read=_read,
    columns=_COLUMNS,
    files={name: layout.described() for name, layout in _LAYOUTS.items()},
)  # fmt: skip
