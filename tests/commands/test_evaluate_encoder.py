"""``sublayer evaluate`` of an encoder: hidden tokens, pairs of texts, and how sure the figures are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sublayer.config.layers import load_recipe
from sublayer.run import train_run
from sublayer.train.progress import SilentProgress

Sublayer = Callable[..., tuple[int, str, str]]

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


def answer(result: tuple[int, str, str]) -> dict[str, Any]:
    code, out, _ = result
    assert code == 0
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def refusal(result: tuple[int, str, str]) -> str:
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    return err


def test_every_accuracy_is_there_with_what_it_is_of(sublayer: Sublayer, encoder: Path) -> None:
    found = answer(sublayer("evaluate", encoder, "--split", "test", "--pairs", 50, "--json"))
    assert {"loss", "mlm_accuracy", "majority_accuracy", "nsp_accuracy", "sop_accuracy"} <= found.keys()
    assert found["split"] == "test"
    assert found["mlm_tokens"] > 0
    for task in ("nsp", "sop"):
        low, high = found[f"{task}_interval"]
        assert 0 <= low <= found[f"{task}_accuracy"] <= high <= 1
        assert round(found[f"{task}_accuracy"] * found[f"{task}_pairs"], 6).is_integer()


def test_more_pairs_are_judged_in_further_passes(sublayer: Sublayer, encoder: Path) -> None:
    few, many = (
        answer(sublayer("evaluate", encoder, "--split", "test", "--pairs", pairs, "--json")) for pairs in (1, 400)
    )
    assert few["sop_pairs"] < 400 <= many["sop_pairs"]
    # Other cuts of the same sentences make no figure surer.
    low, high = many["sop_interval"]
    assert high - low > 0.8 * (few["sop_interval"][1] - few["sop_interval"][0])


def test_the_size_of_a_batch_changes_no_count(sublayer: Sublayer, encoder: Path) -> None:
    one, several = (answer(sublayer("evaluate", encoder, "--batch", size, "--pairs", 1, "--json")) for size in (1, 7))
    assert one.pop("loss") == pytest.approx(several.pop("loss"), rel=1e-5)
    assert one == several


def test_the_passages_of_race_and_squad_can_be_scored(sublayer: Sublayer, encoder: Path, tmp_path: Path) -> None:
    article = "Ba den fi. Gor ka lu mer. No pe ri sto. Tan ul wex zy ba. Den fi gor. Ka lu mer no pe."
    lines = [json.dumps({"article": f"{article} {name}.", "questions": [], "options": [], "answers": []})
             for name in ("ba", "den", "fi", "gor")]  # fmt: skip
    (tmp_path / "race.jsonl").write_text("\n".join(lines))
    where = ("--corpus", "albert-intrinsic", "--path", tmp_path / "race.jsonl")
    found = answer(sublayer("evaluate", encoder, *where, "--pairs", 10, "--json"))
    assert found["documents"] == 4
    assert found["nsp_negatives"] == "other documents"
    assert found["sop_pairs"] > 0


def test_one_document_is_said_to_be_one(sublayer: Sublayer, encoder: Path, stories_path: Path) -> None:
    code, out, _ = sublayer("evaluate", encoder, "--path", stories_path / "story00.txt", "--pairs", 5)
    assert code == 0
    assert "the text is one document" in out
    assert "MLM accuracy" in out


def test_what_is_of_the_other_kind_is_refused(
    sublayer: Sublayer, encoder: Path, trained: Path, stories_path: Path
) -> None:
    assert "--stride is of decoders" in refusal(sublayer("evaluate", encoder, "--stride", 8))
    assert "--pairs is of encoders" in refusal(sublayer("evaluate", trained, "--pairs", 8))
    assert "--documents says how" in refusal(sublayer("evaluate", encoder, "--documents", "json"))
    where = ("--corpus", "albert-intrinsic", "--path", stories_path, "--documents", "json")
    assert "--documents says how" in refusal(sublayer("evaluate", encoder, *where))
    assert "is an encoder" in refusal(sublayer("generate", encoder, "--prompt", "ba"))
