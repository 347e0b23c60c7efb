"""Layers by hand: norms, residual steps, embeddings, feed-forward networks, shared blocks."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sublayer.config.architecture.block import Entry
from sublayer.config.architecture.feedforward import ACTIVATIONS, FFNS, Ffn
from sublayer.config.architecture.stacks import slot, stacks
from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.interop.huggingface.exchange import export_huggingface
from sublayer.model.build import build
from sublayer.model.context.context import Context
from sublayer.model.context.layout import Layout
from sublayer.model.kernels.activation import FUNCTIONS
from sublayer.model.layers.block import Sublayer
from sublayer.model.layers.feedforward import FeedForward
from sublayer.model.layers.norm import RMSNorm, build_norm
from sublayer.model.roles import parameter_roles
from tests.choices import allow_choices

from .conftest import check_gradients, make_config, random_model

CONTEXT = Context(Layout.causal(torch.zeros(1, 1, dtype=torch.long)), None)


@pytest.mark.parametrize(
    ("kind", "eps", "weights", "x", "expected"),
    [
        # Mean 3, variance 4: (1 - 3) / sqrt(4 + 5) = -2/3 and (5 - 3) / 3 = 2/3.
        ("layer", 5.0, None, [1.0, 5.0], [-2 / 3, 2 / 3]),
        ("layer", 5.0, ([3.0, 6.0], [10.0, 20.0]), [1.0, 5.0], [8.0, 24.0]),
        # Mean square of (1, 7) is 25: divided by sqrt(25 + 11) = 6, then times the gains.
        ("rms", 11.0, None, [1.0, 7.0], [1 / 6, 7 / 6]),
        ("rms", 11.0, ([6.0, 12.0],), [1.0, 7.0], [1.0, 14.0]),
    ],
)
def test_norms_by_hand(kind, eps, weights, x, expected):
    norm = build_norm(kind, 2, eps=eps, affine=weights is not None)
    for parameter, values in zip(norm.parameters(), weights or (), strict=True):
        parameter.data = torch.tensor(values)
    torch.testing.assert_close(norm(torch.tensor(x)), torch.tensor(expected))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert norm(torch.tensor(x)).dtype == torch.float32


@pytest.mark.parametrize("affine", [True, False])
def test_rms_norm_equals_the_native_one_with_its_gradients(affine):
    norm = RMSNorm(5, eps=1e-3, affine=affine).double()
    if affine:
        nn.init.normal_(norm.weight)
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    assert build_norm("none", 5, eps=1e-5, affine=True)(x) is x
    native = F.rms_norm(x, (5,), norm.weight, norm.eps)
    check_gradients(norm(x), native, [x, *norm.parameters()])


def make_sublayer(step, output=None, **fields):
    """Build a feed-forward sub-layer of zeros, or one that gives the same output to any input."""
    config = ModelConfig(n_layers=1, d_model=2, n_heads=1, **fields)
    sublayer = Sublayer(resolve_model(config, vocab_size=3, context=5), Entry("ffn", "relu", step))
    with torch.no_grad():
        for parameter in sublayer.function.parameters():
            parameter.zero_()
        if output is not None:
            sublayer.function.output.bias.copy_(torch.tensor(output))
    return sublayer


POST = {"norm_order": "post", "norm_affine": False, "norm_eps": 9 / 16}


@pytest.mark.parametrize(
    ("fields", "step", "output", "x", "expected"),
    [
        ({"norm": "none"}, 1.0, [10.0, 20.0], [1.0, 2.0], [11.0, 22.0]),
        ({"norm": "none"}, -2.0, [10.0, 20.0], [1.0, 2.0], [-19.0, -38.0]),
        # Pre-norm leaves the residual stream as it is.
        ({"norm_affine": False}, 0.5, [10.0, 20.0], [1.0, 2.0], [6.0, 12.0]),
        # 1/4 + 0.5 * 2.5 = 1.5 and 1/2 + 0.5 * 6 = 3.5: mean 2.5, variance 1, and with an eps of
        # 9/16 the divisor is 5/4.
        (POST, 0.5, [2.5, 6.0], [0.25, 0.5], [-0.8, 0.8]),
    ],
)
def test_a_branch_is_added_before_or_behind_the_norm(fields, step, output, x, expected):
    found = make_sublayer(step, output, **fields)(torch.tensor([[x]]), CONTEXT)
    torch.testing.assert_close(found.flatten(), torch.tensor(expected))


def test_pre_norm_normalises_the_input_of_the_function():
    sublayer = make_sublayer(1.0, norm_affine=False, norm_eps=5 / 16)
    with torch.no_grad():
        sublayer.function.input.weight[0, 1] = 3.0
        sublayer.function.output.weight[0, 0] = 1.0
    # (1/4, 5/4) is normalised to (-2/3, 2/3): relu(3 * 2/3) = 2 is added to the first feature.
    found = sublayer(torch.tensor([[[0.25, 1.25]]]), CONTEXT).flatten()
    torch.testing.assert_close(found, torch.tensor([2.25, 1.25]))


def make_network(variant, **fields):
    given = {"gelu": "exact", "swish_beta": 1.0, "bias": False, "p_hidden": 0.0, **fields}
    network = FeedForward(1, 1, FFNS[variant], **given)
    with torch.no_grad():
        network.output.weight.fill_(1.0)
        weights = torch.tensor([1.0, 3.0])[: network.input.weight.numel()]
        network.input.weight.copy_(weights.view_as(network.input.weight))
    return network


# One feature, one hidden unit, W x = x, V x = 3 x, and 1 as the output's weight. With sigmoid(2) =
# 0.880797, sigmoid(3) = 0.952574 and the normal distribution's Phi(2) = 0.977250.
@pytest.mark.parametrize(
    ("variant", "fields", "x", "expected"),
    [
        ("relu", {}, -2.0, 0.0),
        ("gelu", {}, 2.0, 1.954500),
        ("swish", {}, -2.0, -0.238406),
        ("glu", {}, -2.0, -0.715218),
        ("bilinear", {}, -2.0, 12.0),
        ("reglu", {}, 2.0, 12.0),
        ("geglu", {}, -2.0, 0.273000),
        ("geglu", {"gelu": "tanh"}, 2.0, 11.727586),
        ("swiglu", {}, -2.0, 1.430436),
        ("swiglu", {"swish_beta": 1.5}, 2.0, 11.430889),
    ],
)
def test_networks_by_hand(variant, fields, x, expected):
    found = make_network(variant, **fields)(torch.tensor([[[x]]]), CONTEXT).item()
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("fields", "n"),
    [
        ({"share": "ffn"}, 1),
        ({"block": ("ffn*0.5", "attention", "ffn:swiglu*0.5", "ffn:relu")}, 4),
        ({"head": "transform"}, 3),
    ],
    ids=str,
)
def test_learned_slopes_are_counted_and_not_decayed(fields, n):
    tiny = {"n_layers": 2, "d_model": 6, "n_heads": 2, "ffn": "swish", "swish_beta": "learned"}
    config = resolve_model(ModelConfig(**{**tiny, **fields}), vocab_size=11, context=8)
    model = build(config, seed=0)
    parameters, roles = dict(model.named_parameters()), parameter_roles(model)
    betas = [name for name in parameters if name.endswith(".beta")]
    assert [parameters[name].item() for name in betas] == [1.0] * n
    assert {roles[name] for name in betas} == {"vector"}
    constant = config.model_copy(update={"swish_beta": 1.0})
    built = sum(parameter.numel() for parameter in parameters.values())
    assert count_parameters(config).total == built == count_parameters(constant).total + n
    tokens = torch.arange(8)[None]
    plain = build(constant, seed=0)(tokens).logits
    torch.testing.assert_close(model(tokens).logits, plain)


@pytest.fixture
def ninth(monkeypatch):
    """Squared ReLU (So et al. 2021), a row and a function."""
    known = tuple(FFNS)
    monkeypatch.setitem(FFNS, "squared-relu", Ffn("squared-relu", is_gated=False))
    monkeypatch.setitem(ACTIVATIONS, "squared-relu", "input")
    monkeypatch.setitem(FUNCTIONS, "squared-relu", lambda x: torch.relu(x).square())
    allow_choices("ffn", *known, "squared-relu")
    yield
    allow_choices("ffn", *known)


@pytest.mark.usefixtures("ninth")
def test_a_ninth_network_is_a_row_and_a_function(tmp_path):
    block = {"model.block": ["ffn:squared-relu*0.5", "attention"]}
    assert load_recipe("gpt", block).recipe.model.block == tuple(block["model.block"])
    config = ModelConfig(n_layers=1, d_model=6, n_heads=2, ffn="squared-relu")
    model = build(resolve_model(config, vocab_size=9, context=8), seed=0).eval()
    assert count_parameters(model.config).total == sum(each.numel() for each in model.parameters())
    assert make_network("squared-relu")(torch.tensor([[[3.0]]]), CONTEXT).item() == 9.0
    with pytest.raises(ConfigError, match=r"model\.ffn = squared-relu"):
        export_huggingface(model, tmp_path / "exported")


@pytest.mark.parametrize(
    ("share", "groups", "inner", "attention", "ffn"),
    [
        ("attention", 1, 1, [0, 0, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5]),
        ("ffn", 2, 1, [0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 1]),
        ("all", 4, 1, [0, 0, 1, 2, 2, 3], [0, 0, 1, 2, 2, 3]),
        ("all", 2, 2, [0, 1, 0, 1, 2, 3], [0, 1, 0, 1, 2, 3]),
    ],
)
def test_slots_of_shared_weights_by_hand(share, groups, inner, attention, ffn):
    config = make_config(n_layers=6, share=share, share_groups=groups, share_inner=inner)
    (shape,) = stacks(config)
    for entry, expected in zip(shape.block, (attention, ffn), strict=True):
        assert [slot(config, shape, layer, entry) for layer in range(6)] == expected


def unshared_copy(shared, **fields):
    """Copy the weights of each slot into every block that uses it."""
    copy = random_model(**fields)
    weights = {}
    for name, value in shared.state_dict().items():
        if not name.startswith("decoder."):
            weights[name] = value
            continue
        _, _, place, index, rest = name.split(".", 4)
        for layer, slots in enumerate(shared.decoder.slots):
            if slots[int(place)] == int(index):
                weights[f"decoder.sublayers.{place}.{layer}.{rest}"] = value
    copy.load_state_dict(weights)
    return copy


@pytest.mark.parametrize(("share", "block"), [("attention", "transformer"), ("ffn", "macaron")])
def test_gradients_of_shared_blocks_are_sums_over_unshared_copies(share, block):
    fields = {"n_layers": 4, "block": block, "positions": "learned-per-layer"}
    shared = random_model(share=share, share_groups=2, **fields)
    pointers = [value.data_ptr() for value in shared.state_dict().values()]
    assert len(set(pointers)) == len(pointers)
    assert len(shared.positions.tables) == 4  # never shared
    copy = unshared_copy(shared, **fields)
    tokens = torch.arange(10).view(2, 5)
    torch.testing.assert_close(shared(tokens).logits, copy(tokens).logits, rtol=0, atol=1e-12)
    for model in (shared, copy):
        model(tokens).logits.square().sum().backward()
    for place, slots in enumerate(shared.decoder.sublayers):
        for index, sublayer in enumerate(slots):
            layers = [layer for layer in range(4) if shared.decoder.slots[layer][place] == index]
            for name, parameter in sublayer.named_parameters():
                copies = [copy.decoder.block(each)[place].get_parameter(name) for each in layers]
                total = sum(each.grad for each in copies)
                torch.testing.assert_close(parameter.grad, total, rtol=1e-10, atol=1e-12)


def test_roles_follow_from_the_kind_of_a_parameter():
    model = random_model(ffn="swiglu", d_embed=5, tie_embeddings=False, head_bias=True, n_layers=1)
    roles = parameter_roles(model)
    matrices = {
        "embedding.projection.weight": "matrix",
        "embedding.weight": "embedding",
        "positions.tables.0.weight": "embedding",
        "decoder.sublayers.0.0.function.projection.weight": "stacked",
        "decoder.sublayers.0.0.function.output.weight": "matrix",
        "decoder.sublayers.1.0.function.input.weight": "stacked",
        "decoder.sublayers.1.0.function.output.weight": "matrix",
        "head.projection.weight": "matrix",
        "head.weight": "matrix",
    }
    assert {name: role for name, role in roles.items() if role != "vector"} == matrices
    assert len(roles) == len(list(model.parameters()))
    module = nn.Module()
    module.stray = nn.Parameter(torch.zeros(1))
    with pytest.raises(AssertionError, match="stray"):
        parameter_roles(module)
