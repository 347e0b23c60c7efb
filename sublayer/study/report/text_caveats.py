"""The caveats of a comparison's text, which are known before its runs."""

from collections.abc import Mapping

from sublayer.data.prepare import Data
from sublayer.data.tasks.task_split import TaskSplit
from sublayer.objective.metric import Metric
from sublayer.runs.small_test import describe_small_test
from sublayer.study.scoring import WHOLE_TEST, Scoring


def list_text_caveats(
    data: Mapping[str, Data],
    metric: Metric,
    scoring: Scoring = WHOLE_TEST,
    against: Mapping[str, str] | None = None,
) -> list[str]:
    """Return what a small text, other texts, other vocabularies and lossy ones do to values.

    ``data`` is each arm's by name, the baseline's first; ``metric`` decides; ``scoring`` is what is
    scored; ``against`` has the arms that have another baseline than the first, or none, which is
    themselves.
    """
    against = against or {}
    notes: list[str] = []
    small = describe_small_test(next(iter(data.values()))) if scoring.split == "test" else None
    if small:
        notes.append(f"{small[0].upper()}{small[1:]}.")
    other_text = _others(data, scoring.split, against)
    if other_text:
        notes.append(
            f"{other_text}: scored on another text than the baseline. data.{scoring.split}_path "
            "gives all arms one."
        )
    foreign = _others(data, "tokenizer", against)
    texts = {name: scoring.split_of(each) for name, each in data.items()}
    if foreign and any(text.read_pairs is not None for text in texts.values()):
        notes.append(
            f"{foreign}: another vocabulary than the baseline's, so that nats per token do not "
            "compare."
        )
    elif foreign and any(text.sentence_starts is not None for text in texts.values()):
        notes.append(
            f"{foreign}: another vocabulary than the baseline's. Its masked tokens are other ones, "
            "so that accuracies and nats of masked tokens do not compare."
        )
    lossy = [name for name, text in texts.items() if not text.store.is_lossless]
    if lossy and metric.basis == "bytes":
        notes.append(
            f"The tokenizer of {', '.join(lossy)} does not keep every byte of the text: bits per "
            "byte do not pay for what it loses."
        )
    return notes


def _others(data: Mapping[str, Data], what: str, against: Mapping[str, str]) -> str:
    """Name the arms in whose data something is another than in that of their baseline."""
    first, *_ = data
    names = []
    for name, each in data.items():
        baseline = data[against.get(name, first)]
        if _digest(each, what) != _digest(baseline, what):
            names.append(name)
    return ", ".join(names)


def _digest(data: Data, what: str) -> str:
    for split in data.splits():
        if split.name == what and isinstance(split, TaskSplit):
            return split.examples_digest
    return data.checksums[what]
