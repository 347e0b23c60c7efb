"""The vocabulary head: tied or not, factorised or not, with and without a bias."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from sublayer.model.transformer import Transformer


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("d_embed", [5, 6])
@pytest.mark.parametrize("head_bias", [True, False])
def test_logits_are_the_output_matrix_times_the_hidden_state(
    random_model: Callable[..., Transformer], is_tied: bool, d_embed: int, head_bias: bool
) -> None:
    model = random_model(tie_embeddings=is_tied, d_embed=d_embed, head_bias=head_bias)
    hidden = torch.randn(2, 3, 6, dtype=torch.float64)
    matrix, bias = model.output_projection()
    torch.testing.assert_close(
        model.logits(hidden), F.linear(model.to_embedding(hidden), matrix, bias)
    )
    assert (matrix is model.embedding.weight) == is_tied
    assert (bias is None) == (not head_bias)
    assert model.to_embedding(hidden).shape == (2, 3, d_embed)


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("head", ["linear", "transform"])
@pytest.mark.parametrize("d_embed", [5, 6])
def test_what_the_output_matrix_reads_is_scaled(
    random_model: Callable[..., Transformer], is_tied: bool, head: str, d_embed: int
) -> None:
    fields = {"tie_embeddings": is_tied, "head": head, "d_embed": d_embed}
    plain, scaled = random_model(**fields), random_model(output_scale="sqrt", **fields)
    tokens = torch.arange(6).view(2, 3)
    torch.testing.assert_close(scaled(tokens).logits, plain(tokens).logits / 6**0.5)


def test_a_tied_table_learns_from_both_of_its_uses(
    random_model: Callable[..., Transformer],
) -> None:
    tied, untied = random_model(), random_model(tie_embeddings=False)
    weights = tied.state_dict()
    untied.load_state_dict({**weights, "head.weight": weights["embedding.weight"]})
    tokens = torch.arange(6).view(2, 3)
    for model in (tied, untied):
        model(tokens).logits.square().sum().backward()
    matrix, _ = untied.output_projection()
    assert matrix.grad is not None
    assert untied.embedding.weight.grad is not None
    torch.testing.assert_close(
        tied.embedding.weight.grad, matrix.grad + untied.embedding.weight.grad
    )


def test_a_tied_table_is_saved_once(random_model: Callable[..., Transformer]) -> None:
    assert not [name for name in random_model().state_dict() if name.startswith("head.")]
