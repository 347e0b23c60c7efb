"""Minutes become steps by a median, whose age is said, and which the first steps of a run check."""

import json
import re
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.data.prepare import prepare
from sublayer.errors import ConfigError
from sublayer.files.cache_folder import cache_folder
from sublayer.runs.resolution import resolve
from sublayer.runs.run import measure_step
from sublayer.runs.session import Place
from sublayer.training.processes.world import World
from sublayer.training.step_time import (
    Pace,
    describe_age,
    describe_length,
    describe_use,
    has_changed,
    median_step,
)
from tests.training.conftest import Notes
from tests.training.test_resume import results

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


def test_a_pace_is_the_median_after_the_warm_up():
    # Three slow steps are the warm-up; one of the others, held up by something, moves nothing.
    assert median_of([9.0, 5.0, 5.0, 0.1, 0.2, 7.0, 0.1, 0.1, *[0.1] * 20], budget_s=1e6)[
        0
    ] == pytest.approx(0.1)


def test_no_more_steps_are_taken_than_are_needed():
    assert median_of([0.01] * 100, budget_s=1e6)[1] == 23
    assert median_of([0.01] * 100, budget_s=1e6, most=4)[1] == 4


@given(step_s=st.floats(1e-3, 1e4), budget_s=st.floats(0.0, 100.0))
def test_no_step_is_begun_that_would_not_end_in_time(step_s, budget_s):
    median, n, seconds = median_of([step_s] * 23, budget_s=budget_s)
    assert median == pytest.approx(step_s)
    assert n == 1 or seconds <= budget_s * 1.001


def test_processes_that_take_steps_together_stop_together():
    calls = []
    median_step(
        calls.append,
        budget_s=1e6,
        device=CPU,
        clock=FakeClock(),
        agree=lambda goes_on: len(calls) < 5,
    )
    assert calls == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("seconds", "is_changed"),
    [
        ([5.0, *[1.0] * 19], False),
        ([5.0, *[1.49] * 19], False),
        ([5.0, *[1.51] * 19], True),
        ([5.0, *[0.51] * 19], False),
        ([5.0, *[0.49] * 19], True),
        ([1.0, *[1.0] * 10, *[99.0] * 9], False),
        ([1.9], False),
        ([0.4], True),
    ],
)
def test_first_steps_that_differ_by_more_than_half_are_another_pace(seconds, is_changed):
    assert has_changed(seconds, 1.0) == is_changed


def test_what_minutes_become_is_said_with_the_age_of_the_measurement():
    assert (
        describe_length(1, 412, Pace(0.1234, 1.0)) == "1 minute: 412 steps of 0.12 s, measured now"
    )
    assert (
        describe_length(10, 1, Pace(416.2, 1.0, 3.2 * 86400))
        == "10 minutes: 1 step of 416 s, measured 3 days ago"
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "now"),
        (1.0, "1 second ago"),
        (59.9, "59 seconds ago"),
        (60, "1 minute ago"),
        (7300, "2 hours ago"),
    ],
)
def test_an_age_is_said_in_one_unit(seconds, said):
    assert describe_age(seconds) == said


@pytest.mark.parametrize("share", [0.61, 1.0, 1.49])
def test_a_run_that_took_about_its_minutes_says_nothing(share):
    assert describe_use(2.0, 120.0 * share) is None


def test_a_run_that_missed_its_minutes_says_so():
    assert describe_use(2.0, 60.0) == (
        "it took 1 of the 2 minutes asked for (50%): steps were faster than when their pace was "
        "measured"
    )
    assert "(160%): steps were slower" in (describe_use(2.0, 192.0) or "")


def spoil_newest_pace(factor):
    kept = cache_folder() / "measured.json"
    found = json.loads(kept.read_text())
    newest = max((key for key in found if "pace on" in key), key=lambda key: found[key]["at"])
    found[newest] = {
        "values": [factor * each for each in found[newest]["values"]],
        "at": time.time() - 7300,
    }
    kept.write_text(json.dumps(found))


