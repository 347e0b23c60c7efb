"""The items of a translator's test: the pairs of its loss, and the lines that it translates."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial

from sublayer.data.parallel.sources import PairText
from sublayer.data.split import Split
from sublayer.evaluation.bleu import LineCounts, score_of_counts
from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable, Sums
from sublayer.objective.translation.scores import PairNats

PAIRS, LINES = "pairs", "lines"
"""The names of the two tables."""


def _loss(sums: Sums) -> float:
    nats = float(sums["nats"])
    n_tokens = float(sums["tokens"])
    return nats / n_tokens


def _score(name: str, sums: Sums) -> float:
    return score_of_counts(name, sums[name])


LOSS_OF_ITEMS = FromItems(PAIRS, _loss)


def score_of_items(name: str) -> FromItems:
    """Return how a measure of translations follows from the counts of its lines.

    ``name`` is one of ``sublayer.evaluation.bleu.MEASURES``.
    """
    return FromItems(LINES, partial(_score, name))


def translation_items(split: Split, nats: PairNats, counted: Mapping[str, LineCounts]) -> Items:
    """Return what each stored pair's target cost, and what each line's scores are computed from.

    Pairs with an empty side are lines, but not stored; pairs that are too long cost nothing, of no
    tokens.
    """
    of_pairs = ItemTable(
        unit="a pair of texts: the tokens of its target, its end included",
        digest=_digest_of_pairs(split),
        columns={"nats": nats.nats, "tokens": nats.tokens},
        documents=None,
    )
    of_lines = ItemTable(
        unit="a line: its translation's n-grams, and those that it shares with the reference",
        digest=_digest_of_lines(split.pairs),
        columns={name: lines.counts for name, lines in counted.items()},
        documents=None,
    )
    return Items(split.name, split.store.sha256, {PAIRS: of_pairs, LINES: of_lines})


def _digest_of_pairs(split: Split) -> str:
    digest = Digest(PAIRS, split.store.sha256)
    assert split.sentence_starts is not None, "the text was stored as pairs"
    digest.add(split.sentence_starts)
    digest.add(split.ids)
    return digest.hexdigest()


def _digest_of_lines(pairs: Sequence[PairText]) -> str:
    digest = hashlib.sha256(f"{LINES}\n".encode())
    for pair in pairs:
        # No text of a pair contains a line break.
        digest.update(f"{pair.source}\n{pair.target}\n".encode())
    return digest.hexdigest()
