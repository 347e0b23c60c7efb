"""What a run's process is told and tells arrives as it was sent."""

from pathlib import Path

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    Interrupted,
    SublayerError,
    TrainingError,
)
from sublayer.study.execution.job import (
    DONE,
    Job,
    end_message,
    read_end,
    read_job,
    read_status,
    status_message,
    write_job,
)
from sublayer.training.progress import Status


@pytest.mark.parametrize("name", ["gpt", "albert-base", "multi30k-tiny", "char-small"])
def test_a_job_is_read_as_it_was_written_in_one_line(name: str) -> None:
    recipe = load_recipe(name, ["train.threads=3", "data.path=é\n.txt"]).recipe
    scored = load_recipe(name, ["train.seed=7"]).recipe
    job = Job("ffn=gelu, seed 3", Path("runs/é"), recipe, scored, {"test": "ab"}, "cuda:1")
    line = write_job(job)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert read_job(line) == job


def test_a_status_is_read_as_it_was_written() -> None:
    status = Status(3, 5, 1.25, 1000.5)
    assert read_status(status_message(status)) == status
    assert read_status({"note": "evaluating"}) is None


@pytest.mark.parametrize(
    "kind", [ConfigError, DataError, CheckpointError, TrainingError, Interrupted]
)
def test_an_error_stays_of_its_kind_and_says_whose_it_is(kind: type[SublayerError]) -> None:
    message = end_message(kind("the text is gone"))
    assert message is not None
    error = read_end(message, "gelu, seed 2")
    assert type(error) is kind
    assert str(error) == "gelu, seed 2: the text is gone"


def test_a_full_disk_and_a_lack_of_memory_stay_what_they_are() -> None:
    message = end_message(OSError(28, "No space left on device", "runs/a"))
    assert message is not None
    full = read_end(message, "gelu, seed 2")
    assert isinstance(full, OSError)
    assert (full.errno, full.filename) == (28, "runs/a")
    message = end_message(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))
    assert message is not None
    lacking = read_end(message, "gelu, seed 2")
    assert isinstance(lacking, ConfigError)
    assert "gelu, seed 2 found too little memory" in str(lacking)


def test_what_is_done_is_no_error_and_what_nobody_can_mend_no_message() -> None:
    assert read_end(DONE, "gelu, seed 2") is None
    assert end_message(KeyError("step")) is None
    assert end_message(RuntimeError("shapes do not fit")) is None
