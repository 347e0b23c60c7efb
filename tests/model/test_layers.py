"""Layers by hand, and kernels against their definitions."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sublayer.config.messages import choices_of
from sublayer.config.model import ACTIVATIONS, FFNS, Entry, Ffn, ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.config.stacks import AttentionForm, slot, stacks
from sublayer.model.blocks import FeedForward, Sublayer
from sublayer.model.context import Context, Keys, Layout, StepKeys, rotation
from sublayer.model.estimates import count_parameters
from sublayer.model.kernels import attention, elementwise
from sublayer.model.kernels import products as losses
from sublayer.model.kernels.attention import attend
from sublayer.model.kernels.compiled import (
    compiled_activation,
    compiled_rms_norm,
    compiled_turn,
)
from sublayer.model.kernels.elementwise import add_branch, dropout, random_lanes, swish, tanh_gelu
from sublayer.model.layers import RMSNorm, build_norm
from sublayer.model.parameters import parameter_roles
from sublayer.model.transformer import build
from tests.training.runs import needs_compiler

from .conftest import check_gradients, close, make_config, random_model

CONTEXT = Context(Layout.causal(torch.zeros(1, 1, dtype=torch.long)), None)
POST = {"norm_order": "post", "norm_affine": False, "norm_eps": 9 / 16}
B, H, K = 2, 3, 5
N, E, V = 7, 3, 11
N_DRAWS = 1 << 18
LN3 = math.log(3)


@pytest.mark.parametrize("kind, eps, weights, x, expected", [
    # Mean 3, variance 4: (1 - 3) / sqrt(4 + 5) = -2/3 and (5 - 3) / 3 = 2/3.
    ("layer", 5.0, None, [1.0, 5.0], [-2 / 3, 2 / 3]),
    ("layer", 5.0, ([3.0, 6.0], [10.0, 20.0]), [1.0, 5.0], [8.0, 24.0]),
    # Mean square of (1, 7) is 25: divided by sqrt(25 + 11) = 6, then times the gains.
    ("rms", 11.0, None, [1.0, 7.0], [1 / 6, 7 / 6]),
    ("rms", 11.0, ([6.0, 12.0],), [1.0, 7.0], [1.0, 14.0]),
    # tanh(ln(3) / 2) = (3 - 1) / (3 + 1) = 1/2.
    ("dyt", 1.0, ([0.5], [4.0, 6.0], [10.0, 20.0]), [LN3, -LN3], [12.0, 17.0]),
])  # fmt: skip
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


@pytest.mark.parametrize("grad", [True, False])
def test_rms_norm_of_bfloat16_is_rounded_once(grad):
    norm = RMSNorm(96, eps=1e-6, affine=True)
    nn.init.normal_(norm.weight)
    x = torch.randn(50, 96).bfloat16()
    with torch.set_grad_enabled(grad):
        expected = norm.double()(x.double()).bfloat16()
        normed = norm.float()(x)
    # Computed in float32 they may be rounded apart where they lie between two numbers.
    assert normed.dtype == torch.bfloat16
    assert (normed != expected).float().mean() < 1e-3


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


@pytest.mark.parametrize("fields, step, output, x, expected", [
    ({"norm": "none"}, 1.0, [10.0, 20.0], [1.0, 2.0], [11.0, 22.0]),
    ({"norm": "none"}, -2.0, [10.0, 20.0], [1.0, 2.0], [-19.0, -38.0]),
    # Pre-norm leaves the residual stream as it is.
    ({"norm_affine": False}, 0.5, [10.0, 20.0], [1.0, 2.0], [6.0, 12.0]),
    # 1/4 + 0.5 * 2.5 = 1.5 and 1/2 + 0.5 * 6 = 3.5: mean 2.5, variance 1, and with an eps of
    # 9/16 the divisor is 5/4.
    (POST, 0.5, [2.5, 6.0], [0.25, 0.5], [-0.8, 0.8]),
    # Mean 2.5 and variance 1 of the output alone: 1 - 0.5 * 0.8 and 2 + 0.5 * 0.8.
    (POST | {"norm_order": "after"}, 0.5, [1.5, 3.5], [1.0, 2.0], [0.6, 2.4]),
    (POST | {"norm_order": "around"}, 0.5, [1.5, 3.5], [1.0, 2.0], [0.6, 2.4]),
])  # fmt: skip
def test_a_branch_is_added_before_or_behind_the_norm(fields, step, output, x, expected):
    found, _ = make_sublayer(step, output, **fields)(torch.tensor([[x]]), CONTEXT)
    torch.testing.assert_close(found.flatten(), torch.tensor(expected))


@pytest.mark.parametrize("norm, order, parts", [
    ("none", "pre", "shared"), ("layer", "pre", "shared"), ("rms", "pre", "separate"),
    ("rms", "around", "separate"), ("layer", "around", "shared"), ("dyt", "after", "shared"),
    ("layer", "post", "shared"),
])  # fmt: skip
def test_parallel_functions_read_one_input_and_are_added_to_it(norm, order, parts):
    fields = {"norm": norm, "norm_order": order, "parallel_norm": parts, "share": "attention"}
    model = random_model(block=["ffn*0.5+attention*3", "ffn"], **fields)
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    context = model.context(Layout.causal(torch.zeros(2, 4, dtype=torch.long)), x.dtype)
    for layer in range(2):
        network, attention, alone = model.decoder.block(layer)
        assert attention is model.decoder.block(0)[1]
        first, second = (network.norm, attention.norm if parts == "separate" else network.norm)
        if order in ("post", "after"):
            first = second = nn.Identity()
        total = x
        for step, part, normed in ((0.5, network, first(x)), (3.0, attention, second(x))):
            branch = part.function(normed, context)
            total = total + step * (part.output_norm or nn.Identity())(branch)
        if order == "post":
            total = network.norm(total)
        found, _ = model.decoder.run_block(layer, x, context)
        close(found, alone(total, context)[0])


def make_network(variant, **fields):
    given = {"d_model": 1, "n_heads": 1, "d_ff": 1, "gelu": "exact", "bias": False, **fields}
    network = FeedForward(make_config(**given), Entry("ffn", variant, 1.0))
    with torch.no_grad():
        network.output.weight.fill_(1.0)
        weights = torch.tensor([1.0, 3.0])[: network.input.weight.numel()]
        network.input.weight.copy_(weights.view_as(network.input.weight))
    return network


# One feature, one hidden unit, W x = x, V x = 3 x, and 1 as the output's weight. With sigmoid(2) =
# 0.880797, sigmoid(3) = 0.952574 and the normal distribution's Phi(2) = 0.977250.
@pytest.mark.parametrize("variant, fields, x, expected", [
    ("relu", {}, -2.0, 0.0), ("gelu", {}, 2.0, 1.954500), ("swish", {}, -2.0, -0.238406),
    ("glu", {}, -2.0, -0.715218), ("bilinear", {}, -2.0, 12.0), ("reglu", {}, 2.0, 12.0),
    ("relu2", {}, 3.0, 9.0), ("relu2", {}, -3.0, 0.0), ("reglu2", {}, 2.0, 24.0),
    ("geglu", {}, -2.0, 0.273000), ("geglu", {"gelu": "tanh"}, 2.0, 11.727586),
    ("swiglu", {}, -2.0, 1.430436), ("swiglu", {"swish_beta": 1.5}, 2.0, 11.430889),
])  # fmt: skip
def test_networks_by_hand(variant, fields, x, expected):
    found = make_network(variant, **fields)(torch.tensor([[[x]]]), CONTEXT).item()
    assert found == pytest.approx(expected, abs=1e-5)


def test_a_ninth_network_is_a_row_and_a_function(monkeypatch):
    """Squared ReLU (So et al. 2021), whose name is not its activation's."""
    monkeypatch.setitem(FFNS, "squared", Ffn("square", is_gated=False))
    monkeypatch.setitem(ACTIVATIONS, "square", "input")
    square = lambda x: torch.relu(x).square()  # noqa: E731
    monkeypatch.setitem(elementwise.FUNCTIONS, "square", square)
    assert make_network("squared")(torch.tensor([[[3.0]]]), CONTEXT).item() == 9.0
    for head in ("linear", "transform"):
        config = make_config(n_layers=1, head=head).model_copy(update={"ffn": "squared"})
        model = build(config, seed=0)
        n_parameters = sum(each.numel() for each in model.parameters())
        assert count_parameters(config).total == n_parameters
    assert model.head.activation is square


