"""The pace of steps that minutes become a length by, and the faster precision of this machine."""

import json
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.data.prepare import prepare
from sublayer.files.cache_folder import cache_folder
from sublayer.runs.resolution import resolve
from sublayer.training import precision
from sublayer.training.precision import Clocks, bfloat16_gain, fastest_precision, product_speed
from sublayer.training.step_time import describe_age, describe_use, has_changed, median_step
from tests.breadth import examples
from tests.training.runs import ALONE, Notes, results

CPU = torch.device("cpu")


class FakeClock:
    """A clock that only moves when something takes time."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def median_of(durations, *, budget_s, most=23):
    clock, taken = FakeClock(), []

    def take_step(step):
        taken.append(step)
        clock.now += durations[step]

    median = median_step(take_step, budget_s=budget_s, device=CPU, clock=clock, most=most)
    assert taken == list(range(len(taken)))
    return median, len(taken), clock.now


def test_a_pace_is_the_median_after_the_warm_up_of_no_more_steps_than_are_needed():
    # Three slow steps are the warm-up; one of the others, held up by something, moves nothing.
    durations = [9.0, 5.0, 5.0, 0.1, 0.2, 7.0, *[0.1] * 90]
    assert median_of(durations, budget_s=1e6)[:2] == (pytest.approx(0.1), 23)
    assert median_of([0.01] * 100, budget_s=1e6, most=4)[1] == 4


@examples(100)
@given(step_s=st.floats(1e-3, 1e4), budget_s=st.floats(0.0, 100.0))
def test_no_step_is_begun_that_would_not_end_in_time(step_s, budget_s):
    median, n, seconds = median_of([step_s] * 23, budget_s=budget_s)
    assert median == pytest.approx(step_s)
    assert n == 1 or seconds <= budget_s * 1.001


def test_processes_that_take_steps_together_stop_together():
    calls = []
    settings = {"budget_s": 1e6, "device": CPU, "clock": FakeClock()}
    median_step(calls.append, **settings, agree=lambda goes_on: len(calls) < 5)
    assert calls == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("seconds", "is_changed"),
    [
        ([5.0, *[1.49] * 19], False),
        ([5.0, *[1.51] * 19], True),
        ([5.0, *[0.49] * 19], True),
        ([1.0, *[1.0] * 10, *[99.0] * 9], False),
        ([1.9], False),
        ([0.4], True),
    ],
)
def test_first_steps_that_differ_by_more_than_half_are_another_pace(seconds, is_changed):
    assert has_changed(seconds, 1.0) == is_changed


def test_a_run_that_missed_its_minutes_and_the_age_of_a_pace_are_noted():
    assert describe_use(2.0, 120.0 * 0.61) is describe_use(2.0, 120.0 * 1.49) is None
    assert "(50%): steps were faster" in describe_use(2.0, 60.0)
    assert "(160%): steps were slower" in describe_use(2.0, 192.0)
    assert (describe_age(0.9), describe_age(59.9)) == ("now", "59 seconds ago")
    assert describe_age(7300) == "2 hours ago"


def spoil_newest_pace(factor):
    kept = cache_folder() / "measured.json"
    found = json.loads(kept.read_text())
    newest = max((key for key in found if "pace on" in key), key=lambda key: found[key]["at"])
    values = [factor * value for value in found[newest]["values"]]
    found[newest] = {"values": values, "at": time.time() - 7300}
    kept.write_text(json.dumps(found))


def test_a_run_whose_first_steps_show_another_pace_begins_again(run, tmp_path):
    # The step that is kept is saved after the check alone, so that nothing of the first is left.
    kept = {"model.dropout": 0.1, "train.keep_steps": [2]}
    settings = {"train.minutes": 0.02, **kept}
    first = run("first", settings)
    assert first["minutes"]["asked"] == 0.02
    assert first["minutes"]["used"] == pytest.approx(first["seconds"] / 60, abs=1e-3)
    # Too fast, which no other program can make true: it would only make the steps of now slower.
    spoil_newest_pace(0.05)
    notes = Notes()
    record = run("second", settings, progress=notes)
    before, again, after = [text for text in notes.texts if "step" in text]
    assert before.endswith("measured 2 hours ago")
    assert again.endswith("measuring the pace again")
    assert after.endswith("measured now")
    # Nothing of the first attempt is left: a run of that length alone ends with the same bits.
    resolved = read_run_recipe(tmp_path / "second" / "recipe.toml").train
    assert resolved.steps == record["step"]
    assert run("alone", {**kept, "train.steps": record["step"]})["minutes"] is None
    assert results(tmp_path / "second") == results(tmp_path / "alone")


def test_a_kept_pace_is_used_for_a_week(tiny):
    loaded = tiny({"train.minutes": 0.02, "model.dropout": 0.3})
    data = prepare(loaded.recipe.data)
    first = resolve(loaded.recipe, data, ALONE)
    spoil_newest_pace(0.1)
    second = resolve(loaded.recipe, data, ALONE)
    assert second.train.steps == pytest.approx(10 * first.train.steps, rel=0.5)
    assert second == resolve(loaded.recipe, data, ALONE)
    kept = cache_folder() / "measured.json"
    found = json.loads(kept.read_text())
    for entry in found.values():
        entry["at"] -= 8 * 86400
    kept.write_text(json.dumps(found))
    assert resolve(loaded.recipe, data, ALONE).train.steps < 0.5 * second.train.steps


class Processor:
    """A processor of given speeds: its clock moves by what is multiplied, and counts it."""

    def __init__(self, *, float32, bfloat16):
        self.speed = {torch.float32: float32, torch.bfloat16: bfloat16}
        self.now = 0.0
        self.largest = 0

    def __call__(self):
        return self.now

    def mm(self, a, b):
        self.largest = max(self.largest, a.shape[0])
        self.now += 2 * a.shape[0] ** 3 / self.speed[a.dtype]
        return a

    def linear(self, x, weight):
        is_low = torch.is_autocast_enabled("cpu")
        dtype = torch.bfloat16 if is_low else torch.float32
        self.now += 6 * x.numel() * weight.shape[0] / self.speed[dtype]
        return torch.nn.functional.linear(x, weight)


@pytest.fixture
def simulate(monkeypatch):
    def install(*, float32, bfloat16, units):
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
        # A limit that the answer does not know, and units that it does not know.
        (18e9, 0.4e9, True, 0.0),
        (18e9, 60e9, False, 60 / 18),
        (40e9, 1e6, True, 0.0),
        (40e9, 1e8, False, 0.0),
    ],
)
def test_the_product_overrules_what_the_processor_says(simulate, float32, bfloat16, units, gain):
    processor = simulate(float32=float32, bfloat16=bfloat16, units=units)
    found = bfloat16_gain(64, Clocks(processor, processor))
    assert found == pytest.approx(gain, abs=0.01)
    # It gives up within a fifth of a second on any emulation.
    assert processor.now < 0.2


@pytest.mark.parametrize("speed", [1e9, 1e11])
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
    # A device without a measurement has float32.
    assert fastest_precision(torch.device("mps"), 128) == "float32"
