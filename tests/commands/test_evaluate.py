"""``sublayer evaluate`` of texts, of pairs of texts, of tasks, and of several runs together."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import sublayer as package
from sublayer import cli
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.loading import load
from sublayer.model.model_folder import save_model
from tests.commands.conftest import SHORT, finetuned
from tests.commands.results import Sublayer
from tests.commands.reviews import reviews, write_csv
from tests.task_files import write_rte

COLUMNS = ("--text", "review", "--label", "stars")
NEW = reviews(30, seed=9)


def evaluated(sublayer: Sublayer, run: Path, *options: object) -> dict[str, Any]:
    return sublayer("evaluate", run, *options, "--json").found()


def test_a_run_its_checkpoint_and_its_model_are_scored_alike(sublayer, trained):
    valid = json.loads((trained / "record.json").read_text())["valid"]
    as_in_training = evaluated(sublayer, trained, "--stride", 32)["loss"]
    assert as_in_training == pytest.approx(valid["loss"], rel=1e-6)
    loss = evaluated(sublayer, trained)["loss"]
    for part in ("model", f"checkpoints/step-{valid['step']:08d}"):
        assert evaluated(sublayer, trained / part)["loss"] == loss


def test_a_model_outside_its_run_scores_a_text_that_is_named(sublayer, trained, tmp_path):
    text = tmp_path / "ten.txt"
    text.write_bytes(b"ten bytes!")
    copied = shutil.copytree(trained / "model", tmp_path / "copied")
    found = evaluated(sublayer, copied, "--path", text)
    names = ("tokens", "bytes", "words", "split")
    assert [found[name] for name in names] == [9, 9, 1, None]
    assert "does not belong to a run" in sublayer("evaluate", copied).refusal()


def test_a_named_corpus_is_scored_by_its_splits(sublayer, trained):
    options = ("--corpus", "python", "--stride", 32)
    valid = evaluated(sublayer, trained, *options)
    test = evaluated(sublayer, trained, *options, "--split", "test")
    assert (valid["split"], test["split"]) == ("valid", "test")
    assert valid["sha256"] != test["sha256"]


def test_a_lossy_tokenizer_is_marked_and_divided_by_what_was_read(sublayer, trained, tmp_path):
    model, text = tmp_path / "model", tmp_path / "text.txt"
    # The text's € is unknown to it.
    known = train_tokenizer("characters", ["abcü ".encode()])
    save_model(model, load(trained), {"tokenizer.json": known.serialize()})
    text.write_text("abc €€ bü", encoding="utf-8")
    found = evaluated(sublayer, model, "--path", text)
    names = ("tokens", "characters", "bytes", "is_lossless")
    assert [found[name] for name in names] == [8, 8, 13, False]
    assert "the tokenizer is lossy" in sublayer("evaluate", model, "--path", text).out


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, own_cache: None, stories_path: Path) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "run"
    words = (
        *("model.n_layers=1", "model.d_model=16", "model.n_heads=2", "model.d_embed=8"),
        *("data.sentences=lines", "data.tokenizer=wordpiece", "data.vocab_size=90"),
        *("data.context=32", "train.steps=4", "train.batch_sequences=4", "train.threads=1"),
        *(f"data.path={stories_path}", "train.precision=float32", "--out", f"{folder}"),
    )
    assert cli.main(["train", "albert-small", *words]) == 0
    return folder


def test_the_batch_changes_no_count(sublayer, encoder, reviewer):
    for run, options in ((encoder, ("--pairs", 1)), (reviewer, ())):
        one, several = (evaluated(sublayer, run, "--batch", n, *options) for n in (1, 7))
        assert one.pop("loss") == pytest.approx(several.pop("loss"), rel=1e-5)
        assert one == several


def test_the_passages_of_race_can_be_scored(sublayer, encoder, tmp_path):
    text = "Ba den fi. Gor ka lu mer. No pe ri sto. Tan ul wex zy ba. Den fi gor. Ka lu mer no pe."
    asked = {"questions": [], "options": [], "answers": []}
    passages = [
        json.dumps({"article": f"{text} {name}.", **asked}) for name in ("ba", "den", "fi", "gor")
    ]
    (tmp_path / "race.jsonl").write_text("\n".join(passages))
    where = ("--corpus", "albert-intrinsic", "--path", tmp_path / "race.jsonl")
    found = evaluated(sublayer, encoder, *where, "--pairs", 10)
    assert (found["documents"], found["nsp_negatives"]) == (4, "other documents")
    assert found["sop_pairs"] > 0


def test_rows_that_were_trained_on_are_counted(sublayer, reviewer, tmp_path):
    table = reviewer.parents[1] / "my.csv"
    shutil.copy(table, tmp_path / "copy.csv")
    found = evaluated(sublayer, reviewer, "--path", tmp_path / "copy.csv")
    assert found["tasks"][0]["examples"] == 240
    [note] = found["notes"]
    assert note.endswith("of 240 rows are among those that it was trained on: too good by that")
    found = evaluated(sublayer, reviewer, "--path", table)
    assert found["tasks"][0]["examples"] == 48
    assert "is what it was trained on: scored on the rows that were left" in found["notes"][0]


def test_a_model_outside_a_run_is_scored_on_other_rows_without_baselines(
    sublayer, reviewer, tmp_path
):
    model = shutil.copytree(reviewer / "model", tmp_path / "model")
    new = write_csv(tmp_path / "new.csv", NEW)
    new.write_text(new.read_text() + "short\n")
    found = evaluated(sublayer, model, "--path", new)
    [task] = found["tasks"]
    assert (task["examples"], task["baselines"]) == (30, {})
    assert task["score"] > 0.9
    assert "my.csv, dev: 1 row left out: fewer than 4 fields (new.csv:32)" in found["notes"]
    refusal = sublayer("evaluate", model).refusal()
    assert "does not belong to a run: name the folder of the tasks' files (--path)" in refusal


def test_the_development_set_of_another_folder_is_scored_whole(sublayer, entailed, tmp_path):
    glue = write_rte(tmp_path / "glue", {"dev": 30}, seed=5)
    model = shutil.copytree(entailed / "model", tmp_path / "model")
    for run, path in ((entailed, glue), (model, glue / "RTE" / "dev.tsv")):
        assert evaluated(sublayer, run, "--path", path)["tasks"][0]["examples"] == 30


@pytest.fixture(scope="module")
def runs(reviewer: Path) -> list[Path]:
    """Three runs of a few steps on the table of ``reviewer``, divided alike."""
    folder = reviewer.parents[1]
    found = []
    for seed, n_steps in enumerate((6, 8, 1)):
        words = (f"train.steps={n_steps}", f"train.seed={seed}", "--out", f"runs/short{seed}")
        found.append(finetuned(folder, "my.csv", *COLUMNS, "--group", "film", *SHORT, *words))
    return found


def test_copies_of_a_run_score_as_it_does(sublayer, runs, tmp_path):
    copies = [shutil.copytree(runs[0], tmp_path / name) for name in ("one", "two")]
    found = sublayer("evaluate", runs[0], *copies, "--json").found()
    alone = evaluated(sublayer, runs[0])["tasks"]
    assert found["tasks"] == alone
    assert [member["run"] for member in found["members"]] == [str(runs[0]), *map(str, copies)]
    for task in alone:
        del task["baselines"]
    assert [member["tasks"] for member in found["members"]] == [alone] * 3


def test_members_are_chosen_by_what_was_held_out(sublayer, reviewer, runs):
    asked = (runs[2], reviewer)
    held_out = [evaluated(sublayer, run, "--split", "valid")["tasks"][0]["score"] for run in asked]
    assert held_out[0] < held_out[1]
    for how in ("greedy", "all"):
        found = sublayer("evaluate", *asked, "--choose", how, "--json").found()
        choice = found["choice"]
        assert (choice["how"], choice["score"]) == (how, held_out[1])
        assert choice["members"] == [str(reviewer)]
        assert [each["is_member"] for each in found["members"]] == [False, True]
        assert found["tasks"] == evaluated(sublayer, reviewer)["tasks"]
    assert found == package.evaluate(asked, choose="all")


def test_rows_are_answered_by_the_average(sublayer, runs, tmp_path):
    rows = write_csv(tmp_path / "new.csv", NEW[:8])

    def answered(*words):
        out = sublayer("predict", *words, rows, "--json").out
        return [json.loads(line)["probabilities"]["good"] for line in out.splitlines()]

    alone = [answered(run) for run in runs]
    together = answered(*runs)
    for p, *members in zip(together, *alone, strict=True):
        assert p == pytest.approx(sum(members) / 3, abs=2e-6)
    found = package.predict(runs, [row["review"] for row in NEW[:8]])
    assert [each.probabilities["good"] for each in found] == pytest.approx(together, abs=1e-6)


def test_an_ensemble_is_compared_with_a_run_row_by_row(sublayer, reviewer, runs):
    found = sublayer("evaluate", reviewer, "--against", runs[2], "--json").found()
    [table] = found["against"]["tasks"]
    value, other = (evaluated(sublayer, run)["tasks"][0]["score"] for run in (reviewer, runs[2]))
    assert (table["value"], table["other"]) == (value, other)
    assert table["difference"] == value - other
    assert table["n_only_first"] - table["n_only_other"] == round(48 * (value - other))
    low, high = table["interval"]
    assert 0 < low < table["difference"] < high
    assert table["is_decided"] and table["p_mcnemar"] < 0.01
    found = sublayer("evaluate", *runs[:2], "--against", reviewer, "--json").found()
    assert found["against"]["tasks"][0]["value"] == found["tasks"][0]["score"]


def test_runs_that_were_divided_otherwise_are_refused(sublayer, runs, tmp_path):
    write_csv(tmp_path / "my.csv", reviews(240))
    words = (*COLUMNS, *SHORT, "train.steps=1", "--out", "apart")
    apart = finetuned(tmp_path, "my.csv", *words)
    rows = ("--path", write_csv(tmp_path / "new.csv", NEW))
    scored = f"{apart} is scored on other rows of my.csv than {runs[0]}: "
    assert scored in sublayer("evaluate", runs[0], apart).refusal()
    assert sublayer("evaluate", runs[0], apart, *rows).code == 0
    refusal = sublayer("evaluate", runs[0], apart, *rows, "--choose", "greedy").refusal()
    assert f"{apart} held out other rows of my.csv than {runs[0]}: " in refusal
    assert "is scored on other rows of my.csv than" in (
        sublayer("evaluate", runs[0], "--against", apart).refusal()
    )
