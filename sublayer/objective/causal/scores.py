"""How well a decoder predicts a text, during training and at its end."""

from sublayer.config.recipe import Recipe
from sublayer.data.split import Split
from sublayer.evaluation.likelihood import score
from sublayer.evaluation.split_work import ALONE, Processes
from sublayer.model.transformer import Transformer
from sublayer.objective.causal.items import BITS_PER_BYTE_OF_ITEMS, LOSS_OF_ITEMS, window_items
from sublayer.objective.family import Effort, Scored

_BATCH_TOKENS = 4096


def causal_scores(
    model: Transformer, split: Split, recipe: Recipe, effort: Effort, processes: Processes
) -> Scored:
    """Score the tokens of a text: nats per token, bits per byte.

    In training about ``train.evaluate_tokens`` of them, in windows ``train.evaluate_stride`` apart;
    in a test all, each after at least half the context, and the windows are items.
    """
    context = recipe.data.context
    if effort == "test":
        return score_at_stride(model, split, recipe, max(1, context // 2), None, processes)
    likelihood = score(
        model,
        split,
        context=context,
        stride=recipe.train.evaluate_stride or context,
        batch_sequences=max(1, _BATCH_TOKENS // context),
        max_tokens=recipe.train.evaluate_tokens,
        respect_boundaries=recipe.data.boundaries == "respect",
        processes=processes,
    )
    sampled = {"loss": likelihood.loss, "bits_per_byte": likelihood.bits_per_byte}
    return Scored(sampled, items=None)


def score_at_stride(
    model: Transformer,
    split: Split,
    recipe: Recipe,
    stride: int,
    max_tokens: int | None,
    processes: Processes = ALONE,
) -> Scored:
    """Score a text as a test does, in windows ``stride`` tokens apart, which are its items.

    Of at most ``max_tokens`` tokens, evenly spread, which are the same for every context.
    """
    context = recipe.data.context
    likelihood = score(
        model,
        split,
        context=context,
        stride=stride,
        batch_sequences=max(1, _BATCH_TOKENS // context),
        max_tokens=max_tokens,
        same_tokens=True,
        respect_boundaries=recipe.data.boundaries == "respect",
        processes=processes,
    )
    items = window_items(split, likelihood, context=context, stride=stride)
    scores = {
        "loss": LOSS_OF_ITEMS.of(items),
        "bits_per_byte": BITS_PER_BYTE_OF_ITEMS.of(items),
        "tokens": likelihood.tokens,
    }
    return Scored(scores, items)
