"""``sublayer compare`` and ``sublayer demo``: verdict and costs in text and in JSON."""

import json
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sublayer.commands.demo import announce
from sublayer.commands.shared.comparison import summarize
from sublayer.study.results import Results, StudyText
from tests.commands.results import Result, Sublayer
from tests.stopping import stopped_at
from tests.study.synthetic import synthetic_results
from tests.wrapping import unwrapped

TINY = [
    "model.n_layers=1",
    "model.d_model=8",
    "model.n_heads=2",
    "data.context=16",
    "train.batch_sequences=2",
]
FIXED = ["train.precision=float32", "train.threads=1"]
FFN = ["--vary", "model.ffn=gelu,swiglu", "--seeds", "3"]


@pytest.fixture
def settings(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return [*TINY, *FIXED, f"data.path={trained.parent / 'text.txt'}", "train.steps=4"]


@pytest.fixture
def compared(sublayer: Sublayer, settings: list[str]) -> Callable[..., Result]:
    """Compare two feed-forward networks on three seeds."""

    def run(*options: object) -> Result:
        return sublayer("compare", "gpt", *settings, *FFN, *options)

    return run


def summary(results: Results, *, notes: int = 0) -> list[str]:
    sizes = {"train": {"bytes": 9000, "documents": 634}, "test": {"bytes": 500, "documents": 52}}
    made = replace(
        results.reproduction,
        command="sublayer compare demo --jobs 2",
        text=StudyText(("python",), sizes),
        date="2026-11-28T10:00:00+00:00",
    )
    results = replace(results, reproduction=made, notes=("A note.",) * notes)
    return summarize(results, Path("/runs/report.html")).splitlines()


def test_a_summary_has_a_verdict_a_line_what_it_rests_on_and_what_to_run_next(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("COLUMNS", "80")
    lines = summary(synthetic_results(), notes=2)
    assert [re.sub(r"\d\.\d+", "0.1", line) for line in lines] == [
        "Four tiny decoders on the prose of the Python installation, in bits per byte",
        "(lower is better):",
        "",
        "  swiglu is better than gpt by 0.1 (95% CI 0.1 to 0.1)",
        "  macaron cannot be told from gpt: +0.1 (95% CI −0.1 to +0.1)",
        "  positions=none is worse than gpt by 0.1 (95% CI 0.1 to 0.1)",
        "",
        "At equal parameters, no setting tuned, paired over 5 seeds, scored on the test",
        "split. Text: python; trained on 634 documents, 0.1 kB; scored on the test",
        "split’s 52 documents, 500 B; finished on 2026-11-28.",
        "2 notes on its limits, all figures and costs: in the report, or by --details",
        "report: /runs/report.html",
        "next, on a text of yours: sublayer compare demo --jobs 2 data.path=FILE",
    ]


def test_a_summary_of_many_arms_has_fifteen_lines_and_says_how_many_are_left_out():
    lines = summary(synthetic_results({f"arm{n}": n * 0.01 for n in range(20)}))
    assert len(lines) == 15
    n_shown = sum(line.startswith("  arm") for line in lines)
    assert f"  and {19 - n_shown} more: in the report, or by --details" in lines
    assert n_shown >= 4


def test_the_demo_says_what_it_will_do_and_how_long_that_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for name in ("lr=0.004/seed-1000", "seed-0"):
        run = tmp_path / "arms" / "0-transformer" / name
        run.mkdir(parents=True)
        (run / "record.json").touch()
    announce(tmp_path / "elsewhere", 2)
    announce(tmp_path, 4)
    whole, rest = unwrapped(capsys.readouterr().err).split("Tiny decoders")[1:]
    assert "32 runs of 260 steps, 2 at a time" in whole
    assert "about 2:39 on a processor with avx512" in whole
    assert "about 1:22 on a processor with avx512" in rest
    assert "for 30 missing runs" in rest


def test_a_study_that_can_compare_nothing_exits_as_failed_training(
    sublayer: Sublayer, settings: list[str]
):
    rates = ("--vary", "optimizer.lr=1e-3,1e6")
    code, _, err = sublayer("compare", "gpt", *settings, *rates, "--seeds", 1)
    last = err.splitlines()[-1]
    assert code == 3
    assert "report.html" in last


def test_a_killed_study_ends_as_one_never_killed(
    settings: list[str], compared: Callable[..., Result]
):
    unbroken = compared("--out", "unbroken", "--json").found()
    # The first run is done, and the second has its folder.
    places = [("os.rename", "record.json"), ("open", "seed-0/.sublayer-lock")]
    words = ["compare", "gpt", *settings, *FFN, "--out", "killed", "--json"]
    command = stopped_at(places, signal.SIGKILL, *words)
    killed = subprocess.run(command, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    records = list(Path("killed/arms").rglob("record.json"))
    assert len(records) == 1
    assert not Path("killed/results.json").exists()
    resumed = compared("--out", "killed", "--json", "--resume").found()
    for before, after in zip(unbroken["arms"], resumed["arms"], strict=True):
        assert before["values"] == after["values"]


def test_recipes_are_compared_under_their_names(sublayer: Sublayer, settings: list[str]):
    Path("short.toml").write_text('extends = "macaron"\n[optimizer]\nlr = 1e-3\n')
    words = ["compare", "gpt", "short.toml", *settings, "--seeds", 1, "--json"]
    code, out, err = sublayer(*words)
    assert code == 0
    result = json.loads(out)
    assert [arm["name"] for arm in result["arms"]] == ["gpt", "short"]
    assert "optimizer.lr = 0.001 (there 0.0012)" in err.splitlines()[0]
    assert "optimizer.lr = 0.001 (there 0.0012)" in result["notes"][0]
    assert Path(result["report"]) == Path("runs/gpt-short/report.html").resolve()
    assert result["reproduction"]["command"].startswith("sublayer compare gpt short.toml model.")
    assert sublayer(*words).found() == result
