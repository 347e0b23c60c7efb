"""`sublayer train` on tasks: what is wrong is said in a line, before anything is made."""

import json
from pathlib import Path

import pytest

from tests.commands.results import Sublayer
from tests.task_files import write_rte, write_sst2

RECIPE = """
title = "Small"
source = "tests"
cost = "nothing"

[model]
kind = "encoder"
n_layers = 1
d_model = 16
n_heads = 2
segments = "both"
pooler = "tanh"

[objective]
kind = "supervised"

[data]
tasks = "sst2"
context = 32
tokenizer = "wordpiece"
vocab_size = 90

[train]
steps = 6
batch_sequences = 8
precision = "float32"
threads = 1
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: None) -> Path:
    """A folder with a recipe and files of tasks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(RECIPE)
    write_rte(write_sst2(tmp_path / "glue"))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data.tokenizer=bytes"], "of kind bytes, has no [CLS], no [SEP]"),
        (["objective.format=text"], "objective.format = text is read by a model.kind ="),
        (
            ['data.tasks=["sst2", "rte"]'],
            "is a mixture, which objective.format = pair has no one head",
        ),
        (["data.tasks=sst3"], "data.tasks = 'sst3' is not one of cola, sst2,"),
        (["data.path=nowhere"], "nowhere is no folder: name the one that holds the tasks' files"),
        (
            ['data.path=["glue", "other"]'],
            "data.path must name the folder of SST-2's files: one, not",
        ),
        (["data.tasks=mrpc"], "has no files of MRPC: `sublayer tasks"),
        (["data.context=3"], "data.context = 3 has no room for texts between their marks"),
        (["data.select=dev", "data.path=one"], "there is no training part of SST-2: leave it out"),
        (["data.path=empty"], "train.tsv has no rows"),
        (["data.path=alike"], "nothing can be held out of SST-2, train, which has 1 of 1 rows"),
        (["data.path=other"], "train.tsv:2: 'good' is no label of SST-2: negative (0), positive"),
        (["data.path=lacking"], "train.tsv has no column sentence"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_anything_is_made(
    here: Path, sublayer: Sublayer, words: list[str], said: str
) -> None:
    rows = {
        "one/dev": "sentence\tlabel\nfine\t1\nbad\t0\n",
        "empty/train": "sentence\tlabel\n",
        "empty/dev": "sentence\tlabel\nfine\t1\n",
        "alike/train": "sentence\tlabel\nfine\t1\n",
        "alike/dev": "sentence\tlabel\nfine\t1\n",
        "other/train": "sentence\tlabel\nfine\tgood\n",
        "other/dev": "sentence\tlabel\nfine\t1\n",
        "lacking/train": "text\tlabel\nfine\t1\n",
        "lacking/dev": "text\tlabel\nfine\t1\n",
    }
    for name, content in rows.items():
        folder, split = name.split("/")
        (here / folder / "SST-2").mkdir(parents=True, exist_ok=True)
        (here / folder / "SST-2" / f"{split}.tsv").write_text(content)
    given = words if any(word.startswith("data.path") for word in words) else [*words, _PATH]
    result = sublayer("train", "small.toml", *given, "--out", "run")
    assert result.code == 2
    errors = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and said in errors[0]
    assert "Traceback" not in result.err and not (here / "run").exists()


_PATH = "data.path=glue"


def test_what_is_trained_is_scored_on_the_published_set_beside_the_baselines(
    here: Path, sublayer: Sublayer
) -> None:
    assert sublayer("train", "small.toml", _PATH, "--out", "run").code == 0
    result = sublayer("evaluate", "run", "--json")
    [task] = json.loads(result.out)["tasks"]
    assert (task["task"], task["split"], task["examples"]) == ("sst2", "dev", 20)
    assert set(task["baselines"]) == {"majority", "words"}
    held_out = json.loads(sublayer("evaluate", "run", "--split", "valid", "--json").out)
    assert held_out["tasks"][0]["examples"] == 6
    shown = sublayer("evaluate", "run", "--split", "valid").out
    assert "scored on what was held out, which chose the checkpoint" in shown
    assert (
        "examples of tasks, which are no text: give one" in sublayer("inspect", "layers", "run").err
    )
    path = here / "glue" / "SST-2" / "dev.tsv"
    path.write_text(path.read_text() + "a fine day\t1\n")
    changed = sublayer("evaluate", "run")
    assert changed.code == 2
    assert "the examples of run are no longer what it was trained with" in changed.err
