"""How well a model translates: nats per token of published translations."""

import torch

from sublayer.config.objective import TranslationObjective
from sublayer.data.translation_batches import TranslationBatches
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.objective.translation import Translation


@torch.inference_mode()
def translation_nats(model: EncoderDecoder, batches: TranslationBatches) -> float:
    """Give the mean nats per target token, ends included, over every pair of a split that is not too long."""
    objective = Translation(model, TranslationObjective())
    was_training = model.training
    model.eval()
    try:
        total, count = 0.0, 0
        for step in range(batches.n_batches(0)):
            batch = batches.batch(step).to(model.embedding.weight.device)
            total += float(objective(batch)["nll"])
            count += batch.n_targets
    finally:
        model.train(was_training)
    return total / count
