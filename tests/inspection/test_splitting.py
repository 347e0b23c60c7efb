"""Splittings: their orders and errors, of known flows and of layers, on spheres and without."""

import math
from contextlib import nullcontext
from itertools import product

import numpy as np
import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.inspection.layer_flows import check_flows
from sublayer.inspection.layer_splitting import measure_splitting
from sublayer.inspection.sample import Sample
from sublayer.inspection.splitting import leading_term, local_errors, predicted_term
from sublayer.inspection.splitting_problems import linear_problem, nonlinear_problem
from sublayer.model.build import build

POST = {"norm_order": "post", "norm_affine": False}


def model_of(**fields):
    given = {"n_layers": 3, "d_model": 16, "n_heads": 2, "init": "normal", "init_std": 0.2}
    config = ModelConfig.model_validate({**given, **POST, **fields})
    return build(resolve_model(config, vocab_size=23, context=12), seed=2).double().eval()


def sample(seed, *lengths):
    n, generator = max(lengths), torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 23, (3, n), generator=generator)
    return Sample(tokens, torch.arange(n) < torch.tensor(lengths)[:, None])


def measured(model):
    samples = (sample(0, 12, 7, 12), sample(1, 4, 9, 8))[: len(model.stacks)]
    return measure_splitting(model, *samples, batch_sequences=3)


@pytest.mark.parametrize("kind, fields, first", [
    ("decoder", {"norm_order": "pre", "positions": "rotary"}, 1),
    ("encoder-decoder", {"norm_order": "pre", "positions": "learned-per-layer"}, 1),
    # What enters the first layer of a stack is on no sphere.
    ("encoder", {"norm": "layer"}, 2), ("encoder-decoder", {"norm": "rms"}, 2),
])  # fmt: skip
def test_a_layer_takes_lies_step(kind, fields, first):
    found = measured(model_of(kind=kind, **fields))
    expected = list(product(kind.split("-"), range(first, 4)))
    assert [(each.stack, each.layer) for each in found] == expected
    for each in found:
        assert each.own == pytest.approx(each.lie, rel=1e-9)
        assert each.way > 0 and min(each.lie, each.strang) > 0


@pytest.mark.parametrize("order", ["pre", "post"])
def test_equal_halves_are_strangs_step(order):
    model = model_of(kind="encoder-decoder", block="macaron", norm_order=order)
    for stack in model.stacks:
        for layer in range(3):
            first, *_, second = stack.block(layer)
            second.load_state_dict(first.state_dict())
    for each in measured(model):
        assert each.own == pytest.approx(each.strang, rel=1e-9)
        assert each.own != pytest.approx(each.lie, rel=1e-3)


def test_a_rotation_errs_by_the_angle_that_one_computes_by_hand():
    """In a circle ``x + a J x``, normed, is turned by atan a, where the flow turns it by a."""
    angle = 0.75
    plain = {"positions": "none", "bias": False, "ffn": "relu", "block": ["ffn"], "norm": "rms"}
    sizes = {"d_model": 2, "n_heads": 1, "d_ff": 4, "n_layers": 2, "norm_eps": 1e-300}
    model = model_of(kind="encoder", **sizes, **plain)
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


def test_layers_that_are_no_steps_are_refused():
    for fields, message in (
        ({"kind": "lstm"}, "is an LSTM"),
        ({"norm_order": "post"}, "norms with gains"),
        (POST | {"positions": "learned-per-layer"}, "model.positions = learned-per-layer"),
        (POST | {"n_layers": 1}, "one layer"),
        ({"norm_order": "pre", "n_layers": 1, "positions": "learned-per-layer"}, None),
        (POST | {"kind": "encoder-decoder", "n_layers": 1, "n_decoder_layers": 2}, None),
        ({"norm": "none", "n_layers": 1}, None),
    ):
        config = resolve_model(ModelConfig.model_validate(fields), vocab_size=23, context=12)
        with pytest.raises(ConfigError, match=message) if message else nullcontext():
            check_flows(config, "run")


def test_batches_and_padding_change_nothing_and_sources_are_read():
    model = model_of(kind="encoder-decoder", norm_order="pre")

    def measure(n_rows, behind, first):
        read, written, done = sample(0, 12, 7, 12), sample(1, 4, 9, 8), []
        read.tokens[1, 7:], written.tokens[0, 4:], read.tokens[0, 0] = behind, behind, first
        progress = lambda *counts: done.append(counts)  # noqa: E731
        found = measure_splitting(model, read, written, batch_sequences=n_rows, progress=progress)
        assert done[-1] == (31 + 21, 31 + 21)
        return np.array([[each.lie, each.strang, each.own, each.way] for each in found])

    expected = measure(3, 3, first=1)
    np.testing.assert_allclose(measure(1, 5, first=1), expected, rtol=1e-9)
    other = measure(3, 3, first=2)
    assert (other[3:, 3] != expected[3:, 3]).all()


ORDERS = {"Lie (Transformer)": 2, "Strang (Macaron)": 3, "Strang, attention outside": 3}
ORDERS |= {"two half layers": 2, "Yoshida": 5}


@pytest.mark.parametrize(("splitting", "order"), ORDERS.items())
def test_exact_flows_have_the_order_of_the_theorem(splitting, order):
    problem = linear_problem(seed=3) if order == 5 else nonlinear_problem(seed=3)
    steps = [2.0**-k for k in ((2, 3, 4) if order == 5 else (4, 5, 6, 7))]
    errors = local_errors(problem, splitting, "exact", steps)
    assert errors.slopes[-1] == pytest.approx(order, abs=0.2)


def test_coarse_parts_lower_the_order():
    for substeps, order in (("Euler", 2), ("midpoint", 3)):
        errors = local_errors(linear_problem(seed=1), "Strang (Macaron)", substeps)
        assert errors.slopes[-1] == pytest.approx(order, abs=0.1)


def test_the_leading_terms_are_those_worked_out_by_hand():
    rng = np.random.Generator(np.random.PCG64(7))
    a, b = (rng.standard_normal((6, 6)) / np.sqrt(6) for _ in range(2))
    x = rng.standard_normal(6)
    problem = linear_problem(seed=7)
    assert problem.fields["F"](x) == pytest.approx(a @ x)
    assert problem.fields["G"](x) == pytest.approx(b @ x)
    # Scheme less exact, over h^2; F = A x first in Lie's, G = B x outside in Strang's.
    lie = -(a @ a / 2 + b @ b / 2 + a @ b / 2 - b @ a / 2) @ problem.start
    strang = -(a @ a / 2 + b @ b / 4) @ problem.start
    for name, term in (("Lie (Transformer)", lie), ("Strang (Macaron)", strang)):
        assert leading_term(problem, name) == pytest.approx(term, abs=1e-5)
        assert predicted_term(problem, name) == pytest.approx(term)
