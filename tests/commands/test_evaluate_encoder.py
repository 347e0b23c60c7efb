"""``sublayer evaluate`` of an encoder: masked tokens, pairs of texts, how sure the figures are."""

import json
from pathlib import Path
from typing import Any

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.runs.run import train_run
from sublayer.training.progress import SilentProgress
from tests.commands.results import Sublayer

TINY = {
    "model.n_layers": 1,
    "model.d_model": 16,
    "model.n_heads": 2,
    "model.d_embed": 8,
    "data.sentences": "lines",
    "data.tokenizer": "wordpiece",
    "data.vocab_size": 90,
    "data.context": 32,
    "train.steps": 4,
    "train.batch_sequences": 4,
    "train.precision": "float32",
    "train.threads": 1,
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, own_cache: None, stories_path: Path) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "run"
    loaded = load_recipe("albert-small", {**TINY, "data.path": str(stories_path)})
    train_run(loaded, folder, progress=SilentProgress())
    return folder


def evaluated(sublayer: Sublayer, encoder: Path, *options: object) -> dict[str, Any]:
    return sublayer("evaluate", encoder, *options, "--json").found()


def test_more_pairs_are_judged_in_further_passes(sublayer: Sublayer, encoder: Path) -> None:
    few = evaluated(sublayer, encoder, "--split", "test", "--pairs", 1)
    many = evaluated(sublayer, encoder, "--split", "test", "--pairs", 400)
    assert few["sop_pairs"] < 400 <= many["sop_pairs"]
    # Other cuts of the same sentences make no figure surer.
    low_few, high_few = few["sop_interval"]
    low_many, high_many = many["sop_interval"]
    assert high_many - low_many > 0.8 * (high_few - low_few)


def test_the_size_of_a_batch_changes_no_count(sublayer: Sublayer, encoder: Path) -> None:
    one = evaluated(sublayer, encoder, "--batch", 1, "--pairs", 1)
    several = evaluated(sublayer, encoder, "--batch", 7, "--pairs", 1)
    assert one.pop("loss") == pytest.approx(several.pop("loss"), rel=1e-5)
    assert one == several


def passage(name: str) -> str:
    """Write a line of RACE's files: a passage of its own, without questions."""
    article = (
        "Ba den fi. Gor ka lu mer. No pe ri sto. Tan ul wex zy ba. Den fi gor. Ka lu mer no pe."
    )
    record = {"article": f"{article} {name}.", "questions": [], "options": [], "answers": []}
    return json.dumps(record)


def test_the_passages_of_race_and_squad_can_be_scored(
    sublayer: Sublayer, encoder: Path, tmp_path: Path
) -> None:
    passages = tmp_path / "race.jsonl"
    passages.write_text("\n".join(passage(name) for name in ("ba", "den", "fi", "gor")))
    where = ("--corpus", "albert-intrinsic", "--path", passages)
    found = evaluated(sublayer, encoder, *where, "--pairs", 10)
    assert found["documents"] == 4
    assert found["nsp_negatives"] == "other documents"
    assert found["sop_pairs"] > 0
