"""Two hundred combinations of the axes of models: each builds, counts, learns, loads, decodes, ignores padding."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.config.block import FFN_VARIANTS
from sublayer.config.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.decode.beam import BeamSettings, search
from sublayer.errors import ConfigError
from sublayer.model.build import build, compose
from sublayer.model.cache import Cache
from sublayer.model.cost import count_parameters
from sublayer.model.encoder import Encoder
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.layout import Layout
from sublayer.model.loss import linear_cross_entropy
from sublayer.model.roles import parameter_roles
from sublayer.model.saved import load_weights, save_model
from sublayer.model.transformer import Transformer

from .covering import allowed_pairs, cover, with_implied

N_ROWS = 200
VOCAB_SIZE, CONTEXT = 13, 12

AXES: dict[str, tuple[Any, ...]] = {
    "kind": ("decoder", "encoder", "encoder-decoder"),
    "n_decoder_layers": (None, 6),
    "decoder_block": (
        None,
        ("ffn*0.5", "attention", "cross", "ffn*0.5"),
        ("cross*0.5", "ffn:swiglu", "attention", "cross"),
    ),
    "block": ("transformer", "macaron", ("attention", "ffn:relu*0.5", "ffn*2", "attention*0.5")),
    "ffn": FFN_VARIANTS,
    "gelu": ("tanh", "exact"),
    "norm": ("layer", "rms", "none"),
    "norm_order": ("pre", "post"),
    "norm_affine": (True, False),
    "final_norm": (None, "affine", "plain", "none"),
    "positions": ("learned", "learned-per-layer", "sinusoidal", "rotary", "none"),
    "sinusoids": ("tensor2tensor", "fairseq", "marian"),
    "first_position": (0, 2),
    "share": ("none", "all", "attention", "ffn"),
    "share_groups": (1, 2),
    "share_inner": (1, 2),
    "d_embed": (6, 8, 14),
    "embedding_projection": ("tokens", "sum"),
    "project_embeddings": ("as-needed", "always"),
    "embedding_norm": (False, True),
    "segments": ("none", "both", "second"),
    "head": ("linear", "transform"),
    "head_activation": ("ffn", "relu", "gelu", "swish"),
    "pooler": ("none", "tanh"),
    "sentence_classes": (0, 1, 2),
    "tie_embeddings": (True, False),
    "embedding_scale": ("none", "sqrt"),
    "attention_scale": ("sqrt", "none"),
    "bias": (True, False),
    "head_bias": (False, True),
    "dropout": (0.0, 0.1),
    "dropout_attention": (None, 0.0, 0.2),
    "dropout_ffn": (None, 0.1),
    "dropout_embedding": (None, 0.0, 0.2),
    "init": ("scaled", "normal", "truncated", "xavier", "kaiming"),
}

NOT_ENCODERS = ("decoder", "encoder-decoder")
NOT_SINUSOIDAL = tuple(each for each in AXES["positions"] if each != "sinusoidal")
DECODER_BLOCKS = AXES["decoder_block"][1:]

# Pairs of values that have no meaning: a contradiction, or a setting that would have no effect.
WITHOUT_MEANING: list[tuple[tuple[str, Any], tuple[str, Any]]] = [
    (("norm", "none"), ("norm_order", "post")),
    (("norm", "none"), ("norm_affine", False)),
    (("norm", "none"), ("final_norm", "affine")),
    (("norm", "none"), ("final_norm", "plain")),
    (("share", "none"), ("share_groups", 2)),
    (("share", "none"), ("share_inner", 2)),
    (("norm", "none"), ("embedding_norm", True)),
    *((("head", "linear"), ("head_activation", name)) for name in ("relu", "gelu", "swish")),
    *((("kind", kind), ("segments", which)) for kind in NOT_ENCODERS for which in ("both", "second")),
    *((("kind", kind), ("pooler", "tanh")) for kind in NOT_ENCODERS),
    *((("kind", kind), ("sentence_classes", n)) for kind in NOT_ENCODERS for n in (1, 2)),
    *((("kind", kind), ("n_decoder_layers", 6)) for kind in ("decoder", "encoder")),
    *((("kind", kind), ("decoder_block", block)) for kind in ("decoder", "encoder") for block in DECODER_BLOCKS),
    *((("positions", each), ("sinusoids", form)) for each in NOT_SINUSOIDAL for form in ("fairseq", "marian")),
    *((("positions", each), ("first_position", 2)) for each in NOT_SINUSOIDAL),
]
# The same with values that the design does not vary, or only as long as a third value does not change it.
ALSO_WITHOUT_MEANING: list[tuple[tuple[str, Any], tuple[str, Any]]] = [
    *((("ffn", variant), ("gelu", "exact")) for variant in FFN_VARIANTS if variant not in ("gelu", "geglu")),
    (("project_embeddings", "as-needed"), ("embedding_projection", "sum")),
    (("d_embed", 9), ("positions", "sinusoidal")),
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
    (("d_embed", 9), ("positions", "sinusoidal")): {"embedding_projection": "sum"},
    (("n_layers", 5), ("share_inner", 2)): {"share": "all"},
}

RECIPES = {"decoder": "gpt", "encoder": "bert-base", "encoder-decoder": "multi30k-tiny"}

FORBIDDEN = with_implied(
    AXES, [frozenset((name, AXES[name].index(value)) for name, value in pair) for pair in WITHOUT_MEANING]
)
ROWS = cover(AXES, FORBIDDEN, N_ROWS)

NUMBERED = [pytest.param(row, id=f"{number:03d}") for number, row in enumerate(ROWS)]
each_combination = pytest.mark.parametrize("row", NUMBERED)
# What takes longest is tried on a part of the design every time; on all of it with the slow tests.
MOSTLY_SLOW, PARTLY_SLOW, HALF_SLOW = (
    [
        pytest.param(row, id=f"{number:03d}", marks=pytest.mark.slow if number % every else [])
        for number, row in enumerate(ROWS)
    ]
    for every in (16, 8, 2)
)
each_combination_in_time = pytest.mark.parametrize("row", MOSTLY_SLOW)
each_translator_in_time = pytest.mark.parametrize(
    "row", [each for each in PARTLY_SLOW if each.values[0]["kind"] == "encoder-decoder"]
)
each_decoder, each_encoder = (
    pytest.mark.parametrize("row", [each for each in HALF_SLOW if each.values[0]["kind"] == kind])
    for kind in ("decoder", "encoder")
)


def config_of(row: dict[str, Any]) -> ModelConfig:
    config = ModelConfig(n_layers=4, d_model=8, n_heads=2, d_ff=6, **row)
    return resolve_model(config, vocab_size=VOCAB_SIZE, context=CONTEXT)


def loss_of(model: Transformer, tokens: Tensor) -> Tensor:
    if isinstance(model, Encoder):
        return encoder_loss_of(model, tokens)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    if isinstance(model, EncoderDecoder):
        memory = model.encode(tokens.flip(1))
        return token_loss_of(model, model.hidden(inputs, Layout.causal(inputs), memory=memory).final, targets)
    return token_loss_of(model, model.hidden(inputs, Layout.causal(inputs)).final, targets)


def encoder_loss_of(model: Encoder, tokens: Tensor) -> Tensor:
    """Find every third token of rows of which the second is turned round, and tell which that is."""
    tokens = torch.stack([tokens[0], tokens[1].flip(0), tokens[2]])
    is_hidden, segments = torch.arange(tokens.shape[1]) % 3 == 1, (torch.arange(tokens.shape[1]) > 5).long()
    inputs = tokens.masked_fill(is_hidden, VOCAB_SIZE - 1)
    hidden = model.hidden(inputs, Layout.bidirectional(inputs), segments=segments.expand_as(tokens)).final
    loss = token_loss_of(model, hidden[:, is_hidden], tokens[:, is_hidden])
    if model.sentence_head is None:
        return loss + model.pool(hidden[:, 0]).square().mean()  # no matter what a vector of the text is for
    logits, is_wrong = model.sentence_logits(hidden[:, 0]), torch.tensor([0, 1, 0])
    if logits.shape[1] == 1:
        return loss + F.binary_cross_entropy_with_logits(logits[:, 0], is_wrong.to(logits.dtype))
    return loss + F.cross_entropy(logits, is_wrong)


def token_loss_of(model: Transformer, hidden: Tensor, targets: Tensor) -> Tensor:
    matrix, bias = model.output_projection()
    embedded = model.to_embedding(hidden).flatten(0, 1)
    return linear_cross_entropy(embedded, matrix, bias, targets.flatten()) / targets.numel()


def shrink(model: Transformer, factor: float) -> None:
    """Scale weights down: without norms products of products leave the range, and wide ones need more steps."""
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


@each_combination_in_time
def test_it_learns(row: dict[str, Any]) -> None:
    model = build(config_of(row), seed=0)
    if row["norm"] == "none" or row["init"] == "kaiming":
        shrink(model, 0.3)
    tokens = torch.arange(11).repeat(3, 1)
    before = loss_of(model.eval(), tokens).item()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    model.train()
    torch.manual_seed(0)
    for _ in range(10):
        optimizer.zero_grad()
        loss_of(model, tokens).backward()
        optimizer.step()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    assert loss_of(model.eval(), tokens).item() < before


def randomised(row: dict[str, Any]) -> Transformer:
    model = build(config_of(row), seed=0).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)  # biases and gains too, so that every term matters
    return model


def saved_and_loaded(model: Transformer, folder: Path) -> Transformer:
    save_model(folder / "model", model, {})
    config, tensors = load_weights(folder / "model")
    loaded = compose(config).double().eval()
    loaded.load_state_dict(tensors)
    return loaded


@each_decoder
def test_it_saves_loads_and_decodes_to_the_same_logits(row: dict[str, Any], tmp_path: Path) -> None:
    model = randomised(row)
    tokens = torch.randint(0, VOCAB_SIZE, (2, CONTEXT), generator=torch.Generator().manual_seed(0))
    loaded = saved_and_loaded(model, tmp_path)
    with torch.no_grad():
        logits = model(tokens).logits
        assert torch.equal(loaded(tokens).logits, logits)
        cache = Cache(model.config, 2, CONTEXT, torch.float64)
        pieces = [loaded(piece, cache=cache).logits for piece in tokens.split([5, 1, 1, 5], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), logits, rtol=0, atol=1e-9)


@each_encoder
def test_it_saves_loads_and_pads_to_the_same_logits(row: dict[str, Any], tmp_path: Path) -> None:
    model = randomised(row)
    tokens = torch.randint(0, VOCAB_SIZE, (2, CONTEXT), generator=torch.Generator().manual_seed(0))
    segments, n_real = (torch.arange(CONTEXT) > 4).long().expand(2, -1), CONTEXT - 3
    mask = (torch.arange(CONTEXT) < n_real).expand(2, -1)
    loaded = saved_and_loaded(model, tmp_path)
    with torch.no_grad():
        alone = model(tokens[:, :n_real], segments=segments[:, :n_real])
        padded, again = model(tokens, mask, segments), loaded(tokens, mask, segments)
    assert (padded.sentence_logits is None) == (row["sentence_classes"] == 0)
    for name in ("logits", "sentence_logits")[: 1 + (row["sentence_classes"] > 0)]:
        assert torch.equal(getattr(again, name), getattr(padded, name))
    torch.testing.assert_close(padded.logits[:, :n_real], alone.logits, rtol=0, atol=1e-9)
    if alone.sentence_logits is not None:
        torch.testing.assert_close(padded.sentence_logits, alone.sentence_logits, rtol=0, atol=1e-9)


@each_translator_in_time
def test_it_saves_loads_pads_and_decodes_to_the_same_logits(row: dict[str, Any], tmp_path: Path) -> None:
    model, generator = randomised(row), torch.Generator().manual_seed(0)
    source, target = (torch.randint(0, VOCAB_SIZE, (2, length), generator=generator) for length in (7, CONTEXT))
    mask, target_mask = (torch.arange(length) < length - 3 for length in (7, CONTEXT))
    masks = {"mask": mask.expand(2, -1), "target_mask": target_mask.expand(2, -1)}
    loaded = saved_and_loaded(model, tmp_path)
    assert isinstance(loaded, EncoderDecoder)
    with torch.no_grad():
        logits = model(source, target=target).logits
        assert torch.equal(loaded(source, target=target).logits, logits)
        memory, cache = loaded.encode(source), Cache(model.config, 2, CONTEXT, torch.float64)
        pieces = [loaded.decode(piece, memory, cache) for piece in target.split([5, 1, 1, 5], dim=1)]
        alone = model(source[:, :4], target=target[:, : CONTEXT - 3]).logits
        padded = model(source, target=target, **masks).logits[:, : CONTEXT - 3]
    torch.testing.assert_close(torch.cat(pieces, dim=1), logits, rtol=0, atol=1e-9)
    torch.testing.assert_close(padded, alone, rtol=0, atol=1e-9)


@each_translator_in_time
def test_a_beam_scores_hypotheses_as_a_forward_pass_does(row: dict[str, Any]) -> None:
    model, rng = randomised(row), np.random.default_rng(0)
    assert isinstance(model, EncoderDecoder)
    sources = [rng.integers(3, VOCAB_SIZE, length) for length in (7, 2, 5)]
    end, pad = 2, 1
    # Fewer at a time than there are, so that the third begins where another ends.
    found = dict(search(model, sources, BeamSettings(3, longest_more=4), end_id=end, pad_id=pad, sentences=2))
    for number, source in enumerate(sources):
        assert len(found[number]) == 3
        for each in found[number]:
            with torch.no_grad():
                given = torch.tensor([[*source, end]]), torch.tensor([[end, *each.ids]])
                log_p = model(given[0], target=given[1]).logits[0].log_softmax(-1)
            expected = log_p[range(len(each.ids) + 1), [*each.ids, end]].sum().item()
            assert each.log_p == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("pair", [*WITHOUT_MEANING, *ALSO_WITHOUT_MEANING], ids=str)
def test_a_combination_without_meaning_is_refused_by_both_names(pair: tuple[tuple[str, Any], ...]) -> None:
    given = {**REST.get(pair, {}), **dict(pair)}
    recipe = RECIPES[given.get("kind", "decoder")]
    with pytest.raises(ConfigError) as caught:
        load_recipe(recipe, {f"model.{name}": value for name, value in given.items()})
    message = str(caught.value)
    assert all(f"model.{name}" in message for name, _ in pair)
    assert "\n" not in message
