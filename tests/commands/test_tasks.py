"""``sublayer tasks``: the table of tasks, what a folder has of them, and one of them."""

from pathlib import Path

import pytest

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


def test_an_example_is_shown_in_the_tokens_of_a_run(
    sublayer: Sublayer, folder: Path, trained: Path
):
    words = ("tasks", "sst2", "--show", "--data", "glue", "--tokenizer", trained, "--json")
    found = sublayer(*words).found()
    assert "_start_" in found["formats"]["traversal"]["marks"]
    assert len(found["formats"]["traversal"]["rows"][0]) == len("fine") + 2
