"""Span corruption: prediction of spans cut out of a text.

Source: Raffel et al. 2020 (1910.10683).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from sublayer.config.objective import MOST_USED, SpanObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import batch_sequences
from sublayer.data.batches import Boundaries
from sublayer.data.span import MASKS, CorruptionRule, EpochPieces, RandomPieces, ScoredPieces
from sublayer.data.store import Split
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError
from sublayer.evaluation.items import (
    ALONE,
    Digest,
    Items,
    ItemTable,
    Metric,
    Processes,
    Progress,
    compute_each,
    quotient_of,
    silent,
)
from sublayer.model.kernels.products import Smoothing
from sublayer.model.transformer import EncoderDecoder, Transformer, evaluating
from sublayer.numbers import count
from sublayer.objective.base import (
    Effort,
    Evaluation,
    Family,
    Scored,
    Scores,
    SyntheticTargets,
    TargetLoss,
    TargetNats,
    context_of,
    describe_sources,
    nats_of_rows,
    own_objective,
    scored_sequences,
)
from sublayer.tables import table
from sublayer.tasks.registry import TaskSpec
from sublayer.text_model import TextModel


class SpanCorruption(TargetLoss):
    """Loss of corrupted spans, sentinels and end included, with optional z-loss."""

    def __init__(self, model: Transformer, config: SpanObjective) -> None:
        smoothing = None
        if config.z_loss:
            smoothing = Smoothing(1.0, 0.0, config.z_loss)
        super().__init__(model, smoothing)


_REMEDY = (
    "take a tokenizer with more (unigram, or a SentencePiece .model, with data.sentinels = "
    f"{MOST_USED}; a tokenizer.json of T5's), longer spans, a smaller data.context, or "
    "objective.noise = prefix, which needs none"
)


def corruption_rule(
    objective: SpanObjective, tokenizer: Tokenizer, *, context: int, starts_with_pad: bool
) -> CorruptionRule:
    """Return the corruption rule of pieces.

    Raises ConfigError where the tokenizer has no end, no padding or too few sentinels.
    """
    resolved = objective.resolve(context)
    raw, target = resolved.raw_length, resolved.target_length
    assert raw is not None and target is not None, "both are resolved"
    end_id, pad_id = tokenizer.sep_id, tokenizer.pad_id
    if end_id is None or pad_id is None:
        raise ConfigError(
            f"the tokenizer, of kind {tokenizer.kind}, has no end-of-text or padding token, which "
            "objective.kind = span needs: give unigram, or a file with both in its vocabulary"
        )
    n_sentinels = objective.row.n_sentinels(objective, raw)
    sentinels = tokenizer.sentinel_ids
    if len(sentinels) < n_sentinels:
        has = f"{len(sentinels)}" if sentinels else "none"
        raise ConfigError(
            f"objective.noise = {objective.noise} takes up to {n_sentinels} sentinels in pieces of "
            f"{raw} tokens, but the tokenizer has {has}: {_REMEDY}"
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


LOSS_OF_ITEMS = quotient_of(SpanObjective.evaluated["loss"])
PIECES = LOSS_OF_ITEMS.table
"""Name of the table of pieces."""


def piece_items(split: Split, pieces: ScoredPieces, nats: TargetNats) -> Items:
    """Return a test's items: the nats of each piece's target."""
    rule = pieces.rule
    settings = f"{rule.draw.__name__} {rule.settings.noise_density!r} {rule.settings.mean_span!r}"
    digest = Digest(PIECES, split.store.sha256, settings, str(rule.target_length))
    for numbers in (pieces.pieces.begins, pieces.pieces.lengths, rule.sentinels, split.ids):
        digest.add(numbers)
    unit = "a piece of the text: the tokens of its target, sentinels and end included"
    table = ItemTable(unit, digest.hexdigest(), nats._asdict(), pieces.documents)
    return Items(split.name, split.store.sha256, {PIECES: table})


def scored_pieces(
    model: Transformer,
    split: Split,
    objective: SpanObjective,
    *,
    context: int,
    boundaries: Boundaries,
    most_tokens: int | None = None,
) -> ScoredPieces:
    """Build the pieces that score a model, of about ``most_tokens`` of the text; None: of all.

    Raises ConfigError where the tokenizer lacks a required id, DataError without pieces.
    """
    rule = corruption_rule(
        objective,
        split.tokenizer,
        context=context,
        starts_with_pad=model.config.decoder_start == "pad",
    )
    most = None
    if most_tokens is not None and most_tokens < len(split.ids):
        most = max(1, most_tokens // rule.raw_length)
    n_sequences = scored_sequences(model, context)
    return ScoredPieces(split, rule, batch_sequences=n_sequences, boundaries=boundaries, most=most)


def nats_of_pieces(
    model: Transformer, pieces: ScoredPieces, processes: Processes, progress: Progress = silent
) -> TargetNats:
    """Compute the nats of every piece's target, its end included, and count its tokens.

    The work is divided among ``processes``, and all return the same. ``progress`` counts batches.
    """
    assert isinstance(model, EncoderDecoder), "span corruption trains encoder-decoders"

    def score_batch(number: int) -> TargetNats:
        return nats_of_rows(model, pieces.batch(number).to(model.embedding.weight.device))

    with evaluating(model), torch.inference_mode():
        rows = compute_each(score_batch, pieces.n_batches, processes, progress)
    return TargetNats(*map(np.concatenate, zip(*rows, strict=True)))


def frequency_loss(pieces: ScoredPieces) -> float:
    """Compute the entropy of the targets' unigram distribution, in nats per token.

    No constant prediction has a lower loss.
    """
    counts = np.zeros(0, dtype=np.int64)
    for number in range(pieces.n_batches):
        ids = pieces.batch(number).predicted_ids.numpy()
        totals = np.bincount(ids, minlength=len(counts))
        totals[: len(counts)] += counts
        counts = totals
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


class SpanFamily(Family):
    """Span corruption, scored in nats per target token."""

    metrics = (
        Metric(
            "loss",
            "nats per target token",
            is_lower_better=True,
            from_items=LOSS_OF_ITEMS,
            basis="items",
        ),
    )

    def build(
        self, model: Transformer, config: SpanObjective, seed: int, task: TaskSpec | None = None
    ) -> SpanCorruption:
        """Build the objective of an encoder-decoder."""
        return SpanCorruption(model, config)

    def batches(self, recipe: Recipe, split: Split) -> EpochPieces | RandomPieces:
        """Build the pieces of a recipe.

        Raises ConfigError where the tokenizer lacks a required id, DataError where the split has no
        piece.
        """
        objective = own_objective(recipe, SpanObjective)
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

    def synthetic(self, recipe: Recipe, vocab_size: int) -> SyntheticTargets:
        """Build random texts with the lengths of inputs and targets."""
        lengths = recipe.objective.lengths(recipe.data.context)
        return SyntheticTargets(vocab_size, batch_sequences(recipe), lengths)

    def epoch_tokens(self, recipe: Recipe, split: Split) -> int:
        """Count the tokens of an epoch as a step does: a context per piece."""
        batches = self.batches(recipe, split)
        if isinstance(batches, EpochPieces):
            return batches.n_pieces(0) * recipe.data.context
        # Random pieces are as many as disjoint ones would be.
        n_pieces = len(split.ids) / batches.rule.raw_length
        return round(n_pieces * recipe.data.context)

    def check_text(self, recipe: Recipe, split: Split) -> None:
        """Raise DataError where the split is shorter than a full piece."""
        if recipe.data.boundaries == "ignore":
            raw_length = (
                own_objective(recipe, SpanObjective).resolve(recipe.data.context).raw_length
            )
            assert raw_length is not None, "it is resolved"
            split.check_length(raw_length, "objective.raw_length")

    def claims(self, text_model: TextModel) -> bool:
        """Claim models with sentinels in their vocabulary."""
        tokenizer = text_model.tokenizer
        return tokenizer is not None and len(tokenizer.sentinel_ids) > 0

    def score(
        self,
        text_model: TextModel,
        split: Split,
        recipe: Recipe,
        effort: Effort,
        processes: Processes,
    ) -> Scored:
        """Score the targets of a text's pieces, in nats per token, sentinels and ends included.

        In training about ``train.evaluate_tokens`` of the text, in evenly spread pieces; in a test
        all, with pieces as items. All models, seeds and steps share one corruption of the text.
        """
        model, is_test = text_model.model, effort == "test"
        pieces = scored_pieces(
            model,
            split,
            own_objective(recipe, SpanObjective),
            context=recipe.data.context,
            boundaries=recipe.data.boundaries,
            most_tokens=None if is_test else recipe.train.evaluate_tokens,
        )
        nats = nats_of_pieces(model, pieces, processes)
        items = piece_items(split, pieces, nats)
        scores = {"loss": LOSS_OF_ITEMS.of(items)}
        if not is_test:
            return Scored(scores, items=None)
        return Scored({**scores, "tokens": int(nats.tokens.sum())}, items)

    def evaluate(self, request: Evaluation) -> dict[str, Any]:
        """Score every piece of a text, corrupted as in training; outside a run, as T5 was trained.

        Includes the loss of a constant prediction, ``frequency_loss``.

        Raises ConfigError where the tokenizer has too few sentinels.
        """
        recipe = request.recipe
        objective = SpanObjective()
        boundaries: Boundaries = "ignore"
        if recipe is not None:
            objective = own_objective(recipe, SpanObjective)
            boundaries = recipe.data.boundaries
        context = context_of(request.model, recipe)
        text = request.read_text("none")
        pieces = scored_pieces(
            request.model, text, objective, context=context, boundaries=boundaries
        )
        progress = request.progress("scored", "batches")
        nats = nats_of_pieces(request.model, pieces, ALONE, progress)
        return {
            "loss": LOSS_OF_ITEMS.of(piece_items(text, pieces, nats)),
            "frequency_loss": frequency_loss(pieces),
            "tokens": int(nats.tokens.sum()),
            "pieces": len(nats.tokens),
            "context": context,
            **request.describe_text(text),
        }

    def _describe(self, scores: Scores) -> str:
        return f"loss {scores['loss']:.4f} nats per target token"

    def render(self, result: Mapping[str, Any]) -> str:
        """Format the scores for the terminal."""
        unit = "nats per target token, sentinels and ends included"
        rows = [
            ("loss", f"{result['loss']:.4f}", unit),
            ("by frequency", f"{result['frequency_loss']:.4f}", "the same, predicted by its share"),
        ]
        lines = [
            f"scored {count(result['tokens'], 'token')} cut out of {describe_sources(result)}",
            f"in {count(result['pieces'], 'piece')}, inputs of up to {result['context']} tokens",
            table(["measure", "value", "of"], rows, right=[1]),
        ]
        return "\n".join(lines)