def test_a_head_takes_the_activation_of_any_network_without_a_gate():
    ungated = {ffn.activation for ffn in FFNS.values() if not ffn.is_gated}
    assert set(choices_of(ModelConfig.model_fields["head_activation"].annotation)) == {
        "ffn",
        *ungated,
    }


@pytest.mark.parametrize("fields, n", [
    ({"share": "ffn"}, 1), ({"block": ("ffn*0.5", "attention", "ffn:swiglu*0.5", "ffn:relu")}, 4),
    ({"head": "transform"}, 3),
], ids=str)  # fmt: skip
def test_learned_slopes_are_counted_and_not_decayed(fields, n):
    tiny = {"n_layers": 2, "d_model": 6, "n_heads": 2, "ffn": "swish", "swish_beta": "learned"}
    config = resolve_model(ModelConfig(**{**tiny, **fields}), vocab_size=11, context=8)
    model = build(config, seed=0)
    parameters, roles = dict(model.named_parameters()), parameter_roles(model)
    betas = [name for name in parameters if name.endswith(".beta")]
    assert [parameters[name].item() for name in betas] == [1.0] * n
    assert {roles[name] for name in betas} == {"gain"}
    plain, tokens = build(config.model_copy(update={"swish_beta": 1.0}), seed=0), torch.arange(8)
    built = sum(parameter.numel() for parameter in parameters.values())
    assert count_parameters(config).total == built == count_parameters(plain.config).total + n
    torch.testing.assert_close(model(tokens[None]).logits, plain(tokens[None]).logits)


