"""Runs, exports and studies as earlier commits wrote them resume, load and are reported."""

import hashlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import sublayer
from sublayer.cli import main as cli
from sublayer.config.load import read_run_recipe
from sublayer.config.recipe import ADDED
from sublayer.errors import CheckpointError, ConfigError
from sublayer.study.collect import results_of_folder
from sublayer.training.checkpoints import stored_model
from tests.golden.core import digest, kind

OLD = Path(__file__).parent / "old"
MADE_IN = "/tmp/old"
"""The folder that ``make.sh`` was run in, which recipes name."""
RUNS = sorted(path.parent.relative_to(OLD).as_posix() for path in OLD.glob("*/*/stopped"))
SHARDED = ("d37b588/adafactor", "d37b588/lamb")
"""Those that two processes have trained, each with its part of weights and moments."""
EXPORTED = {"ba7f49d": "causal", "d99a9b4": "table", "ff3bb8a": "sentences"}
"""The exports, by commit, and the run of each."""
# Processors add in another order: of weights of about 0.1, that is a few of float32's last places.
TOLERANCE = 1e-5
NOT_HELD = {"run", "seconds", "sources", "signature"}

Copy = Callable[[str], Path]
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def old(tmp_path: Path) -> Copy:
    """Copies of old folders, which name the texts, and themselves, where these now are."""

    def copy(name: str) -> Path:
        folder = tmp_path / name
        shutil.copytree(OLD / name, folder)
        made_as = [f"{MADE_IN}/{name}/finished", f"{MADE_IN}/{name}"]
        names = ("*.toml", "record.json", "inputs.json")
        for path in (path for name in names for path in folder.rglob(name)):
            text = path.read_text()
            for made in made_as:
                text = text.replace(made, folder.as_posix())
            path.write_text(text.replace(f"{MADE_IN}/", f"{OLD.as_posix()}/"))
        return folder

    return copy


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line, and return what it prints with ``--json``."""

    def call(*words: str | Path) -> dict[str, Any]:
        capsys.readouterr()
        code = cli.main([*map(str, words), "--json"])
        out, err = capsys.readouterr()
        assert code == cli.DONE, err
        result: dict[str, Any] = json.loads(out.splitlines()[-1])
        return result

    return call


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_same(now: Any, then: Any) -> None:
    """Hold results to those of then: figures to a tolerance, else to the letter."""
    if isinstance(then, dict):
        for name in then.keys() - NOT_HELD:
            assert_same(now[name], then[name])
    elif isinstance(then, list):
        for one_now, one_then in zip(now, then, strict=True):
            assert_same(one_now, one_then)
    elif isinstance(then, float):
        assert now == pytest.approx(then, rel=TOLERANCE, abs=TOLERANCE)
    else:
        assert now == then


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def assert_same_weights(now: Path, then: Path) -> None:
    ended, known = weights_of(now), weights_of(then)
    assert ended.keys() == known.keys()
    for name, weights in known.items():
        torch.testing.assert_close(ended[name], weights, rtol=TOLERANCE, atol=TOLERANCE)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", RUNS)
def test_a_stopped_run_goes_on_and_ends_as_the_unbroken_one(name: str, old: Copy) -> None:
    stopped, unbroken = old(f"{name}/stopped"), OLD / name / "finished"
    midway = stored_model(stopped / "checkpoints" / "step-00000003").read()
    ended = weights_of(unbroken)
    moved = [float((ended[each] - midway[each]).abs().max()) for each in ended]
    assert max(moved) > 100 * TOLERANCE
    begun = (stopped / "metrics.jsonl").read_text()
    sublayer.train(stopped, out=stopped, resume=True, device="cpu")
    assert (stopped / "metrics.jsonl").read_text().startswith(begun)
    assert_same_weights(stopped, unbroken)
    assert_same(metrics(stopped), metrics(unbroken))


def before(field: str, folder: Path) -> None:
    """Take a derived field of the model out of a run, as if a version without it had written it."""
    for path in (path for name in ("recipe.toml", "inputs.json") for path in folder.rglob(name)):
        line = rf'(\\n|\n){field} = .*?(?=\1)|"model\.{field}",\s*'
        path.write_text(re.sub(line, "", path.read_text()))
    for path in folder.rglob("config.json"):
        described = json.loads(path.read_text())
        del described["model"][field]
        path.write_text(json.dumps(described))
    for path in folder.rglob("manifest.json"):
        listed = json.loads(path.read_text())
        for name, entry in listed.items():
            content = (path.parent / name).read_bytes()
            entry.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        path.write_text(json.dumps(listed))


def test_a_run_from_before_a_derived_field_goes_on_and_is_read(
    old: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "d37b588/adafactor"
    stopped, finished, unbroken = old(f"{name}/stopped"), old(f"{name}/finished"), OLD / name
    for folder in (stopped, finished):
        before("d_head", folder)
    with pytest.raises(ConfigError, match="d_head, n_kv_heads have no value"):
        read_run_recipe(stopped / "recipe.toml")
    with pytest.raises(CheckpointError, match=r"lacks model\.d_head"):
        sublayer.load(finished)
    monkeypatch.setitem(ADDED, "model.d_head", lambda model: model.d_model // model.n_heads)
    assert read_run_recipe(stopped / "recipe.toml").model.d_head == 4
    assert sublayer.load(finished).config.d_head == 4
    sublayer.train(stopped, out=stopped, resume=True, device="cpu")
    assert_same_weights(stopped, unbroken / "finished")


def test_sharded_runs_go_on_in_two_processes_and_end_as_the_unbroken_ones(
    old: Copy, tmp_path: Path
) -> None:
    runs = [old(f"{name}/stopped") for name in SHARDED]
    words = [["train", str(run), "--out", str(run), "--resume", "--device", "cpu"] for run in runs]
    trainings = json.dumps([(2, each) for each in words])
    command = [sys.executable, "-m", "tests.golden.processes", trainings]
    done = subprocess.run(command, capture_output=True, text=True, cwd=OLD.parents[2])
    assert done.returncode == 0, done.stderr[-6000:]
    for run, name in zip(runs, SHARDED, strict=True):
        unbroken = OLD / name / "finished"
        assert_same_weights(run, unbroken)
        assert_same(metrics(run), metrics(unbroken))
        if kind() == (OLD / name / "kind.txt").read_text().strip():
            assert digest(weights_of(run)) == digest(weights_of(unbroken))


@pytest.mark.parametrize("name", RUNS)
def test_a_finished_run_is_left_as_it_is_and_evaluated_as_then(
    name: str, old: Copy, run: Run
) -> None:
    finished = old(f"{name}/finished")
    before = contents(finished)
    assert sublayer.train(finished, out=finished, resume=True, device="cpu")["step"] == 6
    assert contents(finished) == before
    assert sublayer.load(finished).config.d_model == 8
    now = run("evaluate", finished, "--split", "test", "--device", "cpu")
    assert_same(now, json.loads((OLD / name / "evaluated.json").read_text()))


def test_a_decoder_generates_as_then(old: Copy, run: Run) -> None:
    words = ["--prompt", "the dog", "--tokens", "20", "--temperature", "0", "--device", "cpu"]
    now = run("generate", old("ba7f49d/causal/finished"), *words)
    assert_same(now, json.loads((OLD / "ba7f49d/causal/generated.json").read_text()))


def test_a_translator_translates_as_then(
    old: Copy, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b"the old dog sees the small cat .\nthe red fox hears the quiet bird .\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    words = ["--beam", "2", "--longest-share", "2", "--longest-more", "5", "--device", "cpu"]
    now = run("translate", old("ba7f49d/translation/finished"), *words)
    assert_same(now, json.loads((OLD / "ba7f49d/translation/translated.json").read_text()))


@pytest.mark.parametrize("commit", EXPORTED)
def test_an_export_is_imported_as_the_run_that_it_is_of(
    commit: str, tmp_path: Path, run: Run
) -> None:
    run("import", "huggingface", OLD / commit / "exported", "--out", tmp_path / "ours")
    model, tokens = sublayer.load(tmp_path / "ours"), torch.arange(5, 17)[None]
    trained = sublayer.load(OLD / commit / EXPORTED[commit] / "finished")
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), trained(tokens), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(
    "name, lost, seeds",
    [
        ("ff3bb8a/study", "arms/1-ffn=swiglu/seed-2", 3),
        ("ff3bb8a/chain", "stages/animals-bc0391e92f/seed-2000", None),
        ("d99a9b4/study", "arms/0-ffn=gelu/seed-1", 3),
    ],
)
def test_a_study_that_lacks_a_run_is_reported_and_goes_on(
    name: str, lost: str, seeds: int | None, old: Copy, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = old(name)
    then = json.loads((folder / "results.json").read_text())
    shutil.rmtree(folder / lost)
    run("report", folder)
    assert "Unfinished" in (folder / "report.html").read_text()
    monkeypatch.chdir(OLD)
    words = shlex.split(then["reproduction"]["command"].partition("sublayer ")[2])
    if seeds:
        words[words.index("--seeds") + 1] = str(seeds)
    run(*words, "--out", folder)
    assert (folder / lost / "record.json").is_file()
    now = json.loads((folder / "results.json").read_text())
    for arm, known in zip(now["arms"], then["arms"], strict=True):
        assert_same({**arm, "values": arm["values"][: len(known["values"])]}, held(known))
    if len(now["arms"][0]["values"]) == len(then["arms"][0]["values"]):
        names = ("arm", "mean")  # intervals are today's
        known = [{name: each[name] for name in names} for each in then["differences"]]
        assert_same(now["differences"], known)


def held(arm: dict[str, Any]) -> dict[str, Any]:
    """Return what an arm's results have whatever the time that they took."""
    return {name: arm[name] for name in ("name", "parameters", "values", "matched", "tuned")}


