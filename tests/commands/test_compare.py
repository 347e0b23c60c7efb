"""``sublayer compare`` and ``sublayer demo``: verdict and costs in text, one JSON object, one line for a mistake."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sublayer.study.definition import load_study
from tests.stopping import stopped_at

Sublayer = Callable[..., tuple[int, str, str]]
TINY = ["model.n_layers=1", "model.d_model=8", "model.n_heads=2", "data.context=16", "train.batch_sequences=2"]
FIXED = ["train.precision=float32", "train.threads=1"]
FFN = ["--vary", "model.ffn=gelu,swiglu", "--seeds", "2"]


@pytest.fixture
def settings(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return [*TINY, *FIXED, f"data.path={trained.parent / 'text.txt'}", "train.steps=4"]


def test_the_text_says_verdict_costs_and_where_the_report_is(sublayer: Sublayer, settings: list[str]):
    code, out, err = sublayer("compare", "gpt", *settings, *FFN)
    assert code == 0
    assert out.startswith("At equal parameters, no setting tuned, paired over 2 seeds, scored on the test split:\n")
    assert "note: 2 seeds are few: with one comparison an interval reaches 12.7 standard errors" in out
    assert "ffn=swiglu" in out
    assert "FLOPs/token" in out
    assert out.splitlines()[-1] == f"report: {Path('runs/gpt/report.html').resolve()}"
    assert "[4/4" in err


def test_the_json_is_one_line_with_the_promised_keys(sublayer: Sublayer, settings: list[str]):
    code, out, _ = sublayer("compare", "gpt", *settings, *FFN, "--out", "study", "--json")
    result = json.loads(out)
    assert (code, out.count("\n")) == (0, 1)
    assert result.keys() >= {"report", "metric", "arms", "differences"}
    assert all(arm.keys() >= {"name", "parameters", "seeds", "values", "mean"} for arm in result["arms"])
    wanted = {"arm", "baseline", "mean", "low", "high", "p", "verdict"}
    assert all(difference.keys() >= wanted for difference in result["differences"])
    assert result["report"] == str(Path("study/report.html").resolve())


def test_a_value_is_what_evaluate_says_of_the_run(sublayer: Sublayer, settings: list[str]):
    _, out, _ = sublayer("compare", "gpt", *settings, *FFN, "--json")
    _, evaluated, _ = sublayer("evaluate", "runs/gpt/arms/1-ffn=swiglu/seed-1", "--split", "test", "--json")
    value = json.loads(out)["arms"][1]["values"][1]
    assert json.loads(evaluated)["bits_per_byte"] == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--vary", "model.ffn=gelu,swiglu", "--seeds", "1"], "needs at least 2"),
        (["--vary", "model.ffn=gelu,gelu"], "give each value once"),
        (["--vary", "model.fn=gelu,relu"], "model.ffn"),
        (["--vary", "model.ffn=gelu,swigly"], "swiglu"),
        (["--vary", "model.ffn=gelu,relu", "--match", "weight"], "parameters"),
        ([], "--vary"),
    ],
)
def test_a_mistake_is_one_line_and_trains_nothing(sublayer: Sublayer, settings: list[str], words: list[str], hint: str):
    code, out, err = sublayer("compare", "gpt", *settings, *words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert hint in err
    assert not Path("runs").exists()


def test_a_study_that_can_compare_nothing_exits_as_failed_training(sublayer: Sublayer, settings: list[str]):
    code, _, err = sublayer("compare", "gpt", *settings, "--vary", "optimizer.lr=1e-3,1e6", "--seeds", "2")
    assert code == 3
    assert "report.html" in err.splitlines()[-1]


@pytest.mark.slow
def test_a_killed_study_ends_as_one_never_killed(sublayer: Sublayer, settings: list[str]):
    _, out, _ = sublayer("compare", "gpt", *settings, *FFN, "--out", "unbroken", "--json")
    # The first run is done, and the second has its folder.
    places = [("os.rename", "record.json"), ("open", "seed-0/.sublayer-lock")]
    command = stopped_at(places, signal.SIGKILL, "compare", "gpt", *settings, *FFN, "--out", "killed", "--json")
    assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    assert len(list(Path("killed/arms").rglob("record.json"))) == 1
    assert not Path("killed/results.json").exists()
    _, resumed, _ = sublayer("compare", "gpt", *settings, *FFN, "--out", "killed", "--json", "--resume")
    values = [[arm["values"] for arm in json.loads(text)["arms"]] for text in (out, resumed)]
    assert values[0] == values[1]


def test_the_demo_is_a_study_of_equal_arms_with_five_seeds():
    study = load_study("demo")
    assert study.match == "parameters"
    assert (study.n_seeds or 0) >= 5
    assert {"macaron", "swiglu"} < {arm.name for arm in study.arms}


@pytest.mark.slow
def test_the_demo_takes_over_the_folder_of_no_other_study(
    sublayer: Sublayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # The whole demo takes minutes: this one has its runs cut to a step, and two seeds, and so is another study.
    monkeypatch.chdir(tmp_path)
    code, _, err = sublayer("compare", "demo", "train.steps=1", "--seeds", "2", "--out", "runs/demo")
    assert code == 0, err
    assert Path("runs/demo/report.html").is_file()
    code, _, err = sublayer("demo")
    assert code == 2
    assert "runs/demo holds another study" in err
