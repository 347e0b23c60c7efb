"""How well a model translates: nats per token of published translations, and translations of its own to score."""

from collections.abc import Callable, Sequence

import torch

from sublayer.config.objective import TranslationObjective
from sublayer.data.pair_texts import PairText
from sublayer.data.translation_batches import TranslationBatches
from sublayer.decode.beam import BeamSettings
from sublayer.decode.translate import Translation as Found
from sublayer.decode.translate import translate_lines
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.mode import evaluating
from sublayer.objective.translation import Translation


@torch.inference_mode()
def translation_nats(model: EncoderDecoder, batches: TranslationBatches) -> float:
    """Give the mean nats per target token, ends included, over every pair of a split that is not too long."""
    objective = Translation(model, TranslationObjective())
    with evaluating(model):
        total, count = 0.0, 0
        for step in range(batches.n_batches(0)):
            batch = batches.batch(step).to(model.embedding.weight.device)
            total += float(objective(batch)["nll"])
            count += batch.n_targets
    return total / count


def translate_pairs(
    model: EncoderDecoder,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    *,
    sentences: int = 32,
    progress: Callable[[int], None] | None = None,
) -> list[Found]:
    """Translate the source words of every pair, all sorted by length; ``progress`` is told how many are done."""
    lines = (pair.source_words for pair in pairs)
    return list(
        translate_lines(
            model, lines, settings, sentences=sentences, window=max(1, len(pairs)), are_words=True, progress=progress
        )
    )
