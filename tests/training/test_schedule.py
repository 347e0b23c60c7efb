"""Schedules of the learning rate; the pace of steps, measurements, progress, precision."""

import json
import math
import time
from typing import get_args

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboardX.proto.event_pb2 import Event

from sublayer.config.load import read_run_recipe
from sublayer.config.optimizers import AdamWConfig, LambConfig
from sublayer.config.resolve import resolve_optimizer
from sublayer.data.prepare import prepare
from sublayer.errors import ConfigError
from sublayer.files.cache_folder import cache_folder
from sublayer.runs.session import resolve
from sublayer.system.terminal import PlainStages, shown_by
from sublayer.training import speed
from sublayer.training.log import METRICS, MetricsLog, ShownProgress, Status, cut_back, read_metrics
from sublayer.training.loop import has_changed
from sublayer.training.speed import (
    Clocks,
    Measurement,
    bfloat16_gain,
    fastest_precision,
    keep,
    median_step,
    recall,
)
from sublayer.training.step import FALLS, learning_rate
from tests.breadth import examples
from tests.training.runs import ALONE, Notes, results


def rates(steps, schedule, **settings):
    config = resolve_optimizer(AdamWConfig(lr=1.0, schedule=schedule, **settings), steps=steps)
    return [learning_rate(config, step, steps) for step in range(steps)]


def half_cosine(share):
    return (1 + math.cos(share * math.pi)) / 2


TO_A_FIFTH = {"power": 2.0, "warmup_steps": 2, "final_lr_share": 0.2}
TO_A_TENTH = {"warmup_steps": 2, "final_lr_share": 0.1}
FAIRSEQ = {"warmup_steps": 4, "warmup_init_lr": 0.2}
"""As fairseq counts, from the first rate."""
OF_ALBERT = {"warmup": "albert", "warmup_steps": 4}
TO_A_HALF = {**OF_ALBERT, "power": 2.0, "final_lr_share": 0.5}
OF_GPT1 = {"warmup": "gpt1", "warmup_steps": 4}
"""Of 20 steps x = step / 20 and w = 0.2: linear min(1, x/w) (1 - x)."""
OF_T5 = {"warmup": "constant", "warmup_steps": 10_000}


