"""``sublayer tasks``: the table of tasks, what a folder has of them, and one of them."""

from pathlib import Path

import pytest

from sublayer.tasks.registry import TASKS
from tests.commands.results import Sublayer


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a task of which some rows are odd, and one that cannot be read."""
    rows = ["sentence\tlabel", "fine\t1", "short", "bad\t0", "also short", "?\t-1"]
    files = {
        "glue/SST-2/train.tsv": rows,
        "glue/SST-2/test.tsv": ["index\tsentence", "0\tfine"],
        "glue/RTE/dev.tsv": ["index\tsentence1\tsentence2\tlabel", "0\tA\tB\tperhaps"],
    }
    for name, lines in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "empty"))
    return tmp_path / "empty"


def test_a_folder_is_read_and_what_was_left_out_is_said_with_its_place(
    sublayer: Sublayer, folder: Path
):
    shown = sublayer("tasks", "glue").shown()
    words = " ".join(shown.split())
    assert "train 2, test 1" in words
    assert (
        "sst2, train: 2 rows left out: fewer than 2 fields; "
        "the first is glue/SST-2/train.tsv:3" in words
    )
    assert (
        "sst2, train: 1 row left out: no label (-1 or empty); "
        "the first is glue/SST-2/train.tsv:6" in words
    )
    assert "rte, dev: cannot be read: glue/RTE/dev.tsv:2: 'perhaps' is no label of RTE" in words
    assert "not there: cola, mrpc," in words


def test_json_has_all_that_was_found(sublayer: Sublayer, folder: Path):
    found = sublayer("tasks", "glue", "--json").answer()
    tasks = {task["name"]: task for task in found["tasks"]}
    assert list(tasks) == list(TASKS)
    train = tasks["sst2"]["splits"]["train"]
    assert (train["rows"], train["unlabelled"]) == (2, 0)
    assert train["files"] == ["glue/SST-2/train.tsv"]
    assert train["left_out"]["fewer than 2 fields"] == {
        "rows": 2,
        "first": "glue/SST-2/train.tsv:3",
    }
    assert tasks["sst2"]["splits"]["test"]["unlabelled"] == 1
    assert tasks["rte"]["splits"]["dev"]["rows"] is None
    assert tasks["rte"]["metrics"] == ["accuracy"]
    assert tasks["cola"]["splits"] == {}


def test_an_example_is_shown_of_a_folder(sublayer: Sublayer, folder: Path):
    shown = sublayer("tasks", "sst2", "--show", "--data", "glue", "--row", 1).shown()
    assert "SST-2, train, id 2" in shown
    assert "[CLS] bad [SEP]" in shown
    assert sublayer("tasks", "sst2", "--show").shown().startswith("SST-2\n")


def test_an_example_is_shown_in_the_tokens_of_a_run(
    sublayer: Sublayer, folder: Path, trained: Path
):
    words = ("tasks", "sst2", "--show", "--data", "glue", "--tokenizer", trained, "--json")
    found = sublayer(*words).found()
    assert "_start_" in found["formats"]["traversal"]["marks"]
    assert len(found["formats"]["traversal"]["rows"][0]) == len("fine") + 2
