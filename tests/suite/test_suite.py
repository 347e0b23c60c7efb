"""``sublayer evaluate RUN ... --suite FILE``: scores are those of the commands for one model."""

import csv
import json
import shutil
import subprocess
from contextlib import chdir
from unittest.mock import Mock

import pytest

from sublayer.api.run import load
from sublayer.cli import main as cli
from sublayer.errors import Interrupted
from sublayer.suite import evaluate as computing
from sublayer.suite import measures
from sublayer.suite.measures import find_candidates
from tests.task_files import write_rte, write_sst2
from tests.torchrun import in_two_processes

TRAINING = (
    "train.steps=2", "train.batch_sequences=2", "train.evaluate_steps=2", "train.threads=1",
    "train.evaluate_tokens=256", "train.precision=float32", "model.n_layers=1", "model.d_model=16",
    "data.vocab_size=300", "data.context=48", "data.path=text.txt",
)  # fmt: skip
KINDS = {
    "dec": ("gpt", "data.tokenizer=bpe", "model.n_heads=2"),
    "enc": ("albert-small", "model.d_embed=16", "model.n_heads=2"),
    "lstm": ("gpt", "data.tokenizer=bpe", "model.kind=lstm"), "t5": ("t5-mini", "model.n_heads=2"),
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory, own_cache):
    folder = tmp_path_factory.mktemp("suite")
    said = "The {} films of year {} were {}.".format
    lines = [said(n, n % 7, "fine" if n % 3 else "dull") for n in range(300)]
    (folder / "text.txt").write_text("\n".join(lines))
    (folder / "other.txt").write_text("\n".join(lines[:60]))
    sizes = {"train": 24, "dev": 8}
    write_rte(write_sst2(folder / "glue", sizes), sizes)
    with chdir(folder):
        for name, words in KINDS.items():
            assert cli.main(["train", *words, *TRAINING, "--out", name]) == 0
    return folder


@pytest.fixture
def evaluate(place, monkeypatch, sublayer, tmp_path):
    monkeypatch.chdir(place)

    def run(suite, *words):
        (tmp_path / "suite.toml").write_text(suite)
        return sublayer("evaluate", *words, "--suite", tmp_path / "suite.toml")

    return run


TEXT = '[[texts]]\npath = "other.txt"\n'
TASK = '[[tasks]]\nnames = ["sst2"]\ndata = "glue"\n'
PROBE = '[[probes]]\nnames = ["sst2"]\ndata = "glue"\n'
TUNED = f"{TASK}set.data.held_out = 0.2\n"
TUNED += "set.train = { steps = 2, evaluate_steps = 2, batch_sequences = 4, threads = 1 }\n"
BITS = "bits_per_byte/other.txt"


def cells_of(found, column):
    return {row["name"]: row["cells"].get(column) for row in found["rows"]}


