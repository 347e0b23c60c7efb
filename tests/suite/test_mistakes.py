"""What a suite cannot mean is said in one line, before anything is computed."""

from pathlib import Path

import pytest

from sublayer.suite import evaluate as whole
from sublayer.suite import texts
from tests.suite.conftest import SETTINGS, Evaluate

TEXT = '[[texts]]\npath = "other.txt"\n'
TASK = '[[tasks]]\nnames = ["sst2"]\ndata = "glue"\n'
PROBE = '[[probes]]\nnames = ["sst2"]\ndata = "glue"\n'

MISTAKES = {
    "unknown task": (TASK.replace("sst2", "sst3"), "sst3 is no task: did you mean sst2?"),
    "unknown probe": ('[[probes]]\nnames = ["sts"]\ndata = "glue"', "sts is no probe"),
    "no head": (TASK, "dec has no head that answers SST-2"),
    "empty": ("", "asks for nothing"),
    "title alone": ('title = "Nothing"', "asks for nothing"),
    "no names": ("[[tasks]]\nnames = []", "tasks 1, names is empty"),
    "unknown key": ("taks = 1", "taks is no setting of it: did you mean tasks?"),
    "no text": (TEXT.replace("other", "none"), "none.txt"),
    "a text of the hub": (TEXT.replace("other.txt", "hub:a/b"), "is not on this machine"),
    "text twice": (TEXT + TEXT, "text other.txt stands there twice"),
    "task twice": (TASK + TASK, "task sst2 stands there twice"),
    "no files of a task": (TASK.replace("sst2", "cola"), "glue has no files of CoLA"),
    "no folder": (TASK.replace("glue", "none"), "none is no folder"),
    "nothing downloaded": (TASK.replace('data = "glue"', ""), "a suite downloads nothing"),
    "no files of a probe": (
        '[[probes]]\nnames = ["cola"]\ndata = "glue"',
        "glue has no files of CoLA",
    ),
    "preset alone": (TASK + 'preset = "bert"', "bert is no preset"),
    "setting alone": (TASK + SETTINGS, "set is of fine-tuning"),
    "seeds alone": (TASK + "seeds = 2", "seeds is of fine-tuning"),
    "unknown setting": (
        TASK + 'finetune = "t"\nset = { "train.stepps" = 1 }',
        "train.stepps",
    ),
    "no lines": ('[[pairs]]\nsource = "none.en"\ntarget = "other.txt"', "none.en"),
    "other lines": (
        '[[pairs]]\nsource = "text.txt"\ntarget = "other.txt"',
        "text.txt has 300 lines, other.txt 60",
    ),
    "no TOML": ("[[", "suite.toml"),
    "a word for yes": ('parameters = "yes"', "parameters = 'yes' is not true or false"),
    "one table": (TASK.replace("[[tasks]]", "[tasks]"), "tasks is one table: write [[tasks]]"),
    "one name": (TASK.replace('["sst2"]', '"sst2"'), "tasks 1, names = 'sst2' is not a list"),
    "a name of a name": (
        TEXT + "nane = 1",
        "texts 1, nane is no setting of it: did you",
    ),
    "an empty text": ('[[texts]]\npath = "empty.txt"', "empty.txt is empty"),
    "runs in a file": (TASK + 'finetune = "text.txt/runs"', "text.txt is no folder"),
    "equal words": (PROBE + 'words = ["a", " a"]', "the words 'a' and 'a' cannot be compared"),
    "one word": (PROBE + 'words = ["a"]', "probes 1, words"),
    "words that nothing compares": (
        '[[probes]]\nnames = ["cola"]\nwords = ["negative", "positive"]',
        "negative and positive are compared by the probe sst2 alone",
    ),
    "another's reference": (PROBE + "references = { cola = 0.5 }", "cola has a reference, and is"),
    "no share": (PROBE + "references = { sst2 = 93 }", "the reference 93 of sst2 is no share"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_said_before_anything_is_computed(
    name: str, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
):
    def compute(*_: object) -> None:
        raise AssertionError("something was computed")

    monkeypatch.setattr(whole, "_measured", compute)
    suite, said = MISTAKES[name]
    assert said in evaluate(suite, "dec").refusal()


def test_models_and_options_are_checked(evaluate: Evaluate, place: Path, tmp_path: Path):
    assert "is named twice" in evaluate(TEXT, "dec", place / "dec").refusal()
    assert "nowhere does not exist" in evaluate(TEXT, "dec", "nowhere").refusal()
    assert "--stride is of one model's own" in evaluate(TEXT, "dec", "--stride", 4).refusal()
    assert "--split is of one model's own" in evaluate(TEXT, "dec", "--split", "test").refusal()
    there = tmp_path / "there.csv"
    there.write_text("")
    assert "is there already" in evaluate(TEXT, "dec", "--csv", there).refusal()
    missing = tmp_path / "none" / "card.html"
    assert "is no folder" in evaluate(TEXT, "dec", "--html", missing).refusal()


def test_several_models_and_files_need_a_suite(evaluate: Evaluate, capsys):
    from sublayer import cli

    assert cli.main(["evaluate", "dec", "enc"]) == 2
    assert cli.main(["evaluate", "dec", "--csv", "card.csv"]) == 2
    assert "--csv is of the scorecard of a suite" in capsys.readouterr().err


def test_what_fails_for_one_model_is_a_reason_beside_the_others(
    evaluate: Evaluate, place: Path, tmp_path: Path
):
    (tmp_path / "short.txt").write_text("a")
    suite = f'parameters = true\n[[texts]]\npath = "{tmp_path}/short.txt"\n'
    found = evaluate(suite, "dec", "--json").found()
    [row] = [row for row in found["rows"] if row["kind"] == "model"]
    assert row["cells"]["parameters"]["mean"] > 0
    assert row["reasons"]["bits_per_byte/short.txt"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("could not create a primitive descriptor"), "it failed: could not create"),
        (RuntimeError("could not create a primitive"), "too little memory"),
        (MemoryError(), "too little memory"),
    ],
)
def test_what_breaks_for_one_model_leaves_the_others_their_scores(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(texts.BitsPerByte, "score", fail)
    found = evaluate(f"parameters = true\n{TEXT}", "dec", "--json").found()
    [row] = [row for row in found["rows"] if row["kind"] == "model"]
    assert row["cells"]["parameters"]["mean"] > 0
    assert reason in row["reasons"]["bits_per_byte/other.txt"]


def test_two_files_of_a_scorecard_are_two(evaluate: Evaluate, tmp_path: Path):
    same = tmp_path / "card"
    refused = evaluate(TEXT, "dec", "--csv", same, "--html", same).refusal()
    assert "--csv and --html are the same file" in refused


def test_models_of_one_name_are_told_apart_by_more_of_their_paths(place: Path):
    import shutil

    from sublayer.suite.candidate import find_candidates

    for folder in ("a", "b"):
        shutil.copytree(place / "dec", place / folder / "dec", dirs_exist_ok=True)
    found = find_candidates([place / "a" / "dec", place / "b" / "dec", place / "enc" / "model"])
    assert [each.name for each in found] == ["a/dec", "b/dec", "enc"]
