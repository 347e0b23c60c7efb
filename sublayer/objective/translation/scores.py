"""Scores of a translator: nats per token of references, and its own translations to score."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sublayer.config.objectives.translation import TranslationObjective
from sublayer.data.parallel.batches import TranslationBatches, side_lengths
from sublayer.data.parallel.sources import PairText
from sublayer.decode.beam_settings import BeamSettings
from sublayer.decode.translate import Translation as TranslatedLine
from sublayer.decode.translate import translate_lines
from sublayer.evaluation.split_work import ALONE, Processes, add_up, compute_each, numbered_ids
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.eval_mode import evaluating
from sublayer.objective.targets.loss import nats_of_rows
from sublayer.objective.translation.loss import Translation

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
    model: EncoderDecoder,
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
        model,
        (pair.source_words for pair in pairs),
        settings,
        sentences=sentences,
        window=max(1, len(pairs)),
        are_words=True,
        progress=progress,
    )
    return list(translations)


def translate_ids(
    model: EncoderDecoder,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    processes: Processes = ALONE,
) -> list[NDArray[np.int64]]:
    """Translate the source words of every pair, split among processes; return ids in order.

    The beams that are computed together are then other ones, so that what is rounded otherwise may
    decide between translations that are as good.
    """
    own = [pairs[index] for index in processes.own(len(pairs))]
    translations = translate_pairs(model, own, settings)
    # Processes exchange numbers, in which ids are exact.
    own_rows = [each.ids.astype(np.float64) for each in translations]
    rows = processes.gather(own_rows, len(pairs))
    return [row.astype(np.int64) for row in rows]


def translate_ids_exactly(
    model: EncoderDecoder,
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
        translations = translate_pairs(model, chosen, settings)
        for number, each in zip(groups[index], translations, strict=True):
            row += [float(number), float(len(each.ids)), *map(float, each.ids.tolist())]
        return row

    found = numbered_ids(compute_each(work, len(groups), processes))
    return [found[number] for number in range(len(pairs))]
