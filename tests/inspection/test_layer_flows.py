"""Layers as steps of flows: the sphere of norms without gains, and what is no step of a flow."""

import math
from typing import Any

import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import ConfigError
from sublayer.inspection.layer_flows import LayerFlow, check_flows
from sublayer.inspection.layer_splitting import LayerErrors, measure_splitting
from sublayer.inspection.sample import Sample
from sublayer.model.build import build
from sublayer.model.layers.block import Sublayer
from sublayer.model.transformer import Transformer


def config_of(**fields: Any) -> ResolvedModel:
    given = {"n_layers": 3, "d_model": 16, "n_heads": 2, "init": "normal", "init_std": 0.2}
    given |= {"norm_order": "post", "norm_affine": False, **fields}
    return resolve_model(ModelConfig.model_validate(given), vocab_size=23, context=12)


def model_of(**fields: Any) -> Transformer:
    return build(config_of(**fields), seed=2).double().eval()


def sample(n_rows: int = 3, seed: int = 0) -> Sample:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 23, (n_rows, 12), generator=generator)
    return Sample(tokens, torch.arange(12) < torch.tensor([[12], [7], [12]])[:n_rows])


def measured(model: Transformer) -> list[LayerErrors]:
    samples = [sample(seed=number) for number in range(len(model.stacks))]
    return measure_splitting(model, *samples, batch_sequences=3)


KINDS = ["decoder", "encoder", "encoder-decoder"]


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_post_norm_layer_is_lies_step_on_the_sphere(kind: str, norm: str) -> None:
    found = measured(model_of(kind=kind, norm=norm))
    stacks = kind.split("-")
    # What enters the first layer of a stack is on no sphere.
    assert [(each.stack, each.layer) for each in found] == [
        (stack, layer) for stack in stacks for layer in (2, 3)
    ]
    for each in found:
        assert each.own == pytest.approx(each.lie, rel=1e-9)
        assert each.way > 0 and min(each.lie, each.strang) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_equal_halves_behind_norms_are_strangs_step_on_the_sphere(kind: str) -> None:
    model = model_of(kind=kind, block="macaron")
    for stack in model.stacks:
        for layer in range(3):
            first, *_, second = stack.block(layer)
            second.load_state_dict(first.state_dict())
    for each in measured(model):
        assert each.own == pytest.approx(each.strang, rel=1e-9)
        assert each.own != pytest.approx(each.lie, rel=1e-3)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_small_steps_on_the_sphere_err_in_proportion(norm: str) -> None:
    model = model_of(norm=norm, norm_eps=1e-12)
    whole = measured(model)
    for sets in model.stack.sublayers:
        for sublayer in sets:
            sublayer.step_size /= 64
    small = measured(model)
    for one, other in zip(whole, small, strict=True):
        assert other.way < one.way / 10
        assert other.lie < one.lie / 8 and other.strang < one.strang / 8


def test_a_rotation_errs_by_the_angle_that_one_computes_by_hand() -> None:
    """In a circle ``x + a J x``, normed, is turned by atan a, where the flow turns it by a."""
    angle = 0.75
    plain = {"positions": "none", "bias": False, "ffn": "relu", "block": ["ffn"], "norm": "rms"}
    model = model_of(
        d_model=2, n_heads=1, d_ff=4, n_layers=2, norm_eps=1e-300, kind="encoder", **plain
    )
    eye = torch.eye(2, dtype=torch.float64)
    turn = angle * torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    with torch.no_grad():
        for layer in range(2):
            (network,) = model.stack.block(layer)
            for weight in network.function.parameters():
                is_input = tuple(weight.shape) == (4, 2)  # relu(x) - relu(-x) is x
                weight.copy_(torch.cat([eye, -eye]) if is_input else torch.cat([turn, -turn], 1))
    (second,) = measured(model)
    chord = math.sin(angle / 2)
    lie = math.sin((angle - math.atan(angle)) / 2) / chord
    strang = math.sin((angle - 2 * math.atan(angle / 2)) / 2) / chord
    assert second.layer == 2
    assert second.way == pytest.approx(2 * math.sqrt(2) * chord, rel=1e-6)
    assert (second.lie, second.strang) == pytest.approx((lie, strang), rel=1e-4)
    assert second.own == pytest.approx(second.lie, rel=1e-9)


def test_a_flow_stays_on_the_sphere() -> None:
    model = model_of(norm_eps=1e-12)
    read = sample(1)
    layout = read.layout(model.shape)
    with torch.no_grad():
        x = model.hidden(read.tokens, layout, capture=[1]).captured[1]
        block = [each for each in model.stack.block(1) if isinstance(each, Sublayer)]
        end = LayerFlow(block, model.context(layout, x.dtype)).follow(x)
    assert float((end - x).norm()) > 1.0
    torch.testing.assert_close(end.mean(-1), torch.zeros(1, 12).double(), rtol=0, atol=1e-9)
    torch.testing.assert_close(end.square().mean(-1), torch.ones(1, 12).double(), rtol=1e-5, atol=0)


def test_a_norm_with_gains_moves_a_token_to_which_nothing_is_added() -> None:
    """Why such layers are refused: their step of size 0 is none."""
    for affine, is_moved in ((True, True), (False, False)):
        model = model_of(norm_affine=affine, norm_eps=1e-12)
        with torch.no_grad():
            for layer in range(3):
                for sublayer in model.stack.block(layer):
                    sublayer.step_size = 0.0
                    for weight in sublayer.norm.parameters():
                        weight.add_(torch.linspace(-0.5, 0.5, 16))
            states = model.hidden(
                sample().tokens, sample().layout(model.shape), capture=range(4)
            ).captured
        assert (not torch.allclose(states[2], states[3])) == is_moved


def test_layers_that_are_no_steps_are_refused() -> None:
    for fields, message in (
        ({"norm_affine": True}, "norm_order = post and norms with gains, which move a token"),
        ({"positions": "learned-per-layer"}, "post and model.positions = learned-per-layer"),
        ({"n_layers": 1}, "post and one layer, which reads what no such norm has normed"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_flows(config_of(**fields), "run")
    check_flows(config_of(), "run")
    check_flows(config_of(norm_order="pre", n_layers=1, positions="learned-per-layer"), "run")
    check_flows(config_of(kind="encoder-decoder", n_layers=1, n_decoder_layers=2), "run")
    plain = ModelConfig(norm="none", n_layers=1)
    check_flows(resolve_model(plain, vocab_size=23, context=12), "run")
