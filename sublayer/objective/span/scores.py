"""How well a model fills what was cut out of a text, during training and at its end."""

import torch

from sublayer.config.objectives.span import SpanObjective
from sublayer.config.recipe import Recipe
from sublayer.data.batches import Boundaries
from sublayer.data.span.batches import ScoredPieces
from sublayer.data.split import Split
from sublayer.evaluation.split_work import Processes, compute_each
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.eval_mode import evaluating
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import Progress, batch_sequences
from sublayer.objective.family import Effort, Scored
from sublayer.objective.span.batches import corruption_rule
from sublayer.objective.span.items import LOSS_OF_ITEMS, PieceNats, piece_items
from sublayer.objective.targets.loss import nats_of_rows


def span_scores(
    model: Transformer, split: Split, recipe: Recipe, effort: Effort, processes: Processes
) -> Scored:
    """Score the targets of a text's pieces, in nats per token, sentinels and ends included.

    In training about ``train.evaluate_tokens`` of the text, in pieces spread evenly; in a test all,
    and the pieces are items. All models, seeds and steps are scored on one corruption of the text.
    """
    assert isinstance(recipe.objective, SpanObjective), "the row is of span corruption"
    is_test = effort == "test"
    pieces = scored_pieces(
        model,
        split,
        recipe.objective,
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


def scored_pieces(
    model: Transformer,
    split: Split,
    objective: SpanObjective,
    *,
    context: int,
    boundaries: Boundaries,
    most_tokens: int | None = None,
) -> ScoredPieces:
    """Build the pieces by which a model is scored; ``most_tokens`` limits how many.

    Raises ConfigError where the tokenizer lacks what they need, DataError where there is none.
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
    n_sequences = batch_sequences(model, context)
    return ScoredPieces(split, rule, batch_sequences=n_sequences, boundaries=boundaries, most=most)


@torch.inference_mode()
def nats_of_pieces(
    model: Transformer,
    pieces: ScoredPieces,
    processes: Processes,
    progress: Progress = lambda n_done, n_all: None,
) -> PieceNats:
    """Compute the nats of every piece's target, and count its tokens, its end included.

    The work is divided among ``processes``, and all return the same. ``progress`` hears of batches.
    """
    assert isinstance(model, EncoderDecoder), "span corruption trains encoder-decoders"

    def score_batch(number: int) -> list[float]:
        batch = pieces.batch(number)
        row = nats_of_rows(model, batch.to(model.embedding.weight.device))
        progress(number + 1, pieces.n_batches)
        return row

    with evaluating(model):
        rows = compute_each(score_batch, pieces.n_batches, processes)
    return PieceNats.of_rows(rows)