@pytest.mark.parametrize("schedule, settings, expected", [
    ("constant", {"warmup_steps": 4}, [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]),
    ("linear", {"warmup_steps": 2}, [0.5, 1, 1, 0.75, 0.5, 0.25]),
    # A quarter, a half and three quarters of the way down from update 2, towards a fifth.
    ("polynomial", TO_A_FIFTH, [0.5, 1, 1, *(0.2 + 0.8 * x**2 for x in (0.75, 0.5, 0.25))]),
    ("inverse-sqrt", {"warmup_steps": 2}, [0.5, 1, *(math.sqrt(2 / n) for n in (3, 4, 5))]),
    ("inverse-sqrt", FAIRSEQ, [0.2, 0.4, 0.6, 0.8, *(2 / n**0.5 for n in range(4, 17))]),
    # ALBERT drops to a fall measured from the first update.
    ("linear", OF_ALBERT, [0, 0.25, 0.5, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
    ("polynomial", TO_A_HALF, [0, 0.25, 0.5, 0.75, *(0.5 + n**2 / 200 for n in range(6, 0, -1))]),
    ("constant", OF_GPT1, [0, 0.25, 0.5, 0.75, 1, 1]),
    ("linear", OF_GPT1, [0, 0.2375, 0.45, 0.6375, *(1 - step / 20 for step in range(4, 20))]),
    # The cosine is not started anew behind the warm-up.
    ("cosine", OF_GPT1, [0, 0.25, 0.5, 0.75, 1, *(half_cosine(n / 20) for n in range(5, 20))]),
    ("cosine", TO_A_TENTH, [0.5, 1, *(0.1 + 0.9 * half_cosine(n / 8) for n in range(8))]),
    # A warm-up at the peak may be longer than the run, which may end on a line.
    ("inverse-sqrt", {**OF_T5, "cooldown_share": 0.1}, [*[1.0] * 19, 0.5]),
    ("inverse-sqrt", {**OF_T5, "warmup_steps": 1}, [1, *(n**-0.5 for n in (1, 2, 3, 4))]),
    ("constant", {"warmup_steps": 2, "cooldown_share": 0.4}, [0.5, *[1] * 6, 0.75, 0.5, 0.25]),
    ("constant", {"warmup_steps": 2, "cooldown_share": 1.0}, [0.5, 0.75, 0.5, 0.25]),
])  # fmt: skip
def test_rates_by_hand(schedule, settings, expected):
    assert rates(len(expected), schedule, **settings) == pytest.approx(expected)


def test_every_schedule_of_a_recipe_has_a_curve_and_a_warm_up_share_becomes_steps():
    annotation = AdamWConfig.model_fields["schedule"].annotation
    assert {*FALLS, "constant", "inverse-sqrt"} == set(get_args(annotation))
    assert resolve_optimizer(AdamWConfig(warmup_share=0.1), steps=200).warmup_steps == 20
    assert resolve_optimizer(AdamWConfig(), steps=200).warmup_steps == 10
    config = LambConfig(schedule="linear", warmup="albert")
    assert resolve_optimizer(config, steps=5).warmup_steps == 1


@pytest.mark.parametrize("settings, message", [
    ({"schedule": "inverse-sqrt", "warmup_steps": 0}, "inverse-sqrt needs .*warmup_steps"),
    ({"warmup": "albert", "warmup_steps": 0}, "warmup = albert needs .*warmup_steps .* 1"),
    ({"warmup": "albert", "warmup_share": 0.0}, "needs optimizer.warmup_steps"),
    ({"warmup": "gpt1", "warmup_steps": 0}, "warmup = gpt1 needs optimizer.warmup_steps"),
])  # fmt: skip
def test_warm_ups_that_no_run_has_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        resolve_optimizer(AdamWConfig(**{"schedule": "linear", **settings}), steps=20)


def events_of(folder):
    """Read TensorBoard's events: records of a length and content, each with a checksum behind."""
    [path] = folder.glob("tensorboard/events.out.tfevents.*")
    data = path.read_bytes()
    while data:
        length = int.from_bytes(data[:8], "little")
        yield Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]


def test_a_log_opened_again_goes_on_behind_its_checkpoint_and_its_events_with_it(tmp_path):
    start = time.time()
    with MetricsLog(tmp_path, 0) as log:
        for step in (1, 2, 3):
            log.write("train", step, {"loss": float(step)})
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"kind": "train", "st')
    with MetricsLog(tmp_path, 1) as log:
        log.write("train", 2, {"loss": 20.0, "tokens": 7})
        log.write("valid", 2, {"loss": math.nan})
    *found, third = map(json.loads, (tmp_path / METRICS).read_text().splitlines())
    first = {"kind": "train", "step": 1, "loss": 1.0}
    assert found == [first, {"kind": "train", "step": 2, "loss": 20.0, "tokens": 7}]
    assert math.isnan(third.pop("loss")) and third == {"kind": "valid", "step": 2}
    version, *events = events_of(tmp_path)
    assert version.file_version == "brain.Event:2"
    values = [(event.step, value) for event in events for value in event.summary.value]
    found = [f"{step} {value.tag} {value.simple_value}" for step, value in values]
    lines = ["1 train/loss 1.0", "2 train/loss 20.0", "2 train/tokens 7.0", "2 valid/loss nan"]
    assert found == lines
    times = [start, *(event.wall_time for event in events), time.time()]
    assert times == sorted(times)


def test_damaged_lines_are_left_out_and_the_file_as_it_was_is_kept(tmp_path):
    path, row = tmp_path / METRICS, b'{"kind": "%s", "step": %d, "loss": 0.5}'
    good = [row % (b"train", 1), row % (b"valid", 2)]
    bad = [b"\xff", b"[" * 10_000, b'{"kind": "train", "step": "2"}', b'{"kind": "x", "step": 1}']
    path.write_bytes(b"\n".join([good[0], *bad, b"7" * 100_000, b"", good[1], b""]))
    before = path.read_bytes()
    assert [line["step"] for line in read_metrics(path)] == [1, 2]
    cut_back(path, 5)
    assert path.read_bytes() == b"\n".join([*good, b""])
    assert (tmp_path / "refused-metrics.jsonl-1").read_bytes() == before


def test_no_link_is_followed_and_no_file_of_the_users_is_removed(tmp_path):
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / METRICS).symlink_to("theirs")
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "mine").write_text("mine")
    with MetricsLog(tmp_path, 0) as log:
        log.write("train", 1, {"loss": 1.0})
    found = [(tmp_path / name).read_text() for name in ("theirs", "tensorboard/mine")]
    assert found == ["theirs", "mine"]


