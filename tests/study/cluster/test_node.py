"""The process of a task on its node: it waits for a folder, and says what kept it from its run."""

import errno
import json
import threading
from pathlib import Path

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError, FolderHeld
from sublayer.study.cluster import node
from sublayer.study.cluster.exchange import DIED, Progress, RunFiles
from sublayer.study.execution.job import FOLDER_HELD, Job, end_message, read_end
from sublayer.study.execution.one_run import FAILURE
from sublayer.system.lock import held
from tests.study.studies import TINY, write_text


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A run whose training failed, so that it is quickly made again."""
    monkeypatch.setattr(node.os, "dup2", lambda one, other: None)  # the output is the tests'
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "run"
    path.mkdir()
    (path / FAILURE).write_text('{"message": "it diverged"}')
    settings = [*TINY, f"data.path={write_text(tmp_path / 'river.txt')}", "train.steps=5"]
    recipe = load_recipe("gpt", settings).recipe
    return Job("one", path, recipe, recipe, {}, "cpu")


def made(tmp_path: Path, files: RunFiles, stopping: threading.Event) -> int:
    return node._OneRun(tmp_path, files, 1, stopping).make()


def test_a_folder_that_is_held_is_waited_for_until_the_task_has_to_stop(tmp_path, job):
    stopping = threading.Event()

    class Stopping(RunFiles):
        def write_progress(self, progress: Progress) -> None:
            super().write_progress(progress)
            if "where another process works" in progress.stage:
                stopping.set()

    files = Stopping(tmp_path / "files")
    files.write_job(job)
    with held(job.path):
        assert made(tmp_path, files, stopping) == 0
    end = files.read_end(1)
    assert end is not None
    assert end.end == FOLDER_HELD


def test_that_a_folder_is_held_is_told_from_other_mistakes(tmp_path):
    with held(tmp_path), pytest.raises(FolderHeld) as caught, held(tmp_path):
        pass
    message = end_message(caught.value)
    assert message is not None
    assert message["end"] == FOLDER_HELD
    assert isinstance(read_end(message, "one"), FolderHeld)
    other = end_message(ConfigError("another mistake"))
    assert other is not None
    assert other["end"] == ConfigError.__name__


@pytest.mark.slow
def test_a_folder_that_is_taken_before_the_run_takes_it_is_waited_for(tmp_path, job):
    (job.path / FAILURE).unlink()
    lock = held(job.path)
    looked = []

    class Late(node._OneRun):
        def _is_free(self, folder: Path) -> bool:
            looked.append(folder)
            if len(looked) == 1:
                lock.__enter__()
            else:
                lock.__exit__(None, None, None)
            return True

    files = RunFiles(tmp_path / "files")
    files.write_job(job)
    assert Late(tmp_path, files, 1, threading.Event()).make() == 0
    end = files.read_end(1)
    assert end is not None
    assert end.end == "done"
    assert len(looked) == 2


class Unwritten(RunFiles):
    """Files of which some cannot be written."""

    def write_progress(self, progress: Progress) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")


@pytest.mark.slow
def test_a_run_is_made_where_its_progress_cannot_be_written(tmp_path, job):
    files = Unwritten(tmp_path / "files")
    files.write_job(job)
    assert made(tmp_path, files, threading.Event()) == 0
    end = files.read_end(1)
    assert end is not None
    assert end.end == "done"


def test_why_a_run_was_not_begun_is_said_where_that_can_be(tmp_path, job):
    files = RunFiles(tmp_path / "files")
    files.write_job(job)
    files.log(1).mkdir()  # which no log can replace
    assert made(tmp_path, files, threading.Event()) == 0
    end = files.read_end(1)
    assert end is not None
    assert end.end == DIED
    assert "its process could not begin it ([Errno 21] Is a directory" in end.text


def test_an_end_is_written_as_soon_as_it_can_be(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(node, "_WRITE_S", 0.0)
    left = [OSError(errno.ENOSPC, "No space left on device")] * 3

    class Full(RunFiles):
        def write_end(self, number: int, end: dict[str, str]) -> None:
            if left:
                raise left.pop()
            super().write_end(number, end)

    files = Full(tmp_path / "files")
    files.folder.mkdir()
    assert made(tmp_path, files, threading.Event()) == 0  # without a job
    assert json.loads((files.folder / "end-1.json").read_text())["end"] == DIED
    left.extend([OSError(errno.ENOSPC, "No space left on device")] * 100)
    assert made(tmp_path, files, threading.Event()) == 1
    assert "cannot be written: [Errno 28] No space left on device" in capfd.readouterr().err
