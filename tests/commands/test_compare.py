"""``sublayer compare`` and ``sublayer demo``: verdict and costs in text and in JSON."""

import json
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sublayer.commands.shared.comparison import summarize
from sublayer.study.definition import load_study
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


@pytest.mark.slow
def test_the_text_says_verdict_costs_and_where_the_report_is(compared: Callable[..., Result]):
    code, out, err = compared("--details")
    assert code == 0
    said = unwrapped(out)
    assert re.match(
        "At equal parameters, no setting tuned, (paired over 3 seeds|3 seeds of each), scored on "
        "the test split, each token behind at least half a context: ",
        said,
    )
    assert "Margin: none was named" in said
    assert re.search("Spread: the interval reaches 0.0[0-9]+ to either side", said)
    assert re.search("Seeds: compared (as independent runs|pair by pair), for ", said)
    assert "Looks:" not in said
    assert "ffn=swiglu" in out
    assert "FLOPs/" in out
    assert "on a CPU also what the program loads meanwhile" in unwrapped(out)
    report = Path("runs/gpt-ffn/report.html").resolve()
    assert out.endswith(f"\nreport: {report}\n")
    assert "[6/6" in err
    _, summary, _ = compared()
    assert len(summary.splitlines()) <= 15
    assert re.search("SwiGLU feed-forward .* GELU feed-forward.* [(]95% CI ", unwrapped(summary))
    assert "the test split" in summary
    assert f"\nreport: {report}\n" in summary


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


@pytest.mark.slow
def test_the_text_is_no_wider_than_the_terminal(
    compared: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
):
    for columns in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        _, out, _ = compared("--out", "study", "--details")
        *lines, report = out.splitlines()
        assert report.startswith("report: ")
        assert max(map(len, lines)) <= columns
    assert "FLOPs/token  steps  tokens/s" in out


@pytest.mark.slow
def test_the_text_of_one_seed_says_that_it_gives_no_verdict(compared: Callable[..., Result]):
    code, out, _ = compared("--seeds", 1, "--details")
    assert code == 0
    assert unwrapped(out).startswith(
        "At equal parameters, no setting tuned, one seed of each, scored on the test split, "
        "each token behind at least half a context: "
    )
    assert "no verdict SwiGLU feed-forward differs from GELU feed-forward by " in unwrapped(out)
    assert "note: One seed gives values and no verdict" in out
    assert "95% CI" not in out
    assert "Margin" not in out


@pytest.mark.slow
def test_the_json_is_one_line_with_the_promised_keys(compared: Callable[..., Result]):
    answered = compared("--out", "study", "--json")
    assert answered.out.count("\n") == 1
    result = answered.found()
    assert result.keys() >= {"report", "metric", "arms", "differences"}
    for arm in result["arms"]:
        assert arm.keys() >= {"name", "parameters", "seeds", "values", "mean"}
    for difference in result["differences"]:
        assert difference.keys() >= {"arm", "baseline", "mean", "low", "high", "p", "verdict"}
    assert result["report"] == str(Path("study/report.html").resolve())


@pytest.mark.slow
def test_a_value_is_what_evaluate_says_of_the_run(
    sublayer: Sublayer, compared: Callable[..., Result]
):
    swiglu = compared("--json").found()["arms"][1]
    run = "runs/gpt-ffn/arms/1-ffn=swiglu/seed-1"
    evaluated = sublayer("evaluate", run, "--split", "test", "--json").found()
    assert evaluated["bits_per_byte"] == pytest.approx(swiglu["values"][1], rel=1e-6)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--vary", "model.ffn=gelu,swiglu", "--seeds", "0"], "--seeds must be at least 1"),
        (["--vary", "model.ffn=gelu,swiglu", "--seeds", "2"], "--seeds 2 says too little"),
        (["--vary", "model.ffn=gelu,relu", "--until", "now"], "--until now is no end"),
        (["--vary", "model.ffn=gelu,relu", "--until", "decided"], "needs an end"),
        (["--vary", "model.ffn=gelu,relu", "--seeds-at-most", "9"], "is of --until decided"),
        (["--vary", "model.ffn=gelu,relu", "--until", "decided", "--seeds", "3"], "leaves open"),
        (
            ["--vary", "model.ffn=gelu,relu", "--until", "decided", "--seeds-at-most", "3"],
            "leaves a single look: give at least 4",
        ),
        (["--vary", "model.ffn=gelu,relu", "--tuning-seeds", "2"], "nothing is tuned"),
        (["--vary", "model.ffn=gelu,relu", "--extend", "1"], "nothing is tuned"),
        (
            ["--vary", "model.ffn=gelu,relu", "--first-seed", str(2**63 - 2)],
            "there is no seed above",
        ),
        (["--vary", "model.ffn=gelu,gelu"], "give each value once"),
        (["--vary", "model.fn=gelu,relu"], "model.ffn"),
        (["--vary", "model.ffn=gelu,swigly"], "swiglu"),
        (["--vary", "model.ffn=gelu,relu", "--match", "weight"], "parameters"),
        (["--vary", "model.ffn=gelu,relu", "--match", "time", "--jobs", "2"], "leave --jobs out"),
        (["--vary", "model.ffn=gelu,relu", "--jobs", "0"], "--jobs"),
        ([], "--vary"),
    ],
)
def test_a_mistake_is_one_line_and_trains_nothing(
    sublayer: Sublayer, settings: list[str], words: list[str], hint: str
):
    assert hint in sublayer("compare", "gpt", *settings, *words).refusal()
    assert not Path("runs").exists()


@pytest.mark.slow
def test_a_study_that_can_compare_nothing_exits_as_failed_training(
    sublayer: Sublayer, settings: list[str]
):
    rates = ("--vary", "optimizer.lr=1e-3,1e6")
    code, _, err = sublayer("compare", "gpt", *settings, *rates, "--seeds", 1)
    last = err.splitlines()[-1]
    assert code == 3
    assert "report.html" in last


@pytest.mark.slow
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


def test_the_demo_is_a_study_of_equal_arms_with_five_seeds():
    study = load_study("demo")
    assert study.match == "parameters"
    assert (study.n_seeds or 0) >= 5
    assert {"macaron", "swiglu"} < {arm.name for arm in study.arms}


@pytest.mark.slow
def test_the_demo_takes_over_the_folder_of_no_other_study(
    sublayer: Sublayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # The whole demo takes minutes: this one has its runs cut to a step, and one seed, and so is
    # another study.
    monkeypatch.chdir(tmp_path)
    short = ("compare", "demo", "model.d_model=8", "model.n_heads=1", "train.steps=1", "--seeds", 1)
    code, _, err = sublayer(*short, "--out", "runs/demo")
    assert code == 0, err
    assert Path("runs/demo/report.html").is_file()
    code, _, err = sublayer("demo")
    assert code == 2
    assert "runs/demo holds another study" in err


@pytest.mark.slow
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
