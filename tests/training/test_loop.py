"""The loop, its metrics and its progress: losses, the best checkpoint, notes, logs that are cut."""

import json
import math
import os
import re
import time
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event

from sublayer.errors import ConfigError, TrainingError
from sublayer.files.checkpoints import saved_steps
from sublayer.interop.tensorflow.crc32c import masked_crc32c
from sublayer.system.stage_displays import PlainStages
from sublayer.system.stages import shown_by
from sublayer.training import metrics
from sublayer.training.checkpoints.loop_state import LoopState
from sublayer.training.checkpoints.snapshots import Snapshots
from sublayer.training.loop import Evaluate, Loop
from sublayer.training.metrics import METRICS, MetricsLog, cut_back, read_metrics
from sublayer.training.progress import ShownProgress, SilentProgress, Status
from tests.made import MASKED, TRANSLATION
from tests.training.runs import Notes, open_session


def test_a_run_learns_and_leaves_its_record(made):
    folder = made("causal")
    record, lines = json.loads((folder / "record.json").read_text()), read_metrics(folder / METRICS)
    valid = [line for line in lines if line["kind"] == "valid"]
    assert valid[-1]["loss"] < valid[0]["loss"]
    best = record["valid"]
    assert best["loss"] == min(line["loss"] for line in valid)
    assert best["bits_per_byte"] == pytest.approx(best["loss"] / math.log(2))
    assert (record["step"], record["tokens"]) == (24, 24 * 6 * 32)
    assert [line["step"] for line in lines if line["kind"] == "train"] == [*range(3, 25, 3)]
    seconds = [0.0, *(line["seconds"] for line in lines), record["seconds"] + 0.01]
    assert seconds == sorted(seconds)


def test_the_model_of_a_run_is_its_best_checkpoint(run, tmp_path):
    # A learning rate that ruins the model: the last evaluation is not the best.
    ruinous = {"optimizer.schedule": "constant", "optimizer.lr": 0.5, "train.steps": 8}
    record = run("run", {**ruinous, "train.evaluate_steps": 2, "optimizer.warmup_steps": 5})
    best = record["valid"]["step"]
    assert best < 8
    checkpoint = tmp_path / "run" / "checkpoints" / f"step-{best:08d}"
    model, kept = (each / "model" / "model.safetensors" for each in (tmp_path / "run", checkpoint))
    assert model.read_bytes() == kept.read_bytes()


@pytest.mark.parametrize(
    ("losses", "kept"),
    [
        ([1.0, 2.0, 3.0, 4.0], [6, 20, 24]),
        # The checkpoint of step 20 cannot be resumed without that of step 6.
        ([2.0, 3.0, 4.0, 1.0], [6, 20, 24]),
        ([4.0, 2.0, 3.0, 1.0], [12, 20, 24]),
    ],
)
def test_the_newest_checkpoints_and_the_best_of_each_are_kept(tiny, tmp_path, losses, kept):
    snapshots = train_with_losses(tiny(), tmp_path, losses)
    assert saved_steps(snapshots.root) == kept


def train_with_losses(loaded, folder, losses):
    """Train a tiny run, whose evaluations give these losses; return its checkpoints."""
    session = open_session(loaded)
    snapshots = Snapshots(folder, session.train_step, lambda folder: None)
    given = iter(losses)
    evaluate = Evaluate(lambda: {"loss": next(given)}, ("loss",))
    Loop(session.recipe.train, session.train_step, evaluate, snapshots, LoopState()).run(
        SilentProgress()
    )
    return snapshots


def test_a_loss_that_is_not_finite_stops_the_run_and_names_step_and_checkpoint(run, tmp_path):
    ruinous = {"optimizer.lr": 1e6, "optimizer.weight_decay": 0.1, "optimizer.warmup_steps": 0}
    with pytest.raises(
        TrainingError, match=r"not finite at step \d+ of 24; there is no checkpoint"
    ) as caught:
        run("run", ruinous)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_validation_loss_that_is_not_finite_is_never_the_best(tiny, tmp_path):
    session = open_session(tiny())
    snapshots = Snapshots(tmp_path, session.train_step, lambda folder: None)
    ruined = {"loss": float("nan"), "bits_per_byte": float("nan")}
    evaluate = Evaluate(lambda: ruined, ("loss", "bits_per_byte"))
    loop = Loop(session.recipe.train, session.train_step, evaluate, snapshots, LoopState())
    with pytest.raises(TrainingError, match="validation loss is not finite at step 6"):
        loop.run(SilentProgress())
    assert loop.state.best is None


