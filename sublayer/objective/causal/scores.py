"""How well a decoder predicts a text, during training and at its end."""

from sublayer.config.recipe import Recipe
from sublayer.data.split import Split
from sublayer.evaluation.likelihood import score
from sublayer.evaluation.split_work import Processes
from sublayer.model.transformer import Transformer
from sublayer.objective.causal.items import BITS_PER_BYTE_OF_ITEMS, LOSS_OF_ITEMS, window_items
from sublayer.objective.family import Effort, Scored

_BATCH_TOKENS = 4096


def causal_scores(
    model: Transformer, split: Split, recipe: Recipe, effort: Effort, processes: Processes
) -> Scored:
    """Score the tokens of a text: nats per token, bits per byte.

    In training about ``train.evaluate_tokens`` of them, in windows that do not overlap; in a test
    all, each after at least half the context, and the windows are items.
    """
    context = recipe.data.context
    is_test = effort == "test"
    stride = context
    max_tokens = recipe.train.evaluate_tokens
    if is_test:
        stride = max(1, context // 2)
        max_tokens = None
    likelihood = score(
        model,
        split,
        context=context,
        stride=stride,
        batch_sequences=max(1, _BATCH_TOKENS // context),
        max_tokens=max_tokens,
        respect_boundaries=recipe.data.boundaries == "respect",
        processes=processes,
    )
    if not is_test:
        sampled = {"loss": likelihood.loss, "bits_per_byte": likelihood.bits_per_byte}
        return Scored(sampled, items=None)
    items = window_items(split, likelihood)
    scores = {
        "loss": LOSS_OF_ITEMS.of(items),
        "bits_per_byte": BITS_PER_BYTE_OF_ITEMS.of(items),
        "tokens": likelihood.tokens,
    }
    return Scored(scores, items)
