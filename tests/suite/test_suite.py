"""``sublayer evaluate RUN ... --suite FILE``: scores are those of the commands for one model."""

import csv
import json
import lzma
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from sublayer import cli
from sublayer.data.text.files import FileDocument
from sublayer.errors import Interrupted
from sublayer.suite import evaluate as computing
from sublayer.suite import texts
from sublayer.suite.candidate import find_candidates
from tests.suite.conftest import Evaluate
from tests.torchrun import in_two_processes

TEXT = '[[texts]]\npath = "other.txt"\n'
TASK = '[[tasks]]\nnames = ["sst2"]\ndata = "glue"\n'
PROBE = '[[probes]]\nnames = ["sst2"]\ndata = "glue"\n'
SETTINGS = """set.train = { steps = 2, evaluate_steps = 2, batch_sequences = 4, threads = 1 }
set.data.held_out = 0.2
"""
TUNED = TASK + SETTINGS


def cells_of(found: dict, column: str) -> dict:
    return {row["name"]: row["cells"].get(column) for row in found["rows"]}


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert cli.main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_four_kinds_of_models_stand_side_by_side(
    evaluate: Evaluate, place: Path, tmp_path: Path, capsys, monkeypatch
):
    def refuse(*_: object) -> None:
        raise AssertionError("a suite uses no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    suite = (
        'title = "Four"\nparameters = true\nspeed = true\n'
        f'{TEXT}{TUNED}finetune = "{tmp_path}/tuned"\n{PROBE}'
    )
    files = ("--csv", tmp_path / "card.csv", "--html", tmp_path / "card.html")
    found = evaluate(suite, "dec", "enc", "lstm", "t5", *files, "--json").found()
    models = [row for row in found["rows"] if row["kind"] == "model"]
    assert [row["name"] for row in models] == ["dec", "enc", "lstm", "t5"]
    assert [row["model"] for row in models] == ["decoder", "encoder", "lstm", "encoder-decoder"]
    assert [column["name"] for column in found["columns"]] == [
        "parameters",
        "tokens_per_second",
        "bits_per_byte/other.txt",
        "sst2",
        "probe/sst2",
    ]
    others = [row["name"] for row in found["rows"] if row["kind"] != "model"]
    assert others == ["majority", "words", "chance", "reference", "xz"]

    bits = cells_of(found, "bits_per_byte/other.txt")
    alone = asked(capsys, "evaluate", "dec", "--path", "other.txt")
    assert bits["dec"]["mean"] == alone["bits_per_byte"]
    assert 0 < bits["dec"]["error"] < bits["dec"]["mean"]
    assert bits["enc"] is None and bits["t5"] is None and 0 < bits["xz"]["mean"] < 8
    [reason] = [row["reasons"]["bits_per_byte/other.txt"] for row in models if row["name"] == "enc"]
    assert reason == "an encoder predicts no text from its beginning to its end"

    scores = cells_of(found, "sst2")
    for name in ("dec", "enc", "lstm", "t5"):
        kept = json.loads((tmp_path / "tuned" / name / "sst2" / "scores.json").read_text())
        assert scores[name]["mean"] == kept["tasks"][0]["score"]
    assert scores["majority"]["mean"] == 0.5
    assert scores["words"]["error"] is not None

    probes = cells_of(found, "probe/sst2")
    own = asked(capsys, "evaluate", "dec", "--probes", "sst2", "--path", "glue")
    assert probes["dec"]["mean"] == own["probes"][0]["value"]
    assert probes["chance"]["mean"] == 0.5 and probes["chance"]["error"] == (0.25 / 8) ** 0.5
    assert probes["enc"] is None and probes["t5"] is not None

    parameters = cells_of(found, "parameters")
    from sublayer.loading import load

    for name in ("dec", "enc", "lstm", "t5"):
        own_size = sum(each.numel() for each in load(name).parameters())
        assert parameters[name]["mean"] == own_size
    assert all(cells_of(found, "tokens_per_second")[row["name"]]["mean"] > 0 for row in models)
    assert found["machine"]["threads"] >= 1

    with (tmp_path / "card.csv").open() as file:
        rows = list(csv.DictReader(file))
    [dash] = [row for row in rows if (row["row"], row["column"]) == ("enc", "probe/sst2")]
    assert dash["value"] == "" and "predicts no text" in dash["reason"]
    assert "predicts no text from its beginning" in (tmp_path / "card.html").read_text()

    # A second time nothing is fine-tuned.
    record = (tmp_path / "tuned" / "dec" / "sst2" / "record.json").read_text()
    shown = evaluate(suite.replace("speed = true", ""), "dec", "enc")
    assert (tmp_path / "tuned" / "dec" / "sst2" / "record.json").read_text() == record
    assert "– enc, bits per byte, other.txt: an encoder predicts no text" in shown.out

    # A run that was fine-tuned is scored as it is, beside one that answers another task.
    plain = '[[tasks]]\nnames = ["sst2", "rte"]\ndata = "glue"\n'
    found = evaluate(plain, tmp_path / "tuned" / "dec" / "sst2", "--json").found()
    assert cells_of(found, "sst2")["sst2"]["mean"] == scores["dec"]["mean"]
    [row] = [row for row in found["rows"] if row["kind"] == "model"]
    assert row["reasons"]["rte"].startswith("it answers sst2, and the suite fine-tunes nothing")