@pytest.mark.parametrize(
    "name, verdict", [("cd54610/tuned", "cannot tell"), ("d99a9b4/study", "no verdict")]
)
def test_a_finished_study_is_reported_with_the_verdict_of_today(
    name: str, verdict: str, old: Copy, run: Run
) -> None:
    folder = old(name)
    then = json.loads((folder / "results.json").read_text())
    run("report", folder)
    assert f">{verdict}<" in (folder / "report.html").read_text()
    now = results_of_folder(folder)
    for arm, known in zip(now.arms, then["arms"], strict=True):
        assert [arm.name, *arm.seeds, *arm.tuned] == [
            known["name"],
            *known["seeds"],
            *known["tuned"],
        ]
        assert list(arm.values) == pytest.approx(known["values"])
    (difference,), (known,) = now.differences, then["differences"]
    assert difference.mean == pytest.approx(known["mean"])
    assert (known["verdict"], difference.verdict) == ("undecided", verdict)


@pytest.mark.parametrize(
    "name, message",
    [
        ("ba7f49d/study", "study was begun by another version of sublayer"),
        ("cd54610/tuned", "earlier version tuned with seed 0, also a compared"),
    ],
)
def test_a_study_of_other_rules_is_refused_and_left_as_it_is(
    name: str, message: str, old: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = old(name)
    before = contents(folder)
    tuned = ["optimizer.lr=0.001,0.01"] if name == "cd54610/tuned" else []
    settings = [
        *(f"data.path={OLD / 'texts' / 'plain.txt'}", "data.context=16", "data.split=60/20/20"),
        *("model.n_layers=1", "model.d_model=8", "model.n_heads=2", "model.d_ff=16"),
        *("model.dropout=0.1", "optimizer.eps=0.0001", "optimizer.warmup_steps=1"),
        *("train.steps=6", "train.checkpoint_steps=3", "train.evaluate_steps=3"),
        *("train.log_steps=1", "train.threads=1", "train.precision=float32"),
        *("train.batch_sequences=4", *([] if tuned else ["optimizer.lr=0.01"])),
    ]
    words = {"vary": ["model.ffn=gelu,swiglu"], "match": "none", "seeds": 3, "tune": tuned}
    with pytest.raises(ConfigError, match=message):
        sublayer.compare("gpt", settings, **words, out=folder, device="cpu")
    assert contents(folder) == before
