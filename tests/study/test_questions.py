"""Questions of a study: hypotheses, margins, inspections; tuning and looks until decided."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sublayer.config.layering.sources import read_toml
from sublayer.errors import CheckpointError, ConfigError
from sublayer.inspection.layer_change import Spread
from sublayer.inspection.layers import measure_layers
from sublayer.inspection.sample import spread_windows
from sublayer.loading import load
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.objective.metric import Metric
from sublayer.runs.folder import RunFolder
from sublayer.runs.session import prepare_data
from sublayer.study.again import report_again
from sublayer.study.definition import Study, load_study
from sublayer.study.execution.arm_runs import chosen_by, trial_loss
from sublayer.study.execution.one_run import Outcome
from sublayer.study.findings.layers import LayerSummary, summarize
from sublayer.study.from_folder import results_of_folder
from sublayer.study.inspection.asked import Inspecting
from sublayer.study.inspection.kept import LAYERS, InspectedLayers, kept_layers, read_layers
from sublayer.study.options import Options
from sublayer.study.results_json import results_to_json, write_json
from sublayer.study.runner import run_study
from sublayer.study.tuning import Trial, beyond_edges
from tests.golden.test_reports import layer as change
from tests.study.studies import ASKED, FFN, LR, SAYS, copied, files, read_results, timeless

INSPECTING = Inspecting(what="layers")
ENCODER = '[scale.cpu]\nrecipe = "albert-small"\n[[arms]]\nname = "a"\n[[arms]]\nname = "b"\n'
NOTHING, ALIKE = "lr=1e-7", "lr=4.99999e-2"
RATES = (1e-3, 2e-3, 6e-3)


def test_a_study_answers_its_hypothesis_and_keeps_layers_of_its_models(studies, settings):
    results = results_of_folder(studies.asked())
    means = {arm.name: arm.mean for arm in results.arms}
    expected = means["wide and shared"] - means["wide"] - means["shared"] + means["plain"]
    *others, found = results.differences
    assert found.mean == pytest.approx(expected)
    assert found.verdict == "no difference that matters"
    assert (found.arm, found.baseline) == results.hypothesis_of
    assert (results.hypothesis, results.n_comparisons, results.margin) == (SAYS, 4, 9.0)
    assert found.parts.items is not None
    assert len(read_results(studies.asked())["same_quality"]) == len(others) == 3
    for arm, n_beyond in (("0-plain", 0), ("1-shared", 3)):
        run = studies.asked() / "arms" / arm / "seed-1"
        found = read_layers(run, Inspecting(what="layers", tokens=100))
        test = prepare_data(RunFolder(run).recipe()).test
        sample = spread_windows(test, context=16, max_tokens=100)
        assert (found.split, found.n_tokens, found.n_windows) == ("test", 96, 6)
        expected = measure_layers(load(run), sample, batch_sequences=256, beyond=n_beyond)
        assert found.changes == expected
        assert [each.is_beyond for each in expected] == [False] * 3 + [True] * n_beyond


@pytest.mark.parametrize("head, message", [
    ('also = ["bleu"]', "also"), ('spread = "-1"', "spread"), ('margin = "0.1 points"', "points"),
    ('inspect = { what = "layers", beyond = 2 }', r"inspect\.beyond"),
    ('inspect = { what = "layers", tokens = 0 }', r"inspect\.tokens"),
])  # fmt: skip
def test_questions_that_do_not_fit_the_study_are_refused(studies, settings, head, message):
    name = head.partition(" ")[0]
    lines = [line for line in ASKED.splitlines() if not line.startswith(name)]
    text = "\n".join([head, *lines]).replace('share = "all"', 'share = "ffn"')
    Path("asked.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        run_study(["asked.toml"], studies.as_asked(Path("out"))[1], Options(out=Path("out")))
    assert not Path("out").exists()


def test_blocks_are_summarized_by_hand_and_read_as_they_were_kept(tmp_path):
    blocks = [change(1, 4.0, 30.0), change(2, 1.0, 40.0), change(3, 3.0, 20.0)]
    assert summarize(blocks, "distance") == LayerSummary(8 / 3, 2.5, 3.0)
    further = [*blocks, change(4, 2.0, 9.0, is_beyond=True), change(5, 2.5, 5.0, is_beyond=True)]
    assert summarize(further, "distance") == LayerSummary(8 / 3, 2.5, 3.0, 2.0, 2.5)
    assert summarize(further, "angle_degrees") == LayerSummary(30.0, 15.0, 20.0, 5.0, 9.0)
    assert summarize(blocks[:1], "distance") == LayerSummary(4.0, None, 4.0)
    nowhere = Spread(math.nan, (math.nan, 1.0, 2.0))
    found = InspectedLayers("valid", 7, 1, [replace(blocks[0], angle_degrees=nowhere)])
    write_json(tmp_path / LAYERS, kept_layers(INSPECTING, found))
    assert repr(read_layers(tmp_path, INSPECTING)) == repr(found)
    assert read_layers(tmp_path, Inspecting(what="layers", beyond=3)) is None
    assert read_layers(tmp_path / "nowhere", INSPECTING) is None


def layers_shown(folder: Path) -> str:
    page = (folder / "report.html").read_text()
    return page.partition("<h2>What the layers do</h2>")[2].partition("</section>")[0]


def test_missing_layers_are_measured_and_no_others_and_damaged_ones_are_an_error(studies, settings):
    folder = copied(studies.asked(), "out")
    before, runs = read_results(folder), files(folder / "arms")
    report_again(folder)
    assert layers_shown(folder) == layers_shown(studies.asked()) != ""
    kept = folder / "arms" / "1-shared" / "seed-0" / LAYERS
    content = kept.read_text()
    for damage in (kept.unlink, lambda: kept.write_text(content.replace("100", "99"))):
        damage()
        run_study(*studies.as_asked(folder))
        assert kept.read_text() == content
    assert {**before, "report": None} == {**read_results(folder), "report": None}
    changed = {name for name, known in files(folder / "arms").items() if runs[name] != known}
    assert changed == {f"1-shared/seed-0/{LAYERS}"}
    whole = json.loads(content)
    first, *others = whole["changes"]
    wrong = {**first, "distance": {**first["distance"], "mean": "far"}}
    damages = [[wrong, *others], others, [], [{**first, "is_beyond": True}, *others], [first]]
    for damaged in ("{", *(json.dumps({**whole, "changes": changes}) for changes in damages)):
        kept.write_text(damaged)
        with pytest.raises(CheckpointError, match=r"layers\.json.*remove"):
            report_again(folder)
    with pytest.raises(CheckpointError, match=r"layers\.json"):
        run_study(*studies.as_asked(folder))


def test_blocks_that_are_not_shared_are_not_run_beyond(tmp_path):
    def study_of(text: str) -> Study:
        (tmp_path / "asked.toml").write_text(text)
        return load_study(str(tmp_path / "asked.toml"))

    study = study_of(ASKED.replace("tokens = 100", "beyond = 2"))
    models = [arm.loaded.recipe.model for arm in study.arms][:2]
    assert [study.inspecting.n_beyond(model) for model in models] == [0, 2]
    assert [INSPECTING.n_beyond(model) for model in models] == [0, 3]
    scale = '[scale.cpu]\ninspect = { what = "layers", tokens = 7 }'
    assert study_of(ASKED.replace("[scale.cpu]", scale, 1)).inspecting.tokens == 7
    lstm = ENCODER.replace("albert-small", "gpt1-lstm") + "set.model.n_layers = 2"
    arms = study_of(f'inspect = {{ what = "layers" }}\n{lstm}').arms
    assert {INSPECTING.n_beyond(arm.loaded.recipe.model) for arm in arms} == {0}
    translators = ENCODER.replace("albert-small", "multi30k-tiny")
    with pytest.raises(ConfigError, match="encoder-decoder"):
        study_of(f"inspect.what = 'layers'\n{translators}set.model.d_ff = 9")
    with pytest.raises(ConfigError, match=r"objective\.kind = masked"):
        study_of(f"score.stride = 1\n{ENCODER}set.model.d_embed = 32")


def told(results):
    content = json.loads(json.dumps(results_to_json(results, Path("report.html"))))
    for arm in content["arms"]:
        for name in ("curves", "training_curves", "further_curves"):
            del arm[name]
    del content["notes"]
    return timeless(content)


@pytest.mark.parametrize("grid, chosen, beyond", [
    (RATES, (1, 1), []), (RATES, (2, 1), [0.018]), (RATES, (0, 2), [0.0005, 0.018]),
    # Whole numbers go on as such; half a step is none; of what was tried none is tried again.
    ((10, 20), (1,), [40]), ((1, 3), (0,), []), ((1.0, 1.0001), (1,), []),
])  # fmt: skip
def test_a_grid_goes_on_by_the_ratio_at_its_edge(grid, chosen, beyond):
    trials = [Trial(f"lr={value:g}", {LR: value}) for value in grid]
    found = list(beyond_edges([trials[n] for n in chosen], trials))
    expected = [(f"lr={value:g}", {LR: value}) for value in beyond]
    assert [(each.name, each.settings) for each in found] == expected
    assert [type(each.settings[LR]) for each in found] == [type(value) for value in beyond]


@pytest.mark.parametrize("scores, losses", [
    ([(1.0, 3.0), (1.8, 1.9)], [2.0, 1.85]), ([(1.0, None), (5.0, 6.0)], [None, 5.5]),
])  # fmt: skip
def test_the_mean_over_seeds_chooses_and_a_seed_that_failed_fails_its_trial(scores, losses):
    def run(value: float | None) -> Outcome:
        if value is None:
            return Outcome(Path(), failure="diverged")
        return Outcome(Path(), {"valid": {"loss": 9 - value, "bits_per_byte": value}})

    found = [trial_loss([run(value) for value in of_seeds], BITS_PER_BYTE) for of_seeds in scores]
    assert found == [loss and pytest.approx(loss) for loss in losses]
    # The loss chooses where validation lacks the metric.
    accuracy = Metric("accuracy", "accuracy", is_lower_better=False, from_items=None)
    by_loss = Outcome(Path(), {"valid": {"loss": 2.0, "accuracy": 0.25}})
    assert chosen_by([by_loss, run(None)], accuracy) == accuracy
    assert trial_loss([by_loss], accuracy) == -0.25
    assert (chosen_by([by_loss], BITS_PER_BYTE), trial_loss([by_loss], None)) == (None, 2.0)


def made(folder: Path) -> set[str]:
    return {str(path.parent.relative_to(folder)) for path in folder.rglob("record.json")}


def test_a_study_that_broke_off_beyond_the_edge_goes_on_there(studies, settings):
    folder = copied(studies.tuned(), "out")
    whole, results = made(folder), results_of_folder(folder)
    for gone in ("0-gelu/lr=0.1/seed-2", "1-swiglu/lr=0.1"):
        shutil.rmtree(folder / "arms" / gone)
    resumed, _ = run_study(*studies.as_tuned(folder))
    assert (made(folder), told(resumed)) == (whole, told(results))
    for arm, changed in (("0-gelu", "bits_per_byte"), ("1-swiglu", "loss")):
        # The second seed of the choice was far worse than the first.
        record = folder / "arms" / arm / "lr=0.1/seed-1001/record.json"
        content = json.loads(record.read_text())
        content["valid"][changed] += 5.0
        record.write_text(json.dumps(content))
    results, _ = run_study(*studies.as_tuned(folder))
    assert [arm.tuned for arm in results.arms] == [(f"{LR}=0.1",), (f"{LR}=0.01",)]
    for arm, again in zip(results.arms, results_of_folder(folder).arms, strict=True):
        assert (arm.tuned, arm.values) == (again.tuned, again.values)
    with pytest.raises(ConfigError, match=r"with tuning seeds \[1000, 1001\], not \[1000\]"):
        run_study(*studies.as_tuned(folder, tuning_seeds=None))
    (source,), _, options = studies.as_tuned(folder)
    Path("tuned.toml").write_text(Path(source).read_text().replace('tune_by = "loss"\n', ""))
    with pytest.raises(ConfigError, match="tuned by its loss, not its metric"):
        run_study(["tuned.toml"], settings, options)


def test_values_that_fit_no_recipe_are_not_tried_beyond_the_edge(settings, capsys):
    grid = ("optimizer.final_lr_share=0.1,0.9",)
    asked = Options(vary=(FFN,), tune=grid, seeds=1, extend=3, out=Path("out"))
    results, _ = run_study(["gpt"], [*settings, f"{LR}=1e-3"], asked)
    # The more is learned in few steps, the better; 0.9 * 9 is no share.
    assert {arm.tuned for arm in results.arms} == {("optimizer.final_lr_share=0.9",)}
    assert "final_lr_share=8.1 is not tried: " in capsys.readouterr().err
    assert "extended" not in read_toml(Path("out/study.toml"))


def test_a_study_that_broke_off_between_looks_has_verdicts_of_the_first(studies, settings):
    folder = copied(studies.decided(), "study")
    for run in (f"2-{ALIKE}/seed-4", "0-lr=5e-2/seed-4"):
        shutil.rmtree(folder / "arms" / run)
    for name in ("results.json", "report.html"):
        (folder / name).unlink()
    whole = results_of_folder(studies.decided())
    broken = results_of_folder(folder)
    assert broken.notes[0].startswith("Unfinished: 11 of 13 runs of all seeds have ended.")
    decided, open_still = broken.differences
    assert decided == whole.differences[0]
    assert (open_still.n_seeds, open_still.seeds) == (3, (0, 1, 2))
    resumed, _ = run_study(*studies.as_decided(folder))
    assert told(resumed) == told(whole)
    assert len(made(folder)) == 13
    shutil.rmtree(folder / f"arms/1-{NOTHING}/seed-2")
    early = results_of_folder(folder).differences
    assert {(each.verdict, each.low, each.p) for each in early} == {("no verdict", None, None)}
    assert "unfinished: judged once all 3 seeds have ended" in str(early[0].note)
