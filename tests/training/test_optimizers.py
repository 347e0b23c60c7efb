"""The state of every optimizer: its shapes, how it is refused and restored."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.config.optimizers.sgd import SgdConfig
from sublayer.errors import CheckpointError
from sublayer.files.tensor_parts import StoredTensors, read_stored_headers
from sublayer.training.optimizers.build import (
    build_optimizer,
    check_state,
    optimizer_tensors,
    restore_optimizer,
)
from tests.breadth import rows
from tests.training.optimizer_steps import ROLES, SHAPES, draw, take, trainable

TABLES = {
    **{kind: table() for kind, table in OPTIMIZERS.items()},
    "without momentum": SgdConfig(momentum=0.0),
    "uncorrected": AdamWConfig(bias_correction=False),
    "gpt1": AdamWConfig(form="gpt1"),
    "published": LambConfig(form="published"),
    "scaled": AdamWConfig(lr=0.1, parameter_scale=True),
    "scaled, uncorrected": AdamWConfig(lr=0.1, parameter_scale=True, bias_correction=False),
    "unscaled": AdafactorConfig(parameter_scale=False),
    "factored": AdafactorConfig(min_factored=4),
}
WRITTEN_HERE = ["lamb", "uncorrected", "gpt1", "scaled", "adafactor"]
"""Of each class one."""
FACTORED = TABLES["factored"]
ROW = "exp_avg_sq_row"
ALL_OF_MATRIX = [f"{ROW}/matrix", "exp_avg_sq_col/matrix", "step/matrix"]


def headers_of(path):
    return read_stored_headers(StoredTensors(path, path.parent))


@pytest.mark.parametrize("name", rows(TABLES, 8))
def test_an_optimizer_restored_from_the_state_of_its_table_continues_to_the_bit(tmp_path, name):
    config, shapes = TABLES[name], {**SHAPES, "scalar": ()}
    roles = {**ROLES, "scalar": "vector"}
    parameters = trainable(draw(shapes))
    optimizer = build_optimizer(config, parameters, roles)
    for step in range(3):
        take(optimizer, parameters, draw(shapes, seed=step + 1))
    kept = optimizer_tensors(optimizer, parameters)
    assert {name: tuple(value.shape) for name, value in kept.items()} == {
        f"{key}/{name}": of_state
        for name, shape in shapes.items()
        for key, of_state in config.state_shapes(shape).items()
    }
    again = trainable(parameters)
    restored = build_optimizer(config, again, roles)
    save_file(kept, tmp_path / "state")
    check_state(config, again, headers_of(tmp_path / "state"), tmp_path / "state")
    restore_optimizer(restored, again, load_file(tmp_path / "state"))
    for step in range(3, 6):
        take(optimizer, parameters, draw(shapes, seed=step + 1))
        take(restored, again, draw(shapes, seed=step + 1))
    assert all(torch.equal(value, again[name]) for name, value in parameters.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({f"{ROW}/matrix": torch.zeros(2)}, rf"{ROW}/matrix .* \[2\], .* \[6\]"),
        ({f"{ROW}/matrix": torch.zeros(6, dtype=torch.float64)}, f"{ROW}/matrix is F64 .* F32"),
        ({"exp_avg/matrix": torch.zeros(6, 5)}, "exp_avg/matrix belongs to no parameter"),
        ({f"{ROW}/other": torch.zeros(6)}, f"{ROW}/other belongs to no parameter"),
        ({"step/matrix": None}, "has no step/matrix"),
        (dict.fromkeys(ALL_OF_MATRIX), "state is missing"),
    ],
)
def test_state_of_another_shape_or_name_is_refused(tmp_path, change, message):
    parameters = trainable(draw({"matrix": (6, 5)}))
    optimizer = build_optimizer(FACTORED, parameters, ROLES)
    take(optimizer, parameters, draw({"matrix": (6, 5)}))
    tensors = {**optimizer_tensors(optimizer, parameters), **change}
    kept = {name: value for name, value in tensors.items() if value is not None}
    save_file(kept, tmp_path / "state")
    with pytest.raises(CheckpointError, match=message):
        check_state(FACTORED, parameters, headers_of(tmp_path / "state"), tmp_path / "state")


@pytest.mark.parametrize("name", WRITTEN_HERE)
def test_a_parameter_without_a_gradient_is_left_alone_until_it_has_one(name):
    config = TABLES[name]
    start = draw({"always": (5, 7), "late": (5, 7)})
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
