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


def test_all_tasks_are_listed_with_what_the_cache_has(sublayer: Sublayer, empty_cache: Path):
    place = empty_cache / "tasks" / "sst2" / "SST-2"
    place.mkdir(parents=True)
    (place / "dev.tsv").write_text("sentence\tlabel\nfine\t1\n")
    shown = sublayer("tasks").shown()
    rows = {line.split()[0]: line for line in shown.splitlines()[2:] if line}
    assert set(TASKS) <= set(rows)
    assert rows["sst2"].split() == ["sst2", "SST-2", "classes", "accuracy", "dev"]
    assert rows["stsb"].split() == ["stsb", "STS-B", "number", "Pearson,", "Spearman"]
    assert all(len(line) <= 80 for line in shown.splitlines())


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


def test_one_task_is_shown_whole(sublayer: Sublayer, folder: Path, empty_cache: Path):
    shown = sublayer("tasks", "sst2", "--data", "glue").shown()
    assert "sst2: SST-2 (GLUE)" in shown
    assert "negative or positive" in shown
    assert "train 2, test 1" in shown
    assert "/SST-2.zip" in shown
    assert "2 rows left out" in shown
    shown = sublayer("tasks", "stsb").shown()
    assert "a number from 0 to 5" in shown
    assert shown.endswith("nothing\n")


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


def test_a_folder_without_a_task_says_what_names_are_looked_for(sublayer: Sublayer, folder: Path):
    (folder / "other").mkdir()
    (folder / "other" / "notes.tsv").write_text("x\n")
    assert "no files of a task in other, by the names" in sublayer("tasks", "other").shown()


@pytest.mark.parametrize(
    "words, message",
    [
        (("snil",), "'snil' is no folder and no task: did you mean snli?"),
        (("--show",), "--show shows an example of one task: name it"),
        (("glue", "--show"), "--show shows an example of one task: name it"),
        (("glue", "--data", "x"), "--data is the folder of one task"),
        (("sst2", "--row", "1"), "--row says what --show shows: add --show"),
        (("sst2", "--tokenizer", "x"), "--tokenizer says what --show shows: add --show"),
        (("sst2", "--data", "gone"), "gone is no folder: name the one that holds"),
    ],
)
def test_what_has_no_meaning_is_refused(sublayer: Sublayer, folder: Path, words, message):
    assert message in sublayer("tasks", *words).refusal()
