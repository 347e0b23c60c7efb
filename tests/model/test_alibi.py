"""ALiBi against numbers worked out by hand and a reference in loops, and what it is refused for."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sublayer.config.architecture.stacks import stacks
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.interop.huggingface.exchange import export_huggingface
from sublayer.model.build import build
from sublayer.model.context.layout import Layout
from sublayer.model.layers.attention import Attention
from sublayer.model.positions.alibi import slopes
from sublayer.model.positions.build import build_positions
from sublayer.model.transformer import Transformer

N_HEADS, D_HEAD, N_TOKENS = 3, 4, 7


def make_model(kind: str = "decoder", **fields: object) -> Transformer:
    config = ModelConfig(  # type: ignore[arg-type]
        **{
            "kind": kind,
            "positions": "alibi",
            "n_layers": 1,
            "d_model": N_HEADS * D_HEAD,
            "n_heads": N_HEADS,
            "init": "normal",
            "init_std": 0.5,
            **fields,
        }
    )
    return build(resolve_model(config, vocab_size=11, context=N_TOKENS), seed=1).double().eval()


def test_slopes_by_hand() -> None:
    assert slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert slopes(1) == [1 / 256]
    assert slopes(2) == [1 / 16, 1 / 256]
    assert slopes(16)[:2] == [math.sqrt(0.5), 0.5]
    # Of 12 heads: those of 8, then the 1st, 3rd, 5th and 7th of 16.
    assert slopes(12) == [*slopes(8), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    # Of 3 heads: those of 2, then the 1st of 4.
    assert slopes(3) == [1 / 16, 1 / 256, 1 / 4]


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_the_bias_by_hand(kind: str) -> None:
    fields: dict[str, Any] = {"kind": kind, "positions": "alibi"}
    config = ModelConfig(d_model=4, n_heads=2, **fields)
    resolved = resolve_model(config, vocab_size=11, context=3)
    positions = build_positions(resolved, stacks(resolved)[0])
    # Behind two tokens of a past, and of rows that stand at places of their own.
    bias = positions.score_bias(torch.tensor([2, 3]), torch.arange(4), torch.float64)
    assert bias is not None
    assert (16 * bias[0, 0]).tolist() == [[-2, -1, 0, -1], [-3, -2, -1, 0]]
    assert (256 * bias[0, 1]).tolist() == [[-2, -1, 0, -1], [-3, -2, -1, 0]]
    rows = torch.tensor([[0, 1], [5, 9]])
    bias = positions.score_bias(rows, rows, torch.float64)
    assert bias is not None
    assert (16 * bias[:, 0]).tolist() == [[[0, -1], [-1, 0]], [[0, -4], [-4, 0]]]


def reference(attention: Attention, x: Tensor, is_causal: bool) -> Tensor:
    """Attend as the paper writes it, a query and a head at a time."""
    weight, bias = attention.projection.weight, attention.projection.bias
    assert bias is not None
    q, k, v = (x @ weight[part].T + bias[part] for part in range(3))  # [T, H K] each
    rows = []
    for i in range(len(x)):
        heads = []
        for head, slope in enumerate((2**-4, 2**-8, 2**-2)):
            part = slice(head * D_HEAD, (head + 1) * D_HEAD)
            seen = range(i + 1 if is_causal else len(x))
            scores = [q[i, part] @ k[j, part] / D_HEAD**0.5 - slope * abs(i - j) for j in seen]
            weights = torch.stack(scores).softmax(0)
            heads.append(sum(weight * v[j, part] for weight, j in zip(weights, seen, strict=True)))
        rows.append(torch.cat(heads))
    return torch.stack(rows) @ attention.output.weight.T + attention.output.bias


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_attention_and_its_gradients_are_the_papers(kind: str) -> None:
    model = make_model(kind)
    attention = model.stack.block(0)[0].function
    assert isinstance(attention, Attention)
    x = torch.randn(1, N_TOKENS, N_HEADS * D_HEAD, dtype=torch.float64, requires_grad=True)
    lay_out = Layout.causal if kind == "decoder" else Layout.bidirectional
    context = model.context(lay_out(torch.zeros(1, N_TOKENS, dtype=torch.long)), torch.float64)
    own, expected = attention(x, context)[0], reference(attention, x[0], kind == "decoder")
    torch.testing.assert_close(own, expected, rtol=0, atol=1e-12)
    sink, inputs = torch.randn_like(own), [x, *attention.parameters()]
    gradients = (torch.autograd.grad(each, inputs, sink) for each in (own, expected))
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_attention_to_a_memory_has_no_bias() -> None:
    fields = {"decoder_block": ("cross", "ffn"), "block": ("ffn",)}
    models = [make_model("encoder-decoder", positions=each, **fields) for each in ("alibi", "none")]
    source = torch.arange(N_TOKENS)[None]
    first, second = (model(source, target=source).logits for model in models)
    assert torch.equal(first, second)


@pytest.mark.parametrize("kind", ["decoder", "encoder", "encoder-decoder"])
def test_it_has_no_parameters_and_no_end(kind: str) -> None:
    model, without = make_model(kind), make_model(kind, positions="none")
    n_parameters = sum(each.numel() for each in model.parameters())
    assert n_parameters == count_parameters(model.config).total
    assert n_parameters == count_parameters(without.config).total
    tokens = torch.arange(3 * N_TOKENS)[None] % 11
    rest = {"target": tokens} if kind == "encoder-decoder" else {}
    assert model(tokens, **rest).logits.shape == (1, 3 * N_TOKENS, 11)


@pytest.mark.parametrize("kind", ["decoder", "encoder", "encoder-decoder"])
def test_no_other_system_is_given_it(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.positions = alibi"):
        export_huggingface(make_model(kind), tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
