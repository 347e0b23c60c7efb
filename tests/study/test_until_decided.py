"""Comparisons that stop where they are decided, and what holds a verdict to what was planned."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sublayer.commands.runs.comparison_row import comparison_row
from sublayer.commands.shared.comparison import render
from sublayer.config.layering.sources import read_toml
from sublayer.errors import ConfigError
from sublayer.study.from_folder import results_of_folder
from sublayer.study.options import Options
from sublayer.study.results import Results
from sublayer.study.results_json import results_to_json
from sublayer.study.runner import run_study
from tests.study.test_runner import files, settings_of, write_text
from tests.wrapping import unwrapped

# A rate at which nothing is learned, and one that nobody can tell from the first.
RATES = "optimizer.lr=5e-2,1e-7,4.99999e-2"
NOTHING, ALIKE = "lr=1e-7", "lr=4.99999e-2"


def asked(**changes: Any) -> Options:
    plan: dict[str, Any] = {"until": "decided", "seeds_at_most": 5}
    return Options(**{"vary": (RATES,), "match": "none", **plan, **changes})


@dataclass(frozen=True)
class Study:
    """A comparison whose second arm is decided at its first look, and whose third is never."""

    folder: Path
    settings: list[str]
    results: Results


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    place = tmp_path_factory.mktemp("looks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(place / "cache"))
        settings = settings_of(write_text(place / "river.txt"))
        results, _ = run_study(["gpt"], settings, asked(out=place / "study"))
    return Study(place / "study", settings, results)


@pytest.fixture
def copied(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUBLAYER_CACHE", str(study.folder.parent / "cache"))
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(study.folder, tmp_path / "study"))


def told(results: Results) -> dict[str, Any]:
    """What a comparison says, but for where its report is and what took how long."""
    content = json.loads(json.dumps(results_to_json(results, Path("report.html"))))
    timed = (
        "seconds",
        "training_seconds",
        "tokens_per_s",
        "peak_memory_bytes",
        "curves",
        "training_curves",
    )
    for arm in content["arms"]:
        for name in (*timed, "further_curves"):
            arm.pop(name)
    for name in ("report", "reproduction", "same_quality"):
        content.pop(name)
    return content


@pytest.mark.slow
def test_an_arm_stops_where_it_is_decided_and_the_others_go_on(study: Study) -> None:
    results = study.results
    assert {arm.name: len(arm.seeds) for arm in results.arms} == {
        "lr=5e-2": 5,
        NOTHING: 3,
        ALIKE: 5,
    }
    decided, open_still = results.differences
    assert (decided.arm, decided.verdict, decided.n_seeds) == (NOTHING, "worse", 3)
    assert (open_still.arm, open_still.verdict, open_still.n_seeds) == (ALIKE, "cannot tell", 5)
    assert len(list(study.folder.rglob("record.json"))) == 13
    assert (results.looks, results.is_sequential, results.n_seeds) == ((3, 5), True, 5)
    said = unwrapped(render(results, Path("report.html")))
    assert "seeds added until it is decided, 5 at most" in said
    assert (
        "Looks: planned at 3, 5 seeds; intervals are wider, so that they hold at every look. "
        f"Decided before the last: {NOTHING} at 3. 13 of 15 runs were made: 2 were saved." in said
    )
    row = comparison_row(study.folder)
    assert (row.state, row.finished, row.planned) == ("finished", 13, 13)


@pytest.mark.slow
def test_the_report_that_is_written_again_has_the_verdicts_of_every_look(
    study: Study, copied: Path
) -> None:
    again = results_of_folder(copied)
    assert again.differences == study.results.differences
    assert told(again) == told(study.results)


@pytest.mark.slow
def test_what_was_broken_off_between_two_looks_has_the_verdicts_of_the_first_and_goes_on(
    study: Study, copied: Path
) -> None:
    plan = read_toml(copied / "study.toml")
    assert plan["asked"]["looks"] == [3, 5]
    shutil.rmtree(copied / "arms" / f"2-{ALIKE}" / "seed-4")
    shutil.rmtree(copied / "arms" / "0-lr=5e-2" / "seed-4")
    for name in ("results.json", "report.html"):
        (copied / name).unlink()
    broken = results_of_folder(copied)
    assert broken.notes[0].startswith("Unfinished: 11 of 13 runs of all seeds have ended.")
    decided, open_still = broken.differences
    assert decided == study.results.differences[0]
    # That four seeds say more than three is for the look at five to tell.
    assert (open_still.n_seeds, open_still.seeds) == (3, (0, 1, 2))
    resumed, _ = run_study(["gpt"], study.settings, asked(out=copied))
    assert told(resumed) == told(study.results)
    assert len(list(copied.rglob("record.json"))) == 13


@pytest.mark.slow
def test_before_the_first_look_there_is_no_verdict(study: Study, copied: Path) -> None:
    shutil.rmtree(copied / "arms" / f"1-{NOTHING}" / "seed-2")
    for name in ("results.json", "report.html"):
        (copied / name).unlink()
    early = results_of_folder(copied)
    assert {each.verdict for each in early.differences} == {"no verdict"}
    assert all(each.low is None and each.p is None for each in early.differences)
    assert "unfinished: judged once all 3 seeds have ended" in str(early.differences[0].note)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"until": None, "seeds_at_most": None, "seeds": 5},
            "was begun to be looked at with 3, 5 seeds, which its verdicts hold for: go on with "
            "--until decided --seeds-at-most 5, or give another --out",
        ),
        ({"seeds_at_most": 12}, "was begun to be looked at with 3, 5 seeds"),
        (
            {"margin": "0.25 bits per byte"},
            'was begun with no margin, not a margin of 0.25, .*: give --margin "", or another',
        ),
    ],
)
def test_another_plan_of_looks_or_another_margin_is_refused_and_nothing_changes(
    study: Study, copied: Path, changes: dict[str, Any], said: str
) -> None:
    before = files(copied)
    with pytest.raises(ConfigError, match=said) as refusal:
        run_study(["gpt"], study.settings, asked(out=copied, **changes))
    assert "\n" not in str(refusal.value)
    assert files(copied) == before
