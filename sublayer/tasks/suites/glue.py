"""GLUE: nine tasks and a diagnostic set. Source: Wang et al. 2018 (1804.07461)."""

from pathlib import Path

from sublayer.errors import DataError
from sublayer.tasks.columns import Columns, may_be_of, read_columns
from sublayer.tasks.finding import SUFFIXES, Layout, find_splits
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import read_records, suffix_of
from sublayer.tasks.suite import Found, Suite
from sublayer.tasks.suites.mrpc import MRPC, ORIGINAL, read_mrpc, with_dev_ids
from sublayer.tasks.suites.superglue_rows import RTE_FILES, xml_records
from sublayer.tasks.task import Task

_SUITE = ("glue", "glue_data")
_ENTAILMENT = ("entailment", "not_entailment")
_THREE_WAY = ("entailment", "neutral", "contradiction")
_PAIR = {"sentence1": ("sentence1",), "sentence2": ("sentence2",)}
_INFERENCE = {
    "premise": ("premise", "sentence1", "Premise"),
    "hypothesis": ("hypothesis", "sentence2", "Hypothesis"),
}

_QUORA = "quora_duplicate_questions.tsv"

_COLUMNS = {
    "cola": Columns(
        {"sentence": ("sentence",)},
        label=("label",),
        without_header=("source", "label", "mark", "sentence"),
    ),
    "sst2": Columns({"sentence": ("sentence",)}, label=("label",)),
    "mrpc": MRPC,
    "qqp": Columns(
        {"question1": ("question1",), "question2": ("question2",)},
        label=("is_duplicate", "label"),
        quoted=(_QUORA,),
    ),
    "stsb": Columns(
        _PAIR,
        label=("score", "label"),
        # Source: the STS benchmark's own archive, in which some rows end with two licences.
        without_header=(
            *("genre", "filename", "year", "old_index", "score", "sentence1", "sentence2"),
            *("licence1", "licence2"),
        ),
        may_end_early=True,
    ),
    "mnli": Columns(
        _INFERENCE,
        label=("gold_label", "label"),
        source="premise",
        no_labels={"-": "no label that most annotators gave (-)"},
    ),
    "qnli": Columns(
        {"question": ("question",), "sentence": ("sentence",)},
        label=("label",),
        source="question",
    ),
    "rte": Columns(_PAIR, label=("label",), source="sentence1", xml=xml_records),
    "wnli": Columns(_PAIR, label=("label",), source="sentence1"),
    "ax": Columns(_INFERENCE, label=("Label", "label"), source="premise"),
}

_DIAGNOSTIC = {"ax.tsv": "test", "diagnostic.tsv": "test", "diagnostic-full.tsv": "dev"}
_LAYOUTS = {
    "cola": Layout(
        ("CoLA", "cola_public", "cola_public_1.1"),
        _SUITE,
        below=("", "data", "default", "raw"),
        joint={
            "in_domain_train.tsv": "train",
            "in_domain_dev.tsv": "dev",
            "out_of_domain_dev.tsv": "dev",
        },
    ),
    "sst2": Layout(("SST-2",), _SUITE),
    "mrpc": Layout(("MRPC",), _SUITE, own=ORIGINAL),
    "qqp": Layout(("QQP", "QQP-clean"), _SUITE, own={_QUORA: "train"}),
    "stsb": Layout(("STS-B", "sts", "stsbenchmark"), _SUITE),
    "mnli": Layout(("MNLI", "multinli", "multinli_1.0"), _SUITE, suffixes=(*SUFFIXES, ".txt")),
    "qnli": Layout(("QNLI", "QNLIv2"), _SUITE),
    "rte": Layout(("RTE",), _SUITE, joint=RTE_FILES),
    "wnli": Layout(("WNLI",), _SUITE),
    "ax": Layout(("AX", "diagnostic", "diagnostics"), _SUITE, own=_DIAGNOSTIC),
}


def _find(task: Task, folder: Path) -> Found:
    may_be = may_be_of(task, _COLUMNS[task.name])
    found = find_splits(folder, _LAYOUTS[task.name], may_be)
    if task.name == "mrpc":
        found = with_dev_ids(found)
    if task.name == "ax":
        # Some copies have it in the folder of the task that its models are trained on.
        beside = Layout(("MNLI",), _SUITE, own=_DIAGNOSTIC, suffixes=())
        found = find_splits(folder, beside, may_be) | found
    if task.name == "rte" and any(_is_other(paths[0]) for paths in found.values()):
        return {}
    return {split: found[split] for split in task.splits if split in found}


def _is_other(path: Path) -> bool:
    """Return whether a file is of the RTE of SuperGLUE, whose folder has the same name, or of no
    RTE at all, as XML may be."""
    is_xml = suffix_of(path) == ".xml"
    if suffix_of(path) == ".tsv":
        return False
    try:
        first = next((xml_records if is_xml else read_records)(path), None)
    except DataError:
        return is_xml
    keys = {"sentence1", "premise"}.intersection(first.values if first else ())
    return not keys if is_xml else "premise" in keys


def _read(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    if task.name == "mrpc":
        return read_mrpc(task, split, paths)
    return read_columns(task, split, paths, _COLUMNS[task.name])


_MATCHED = ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched")

GLUE = Suite(
    "glue",
    tasks=(
        Task("cola", "CoLA", "glue", "classes", ("sentence",), ("matthews",),
             labels=("unacceptable", "acceptable")),
        Task("sst2", "SST-2", "glue", "classes", ("sentence",), ("accuracy",),
             labels=("negative", "positive")),
        Task("mrpc", "MRPC", "glue", "classes", ("sentence1", "sentence2"), ("f1", "accuracy"),
             labels=("not_equivalent", "equivalent"), is_symmetric=True),
        Task("qqp", "QQP", "glue", "classes", ("question1", "question2"), ("f1", "accuracy"),
             labels=("not_duplicate", "duplicate"), is_symmetric=True),
        Task("stsb", "STS-B", "glue", "number", ("sentence1", "sentence2"),
             ("pearson", "spearman"), is_symmetric=True, numbers=(0.0, 5.0)),
        Task("mnli", "MNLI", "glue", "classes", ("premise", "hypothesis"), ("accuracy",),
             labels=_THREE_WAY, splits=_MATCHED),
        Task("qnli", "QNLI", "glue", "classes", ("question", "sentence"), ("accuracy",),
             labels=_ENTAILMENT),
        Task("rte", "RTE", "glue", "classes", ("sentence1", "sentence2"), ("accuracy",),
             labels=_ENTAILMENT),
        Task("wnli", "WNLI", "glue", "classes", ("sentence1", "sentence2"), ("accuracy",),
             labels=("not_entailment", "entailment")),
        Task("ax", "AX", "glue", "classes", ("premise", "hypothesis"), ("matthews",),
             labels=_THREE_WAY, splits=("dev", "test"), trained_as="mnli"),
    ),
    find=_find,
    read=_read,
    columns=_COLUMNS,
    files={name: layout.described() for name, layout in _LAYOUTS.items()},
)  # fmt: skip
