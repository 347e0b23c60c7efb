"""The tasks of a study in its folder: found again, and never made twice."""

import json

import pytest

from sublayer.errors import ConfigError
from sublayer.study.cluster.tasks_file import Submitted, TasksFile, check_left

RUN = "arms/0-gelu/seed-0"


@pytest.fixture
def tasks_file(tmp_path):
    made = TasksFile.open(tmp_path, "slurm:small", None, "cpu")
    made.hosts = ["node1"]
    made.submit(RUN, Submitted(task="12", number=2, lost=1, reached="step-00000100"))
    return made


def test_what_was_submitted_is_found_again(tasks_file, tmp_path):
    again = TasksFile.open(tmp_path, "slurm:small", None, "cuda")
    assert again == tasks_file
    assert again.device == "cpu"  # as the study's runs were begun
    content = json.loads((tmp_path / "cluster" / "tasks.json").read_text())
    assert content["runs"][RUN]["task"] == "12"


def test_a_device_that_is_named_is_that_of_the_runs_from_then_on(tasks_file, tmp_path):
    assert TasksFile.open(tmp_path, "slurm:small", "cuda", "cpu").device == "cuda"


def test_a_run_that_has_ended_is_forgotten(tasks_file, tmp_path):
    tasks_file.end(RUN)
    assert TasksFile.open(tmp_path, "slurm:small", None, "cpu").runs == {}


def test_what_one_cluster_has_is_neither_submitted_to_another_nor_made_here(tasks_file, tmp_path):
    line = r"has 1 of its runs on slurm:small, arms/0-gelu/seed-0 first: join them with --on slurm"
    with pytest.raises(ConfigError, match=line):
        TasksFile.open(tmp_path, "ray", None, "cpu")
    with pytest.raises(ConfigError, match=line):
        check_left(tmp_path)


def test_what_has_ended_on_one_cluster_goes_on_anywhere(tasks_file, tmp_path):
    files = tasks_file.files(RUN)
    files.folder.mkdir(parents=True)
    files.write_end(1, {"end": "died"})
    with pytest.raises(ConfigError, match="join them"):
        check_left(tmp_path)  # an earlier try
    files.write_end(2, {"end": "done"})
    check_left(tmp_path)
    assert TasksFile.open(tmp_path, "ray", None, "cpu").runs == {}


def test_a_study_without_a_cluster_has_nothing_left(tmp_path):
    check_left(tmp_path)


def test_a_damaged_file_is_a_line(tasks_file, tmp_path):
    (tmp_path / "cluster" / "tasks.json").write_text('{"on": 3}')
    with pytest.raises(ConfigError, match=r"tasks.json"):
        check_left(tmp_path)
