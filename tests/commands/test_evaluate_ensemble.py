"""``sublayer evaluate`` and ``predict`` on several fine-tuned runs, whose answers are averaged."""

import json
import shutil
from pathlib import Path

import pytest

import sublayer as package
from tests.commands.conftest import SHORT, finetuned
from tests.commands.reviews import reviews, write_csv

COLUMNS = ("--text", "review", "--label", "stars", "--group", "film")


@pytest.fixture(scope="module")
def runs(reviewer: Path) -> list[Path]:
    """Three runs of a few steps on the table of ``reviewer``, divided alike."""
    folder = reviewer.parents[1]
    found = []
    for seed, n_steps in enumerate((6, 8, 1)):
        words = (f"train.steps={n_steps}", f"train.seed={seed}", "--out", f"runs/short{seed}")
        found.append(finetuned(folder, "my.csv", *COLUMNS, *SHORT, *words))
    return found


@pytest.fixture(scope="module")
def copies(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("copies")
    return [shutil.copytree(runs[0], folder / name) for name in ("one", "two")]


def test_copies_of_a_run_score_as_it_does(sublayer, runs, copies):
    alone = sublayer("evaluate", runs[0], "--json").found()
    found = sublayer("evaluate", runs[0], *copies, "--json").found()
    assert found["tasks"] == alone["tasks"]
    assert found["runs"] == list(map(str, (runs[0], *copies)))
    assert all(each["is_member"] for each in found["members"])
    assert found["choice"] is None


def test_members_are_chosen_by_what_was_held_out(sublayer, reviewer, runs):
    held_out = [
        sublayer("evaluate", run, "--split", "valid", "--json").found()["tasks"][0]["score"]
        for run in (runs[2], reviewer)
    ]
    assert held_out[0] < held_out[1]
    for how in ("greedy", "all"):
        found = sublayer("evaluate", runs[2], reviewer, "--choose", how, "--json").found()
        choice = found["choice"]
        assert (choice["how"], choice["score"]) == (how, max(held_out))
        assert choice["members"] == [str(reviewer)]
        assert [each["is_member"] for each in found["members"]] == [False, True]
        assert found["tasks"] == sublayer("evaluate", reviewer, "--json").found()["tasks"]
        assert choice["rows"] + choice["rows_left_out"] > 20
    shown = sublayer("evaluate", runs[2], reviewer, "--choose", "greedy").out
    assert shown.startswith("the average of 1 run, chosen of 2 runs:\n")
    assert "that were held out of train, too high by that: " in shown


def test_rows_are_answered_by_the_average(sublayer, runs, tmp_path):
    rows = write_csv(tmp_path / "new.csv", reviews(8, seed=9))

    def answered(*words):
        out = sublayer("predict", *words, rows, "--json").out
        return [json.loads(line)["probabilities"]["good"] for line in out.splitlines()]

    alone = [answered(run) for run in runs]
    together = answered(*runs)
    for p, *own in zip(together, *alone, strict=True):
        assert p == pytest.approx(sum(own) / 3, abs=2e-6)
    texts = [row["review"] for row in reviews(8, seed=9)]
    found = package.predict(runs, texts)
    assert [each.probabilities["good"] for each in found] == pytest.approx(together, abs=1e-6)


def test_python_scores_several_runs_as_the_command_does(sublayer, runs):
    found = package.evaluate(runs[:2], choose="greedy")
    assert found == sublayer("evaluate", *runs[:2], "--choose", "greedy", "--json").found()


def test_an_ensemble_is_compared_with_a_run(sublayer, reviewer, runs):
    found = sublayer("evaluate", *runs[:2], "--against", reviewer, "--json").found()
    [task] = found["against"]["tasks"]
    assert task["value"] == found["tasks"][0]["score"]


def test_runs_that_were_divided_otherwise_are_refused(sublayer, runs, tmp_path):
    write_csv(tmp_path / "my.csv", reviews(240))
    words = ("--text", "review", "--label", "stars", *SHORT, "train.steps=1", "--out", "apart")
    apart = finetuned(tmp_path, "my.csv", *words)
    refused = sublayer("evaluate", runs[0], apart)
    assert refused.code == 2
    assert f"{apart} is scored on other rows of my.csv than {runs[0]}: " in refused.err
    rows = write_csv(tmp_path / "new.csv", reviews(30, seed=9))
    assert sublayer("evaluate", runs[0], apart, "--path", rows).code == 0
    refused = sublayer("evaluate", runs[0], apart, "--path", rows, "--choose", "greedy")
    assert f"{apart} held out other rows of my.csv than {runs[0]}: " in refused.err