def test_four_kinds_of_models_stand_side_by_side(evaluate, tmp_path, sublayer):
    def alone(*words):
        return sublayer("evaluate", "dec", *words, "--json").found()

    suite = f'parameters = true\nspeed = true\n{TEXT}{TUNED}finetune = "{tmp_path}/tuned"\n{PROBE}'
    files = ("--csv", tmp_path / "card.csv", "--html", tmp_path / "card.html")
    found = evaluate(suite, *KINDS, *files, "--json").found()
    models = [row for row in found["rows"] if row["kind"] == "model"]
    kinds = {"dec": "decoder", "enc": "encoder", "lstm": "lstm", "t5": "encoder-decoder"}
    assert {row["name"]: row["model"] for row in models} == kinds
    columns = ["parameters", "tokens_per_second", BITS, "sst2", "probe/sst2"]
    assert [column["name"] for column in found["columns"]] == columns
    others = [row["name"] for row in found["rows"] if row["kind"] != "model"]
    assert others == ["majority", "words", "chance", "reference", "xz"]
    parameters, speeds, bits, scores, probes = (cells_of(found, column) for column in columns)
    for name in KINDS:
        assert parameters[name]["mean"] == sum(each.numel() for each in load(name).parameters())
        assert speeds[name]["mean"] > 0
        kept = json.loads((tmp_path / "tuned" / name / "sst2" / "scores.json").read_text())
        assert scores[name]["mean"] == kept["tasks"][0]["score"]
    assert scores["majority"]["mean"] == 0.5 and scores["words"]["error"] is not None
    assert bits["dec"]["mean"] == alone("--path", "other.txt")["bits_per_byte"]
    assert 0 < bits["dec"]["error"] < bits["dec"]["mean"]
    assert bits["enc"] is None and bits["t5"] is None and 0 < bits["xz"]["mean"] < 8
    reason = "an encoder does not predict a text from beginning to end"
    assert models[1]["reasons"][BITS] == reason
    probed = alone("--probes", "sst2", "--path", "glue")
    assert probes["dec"]["mean"] == probed["probes"][0]["value"]
    assert probes["chance"] == {**probes["chance"], "mean": 0.5, "error": (0.25 / 8) ** 0.5}
    assert probes["enc"] is None and probes["t5"] is not None
    with (tmp_path / "card.csv").open() as file:
        rows = {(row["row"], row["column"]): row for row in csv.DictReader(file)}
    dash = rows["enc", "probe/sst2"]
    assert dash["value"] == "" and "predicts no text" in dash["reason"]
    assert reason in (tmp_path / "card.html").read_text()
    # A second time nothing is fine-tuned.
    record = tmp_path / "tuned" / "dec" / "sst2" / "record.json"
    kept = record.read_text()
    evaluate(suite.replace("speed = true", ""), "dec", "enc")
    assert record.read_text() == kept
    # A run that was fine-tuned is scored as it is, beside one that answers another task.
    plain = '[[tasks]]\nnames = ["sst2", "rte"]\ndata = "glue"\n'
    found = evaluate(plain, record.parent, "--json").found()
    assert cells_of(found, "sst2")["sst2"]["mean"] == scores["dec"]["mean"]
    [row] = [row for row in found["rows"] if row["kind"] == "model"]
    assert row["reasons"]["rte"].startswith("the model answers sst2, and the suite fine-tunes no")


def test_seeds_of_fine_tuning_are_a_mean_and_a_spread(evaluate, tmp_path, monkeypatch):
    suite = f'{TUNED}set.data.context = 5\nfinetune = "{tmp_path}/tuned"\nseeds = 2\n'
    found = evaluate(suite, "dec", "--json").found()
    assert "dec, SST-2: 8 of 8 rows (100%) of the test split" in str(found["notes"])
    cell = cells_of(found, "sst2")["dec"]
    places = [tmp_path / f"tuned/dec/sst2/seed-{seed}/scores.json" for seed in range(2)]
    one, other = (json.loads(path.read_text())["tasks"][0]["score"] for path in places)
    assert (cell["mean"], cell["n_runs"]) == (pytest.approx((one + other) / 2), 2)
    assert cell["inner_sd"] == pytest.approx(abs(one - other) / 2**0.5)
    refused = evaluate(suite.replace("seeds = 2\n", ""), "dec").refusal()
    assert "holds a run of another number of seeds" in refused
    assert evaluate(suite.replace("batch_sequences = 4", "seed = 7"), "dec").code == 2
    refused = evaluate(suite.replace("set.data.held_out = 0.2", "set.model.n_heads = 3"), "dec")
    assert "n_heads" in refused.refusal()
    stop = Mock(side_effect=Interrupted("saved; the same command with --resume resumes"))
    monkeypatch.setattr("sublayer.suite.measures.TaskMeasure.score", stop)
    error = evaluate(suite, "dec").err.splitlines()[-1]
    assert error.startswith("interrupted while scoring SST-2 of dec, ")


