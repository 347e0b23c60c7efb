"""Two hundred combinations of the model's axes: each builds, counts, learns, saves, loads and decodes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sublayer.config.block import FFN_VARIANTS
from sublayer.config.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.errors import ConfigError
from sublayer.model.build import build, compose
from sublayer.model.cache import Cache
from sublayer.model.cost import count_parameters
from sublayer.model.layout import Layout
from sublayer.model.loss import linear_cross_entropy
from sublayer.model.roles import parameter_roles
from sublayer.model.saved import load_weights, save_model
from sublayer.model.transformer import Transformer

from .covering import allowed_pairs, cover

N_ROWS = 200
VOCAB_SIZE, CONTEXT = 13, 12

AXES: dict[str, tuple[Any, ...]] = {
    "block": ("transformer", "macaron", ("attention", "ffn:relu*0.5", "ffn*2", "attention*0.5")),
    "ffn": FFN_VARIANTS,
    "gelu": ("tanh", "exact"),
    "norm": ("layer", "rms", "none"),
    "norm_order": ("pre", "post"),
    "norm_affine": (True, False),
    "final_norm": (None, "affine", "plain", "none"),
    "positions": ("learned", "learned-per-layer", "sinusoidal", "rotary", "none"),
    "share": ("none", "all", "attention", "ffn"),
    "share_groups": (1, 2),
    "share_inner": (1, 2),
    "d_embed": (5, 8, 11),
    "tie_embeddings": (True, False),
    "embedding_scale": ("none", "sqrt"),
    "attention_scale": ("sqrt", "none"),
    "bias": (True, False),
    "head_bias": (False, True),
    "dropout": (0.0, 0.1),
    "dropout_attention": (None, 0.0, 0.2),
    "dropout_ffn": (None, 0.1),
    "dropout_embedding": (None, 0.0, 0.2),
    "init": ("scaled", "normal", "xavier"),
}

# Pairs of values that have no meaning: a contradiction, or a setting that would have no effect.
WITHOUT_MEANING: list[tuple[tuple[str, Any], tuple[str, Any]]] = [
    (("norm", "none"), ("norm_order", "post")),
    (("norm", "none"), ("norm_affine", False)),
    (("norm", "none"), ("final_norm", "affine")),
    (("norm", "none"), ("final_norm", "plain")),
    (("share", "none"), ("share_groups", 2)),
    (("share", "none"), ("share_inner", 2)),
    *((("ffn", variant), ("gelu", "exact")) for variant in FFN_VARIANTS if variant not in ("gelu", "geglu")),
]
# The same with values that the design does not vary.
ALSO_WITHOUT_MEANING: list[tuple[tuple[str, Any], tuple[str, Any]]] = [
    (("block", ("attention",)), ("share", "ffn")),
    (("block", ("ffn",)), ("share", "attention")),
    (("block", ("ffn",)), ("n_heads", 2)),
    (("block", ("ffn",)), ("positions", "rotary")),
    (("block", ("attention",)), ("d_ff", 12)),
    (("block", ("attention", "cross", "ffn")), ("kind", "decoder")),
    (("block", ("ffn:relu",)), ("ffn", "gelu")),
    (("n_heads", 7), ("d_model", 512)),
    (("d_head", 3), ("positions", "rotary")),
    (("d_model", 9), ("positions", "sinusoidal")),
    (("positions", "learned"), ("rotary_base", 500.0)),
    (("init", "xavier"), ("init_std", 0.01)),
    (("share", "all"), ("share_groups", 9)),
    (("n_layers", 5), ("share_inner", 2)),
]

# What else must be said for the contradiction to be the first that is met.
REST: dict[tuple[tuple[str, Any], ...], dict[str, Any]] = {
    (("d_model", 9), ("positions", "sinusoidal")): {"n_heads": 3},
    (("n_layers", 5), ("share_inner", 2)): {"share": "all"},
}

FORBIDDEN = [frozenset((name, AXES[name].index(value)) for name, value in pair) for pair in WITHOUT_MEANING]
ROWS = cover(AXES, FORBIDDEN, N_ROWS)

each_combination = pytest.mark.parametrize("row", ROWS, ids=[f"{number:03d}" for number in range(N_ROWS)])


def config_of(row: dict[str, Any]) -> ModelConfig:
    config = ModelConfig(n_layers=4, d_model=8, n_heads=2, d_ff=6, **row)
    return resolve_model(config, vocab_size=VOCAB_SIZE, context=CONTEXT)


def loss_of(model: Transformer, tokens: Tensor) -> Tensor:
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    hidden = model.hidden(inputs, Layout.causal(inputs)).final
    matrix, bias = model.output_projection()
    embedded = model.to_embedding(hidden).flatten(0, 1)
    return linear_cross_entropy(embedded, matrix, bias, targets.flatten()) / targets.numel()


def shrink(model: Transformer, factor: float) -> None:
    """Scale weights down: without norms some initial weights send products of products out of range."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)


def test_every_pair_of_values_that_has_a_meaning_occurs() -> None:
    met = {
        frozenset((name, AXES[name].index(row[name])) for name in names)
        for row in ROWS
        for names in ((one, other) for one in AXES for other in AXES if one < other)
    }
    assert met == set(allowed_pairs(AXES, FORBIDDEN))


@each_combination
def test_it_builds_with_the_parameters_that_were_counted(row: dict[str, Any]) -> None:
    model = build(config_of(row), seed=0)
    names = {name for name, _ in model.named_parameters()}
    assert sum(parameter.numel() for parameter in model.parameters()) == count_parameters(model.config).total
    assert parameter_roles(model).keys() == names
    assert model.state_dict().keys() == names


@each_combination
def test_it_learns(row: dict[str, Any]) -> None:
    model = build(config_of(row), seed=0)
    if row["norm"] == "none":
        shrink(model, 0.3)
    tokens = torch.arange(11).repeat(3, 1)
    before = loss_of(model.eval(), tokens).item()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    model.train()
    torch.manual_seed(0)
    for _ in range(5):
        optimizer.zero_grad()
        loss_of(model, tokens).backward()
        optimizer.step()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    assert loss_of(model.eval(), tokens).item() < before


@each_combination
def test_it_saves_loads_and_decodes_to_the_same_logits(row: dict[str, Any], tmp_path: Path) -> None:
    model = build(config_of(row), seed=0).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)  # biases and gains too, so that every term matters
    tokens = torch.randint(0, VOCAB_SIZE, (2, CONTEXT), generator=torch.Generator().manual_seed(0))
    save_model(tmp_path / "model", model, {})
    config, tensors = load_weights(tmp_path / "model")
    loaded = compose(config).double().eval()
    loaded.load_state_dict(tensors)
    with torch.no_grad():
        logits = model(tokens).logits
        assert torch.equal(loaded(tokens).logits, logits)
        cache = Cache(config, 2, CONTEXT, torch.float64)
        pieces = [loaded(piece, cache=cache).logits for piece in tokens.split([5, 1, 1, 5], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), logits, rtol=0, atol=1e-9)


@pytest.mark.parametrize("pair", [*WITHOUT_MEANING, *ALSO_WITHOUT_MEANING], ids=str)
def test_a_combination_without_meaning_is_refused_by_both_names(pair: tuple[tuple[str, Any], ...]) -> None:
    given = {**REST.get(pair, {}), **dict(pair)}
    with pytest.raises(ConfigError) as caught:
        load_recipe("gpt", {f"model.{name}": value for name, value in given.items()})
    message = str(caught.value)
    assert all(f"model.{name}" in message for name, _ in pair)
    assert "\n" not in message
