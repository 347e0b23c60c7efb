"""Translation: its loss, its batches, its scores and their items.

Source: Vaswani et al. 2017 (1706.03762); label smoothing: Szegedy et al. 2016 (1512.00567), sec. 7.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import itemgetter

import numpy as np
import torch

from sublayer.config.objective import TranslationObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import batch_sequences
from sublayer.data.parallel import PairText
from sublayer.data.store import Split
from sublayer.data.tokenizers.base import Ids
from sublayer.data.translation_batches import TranslationBatches, side_lengths
from sublayer.decode.beam import BeamSettings
from sublayer.decode.translate import TranslatedLine, translate_lines
from sublayer.evaluation.bleu import COMPOUNDS, MEASURES, LineCounts, score_of_counts
from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable, quotient_of
from sublayer.evaluation.split_work import ALONE, Processes, add_up, compute_each
from sublayer.model.kernels.cross_entropy import Smoothing
from sublayer.model.transformer import EncoderDecoder, Transformer, evaluating
from sublayer.objective.targets import TargetLoss, TargetNats, nats_of_rows
from sublayer.text_model import TextModel


class Translation(TargetLoss):
    """Loss of translations, with a recipe's label smoothing."""

    def __init__(self, model: Transformer, config: TranslationObjective) -> None:
        vocab_size = model.config.vocab_size
        super().__init__(model, smoothing_of(config, vocab_size))


def smoothing_of(config: TranslationObjective, vocab_size: int) -> Smoothing | None:
    """Return the weights of a smoothed loss; None where only nats are trained.

    uniform: a share ``e`` is spread over the vocabulary, target included (fairseq of 2019, with
    which Macaron Net was trained; Szegedy et al.). others: ``e`` is spread over the other entries
    (fairseq since).
    """
    share, z = config.label_smoothing, config.z_loss
    if share == 0.0 and z == 0.0:
        return None
    if config.smoothing == "uniform":
        return Smoothing(1.0 - share, share / vocab_size, z)
    per_other = share / (vocab_size - 1)
    return Smoothing(1.0 - share - per_other, per_other, z)


def scoring_batches(recipe: Recipe, split: Split) -> TranslationBatches:
    """Build batches to score a split, of the size of a training micro-batch, with little padding.

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


def translation_nats(
    model: EncoderDecoder, batches: TranslationBatches, processes: Processes = ALONE
) -> float:
    """Compute the mean nats per target token, ends included, of pairs that are not too long.

    Without label smoothing. The work is divided among ``processes``, and all return the same.
    """
    objective = Translation(model, TranslationObjective())

    def score_batch(step: int) -> tuple[float, int]:
        batch = batches.batch(step).to(model.embedding.weight.device)
        return float(objective(batch)["nll"]), batch.n_predicted

    with evaluating(model), torch.inference_mode():
        rows = compute_each(score_batch, batches.n_batches(0), processes)
    return add_up(nats for nats, _ in rows) / sum(n for _, n in rows)


def nats_of_pairs(
    model: EncoderDecoder, batches: TranslationBatches, processes: Processes = ALONE
) -> TargetNats:
    """Compute the nats of every pair's target, end included, in the split's order.

    A pair that is too long has 0 nats and 0 tokens.
    """

    def score_batch(step: int) -> TargetNats:
        return nats_of_rows(model, batches.batch(step).to(model.embedding.weight.device))

    with evaluating(model), torch.inference_mode():
        rows = compute_each(score_batch, batches.n_batches(0), processes)
    n_pairs = len(side_lengths(batches.split))
    by_pair = TargetNats(np.zeros(n_pairs), np.zeros(n_pairs, dtype=np.int64))
    for step, row in enumerate(rows):
        indices = batches.places(step)
        by_pair.nats[indices], by_pair.tokens[indices] = row
    return by_pair


def translate_pairs(
    text_model: TextModel,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    *,
    sentences: int = 32,
    progress: Callable[[int], None] | None = None,
) -> list[TranslatedLine]:
    """Translate the source words of every pair; return translations in order.

    ``sentences`` of similar lengths are translated at a time: all pairs are sorted. ``progress``
    receives the number done.
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
) -> list[Ids]:
    """Translate the source words of every pair, split among processes; return ids in order.

    Batches then differ, so that rounding may decide between equally good translations.
    """
    local_pairs = [pairs[index] for index in processes.own(len(pairs))]
    translations = translate_pairs(text_model, local_pairs, settings)
    return processes.gather([translation.ids for translation in translations], len(pairs))


def translate_ids_exactly(
    text_model: TextModel,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    processes: Processes = ALONE,
) -> list[Ids]:
    """Translate as ``translate_ids`` does, with ids independent of the number of processes.

    Pairs of similar lengths are translated in groups that depend only on them.
    """
    order = sorted(range(len(pairs)), key=lambda number: len(pairs[number].source_words))
    groups = [order[start : start + _GROUP] for start in range(0, len(order), _GROUP)]

    def work(index: int) -> list[Ids]:
        chosen = [pairs[number] for number in groups[index]]
        return [translation.ids for translation in translate_pairs(text_model, chosen, settings)]

    translated = chain.from_iterable(compute_each(work, len(groups), processes))
    return [ids for _, ids in sorted(zip(order, translated, strict=True), key=itemgetter(0))]


LOSS_OF_ITEMS = quotient_of(TranslationObjective.evaluated["loss"])
PAIRS, LINES, COMPOUND_LINES = LOSS_OF_ITEMS.table, "lines", "compound_lines"
"""The names of the tables; the last has BLEU with compounds split, where that is scored."""


def score_of_items(name: str) -> FromItems:
    """Return a measure of translations as a function of its lines' counts.

    ``name`` is one of ``sublayer.evaluation.bleu.MEASURES``, or ``COMPOUNDS``.
    """
    table = COMPOUND_LINES if name == COMPOUNDS else LINES
    return FromItems(table, lambda sums: score_of_counts(name, np.asarray(sums[name])))


def translation_items(split: Split, nats: TargetNats, counted: Mapping[str, LineCounts]) -> Items:
    """Return nats of stored pairs' targets, and counts of translated lines.

    Pairs with an empty side are lines, but not stored; those that are too long have 0 nats and 0
    tokens.
    """
    assert split.sentence_starts is not None, "the text was stored as pairs"
    digest = Digest(PAIRS, split.store.sha256)
    digest.add(split.sentence_starts)
    digest.add(split.ids)
    unit = "a pair of texts: the tokens of its target, its end included"
    tables = {PAIRS: ItemTable(unit, digest.hexdigest(), nats._asdict(), None)}
    for table, names in ((LINES, MEASURES), (COMPOUND_LINES, (COMPOUNDS,))):
        if names[0] not in counted:
            continue
        sha256 = hashlib.sha256(f"{table}\n".encode())
        for pair in split.pairs:
            # No text of a pair contains a line break.
            sha256.update(f"{pair.source}\n{pair.target}\n".encode())
        tables[table] = ItemTable(
            "a line: its translation's n-grams, and those that it shares with the reference",
            sha256.hexdigest(),
            {name: counted[name].counts for name in names},
            None,
        )
    return Items(split.name, split.store.sha256, tables)
