"""A study measures inside each run what its file asks, once, and its report shows it whenever."""

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.inspection.layer_change import LayerChange, Spread
from sublayer.inspection.layers import measure_layers
from sublayer.inspection.sample import spread_windows
from sublayer.loading import load
from sublayer.runs.folder import RunFolder
from sublayer.runs.session import prepare_data
from sublayer.study.again import report_again
from sublayer.study.definition import load_study
from sublayer.study.findings.layers import LayerSummary, summarize
from sublayer.study.inspection.asked import Inspecting
from sublayer.study.inspection.kept import LAYERS, InspectedLayers, kept_layers, read_layers
from sublayer.study.options import Options
from sublayer.study.results import Results
from sublayer.study.results_json import write_json
from sublayer.study.runner import run_study
from tests.study.test_runner import files, write_text

Synthetic = Callable[..., Results]
ASKED = Inspecting(what="layers")
STUDY = """
seeds = 3
match = "none"
{head}
[scale.cpu]
recipe = "gpt"
[scale.cpu.set.model]
n_layers = 3
d_model = 8
n_heads = 2
[scale.cpu.set.data]
context = 16
[scale.cpu.set.train]
steps = 4
batch_sequences = 2
precision = "float32"
threads = 1
[[arms]]
name = "apart"
[[arms]]
name = "shared"
set = {{ model.share = "{share}" }}
"""


