"""GLUE: nine tasks and a diagnostic set; SNLI and SciTail, whose files are tables of columns too.

Sources: Wang et al. 2018 (1804.07461); Bowman et al. 2015 (1508.05326); Khot et al. 2018.
"""

from collections.abc import Mapping
from pathlib import Path

from sublayer.errors import DataError
from sublayer.tasks.finding import SUFFIXES, Layout, find_splits
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import read_records, read_tsv, suffix_of
from sublayer.tasks.rows import Columns, Found, Suite, may_be_of, read_columns, read_rows
from sublayer.tasks.suites.superglue import RTE_FILES, xml_records
from sublayer.tasks.task import Task

MRPC = Columns(
    {"sentence1": ("sentence1", "#1 String"), "sentence2": ("sentence2", "#2 String")},
    label=("label", "Quality"),
)
ORIGINAL = {"msr_paraphrase_train.txt": "train", "msr_paraphrase_test.txt": "test"}
"""The splits of the publisher's files, of which the first holds GLUE's development set, too."""

_TRAIN = "msr_paraphrase_train.txt"
_DEV_IDS = ("mrpc_dev_ids.tsv", "dev_ids.tsv")
_PAIR = ("#1 ID", "#2 ID")
_LACKING = "a pair of ids that the training file lacks"


def with_dev_ids(found: Mapping[str, tuple[Path, ...]]) -> dict[str, tuple[Path, ...]]:
    """Return the files that were found, and those of the sets that the ids make of the original.

    Without the ids, all rows of the original are the training set.
    """
    complete = dict(found)
    for folder in {paths[0].parent for paths in found.values()}:
        train = folder / _TRAIN
        ids = next((folder / name for name in _DEV_IDS if (folder / name).is_file()), None)
        if ids is None or not train.is_file():
            continue
        if complete.get("train", (train,)) == (train,):
            complete["train"] = (train, ids)
        complete.setdefault("dev", (train, ids))
    return complete


def read_mrpc(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    """Read a split: GLUE's files, the hub's, or the part of the original that it has of it.

    Raises DataError as ``read_columns`` does, and for what is no pair of ids.
    """
    if len(paths) == 1 or paths[1].name not in _DEV_IDS:
        return read_columns(task, split, paths, MRPC)
    train, ids = paths
    places = _dev_places(ids)
    result = ReadSplit(split, paths)
    kept = []
    found = set()
    for record in MRPC.records(train):
        pair = None if record.problem else (record.text(_PAIR[0]), record.text(_PAIR[1]))
        is_dev = pair in places
        found.add(pair)
        if is_dev == (split == "dev"):
            kept.append(record)
    if split == "dev":
        for pair, place in places.items():
            if pair not in found:
                result.skip(_LACKING, place)
    read_rows(task, result, kept, MRPC, ids if split == "dev" else train)
    return result


def _dev_places(path: Path) -> dict[tuple[str, str], str]:
    """Return the pairs of ids, each with its place."""
    places = {}
    for row in read_tsv(path):
        place = f"{path}:{row.line}"
        cells = [cell.strip() for cell in row.cells]
        if cells == [""]:
            continue
        if len(cells) != len(_PAIR) or not all(map(str.isdigit, cells)):
            raise DataError(f"{place}: {' '.join(cells)!r} is no pair of ids")
        places[cells[0], cells[1]] = place
    return places


_SUITE = ("glue", "glue_data")
_ENTAILMENT = ("entailment", "not_entailment")
_THREE_WAY = ("entailment", "neutral", "contradiction")
_GLUE_PAIR = {"sentence1": ("sentence1",), "sentence2": ("sentence2",)}
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
        _GLUE_PAIR,
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
    "rte": Columns(_GLUE_PAIR, label=("label",), source="sentence1", xml=xml_records),
    "wnli": Columns(_GLUE_PAIR, label=("label",), source="sentence1"),
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


_TEXTS = {"premise": ("premise", "sentence1"), "hypothesis": ("hypothesis", "sentence2")}
_NO_MAJORITY = "no label that most annotators gave (-)"
_NLI_COLUMNS = {
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
_NLI_LAYOUTS = {
    "snli": Layout(
        ("SNLI", "snli_1.0"), below=("", "data", "plain_text"), suffixes=(*SUFFIXES, ".txt")
    ),
    "scitail": Layout(
        ("SciTail", "SciTailV1.1", "scitail_1.0", "scitail_1.0_structure"),
        below=("", "data", "tsv_format", "snli_format", "predictor_format"),
        suffixes=(*SUFFIXES, ".txt"),
    ),
}


def _nli_find(task: Task, folder: Path) -> Found:
    found = find_splits(folder, _NLI_LAYOUTS[task.name], may_be_of(task, _NLI_COLUMNS[task.name]))
    return {split: found[split] for split in task.splits if split in found}


def _nli_read(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    return read_columns(task, split, paths, _NLI_COLUMNS[task.name])


NLI = Suite(
    "nli",
    tasks=(
        Task("snli", "SNLI", "nli", "classes", ("premise", "hypothesis"), ("accuracy",),
             labels=("entailment", "neutral", "contradiction")),
        Task("scitail", "SciTail", "nli", "classes", ("premise", "hypothesis"), ("accuracy",),
             labels=("entailment", "neutral")),
    ),
    find=_nli_find,
    read=_nli_read,
    columns=_NLI_COLUMNS,
    files={name: layout.described() for name, layout in _NLI_LAYOUTS.items()},
)  # fmt: skip
