"""Translation: its loss, its batches, its scores and their items.

Source: Vaswani et al. 2017 (1706.03762); label smoothing: Szegedy et al. 2016 (1512.00567), sec. 7.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import batch_sequences
from sublayer.config.translation import TranslationObjective
from sublayer.data.parallel.batches import TranslationBatches, side_lengths
from sublayer.data.parallel.sources import PairText
from sublayer.data.store import Split
from sublayer.decode.beam import BeamSettings
from sublayer.decode.translate import Translation as TranslatedLine
from sublayer.decode.translate import translate_lines
from sublayer.evaluation.bleu import COMPOUNDS, MEASURES, LineCounts, score_of_counts
from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable, Sums
from sublayer.evaluation.split_work import ALONE, Processes, add_up, compute_each, numbered_ids
from sublayer.model.build import EncoderDecoder
from sublayer.model.eval_mode import evaluating
from sublayer.model.kernels.cross_entropy import Smoothing
from sublayer.model.transformer import Transformer
from sublayer.objective.targets import TargetLoss, nats_of_rows
from sublayer.text_model import TextModel


class Translation(TargetLoss):
    """The loss of translations, smoothed as a recipe says."""

    def __init__(self, model: Transformer, config: TranslationObjective) -> None:
        vocab_size = model.config.vocab_size
        super().__init__(model, smoothing_of(config, vocab_size))


def smoothing_of(config: TranslationObjective, vocab_size: int) -> Smoothing | None:
    """Return the weights of a smoothed loss; None where nothing but nats is trained.

    uniform: a share ``e`` goes to every entry of the vocabulary alike, the target's own among them
    (fairseq of 2019, with which Macaron Net was trained; Szegedy et al.). others: ``e`` goes to the
    others (fairseq since).
    """
    share, z = config.label_smoothing, config.z_loss
    if share == 0.0 and z == 0.0:
        return None
    if config.smoothing == "uniform":
        return Smoothing(1.0 - share, share / vocab_size, z)
    each = share / (vocab_size - 1)
    return Smoothing(1.0 - share - each, each, z)


def scoring_batches(recipe: Recipe, split: Split) -> TranslationBatches:
    """Build batches to score a split by: as large as a part of training's, with little padding.

    Raises DataError where every pair is too long.
    """
    return TranslationBatches(
        split,
        context=recipe.data.context,
        batch_tokens=batch_tokens(recipe) // recipe.data.batch_parts,
        seed=recipe.train.seed,
        starts_with_pad=recipe.model.decoder_start == "pad",
    )


def batch_tokens(recipe: Recipe) -> int:
    """Count the tokens of a batch, padding included."""
    return recipe.train.batch_tokens or batch_sequences(recipe) * recipe.data.context


_GROUP = 256
"""Pairs that are translated together where the number of processes must change nothing."""


@dataclass(frozen=True)
class PairNats:
    """Nats and tokens of each pair's target, in the order of the split, ``[N]``.

    Tokens count its end; a pair that was too long for the model has 0 of both.
    """

    nats: NDArray[np.float64]
    tokens: NDArray[np.int64]


@torch.inference_mode()
def translation_nats(
    model: EncoderDecoder, batches: TranslationBatches, processes: Processes = ALONE
) -> float:
    """Compute the mean nats per target token, ends included, without pairs that are too long.

    Label smoothing plays no part. The work is divided among ``processes``, and all return the same.
    """
    objective = Translation(model, TranslationObjective())

    def score_batch(step: int) -> list[float]:
        batch = batches.batch(step).to(model.embedding.weight.device)
        totals = objective(batch)
        return [float(totals["nll"]), batch.n_predicted]

    with evaluating(model):
        rows = compute_each(score_batch, batches.n_batches(0), processes)
    return add_up(rows) / int(add_up(rows, 1))


@torch.inference_mode()
def nats_of_pairs(
    model: EncoderDecoder, batches: TranslationBatches, processes: Processes = ALONE
) -> PairNats:
    """Compute the nats of every pair's target, its end included.

    A pair that is too long has 0 nats of 0 tokens.
    """
    n_pairs = len(side_lengths(batches.split))
    by_pair = PairNats(np.zeros(n_pairs), np.zeros(n_pairs, dtype=np.int64))

    def score_batch(step: int) -> list[float]:
        batch = batches.batch(step)
        return nats_of_rows(model, batch.to(model.embedding.weight.device))

    with evaluating(model):
        rows = compute_each(score_batch, batches.n_batches(0), processes)
    for step, row in enumerate(rows):
        nats, tokens = row.reshape(2, -1)
        indices = batches.places(step)
        by_pair.nats[indices] = nats
        by_pair.tokens[indices] = tokens
    return by_pair


def translate_pairs(
    text_model: TextModel,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    *,
    sentences: int = 32,
    progress: Callable[[int], None] | None = None,
) -> list[TranslatedLine]:
    """Translate the source words of every pair; return the translations in the pairs' order.

    ``sentences`` are translated at a time, of about equal lengths, all pairs being sorted for it.
    ``progress`` is called with the number done.
    """
    translations = translate_lines(
        text_model,
        (pair.source_words for pair in pairs),
        settings,
        sentences=sentences,
        window=max(1, len(pairs)),
        are_words=True,
        progress=progress,
    )
    return list(translations)


def translate_ids(
    text_model: TextModel,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    processes: Processes = ALONE,
) -> list[NDArray[np.int64]]:
    """Translate the source words of every pair, split among processes; return ids in order.

    The beams that are computed together are then other ones, so that rounding may
    decide between translations that are as good.
    """
    own = [pairs[index] for index in processes.own(len(pairs))]
    translations = translate_pairs(text_model, own, settings)
    # Processes exchange numbers, in which ids are exact.
    own_rows = [each.ids.astype(np.float64) for each in translations]
    rows = processes.gather(own_rows, len(pairs))
    return [row.astype(np.int64) for row in rows]


def translate_ids_exactly(
    text_model: TextModel,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    processes: Processes = ALONE,
) -> list[NDArray[np.int64]]:
    """Translate as ``translate_ids`` does, to the same ids on any number of processes.

    Pairs of about equal lengths are translated together, in groups that depend on them alone.
    """
    order = sorted(range(len(pairs)), key=lambda number: len(pairs[number].source_words))
    groups = [order[start : start + _GROUP] for start in range(0, len(order), _GROUP)]

    def work(index: int) -> Sequence[float]:
        chosen = [pairs[number] for number in groups[index]]
        row: list[float] = []
        translations = translate_pairs(text_model, chosen, settings)
        for number, each in zip(groups[index], translations, strict=True):
            row += [float(number), float(len(each.ids)), *map(float, each.ids.tolist())]
        return row

    found = numbered_ids(compute_each(work, len(groups), processes))
    return [found[number] for number in range(len(pairs))]


PAIRS, LINES, COMPOUND_LINES = "pairs", "lines", "compound_lines"
"""The names of the tables; the last has BLEU with compounds split, where that is scored."""


def _loss(sums: Sums) -> float:
    nats = float(sums["nats"])
    n_tokens = float(sums["tokens"])
    return nats / n_tokens


def _score(name: str, sums: Sums) -> float:
    return score_of_counts(name, np.asarray(sums[name]))


LOSS_OF_ITEMS = FromItems(PAIRS, _loss)


def score_of_items(name: str) -> FromItems:
    """Return how a measure of translations follows from the counts of its lines.

    ``name`` is one of ``sublayer.evaluation.bleu.MEASURES``, or ``COMPOUNDS``.
    """
    table = COMPOUND_LINES if name == COMPOUNDS else LINES
    return FromItems(table, partial(_score, name))


def translation_items(split: Split, nats: PairNats, counted: Mapping[str, LineCounts]) -> Items:
    """Return the nats of each stored pair's target, and the counts of each translated line.

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
