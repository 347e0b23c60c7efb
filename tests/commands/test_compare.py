"""``sublayer compare``, ``demo`` and ``report``: a verdict from runs, and from their folder."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sublayer.api.training import compare
from sublayer.commands.demo import announce
from sublayer.commands.shared.comparison import summarize
from sublayer.study.from_folder import results_of_folder
from sublayer.study.results import StudyText
from tests.study.studies import FFN, files, settings_of, write_text
from tests.study.synthetic import synthetic_results
from tests.wrapping import unwrapped

TINY = [
    *("model.n_layers=1", "model.d_model=8", "model.n_heads=2", "data.context=16"),
    *("train.batch_sequences=2", "train.precision=float32", "train.threads=1"),
]


@pytest.fixture
def settings(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return [*TINY, f"data.path={trained.parent / 'text.txt'}", "train.steps=4"]


def test_a_summary_of_many_arms_has_fifteen_lines_and_says_how_many_are_left_out():
    results = synthetic_results({f"arm{n}": n * 0.01 for n in range(20)})
    sizes = {"train": {"bytes": 9000, "documents": 634}, "test": {"bytes": 500, "documents": 52}}
    made = replace(
        results.reproduction,
        command="sublayer compare demo --jobs 2",
        text=StudyText(("python",), sizes),
        date="2026-11-28T10:00:00+00:00",
    )
    lines = summarize(replace(results, reproduction=made), Path("/report.html")).splitlines()
    n_shown = sum(line.startswith("  arm") for line in lines)
    assert len(lines) == 15 and n_shown >= 4
    assert f"  and {19 - n_shown} more: in the report, or by --details" in lines


def test_the_demo_says_what_it_will_do_and_how_long_that_takes(tmp_path, capsys):
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


def test_a_study_that_can_compare_nothing_exits_as_failed_training(sublayer, settings):
    rates = ("--vary", "optimizer.lr=1e-3,1e6")
    code, _, err = sublayer("compare", "gpt", *settings, *rates, "--seeds", 1)
    assert (code, "report.html" in err.splitlines()[-1]) == (3, True)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(place / "cache"))
        text = write_text(place / "river.txt")
        compare("gpt", settings_of(text), vary=[FFN], seeds=3, out=place / "study")
    return place / "study"


@pytest.fixture
def study(compared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A comparison whose text is not at hand."""
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(compared, "study"))


def test_the_report_of_a_comparison_is_written_again(sublayer, study):
    kept = re.compile(r'<h1 id="verdict">.*?</h1>|<dl class="samples">.*?</dl>', re.DOTALL)
    page = study / "report.html"
    before, runs = kept.findall(page.read_text()), files(study / "arms")
    assert len(before) == 2 and "SwiGLU feed-forward" in before[0]
    assert sublayer("report", study).code == 0
    assert kept.findall(page.read_text()) == before
    page.unlink()
    code, out, _ = sublayer("report", study)
    assert (code, out) == (0, f"{page.resolve()}\n")
    assert kept.findall(page.read_text())[0] == before[0]
    # A report that a command wrote may be written again.
    for _ in range(2):
        assert sublayer("report", study, "--out", "copy.html").code == 0
    assert kept.findall(Path("copy.html").read_text())[0] == before[0]
    assert files(study / "arms") == runs
    page.write_text("what somebody wrote")
    assert "is no report of this folder" in sublayer("report", study).refusal()
    assert page.read_text() == "what somebody wrote"


def test_an_unfinished_comparison_says_what_is_missing(sublayer, study):
    finished = json.loads((study / "results.json").read_text())["notes"]
    assert any(note.startswith("The test split is part of one document") for note in finished)
    shutil.rmtree(study / "arms/1-ffn=swiglu/seed-1")
    for name in ("report.html", "results.json"):
        (study / name).unlink()
    first, *others = results_of_folder(study).notes
    assert first.startswith("Unfinished: 5 of 6 runs of all seeds have ended.")
    assert others == finished
    assert sublayer("report", study).code == 0
    text = (study / "report.html").read_text()
    assert all(note.partition(".")[0].partition("'")[0] in text for note in (first, *finished))
    shutil.rmtree(study / "arms/1-ffn=swiglu")
    assert sublayer("report", study).code == 0
    text = (study / "report.html").read_text()
    assert '<h1 id="verdict">Nothing to compare yet</h1>' in text
    assert "Not one of ffn=swiglu has." in text
    assert results_of_folder(study).n_comparisons == 1
    # Neither an axis nor a table without rows.
    assert "How large" not in text and "seeds are few" not in text
    shutil.rmtree(study / "arms/0-ffn=gelu")
    assert "no run of the baseline, ffn=gelu, has ended" in sublayer("report", study).refusal()