@pytest.mark.all
def test_two_processes_find_what_one_finds(evaluate, place, tmp_path):
    suite = f'parameters = true\nspeed = true\n{TEXT}{TUNED}finetune = "{tmp_path}/tuned"\n{PROBE}'
    path = tmp_path / "both.toml"
    path.write_text(suite)
    command = in_two_processes("sublayer", "evaluate", "dec", "enc", "--suite", path, "--json")
    ended = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    assert ended.stdout.count("\n") == 1, "the first process alone prints"
    both, one = json.loads(ended.stdout), evaluate(suite, "dec", "enc", "--json").found()
    for row in (*both["rows"], *one["rows"]):
        row["cells"].pop("tokens_per_second", None)
    assert {**both, "machine": 0} == {**one, "machine": 0}


@pytest.mark.parametrize("message, suite", {
    "`sublayer tasks` lists them: did you mean sst2?": TASK.replace("sst2", "sst3"),
    "dec has no head that answers SST-2": TASK, "has nothing to measure": 'title = "Nothing"',
    "task sst2 is listed twice": TASK + TASK,
    "a suite downloads nothing": TASK.replace('data = "glue"', ""), "set requires fine-tu": TUNED,
    "300 lines, other.txt 60": '[[pairs]]\nsource = "text.txt"\ntarget = "other.txt"',
    "text.txt is not a folder": TASK + 'finetune = "text.txt/runs"',
    "the words 'a' and 'a' cannot be compared": PROBE + 'words = ["a", " a"]',
    "cola has a reference, but is": PROBE + "references = { cola = 0.5 }",
    "the reference 93 of sst2 is not in": PROBE + "references = { sst2 = 93 }",
}.items())  # fmt: skip
def test_a_mistake_is_refused_before_anything_is_computed(message, suite, evaluate, monkeypatch):
    monkeypatch.delattr(computing.Work, "_measured")
    assert message in evaluate(suite, "dec").refusal()


def test_models_options_and_files_are_checked(evaluate, place, tmp_path):
    there = tmp_path / "there.csv"
    there.write_text("")
    for words, message in (
        (("dec", place / "dec"), "is named twice"), (("dec", "nowhere"), "nowhere is not there"),
        (("dec", "--stride", 4), "--stride applies to one"), (("dec", "--csv", there), "exists"),
        (("dec", "--html", tmp_path / "none" / "card.html"), "is missing: create it"),
        (("dec", "--csv", tmp_path / "card.html"), "must end in .csv"),
    ):  # fmt: skip
        assert message in evaluate(TEXT, *words).refusal()


def test_a_failure_is_a_reason_beside_the_other_scores(evaluate, monkeypatch, tmp_path):
    def reason_of(text):
        found = evaluate(f"parameters = true\n{text}", "dec", "--json").found()
        [row] = [row for row in found["rows"] if row["kind"] == "model"]
        assert row["cells"]["parameters"]["mean"] > 0
        [reason] = row["reasons"].values()
        return reason

    (tmp_path / "short.txt").write_text("a")
    assert reason_of(TEXT.replace("other.txt", f"{tmp_path}/short.txt"))
    for error, message in (
        (RuntimeError("could not create a primitive descriptor"), "failed: could not create"),
        (RuntimeError("could not create a primitive"), "too little memory"),
        (MemoryError(), "too little memory"),
    ):
        monkeypatch.setattr(measures.BitsPerByte, "score", Mock(side_effect=error))
        assert message in reason_of(TEXT)


def test_models_of_one_name_are_told_apart_by_more_of_their_paths(place):
    for folder in ("a", "b"):
        shutil.copytree(place / "dec", place / folder / "dec", dirs_exist_ok=True)
    found = find_candidates([place / "a" / "dec", place / "b" / "dec", place / "enc" / "model"])
    assert [each.name for each in found] == ["a/dec", "b/dec", "enc"]