def test_fine_tuning_that_is_interrupted_says_that_the_same_command_resumes(
    evaluate: Evaluate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def stopped(*_: object, **__: object):
        raise Interrupted("interrupted and saved; the same command with --resume resumes")

    monkeypatch.setattr("sublayer.suite.answering.TaskMeasure.score", stopped)
    suite = f'{TUNED}finetune = "{tmp_path}/tuned"\n'
    error = evaluate(suite, "dec").err.splitlines()[-1]
    assert error.startswith("interrupted while scoring SST-2 of dec, ")


def test_seeds_of_fine_tuning_are_a_mean_and_a_spread(evaluate: Evaluate, tmp_path: Path):
    suite = f'{TUNED}finetune = "{tmp_path}/tuned"\nseeds = 2\n'
    found = evaluate(suite, "dec", "--json").found()
    cell = cells_of(found, "sst2")["dec"]
    scores = []
    for seed in range(2):
        kept = (tmp_path / "tuned" / "dec" / "sst2" / f"seed-{seed}" / "scores.json").read_text()
        scores.append(json.loads(kept)["tasks"][0]["score"])
    assert cell["mean"] == pytest.approx(sum(scores) / 2)
    assert cell["inner_sd"] == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)
    assert cell["n_runs"] == 2
    refused = evaluate(suite.replace("seeds = 2\n", ""), "dec").refusal()
    assert "holds a run of another number of seeds" in refused
    refused = evaluate(suite.replace("batch_sequences = 4", "seed = 7"), "dec")
    assert refused.code == 2


@pytest.mark.all
def test_two_processes_find_what_one_finds(evaluate: Evaluate, place: Path, tmp_path: Path):
    suite = f'parameters = true\nspeed = true\n{TEXT}{TUNED}finetune = "{tmp_path}/tuned"\n{PROBE}'
    path = tmp_path / "both.toml"
    path.write_text(suite)
    command = in_two_processes("sublayer", "evaluate", "dec", "enc", "--suite", path, "--json")
    ended = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    # The first process alone prints.
    assert ended.stdout.count("\n") == 1
    both = json.loads(ended.stdout)
    alone = evaluate(suite, "dec", "enc", "--json").found()
    for found in (both, alone):
        for row in found["rows"]:
            row["cells"].pop("tokens_per_second", None)
        del found["machine"]
    assert both == alone


