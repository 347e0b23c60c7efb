import json
import math
import os
import time

import pytest
from tensorboardX.proto.event_pb2 import Event

from sublayer.interop.tensorflow.crc32c import masked_crc32c
from sublayer.training import metrics
from sublayer.training.metrics import METRICS, MetricsLog, cut_back, read_metrics


def test_lines_after_the_checkpoint_and_half_lines_are_cut(tmp_path):
    path = tmp_path / METRICS
    lines = [{"kind": "train", "step": step, "loss": 0.5} for step in (1, 2, 3)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "train", "st')
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3]
    cut_back(path, 2)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]


def test_a_log_opened_again_goes_on_behind_its_checkpoint(tmp_path):
    with MetricsLog(tmp_path, 0) as log:
        for step in (1, 2, 3):
            log.write("train", step, {"loss": float(step)})
    with MetricsLog(tmp_path, 2) as log:
        log.write("valid", 3, {"loss": 9.0})
    assert [
        (line["kind"], line["step"], line["loss"]) for line in read_metrics(tmp_path / METRICS)
    ] == [
        ("train", 1, 1.0),
        ("train", 2, 2.0),
        ("valid", 3, 9.0),
    ]


def events_of(folder):
    """Read TensorBoard's events: records of a length and content, each with its checksum."""
    [path] = folder.glob("tensorboard/events.out.tfevents.*")
    data = path.read_bytes()
    while data:
        length = int.from_bytes(data[:8], "little")
        for content, end in ((data[:8], 12), (data[12 : 12 + length], 16 + length)):
            assert masked_crc32c(content) == int.from_bytes(data[end - 4 : end], "little")
        yield Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]


def test_events_say_what_the_lines_say(tmp_path):
    start = time.time()
    with MetricsLog(tmp_path, 0) as log:
        for step in (1, 2, 3):
            log.write("train", step, {"loss": float(step)})
    with MetricsLog(tmp_path, 1) as log:
        log.write("train", 2, {"loss": 20.0, "tokens": 7})
        log.write("valid", 2, {"loss": math.nan})
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


def test_events_are_seen_while_a_run_goes_on(tmp_path, monkeypatch):
    with MetricsLog(tmp_path, 0) as log:
        log.write("train", 1, {"loss": 1.0})
        assert [event.step for event in events_of(tmp_path)] == [0, 1]
        log.write("train", 2, {"loss": 2.0})
        log.sync()
        assert [event.step for event in events_of(tmp_path)] == [0, 1, 2]
        monkeypatch.setattr(metrics, "_FLUSH_EVERY_S", 0)
        log.write("train", 3, {"loss": 3.0})
        assert [event.step for event in events_of(tmp_path)] == [0, 1, 2, 3]


def test_damaged_lines_are_left_out_and_the_file_as_it_was_is_kept(tmp_path):
    path = tmp_path / METRICS
    good = [
        b'{"kind": "train", "step": 1, "loss": 0.5}',
        b'{"kind": "valid", "step": 2, "loss": 0.5}',
    ]
    bad = [
        b"\xff",
        b"[" * 10_000,
        b'{"kind": "train", "step": "2"}',
        b'{"kind": "x", "step": 1}',
        b"7" * 100_000,
        b"",
    ]
    path.write_bytes(b"\n".join([good[0], *bad, good[1], b""]))
    before = path.read_bytes()
    assert [line["step"] for line in read_metrics(path)] == [1, 2]
    cut_back(path, 5)
    assert path.read_bytes() == b"\n".join([*good, b""])
    assert (tmp_path / "refused-metrics.jsonl-1").read_bytes() == before


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / METRICS)
    for read in (read_metrics, lambda path: cut_back(path, 1)):
        with pytest.raises(OSError, match="it is no file that stays"):
            read(tmp_path / METRICS)


def test_no_link_is_followed_and_no_file_of_the_users_is_removed(tmp_path):
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / METRICS).symlink_to("theirs")
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "mine").write_text("mine")
    with MetricsLog(tmp_path, 0) as log:
        log.write("train", 1, {"loss": 1.0})
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert (tmp_path / "tensorboard" / "mine").read_text() == "mine"
