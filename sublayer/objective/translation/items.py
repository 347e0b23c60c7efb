"""The items of a translator's test: the pairs of its loss, and the lines that it translates."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial

from sublayer.data.parallel.sources import PairText
from sublayer.data.split import Split
from sublayer.evaluation.bleu import COMPOUNDS, MEASURES, LineCounts, score_of_counts
from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable, Sums
from sublayer.objective.translation.scores import PairNats

PAIRS, LINES, COMPOUND_LINES = "pairs", "lines", "compound_lines"
"""The names of the tables; the last has BLEU with compounds split, where that is scored."""


def _loss(sums: Sums) -> float:
    nats = float(sums["nats"])
    n_tokens = float(sums["tokens"])
    return nats / n_tokens


def _score(name: str, sums: Sums) -> float:
    return score_of_counts(name, sums[name])


LOSS_OF_ITEMS = FromItems(PAIRS, _loss)


def score_of_items(name: str) -> FromItems:
    """Return how a measure of translations follows from the counts of its lines.

    ``name`` is one of ``sublayer.evaluation.bleu.MEASURES``, or ``COMPOUNDS``.
    """
    table = COMPOUND_LINES if name == COMPOUNDS else LINES
    return FromItems(table, partial(_score, name))


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
    tables = {PAIRS: of_pairs, LINES: _lines(LINES, split, counted, MEASURES)}
    if COMPOUNDS in counted:
        tables[COMPOUND_LINES] = _lines(COMPOUND_LINES, split, counted, (COMPOUNDS,))
    return Items(split.name, split.store.sha256, tables)


def _lines(
    table: str, split: Split, counted: Mapping[str, LineCounts], names: Sequence[str]
) -> ItemTable:
    return ItemTable(
        unit="a line: its translation's n-grams, and those that it shares with the reference",
        digest=_digest_of_lines(table, split.pairs),
        columns={name: counted[name].counts for name in names},
        documents=None,
    )


def _digest_of_pairs(split: Split) -> str:
    digest = Digest(PAIRS, split.store.sha256)
    assert split.sentence_starts is not None, "the text was stored as pairs"
    digest.add(split.sentence_starts)
    digest.add(split.ids)
    return digest.hexdigest()


def _digest_of_lines(table: str, pairs: Sequence[PairText]) -> str:
    digest = hashlib.sha256(f"{table}\n".encode())
    for pair in pairs:
        # No text of a pair contains a line break.
        digest.update(f"{pair.source}\n{pair.target}\n".encode())
    return digest.hexdigest()
