"""A run's measurements, cut back where it is resumed, their events, and the lines of progress."""

import json
import math
import time

import pytest
from tensorboardX.proto.event_pb2 import Event

from sublayer.interop.tensorflow.crc32c import masked_crc32c
from sublayer.system.stage_displays import PlainStages
from sublayer.system.stages import shown_by
from sublayer.training.metrics import METRICS, MetricsLog, cut_back, read_metrics
from sublayer.training.progress import ShownProgress, Status


def events_of(folder):
    """Read TensorBoard's events: records of a length and content, each with its checksum."""
    [path] = folder.glob("tensorboard/events.out.tfevents.*")
    data = path.read_bytes()
    while data:
        length = int.from_bytes(data[:8], "little")
        content = data[12 : 12 + length]
        sums = [int.from_bytes(data[start : start + 4], "little") for start in (8, 12 + length)]
        assert sums == [masked_crc32c(data[:8]), masked_crc32c(content)]
        yield Event.FromString(content)
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
    lines = (tmp_path / METRICS).read_text().splitlines()
    first, second, third = (json.loads(line) for line in lines)
    assert first == {"kind": "train", "step": 1, "loss": 1.0}
    assert second == {"kind": "train", "step": 2, "loss": 20.0, "tokens": 7}
    assert math.isnan(third.pop("loss")) and third == {"kind": "valid", "step": 2}
    version, *events = events_of(tmp_path)
    assert version.file_version == "brain.Event:2"
    assert [
        (event.step, value.tag, str(value.simple_value))
        for event in events
        for value in event.summary.value
    ] == [
        (1, "train/loss", "1.0"),
        (2, "train/loss", "20.0"),
        (2, "train/tokens", "7.0"),
        (2, "valid/loss", "nan"),
    ]
    times = [start, *(event.wall_time for event in events), time.time()]
    assert times == sorted(times)


def test_damaged_lines_are_left_out_and_the_file_as_it_was_is_kept(tmp_path):
    path = tmp_path / METRICS
    good = [b'{"kind": "train", "step": 1, "loss": 0.5}']
    good += [b'{"kind": "valid", "step": 2, "loss": 0.5}']
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
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert (tmp_path / "tensorboard" / "mine").read_text() == "mine"


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


def lines_of(steps, **status):
    """The lines in a pipe of a run of 100 steps, of which some end at given seconds."""
    lines, clock = [], Clock()
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
    lines = lines_of([(0.5, 1), (40.0, 2)])
    assert (len(lines), lines[0], lines[-1]) == (
        5,
        first,
        "about 1:04:31 to go, by the first steps",
    )


@pytest.mark.parametrize("valid", [None, 2.25])
def test_what_is_left_follows_from_the_steps_that_were_seen(valid):
    lines = lines_of([(0.0, 20), (30.0, 50), (60.0, 80), (80.0, 100)], valid_loss=valid)
    # After 60 steps in a minute, 20 are left.
    assert any("step 80/100" in line and "ETA 0:20" in line for line in lines)
    steps = [line for line in lines if line.startswith("step ")]
    assert all(("valid 2.2500" in line) == (valid is not None) for line in steps)