@pytest.mark.parametrize("share, groups, inner, attention, ffn", [
    ("attention", 1, 1, [0, 0, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5]),
    ("ffn", 2, 1, [0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 1]),
    ("all", 4, 1, [0, 0, 1, 2, 2, 3], [0, 0, 1, 2, 2, 3]),
    ("all", 2, 2, [0, 1, 0, 1, 2, 3], [0, 1, 0, 1, 2, 3]),
])  # fmt: skip
def test_slots_of_shared_weights_by_hand(share, groups, inner, attention, ffn):
    config = make_config(n_layers=6, share=share, share_groups=groups, share_inner=inner)
    (shape,) = stacks(config)
    for entry, expected in zip(shape.block, (attention, ffn), strict=True):
        assert [slot(config, shape, layer, entry) for layer in range(6)] == expected


@pytest.mark.parametrize(("share", "block"), [("attention", "transformer"), ("ffn", "macaron")])
def test_gradients_of_shared_blocks_are_sums_over_unshared_copies(share, block):
    fields = {"n_layers": 4, "block": block, "positions": "learned-per-layer"}
    shared = random_model(share=share, share_groups=2, **fields)
    pointers = [value.data_ptr() for value in shared.state_dict().values()]
    assert len(set(pointers)) == len(pointers)
    assert len(shared.positions.tables) == 4  # never shared
    copy, weights = random_model(**fields), {}
    for name, value in shared.state_dict().items():
        if name.startswith("decoder."):  # The weights of a slot are those of all its blocks.
            _, _, place, index, rest = name.split(".", 4)
            layers = [n for n in range(4) if shared.decoder.slots[n][int(place)] == int(index)]
            weights |= {f"decoder.sublayers.{place}.{layer}.{rest}": value for layer in layers}
        else:
            weights[name] = value
    copy.load_state_dict(weights)
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
    roles, found = parameter_roles(model), {}
    for name, role in roles.items():
        found.setdefault(role, set()).add(name.removeprefix("decoder.sublayers."))
    maps = {"embedding.projection.weight", "head.projection.weight"}
    maps |= {f"{place}.0.function.output.weight" for place in (0, 1)}
    stacked = {"0.0.function.projection.weight", "1.0.function.input.weight"}
    assert all(name.endswith(("norm.weight", "bias")) for name in found.pop("gain") | found["bias"])
    assert found.pop("bias") >= {"head.bias"}
    tables = {"embedding": {"embedding.weight"}, "positions": {"positions.tables.0.weight"}}
    assert found == {"matrix": maps, "head": {"head.weight"}, "stacked": stacked, **tables}
    assert len(roles) == len(list(model.parameters()))
    module = nn.Module()
    module.stray = nn.Parameter(torch.zeros(1))
    with pytest.raises(AssertionError, match="stray"):
        parameter_roles(module)


def test_tanh_gelu_has_the_values_and_gradients_of_its_definition(monkeypatch):
    monkeypatch.setattr(elementwise, "GELU_PART", 7)  # several parts, the last one ragged
    x = torch.linspace(-6, 6, 102, dtype=torch.float64).view(3, 17, 2).requires_grad_()
    defined = x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    close(tanh_gelu(x), defined, 1e-14)
    check_gradients(tanh_gelu(x), F.gelu(x, approximate="tanh"), x, 1e-14)


