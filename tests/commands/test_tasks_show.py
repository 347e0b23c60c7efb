"""``sublayer tasks NAME --show``: examples in each format."""

import pytest

from sublayer.commands.tasks.show import render_shown, show_task
from sublayer.tasks.registry import TASKS


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "RTE"
    path.mkdir()
    long = " ".join(f"w{number}" for number in range(100))
    rows = (
        f"index\tsentence1\tsentence2\tlabel\n0\tA b.\tC.\tentailment\n1\t{long}\tC.\tentailment\n"
    )
    (path / "train.tsv").write_text(rows)
    return str(tmp_path)


def test_with_files_an_example_is_shown(folder):
    result = show_task(TASKS["rte"], folder, None)
    assert result["example"] == "train, id 0" and result["answer"] == "entailment"
    rows = result["formats"]["pair"]["rows"]
    assert rows == [["[CLS]", "A", "b.", "[SEP]", "C.", "[SEP]"]]


def test_the_middle_of_a_long_text_is_left_out_for_people_alone(folder):
    result = show_task(TASKS["rte"], folder, None, row=1)
    assert len(result["formats"]["pair"]["rows"][0]) == 104
    lines = render_shown(result)
    assert "w23 [... 52 more ...] w76" in " ".join(lines.split())
