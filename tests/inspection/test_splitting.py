"""Splittings: their orders and errors, of known flows and of layers, on spheres and without."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import expm

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import ConfigError
from sublayer.inspection.layer_flows import LayerFlow, check_flows
from sublayer.inspection.layer_splitting import LayerErrors, measure_splitting
from sublayer.inspection.sample import Sample
from sublayer.inspection.splitting import (
    SPLITTINGS,
    coefficients,
    euler,
    leading_term,
    local_errors,
    predicted_term,
)
from sublayer.inspection.splitting import step as take_step
from sublayer.inspection.splitting_problems import integrate, linear_problem, nonlinear_problem
from sublayer.model.build import build
from sublayer.model.layers.block import Sublayer
from sublayer.model.transformer import Transformer
from tests.breadth import rows


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


@pytest.mark.parametrize(
    ("kind", "norm"), [("decoder", "layer"), ("encoder", "rms"), ("encoder-decoder", "rms")]
)
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


@pytest.mark.parametrize("order", ["pre", "post"])
def test_equal_halves_are_strangs_step(order: str) -> None:
    model = model_of(kind="encoder-decoder", block="macaron", norm_order=order)
    for stack in model.stacks:
        for layer in range(3):
            first, *_, second = stack.block(layer)
            second.load_state_dict(first.state_dict())
    for each in measured(model):
        assert each.own == pytest.approx(each.strang, rel=1e-9)
        assert each.own != pytest.approx(each.lie, rel=1e-3)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_small_steps_err_in_proportion(order: str) -> None:
    model = model_of(norm_order=order, norm_eps=1e-12)
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


def test_layers_that_are_no_steps_are_refused() -> None:
    for fields, message in (
        ({"norm_affine": True}, "norms with gains"),
        ({"positions": "learned-per-layer"}, "model.positions = learned-per-layer"),
        ({"n_layers": 1}, "one layer"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_flows(config_of(**fields), "run")
    check_flows(config_of(), "run")
    check_flows(config_of(norm_order="pre", n_layers=1, positions="learned-per-layer"), "run")
    check_flows(config_of(kind="encoder-decoder", n_layers=1, n_decoder_layers=2), "run")
    plain = ModelConfig(norm="none", n_layers=1)
    check_flows(resolve_model(plain, vocab_size=23, context=12), "run")


def make_model(**fields: Any) -> Transformer:
    given = {"n_layers": 2, "d_model": 16, "n_heads": 2, "init": "normal", "init_std": 0.2}
    given |= fields
    return build(resolve_model(ModelConfig(**given), vocab_size=23, context=12), seed=2).eval()


def source() -> Sample:
    tokens = torch.randint(0, 23, (3, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(12) < torch.tensor([[12], [7], [12]])
    return Sample(tokens, mask)


def targets() -> Sample:
    tokens = torch.randint(0, 23, (3, 9), generator=torch.Generator().manual_seed(1))
    return Sample(tokens, torch.arange(9) < torch.tensor([[4], [9], [8]]))


@pytest.mark.parametrize(
    ("kind", "positions"), [("decoder", "rotary"), ("encoder-decoder", "learned-per-layer")]
)
def test_a_layers_own_step_is_one_of_the_schemes(kind: str, positions: str) -> None:
    for block, quantity in (("transformer", "lie"), ("macaron", None)):
        model = make_model(kind=kind, block=block, positions=positions)
        read = (source(), targets()) if kind == "encoder-decoder" else (source(),)
        found = measure_splitting(model, *read, batch_sequences=3)
        stacks = kind.split("-")
        assert [(each.stack, each.layer) for each in found] == [
            (stack, n) for stack in stacks for n in (1, 2)
        ]
        for each in found:
            assert each.way > 0 and min(each.lie, each.strang) > 0
            if quantity:
                assert each.own == pytest.approx(each.lie, rel=1e-9)


def test_batches_change_nothing() -> None:
    model = make_model(kind="encoder-decoder")
    one, other = (measure_splitting(model, source(), targets(), batch_sequences=n) for n in (1, 3))
    for left, right in zip(one, other, strict=True):
        assert left.lie == pytest.approx(right.lie, rel=1e-9) and left.way == pytest.approx(
            right.way, rel=1e-9
        )


def test_padding_and_what_a_source_hides_change_nothing() -> None:
    model = make_model(kind="encoder-decoder")
    found = []
    for behind in (3, 5):
        read, written = source(), targets()
        read.tokens[1, 7:], written.tokens[0, 4:] = behind, behind
        found.append(measure_splitting(model, read, written, batch_sequences=3))
    for left, right in zip(*found, strict=True):
        assert (left.lie, left.strang, left.way) == pytest.approx(
            (right.lie, right.strang, right.way), rel=1e-9
        )


def test_a_decoders_layers_are_of_what_it_reads_of_its_source() -> None:
    model = make_model(kind="encoder-decoder")
    read, other = source(), source()
    other.tokens[0] = (other.tokens[0] + 1) % 23
    one, another = (
        measure_splitting(model, each, targets(), batch_sequences=3)[2:] for each in (read, other)
    )
    assert all(left.way != right.way for left, right in zip(one, another, strict=True))


ORDERS = {
    "Lie (Transformer)": 2,
    "Strang (Macaron)": 3,
    "Strang, attention outside": 3,
    "two half layers": 2,
    "Yoshida": 5,
}


def test_every_part_is_followed_for_the_whole_time() -> None:
    for parts in SPLITTINGS.values():
        for name in ("F", "G"):
            assert sum(share for part, share in parts if part == name) == pytest.approx(1.0)


@pytest.mark.parametrize(("splitting", "order"), ORDERS.items())
def test_exact_flows_have_the_order_of_the_theorem(splitting: str, order: int) -> None:
    problem = linear_problem(seed=3) if order == 5 else nonlinear_problem(seed=3)
    steps = [2.0**-k for k in ((2, 3, 4) if order == 5 else (4, 5, 6, 7))]
    assert local_errors(problem, splitting, "exact", steps).slopes[-1] == pytest.approx(
        order, abs=0.2
    )


@pytest.mark.parametrize("splitting", rows(SPLITTINGS, 2))
def test_euler_steps_are_of_order_two_whatever_the_splitting(splitting: str) -> None:
    assert local_errors(linear_problem(seed=1), splitting, "Euler").slopes[-1] == pytest.approx(
        2.0, abs=0.1
    )


def test_midpoint_steps_keep_the_order_of_strang() -> None:
    assert local_errors(linear_problem(seed=1), "Strang (Macaron)", "midpoint").slopes[
        -1
    ] == pytest.approx(3.0, abs=0.1)
    assert local_errors(linear_problem(seed=1), "Lie (Transformer)", "midpoint").slopes[
        -1
    ] == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("splitting", rows(SPLITTINGS, 2))
def test_operators_that_commute_leave_no_error(splitting: str) -> None:
    errors = local_errors(linear_problem(seed=2, commute=True), splitting, "exact")
    assert max(errors.errors) < 1e-13
    assert all(np.isnan(slope) for slope in errors.slopes)


def test_the_leading_terms_are_those_worked_out_by_hand() -> None:
    rng = np.random.Generator(np.random.PCG64(7))
    a, b = (rng.standard_normal((6, 6)) / np.sqrt(6) for _ in range(2))
    x = rng.standard_normal(6)
    problem = linear_problem(seed=7)
    assert problem.fields["F"](x) == pytest.approx(a @ x) and problem.fields["G"](
        x
    ) == pytest.approx(b @ x)
    # Scheme less exact, over h^2; F = A x first in Lie's, G = B x outside in Strang's.
    lie = -(a @ a / 2 + b @ b / 2 + a @ b / 2 - b @ a / 2) @ problem.start
    strang = -(a @ a / 2 + b @ b / 4) @ problem.start
    assert leading_term(problem, "Lie (Transformer)") == pytest.approx(lie, abs=1e-5)
    assert leading_term(problem, "Strang (Macaron)") == pytest.approx(strang, abs=1e-5)
    assert predicted_term(problem, "Lie (Transformer)") == pytest.approx(lie)
    assert predicted_term(problem, "Strang (Macaron)") == pytest.approx(strang)


@pytest.mark.parametrize("splitting", rows(SPLITTINGS, 2))
def test_predicted_terms_are_the_measured_ones(splitting: str) -> None:
    problem = linear_problem(seed=5)
    assert predicted_term(problem, splitting) == pytest.approx(
        leading_term(problem, splitting), abs=1e-4
    )


def test_mixed_products_cancel_where_a_splitting_is_symmetric() -> None:
    mixed = {
        name: (coefficients(name)["F", "G"], coefficients(name)["G", "F"]) for name in SPLITTINGS
    }
    assert mixed.pop("Lie (Transformer)") == (-0.5, 0.5)
    assert mixed.pop("two half layers") == (-0.25, 0.25)
    assert all(numbers == pytest.approx((0.0, 0.0), abs=1e-12) for numbers in mixed.values())


def test_a_macaron_step_is_the_papers_three_lines() -> None:
    problem = nonlinear_problem(seed=4)
    flows = {name: euler(field) for name, field in problem.fields.items()}
    x, gamma = problem.start, 0.3
    first = x + gamma / 2 * problem.fields["G"](x)
    second = first + gamma * problem.fields["F"](first)
    third = second + gamma / 2 * problem.fields["G"](second)
    assert take_step(SPLITTINGS["Strang (Macaron)"], flows, x, gamma) == pytest.approx(third)


def test_integration_follows_a_known_flow() -> None:
    a = np.array([[0.0, 1.0], [-1.0, 0.0]])
    x = np.array([1.0, 2.0])
    assert integrate(lambda y: a @ y, x, 1.5) == pytest.approx(expm(1.5 * a) @ x, abs=1e-7)