def test_tanh_gelu_in_bfloat16_and_beyond_the_range_is_as_good_as_the_native_one():
    x = torch.linspace(-8, 8, 4001).bfloat16().requires_grad_()
    exact, native = F.gelu(x.double(), approximate="tanh"), F.gelu(x, approximate="tanh")
    assert tanh_gelu(x).dtype == torch.bfloat16
    assert (tanh_gelu(x) - exact).abs().max() <= (native - exact).abs().max()
    x = torch.tensor([-1e4, -30.0, 30.0, 1e4], requires_grad=True)
    (slope,) = torch.autograd.grad(tanh_gelu(x).sum(), x)
    assert tanh_gelu(x).tolist() == [0.0, 0.0, 30.0, 1e4]
    assert slope.tolist() == [0.0, 0.0, 1.0, 1.0]


def gated(activation):
    def product(hidden):
        gate, factor = hidden.chunk(2, dim=-1)
        return activation(gate) * factor

    return product


@needs_compiler
@pytest.mark.parametrize("ffn, is_gated", [("gelu", False), ("gelu", True), ("silu", True)])
def test_compiled_activations_have_the_values_and_gradients_of_their_definitions(ffn, is_gated):
    activation = {"gelu": tanh_gelu, "silu": F.silu}[ffn]
    compiled = compiled_activation(activation, torch.float32, is_gated)
    define = {"gelu": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}[ffn]
    define = gated(define) if is_gated else define
    for shape in ((3, 17, 38), (1, 2), (700, 64), (0, 6)):  # in no more than the one compilation
        x = (3 * torch.randn(shape)).requires_grad_()
        wide = x.detach().double().requires_grad_()
        value, expected = compiled(x), define(wide)
        close(value.double(), expected, 1e-5)
        along = torch.randn_like(value)
        (found,) = torch.autograd.grad(value, x, along)
        close(found.double(), torch.autograd.grad(expected, wide, along.double())[0], 1e-4)


@needs_compiler
def test_compiled_rms_norms_have_the_values_and_gradients_of_the_definition():
    compiled = compiled_rms_norm(1e-3)
    for shape in ((3, 17, 38), (1, 2), (700, 64), (0, 6)):
        x, gain = torch.randn(shape, requires_grad=True), torch.randn(shape[-1], requires_grad=True)
        wide = [part.detach().double().requires_grad_() for part in (x, gain)]
        value, expected = compiled(x, gain), F.rms_norm(wide[0], shape[-1:], wide[1], 1e-3)
        close(value.double(), expected, 1e-5)
        along = torch.randn_like(value)
        found = torch.autograd.grad(value, (x, gain), along)
        for part, wanted in zip(
            found, torch.autograd.grad(expected, wide, along.double()), strict=True
        ):
            close(part.double(), wanted, 1e-4)


@needs_compiler
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-6), (torch.bfloat16, 0.02)])
def test_compiled_rotations_turn_forth_and_back_like_ours(dtype, tolerance):
    for n_rows, n_tokens, n_heads in ((2, 7, 3), (1, 1, 1), (3, 5, 1)):
        turn = rotation(torch.arange(n_tokens), d_head=6, base=100.0, dtype=torch.float32)
        # Strided as in the projection of queries, keys and values.
        heads = torch.randn(n_rows, n_tokens, 3, n_heads, 6).to(dtype)[:, :, 1].transpose(1, 2)
        heads.requires_grad_()
        wide = heads.detach().double().requires_grad_()
        turned = replace(turn, compiled=compiled_turn(dtype, 6))(heads)
        expected = turn(wide)
        close(turned.double(), expected, tolerance)
        for along in (torch.randn_like(turned), torch.randn_like(turned.mT).mT):
            (found,) = torch.autograd.grad(turned, heads, along, retain_graph=True)
            (wanted,) = torch.autograd.grad(expected, wide, along.double(), retain_graph=True)
            close(found.double(), wanted, tolerance)


