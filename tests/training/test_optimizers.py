"""The state of every optimizer: its shapes, how it is saved, refused and restored."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.config.optimizers.sgd import SgdConfig
from sublayer.errors import CheckpointError
from sublayer.files.tensor_parts import StoredTensors, read_stored_headers
from sublayer.training.checkpoints.layout import TRAINING
from sublayer.training.checkpoints.loop_state import LoopState
from sublayer.training.checkpoints.snapshots import Snapshots
from sublayer.training.optimizers.build import (
    build_optimizer,
    check_state,
    optimizer_tensors,
    restore_optimizer,
)
from tests.breadth import rows
from tests.training.optimizer_steps import draw, own, take
from tests.training.runs import open_session

SHAPES = {"matrix": (3, 2), "stacked": (2, 5, 4), "vector": (7,), "scalar": ()}
ROLES = {"matrix": "matrix", "stacked": "stacked"}
"""By the names of the shapes; all others are vectors."""
TABLES = {
    **{kind: table() for kind, table in OPTIMIZERS.items()},
    "without momentum": SgdConfig(momentum=0.0),
    "uncorrected": AdamWConfig(bias_correction=False),
    "gpt1": AdamWConfig(form="gpt1"),
    "published": LambConfig(form="published"),
    "factored": AdafactorConfig(min_factored=4),
    "scaled": AdamWConfig(parameter_scale=True),
    "scaled, uncorrected": AdamWConfig(parameter_scale=True, bias_correction=False),
}


FACTORED = TABLES["factored"]
ROW = "exp_avg_sq_row"
ALL_OF_MATRIX = [f"{ROW}/matrix", "exp_avg_sq_col/matrix", "step/matrix"]


def headers_of(path):
    return read_stored_headers(StoredTensors(path, path.parent))


def made(config, shapes=SHAPES):
    generator = torch.Generator().manual_seed(0)
    parameters = {
        name: nn.Parameter(torch.randn(shape, generator=generator))
        for name, shape in shapes.items()
    }
    roles = {name: ROLES.get(name, "vector") for name in shapes}
    return build_optimizer(config, parameters, roles), parameters


def step(optimizer, parameters, number):
    generator = torch.Generator().manual_seed(number)
    for parameter in parameters.values():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()


@pytest.mark.parametrize("name", rows(TABLES, 6))
def test_a_table_names_the_state_that_its_optimizer_keeps(name):
    config = TABLES[name]
    optimizer, parameters = made(config)
    step(optimizer, parameters, 1)
    expected = {
        f"{key}/{name}": shape
        for name, parameter in parameters.items()
        for key, shape in config.state_shapes(tuple(parameter.shape)).items()
    }
    found = optimizer_tensors(optimizer, parameters)
    assert {name: tuple(value.shape) for name, value in found.items()} == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({f"{ROW}/matrix": torch.zeros(2)}, rf"{ROW}/matrix .* \[2\], .* \[6\]"),
        ({"step/matrix": torch.zeros(1)}, r"step/matrix .* \[1\], .* \[\]"),
        ({f"{ROW}/matrix": torch.zeros(6, dtype=torch.float64)}, f"{ROW}/matrix is F64 .* F32"),
        ({"exp_avg/matrix": torch.zeros(6, 5)}, "exp_avg/matrix belongs to no parameter"),
        ({f"{ROW}/other": torch.zeros(6)}, f"{ROW}/other belongs to no parameter"),
        ({"step/matrix": None}, "has no step/matrix"),
        (dict.fromkeys(ALL_OF_MATRIX), "state is missing"),
    ],
)
def test_state_of_another_shape_or_name_is_refused(tmp_path, change, message):
    optimizer, parameters = made(FACTORED, {"matrix": (6, 5)})
    step(optimizer, parameters, 1)
    tensors = {**optimizer_tensors(optimizer, parameters), **change}
    kept = {name: value for name, value in tensors.items() if value is not None}
    save_file(kept, tmp_path / "state")
    with pytest.raises(CheckpointError, match=message):
        check_state(FACTORED, parameters, headers_of(tmp_path / "state"), tmp_path / "state")


def test_state_that_is_no_tensor_is_not_left_out_in_silence():
    optimizer, parameters = made(FACTORED, {"matrix": (6, 5)})
    optimizer.state[parameters["matrix"]] = {"n": 3}
    with pytest.raises(AssertionError, match="n is no tensor"):
        optimizer_tensors(optimizer, parameters)


def test_memory_counts_the_states_that_are_as_large_as_the_parameters():
    counts = {name: config.states_per_parameter for name, config in TABLES.items()}
    worked_out = {
        "sgd": 1,
        "without momentum": 0,
        "adam": 2,
        "adamw": 2,
        "uncorrected": 2,
        "lamb": 2,
        "published": 2,
        "adafactor": 1,
        "factored": 1,
        "scaled": 2,
    }
    assert counts.items() >= worked_out.items()


def test_a_checkpoint_keeps_state_of_any_shape(tiny, tmp_path):
    loaded = tiny(
        {"model.dropout": 0.0, "optimizer.kind": "adafactor", "optimizer.min_factored": 8}
    )
    first, second = (open_session(loaded).train_step for _ in range(2))
    first(0)
    saved = Snapshots(tmp_path, first, lambda folder: None)
    saved.saving.save(LoopState(step=1, tokens=1, seconds=1.0, step_seconds=1.0))
    saved.saving.wait()
    snapshots = Snapshots(tmp_path, second, lambda folder: None)
    found = snapshots.newest(print)
    assert snapshots.restore(found).step == 1
    headers = headers_of(found / TRAINING)
    assert headers[f"{ROW}/model.decoder.sublayers.0.0.function.output.weight"].shape == [24]
    for train_step in (first, second):
        train_step(1)
    for name, parameter in first.parameters.items():
        assert torch.equal(parameter, second.parameters[name])


OF_ROLES = {"matrix": (5, 7), "stacked": (2, 6, 5), "embedding": (11, 4), "vector": (3, 13)}
"""Of each role one, of its name."""
ROLE_OF = {name: name for name in OF_ROLES}
WRITTEN_HERE = {
    "lamb": LambConfig(form="albert"),
    "published lamb": LambConfig(form="published"),
    "uncorrected adamw": AdamWConfig(bias_correction=False),
    "gpt1's adam": AdamWConfig(form="gpt1"),
    "scaled adamw": AdamWConfig(lr=0.1, parameter_scale=True),
    "scaled, uncorrected adamw": AdamWConfig(lr=0.1, parameter_scale=True, bias_correction=False),
    "adafactor": AdafactorConfig(),
    "factored adafactor": AdafactorConfig(min_factored=4),
    "unscaled adafactor": AdafactorConfig(parameter_scale=False),
}
ONE_OF_EACH_CLASS = ["lamb", "uncorrected adamw", "gpt1's adam", "scaled adamw", "adafactor"]


@pytest.mark.parametrize("name", ONE_OF_EACH_CLASS)
def test_a_parameter_without_a_gradient_is_left_alone_until_it_has_one(name):
    config = WRITTEN_HERE[name]
    start = draw({"always": (5, 7), "late": (5, 7)})
    parameters, fresh = own(start), own({"late": start["late"]})
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
    before = parameters["always"].detach().clone()
    take(optimizer, parameters, {})
    assert torch.equal(parameters["always"], before)


@pytest.mark.parametrize("config", WRITTEN_HERE.values(), ids=WRITTEN_HERE)
def test_an_optimizer_restored_from_its_tensors_continues_to_the_bit(tmp_path, config):
    parameters = own(draw(OF_ROLES))
    optimizer = build_optimizer(config, parameters, ROLE_OF)
    for step in range(3):
        take(optimizer, parameters, draw(OF_ROLES, seed=step + 1))
    again = own({name: value.detach() for name, value in parameters.items()})
    restored = build_optimizer(config, again, ROLE_OF)
    kept = optimizer_tensors(optimizer, parameters)
    save_file(kept, tmp_path / "state")
    check_state(config, again, headers_of(tmp_path / "state"), tmp_path / "state")
    restore_optimizer(restored, again, load_file(tmp_path / "state"))
    for step in range(3, 6):
        take(optimizer, parameters, draw(OF_ROLES, seed=step + 1))
        take(restored, again, draw(OF_ROLES, seed=step + 1))
    assert all(torch.equal(value, again[name]) for name, value in parameters.items())


@pytest.mark.parametrize("name", ONE_OF_EACH_CLASS)
def test_a_step_asks_for_no_tensors_value_and_leaves_gradients_as_they_are(name):
    config = WRITTEN_HERE[name]
    # Tensors on this device have no values: what would wait for a GPU fails here.
    meta = {name: torch.empty(shape, device="meta") for name, shape in OF_ROLES.items()}
    parameters = {name: nn.Parameter(value) for name, value in meta.items()}
    optimizer = build_optimizer(config, parameters, ROLE_OF)
    for _ in range(2):
        take(optimizer, parameters, meta)
    assert all(value.is_meta for value in optimizer_tensors(optimizer, parameters).values())
    gradients = draw(OF_ROLES, seed=1)
    kept = {name: value.clone() for name, value in gradients.items()}
    real = own(draw(OF_ROLES))
    take(build_optimizer(config, real, ROLE_OF), real, gradients)
    assert all(torch.equal(gradients[name], kept[name]) for name in OF_ROLES)
