"""Optimizers: updates against published code and by hand, their state, and their division."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.optimization import Adafactor as TransformersAdafactor

from sublayer.config.objective import CausalObjective
from sublayer.config.optimizers import (
    OPTIMIZERS,
    AdafactorConfig,
    AdamConfig,
    AdamWConfig,
    LambConfig,
    LionConfig,
    MuonConfig,
    ScheduleFreeConfig,
    SgdConfig,
)
from sublayer.errors import CheckpointError
from sublayer.files.tensors import StoredTensors
from sublayer.model.parameters import parameter_roles
from sublayer.objective.base import family_of
from sublayer.training import optimizers
from sublayer.training.checkpoints import check_state, optimizer_tensors, restore_optimizer
from sublayer.training.optimizers import Division, build_optimizer
from tests.breadth import rows
from tests.training.test_resume import make_model

SHAPES = {"matrix": (5, 7), "stacked": (2, 6, 5), "embedding": (11, 4), "gain": (3, 13)}
ROLES = {**{name: name for name in SHAPES}, "scalar": "gain"}


def draw(shapes, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return {name: scale * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def trainable(tensors):
    return {name: nn.Parameter(value.detach().clone()) for name, value in tensors.items()}


def take(optimizer, parameters, gradients):
    if isinstance(optimizer, optimizers.Optimizer):
        optimizer.begin()
    for name, parameter in parameters.items():
        parameter.grad = gradients.get(name)
    optimizer.step()


TABLES = {
    **{kind: table() for kind, table in OPTIMIZERS.items()},
    "without momentum": SgdConfig(momentum=0.0), "published": LambConfig(form="published"),
    "uncorrected": AdamWConfig(bias_correction=False), "gpt1": AdamWConfig(form="gpt1"),
    "scaled": AdamWConfig(lr=0.1, parameter_scale=True),
    "scaled, uncorrected": AdamWConfig(lr=0.1, parameter_scale=True, bias_correction=False),
    "unscaled": AdafactorConfig(min_factored=4, parameter_scale=False),
    "factored": AdafactorConfig(min_factored=4),
    "original": MuonConfig(
        adjust_lr="original", adamw_lr=1e-3, nesterov=False, newton_schulz_dtype="float32"
    ),
}  # fmt: skip
WRITTEN_HERE = ["lamb", "uncorrected", "gpt1", "scaled", "adafactor"]
WRITTEN_HERE += ["muon", "original", "schedule-free", "lion"]
FACTORED, ROW = TABLES["factored"], "exp_avg_sq_row"


def check(config, parameters, path):
    headers = StoredTensors(path, path.parent).headers()
    check_state(config, parameters, ROLES, headers, path)


@pytest.mark.parametrize("name", rows(TABLES, 8))
def test_an_optimizer_restored_from_the_state_of_its_table_continues_to_the_bit(tmp_path, name):
    config, shapes = TABLES[name], {**SHAPES, "scalar": ()}
    parameters = trainable(draw(shapes))
    optimizer = build_optimizer(config, parameters, ROLES)
    for step in range(3):
        take(optimizer, parameters, draw(shapes, seed=step + 1))
    kept = optimizer_tensors(optimizer, parameters)
    of_state = {name: config.state_shapes(shape, ROLES[name]) for name, shape in shapes.items()}
    expected = {f"{key}/{name}": each[key] for name, each in of_state.items() for key in each}
    assert {name: tuple(value.shape) for name, value in kept.items()} == expected
    again = trainable(parameters)
    restored = build_optimizer(config, again, ROLES)
    save_file(kept, tmp_path / "state")
    check(config, again, tmp_path / "state")
    restore_optimizer(restored, again, load_file(tmp_path / "state"))
    for step in range(3, 6):
        take(optimizer, parameters, draw(shapes, seed=step + 1))
        take(restored, again, draw(shapes, seed=step + 1))
    assert all(torch.equal(value, again[name]) for name, value in parameters.items())


@pytest.mark.parametrize("change, message", [
    ({f"{ROW}/matrix": torch.zeros(2)}, rf"{ROW}/matrix .* \[2\], .* \[6\]"),
    ({f"{ROW}/matrix": torch.zeros(6, dtype=torch.float64)}, f"{ROW}/matrix is F64 .* F32"),
    ({"exp_avg/matrix": torch.zeros(6, 5)}, "exp_avg/matrix belongs to no parameter"),
    ({f"{ROW}/other": torch.zeros(6)}, f"{ROW}/other belongs to no parameter"),
    ({"step/matrix": None}, "lacks step/matrix"),
    (dict.fromkeys([f"{ROW}/matrix", "exp_avg_sq_col/matrix", "step/matrix"]), "state is missing"),
])  # fmt: skip
def test_state_of_another_shape_or_name_is_refused(tmp_path, change, message):
    parameters = trainable(draw({"matrix": (6, 5)}))
    optimizer = build_optimizer(FACTORED, parameters, ROLES)
    take(optimizer, parameters, draw({"matrix": (6, 5)}))
    tensors = {**optimizer_tensors(optimizer, parameters), **change}
    kept = {name: value for name, value in tensors.items() if value is not None}
    save_file(kept, tmp_path / "state")
    with pytest.raises(CheckpointError, match=message):
        check(FACTORED, parameters, tmp_path / "state")


@pytest.mark.parametrize("name", WRITTEN_HERE)
def test_a_parameter_without_a_gradient_is_left_alone_until_it_has_one(name):
    config, start = TABLES[name], draw({"always": (5, 7), "late": (5, 7)})
    parameters, fresh = trainable(start), trainable({"late": start["late"]})
    optimizer = build_optimizer(config, parameters, dict.fromkeys(parameters, "matrix"))
    other = build_optimizer(config, fresh, {"late": "matrix"})
    for _ in range(3):
        take(optimizer, parameters, {"always": torch.ones(5, 7)})
    assert torch.equal(parameters["late"], fresh["late"])
    assert not any(name.endswith("/late") for name in optimizer_tensors(optimizer, parameters))
    gradient = draw({"late": (5, 7)}, seed=1)
    take(optimizer, parameters, {"always": torch.ones(5, 7), **gradient})
    take(other, fresh, gradient)
    torch.testing.assert_close(parameters["late"], fresh["late"])
    assert not torch.equal(fresh["late"], start["late"])


@pytest.mark.parametrize("name", WRITTEN_HERE)
def test_a_step_asks_for_no_tensors_value_and_leaves_gradients_as_they_are(name):
    # Tensors on this device have no values: what would wait for a GPU fails here.
    meta = {name: torch.empty(shape, device="meta") for name, shape in SHAPES.items()}
    parameters = trainable(meta)
    optimizer = build_optimizer(TABLES[name], parameters, ROLES)
    for _ in range(2):
        take(optimizer, parameters, meta)
    assert all(value.is_meta for value in optimizer_tensors(optimizer, parameters).values())
    real, gradients, kept = trainable(draw(SHAPES)), draw(SHAPES, seed=1), draw(SHAPES, seed=1)
    take(build_optimizer(TABLES[name], real, ROLES), real, gradients)
    assert all(torch.equal(gradients[name], kept[name]) for name in SHAPES)


def updated(config, weights, gradients, role="bias"):
    parameters = {"w": nn.Parameter(torch.tensor(weights))}
    optimizer, values = build_optimizer(config, parameters, {"w": role}), []
    for gradient in gradients:
        take(optimizer, parameters, {"w": torch.tensor(gradient)})
        values.append(parameters["w"].tolist())
    return values


def test_matrices_of_at_least_128_rows_and_columns_move_as_transformers_moves_them(double):
    shapes = {"a": (128, 160), "b": (128, 160), "wide": (131, 128), "tall": (300, 129)}
    start = draw(shapes, scale=0.05)
    parameters, expected = trainable(start), trainable(start)
    ours = build_optimizer(AdafactorConfig(), parameters, dict.fromkeys(shapes, "matrix"))
    rules = {"scale_parameter": True, "relative_step": False, "warmup_init": False}
    theirs = TransformersAdafactor(expected.values(), lr=0.01, **rules)
    for step in range(8):
        # Gradients that grow are clipped, those that shrink are not.
        gradients = draw(shapes, seed=step + 1, scale=10.0 ** (step % 4 - 3))
        take(ours, parameters, gradients)
        take(theirs, expected, gradients)
    for name, value in expected.items():
        assert torch.linalg.vector_norm(value - start[name]) > 0.01
        torch.testing.assert_close(parameters[name], value, rtol=0, atol=1e-14)


OFFSET = {"decay_offset": 1, "clip_threshold": 2.0}


@pytest.mark.parametrize("settings, gradients, expected", [
    # RMS of (1, 7): 5. Update 1: V = g^2, u = (-1, 1) of RMS 1: w = (1, 7) - 0.6 * 5 * u = (4,
    # 4). Update 2, whose squares have the share 1/2: V = (1 + 49) / 2 = 25, u = (-7, 7) / 5,
    # its RMS 1.4: clipped to (-1, 1). RMS of (4, 4): 4, and w = (4, 4) - 0.6 * 4 * u.
    ({}, [[-1.0, 1.0], [-7.0, 7.0]], [6.4, 1.6]),
    # The second update is not clipped: w = (4, 4) - 0.6 * 4 * (-1.4, 1.4).
    ({"clip_threshold": 2.0}, [[-1.0, 1.0], [-7.0, 7.0]], [7.36, 0.64]),
    # Steps of 0.6 * (-1, 1), whatever the weights: (1, 7), (1.6, 6.4), (2.2, 5.8).
    ({"parameter_scale": False}, [[-1.0, 1.0], [-7.0, 7.0]], [2.2, 5.8]),
    # After one update before the first its squares have the share 1/2: V = g^2 / 2, u =
    # sqrt(2) * (-1, 1), which a threshold of 2 lets be: w = (1, 7) - 0.6 * 5 * u.
    (OFFSET, [[-2.0, 2.0]], [1 + 3 * math.sqrt(2), 7 - 3 * math.sqrt(2)]),
], ids=["plain", "threshold", "unscaled", "offset"])  # fmt: skip
def test_a_vector_moves_as_adafactor_by_hand(double, settings, gradients, expected):
    config = AdafactorConfig(lr=0.6, decay_exponent=1.0, **settings)
    assert updated(config, [1.0, 7.0], gradients)[-1] == pytest.approx(expected, abs=1e-13)


# g^2 has the mean 1/4 in each row and column, so that V = (1/4)(1/4) / (1/4) = 1/4 everywhere and
# u = 2 g, its RMS 1; of weights that are all 2 the RMS is 2: w = 2 - 0.5 * 2 * 2 g. Not factored,
# u is g / |g|, its RMS 1/2.
@pytest.mark.parametrize(("settings", "factor"), [({"min_factored": 4}, 2.0), ({}, 1.0)])
def test_a_matrix_moves_as_adafactor_by_hand(double, settings, factor):
    config, weights = AdafactorConfig(lr=0.5, **settings), [[2.0] * 4] * 4
    (found,) = updated(config, weights, [torch.eye(4).tolist()], "matrix")
    assert found == (2.0 - factor * torch.eye(4)).tolist()


@pytest.mark.parametrize("shape", [(), (6, 4), (2, 4, 5)])
def test_adafactor_moves_weights_of_zero_by_a_thousandth_of_the_rate(double, shape):
    role = "stacked" if len(shape) == 3 else "matrix"
    config = AdafactorConfig(lr=0.5, min_factored=4)
    for gradient, expected in ((0.0, 0.0), (-2.0, 0.5e-3)):
        parameters = {"w": nn.Parameter(torch.zeros(shape))}
        optimizer = build_optimizer(config, parameters, {"w": role})
        take(optimizer, parameters, {"w": torch.full(shape, gradient)})
        torch.testing.assert_close(parameters["w"].detach(), torch.full(shape, expected))


BY_MAP = [LambConfig(lr=0.1), AdafactorConfig(min_factored=4), MuonConfig(lr=0.1)]


@pytest.mark.parametrize("config", BY_MAP, ids=str)
def test_stacked_maps_move_as_they_would_one_by_one(config):
    scales = torch.tensor([0.1, 1.0, 10.0]).view(3, 1, 1)
    start = scales * draw({"w": (3, 5, 7)})["w"]
    together, apart = trainable({"w": start}), trainable(dict(zip("abc", start, strict=True)))
    stack = build_optimizer(config, together, {"w": "stacked"})
    many = build_optimizer(config, apart, dict.fromkeys(apart, "matrix"))
    for step in range(3):
        gradient = draw({"w": (3, 5, 7)}, seed=step + 1)["w"] * scales.flip(0)
        take(stack, together, {"w": gradient})
        take(many, apart, dict(zip("abc", gradient, strict=True)))
    assert not torch.equal(together["w"], start)
    torch.testing.assert_close(together["w"], torch.stack(list(apart.values())))


BY_HAND = {"lr": 0.75, "betas": (0.5, 0.75), "eps": 1.0, "weight_decay": 0.5}
"""Decay rates of 1/2 and 3/4, 1 added to the root, half of the weights as decay."""
MOVED_BY_LAMB = [[1.75, 0], [0.9625, -1.05]]


@pytest.mark.parametrize("config, first, matrix, vector", [
    # Step 1, matrix: m = g/2 = (-1, 1), v = g^2/4 = (1, 1), r = m / (1 + 1) = (-1/2, 1/2), u =
    # r + (4, 3)/2 = (3/2, 2); norms 5 and 5/2, ratio 2; w = (4, 3) - 0.75 * 2 * u = (1.75, 0).
    # Step 2: m = (-1/2 - 1/2, 1/2 + 1/2), v = 3/4 + 1/4, r as before, u = r + (7/8, 0) = (3/8,
    # 1/2); norms 7/4 and 5/8, ratio 2.8; w = (1.75, 0) - 0.75 * 2.8 * u = (0.9625, -1.05).
    # Vector: r = (1/2, -1/2), then m = (1/2 + 1/2, -1/2 + 1/2) and v = 1, so that r = (1/2, 0);
    # w -= 0.75 * r.
    (LambConfig(form="albert", **BY_HAND), 2.0, MOVED_BY_LAMB, [[1.625, -0.625], [1.25, -0.625]]),
    # Step 1, matrix: m = g/2, divided by 1 - 1/2: (-1, 1); v = g^2/4, divided by 1 - 3/4: (1,
    # 1). From there as above. Step 2: m = g/4 + g/2, divided by 1 - 1/4: (-1, 1); v = 3/16 +
    # 1/4, divided by 1 - 9/16: (1, 1). As above. Vector: r = (1/2, -1/2); then m = (3/4, -1/4 +
    # 1/2) / (3/4) = (1, 1/3), v = (1, 1), r = (1/2, 1/6).
    (LambConfig(form="published", **BY_HAND), 1.0, MOVED_BY_LAMB, [[1.625, -0.625], [1.25, -0.75]]),
    # Step 1, matrix: u = (3/2, 2) as for LAMB; w = (4, 3) - 0.75 * u = (2.875, 1.5). Step 2: r
    # = (-1/2, 1/2), u = r + (1.4375, 0.75) = (0.9375, 1.25); w = (2.875, 1.5) - 0.75 * u.
    (
        *(AdamWConfig(bias_correction=False, **BY_HAND), 2.0),
        *([[2.875, 1.5], [2.171875, 0.5625]], [[1.625, -0.625], [1.25, -0.625]]),
    ),
], ids=["albert", "published", "adamw without correction"])  # fmt: skip
def test_two_steps_give_the_numbers_worked_out_by_hand(double, config, first, matrix, vector):
    gradients = [torch.diag(torch.tensor(each)).tolist() for each in ([-first, first], [-1.0, 1])]
    matrices = torch.tensor(updated(config, [[4.0, 0.0], [0.0, 3.0]], gradients, "matrix"))
    assert (matrices - torch.diag_embed(torch.tensor(matrix))).abs().max() <= 1e-15
    vectors = torch.tensor(updated(config, [2.0, -1.0], [[first, -first], [1.0, 1.0]]))
    assert (vectors - torch.tensor(vector)).abs().max() <= 1e-15


@pytest.mark.parametrize("form, role, r", [
    ("albert", "matrix", 0.1 / (math.sqrt(0.001) + 1e-6)), ("published", "stacked", 1 / (1 + 1e-6))
])  # fmt: skip
def test_lamb_has_the_ratio_1_for_weights_of_zero_and_updates_of_zero(form, role, r):
    zeros, ones = torch.zeros(2, 3, 5), torch.ones(2, 3, 5)
    parameters = trainable({"empty": zeros, "idle": ones})
    config = LambConfig(form=form, lr=0.5, weight_decay=0.0)
    optimizer = build_optimizer(config, parameters, dict.fromkeys(parameters, role))
    take(optimizer, parameters, {"empty": ones, "idle": zeros})
    torch.testing.assert_close(parameters["empty"].detach(), -0.5 * r * ones)
    assert torch.equal(parameters["idle"], ones)


def test_gpt1s_adam_decays_by_the_corrected_rate_and_adds_eps_to_the_uncorrected_root(double):
    # Of the same gradient, m = (1 - 0.9^t) g and v = (1 - 0.999^t) g^2, so that c m / sqrt(v) is
    # its sign; decay is multiplied by c: sqrt(0.001) / 0.1 = 0.31623, sqrt(0.001999) / 0.19 =
    # 0.23532.
    settings = {"form": "gpt1", "lr": 0.1, "weight_decay": 0.5, "betas": (0.9, 0.999)}
    config = AdamWConfig(**settings, eps=1e-30)
    (((first,),), ((second,),)) = updated(config, [[1.0]], [[[2.0]]] * 2, "matrix")
    assert first == pytest.approx(1 - 0.1 * (1 + 0.3162278 * 0.5), abs=1e-8)
    assert second == pytest.approx(first - 0.1 * (1 + 0.2353164 * 0.5 * first), abs=1e-7)
    # m = 0.2, sqrt(v) = sqrt(0.004) = 0.0632456: 0.1 * 0.3162278 * (0.2 / 1.0632456 + 0.5).
    ((found,),) = updated(AdamWConfig(**settings, eps=1.0), [1.0], [[2.0]], "matrix")
    assert found == pytest.approx(1 - 0.03162278 * (0.1881033 + 0.5), abs=1e-8)


# m = (-1, 1) / 2 / (1 - 1/2) = (-1, 1), v = 1 / 4 / (1 - 3/4) = 1, m / (sqrt(v) + 1) = (-1/2, 1/2),
# times the RMS 5 of (1, 7): (-2.5, 2.5); decay adds (1, 7) / 2, not scaled: w = (1, 7) - 0.4 * (-2,
# 6) = (1.8, 4.6). Uncorrected, twice the gradient has the same m and v.
@pytest.mark.parametrize(("is_corrected", "gradient"), [(True, 1.0), (False, 2.0)])
def test_a_matrix_moves_as_scaled_adamw_by_hand(double, is_corrected, gradient):
    settings = {**BY_HAND, "lr": 0.4, "bias_correction": is_corrected}
    config = AdamWConfig(parameter_scale=True, **settings)
    ((found,),) = updated(config, [[1.0, 7.0]], [[[-gradient, gradient]]], "matrix")
    assert found == pytest.approx([1.8, 4.6], abs=1e-14)


SIDES = {"wide": (24, 64), "tall": (96, 32), "square": (48, 48), "long": (17, 130)}


@pytest.mark.parametrize("has_units", [True, False])
@pytest.mark.parametrize("adjust_lr, nesterov", [("match_rms_adamw", True), ("original", False)])
def test_maps_move_as_torchs_muon_moves_them(monkeypatch, adjust_lr, nesterov, has_units):
    if has_units and not optimizers.has_bfloat16_units():
        pytest.skip("PyTorch emulates bfloat16 here, with sums in another order")
    monkeypatch.setattr(optimizers, "has_bfloat16_units", lambda: has_units)
    rules = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.9, "nesterov": nesterov}
    start = draw(SIDES, scale=0.1)
    parameters, expected = trainable(start), trainable(start)
    config = MuonConfig(**rules, adjust_lr=adjust_lr, adamw_lr=1e-3, newton_schulz_steps=4)
    ours = build_optimizer(config, parameters, dict.fromkeys(SIDES, "matrix"))
    theirs = torch.optim.Muon(expected.values(), **rules, adjust_lr_fn=adjust_lr, ns_steps=4)
    for step in range(4):
        gradients = draw(SIDES, seed=step + 1, scale=10.0 ** (step - 2))
        take(ours, parameters, gradients)
        take(theirs, expected, gradients)
    for name, value in expected.items():
        # Without units sums have another order, so that few numbers are rounded otherwise.
        moved = torch.linalg.vector_norm(value - start[name])
        apart = torch.linalg.vector_norm(value - parameters[name])
        assert moved > 0.01 and apart <= (0.0 if has_units else 0.02 * moved)


@pytest.mark.parametrize("shape", [(3, 9, 5), (2, 6, 11)])
def test_newton_schulz_keeps_singular_vectors_and_maps_values_as_its_coefficients(double, shape):
    maps, coefficients = draw({"w": shape})["w"], (3.4445, -4.775, 2.0315)
    u, values, v = torch.linalg.svd(maps, full_matrices=False)
    values = values / torch.linalg.vector_norm(values, dim=-1, keepdim=True)
    for _ in range(5):
        a, b, c = coefficients
        values = a * values + b * values**3 + c * values**5
    assert values.min() > 0.6 and values.max() < 1.3
    found = optimizers.orthogonalise(maps.clone(), coefficients, 5)
    torch.testing.assert_close(found, u @ torch.diag_embed(values) @ v, rtol=0, atol=1e-12)


def test_heads_move_as_they_would_one_by_one():
    objective = family_of(CausalObjective()).build(make_model(1, d_head=3), CausalObjective(), 0)
    parameters, roles = dict(objective.named_parameters()), parameter_roles(objective)
    before = {name: value.detach().clone() for name, value in parameters.items()}
    axes, config = optimizers.head_axes(objective), MuonConfig(lr=0.1, muon_unit="head")
    gradients = draw({name: value.shape for name, value in before.items()})
    take(build_optimizer(config, parameters, roles, heads=axes), parameters, gradients)
    by_map = trainable(before)
    take(build_optimizer(config, by_map, roles), by_map, gradients)
    assert len(axes) == 2 * 3 and {axis for axis, _ in axes.values()} == {-2, -1}
    for name, value in parameters.items():
        if name not in axes:
            assert torch.equal(value, by_map[name])
            continue
        axis, width = axes[name]
        parts = [
            {f"{n}": part for n, part in enumerate(each.reshape(-1, *each.shape[-2:]))}
            for each in (before[name], gradients[name])
        ]
        start, drawn = (
            {
                f"{n} {h}": head
                for n, each in part.items()
                for h, head in enumerate(each.split(width, axis))
            }
            for part in parts
        )
        alone = trainable(start)
        take(build_optimizer(config, alone, dict.fromkeys(alone, "matrix")), alone, drawn)
        heads = iter(alone.values())
        maps = [torch.cat([next(heads) for _ in range(2)], axis) for _ in parts[0]]
        torch.testing.assert_close(value, torch.stack(maps).view_as(value))


def test_muon_leaves_all_but_maps_to_adamw_at_its_own_rate():
    shapes = {**SHAPES, "head": (11, 4), "thin": (1, 7), "positions": (6, 5)}
    roles = {**ROLES, "head": "head", "thin": "matrix", "positions": "positions"}
    parameters, expected = trainable(draw(shapes)), trainable(draw(shapes))
    muon = build_optimizer(MuonConfig(lr=0.5, adamw_lr=0.25), parameters, roles)
    adamw = build_optimizer(AdamWConfig(lr=0.25), expected, roles)
    for step in range(3):
        optimizers.set_learning_rate(muon, 0.5 / (step + 1))
        optimizers.set_learning_rate(adamw, 0.25 / (step + 1))
        take(muon, parameters, draw(shapes, seed=step + 1))
        take(adamw, expected, draw(shapes, seed=step + 1))
    for name in shapes:
        if name in ("matrix", "stacked"):
            assert not torch.equal(parameters[name], expected[name])
        else:
            torch.testing.assert_close(parameters[name], expected[name])


def test_schedule_free_moves_as_the_published_algorithm(double):
    shapes, rates = {"matrix": (5, 7), "gain": (3,)}, (0.1, 0.2, 0.3, 0.3, 0.3)
    config = ScheduleFreeConfig(betas=(0.8, 0.9), eps=0.01, weight_decay=0.5)
    parameters = trainable(draw(shapes))
    optimizer = build_optimizer(config, parameters, ROLES)
    x, decay = draw(shapes), {"matrix": 0.5, "gain": 0.0}
    z, v, total = draw(shapes), dict.fromkeys(shapes, 0.0), 0.0
    for step, rate in enumerate(rates, start=1):
        optimizers.set_learning_rate(optimizer, rate)
        optimizer.begin()
        total += rate**2
        for name, parameter in parameters.items():
            # The gradient depends on the place, here of the loss |w|^2 / 2 + sin(w).
            y = 0.8 * x[name] + 0.2 * z[name]
            torch.testing.assert_close(parameter.detach(), y, rtol=0, atol=1e-13)
            gradient, parameter.grad = y + y.cos(), parameter.detach() + parameter.detach().cos()
            v[name] = 0.9 * v[name] + 0.1 * gradient**2
            direction = gradient / ((v[name] / (1 - 0.9**step)).sqrt() + 0.01)
            z[name] = z[name] - rate * (direction + decay[name] * y)
            x[name] = x[name] + rate**2 / total * (z[name] - x[name])
        optimizer.step()
        for name, parameter in parameters.items():
            torch.testing.assert_close(parameter.detach(), x[name], rtol=0, atol=1e-12)


def test_lion_moves_by_the_sign_of_the_published_average(double):
    # The averages' signs: 1/2 * 0 + 1/2 * 1 > 0; with m = 1/4, 1/8 - 1/10 > 0, against the
    # gradient; with m = 3/16 - 1/20, 0.06875 - 0.25 < 0. Steps of 1/4 * (sign + w / 2).
    config = LionConfig(lr=0.25, betas=(0.5, 0.75), weight_decay=0.5)
    found = updated(config, [[2.0]], [[[1.0]], [[-0.2]], [[-0.5]]], "matrix")
    assert found == [[[1.5]], [[1.0625]], [[pytest.approx(1.0625 + 0.25 * (1 - 0.53125))]]]


def shares(**fields):
    model = make_model(1, **fields)
    objective = family_of(CausalObjective()).build(model, CausalObjective(), 0)
    found = optimizers.rate_shares(objective, 0.5)
    return {name.removeprefix("model."): share for name, share in found.items()}


def test_each_block_has_half_the_rate_of_the_next():
    found = shares(positions="learned-per-layer", d_embed=4, label_outputs=2)
    expected = dict.fromkeys(("final_norm.", "head.", "label_head."), 1.0)
    expected |= {"embedding.": 1 / 32, "positions.tables.0.": 1 / 32}
    for block, share in enumerate((1 / 16, 1 / 8, 1 / 4)):
        expected |= {f"decoder.sublayers.{place}.{block}.": share for place in (0, 1)}
        expected |= {f"positions.tables.{block}.": share} if block else {}
    for name, share in found.items():
        assert [share] == [of for prefix, of in expected.items() if name.startswith(prefix)], name
    # What blocks share has the rate of the last of them.
    found = shares(share="ffn", share_groups=1, positions="relative")
    assert {share for name, share in found.items() if ".sublayers.1." in name} == {1 / 4}
    assert (found["positions.table.weight"], found["embedding.weight"]) == (1 / 4, 1 / 32)


@pytest.mark.parametrize("config", [AdamConfig(), AdamWConfig(bias_correction=False)], ids=str)
def test_an_update_is_as_long_as_its_share_of_the_rate(config):
    objective = family_of(CausalObjective()).build(make_model(1), CausalObjective(), 0)
    parameters = dict(objective.named_parameters())
    bare = config.model_copy(update={"weight_decay": 0.0, "betas": (0.0, 0.0)})
    shared = optimizers.rate_shares(objective, 0.5)
    optimizer = build_optimizer(bare, parameters, parameter_roles(objective), shared)
    before = {name: value.detach().clone() for name, value in parameters.items()}
    optimizers.set_learning_rate(optimizer, 0.1)
    take(optimizer, parameters, {name: torch.ones_like(value) for name, value in before.items()})
    for name, value in parameters.items():
        moved = (before[name] - value.detach()).abs().mean().item()
        assert moved == pytest.approx(0.1 * shared[name], rel=1e-3)


DIVIDED = {"matrix": (5, 8), "stacked": (2, 6, 5), "bias": (3, 13)}
DIVIDED |= {f"{name} of its shape": shape for name, shape in DIVIDED.items()}
DIVIDED |= {"embedding": (11, 4), "square embedding": (4, 4), "short bias": (1,)}
"""Of each role some; a part of some is empty, or has the shape of another's whole."""
DIVIDED_ROLES = {name: name.split(" of ")[0].split()[-1] for name in DIVIDED}
EXCHANGES = {"lamb": 1, "published": 1, "uncorrected": 0, "gpt1": 0, "scaled": 1}
EXCHANGES |= {"scaled, uncorrected": 1, "adafactor": 1, "factored": 2, "unscaled": 2}
EXCHANGES |= {"muon": 4, "original": 4, "schedule-free": 0, "lion": 0}
"""How often processes exchange in a step: Muon for each update of maps, others once or twice."""
WAYS = list(product(EXCHANGES, (0, 1, 2), (3, 2, 7)))