def write_study(
    folder: Path, head: str = 'inspect = { what = "layers", tokens = 100 }', share: str = "all"
) -> str:
    path = folder / "study.toml"
    path.write_text(STUDY.format(head=head, share=share))
    return str(path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that was run once, beside its text and its file."""
    place = tmp_path_factory.mktemp("inspected")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(place / "cache"))
        text = write_text(place / "river.txt")
        run_study([write_study(place)], [f"data.path={text}"], Options(out=place / "out"))
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The study's folder, to change; its text, its file and its cache stay where they are."""
    monkeypatch.setenv("SUBLAYER_CACHE", str(made / "cache"))
    return Path(shutil.copytree(made / "out", tmp_path / "out"))


def again(made: Path, out: Path, **options: Any) -> Results:
    text = f"data.path={made / 'river.txt'}"
    results, _ = run_study([str(made / "study.toml")], [text], Options(out=out, **options))
    return results


def section(page: str) -> str:
    return page.partition("<h2>What the layers do</h2>")[2].partition("</section>")[0]


def test_what_is_kept_of_a_run_is_what_its_model_does_to_the_text_that_is_scored(
    made: Path,
) -> None:
    for arm, n_beyond in (("0-apart", 0), ("1-shared", 3)):
        run = made / "out" / "arms" / arm / "seed-1"
        found = read_layers(run, Inspecting(what="layers", tokens=100))
        assert found is not None
        test = prepare_data(RunFolder(run).recipe()).test
        sample = spread_windows(test, context=16, max_tokens=100)
        assert (found.split, found.n_tokens, found.n_windows) == ("test", 96, 6)
        expected = measure_layers(load(run), sample, batch_sequences=256, beyond=n_beyond)
        assert found.changes == expected
        assert [change.is_beyond for change in expected] == [False] * 3 + [True] * n_beyond


def test_results_and_report_show_the_blocks_of_every_arm(made: Path) -> None:
    results = json.loads((made / "out" / "results.json").read_text())
    for arm, n_blocks in zip(results["arms"], (3, 6), strict=True):
        assert [run["seed"] for run in arm["layers"]["runs"]] == [0, 1, 2]
        angles = []
        for run in arm["layers"]["runs"]:
            assert len(run["layers"]) == n_blocks
            angles.append([layer["angle_degrees"] for layer in run["layers"]])
        last = sum(of_run[2] for of_run in angles) / 3
        assert arm["layers"]["summary"]["angle_degrees"]["last"] == pytest.approx(last)
    shown = section((made / "out" / "report.html").read_text())
    assert shown.count("<svg") == 2
    assert "means over 96 tokens of the test split and over seeds" in shown
    assert "Hollow dots" in shown
    assert f"{last:.3g}°" in shown


@pytest.mark.slow
def test_what_is_there_is_not_measured_again_and_what_is_missing_is(
    made: Path, place: Path
) -> None:
    before = (made / "out" / "results.json").read_text()
    runs = files(place / "arms")
    again(made, place)
    assert files(place / "arms") == runs
    kept = place / "arms" / "1-shared" / "seed-0" / LAYERS
    content = kept.read_text()
    for damage in (kept.unlink, lambda: kept.write_text(content.replace("100", "99"))):
        damage()
        again(made, place)
        assert kept.read_text() == content
    results = json.loads((place / "results.json").read_text())
    assert {**json.loads(before), "report": None} == {**results, "report": None}


@pytest.mark.slow
def test_runs_side_by_side_are_inspected_alike(made: Path, place: Path) -> None:
    names = ("0-apart", "1-shared")
    before = {name: (place / "arms" / name / "seed-1" / LAYERS).read_bytes() for name in names}
    for name in names:
        shutil.rmtree(place / "arms" / name / "seed-1")
    (place / "arms" / "1-shared" / "seed-0" / LAYERS).unlink()
    again(made, place, jobs=2)
    for name in names:
        assert (place / "arms" / name / "seed-1" / LAYERS).read_bytes() == before[name]
    assert (place / "arms" / "1-shared" / "seed-0" / LAYERS).exists()


@pytest.mark.slow
def test_a_report_that_is_written_again_has_the_same_figures(place: Path) -> None:
    page = place / "report.html"
    before = section(page.read_text())
    page.unlink()
    report_again(place)
    assert section(page.read_text()) == before != ""
    # Of a study that has not ended, what was measured until then.
    shutil.rmtree(place / "arms" / "1-shared")
    (place / "results.json").unlink()
    report_again(place)
    shown = section(page.read_text())
    assert shown.count("<svg") == 2
    assert "Hollow" not in shown


@pytest.mark.slow
def test_a_study_that_was_run_without_is_inspected_afterwards(made: Path, place: Path) -> None:
    for path in place.rglob(LAYERS):
        path.unlink()
    plain = write_study(place.parent, head="")
    text = f"data.path={made / 'river.txt'}"
    run_study([plain], [text], Options(out=place))
    assert section((place / "report.html").read_text()) == ""
    assert "layers" not in json.loads((place / "results.json").read_text())["arms"][0]
    again(made, place)
    shown = section((place / "report.html").read_text())
    assert shown == section((made / "out" / "report.html").read_text())


def test_a_damaged_inspection_is_an_error_that_says_what_to_do(made: Path, place: Path) -> None:
    kept = place / "arms" / "0-apart" / "seed-0" / LAYERS
    content = json.loads(kept.read_text())
    first, *others = content["changes"]
    wrong = {**first, "distance": {**first["distance"], "mean": "far"}}
    damages = [[wrong, *others], others, [], [{**first, "is_beyond": True}, *others], [first]]
    texts = [json.dumps({**content, "changes": changes}) for changes in damages]
    for damaged in ("{", *texts):
        kept.write_text(damaged)
        with pytest.raises(
            CheckpointError, match=r"layers\.json.*remove the(se)? files?, and the same"
        ):
            again(made, place)
        with pytest.raises(CheckpointError, match=r"layers\.json"):
            report_again(place)


def test_a_text_shorter_than_a_window_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    text = tmp_path / "short.txt"
    text.write_text("a short text, of which a test split has next to nothing. " * 12)
    settings = [f"data.path={text}", "data.split=90/8/2"]
    with pytest.raises(DataError, match="fewer than a window of 16"):
        run_study([write_study(tmp_path)], settings, Options(out=tmp_path / "out"))
    assert not (tmp_path / "out" / "arms").exists()


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ('inspect = { what = "neurons" }', "inspect.what = 'neurons' is not 'layers'"),
        ('inspect = "layers"', "inspect = 'layers' is not a table"),
        ("inspect = {}", "inspect.what is missing"),
        ('inspect = { what = "layers", token = 9 }', "inspect.token is no setting of it"),
        ('inspect = { what = "layers", tokens = 0 }', "inspect.tokens = 0 must be at least 1"),
        ('inspect = { what = "layers", beyond = -1 }', "inspect.beyond = -1 must be at least 0"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_name(
    tmp_path: Path, head: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_study(write_study(tmp_path, head))


def test_blocks_of_their_own_are_not_run_beyond(tmp_path: Path) -> None:
    head = 'inspect = { what = "layers", beyond = 2 }'
    study = load_study(write_study(tmp_path, head))
    assert study.inspecting is not None
    models = [arm.loaded.recipe.model for arm in study.arms]
    assert [study.inspecting.n_beyond(model) for model in models] == [0, 2]
    assert [ASKED.n_beyond(model) for model in models] == [0, 3]
    with pytest.raises(
        ConfigError, match="inspect.beyond = 2 goes on with the block that all layers share"
    ):
        load_study(write_study(tmp_path, head, share="ffn"))


@pytest.mark.parametrize(
    ("recipe", "arm", "message"),
    [
        ("multi30k-tiny", "set = { model.ffn = 'gelu' }", "a is an encoder-decoder, whose blocks"),
        (
            "albert-small",
            "set = { model.d_embed = 32 }\n[[stages]]\ntasks = 'sst2'",
            "inspect is of studies without stages",
        ),
    ],
)
def test_arms_of_which_no_layers_are_inspected_are_refused(
    tmp_path: Path, recipe: str, arm: str, message: str
) -> None:
    path = tmp_path / "study.toml"
    head = f'inspect = {{ what = "layers" }}\n[scale.cpu]\nrecipe = "{recipe}"'
    path.write_text(f"{head}\n[[arms]]\nname = 'a'\n[[arms]]\nname = 'b'\n{arm}\n")
    with pytest.raises(ConfigError, match=message):
        load_study(str(path))


def test_an_lstm_is_inspected_and_never_run_beyond(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    head = 'inspect = { what = "layers" }\n[scale.cpu]\nrecipe = "gpt1-lstm"'
    path.write_text(f"{head}\n[[arms]]\nname = 'a'\n[[arms]]\nname = 'b'\nset.model.n_layers = 2\n")
    study = load_study(str(path))
    assert study.inspecting == ASKED
    assert {ASKED.n_beyond(arm.loaded.recipe.model) for arm in study.arms} == {0}


def test_a_scale_asks_for_its_own(tmp_path: Path) -> None:
    path = Path(write_study(tmp_path))
    text = path.read_text()
    own = '[scale.cpu]\ninspect = { what = "layers", tokens = 7 }\n'
    path.write_text(text.replace("[scale.cpu]\n", own, 1))
    study = load_study(str(path))
    assert study.inspecting is not None
    assert study.inspecting.tokens == 7


def change(layer: int, distance: float, angle: float, *, is_beyond: bool = False) -> LayerChange:
    def spread(value: float) -> Spread:
        return Spread(value, (value / 2, value, 2 * value))

    numbers = (distance, 0.5, angle, 1.0, 1.0)
    return LayerChange(layer, *map(spread, numbers), is_beyond=is_beyond)


def test_what_is_kept_is_read_as_it_was(tmp_path: Path) -> None:
    nowhere = Spread(math.nan, (math.nan, 1.0, 2.0))
    found = InspectedLayers("valid", 7, 1, [replace(change(1, 2.0, 3.0), angle_degrees=nowhere)])
    write_json(tmp_path / LAYERS, kept_layers(ASKED, found))
    read = read_layers(tmp_path, ASKED)
    assert repr(read) == repr(found)
    assert read_layers(tmp_path, Inspecting(what="layers", beyond=3)) is None
    assert read_layers(tmp_path / "nowhere", ASKED) is None


def test_blocks_are_summarized_by_hand() -> None:
    blocks = [change(1, 4.0, 30.0), change(2, 1.0, 40.0), change(3, 3.0, 20.0)]
    assert summarize(blocks, "distance") == LayerSummary(8 / 3, 2.5, 3.0)
    further = [*blocks, change(4, 2.0, 9.0, is_beyond=True), change(5, 2.5, 5.0, is_beyond=True)]
    assert summarize(further, "distance") == LayerSummary(8 / 3, 2.5, 3.0, 2.0, 2.5)
    assert summarize(further, "angle_degrees") == LayerSummary(30.0, 15.0, 20.0, 5.0, 9.0)
    assert summarize(blocks[:1], "distance") == LayerSummary(4.0, None, 4.0)
