"""What a model answers about packed examples: the states that are read, the heads' outputs."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.data.packed_batch import PackedBatch
from sublayer.model.body import Hidden
from sublayer.model.context.layout import Layout
from sublayer.model.context.queries import Queries
from sublayer.model.kernels.dropout import dropout
from sublayer.model.transformer import Transformer


def packed_hidden(model: Transformer, batch: PackedBatch) -> Hidden:
    """Compute hidden states, each sequence as if it were alone."""
    tokens = batch.read.tokens
    return model.hidden(tokens, _layout(model, batch), segments=batch.segments)


def text_states(model: Transformer, batch: PackedBatch) -> Float[Tensor, "S D"]:
    """Compute the final state that stands for each sequence, and the last block for it alone."""
    assert batch.n_most is not None, "it is found where it is not given"
    rows, columns = batch.readouts.unbind(1)
    order = batch.order  # [S]
    # Where a row has fewer sequences than another, its first token stands for none.
    places = rows.new_zeros(len(batch.read), batch.n_most)
    places[rows, order] = columns
    layout = _layout(model, batch)
    hidden = model.hidden(
        batch.read.tokens, layout, segments=batch.segments, queries=Queries(places)
    )
    return hidden.final[rows, order]


def picked_states(batch: PackedBatch, states: Float[Tensor, "R T D"]) -> Float[Tensor, "S D"]:
    """Pick the state that stands for each sequence."""
    return states.flatten(0, 1).index_select(0, batch.places)


def _layout(model: Transformer, batch: PackedBatch) -> Layout:
    side = batch.read
    if model.text_position == "first":
        return Layout.bidirectional(side.tokens, side.mask, side.document_ids, side.starts)
    # What is behind a text is padding, which nothing before it sees.
    return Layout.causal(side.tokens, None, side.document_ids, starts=side.starts)


def text_vectors(
    batch: PackedBatch, vectors: Float[Tensor, "S D"], *, is_added: bool
) -> Float[Tensor, "N D"]:
    """Return the states that stand for sequences; ``is_added``: those of an example added."""
    if not is_added or len(vectors) == batch.n_examples:
        return vectors
    total = vectors.new_zeros(batch.n_examples, vectors.shape[1])
    return total.index_add(0, batch.owners, vectors)


def answer_logits(
    model: Transformer, batch: PackedBatch, states: Float[Tensor, "S D"], p: float, kind: str
) -> Float[Tensor, "N L"]:
    """Compute the outputs of examples: of each label, of each choice, or one number.

    ``states`` are those that stand for sequences.

    ``p`` is the dropout, in training, of what the head reads. Choices that an example does not have
    get minus infinity.
    """
    # A choice has a sequence, and so a logit, of its own; the two orders of a pair have one.
    vectors = text_vectors(batch, states, is_added=kind != "choice")
    pooled = dropout(model.pool(vectors), p, model.training)
    assert model.label_head is not None, "the config asks for a label head"
    logits: Tensor = model.label_head(pooled)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if kind == "choice":
        assert batch.n_most_owned is not None, "it is found where it is not given"
        return by_choice(logits[:, 0], batch.owners, (batch.n_examples, batch.n_most_owned))
    if kind == "classes" and logits.shape[1] == 1:
        # Of two classes: beside a logit of 0 its softmax is the logistic function.
        return torch.cat([torch.zeros_like(logits), logits], 1)
    return logits


def by_choice(
    logits: Float[Tensor, " S"], owners: Int[Tensor, " S"], shape: tuple[int, int]
) -> Float[Tensor, "N C"]:
    """Put the logits of sequences into rows of their examples, filled up with minus infinity.

    ``shape`` is the number of examples and the most sequences of one.
    """
    counts = owned(owners, shape[0])
    firsts = counts.cumsum(0) - counts
    places = torch.arange(len(owners), device=owners.device) - firsts[owners]
    rows = logits.new_full(shape, -torch.inf)
    return rows.index_put((owners, places), logits)


def owned(owners: Int[Tensor, " S"], n_examples: int) -> Int[Tensor, " N"]:
    """Count the sequences of each example; nothing waits for the device, as bincount would."""
    return owners.new_zeros(n_examples).index_add(0, owners, torch.ones_like(owners))
