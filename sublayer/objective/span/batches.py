"""Corrupted pieces of a text, as a recipe asks for them."""

from sublayer.config.objectives.span import MOST_USED, SpanObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import batch_sequences
from sublayer.data.span.batches import EpochPieces, RandomPieces
from sublayer.data.span.examples import CorruptionRule
from sublayer.data.span.masks import MASKS
from sublayer.data.split import Split
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError
from sublayer.objective.targets.synthetic import SyntheticTargets

_REMEDY = (
    "take one that has more (unigram, or a SentencePiece .model, with data.sentinels = "
    f"{MOST_USED}; a tokenizer.json of T5's), longer spans, a smaller data.context, or "
    "objective.noise = prefix, which needs none"
)


def span_batches(recipe: Recipe, split: Split) -> EpochPieces | RandomPieces:
    """Build the pieces that a recipe asks for.

    Raises ConfigError where the tokenizer lacks what they need, DataError where the split has none.
    """
    objective = _objective(recipe)
    rule = corruption_rule(
        objective,
        split.tokenizer,
        context=recipe.data.context,
        starts_with_pad=recipe.model.decoder_start == "pad",
    )
    n_sequences = batch_sequences(recipe)
    seed = recipe.train.seed
    if recipe.data.windows == "random":
        return RandomPieces(split, rule, batch_sequences=n_sequences, seed=seed)
    return EpochPieces(
        split,
        rule,
        batch_sequences=n_sequences,
        seed=seed,
        boundaries=recipe.data.boundaries,
        chunk_tokens=objective.chunk_tokens,
    )


def check_pieces(recipe: Recipe, split: Split) -> None:
    """Raise DataError where the split is shorter than a piece, and pieces are not cut shorter."""
    if recipe.data.boundaries == "ignore":
        raw_length = _objective(recipe).resolve(recipe.data.context).raw_length
        assert raw_length is not None, "it is resolved"
        split.check_length(raw_length, "objective.raw_length")


def synthetic_spans(recipe: Recipe, vocab_size: int) -> SyntheticTargets:
    """Build random texts as long as inputs and targets are."""
    lengths = recipe.objective.lengths(recipe.data.context)
    return SyntheticTargets(vocab_size, lengths, batch_sequences(recipe))


def span_epoch(recipe: Recipe, split: Split) -> int:
    """Count the tokens of an epoch as a step counts them: a context for each piece of the first."""
    batches = span_batches(recipe, split)
    if isinstance(batches, EpochPieces):
        return batches.n_pieces(0) * recipe.data.context
    # As many random pieces as there are without overlap.
    n_pieces = len(split.ids) / batches.rule.raw_length
    return round(n_pieces * recipe.data.context)


def corruption_rule(
    objective: SpanObjective, tokenizer: Tokenizer, *, context: int, starts_with_pad: bool
) -> CorruptionRule:
    """Return how pieces are corrupted.

    Raises ConfigError where the tokenizer has no end, no padding or too few sentinels.
    """
    resolved = objective.resolve(context)
    raw, target = resolved.raw_length, resolved.target_length
    assert raw is not None and target is not None, "both are resolved"
    end_id, pad_id = tokenizer.sep_id, tokenizer.pad_id
    if end_id is None or pad_id is None:
        raise ConfigError(
            f"the tokenizer, of kind {tokenizer.kind}, has no end of a text or no padding, which "
            "objective.kind = span needs: give unigram, or a file whose vocabulary has them"
        )
    n_sentinels = objective.row.n_sentinels(objective, raw)
    sentinels = tokenizer.sentinel_ids
    if len(sentinels) < n_sentinels:
        has = f"{len(sentinels)}" if sentinels else "none"
        raise ConfigError(
            f"objective.noise = {objective.noise} takes up to {n_sentinels} sentinels in pieces of "
            f"{raw} tokens, and the tokenizer has {has}: {_REMEDY}"
        )
    return CorruptionRule(
        draw=MASKS[objective.noise],
        settings=objective,
        context=context,
        raw_length=raw,
        target_length=target,
        sentinels=sentinels if n_sentinels else (),
        end_id=end_id,
        pad_id=pad_id,
        first_id=pad_id if starts_with_pad else end_id,
    )


def _objective(recipe: Recipe) -> SpanObjective:
    assert isinstance(recipe.objective, SpanObjective), "the row is of span corruption"
    return recipe.objective
