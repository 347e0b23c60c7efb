"""Every task goes from its publisher's files to a score, and to what is handed in."""

from itertools import product
from pathlib import Path

import pytest

from sublayer.tasks.registry import TASKS
from tests.breadth import rows
from tests.commands.conftest import SHORT
from tests.published_files import PUBLISHED, write_published

_STEPS = [
    *(word for word in SHORT if not word.startswith(("model.d_embed", "data.tokenizer", "data.v"))),
    "train.steps=2",
    "train.evaluate_steps=2",
]
_SUITES = {"glue": 11, "superglue": 8, "squad": 1, "race": 2}
"""Files that are handed in at least: of MultiRC and ReCoRD only where their questions are known."""


_MODELS = {
    "albert-small": ["data.tokenizer=wordpiece", "data.vocab_size=120"],
    "gpt": ["data.tokenizer=bpe", "data.vocab_size=300"],
    "t5-mini": [
        "data.tokenizer=unigram",
        "data.vocab_size=150",
        "data.sentinels=0",
        "model.d_ff=32",
    ],
}
"""An encoder, a decoder and an encoder-decoder, and what each has of its own."""


@pytest.mark.parametrize(("name", "recipe"), rows(product(PUBLISHED, _MODELS), 12))
def test_a_task_is_read_learned_scored_and_handed_in(
    sublayer, tmp_path: Path, here, recipe, name
) -> None:
    if (recipe, name) in (("gpt", "squad2"), ("t5-mini", "wnli")):
        pytest.skip("it is refused")
    data = write_published(tmp_path / "data", name)
    run = tmp_path / "run"
    words = (name, "--data", data, *_STEPS, *_MODELS[recipe], "--out", run, "--json")
    found = sublayer("finetune", recipe, *words).found()
    [seed] = found["seeds"]
    assert len(seed["tasks"]) == (2 if name == "mnli" else 1)
    for task in seed["tasks"]:
        assert task["examples"] > 0
        assert 0.0 <= task["baselines"]["majority"]["score"] <= 1.0
        assert "words" in task["baselines"]
    again = sublayer("evaluate", run, "--json").found()
    for field in ("score", "metrics", "baselines"):
        assert [each[field] for each in again["tasks"]] == [each[field] for each in seed["tasks"]]
    suite = TASKS[name].suite
    if suite in _SUITES:
        handed = sublayer("predict", run, "--data", data, "--submission", "out", "--json").found()
        assert len(handed["files"]) >= _SUITES[suite]
        own = [each for each in handed["sets"] if each["task"] == name]
        assert own and all(each["runs"] == [str(run)] and each["rows"] > 0 for each in own)
