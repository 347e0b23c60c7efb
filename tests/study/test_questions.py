"""Hypotheses, margins and inspections of a study: stated before, measured once, kept."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sublayer.errors import CheckpointError, ConfigError
from sublayer.inspection.layer_change import LayerChange, Spread
from sublayer.inspection.layers import measure_layers
from sublayer.inspection.sample import spread_windows
from sublayer.loading import load
from sublayer.runs.folder import RunFolder
from sublayer.runs.session import prepare_data
from sublayer.study.again import report_again
from sublayer.study.definition import load_study
from sublayer.study.findings.layers import LayerSummary, summarize
from sublayer.study.from_folder import results_of_folder
from sublayer.study.inspection.asked import Inspecting
from sublayer.study.inspection.kept import LAYERS, InspectedLayers, kept_layers, read_layers
from sublayer.study.options import Options
from sublayer.study.results_json import write_json
from sublayer.study.runner import run_study
from tests.golden.test_reports import layer as change
from tests.study.studies import ASKED, SAYS, Studies, copied, files, read_results

INSPECTING = Inspecting(what="layers")
ENCODER = '[scale.cpu]\nrecipe = "albert-small"\n[[arms]]\nname = "a"\n[[arms]]\nname = "b"\n'


def test_a_study_of_four_arms_answers_its_hypothesis(studies: Studies) -> None:
    folder = studies.asked()
    results = results_of_folder(folder)
    means = {arm.name: arm.mean for arm in results.arms}
    expected = means["wide and shared"] - means["wide"] - means["shared"] + means["plain"]
    *others, found = results.differences
    assert found.mean == pytest.approx(expected)
    assert found.verdict == "no difference that matters"
    assert (found.arm, found.baseline) == results.hypothesis_of
    assert (results.hypothesis, results.n_comparisons, results.margin) == (SAYS, 4, 9.0)
    assert found.parts is not None and found.parts.items is not None
    # The same quality is of two arms.
    assert len(read_results(folder)["same_quality"]) == len(others) == 3


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ('also = ["bleu"]', "also"),
        ('spread = "-1"', "spread"),
        ('margin = "0.1 points"', "points"),
        ('inspect = { what = "layers", beyond = 2 }', r"inspect\.beyond"),
        ('inspect = { what = "layers", tokens = 0 }', r"inspect\.tokens"),
    ],
)
def test_questions_that_do_not_fit_the_study_are_refused(
    studies: Studies, settings: list[str], head: str, message: str
) -> None:
    name = head.partition(" ")[0]
    lines = [line for line in ASKED.splitlines() if not line.startswith(name)]
    text = "\n".join([head, *lines]).replace('share = "all"', 'share = "ffn"')
    source = Path("asked.toml")
    source.write_text(text)
    with pytest.raises(ConfigError, match=message):
        run_study([str(source)], studies.as_asked(Path("out"))[1], Options(out=Path("out")))
    assert not Path("out").exists()


def test_kept_layers_are_those_of_the_model_on_the_text_that_is_scored(
    studies: Studies, settings: list[str]
) -> None:
    for arm, n_beyond in (("0-plain", 0), ("1-shared", 3)):
        run = studies.asked() / "arms" / arm / "seed-1"
        found = read_layers(run, Inspecting(what="layers", tokens=100))
        assert found is not None
        sample = spread_windows(
            prepare_data(RunFolder(run).recipe()).test, context=16, max_tokens=100
        )
        assert (found.split, found.n_tokens, found.n_windows) == ("test", 96, 6)
        expected = measure_layers(load(run), sample, batch_sequences=256, beyond=n_beyond)
        assert found.changes == expected
        assert [each.is_beyond for each in expected] == [False] * 3 + [True] * n_beyond


def test_missing_layers_are_measured_and_no_others(studies: Studies, settings: list[str]) -> None:
    folder = copied(studies.asked(), "out")
    before, runs = read_results(folder), files(folder / "arms")
    kept = folder / "arms" / "1-shared" / "seed-0" / LAYERS
    content = kept.read_text()
    for damage in (kept.unlink, lambda: kept.write_text(content.replace("100", "99"))):
        damage()
        run_study(*studies.as_asked(folder))
        assert kept.read_text() == content
    assert {**before, "report": None} == {**read_results(folder), "report": None}
    changed = {name for name, known in files(folder / "arms").items() if runs[name] != known}
    assert changed == {f"1-shared/seed-0/{LAYERS}"}


def test_a_report_that_is_written_again_has_the_layers_measured_so_far(
    studies: Studies, settings: list[str]
) -> None:
    def section() -> str:
        page = (folder / "report.html").read_text()
        return page.partition("<h2>What the layers do</h2>")[2].partition("</section>")[0]

    folder = copied(studies.asked(), "out")
    before = section()
    assert before.count("<svg") == 2 and "Hollow dots" in before
    report_again(folder)
    assert section() == before
    for arm in (*folder.glob("arms/1-*"), *folder.glob("arms/3-*")):
        shutil.rmtree(arm)
    (folder / "results.json").unlink()
    report_again(folder)
    assert section().count("<svg") == 2 and "Hollow" not in section()


def test_damaged_layers_are_an_error(studies: Studies, settings: list[str]) -> None:
    folder = copied(studies.asked(), "out")
    kept = folder / "arms" / "0-plain" / "seed-0" / LAYERS
    content = json.loads(kept.read_text())
    first, *others = content["changes"]
    wrong = {**first, "distance": {**first["distance"], "mean": "far"}}
    damages = [[wrong, *others], others, [], [{**first, "is_beyond": True}, *others], [first]]
    texts = [json.dumps({**content, "changes": changes}) for changes in damages]
    for damaged in ("{", *texts):
        kept.write_text(damaged)
        with pytest.raises(CheckpointError, match=r"layers\.json.*remove"):
            report_again(folder)
    with pytest.raises(CheckpointError, match=r"layers\.json"):
        run_study(*studies.as_asked(folder))


def test_blocks_that_are_not_shared_are_not_run_beyond(studies: Studies, tmp_path: Path) -> None:
    source = tmp_path / "asked.toml"
    source.write_text(ASKED.replace("tokens = 100", "beyond = 2"))
    study = load_study(str(source))
    assert study.inspecting is not None
    models = [arm.loaded.recipe.model for arm in study.arms][:2]
    assert [study.inspecting.n_beyond(model) for model in models] == [0, 2]
    assert [INSPECTING.n_beyond(model) for model in models] == [0, 3]
    scale = '[scale.cpu]\ninspect = { what = "layers", tokens = 7 }'
    source.write_text(ASKED.replace("[scale.cpu]", scale, 1))
    own = load_study(str(source)).inspecting
    assert own is not None and own.tokens == 7
    lstm = ENCODER.replace("albert-small", "gpt1-lstm") + "set.model.n_layers = 2"
    source.write_text(f'inspect = {{ what = "layers" }}\n{lstm}')
    arms = load_study(str(source)).arms
    assert {INSPECTING.n_beyond(arm.loaded.recipe.model) for arm in arms} == {0}


@pytest.mark.parametrize(
    ("head", "arms", "message"),
    [
        ("inspect.what = 'layers'", "set.model.d_ff = 9", "encoder-decoder"),
        ("score.stride = 1", "set.model.d_embed = 32", r"objective\.kind = masked"),
    ],
)
def test_arms_of_which_nothing_is_inspected_or_scored_in_windows_are_refused(
    tmp_path: Path, head: str, arms: str, message: str
) -> None:
    recipe = "multi30k-tiny" if "d_ff" in arms else "albert-small"
    path = tmp_path / "study.toml"
    path.write_text(f"{head}\n{ENCODER.replace('albert-small', recipe)}{arms}\n")
    with pytest.raises(ConfigError, match=message):
        load_study(str(path))


def test_layers_are_read_as_they_were_kept(tmp_path: Path) -> None:
    nowhere = Spread(math.nan, (math.nan, 1.0, 2.0))
    changes: list[LayerChange] = [replace(change(1, 2.0, 3.0), angle_degrees=nowhere)]
    found = InspectedLayers("valid", 7, 1, changes)
    write_json(tmp_path / LAYERS, kept_layers(INSPECTING, found))
    assert repr(read_layers(tmp_path, INSPECTING)) == repr(found)
    assert read_layers(tmp_path, Inspecting(what="layers", beyond=3)) is None
    assert read_layers(tmp_path / "nowhere", INSPECTING) is None


def test_blocks_are_summarized_by_hand() -> None:
    blocks = [change(1, 4.0, 30.0), change(2, 1.0, 40.0), change(3, 3.0, 20.0)]
    assert summarize(blocks, "distance") == LayerSummary(8 / 3, 2.5, 3.0)
    further = [*blocks, change(4, 2.0, 9.0, is_beyond=True), change(5, 2.5, 5.0, is_beyond=True)]
    assert summarize(further, "distance") == LayerSummary(8 / 3, 2.5, 3.0, 2.0, 2.5)
    assert summarize(further, "angle_degrees") == LayerSummary(30.0, 15.0, 20.0, 5.0, 9.0)
    assert summarize(blocks[:1], "distance") == LayerSummary(4.0, None, 4.0)
