"""Relative positions in buckets: by hand, against transformers, and their gradients."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from transformers.models.t5.modeling_t5 import T5Attention

from sublayer.config.architecture.stacks import stacks
from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.interop.huggingface.exchange import export_huggingface
from sublayer.model.build import build
from sublayer.model.context.keys import Keys
from sublayer.model.kernels import attention, attention_cpu
from sublayer.model.positions.build import build_positions
from sublayer.model.positions.relative import RelativePositions, bucket_starts
from sublayer.model.transformer import Transformer

KINDS = ("decoder", "encoder", "encoder-decoder")
TWO_SIDED = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91)
CAUSAL = (*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113)
"""The least distance of each bucket of T5, as released."""


def config_of(kind: str = "decoder", **fields: Any) -> ModelConfig:
    given = {"n_layers": 2, "d_model": 6, "n_heads": 2, "init": "normal", "init_std": 0.5, **fields}
    config = ModelConfig(kind=kind, positions="relative", **given)  # type: ignore[arg-type]
    return resolve_model(config, vocab_size=11, context=9)


def positions_of(kind: str = "decoder", **fields: Any) -> RelativePositions:
    config = config_of(kind, **fields)
    made = build_positions(config, stacks(config)[0])
    assert isinstance(made, RelativePositions) and made.table is not None
    torch.nn.init.normal_(made.table.weight, generator=torch.Generator().manual_seed(0))
    return made.double()


def make_model(kind: str = "decoder", **fields: Any) -> Transformer:
    return build(config_of(kind, **fields), seed=1).double().eval()


def logits_of(model: Transformer, tokens: Tensor) -> Tensor:
    rest = {"target": tokens.flip(1)} if model.config.kind == "encoder-decoder" else {}
    return model(tokens, **rest).logits  # type: ignore[no-any-return]


def test_the_buckets_of_t5_begin_where_they_were_released_to() -> None:
    assert bucket_starts(16, 128) == TWO_SIDED
    assert bucket_starts(32, 128) == CAUSAL
    encoder, decoder = positions_of("encoder"), positions_of("decoder")
    for starts, positions, sign in ((TWO_SIDED, encoder, -1), (CAUSAL, decoder, -1)):
        for bucket, (start, end) in enumerate(pairwise((*starts, 500))):
            offsets = sign * torch.arange(start, end)
            assert (positions.buckets(offsets) == bucket).all()
    # What is behind a token has the other half, and is not seen by a decoder.
    assert encoder.buckets(torch.tensor([1, 2, 8, 11, 12, 90, 91, 999])).tolist() == [
        *(16 + bucket for bucket in (1, 2, 8, 8, 9, 14, 15, 15))
    ]
    assert decoder.buckets(torch.tensor([1, 128])).tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize("n_buckets", [4, 6, 18, 32, 64, 128])
@pytest.mark.parametrize("distance", [65, 128, 200, 1000])
def test_buckets_are_those_of_transformers(kind: str, n_buckets: int, distance: int) -> None:
    positions = positions_of(kind, relative_buckets=n_buckets, relative_distance=distance)
    offsets = torch.arange(-1200, 1200)
    expected = T5Attention._relative_position_bucket(
        offsets, kind == "encoder", n_buckets, distance
    )
    assert torch.equal(positions.buckets(offsets).long(), expected)


def test_a_distance_at_a_boundary_belongs_to_the_bucket_that_begins_there() -> None:
    # (30 / 18) ** 18 is (50 / 18) ** 9: of 18 logarithmic buckets the tenth begins at 30 exactly.
    assert bucket_starts(36, 50)[27] == 30


def test_the_bias_by_hand() -> None:
    positions = positions_of("encoder", relative_buckets=4, relative_distance=3, n_heads=1)
    assert positions.table is not None
    # Of a side: bucket 0 has the distance 0, bucket 1 all others. Behind: buckets 2 and 3.
    positions.table.weight.data = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    at = torch.arange(3)
    expected = [[[[1.0, 4.0, 4.0], [2.0, 1.0, 4.0], [2.0, 2.0, 1.0]]]]
    assert positions.score_bias(at, at, torch.float64).tolist() == expected
    assert positions.score_bias(at[None], at[None], torch.float64).tolist() == expected


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (1, 9), (4, 9), (9, 9), (5, 1)])
def test_positions_of_all_rows_are_those_of_each(kind: str, n_queries: int, n_keys: int) -> None:
    positions = positions_of(kind, relative_buckets=8, relative_distance=7)
    assert positions.table is not None
    queries, keys = torch.arange(n_keys - n_queries, n_keys), torch.arange(n_keys)
    together = positions.score_bias(queries, keys, torch.float64)
    alone = positions.score_bias(queries.expand(2, -1), keys.expand(2, -1), torch.float64)
    assert together.shape == (1, 2, n_queries, n_keys)
    assert torch.equal(together.expand(2, -1, -1, -1), alone)
    sink = torch.randn_like(alone)
    grads = [
        torch.autograd.grad(bias, positions.table.weight, grad)[0]
        for bias, grad in ((together, sink.sum(0, keepdim=True)), (alone, sink))
    ]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-12)


def attend_plainly(
    q: Tensor, k: Tensor, v: Tensor, keys: Keys, bias: Any = None, *, scale: float, **_: Any
) -> Tensor:
    scores = scale * q @ k.mT + (0.0 if bias is None else bias)
    if keys.is_causal:
        seen = torch.ones_like(scores, dtype=torch.bool).tril(scores.shape[3] - scores.shape[2])
        scores = scores.masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ v


def choose_kernel(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_cpu, "GRAIN", 0 if kernel == "by sequence" else 1 << 40)
    if kernel == "fused":
        monkeypatch.setattr(attention, "is_eager_cpu", lambda x: False)
        monkeypatch.setattr("sublayer.model.body.is_eager_cpu", lambda x: False)
    if kernel == "plain":
        monkeypatch.setattr("sublayer.model.layers.attention.attend", attend_plainly)


@pytest.mark.parametrize("kernel", ["together", "by sequence", "fused", "plain"])
def test_both_tables_have_the_gradient_of_finite_differences(
    monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    choose_kernel(kernel, monkeypatch)
    model = make_model("encoder-decoder", relative_buckets=4, relative_distance=5)
    names = [name for name, _ in model.named_parameters() if "positions" in name]
    assert len(names) == 2
    tokens = torch.randint(11, (2, 7), generator=torch.Generator().manual_seed(0))
    rest = {"target": tokens.flip(1)}
    weights = torch.randn(2, 7, 11, dtype=torch.float64)

    def weighted_logits(*tables: Tensor) -> Tensor:
        given = dict(zip(names, tables, strict=True))
        return (functional_call(model, given, (tokens,), rest).logits * weights).sum()

    tables = [model.get_parameter(name) for name in names]
    assert torch.autograd.gradcheck(weighted_logits, tables)
    grads = torch.autograd.grad(weighted_logits(*tables), tables)
    assert all(grad.abs().max() > 1e-3 for grad in grads)


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_the_bias_has_the_gradient_of_finite_differences(kind: str) -> None:
    positions = positions_of(kind, relative_buckets=4, relative_distance=5)
    queries, keys = torch.arange(3, 8), torch.arange(8)
    for rows in ((queries, keys), (torch.stack([queries, queries + 2]), torch.stack([keys] * 2))):
        assert torch.autograd.gradcheck(bias_of(positions, *rows), [positions.table.weight])


def bias_of(
    positions: RelativePositions, queries: Tensor, keys: Tensor
) -> Callable[[Tensor], Tensor]:
    def compute(table: Tensor) -> Tensor:
        return functional_call(_Bias(positions), {"positions.table.weight": table}, (queries, keys))

    return compute


class _Bias(torch.nn.Module):
    """The bias as a module's output, for its table to be replaced."""

    def __init__(self, positions: RelativePositions) -> None:
        super().__init__()
        self.positions = positions

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.positions.score_bias(queries, keys, torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fields", [{}, {"block": ("ffn", "attention*0.5"), "share": "all"}])
def test_one_table_a_stack_whatever_its_blocks_and_no_end(kind: str, fields: Any) -> None:
    model = make_model(kind, n_layers=3, **fields)
    tables = [each for name, each in model.named_parameters() if "positions" in name]
    assert [tuple(each.shape) for each in tables] == [(32, 2)] * len(model.stacks)
    assert sum(each.numel() for each in model.parameters()) == count_parameters(model.config).total
    tokens = torch.arange(30)[None] % 11
    assert logits_of(model, tokens).shape == (1, 30, 11)


def test_a_stack_without_attention_to_itself_has_no_table() -> None:
    model = make_model("encoder-decoder", block=("ffn",), decoder_block=("attention", "cross"))
    names = [name for name, _ in model.named_parameters() if "positions" in name]
    assert names == ["positions.table.weight"]
    assert sum(each.numel() for each in model.parameters()) == count_parameters(model.config).total
    logits_of(model, torch.arange(9)[None]).sum().backward()
    assert all(each.grad is not None for each in model.parameters())


def test_attention_to_a_memory_has_no_bias() -> None:
    fields: dict[str, Any] = {"decoder_block": ("cross", "ffn"), "block": ("ffn", "attention")}
    model = make_model("encoder-decoder", **fields)
    assert not model.positions.biases_scores
    source = torch.arange(9)[None]
    with torch.no_grad():
        before = model(source, target=source).logits
        # Whatever it has: only the encoder's attention reads it.
        model.source.positions.table.weight.zero_()
        assert not torch.allclose(model(source, target=source).logits, before)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"relative_buckets": 7}, ["model.relative_buckets = 7 is odd"]),
        (
            {"relative_distance": 16},
            ["model.relative_distance = 16", "the 16 exact", "relative_buckets = 32"],
        ),
        ({"relative_buckets": 2}, ["model.relative_buckets", "4"]),
        ({"positions": "rotary"}, ["model.relative_buckets = 32", "model.positions is relative"]),
    ],
)
def test_what_has_no_meaning_is_refused(given: dict[str, Any], words: list[str]) -> None:
    fields = {"positions": "relative", "relative_buckets": 32, **given}
    with pytest.raises(ConfigError) as caught:
        load_recipe("gpt", {f"model.{name}": value for name, value in fields.items()})
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def test_an_encoder_has_as_many_exact_buckets_on_a_side_as_it_is_said() -> None:
    config_of("encoder", relative_distance=9)
    with pytest.raises(ConfigError, match="within the 8 exact buckets .* in the encoder"):
        config_of("encoder", relative_distance=8)


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_no_other_system_is_given_it(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.positions = relative"):
        export_huggingface(make_model(kind), tmp_path / "exported")
