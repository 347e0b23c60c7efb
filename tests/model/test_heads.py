"""Heads: of tokens, tied or not, factorised or not; of labels and spans, and what they read."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.model.context.layout import Layout
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


TOKENS = torch.tensor([[4, 2, 3, 1], [5, 6, 0, 0]])
MASK = torch.tensor([[True, True, True, True], [True, True, False, False]])


@pytest.mark.parametrize("pooler", ["none", "tanh"])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_labels_are_answered_by_the_state_that_stands_for_the_text(
    random_model: Callable[..., Transformer], kind: str, pooler: str
) -> None:
    model = random_model(kind=kind, head="none", label_outputs=3, pooler=pooler)
    output = model(TOKENS, MASK)
    # The first token's of an encoder, the last real one's of a decoder.
    places = [0, 0] if kind == "encoder" else [3, 1]
    layout = Layout.bidirectional if kind == "encoder" else Layout.causal
    final = model.hidden(TOKENS, layout(TOKENS, MASK)).final
    text = torch.stack([final[row, place] for row, place in enumerate(places)])
    assert (model.pooler is None) == (pooler == "none")
    if model.pooler is not None:
        text = torch.tanh(F.linear(text, model.pooler.linear.weight, model.pooler.linear.bias))
    assert model.label_head is not None
    expected = F.linear(text, model.label_head.weight, model.label_head.bias)
    assert output["label"].shape == (2, 3)
    torch.testing.assert_close(output["label"], expected)
    torch.testing.assert_close(model.label_logits(model.text_states(final, MASK)), expected)
    assert "vocabulary" not in output
    with pytest.raises(ConfigError, match=r"this model predicts no tokens \(model.head = none\)"):
        model.logits(final)


def test_a_span_has_a_start_and_an_end_at_each_position(
    random_model: Callable[..., Transformer],
) -> None:
    model = random_model(kind="encoder", head="none", span_head="independent")
    final = model.hidden(TOKENS, Layout.bidirectional(TOKENS, MASK)).final
    assert model.span_head is not None
    expected = F.linear(final, model.span_head.weight, model.span_head.bias)
    output = model(TOKENS, MASK)
    assert output["span"].shape == (2, 4, 2)
    torch.testing.assert_close(output["span"], expected)


@pytest.mark.parametrize(
    "fields",
    [
        {"label_outputs": 1},
        {"label_outputs": 5, "pooler": "tanh"},
        {"span_head": "independent"},
        {"span_head": "joint"},
        {"span_head": "joint", "norm": "rms"},
    ],
    ids=str,
)
def test_heads_of_tasks_have_the_parameters_that_are_said(
    random_model: Callable[..., Transformer], fields: dict[str, Any]
) -> None:
    model = random_model(kind="encoder", head="none", **fields)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert count_parameters(model.config).total == n_parameters
