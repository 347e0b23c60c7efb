"""Optimizers of which each process updates its part, against one that updates all, in threads."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
import torch

from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.training.optimizers import adafactor
from sublayer.training.optimizers.build import build_optimizer, optimizer_tensors
from sublayer.training.optimizers.division import Division, Part
from tests.breadth import rows
from tests.training.optimizer_steps import draw, take, trainable

SHAPES = {
    "matrix": (5, 8),
    "matrix of its shape": (5, 8),
    "stacked": (2, 6, 5),
    "stacked of its shape": (2, 6, 5),
    "embedding": (11, 4),
    "square embedding": (4, 4),
    "vector": (3, 13),
    "vector of its shape": (3, 13),
    "short vector": (1,),
}
"""Of each role some; a part of some is empty, or has the shape of another's whole."""
ROLES = {name: name.split(" of ")[0].split()[-1] for name in SHAPES}
OPTIMIZERS = {
    "lamb": (LambConfig(), 1),
    "published lamb": (LambConfig(form="published"), 1),
    "uncorrected adamw": (AdamWConfig(bias_correction=False), 0),
    "gpt1's adam": (AdamWConfig(form="gpt1"), 0),
    "scaled adamw": (AdamWConfig(parameter_scale=True), 1),
    "scaled, uncorrected adamw": (AdamWConfig(parameter_scale=True, bias_correction=False), 1),
    "adafactor": (AdafactorConfig(), 1),
    "factored adafactor": (AdafactorConfig(min_factored=4), 2),
    "unscaled adafactor": (AdafactorConfig(min_factored=4, parameter_scale=False), 2),
}
"""Each with how often its processes exchange in a step, whatever the number of parameters."""
WAYS = list(product(OPTIMIZERS, (0, 1, 2), (3, 2, 7)))
"""An optimizer, the axis along which parameters are divided, and the number of processes."""


class Threads:
    """Processes that add up what they have, as threads."""

    def __init__(self, size):
        self.size = size
        self.n_exchanges = [0] * size
        self._barrier = threading.Barrier(size, timeout=20)
        self._given = [None] * size

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


def axes_of(which):
    """The axis along which each parameter is divided: the first, second or last that it has."""
    return {name: min(which, len(shape) - 1) for name, shape in SHAPES.items()}


def part_of(tensor, axis, rank, size):
    """A process's part, as PyTorch divides: the last are shorter, or have nothing."""
    length = -(-tensor.shape[axis] // size)
    start, stop = (min(number * length, tensor.shape[axis]) for number in (rank, rank + 1))
    return tensor.narrow(axis, start, stop - start)


def gradients(step):
    # Of growing scale, so that updates are clipped.
    return draw(SHAPES, seed=step + 1, scale=10.0 ** (step % 3 - 1))


def train_part(config, axes, processes, rank, n_steps=3):
    def divide(tensors):
        return {
            name: part_of(value, axes[name], rank, processes.size).clone()
            for name, value in tensors.items()
        }

    parameters = trainable(divide(draw(SHAPES, scale=0.1)))
    parts = {parameters[name]: Part(SHAPES[name], axis) for name, axis in axes.items()}
    division = Division(parts, processes.total(rank))
    optimizer = build_optimizer(config, parameters, ROLES, division=division)
    for step in range(n_steps):
        take(optimizer, parameters, divide(gradients(step)))
    return parameters, optimizer_tensors(optimizer, parameters)


def train_whole(config, n_steps=3):
    parameters = trainable(draw(SHAPES, scale=0.1))
    optimizer = build_optimizer(config, parameters, ROLES)
    for step in range(n_steps):
        take(optimizer, parameters, gradients(step))
    return parameters, optimizer_tensors(optimizer, parameters)


@pytest.mark.parametrize(("name", "which", "size"), rows(WAYS, 11))
def test_parts_move_as_the_whole_does_and_keep_parts_of_its_state(
    double, monkeypatch, name, which, size
):
    # Of two matrices of 5 rows one process has 3, another 2: alone it would take both at a time.
    monkeypatch.setattr(adafactor, "CPU_UPDATE_PART", 2 * 2 * 8)
    (config, _), axes = OPTIMIZERS[name], axes_of(which)
    whole, whole_state = train_whole(config)
    processes = Threads(size)
    trained = processes.run(lambda rank: train_part(config, axes, processes, rank))
    for rank, (parameters, state) in enumerate(trained):
        for name, value in whole.items():
            expected = part_of(value.detach(), axes[name], rank, size)
            torch.testing.assert_close(parameters[name].detach(), expected, rtol=1e-12, atol=1e-14)
        assert state.keys() == whole_state.keys()
        for full_name, value in whole_state.items():
            key, _, name = full_name.partition("/")
            kept = config.state_axes(SHAPES[name])[key]
            if axes[name] in kept:
                value = part_of(value, kept.index(axes[name]), rank, size)
            torch.testing.assert_close(state[full_name], value, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["lamb", "scaled adamw", "factored adafactor"])
def test_processes_exchange_once_for_all_parameters_of_a_step(name):
    config, n_exchanges = OPTIMIZERS[name]
    # Twice where updates go by what was exchanged before. Along the last axis all are divided.
    processes = Threads(2)
    processes.run(lambda rank: train_part(config, axes_of(2), processes, rank))
    assert processes.n_exchanges == [3 * n_exchanges] * 2


@pytest.mark.parametrize("name", ["lamb", "factored adafactor"])
def test_maps_that_are_divided_one_by_one_need_no_exchange(name):
    def total(values):
        raise AssertionError("an exchange")

    maps = {name: shape for name, shape in SHAPES.items() if ROLES[name] == "stacked"}
    parameters = trainable(draw({name: (1, *shape[1:]) for name, shape in maps.items()}))
    parts = {parameters[name]: Part(shape, 0) for name, shape in maps.items()}
    division = Division(parts, total)
    optimizer = build_optimizer(OPTIMIZERS[name][0], parameters, ROLES, division=division)
    take(optimizer, parameters, {name: value.detach() for name, value in parameters.items()})