def lines_of(steps, **status):
    lines, clock = [], FakeClock()
    stages = PlainStages(lines.append, clock, has_thread=False)
    with shown_by(stages), ShownProgress(clock) as progress:
        for at, step in steps:
            while clock.now < at:
                clock.now += 0.5
                stages.tick()
            progress.update(Status(step, 100, 2.5, 1000.0, **status))
    return lines


def test_the_first_and_the_last_step_have_a_line_each_and_slow_steps_one_in_ten_seconds():
    first = "step 1/100  loss 2.5000  1,000 tokens/s"
    last = "step 100/100  loss 2.5000  1,000 tokens/s  ETA 0:00"
    assert lines_of([(0.5, 1), (0.9, 50), (0.9, 100)]) == [first, last]
    lines, about = lines_of([(0.5, 1), (40.0, 2)]), "about 1:04:31 to go, by the first steps"
    assert (len(lines), lines[0], lines[-1]) == (5, first, about)
    lines = lines_of([(0.0, 20), (30.0, 50), (60.0, 80), (80.0, 100)], valid_loss=2.25)
    steps = [line for line in lines if line.startswith("step ")]
    # After 60 steps in a minute, 20 are left.
    assert all("valid 2.2500" in line for line in steps)
    assert any("step 80/100" in line and "ETA 0:20" in line for line in steps)


CPU = torch.device("cpu")


class FakeClock:
    now = 0.0

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
    calls, given = [], {"budget_s": 1e6, "device": CPU, "clock": FakeClock()}
    median_step(calls.append, **given, agree=lambda goes_on: len(calls) < 5)
    assert calls == [0, 1, 2, 3, 4]


@examples(100)
@given(step_s=st.floats(1e-3, 1e4), budget_s=st.floats(0.0, 100.0))
def test_no_step_is_begun_that_would_not_end_in_time(step_s, budget_s):
    median, n, seconds = median_of([step_s] * 23, budget_s=budget_s)
    assert median == pytest.approx(step_s)
    assert n == 1 or seconds <= budget_s * 1.001


@pytest.mark.parametrize("seconds, is_changed", [
    ([5.0, *[1.49] * 19], False), ([5.0, *[1.51] * 19], True), ([5.0, *[0.49] * 19], True),
    ([1.0, *[1.0] * 10, *[99.0] * 9], False), ([1.9], False), ([0.4], True),
])  # fmt: skip
def test_first_steps_that_differ_by_more_than_half_are_another_pace(seconds, is_changed):
    assert has_changed(seconds, 1.0) == is_changed


def spoil_newest_pace(factor):
    kept = cache_folder() / "measured.json"
    found = json.loads(kept.read_text())
    newest = max((key for key in found if "pace on" in key), key=lambda key: found[key]["at"])
    values = [factor * value for value in found[newest]["values"]]
    found[newest] = {"values": values, "at": time.time() - 7300}
    kept.write_text(json.dumps(found))


def test_a_run_whose_first_steps_show_another_pace_begins_again(run, tmp_path):
    # The step that is kept is saved after the check alone, so that nothing of the first is left.
    kept = {"model.dropout": 0.1, "train.keep_steps": [2], "optimizer.schedule": "constant"}
    kept |= {"optimizer.warmup_steps": 1}
    settings = {"train.minutes": 0.02, **kept}
    first = run("first", settings)
    assert first["minutes"]["asked"] == 0.02
    assert first["minutes"]["used"] == pytest.approx(first["seconds"] / 60, abs=1e-3)
    # Too fast, which no other program can make true: it would only make the steps of now slower.
    spoil_newest_pace(0.05)
    notes = Notes()
    record = run("second", settings, progress=notes)
    ends = ("measured 2 hours ago", "measuring the pace again", "measured now")
    said = [text for text in notes.texts if "measur" in text]
    assert all(text.endswith(end) for text, end in zip(said, ends, strict=True))
    # Nothing of the first attempt is left: a run of that length alone ends with the same bits.
    assert read_run_recipe(tmp_path / "second" / "recipe.toml").train.steps == record["step"]
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
    old = {key: {**entry, "at": entry["at"] - 8 * 86400} for key, entry in found.items()}
    kept.write_text(json.dumps(old))
    assert resolve(loaded.recipe, data, ALONE).train.steps < 0.5 * second.train.steps


