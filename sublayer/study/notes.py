"""What a report says beside its numbers, so that nobody reads more into them than they hold."""

from collections.abc import Mapping, Sequence

from sublayer.data.prepare import Data
from sublayer.study.statistics import critical_t

FEW_SEEDS = 5
"""Fewer seeds than these, the default, are called few."""


def make_notes(looks: Sequence[int], data: Mapping[str, Data], *, n_seeds: int, n_comparisons: int) -> tuple[str, ...]:
    """Say what weakens a comparison: ``looks`` are the numbers of seeds of its reports, ``data`` is each arm's."""
    notes = []
    if n_seeds < FEW_SEEDS:
        notes.append(_few_seeds(n_seeds, n_comparisons))
    if len(looks) > 1:
        notes.append(
            f"This study was reported with {', '.join(map(str, looks))} seeds in turn. The intervals assume that the "
            "number of seeds was chosen beforehand: a verdict that came with added seeds is less sure than it says."
        )
    elsewhere = _others(data, "test")
    if elsewhere:
        notes.append(f"{elsewhere}: scored on another text than the baseline. data.test_path gives all arms one.")
    foreign = _others(data, "tokenizer")
    is_masked = any(each.test.sentence_starts is not None for each in data.values())
    if foreign and is_masked:
        notes.append(
            f"{foreign}: another vocabulary than the baseline's. Its hidden tokens are other ones, so that accuracies "
            "and nats of hidden tokens do not compare."
        )
    lossy = [name for name, each in data.items() if not each.test.store.is_lossless]
    if lossy and not is_masked:
        notes.append(
            f"The tokenizer of {', '.join(lossy)} does not keep every byte of the text: bits per byte leave out what "
            "it loses."
        )
    return tuple(notes)


def _few_seeds(n_seeds: int, n_comparisons: int) -> str:
    compared = "one comparison" if n_comparisons == 1 else f"{n_comparisons} comparisons"
    return (
        f"{n_seeds} seeds are few: with {compared} an interval reaches {critical_t(n_seeds, n_comparisons):.1f} "
        'standard errors to either side. "cannot tell" does not say that arms are equal: a difference below the '
        "detectable one was likely to be missed."
    )


def _others(data: Mapping[str, Data], what: str) -> str:
    baseline, *_ = data.values()
    return ", ".join(name for name, each in data.items() if each.checksums[what] != baseline.checksums[what])
