"""Dropout of the embedding matrix itself: one dropped matrix, looked up and multiplied with."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.config.layering.layers import load_recipe
from sublayer.data.batches import Batch
from sublayer.errors import ConfigError
from sublayer.model.context.layout import Layout
from sublayer.model.transformer import Transformer
from sublayer.objective.causal.loss import Causal

from .conftest import VOCAB_SIZE

P = 0.25
TOKENS = torch.arange(20).view(2, 10) % VOCAB_SIZE
TARGETS = TOKENS.flip(1)
MATRIX = {"dropout_embedding": P, "dropout_embedding_of": "matrix"}
Build = Callable[..., Transformer]


def dropped(model: Transformer, seed: int) -> tuple[Tensor, Tensor]:
    """Return what a pass under a seed makes of the tables of tokens and of positions."""
    torch.manual_seed(seed)
    matrix = model.drop_matrix()
    assert matrix is not None
    return matrix.tokens, matrix.positions


def test_elements_are_dropped_each_by_itself_and_the_rest_is_scaled(random_model: Build) -> None:
    model = random_model(d_model=60, d_ff=8, **MATRIX).train()
    for table, whole in zip(
        dropped(model, 0),
        (model.embedding.weight, model.positions.input_table),
        strict=True,
    ):
        is_kept = table != 0
        assert (
            abs(1 - is_kept.double().mean().item() - P) < 4 * (P * (1 - P) / table.numel()) ** 0.5
        )
        torch.testing.assert_close(table[is_kept], whole[is_kept] / (1 - P))
        # Neither rows nor columns.
        assert 0 < is_kept.double().mean(0).min() < is_kept.double().mean(0).max() < 1.01
        assert is_kept.any(1).all()


@pytest.mark.parametrize(
    ("softmax", "is_tied"), [("tokens", True), ("tokens", False), ("all", True)]
)
def test_lookup_and_logits_have_the_same_dropped_matrix(
    random_model: Build, softmax: str, is_tied: bool
) -> None:
    model = random_model(softmax=softmax, tie_embeddings=is_tied, **MATRIX).train()
    tokens, positions = dropped(model, 3)
    # The same model of these tables, without dropout.
    plain = random_model(softmax=softmax, tie_embeddings=is_tied)
    weights = dict(model.state_dict())
    weights |= {"embedding.weight": tokens, "positions.tables.0.weight": positions}
    plain.load_state_dict(weights)
    batch = Batch(TOKENS, TARGETS, None)
    torch.manual_seed(3)
    torch.testing.assert_close(Causal(model)(batch)["lm"], Causal(plain)(batch)["lm"])
    torch.manual_seed(3)
    torch.testing.assert_close(model(TOKENS).logits, plain(TOKENS).logits)


def test_gradients_are_dropped_as_values_were(random_model: Build) -> None:
    model = random_model(softmax="all", **MATRIX).train()
    torch.manual_seed(5)
    Causal(model)(Batch(TOKENS, TARGETS, None))["lm"].backward()
    for table, own in zip(
        dropped(model, 5), (model.embedding.weight, model.positions.input_table), strict=True
    ):
        assert own.grad is not None
        assert torch.equal(own.grad != 0, table != 0)


def test_every_pass_draws_its_own_and_evaluation_none(random_model: Build) -> None:
    model = random_model(**MATRIX)
    assert model.drop_matrix() is None
    assert model.hidden(TOKENS, Layout.causal(TOKENS)).matrix is None
    torch.testing.assert_close(model(TOKENS).logits, random_model()(TOKENS).logits)
    model.train()
    torch.manual_seed(0)
    passes = [model.hidden(TOKENS, Layout.causal(TOKENS)).matrix for _ in range(3)]
    for one, other in pairwise(passes):
        assert one is not None
        assert other is not None
        assert not torch.equal(one.tokens, other.tokens)


def test_blocks_that_run_again_change_nothing(random_model: Build) -> None:
    gradients = []
    for recomputes in (False, True):
        model = random_model(softmax="all", dropout=0.2, dropout_embedding_of="matrix").train()
        for stack in model.stacks:
            stack.recomputes = recomputes
        torch.manual_seed(7)
        Causal(model)(Batch(TOKENS, TARGETS, None))["lm"].backward()
        gradients.append({name: each.grad for name, each in model.named_parameters()})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        assert gradient is not None
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-12, atol=1e-14)


def test_the_sum_is_not_dropped_again(random_model: Build) -> None:
    model = random_model(block=("ffn",), n_layers=1, final_norm="none", **MATRIX).train()
    tokens, positions = dropped(model, 2)
    torch.manual_seed(2)
    entered = model.embed(TOKENS, torch.arange(10))
    torch.testing.assert_close(entered, F.embedding(TOKENS, tokens) + positions[:10])


@pytest.mark.parametrize("more", [{}, {"model.dropout": 0.1, "model.dropout_embedding": 0.0}])
def test_without_dropout_the_choice_has_no_effect(more: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"dropout_embedding_of = 'matrix' has no effect"):
        load_recipe("gpt", {"model.dropout_embedding_of": "matrix", **more})
    load_recipe("gpt", {"model.dropout_embedding_of": "matrix", "model.dropout": 0.1})
