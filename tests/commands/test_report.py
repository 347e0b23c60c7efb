"""``sublayer report``: the page of a run or a comparison, from its folder alone."""

import json
import re
import shutil
from pathlib import Path

import pytest

from sublayer.api.training import compare
from sublayer.study.from_folder import results_of_folder
from tests.commands.results import Sublayer
from tests.study.studies import FFN, files, settings_of, write_text


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(place / "cache"))
        text = write_text(place / "river.txt")
        compare("gpt", settings_of(text), vary=[FFN], seeds=3, out=place / "study")
    return place / "study"


@pytest.fixture
def study(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A comparison whose text is not at hand."""
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(made, "study"))


def verdict(page: Path) -> str:
    found = re.search(r'<h1 id="verdict">(.*?)</h1>', page.read_text(), re.DOTALL)
    assert found
    return found[1]


def test_the_report_of_a_comparison_is_written_again(sublayer: Sublayer, study: Path):
    page = study / "report.html"
    before = verdict(page)
    runs = files(study / "arms")
    page.unlink()
    code, out, err = sublayer("report", study)
    assert code == 0, err
    assert out == f"{page.resolve()}\n"
    assert verdict(page) == before
    assert "SwiGLU feed-forward" in before
    assert files(study / "arms") == runs
    assert sublayer("report", study, "--out", "copy.html").code == 0
    assert verdict(Path("copy.html")) == before
    # What is its own may be written again.
    assert sublayer("report", study, "--out", "copy.html").code == 0


def test_a_report_that_is_written_again_keeps_what_the_arms_wrote(sublayer: Sublayer, study: Path):
    page = study / "report.html"
    drawn = re.compile(r'<dl class="samples">.*?</dl>', re.DOTALL)
    before = drawn.findall(page.read_text())
    assert len(before) == 1
    assert sublayer("report", study).code == 0
    assert drawn.findall(page.read_text()) == before


def test_a_file_in_the_folder_that_is_no_report_stays(sublayer: Sublayer, study: Path):
    page = study / "report.html"
    page.write_text("what somebody wrote")
    assert "is no report of this folder" in sublayer("report", study).refusal()
    assert page.read_text() == "what somebody wrote"


def test_an_unfinished_comparison_says_what_is_missing(sublayer: Sublayer, study: Path):
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
    for note in (first, *finished):
        assert note.partition(".")[0].partition("'")[0] in text
    shutil.rmtree(study / "arms/0-ffn=gelu")
    assert "no run of the baseline, ffn=gelu, has ended" in sublayer("report", study).refusal()


def test_a_comparison_of_which_one_arm_has_ended_compares_nothing_yet(
    sublayer: Sublayer, study: Path
):
    shutil.rmtree(study / "arms/1-ffn=swiglu")
    for name in ("report.html", "results.json"):
        (study / name).unlink()
    assert sublayer("report", study).code == 0
    text = (study / "report.html").read_text()
    assert '<h1 id="verdict">Nothing to compare yet</h1>' in text
    assert "Not one of ffn=swiglu has." in text
    assert results_of_folder(study).n_comparisons == 1
    # Neither an axis nor a table without rows.
    assert "How large" not in text
    assert "seeds are few" not in text
