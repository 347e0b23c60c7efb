"""Runs that an earlier version wrote resume, load and are evaluated as they were then."""

import io
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sublayer import cli, compare, load
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.runs.run import train_run
from sublayer.study.from_folder import results_of_folder
from sublayer.training.metrics import METRICS, read_metrics
from sublayer.training.progress import SilentProgress, Status
from tests.in_time import some_in_time

OLD = Path(__file__).parent / "old_runs"
MADE_IN = "/tmp/old/"
SMALL = [
    "model.n_layers=1",
    "model.d_model=8",
    "model.n_heads=2",
    "model.d_ff=16",
    "model.dropout=0.1",
    "data.split=60/20/20",
    "optimizer.lr=0.01",
    "optimizer.eps=0.0001",
    "optimizer.warmup_steps=1",
    "train.steps=6",
    "train.checkpoint_steps=3",
    "train.evaluate_steps=3",
    "train.log_steps=1",
    "train.threads=1",
    "train.precision=float32",
]
KINDS = ("causal", "masked", "translation")
# Processors add in another order: of weights of about 0.1, that is a few of float32's last places.
TOLERANCE = 1e-5


class Notes(SilentProgress):
    """Keeps what a run says, and after which steps."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.steps: list[int] = []

    def note(self, text: str) -> None:
        self.said.append(text)

    def update(self, status: Status) -> None:
        self.steps.append(status.step)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def old_run(tmp_path: Path) -> Callable[[str], Path]:
    """Copies of old runs, whose recipes name the texts where they now are."""

    def copy(name: str) -> Path:
        folder = tmp_path / name
        shutil.copytree(OLD / name, folder)
        recipe = folder / "recipe.toml"
        recipe.write_text(recipe.read_text().replace(MADE_IN, f"{OLD.as_posix()}/"))
        return folder

    return copy


def printed(words: Sequence[str | Path], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    code = cli.main([*map(str, words), "--device", "cpu", "--json"])
    out, err = capsys.readouterr()
    assert code == cli.DONE, err
    result: dict[str, object] = json.loads(out)
    return result


def kept(name: str) -> dict[str, object]:
    content: dict[str, object] = json.loads((OLD / name).read_text())
    return content


def assert_same(now: object, then: object) -> None:
    """Hold what is said now to what was said then: figures to a tolerance, else to the letter."""
    if isinstance(then, dict):
        assert isinstance(now, dict)
        for name in then.keys() - {"run", "seconds", "sources", "signature"}:
            assert_same(now[name], then[name])
    elif isinstance(then, list):
        assert isinstance(now, list)
        for one_now, one_then in zip(now, then, strict=True):
            assert_same(one_now, one_then)
    elif isinstance(then, float):
        assert now == pytest.approx(then, rel=TOLERANCE, abs=TOLERANCE)
    else:
        assert now == then


@pytest.mark.parametrize("kind", KINDS)
def test_an_old_run_goes_on_and_ends_as_the_unbroken_one(
    kind: str, old_run: Callable[[str], Path]
) -> None:
    run, unbroken = old_run(f"{kind}/stopped"), OLD / kind / "finished"
    notes = Notes()
    train_run(load_recipe(run), run, resume=True, device="cpu", progress=notes)
    assert [note for note in notes.said if "refused" in note] == []
    assert notes.steps == [4, 5, 6]
    then = load_file(unbroken / "model" / "model.safetensors")
    now = load_file(run / "model" / "model.safetensors")
    assert now.keys() == then.keys()
    for name, weights in then.items():
        torch.testing.assert_close(now[name], weights, rtol=TOLERANCE, atol=TOLERANCE)
    assert_same(read_metrics(run / METRICS), read_metrics(unbroken / METRICS))


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_move_by_far_more_than_the_tolerance(kind: str) -> None:
    checkpoint = OLD / kind / "stopped" / "checkpoints" / "step-00000003"
    midway = load_file(checkpoint / "model" / "model.safetensors")
    ended = load_file(OLD / kind / "finished" / "model" / "model.safetensors")
    moved = [float((ended[name] - midway[name]).abs().max()) for name in ended]
    assert max(moved) > 1000 * TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_an_old_run_that_ended_is_left_as_it_is(kind: str, old_run: Callable[[str], Path]) -> None:
    run = old_run(f"{kind}/finished")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    record = train_run(load_recipe(run), run, resume=True, device="cpu", progress=SilentProgress())
    assert record["step"] == 6
    assert all(path.read_bytes() == content for path, content in before.items())


@pytest.mark.parametrize("kind", some_in_time(KINDS, 3))
def test_an_old_model_loads_and_is_evaluated_as_then(
    kind: str, old_run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = old_run(f"{kind}/finished")
    assert load(run).config.d_model == 8
    now = printed(["evaluate", run, "--split", "test"], capsys)
    assert_same(now, kept(f"{kind}/evaluated.json"))


def test_an_old_decoder_generates_as_then(
    old_run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = old_run("causal/finished")
    asked = ["--prompt", "the dog", "--tokens", "20", "--temperature", "0"]
    assert_same(printed(["generate", run, *asked], capsys), kept("causal/generated.json"))


def test_an_old_translator_translates_as_then(
    old_run: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = "the old dog sees the small cat .\nthe red fox hears the quiet bird .\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    run = old_run("translation/finished")
    asked = ["--beam", "2", "--longest-share", "2", "--longest-more", "5"]
    assert_same(printed(["translate", run, *asked], capsys), kept("translation/translated.json"))


def test_a_study_of_before_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    # Seeds gave other initial weights then.
    folder = tmp_path / "study"
    shutil.copytree(OLD / "study", folder)
    plan = folder / "study.toml"
    plan.write_text(plan.read_text().replace(MADE_IN, f"{OLD.as_posix()}/"))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    settings = [f"data.path={OLD / 'texts' / 'plain.txt'}", "data.context=16", *SMALL]
    asked = {"vary": ["model.ffn=gelu,swiglu"], "match": "none", "seeds": 3, "out": folder}
    with pytest.raises(ConfigError, match="study was begun by another version of sublayer"):
        compare("gpt", settings, **asked)  # type: ignore[arg-type]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


TUNED = {
    "overrides": [
        f"data.path={OLD / 'texts' / 'plain.txt'}",
        "data.context=16",
        "train.batch_sequences=4",
        *(each for each in SMALL if not each.startswith("optimizer.lr")),
    ],
    "vary": ["model.ffn=gelu,swiglu"],
    "match": "none",
    "tune": ["optimizer.lr=0.001,0.01"],
    "seeds": 3,
    "device": "cpu",
}


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """A comparison that was tuned with a seed that it compares, as was then."""
    folder = tmp_path / "tuned"
    shutil.copytree(OLD / "tuned", folder)
    for path in (folder / "study.toml", *folder.rglob("recipe.toml")):
        path.write_text(path.read_text().replace(MADE_IN, f"{OLD.as_posix()}/"))
    return folder


def test_the_report_of_a_tuned_study_of_before_is_written_again(tuned: Path) -> None:
    then = json.loads((tuned / "results.json").read_text())
    now = results_of_folder(tuned)
    for arm, known in zip(now.arms, then["arms"], strict=True):
        assert list(arm.seeds) == known["seeds"] == [0, 1, 2]
        assert list(arm.values) == known["values"]
        assert list(arm.tuned) == known["tuned"] == ["optimizer.lr=0.01"]
    (difference,), (known,) = now.differences, then["differences"]
    assert difference.mean == pytest.approx(known["mean"])
    # The verdict is today's, which has another name, and items in its interval.
    assert (known["verdict"], difference.verdict) == ("undecided", "cannot tell")
    assert difference.parts is not None and difference.parts.items is not None
    assert now.looks == (3,)
    assert any("gelu chose lr=0.01 by its validation loss: lr=0.001" in each for each in now.notes)
    assert cli.main(["report", str(tuned)]) == cli.DONE
    assert "SwiGLU feed-forward cannot be told from GELU" in (tuned / "report.html").read_text()


def test_a_tuned_study_of_before_lacks_a_run_and_is_reported_without_a_verdict(
    tuned: Path,
) -> None:
    shutil.rmtree(tuned / "arms" / "1-ffn=swiglu" / "lr=0.01" / "seed-2")
    now = results_of_folder(tuned)
    assert now.notes[0].startswith("Unfinished: 5 of 6 runs of all seeds have ended.")
    (difference,) = now.differences
    assert (difference.verdict, difference.low) == ("no verdict", None)


def test_a_tuned_study_of_before_is_refused_and_left_as_it_is(tuned: Path) -> None:
    before = {path: path.read_bytes() for path in tuned.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="earlier version tuned with seed 0, which it compares"):
        compare("gpt", **TUNED, out=tuned)  # type: ignore[arg-type]
    assert {path: path.read_bytes() for path in tuned.rglob("*") if path.is_file()} == before