@pytest.mark.slow
def test_a_run_whose_first_steps_show_another_pace_begins_again_as_if_for_the_first_time(
    run, tmp_path
):
    # The step that is kept is saved after the check alone, so that nothing of the first is left.
    kept = {"model.dropout": 0.1, "train.keep_steps": [2]}
    settings = {"train.minutes": 0.02, **kept}
    run("first", settings)
    # Too fast, which no other program can make true: it would only make the steps of now slower.
    spoil_newest_pace(0.05)

    notes = Notes()
    record = run("second", settings, progress=notes)
    said = [text for text in notes.texts if "step" in text]
    assert re.fullmatch(r"0\.02 minutes: [\d,]+ steps? of .* s, measured 2 hours ago", said[0])
    assert re.fullmatch(
        r"the first (step|\d+ steps) took .* s each, not .* s: measuring the pace again", said[1]
    )
    assert re.fullmatch(r"0\.02 minutes: [\d,]+ steps? of .* s, measured now", said[2])
    assert len(said) == 3

    # Nothing of the first attempt is in what it ends with: a run of that length alone ends with the
    # same bits.
    resolved = read_run_recipe(tmp_path / "second" / "recipe.toml").train
    assert resolved.steps == record["step"]
    run("alone", {**kept, "train.steps": record["step"]})
    assert results(tmp_path / "second") == results(tmp_path / "alone")


@pytest.mark.slow
def test_a_record_says_what_the_run_used_of_its_minutes(run):
    record = run("one", {"train.minutes": 0.02})
    used = record["minutes"]
    assert used["asked"] == 0.02
    assert used["used"] == pytest.approx(record["seconds"] / 60, abs=1e-3)
    assert (used["note"] is None) == (0.6 <= record["seconds"] / 1.2 <= 1.5)
    assert run("two", {"train.steps": 6})["minutes"] is None


@pytest.mark.slow
def test_minutes_are_not_refused_for_a_pace_of_another_time(run):
    settings = {"train.minutes": 0.02, "model.dropout": 0.2}
    run("one", settings)
    spoil_newest_pace(1000.0)
    notes = Notes()
    run("two", settings, progress=notes)
    assert notes.texts[0].endswith("measured now")


def test_a_warm_up_of_steps_is_held_against_the_steps_that_fit_into_the_minutes(tiny):
    steps = 1_000_000
    warm_up = {"optimizer.schedule": "inverse-sqrt", "optimizer.warmup_steps": steps}
    loaded = tiny({"train.minutes": 0.02, "model.dropout": 0.5, **warm_up})
    recipe, place = loaded.recipe, Place(CPU, World(rank=0, size=1))
    data = prepare(recipe.data)
    with pytest.raises(ConfigError) as refused:
        resolve(recipe, data, place)
    said = re.search(r"= 1000000 is longer than the run of ([\d,]+) steps", str(refused.value))
    # A step that takes 2 µs or less would be needed for more.
    assert said
    assert said[1] != "1000"
    spoil_newest_pace(1e-7)
    assert resolve(recipe, data, place).train.steps > steps
    assert measure_step(loaded, data, budget_s=0.0) > 0


@pytest.mark.slow
def test_a_pace_of_today_that_holds_is_used_again_without_measuring(run, tmp_path):
    settings = {"train.minutes": 0.02, "model.dropout": 0.3}
    notes, later = Notes(), Notes()
    first, second = (
        run("one", settings, progress=notes)["step"],
        run("two", settings, progress=later)["step"],
    )
    assert any(text.endswith("measured now") for text in notes.texts)
    if not any(
        "again" in text for text in later.texts
    ):  # what another program does is not ours to say
        assert first == second
        assert not any(text.endswith("measured now") for text in later.texts)


@pytest.mark.slow
def test_a_pace_is_too_old_after_a_week(run):
    settings = {"train.minutes": 0.02, "model.dropout": 0.4}
    run("one", settings)
    kept = cache_folder() / "measured.json"
    found = json.loads(kept.read_text())
    for entry in found.values():
        entry["at"] -= 8 * 86400
    kept.write_text(json.dumps(found))
    notes = Notes()
    run("two", settings, progress=notes)
    assert any(text.endswith("measured now") for text in notes.texts)
