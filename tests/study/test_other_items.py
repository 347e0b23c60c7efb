"""What another test would give: of items that are missing, that differ, or that there are none."""

import shutil
from pathlib import Path

import pytest

from sublayer.runs.items import ITEMS
from sublayer.study.from_folder import results_of_folder
from sublayer.study.options import Options
from sublayer.study.report.spread_words import spread_lines
from sublayer.study.results import Results
from sublayer.study.runner import run_study
from tests.study.test_read_once import settings_of
from tests.study.test_runner import FFN, Study, settings, study  # noqa: F401

CONTEXT = 48
ALONE = "for other seeds alone: what another test of as many items would give is not known"
BOTH = "from which test items there are; an endless test would leave "


def spread_line(results: Results) -> str:
    (line,) = (each for each in spread_lines(results) if each.startswith("Spread: "))
    return line


@pytest.mark.slow
def test_a_run_without_items_leaves_the_spread_over_items_to_the_others(
    study: Study,  # noqa: F811
    settings: list[str],  # noqa: F811
) -> None:
    copy = study.copied("copy")
    asked = Options(vary=(FFN,), seeds=3, out=copy)
    whole = results_of_folder(copy)
    (known,) = whole.differences
    assert known.parts is not None and known.parts.items is not None
    assert BOTH in spread_line(whole)
    (copy / "arms/0-ffn=gelu/seed-1" / ITEMS).unlink()
    lacking, _ = run_study(["gpt"], settings, asked)
    (found,) = lacking.differences
    assert found.parts is not None and found.parts.items is not None
    assert found.mean == known.mean
    assert results_of_folder(copy).differences == lacking.differences
    # Of one run nobody knows what is its own and what the items'.
    (copy / "arms/0-ffn=gelu/seed-2" / ITEMS).unlink()
    alone, _ = run_study(["gpt"], settings, asked)
    (found,) = alone.differences
    assert found.parts is not None and found.parts.items is None
    assert found.low is not None and found.mean == known.mean
    assert ALONE in spread_line(alone)


@pytest.mark.slow
def test_arms_on_other_windows_of_one_text_are_compared_over_seeds_alone(
    settings: list[str],  # noqa: F811
) -> None:
    shorter = [each for each in settings if not each.startswith("data.context")]
    asked = Options(vary=("data.context=16,8",), match="none", seeds=3, out=Path("out"))
    results, report = run_study(["gpt"], shorter, asked)
    (difference,) = results.differences
    # Bits per byte are of the text, however it is cut.
    assert difference.verdict in ("better", "worse", "cannot tell")
    assert difference.parts is not None and difference.parts.items is None
    assert ALONE in report.read_text()
    shutil.rmtree("out")


@pytest.mark.slow
def test_arms_that_are_scored_on_other_targets_have_no_verdict_and_ask_for_no_more_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    # Pieces of another length have other gaps, whatever is learned.
    varied = f"data.context={CONTEXT},{CONTEXT // 2}"
    options = Options(
        vary=(varied,), match="none", until="decided", seeds_at_most=9, out=Path("out")
    )
    name, settings = settings_of("span", tmp_path)  # noqa: F811
    words = [f"{field}={value}" for field, value in settings.items() if field != "data.context"]
    results, report = run_study([name], words, options)
    (difference,) = results.differences
    assert (difference.verdict, difference.mean is None) == ("no verdict", False)
    # No number of seeds would give one: the first look is the last.
    assert (difference.n_seeds, len(list(Path("out").rglob("record.json")))) == (3, 6)
    said = f"context={CONTEXT // 2}: scored on other targets than the baseline"
    assert any(note.startswith(said) for note in results.notes)
    assert "has no verdict against" in report.read_text()
    assert results_of_folder(Path("out")).differences == results.differences
