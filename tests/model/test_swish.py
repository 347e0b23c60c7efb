"""Swish with a slope of its own, against numbers worked out by hand, autograd and float64."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.interop.huggingface.exchange import export_huggingface
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.model.context.context import Context
from sublayer.model.context.layout import Layout
from sublayer.model.kernels import swish as kernel
from sublayer.model.kernels.swish import swish
from sublayer.model.layers.activation import Swish, build_activation
from sublayer.model.layers.feedforward import FeedForward
from sublayer.model.roles import parameter_roles
from sublayer.runs.run import train_run
from sublayer.training.optimizers.build import build_optimizer
from sublayer.training.progress import SilentProgress


def defined(x: torch.Tensor, beta: torch.Tensor | float) -> torch.Tensor:
    return x * torch.sigmoid(beta * x)


def make_config(**fields: Any) -> ModelConfig:
    tiny = {"n_layers": 2, "d_model": 6, "n_heads": 2, "ffn": "swish", "swish_beta": "learned"}
    return resolve_model(ModelConfig(**{**tiny, **fields}), vocab_size=11, context=8)


# sigmoid(3) = 0.952574, sigmoid(1) = 0.731059.
@pytest.mark.parametrize(
    ("beta", "x", "expected"),
    [(1.5, 2.0, 1.905148), (1.5, -2.0, -0.094852), (0.5, 2.0, 1.462117), (0.0, 2.0, 1.0)],
)
def test_swish_by_hand(beta: float, x: float, expected: float) -> None:
    activated = build_activation("swish", "tanh", beta)(torch.tensor([[x]]))
    assert activated.item() == pytest.approx(expected, abs=2e-6)


def test_a_gated_network_by_hand() -> None:
    context = Context(Layout.causal(torch.zeros(1, 1, dtype=torch.long)), None)
    network = FeedForward(
        1, 1, FFNS["swiglu"], gelu="tanh", swish_beta=1.5, bias=False, p_hidden=0.0
    )
    with torch.no_grad():
        network.output.weight.fill_(1.0)
        network.input.weight.copy_(torch.tensor([[[1.0]], [[3.0]]]))
    # 2 sigmoid(1.5 * 2) * 3 * 2.
    assert network(torch.tensor([[[2.0]]]), context).item() == pytest.approx(11.430889, abs=1e-5)


def test_a_large_slope_is_relu_and_a_slope_of_1_the_native_function() -> None:
    x = torch.linspace(-4, 4, 41, dtype=torch.float64)
    torch.testing.assert_close(swish(x, 1e4), x.relu(), rtol=0, atol=1e-12)
    torch.testing.assert_close(swish(x, 1.0), F.silu(x), rtol=0, atol=1e-14)
    torch.testing.assert_close(swish(x, 1.7), defined(x, 1.7), rtol=0, atol=1e-14)
    assert build_activation("swish", "tanh", 1.0) is F.silu


@pytest.mark.parametrize("shape", [(3, 5, 2), (7, 3), (4,)], ids=str)
@pytest.mark.parametrize("part", [4, 1 << 20])
def test_both_gradients_are_those_of_the_definition(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], part: int
) -> None:
    monkeypatch.setattr(kernel, "SWISH_PART", part)  # several parts, the last one ragged
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    beta = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    sink = torch.randn_like(x)
    torch.testing.assert_close(swish(x, beta), defined(x, beta), rtol=0, atol=1e-14)
    torch.testing.assert_close(
        torch.autograd.grad(swish(x, beta), (x, beta), sink),
        torch.autograd.grad(defined(x, beta), (x, beta), sink),
        rtol=0,
        atol=1e-13,
    )
    assert torch.autograd.gradcheck(swish, (x, beta))


def test_the_half_of_a_wider_tensor_has_its_gradient() -> None:
    x = torch.randn(3, 4, 10, dtype=torch.float64, requires_grad=True)
    gate = x.chunk(2, dim=-1)[0]
    (gradient,) = torch.autograd.grad(swish(gate, 2.0).sum(), x)
    (expected,) = torch.autograd.grad(defined(gate, 2.0).sum(), x)
    torch.testing.assert_close(gradient, expected)


def test_in_bfloat16_only_input_and_output_are_rounded() -> None:
    x = torch.linspace(-8, 8, 4001).bfloat16().requires_grad_()
    beta = torch.tensor(1.3, requires_grad=True)
    wide, slope = (each.detach().double().requires_grad_() for each in (x, beta))
    activated = swish(x, beta)
    assert activated.dtype == torch.bfloat16
    torch.testing.assert_close(activated.double(), defined(wide, slope), rtol=2**-8, atol=1e-7)
    found = torch.autograd.grad(activated.sum(), (x, beta))
    expected = torch.autograd.grad(defined(wide, slope).sum(), (wide, slope))
    torch.testing.assert_close(found[0].double(), expected[0], rtol=2**-8, atol=1e-6)
    torch.testing.assert_close(found[1].double(), expected[1], rtol=1e-5, atol=0)


def test_extreme_inputs_stay_finite() -> None:
    x = torch.tensor([[-1e4, -30.0, 30.0, 1e4]], requires_grad=True)
    beta = torch.tensor(2.0, requires_grad=True)
    gradients = torch.autograd.grad(swish(x, beta).sum(), (x, beta))
    assert gradients[0].tolist() == [pytest.approx([0.0, 0.0, 1.0, 1.0], abs=1e-20)]
    assert gradients[1].item() == pytest.approx(0.0, abs=1e-20)


@pytest.mark.parametrize(
    ("fields", "n"),
    [
        ({}, 2),
        ({"share": "ffn"}, 1),
        ({"share": "attention"}, 2),
        ({"block": ("ffn*0.5", "attention", "ffn:swiglu*0.5", "ffn:relu")}, 4),
        ({"head": "transform"}, 3),
        ({"head": "transform", "head_activation": "relu"}, 2),
        ({"swish_beta": 2.0, "head": "transform"}, 0),
    ],
    ids=str,
)
def test_every_set_of_weights_learns_a_number_that_is_counted_and_not_decayed(
    fields: dict[str, Any], n: int
) -> None:
    config = make_config(**fields)
    model = build(config, seed=0)
    parameters = dict(model.named_parameters())
    betas = [name for name in parameters if name.endswith(".beta")]
    assert [parameters[name].item() for name in betas] == [1.0] * n
    constant = count_parameters(config.model_copy(update={"swish_beta": 1.0})).total
    built = sum(parameter.numel() for parameter in parameters.values())
    assert count_parameters(config).total == built == constant + n
    roles = parameter_roles(model)
    assert {roles[name] for name in betas} <= {"vector"}
    optimizer = build_optimizer(load_recipe("gpt").recipe.optimizer, parameters, roles)
    decayed = [
        id(parameter)
        for group in optimizer.param_groups
        if group["weight_decay"] > 0
        for parameter in group["params"]
    ]
    assert decayed and not {id(parameters[name]) for name in betas} & set(decayed)


def test_a_slope_of_1_that_is_learned_computes_what_a_slope_of_1_computes() -> None:
    tokens = torch.arange(8)[None]
    learned, plain = (build(make_config(swish_beta=beta), seed=3) for beta in ("learned", 1.0))
    torch.testing.assert_close(learned(tokens).logits, plain(tokens).logits)


TINY = {
    "model.ffn": "swiglu",
    "model.swish_beta": "learned",
    "model.n_layers": 1,
    "model.d_model": 16,
    "model.n_heads": 2,
    "data.context": 32,
    "optimizer.lr": 0.01,
    "train.steps": 4,
    "train.batch_sequences": 2,
    "train.precision": "float32",
    "train.threads": 1,
}


@pytest.mark.slow
def test_what_is_learned_is_saved_loaded_and_not_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    settings = {**TINY, "model.ffn": "swish"}
    train_run(load_recipe("gpt", settings), tmp_path / "run", progress=SilentProgress())
    model = load(tmp_path / "run")
    slopes = [module for module in model.modules() if isinstance(module, Swish)]
    assert len(slopes) == 1
    assert isinstance(slopes[0].beta, torch.nn.Parameter)
    assert 0.0 < abs(slopes[0].beta.item() - 1.0) < 0.1
    with pytest.raises(ConfigError, match=r"model\.swish_beta = learned"):
        export_huggingface(model, tmp_path / "exported")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"model.swish_beta": 2}, "has no effect with model.ffn = 'gelu'"),
        ({"model.swish_beta": "learnt", "model.ffn": "swish"}, "is not a number or learned"),
        ({"model.swish_beta": 1e9, "model.ffn": "swish"}, "must be at most 1,000,000"),
        ({"model.swish_beta": math.inf, "model.ffn": "swish"}, "must be finite"),
    ],
)
def test_a_slope_without_meaning_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_recipe("gpt", settings)
    assert str(error.value).startswith("model.swish_beta = ")
    assert says in str(error.value)


def test_a_transform_head_with_swish_makes_it_count() -> None:
    given = {"model.swish_beta": 2, "model.head": "transform", "model.head_activation": "swish"}
    assert load_recipe("gpt", given).recipe.model.swish_beta == 2.0