@needs_compiler
def test_a_compiled_gelu_has_the_bits_of_ours_in_bfloat16_in_every_thread():
    compiled, n_threads = (
        compiled_activation(tanh_gelu, torch.bfloat16, False),
        torch.get_num_threads(),
    )

    def value_and_slope(function, x):
        x = x.clone().requires_grad_()
        value = function(x)
        return value.detach(), *torch.autograd.grad(value, x, torch.ones_like(value))

    x = torch.linspace(-9, 9, 65537).bfloat16()[None].repeat(4, 1)
    expected = value_and_slope(tanh_gelu, x)

    def compute(part):
        torch.set_num_threads(1 + part % 2)
        return value_and_slope(compiled, x[part : part + 1])

    with ThreadPoolExecutor(4) as threads, torch.autocast("cpu", dtype=torch.bfloat16):
        parts = list(threads.map(compute, range(4)))
    torch.set_num_threads(n_threads)
    assert all(map(torch.equal, expected, map(torch.cat, zip(*parts, strict=True))))


@pytest.mark.parametrize(("shape", "part"), [((3, 5, 2), 4), ((7, 3), 1 << 20)], ids=str)
def test_both_gradients_of_swish_are_those_of_the_definition(monkeypatch, shape, part):
    monkeypatch.setattr(elementwise, "SWISH_PART", part)  # several parts, the last one ragged
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    beta = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    check_gradients(swish(x, beta), x * torch.sigmoid(beta * x), (x, beta), 1e-13)