def test_only_translations_are_chosen_by_bleu(run):
    with pytest.raises(ConfigError, match="train.best_by = 'bleu' has no effect"):
        run("run", {"train.best_by": "bleu"})


def test_compilation_on_a_cpu_is_refused_with_the_reason(run):
    with pytest.raises(ConfigError, match="train.compile"):
        run("run", {"train.compile": True})


def test_rows_that_the_text_does_not_fill_are_noted_before_training(run, tmp_path):
    for number in range(40):
        (tmp_path / f"{number:02}.txt").write_text(
            f"the cat sat {number}.\nthe dog ran {number}.\n" if number % 4 else " "
        )
    notes = Notes()
    settings = {
        "data.path": str(tmp_path / "*.txt"),
        "data.documents": "file",
        "train.batch_sequences": 2,
    }
    run("short", {**MASKED, **settings, "train.steps": 1, "data.vocab_size": 5000}, progress=notes)
    (unfilled,) = [
        text
        for text in notes.texts
        if text.startswith("data.vocab_size = 5000, of which the training")
    ]
    left_out = [text.split() for text in notes.texts[notes.texts.index(unfilled) + 1 :]]
    assert sum(int(words[5]) for words in left_out) == 10


def test_unknown_tokens_of_a_vocabulary_are_noted_before_training(run, tmp_path):
    (tmp_path / "few.codes").write_text("#version: 0.2\no n</w>\nt h\nth e</w>\n")
    settings = {key: value for key, value in TRANSLATION.items() if key != "data.vocab_size"}
    settings |= {"data.tokenizer": str(tmp_path / "few.codes"), "train.steps": 1}
    for given, n_notes in ((settings, 1), ({**TRANSLATION, "train.steps": 1}, 0)):
        notes = Notes()
        run(f"run {n_notes}", given, progress=notes)
        found = [
            text for text in notes.texts if re.match(r"\d[\d,]* of [\d,]+ tokens .* unknown", text)
        ]
        assert len(found) == n_notes


@pytest.mark.parametrize(
    ("settings", "expected"), [({}, 0), (TRANSLATION, 3)], ids=["windows", "pairs"]
)
def test_memory_of_blocks_of_many_shapes_is_released_at_each_line_of_the_log(
    run, monkeypatch, settings, expected
):
    released = []
    monkeypatch.setattr("sublayer.training.loop.release_freed_memory", lambda: released.append(1))
    run("run", {**settings, "train.steps": 6, "train.log_steps": 2})
    assert len(released) == expected


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
        with pytest.raises(OSError, match="no file that stays"):
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


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_of(steps: list[tuple[float, int]], **status: Any) -> list[str]:
    """The lines in a pipe of a run of 100 steps, of which some end at given seconds."""
    lines: list[str] = []
    clock = Clock()
    stages = PlainStages(lines.append, clock, has_thread=False)
    with shown_by(stages), ShownProgress(clock) as progress:
        for at, step in steps:
            while clock.now < at:
                clock.now += 0.5
                stages.tick()
            progress.update(Status(step, 100, 2.5, 1000.0, **status))
    return lines


def test_the_first_and_the_last_step_have_a_line_each() -> None:
    assert lines_of([(0.5, 1), (0.9, 50), (0.9, 100)]) == [
        "step 1/100  loss 2.5000  1,000 tokens/s",
        "step 100/100  loss 2.5000  1,000 tokens/s  ETA 0:00",
    ]


def test_slow_steps_have_a_line_every_ten_seconds() -> None:
    lines = lines_of([(0.5, 1), (40.0, 2)])
    assert lines[0] == "step 1/100  loss 2.5000  1,000 tokens/s"
    assert len(lines) == 5
    assert lines[-1] == "about 1:04:31 to go, by the first steps"


@pytest.mark.parametrize("valid", [None, 2.25])
def test_what_is_left_follows_from_the_steps_that_were_seen(valid: float | None) -> None:
    lines = lines_of([(0.0, 20), (30.0, 50), (60.0, 80), (80.0, 100)], valid_loss=valid)
    # After 60 steps in a minute, 20 are left.
    assert any("step 80/100" in line and "ETA 0:20" in line for line in lines)
    steps = [line for line in lines if line.startswith("step ")]
    assert all(("valid 2.2500" in line) == (valid is not None) for line in steps)