MISTAKES = {
    "unknown task": (TASK.replace("sst2", "sst3"), "sst3 is no task: did you mean sst2?"),
    "no head": (TASK, "dec has no head that answers SST-2"),
    "empty": ('title = "Nothing"', "asks for nothing"),
    "no text": (TEXT.replace("other", "none"), "none.txt"),
    "task twice": (TASK + TASK, "task sst2 stands there twice"),
    "no files of a task": (TASK.replace("sst2", "cola"), "glue has no files of CoLA"),
    "nothing downloaded": (TASK.replace('data = "glue"', ""), "a suite downloads nothing"),
    "setting alone": (TUNED, "set is of fine-tuning"),
    "other lines": (
        '[[pairs]]\nsource = "text.txt"\ntarget = "other.txt"',
        "300 lines, other.txt 60",
    ),
    "runs in a file": (TASK + 'finetune = "text.txt/runs"', "text.txt is no folder"),
    "equal words": (PROBE + 'words = ["a", " a"]', "the words 'a' and 'a' cannot be compared"),
    "another's reference": (PROBE + "references = { cola = 0.5 }", "cola has a reference, and is"),
    "no share": (PROBE + "references = { sst2 = 93 }", "the reference 93 of sst2 is no share"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_before_anything_is_computed(
    name: str, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
):
    def compute(*_: object) -> None:
        raise AssertionError("something was computed")

    monkeypatch.setattr(computing, "_measured", compute)
    suite, message = MISTAKES[name]
    assert message in evaluate(suite, "dec").refusal()


def test_models_options_and_files_are_checked(evaluate: Evaluate, place: Path, tmp_path: Path):
    there, missing = tmp_path / "there.csv", tmp_path / "none" / "card.html"
    there.write_text("")
    same = tmp_path / "card"
    for words, message in (
        (("dec", place / "dec"), "is named twice"),
        (("dec", "nowhere"), "nowhere does not exist"),
        (("dec", "--stride", 4), "--stride is of one model's own"),
        (("dec", "--csv", there), "is there already"),
        (("dec", "--html", missing), "is no folder"),
        (("dec", "--csv", same, "--html", same), "--csv and --html are the same file"),
    ):
        assert message in evaluate(TEXT, *words).refusal()
    assert cli.main(["evaluate", "dec", "enc"]) == 2
    assert cli.main(["evaluate", "dec", "--csv", "card.csv"]) == 2


def test_a_failure_of_one_measure_is_a_reason_beside_the_other_scores(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "short.txt").write_text("a")
    short = TEXT.replace("other.txt", f"{tmp_path}/short.txt")
    assert reason_of(evaluate(f"parameters = true\n{short}", "dec", "--json").found())
    for error, message in (
        (RuntimeError("could not create a primitive descriptor"), "it failed: could not create"),
        (RuntimeError("could not create a primitive"), "too little memory"),
        (MemoryError(), "too little memory"),
    ):

        def fail(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(texts.BitsPerByte, "score", fail)
        assert message in reason_of(evaluate(f"parameters = true\n{TEXT}", "dec", "--json").found())


def reason_of(found: dict) -> str:
    """The reason why the one model has no bits per byte; its parameters are counted."""
    [row] = [row for row in found["rows"] if row["kind"] == "model"]
    assert row["cells"]["parameters"]["mean"] > 0
    [reason] = row["reasons"].values()
    return reason


def test_models_of_one_name_are_told_apart_by_more_of_their_paths(place: Path):
    for folder in ("a", "b"):
        shutil.copytree(place / "dec", place / folder / "dec", dirs_exist_ok=True)
    found = find_candidates([place / "a" / "dec", place / "b" / "dec", place / "enc" / "model"])
    assert [each.name for each in found] == ["a/dec", "b/dec", "enc"]


def test_xz_compresses_documents_one_behind_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(texts, "_CHUNK_BYTES", 7)
    contents = [b"the cat sat on the mat", b"and the dog beside it, on the mat of the cat"]
    documents = [FileDocument(tmp_path / name, tmp_path) for name in ("a", "b")]
    for document, content in zip(documents, contents, strict=True):
        document.path.write_bytes(content)
    joined = b"".join(contents)
    bits = 8 * len(lzma.compress(joined, preset=9)) / len(joined)
    assert texts.compressed_bits(documents) == pytest.approx(bits)