class Threads:
    def __init__(self, size):
        self.size, self.n_exchanges, self._given = size, [0] * size, [None] * size
        self._barrier = threading.Barrier(size, timeout=20)

    def total(self, rank):
        def add_up(values):
            self.n_exchanges[rank] += 1
            self._given[rank] = values.clone()
            self._barrier.wait()
            total = torch.stack(self._given).sum(0)
            self._barrier.wait()
            return values.copy_(total)

        return add_up

    def run(self, work):
        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(work, range(self.size)))


def part_of(tensor, axis, rank, size):
    """A process's part, as PyTorch divides: the last are shorter, or have nothing."""
    length = -(-tensor.shape[axis] // size)
    start, stop = (min(number * length, tensor.shape[axis]) for number in (rank, rank + 1))
    return tensor.narrow(axis, start, stop - start)


def gradients():
    return [draw(DIVIDED, seed=step + 1, scale=10.0 ** (step - 1)) for step in range(3)]


def train_part(config, axes, processes, rank):
    def divide(tensors):
        size, all_axes = processes.size, axes.items()
        return {k: part_of(tensors[k], axis, rank, size).clone() for k, axis in all_axes}

    parameters = trainable(divide(draw(DIVIDED, scale=0.1)))
    parts = {parameters[name]: (DIVIDED[name], axis) for name, axis in axes.items()}
    division = Division(parts, processes.total(rank), rank, processes.size)
    optimizer = build_optimizer(config, parameters, DIVIDED_ROLES, division=division)
    for each in gradients():
        take(optimizer, parameters, divide(each))
    return parameters, optimizer_tensors(optimizer, parameters)


@pytest.mark.parametrize(("name", "which", "size"), rows(WAYS, 11))
def test_parts_move_and_are_kept_as_of_the_whole(double, monkeypatch, name, which, size):
    # Of two matrices of 5 rows one process has 3, another 2: alone it would take both at a time.
    monkeypatch.setattr(optimizers, "CPU_UPDATE_PART", 2 * 2 * 8)
    config, axes = TABLES[name], {k: min(which, len(shape) - 1) for k, shape in DIVIDED.items()}
    whole = trainable(draw(DIVIDED, scale=0.1))
    optimizer, processes = build_optimizer(config, whole, DIVIDED_ROLES), Threads(size)
    for each in gradients():
        take(optimizer, whole, each)
    whole_state = optimizer_tensors(optimizer, whole)
    trained = processes.run(lambda rank: train_part(config, axes, processes, rank))
    assert which < 2 or processes.n_exchanges == [3 * EXCHANGES[name]] * size
    for rank, (parameters, state) in enumerate(trained):
        for each, value in whole.items():
            expected = part_of(value.detach(), axes[each], rank, size)
            torch.testing.assert_close(parameters[each].detach(), expected, rtol=1e-12, atol=1e-14)
        assert state.keys() == whole_state.keys()
        for full_name, value in whole_state.items():
            key, _, each = full_name.partition("/")
            kept = config.state_axes(DIVIDED[each], DIVIDED_ROLES[each])[key]
            if axes[each] in kept:
                value = part_of(value, kept.index(axes[each]), rank, size)
            torch.testing.assert_close(state[full_name], value, rtol=1e-12, atol=1e-14)