@pytest.mark.parametrize("function", [tanh_gelu, lambda x: swish(x, 2.0)], ids=["gelu", "swish"])
def test_half_of_a_wider_tensor_has_its_gradient(function):
    x = torch.randn(3, 4, 10, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(function(x.chunk(2, dim=-1)[0]).sum(), x)
    half = x.detach()[..., :5].contiguous().requires_grad_()
    (expected,) = torch.autograd.grad(function(half).sum(), half)
    close(found, F.pad(expected, (0, 5)))


def attention_inputs(n_biases, n_queries, n_keys):
    shapes = [(B, H, n, K) for n in (n_queries, n_keys, n_keys)]
    shapes += [(n_biases, H, n_queries, n_keys)] if n_biases else []
    rules = {"dtype": torch.float64, "generator": torch.Generator().manual_seed(n_queries)}
    return [torch.randn(shape, **rules).requires_grad_() for shape in shapes]


def plain_attention(q, k, v, bias, seen, cap=None, sinks=None):
    scores = 0.7 * q @ k.transpose(2, 3)
    scores = scores if cap is None else cap * (scores / cap).tanh()
    powers = (scores + bias).masked_fill(~seen, float("-inf")).exp()
    beside = 0.0 if sinks is None else sinks[:, None, None].exp()
    return powers / (powers.sum(-1, keepdim=True) + beside) @ v


def keys_of(kind, n_queries, n_keys, window=None):
    if kind in ("causal", "all"):
        seen = torch.ones(n_queries, n_keys, dtype=torch.bool)
        is_causal = kind == "causal"
        seen = seen.tril(n_keys - n_queries) if is_causal else seen
        reach = AttentionForm(window).reach(is_causal=is_causal)
        if reach is not None:
            seen = seen.triu(n_keys - n_queries - reach)
            seen = seen if is_causal else seen.tril(reach)
        return Keys(is_causal, None, reach=reach), seen
    mask = torch.arange(n_keys) < torch.tensor([[n_keys], [2 * n_keys // 3]])
    lay_out = Layout.causal if kind == "causal, padded" else Layout.bidirectional
    layout = lay_out(torch.zeros(B, n_keys, dtype=torch.long), mask)
    keys = layout.within(AttentionForm(window)).keys
    return keys, keys.mask


@pytest.mark.parametrize("kernel, n_biases, n_queries, n_keys, kind, window", [
    ("together", 0, 131, 137, "causal", None), ("by sequence", 0, 257, 260, "causal", None),
    ("together", B, 257, 260, "causal", None), ("by sequence", 1, 131, 137, "causal", None),
    ("fused", B, 131, 137, "causal", None), ("together", B, 139, 139, "causal, padded", None),
    ("by sequence", 1, 139, 139, "padded", None), ("fused", 1, 139, 139, "causal, padded", None),
    ("by sequence", B, 131, 17, "all", None), ("narrow", 0, 257, 257, "causal", None),
    ("together", 0, 131, 137, "causal", 41), ("by sequence", B, 300, 300, "causal", 150),
    ("by sequence", 0, 300, 300, "all", 90), ("together", 1, 139, 139, "padded", 31),
    ("fused", 0, 131, 137, "causal", 1), ("fused", B, 139, 139, "causal, padded", 31),
])  # fmt: skip
def test_attention_is_a_softmax(monkeypatch, kernel, n_biases, n_queries, n_keys, kind, window):
    monkeypatch.setattr(attention, "GRAIN", 0 if kernel == "by sequence" else 1 << 40)
    if kernel == "fused":
        monkeypatch.setattr(attention, "is_eager_cpu", lambda x: False)
    inputs = attention_inputs(n_biases, n_queries, n_keys)
    keys, seen = keys_of(kind, n_queries, n_keys, window)
    bias = inputs[3] if n_biases else None
    own = attend(*inputs[:3], keys, bias, scale=0.7)
    expected = plain_attention(*inputs[:3], 0.0 if bias is None else bias, seen)
    check_gradients(own, expected, inputs)


SINKS = torch.tensor([-1.0, 0.5, 4.0], dtype=torch.float64)


@pytest.mark.parametrize("cap, has_sinks", [(1.3, False), (None, True), (1.3, True)])
@pytest.mark.parametrize("kernel, n_biases, n_queries, kind", [
    ("together", B, 139, "causal, padded"), ("by sequence", 1, 131, "causal"),
    ("by sequence", 0, 131, "all"), ("plain", 1, 139, "padded"), ("plain", 0, 131, "causal"),
    ("together", 0, 1, "causal"),
])  # fmt: skip
def test_scores_are_capped_and_sinks_take_their_share(
    monkeypatch, kernel, n_biases, n_queries, kind, cap, has_sinks
):
    monkeypatch.setattr(attention, "GRAIN", 0 if kernel == "by sequence" else 1 << 40)
    if kernel == "plain":
        monkeypatch.setattr(attention, "is_eager_cpu", lambda x: False)
    inputs = attention_inputs(n_biases, n_queries, 139)
    keys, seen = keys_of(kind, n_queries, 139)
    bias = inputs[3] if n_biases else None
    sinks = SINKS.clone().requires_grad_() if has_sinks else None
    own = attend(*inputs[:3], keys, bias, scale=0.7, cap=cap, sinks=sinks)
    beside = 0.0 if bias is None else bias
    expected = plain_attention(*inputs[:3], beside, seen, cap, sinks)
    check_gradients(own, expected, inputs + [sinks] * has_sinks)
    narrow = (x.bfloat16() for x in inputs[:3])
    narrow = attend(
        *narrow, keys, bias, scale=0.7, cap=cap, sinks=None if sinks is None else sinks.float()
    )
    close(narrow.double(), expected, 0.05)


def test_queries_keys_and_values_of_one_tensor_are_not_copied():
    projected = torch.zeros(B, 4, 3 * H * K)
    q, k, v = attention.split_heads(projected, H)
    whole = attention.whole_of(q, k, v)
    assert whole is not None and whole.data_ptr() == projected.data_ptr()
    assert attention.whole_of(k, q, v) is attention.whole_of(q, k, v.clone()) is None


@pytest.mark.parametrize("cap, sinks", [(None, None), (1.3, SINKS)])
@pytest.mark.parametrize("n, is_padded, p, window", [
    (1, False, 0.0, None), (B, False, 0.4, None), (0, True, 0.4, None), (B, False, 0.4, 2),
])  # fmt: skip
def test_attention_gradients_are_finite_differences(
    monkeypatch, n, is_padded, p, window, cap, sinks
):
    monkeypatch.setattr(attention, "BLOCK_ROWS", 2)
    mask = torch.tensor([[False, True, True, True], [True] * 4]) if is_padded else None
    layout = Layout.causal(torch.zeros(B, 4, dtype=torch.long), mask)
    keys = layout.within(AttentionForm(window)).keys

    def attended(sinks, q, k, v, bias=None):
        torch.manual_seed(1)
        return attend(q, k, v, keys, bias, scale=0.7, p_dropout=p, cap=cap, sinks=sinks)

    inputs = None if sinks is None else sinks.clone().requires_grad_(), *attention_inputs(n, 4, 4)
    assert torch.autograd.gradcheck(attended, inputs, fast_mode=True)


def test_dropped_attention_weights_are_zero_and_the_rest_are_scaled():
    n, p = 128, 0.25
    q = torch.zeros(B, H, n, n, dtype=torch.float64)
    values = torch.eye(n, dtype=torch.float64).expand(B, H, n, n).contiguous()
    keys, seen = keys_of("causal", n, n)
    torch.manual_seed(0)
    # Row t: 1 / (t + 1), or dropped.
    weights = attend(q, q, values, keys, scale=1.0, p_dropout=p)
    shares = (weights * torch.arange(1, n + 1)[:, None])[seen.expand_as(weights)]
    kept = shares[shares != 0]
    close(kept, torch.full_like(kept, 4 / 3))
    limit = 4 * (p * (1 - p) / shares.numel()) ** 0.5
    assert abs(len(kept) / shares.numel() - (1 - p)) < limit
    assert not weights[~seen.expand_as(weights)].any()
    narrow = attend(q.bfloat16(), q.bfloat16(), values.bfloat16(), keys, scale=1.0, p_dropout=p)
    rate = (narrow[seen.expand_as(narrow)] == 0).double().mean()
    assert abs(rate - p) < limit


def test_a_step_has_its_bias_with_its_gradient():
    q, k, v, bias = attention_inputs(B, 4, 11)
    hidden = torch.rand(B, 4, 11, generator=torch.Generator().manual_seed(0)) < 0.4
    keys = StepKeys.hiding(hidden, torch.float64)
    # One row of a bias for all queries, as where hypotheses of a slot are equally long.
    for each, cap, sinks in ((bias, None, None), (bias[:, :, :1], None, None), (bias, 1.3, SINKS)):
        own = attend(q, k, v, keys, each, scale=0.7, cap=cap, sinks=sinks)
        expected = plain_attention(q, k, v, each, ~hidden[:, None], cap, sinks)
        check_gradients(own, expected, (q, k, v, bias))


@pytest.mark.parametrize("kernel", ["step", "together", "by sequence", "fused"])
@pytest.mark.parametrize("n_biases, cap, sinks", [
    (0, None, None), (1, None, None), (1, 1.3, SINKS.repeat(2)),
])  # fmt: skip
def test_a_head_of_keys_serves_consecutive_heads_of_queries(
    monkeypatch, kernel, n_biases, cap, sinks
):
    monkeypatch.setattr(attention, "GRAIN", 0 if kernel == "by sequence" else 1 << 40)
    monkeypatch.setattr(attention, "BLOCK_ROWS", 3)
    if kernel == "fused":
        monkeypatch.setattr(attention, "is_eager_cpu", lambda x: False)
    q, k, v, *bias = inputs = attention_inputs(n_biases, 4, 11)
    queries, bias = torch.cat([q, 2 * q], dim=1), torch.cat([*bias, *bias], 1) if bias else None
    keys, seen = keys_of("causal", 4, 11)
    if kernel == "step":
        keys = StepKeys.hiding((~seen).expand(B, -1, -1), torch.float64)
    own = attend(queries, k, v, keys, bias, scale=0.7, cap=cap, sinks=sinks)
    repeated = (x.repeat_interleave(2, 1) for x in (k, v))
    added = 0.0 if bias is None else bias
    expected = plain_attention(queries, *repeated, added, seen, cap, sinks)
    check_gradients(own, expected, inputs)


def loss_inputs(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, dtype=dtype, generator=generator) for shape in ((N, E), (V, E), V)]
    targets = torch.randint(0, V, (N,), generator=generator)
    targets[2] = -1
    hidden, matrix, bias = (each.requires_grad_() for each in drawn)
    return hidden, matrix, bias, targets


def capped(logits, cap):
    return logits if cap is None else cap * (logits / cap).tanh()


@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("chunk, has_bias, is_weighted", [
    (1, True, False), (2 * V, False, True), (1000, True, True),
])  # fmt: skip
def test_the_loss_and_its_gradients_equal_the_definition(
    monkeypatch, chunk, has_bias, is_weighted, cap
):
    monkeypatch.setattr(losses, "CPU_CHUNK_LOGITS", chunk)
    hidden, matrix, bias, targets = loss_inputs()
    wanted = [hidden, matrix, bias] if has_bias else [hidden, matrix]
    # A weight of nothing, one of what does not count, and others.
    weights = torch.tensor([0.5, 0.0, 9.0, 2.0, 1.0, 1 / 3, 7.0], dtype=torch.float64)
    weights = weights if is_weighted else torch.ones(N).double()
    given = (hidden, matrix, bias if has_bias else None, targets)
    logits = capped(F.linear(*given[:3]), cap)
    nats = F.cross_entropy(logits, targets, ignore_index=-1, reduction="none")
    expected = (nats * weights).sum()
    rest = (weights,) if is_weighted else ()
    actual = losses.linear_cross_entropy(*given, *rest, cap=cap)
    check_gradients(actual, expected, wanted)
    found = losses.nats_of_targets(*given, cap=cap)
    close(found.each, nats.detach())
    assert found.each[2] == 0
    with torch.no_grad():
        # Sums differ by the alignment of memory.
        close(losses.linear_cross_entropy(*given, *rest, cap=cap), actual.detach())
        total = losses.linear_cross_entropy(*given, cap=cap)
        assert float(found.total) == pytest.approx(float(total))


@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize(
    ("chunk", "has_bias", "share"), [(1, True, 0.3), (2 * V, False, 0.3), (1000, True, 0.0)]
)
def test_smoothing_and_z_loss_equal_the_definition(monkeypatch, chunk, has_bias, share, cap):
    monkeypatch.setattr(losses, "CPU_CHUNK_LOGITS", chunk)
    hidden, matrix, bias, targets = loss_inputs()
    given = (hidden, matrix, bias if has_bias else None)
    wanted = [each for each in given if each is not None]
    logits, rules = capped(F.linear(*given), cap), {"ignore_index": -1, "reduction": "sum"}
    smoothed = F.cross_entropy(logits, targets, **rules, label_smoothing=share)
    expected = smoothed + 0.7 * logits.logsumexp(-1)[targets >= 0].square().sum()
    form = losses.Smoothing(1.0 - share, share / V, 0.7)
    trained, nats = losses.smoothed_cross_entropy(*given, targets, form, cap=cap)
    close(nats, F.cross_entropy(logits, targets, **rules).detach())
    check_gradients(trained, expected, wanted, 1e-11)


def test_an_improbable_target_costs_a_finite_number_and_no_target_nothing():
    far, matrix = torch.tensor([[1.0]]), torch.tensor([[0.0], [1000.0]])
    assert losses.linear_cross_entropy(far, matrix, None, torch.tensor([0])).item() == 1000.0
    hidden, matrix, bias, targets = loss_inputs()
    total = losses.linear_cross_entropy(hidden, matrix, bias, torch.full_like(targets, -1))
    assert total.item() == 0.0
    assert not any(each.any() for each in torch.autograd.grad(total, (hidden, matrix, bias)))


def test_losses_are_summed_in_float32_under_autocast():
    hidden, matrix, bias, targets = loss_inputs(torch.float32)
    plain = losses.linear_cross_entropy(hidden, matrix, bias, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total = losses.linear_cross_entropy(hidden, matrix, bias, targets)
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(plain.item(), rel=0.02)
    gradients = torch.autograd.grad(total, (hidden, matrix, bias))
    assert all(each.dtype == torch.float32 for each in gradients)


def test_lanes_are_the_bits_of_splitmix64():
    torch.manual_seed(4)
    state = int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))
    torch.manual_seed(4)
    draws = random_lanes(torch.Size([20])).view(torch.int64).tolist()
    for counter, draw in enumerate(draws):
        z = (state + counter * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        assert draw % 2**64 == z ^ z >> 31


@pytest.mark.parametrize(("p", "dtype"), [(0.1, torch.float32), (0.5, torch.bfloat16)])
def test_dropout_keeps_its_rate_its_mean_and_its_gradient(p, dtype):
    torch.manual_seed(3)
    x = torch.ones(N_DRAWS, dtype=dtype, requires_grad=True)
    dropped = dropout(x, p, training=True)
    rate = (dropped == 0).double().mean().item()
    assert abs(rate - p) < 4 * (p * (1 - p) / N_DRAWS) ** 0.5
    kept = dropped[dropped != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)), rtol=1e-3, atol=0)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(gradient, dropped)
    assert dropout(x, 0.0, training=True) is x
    assert dropout(x, 0.5, training=False) is x


def test_a_branch_is_dropped_scaled_and_added():
    x = torch.zeros(N_DRAWS)
    branch = torch.ones(N_DRAWS, dtype=torch.bfloat16, requires_grad=True)
    torch.manual_seed(5)
    total = add_branch(x, branch, step=0.5, p=0.75, training=True)
    assert total.dtype == torch.float32
    assert set(total.unique().tolist()) == {0.0, 2.0}  # 0.5 / (1 - 0.75)
    (gradient,) = torch.autograd.grad(total.sum(), branch)
    torch.testing.assert_close(gradient.float(), total.detach())
    x, branch = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
    assert add_branch(x, branch, step=0.5, p=0.0, training=True).tolist() == [6.0, 12.0]
    assert add_branch(x, branch, step=0.5, p=0.9, training=False).tolist() == [6.0, 12.0]
