"""``predict`` in Python: of a loaded model, of a run, and as a function."""

import json
from pathlib import Path

import pytest

import sublayer as package
from sublayer.errors import ConfigError
from tests.commands.conftest import TINY
from tests.commands.results import Sublayer
from tests.commands.reviews import reviews, write_csv

ROWS = reviews(6, seed=7)


def test_a_loaded_model_answers_as_the_command_does(
    sublayer: Sublayer, reviewer: Path, tmp_path: Path
):
    path = write_csv(tmp_path / "new.csv", ROWS)
    told = sublayer("predict", reviewer, path, "--json").out.splitlines()
    found = package.load(reviewer).predict(ROWS)
    for line, each, row in zip(map(json.loads, told), found, ROWS, strict=True):
        assert {**row, **each.to_json()} == line
    assert [each.label for each in found] == [row["stars"] for row in ROWS]


def test_a_run_and_a_function_answer_alike(reviewer: Path):
    texts = [row["review"] for row in ROWS]
    found = package.predict(reviewer, texts)
    assert package.open_run(reviewer).predict(texts, batch=2) == found
    assert package.open_run(reviewer).load().predict(texts) == found


def test_a_table_is_learned_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    rows = write_csv(tmp_path / "my.csv", reviews(60))
    overrides = [word for word in TINY if not word.startswith("train.steps")]
    columns = {"text": "review", "number": "rating", "group": "film"}
    settings = [*overrides, "train.steps=1"]
    found = package.finetune("albert-small", rows, settings, columns=columns)
    assert found["run"] == str(Path("runs") / "my")
    assert set(found["seeds"][0]["tasks"][0]["metrics"]) == {"pearson", "spearman"}
    [answer] = package.predict(found["run"], ["The film is dull."])
    assert isinstance(answer.label, float)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"text": "review", "labl": "stars"}, "labl is not one of .*did you mean label"),
        ({"label": "stars"}, "does not say which column is the text"),
        ({"text": "review", "choices": "a,b"}, "choices is a list of columns"),
    ],
)
def test_columns_that_are_not_told_as_they_are_in_recipes_are_refused(
    columns: dict[str, str], said: str
):
    with pytest.raises(ConfigError, match=said):
        package.finetune("albert-small", "my.csv", columns=columns)
