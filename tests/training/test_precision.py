"""The faster precision is found within a fraction of a second, whatever the processor."""

import os
import subprocess
import sys

import pytest
import torch

from sublayer.training import precision
from sublayer.training.precision import (
    Clocks,
    bfloat16_gain,
    fastest_precision,
    has_bfloat16_units,
    product_speed,
)

CPU = torch.device("cpu")


class Processor:
    """A processor of given speeds: its clock moves by what is multiplied, and counts it."""

    def __init__(self, *, float32: float, bfloat16: float):
        self.speed = {torch.float32: float32, torch.bfloat16: bfloat16}
        self.now = 0.0
        self.largest = 0

    def __call__(self) -> float:
        return self.now

    def mm(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        self.largest = max(self.largest, a.shape[0])
        self.now += 2 * a.shape[0] ** 3 / self.speed[a.dtype]
        return a

    def linear(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        is_low = torch.is_autocast_enabled("cpu")
        self.now += (
            6
            * x.numel()
            * weight.shape[0]
            / self.speed[torch.bfloat16 if is_low else torch.float32]
        )
        return torch.nn.functional.linear(x, weight)


@pytest.fixture
def simulate(monkeypatch):
    def install(*, float32: float, bfloat16: float, units: bool) -> Processor:
        processor = Processor(float32=float32, bfloat16=bfloat16)
        monkeypatch.setattr(torch, "mm", processor.mm)
        monkeypatch.setattr(precision, "linear", processor.linear)
        monkeypatch.setattr(precision, "has_bfloat16_units", lambda: units)
        return processor

    return install


@pytest.mark.parametrize(
    ("float32", "bfloat16", "units", "gain"),
    [
        (60e9, 200e9, True, 200 / 60),
        (60e9, 50e9, True, 50 / 60),
        (18e9, 0.4e9, False, 0.0),
        # A limit that the answer does not know.
        (18e9, 0.4e9, True, 0.0),
        # Units that the answer does not know.
        (18e9, 60e9, False, 60 / 18),
        (1e9, 0.02e9, True, 0.0),
    ],
)
@pytest.mark.parametrize("width", [32, 512])
def test_the_product_overrules_what_the_processor_says(
    simulate, float32, bfloat16, units, gain, width
):
    processor = simulate(float32=float32, bfloat16=bfloat16, units=units)
    found = bfloat16_gain(width, Clocks(processor, processor))
    assert found == pytest.approx(gain, abs=0.01)


@pytest.mark.parametrize("bfloat16", [1e6, 1e7, 1e8, 1e9, 1e10])
@pytest.mark.parametrize("units", [True, False])
def test_it_gives_up_within_a_fifth_of_a_second_on_any_emulation(simulate, bfloat16, units):
    processor = simulate(float32=40e9, bfloat16=bfloat16, units=units)
    bfloat16_gain(512, Clocks(processor, processor))
    assert processor.now < 0.2


@pytest.mark.parametrize("speed", [1e8, 1e9, 1e10, 1e11, 1e12])
def test_a_product_grows_only_while_it_is_quick(simulate, speed):
    processor = simulate(float32=speed, bfloat16=speed / 40, units=False)
    for name, expected in (("float32", speed), ("bfloat16", speed / 40)):
        begun = processor.now
        clocks = Clocks(processor, processor)
        assert product_speed(CPU, name, 2, clocks) == pytest.approx(2 * expected)
        assert processor.now - begun < 0.2
    assert (processor.largest == 1024) == (speed >= 1e11)


def test_this_processor_is_measured_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path))
    threads = torch.get_num_threads()
    first = fastest_precision(CPU, 100)
    assert torch.get_num_threads() == threads
    monkeypatch.setattr(precision, "bfloat16_gain", None)
    assert fastest_precision(CPU, 128) == first


def test_a_device_without_a_measurement_has_float32():
    assert fastest_precision(torch.device("mps"), 128) == "float32"


@pytest.mark.slow
def test_a_limit_of_onednn_reaches_its_answer():
    if not has_bfloat16_units():
        pytest.skip("this processor has no bfloat16 units to be limited")
    code = "from sublayer.training.precision import has_bfloat16_units as has; print(has())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"