class Processor(FakeClock):
    def __init__(self, *, float32, bfloat16):
        self.speed = {torch.float32: float32, torch.bfloat16: bfloat16}

    def mm(self, a, b):
        self.now += 2 * a.shape[0] ** 3 / self.speed[a.dtype]
        return a

    def linear(self, x, weight):
        dtype = torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32
        self.now += 6 * x.numel() * weight.shape[0] / self.speed[dtype]
        return torch.nn.functional.linear(x, weight)


@pytest.mark.parametrize("float32, bfloat16, units, gain", [
    (60e9, 200e9, True, 200 / 60),
    # A limit that the answer does not know, and units that it does not know.
    (18e9, 0.4e9, True, 0.0), (18e9, 60e9, False, 60 / 18), (40e9, 1e6, True, 0.0),
    (40e9, 1e8, False, 0.0),
])  # fmt: skip
def test_the_product_overrules_what_the_processor_says(monkeypatch, float32, bfloat16, units, gain):
    processor = Processor(float32=float32, bfloat16=bfloat16)
    monkeypatch.setattr(torch, "mm", processor.mm)
    monkeypatch.setattr(speed, "linear", processor.linear)
    monkeypatch.setattr(speed, "has_bfloat16_units", lambda: units)
    assert bfloat16_gain(64, Clocks(processor, processor)) == pytest.approx(gain, abs=0.01)
    assert processor.now < 0.2


def test_this_processor_is_measured_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path))
    threads, first = torch.get_num_threads(), fastest_precision(CPU, 100)
    assert torch.get_num_threads() == threads
    monkeypatch.setattr(speed, "bfloat16_gain", None)
    assert fastest_precision(CPU, 128) == first
    assert fastest_precision(torch.device("mps"), 128) == "float32"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_measurements_are_recalled_with_their_time_until_they_are_the_oldest(cache, monkeypatch):
    assert recall("speed", 2) is None
    assert keep("speed", [1.5, 2], clock=lambda: 77.0) == Measurement((1.5, 2.0), 77.0)
    keep("other", [3.0], clock=lambda: 78.0)
    assert (recall("speed", 2), recall("speed", 1)) == (Measurement((1.5, 2.0), 77.0), None)
    with monkeypatch.context() as patch:
        patch.setenv("ATEN_CPU_CAPABILITY", "AVX2")
        assert recall("speed", 2) is None, "another limit of the processor is another machine"
    with monkeypatch.context() as patch:
        patch.setenv("KMP_INIT_AT_FORK", "FALSE")  # as scikit-learn does when it is imported
        assert recall("speed", 2) is not None
    monkeypatch.setattr(speed, "_MOST", 2)
    keep("speed", [4.0, 5.0], clock=lambda: 79.0)
    assert (recall("speed", 2), recall("other", 1).at) == (Measurement((4.0, 5.0), 79.0), 78.0)
    keep("third", [1.0], clock=lambda: 80.0)
    assert recall("other", 1) is None and recall("speed", 2).at == 79.0
    path = cache / "measured.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"odd": {"values": "x", "at": 81}}))
    keep("third", [2.0], clock=lambda: 82.0)
    assert recall("speed", 2).at == 79.0, "one damaged entry leaves the others"


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
NUMBERS = st.integers(-(10**39), 10**39) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.booleans() | NUMBERS | TEXTS
VALUES = SCALARS | st.lists(SCALARS, max_size=4) | st.dictionaries(TEXTS, SCALARS, max_size=4)
VALUES |= st.lists(VALUES, max_size=4) | st.dictionaries(TEXTS, VALUES, max_size=4)


@given(VALUES | st.none() | VALUES.map(lambda value: {"values": [value], "at": value}))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_cache_of_measurements_stops_nothing(cache, entry):
    keep("speed", [1.0])
    path = cache / "measured.json"
    (key,) = json.loads(path.read_text())
    for content in (json.dumps({key: entry, "another": entry}), json.dumps(entry), str(entry)):
        path.write_text(content)
        found = recall("speed", 1)
        assert found is None or (found.values[0] >= 0 and found.at >= 0)
        keep("speed", [3.0])
        assert recall("speed", 1).values == (3.0,)
    path.unlink()
    path.mkdir()
    assert recall("speed", 1) is None and keep("speed", [3.0]).values == (3.0,)
    path.rmdir()
