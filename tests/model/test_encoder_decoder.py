"""Two stacks: what the decoder sees of a source, and parity of both with transformers' classes."""

from typing import Any

import pytest
import torch

from sublayer.config.architecture.stacks import stacks
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.model.build import build
from sublayer.model.context.cache import Cache
from sublayer.model.encoder_decoder import EncoderDecoder

VOCAB_SIZE = 31
MODELS: list[dict[str, Any]] = [
    {},
    {"share": "all", "share_groups": 2, "positions": "rotary"},
    {"block": "macaron", "ffn": "swiglu", "norm": "rms", "positions": "sinusoidal", "bias": False},
    {"norm_order": "post", "positions": "learned-per-layer", "n_decoder_layers": 3},
    {
        "tie_embeddings": False,
        "positions": "sinusoidal",
        "sinusoids": "marian",
        "share": "attention",
        "d_embed": 8,
    },
    {
        "decoder_block": ["attention", "ffn*0.5", "cross*2", "ffn"],
        "embedding_norm": True,
        "first_position": 2,
    },
]


def make_model(**fields: Any) -> EncoderDecoder:
    given = {"n_layers": 2, "d_model": 16, "n_heads": 4, "init_std": 0.4, **fields}
    config = resolve_model(
        ModelConfig(kind="encoder-decoder", **given), vocab_size=VOCAB_SIZE, context=20
    )
    model = build(config, seed=5).double().eval()
    assert isinstance(model, EncoderDecoder)
    return model


def tokens(n_rows: int, length: int, seed: int) -> torch.Tensor:
    return torch.randint(
        0, VOCAB_SIZE, (n_rows, length), generator=torch.Generator().manual_seed(seed)
    )


@pytest.mark.parametrize("fields", MODELS, ids=str)
@torch.no_grad()
def test_padding_changes_nothing(fields: dict[str, Any]) -> None:
    model, source, target = make_model(**fields), tokens(3, 9, 1), tokens(3, 7, 2)
    lengths = torch.tensor([[9, 6, 4], [7, 3, 5]])
    masks = [
        torch.arange(width) < each[:, None] for width, each in zip((9, 7), lengths, strict=True)
    ]
    padded = model(source, masks[0], target=target, target_mask=masks[1]).logits
    for row, (n_source, n_target) in enumerate(lengths.T.tolist()):
        alone = model(
            source[row : row + 1, :n_source], target=target[row : row + 1, :n_target]
        ).logits[0]
        assert (padded[row, :n_target] - alone).abs().max() < 1e-12


@pytest.mark.parametrize("fields", MODELS, ids=str)
@torch.no_grad()
def test_a_target_sees_all_of_its_source_and_nothing_of_its_future(fields: dict[str, Any]) -> None:
    model, source, target = make_model(**fields), tokens(1, 8, 1), tokens(1, 6, 2)
    logits = model(source, target=target).logits
    other = target.clone()
    other[:, 4:] = (other[:, 4:] + 1) % VOCAB_SIZE
    changed = (model(source, target=other).logits - logits).abs().amax((0, 2))
    assert changed[:4].max() == 0.0 and changed[4:].min() > 0.0
    for place in (0, 7):
        other = source.clone()
        other[:, place] = (other[:, place] + 1) % VOCAB_SIZE
        assert (model(other, target=target).logits - logits).abs().amax((0, 2)).min() > 0.0


@pytest.mark.parametrize("fields", MODELS, ids=str)
@torch.no_grad()
def test_cached_equals_uncached(fields: dict[str, Any]) -> None:
    model, source, target = make_model(**fields), tokens(3, 9, 1), tokens(3, 7, 2)
    mask = torch.arange(9) < torch.tensor([[9], [4], [6]])
    memory, cache = model.encode(source, mask), Cache(model.config, 3, 7, torch.float64)
    steps = [
        model.decode(target[:, start:stop], memory, cache)
        for start, stop in ((0, 3), (3, 4), (4, 7))
    ]
    assert (torch.cat(steps, 1) - model(source, mask, target=target).logits).abs().max() < 1e-12


@torch.no_grad()
def test_several_rows_read_one_row_of_a_memory() -> None:
    model, source, target = make_model(), tokens(2, 5, 1), tokens(6, 4, 2)
    cache = Cache(model.config, 6, 4, torch.float64)
    together = model.decode(target, model.encode(source), cache)
    assert (
        together - model(source.repeat_interleave(3, 0), target=target).logits
    ).abs().max() < 1e-12


@pytest.mark.parametrize("fields", MODELS, ids=str)
def test_every_parameter_is_counted_and_learns(fields: dict[str, Any]) -> None:
    model = make_model(**fields)
    assert sum(each.numel() for each in model.parameters()) == count_parameters(model.config).total
    model(tokens(2, 6, 1), target=tokens(2, 5, 2)).logits.square().sum().backward()
    assert all(each.grad is not None and bool(each.grad.any()) for each in model.parameters())


@pytest.mark.parametrize("d_model", [16, 64])
def test_a_macaron_layer_has_three_times_its_width_more_than_its_control(d_model: int) -> None:
    def count(**fields: Any) -> int:
        given = {"d_model": d_model, "n_heads": 4, "positions": "sinusoidal", **fields}
        config = ModelConfig(kind="encoder-decoder", n_layers=1, **given)
        return count_parameters(resolve_model(config, vocab_size=7, context=9)).total

    # One layer of each stack.
    assert count(block="macaron", d_ff=d_model) - count(d_ff=2 * d_model) == 2 * 3 * d_model


def test_the_decoders_block_follows_the_encoders() -> None:
    encoder, decoder = stacks(
        ModelConfig(kind="encoder-decoder", block=["ffn*0.5", "attention*2", "ffn"])
    )
    assert [entry.name for entry in encoder.block] == ["ffn", "attention", "ffn"]
    assert [(entry.name, entry.step) for entry in decoder.block] == [
        ("ffn", 0.5),
        ("attention", 2.0),
        ("cross", 2.0),
        ("ffn", 1.0),
    ]
    (alone,) = stacks(ModelConfig(block="macaron"))
    assert alone.name == "decoder"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"block": ["cross", "ffn"]}, "model.block has a cross entry, but the encoder has nothing"),
        (
            {"block": ["ffn"]},
            "needs a cross entry in the decoder's block: model.block does not give one",
        ),
        ({"decoder_block": "transformer"}, "model.decoder_block does not give one"),
        (
            {"share": "all", "share_inner": 2, "n_decoder_layers": 3},
            "must divide model.n_decoder_layers = 3",
        ),
    ],
)
def test_blocks_that_cannot_read_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_model(
            ModelConfig(**{"kind": "encoder-decoder", "n_layers": 2, **fields}),
            vocab_size=9,
            context=8,
        )
