"""An optimizer's state may have any shape: saved by name, checked when it is read."""

from collections.abc import Mapping
from typing import Literal

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.base import Axes, OptimizerTable, Shape, all_axes
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.config.optimizers.sgd import SgdConfig
from sublayer.errors import CheckpointError
from sublayer.files.tensor_parts import StoredTensors, read_stored_headers
from sublayer.runs.resolution import resolve
from sublayer.runs.session import Place, assemble, prepare_data
from sublayer.training.checkpoints.layout import TRAINING
from sublayer.training.checkpoints.loop_state import LoopState
from sublayer.training.checkpoints.snapshots import Snapshots
from sublayer.training.optimizers.build import (
    BUILDERS,
    build_optimizer,
    check_state,
    optimizer_tensors,
    restore_optimizer,
)
from sublayer.training.processes.world import World
from sublayer.training.step import TrainStep

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


def headers_of(path):
    return read_stored_headers(StoredTensors(path, path.parent))


class RowsConfig(OptimizerTable):
    """Each row divided by the root of the mean square of its gradients, and one scale for all."""

    kind: Literal["rows"] = "rows"
    weight_decay: float = 0.0

    def state_axes(self, shape: Shape) -> Mapping[str, Axes]:
        return {"squares": all_axes(shape)[:-1], "largest": ()}


class Rows(torch.optim.Optimizer):
    def __init__(self, groups, *, lr):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group["lr"])

    def _update(self, parameter, lr):
        state = self.state[parameter]
        if not state:
            state["squares"] = torch.zeros(parameter.shape[:-1])
            state["largest"] = torch.zeros(())
        state["squares"].mul_(0.9).add_(parameter.grad.square().sum(-1))
        state["largest"].copy_(torch.maximum(state["largest"], parameter.grad.abs().max()))
        rows = state["squares"].sqrt()[..., None] + state["largest"] + 1e-8
        parameter.add_(parameter.grad / rows, alpha=-lr)


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    monkeypatch.setitem(BUILDERS, "rows", lambda config, groups, _: Rows(groups, lr=config.lr))


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


@pytest.mark.parametrize("config", TABLES.values(), ids=TABLES)
def test_a_table_names_the_state_that_its_optimizer_keeps(config):
    optimizer, parameters = made(config)
    step(optimizer, parameters, 1)
    expected = {
        f"{key}/{name}": shape
        for name, parameter in parameters.items()
        for key, shape in config.state_shapes(tuple(parameter.shape)).items()
    }
    found = optimizer_tensors(optimizer, parameters)
    assert {name: tuple(value.shape) for name, value in found.items()} == expected


def test_adafactor_keeps_rows_and_columns_of_each_matrix_of_a_stack():
    optimizer, parameters = made(AdafactorConfig(min_factored=4))
    step(optimizer, parameters, 1)
    found = optimizer_tensors(optimizer, parameters)
    assert {name: tuple(value.shape) for name, value in found.items() if value.dim()} == {
        "exp_avg_sq/matrix": (3, 2),
        "exp_avg_sq_row/stacked": (2, 5),
        "exp_avg_sq_col/stacked": (2, 4),
        "exp_avg_sq/vector": (7,),
    }


def test_a_vector_for_each_row_and_a_scalar_are_saved_and_restored(tmp_path):
    shapes = {"matrix": (3, 2), "stacked": (2, 5, 3)}
    optimizer, parameters = made(RowsConfig(), shapes)
    step(optimizer, parameters, 1)
    saved = {name: each.detach().clone() for name, each in parameters.items()}
    save_file(optimizer_tensors(optimizer, parameters), tmp_path / "state")
    headers = headers_of(tmp_path / "state")
    assert {name: header.shape for name, header in headers.items()} == {
        "squares/matrix": [3],
        "squares/stacked": [2, 5],
        "largest/matrix": [],
        "largest/stacked": [],
    }
    again, others = made(RowsConfig(), shapes)
    check_state(RowsConfig(), others, headers, tmp_path / "state")
    restore_optimizer(again, others, load_file(tmp_path / "state"))
    for name, value in saved.items():
        others[name].data.copy_(value)
    for each in ((optimizer, parameters), (again, others)):
        step(*each, 2)
    for name, parameter in parameters.items():
        assert torch.equal(parameter, others[name])
        assert not torch.equal(parameter, saved[name])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"squares/matrix": torch.zeros(2)},
            r"state squares/matrix is F32 of shape \[2\], optimizer.kind = rows asks for F32 of "
            r"shape \[3\]",
        ),
        (
            {"largest/matrix": torch.zeros(1)},
            r"largest/matrix is F32 of shape \[1\], .* shape \[\]",
        ),
        (
            {"squares/matrix": torch.zeros(3, dtype=torch.float64)},
            r"squares/matrix is F64 of shape \[3\], .* asks for F32 of shape \[3\]",
        ),
        ({"exp_avg/matrix": torch.zeros(3, 2)}, "exp_avg/matrix belongs to no parameter"),
        ({"squares/other": torch.zeros(3)}, "squares/other belongs to no parameter"),
        ({"largest/matrix": None}, "has no largest/matrix"),
        ({"largest/matrix": None, "squares/matrix": None}, "state is missing"),
    ],
)
def test_state_of_another_shape_or_name_is_refused_with_both(tmp_path, change, message):
    optimizer, parameters = made(RowsConfig(), {"matrix": (3, 2)})
    step(optimizer, parameters, 1)
    tensors = {**optimizer_tensors(optimizer, parameters), **change}
    kept = {name: value for name, value in tensors.items() if value is not None}
    save_file(kept, tmp_path / "state")
    with pytest.raises(CheckpointError, match=message):
        check_state(RowsConfig(), parameters, headers_of(tmp_path / "state"), tmp_path / "state")


def test_state_that_is_no_tensor_is_not_left_out_in_silence():
    optimizer, parameters = made(RowsConfig(), {"matrix": (3, 2)})
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
    assert RowsConfig().states_per_parameter == 0


@pytest.mark.slow
def test_a_checkpoint_keeps_state_of_any_shape(tiny, tmp_path):
    place = Place(torch.device("cpu"), World(rank=0, size=1))
    loaded = tiny({"model.dropout": 0.0})
    data = prepare_data(loaded.recipe)

    def snapshots(folder):
        opened = assemble(resolve(loaded.recipe, data, place), data, place)
        recipe = opened.recipe.model_copy(update={"optimizer": RowsConfig(warmup_steps=0)})
        train_step = TrainStep(
            recipe,
            opened.train_step.objective,
            opened.train_step.batches,
            device=place.device,
            world=place.world,
        )
        return train_step, Snapshots(folder, train_step, lambda folder: None)

    train_step, saved = snapshots(tmp_path)
    train_step(0)
    saved.saving.save(LoopState(step=1, tokens=1, seconds=1.0, step_seconds=1.0))
    saved.saving.wait()
    train_step(1)
    again, snapshot = snapshots(tmp_path)
    found = snapshot.newest(print)
    assert found is not None
    assert snapshot.restore(found).step == 1
    shapes = {name: header.shape for name, header in headers_of(found / TRAINING).items()}
    assert shapes["squares/model.decoder.sublayers.0.0.function.projection.weight"] == [3, 24]
    again(1)
    for name, parameter in train_step.parameters.items():
        assert torch.equal(parameter, again.parameters[name])
