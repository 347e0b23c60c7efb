"""Whole comparisons of tiny models: complete, resumable, equal for all arms, honest."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import tomli_w

from sublayer import cli
from sublayer.api.training import compare
from sublayer.config.layering.sources import read_toml
from sublayer.errors import CheckpointError, ConfigError, DataError, TrainingError
from sublayer.evaluation.items import Items
from sublayer.evaluation.likelihood import score
from sublayer.loading import load
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.runs.folder import RunFolder
from sublayer.runs.items import ITEMS, read_items, write_items
from sublayer.runs.session import prepare_data
from sublayer.study.from_folder import results_of_folder
from sublayer.study.items.file_header import STUDY_ITEMS
from sublayer.study.items.reading import read_study_items
from sublayer.study.options import Options
from sublayer.study.results_json import results_to_json
from sublayer.study.runner import run_study
from tests.alterations import alterations, copy
from tests.breadth import examples
from tests.study.studies import FFN, Studies, copied, files, read_results, settings_of, values


def again(folder: Path) -> dict[str, Any]:
    """The results of a folder, read from its runs."""
    page = folder.resolve() / "report.html"
    written: dict[str, Any] = json.loads(
        json.dumps(results_to_json(results_of_folder(folder), page))
    )
    return written


def test_values_are_those_of_the_models_on_the_test_split(studies: Studies, settings: list[str]):
    run = studies.plain() / "arms/1-ffn=swiglu/seed-1"
    test = prepare_data(RunFolder(run).recipe()).test
    likelihood = score(load(run), test, context=16, stride=8, batch_sequences=4)
    result = read_results(studies.plain())
    gelu, swiglu = values(result)
    assert likelihood.bits_per_byte == pytest.approx(swiglu[1], rel=1e-5)
    (difference,) = result["differences"]
    assert difference["mean"] == pytest.approx((sum(swiglu) - sum(gelu)) / 3)
    assert again(studies.plain())["differences"] == result["differences"]


def value_of(items: Items) -> float:
    from_items = BITS_PER_BYTE.from_items
    assert from_items is not None
    found = from_items.of(items)
    assert found is not None
    return found


def test_runs_and_study_keep_the_items_that_values_follow_from(studies: Studies) -> None:
    folder = studies.plain()
    arms = read_results(folder)["arms"]
    known = {(arm["name"], seed): arm["values"][seed] for arm in arms for seed in range(3)}
    digests = set()
    for place, (name, seed) in enumerate(known):
        items = read_items(folder / f"arms/{place // 3}-{name}/seed-{seed}")
        assert items is not None
        assert value_of(items) == pytest.approx(known[name, seed], rel=1e-9)
        digests.add(items.tables["windows"].digest)
    assert len(digests) == 1
    # Nats are rounded to steps of a thousandth, of which a sum is right to half a step.
    kept = {
        (run.arm, run.seed): value_of(run.items) for run in read_study_items(folder / STUDY_ITEMS)
    }
    assert kept == pytest.approx(known, rel=1e-6)


def test_arms_scored_on_other_items_are_compared_over_seeds_alone(
    studies: Studies, settings: list[str]
) -> None:
    folder = copied(studies.plain(), "copy")
    for run in folder.glob("arms/1-*/seed-*"):
        items = read_items(run)
        assert items is not None
        other = replace(items.tables["windows"], digest="0" * 64)
        write_items(run, replace(items, tables={"windows": other}), {"bits_per_byte": "windows"})
    results, _ = run_study(["gpt"], settings, Options(vary=(FFN,), seeds=3, out=folder))
    (difference,) = results.differences
    # Bits per byte are of the text, however it is cut.
    assert difference.verdict in ("better", "worse", "cannot tell")
    assert difference.parts is not None and difference.parts.items is None


def test_damaged_files_of_a_run_are_named(studies: Studies, settings: list[str]) -> None:
    folder = copied(studies.plain(), "damaged")
    run = folder / "arms/0-ffn=gelu/seed-1"
    kept = (run / ITEMS).read_bytes()
    (run / ITEMS).write_bytes(b"no items")
    with pytest.raises(CheckpointError, match=r"seed-1/items\.safetensors is damaged"):
        compare("gpt", settings, vary=[FFN], seeds=3, out=folder)
    (run / ITEMS).write_bytes(kept)
    test = run / "test.json"
    test.write_text(json.dumps({**json.loads(test.read_text()), "bits_per_byte": []}))
    with pytest.raises(CheckpointError, match=r"test\.json is damaged: bits_per_byte"):
        compare("gpt", settings, vary=[FFN], seeds=3, out=folder)


def test_the_same_command_again_shows_what_there_is(studies: Studies, settings: list[str]):
    for other in ("runs/gpt-ffn", "runs/gpt"):
        Path(other).mkdir(parents=True)
        Path(other, "other.txt").touch()
    # Earlier versions named the folder after the recipe alone.
    for folder in ("runs/gpt-ffn.2", "runs/gpt"):
        shutil.rmtree(folder, ignore_errors=True)
        before = files(copied(studies.plain(), folder) / "arms")
        found = compare("gpt", settings, vary=[FFN], seeds=3)
        report = str(Path(folder, "report.html").resolve())
        assert found == {**read_results(studies.plain()), "report": report}
        assert files(Path(folder, "arms")) == before
        shutil.rmtree(folder)


def test_added_seeds_keep_the_runs_and_widen_the_intervals_for_the_second_look(
    studies: Studies, settings: list[str]
):
    first = read_results(studies.plain())
    folder = copied(studies.plain(), "runs/gpt-ffn")
    five = compare("gpt", settings, vary=[FFN], seeds=5)
    assert [each[:3] for each in values(five)] == values(first)
    assert five["looks"] == [3, 5]
    # The same runs, had nobody looked at three.
    plan = copied(folder, "fresh") / "study.toml"
    plan.write_text(tomli_w.dumps({**read_toml(plan), "reported_seeds": []}))
    fresh = compare("gpt", settings, vary=[FFN], seeds=5, out="fresh")
    assert values(fresh) == values(five)
    assert fresh["looks"] == [5]
    (after,), (alone,) = five["differences"], fresh["differences"]
    assert after["mean"] == alone["mean"]
    assert after["high"] - after["low"] > 1.1 * (alone["high"] - alone["low"])
    assert after["p"] > alone["p"] and after["p_raw"] == alone["p_raw"]
    assert again(folder)["differences"] == five["differences"]
    # The first report's verdicts hold as they did.
    found = compare("gpt", settings, vary=[FFN], seeds=3)
    assert found["differences"] == first["differences"]
    assert again(folder)["arms"] == found["arms"]


def test_one_seed_gives_no_verdict_and_is_no_look(studies: Studies, settings: list[str]):
    known = read_results(studies.plain())
    one = compare("gpt", settings, vary=[FFN], seeds=1, first_seed=2)
    assert values(one) == [each[2:] for each in values(known)]
    (difference,) = one["differences"]
    assert (difference["verdict"], difference["p"]) == ("no verdict", None)
    assert difference["low"] is difference["high"] is None
    assert (one["planned_seeds"], one["looks"]) == (1, [])
    with pytest.raises(ConfigError, match="with first seed 2, not 0"):
        compare("gpt", settings, vary=[FFN], seeds=1, out="runs/gpt-ffn")


def test_the_folder_of_another_study_is_refused_and_left_alone(
    studies: Studies, settings: list[str]
):
    folder = copied(studies.plain(), "study")
    before = files(folder)
    others: list[tuple[dict[str, Any], str]] = [
        ({"vary": ["model.ffn=gelu,relu"]}, "another study, of ffn=gelu, ffn=swiglu"),
        ({"match": "none"}, "another study, with match = parameters, not none"),
        ({"tune": ["optimizer.lr=1e-3,2e-3"]}, "another study, with tune"),
        ({"overrides": settings_of(studies.text, "train.steps=6")}, "steps = 5, not steps = 6"),
        ({"margin": "0.5"}, "begun with no margin, not a margin of 0.5"),
        ({"seeds": None, "until": "decided", "seeds_at_most": 5}, "a fixed number of seeds"),
    ]
    for changed, difference in others:
        asked = {"overrides": settings, "vary": [FFN], "seeds": 3, "out": folder, **changed}
        with pytest.raises(ConfigError, match=difference):
            compare("gpt", **asked)
    assert files(folder) == before
    plan = read_toml(folder / "study.toml")
    plan["checksums"]["test"] = "0" * 64
    (folder / "study.toml").write_text(tomli_w.dumps(plan))
    with pytest.raises(DataError, match="the text has changed"):
        compare("gpt", settings, vary=[FFN], seeds=3, out=folder)


def test_a_study_whose_seeds_gave_other_weights_is_refused(studies: Studies, settings: list[str]):
    path = copied(studies.plain(), "runs/gpt") / "study.toml"
    plan = read_toml(path)
    for rule, out in ((None, None), ("in the order of modules", "runs/gpt")):
        plan.pop("initial_weights")
        plan |= {} if rule is None else {"initial_weights": rule}
        path.write_text(tomli_w.dumps(plan))
        with pytest.raises(ConfigError, match="runs/gpt was begun by another version"):
            compare("gpt", settings, vary=[FFN], seeds=4, out=out)
        plan["initial_weights"] = rule


GRID = ("optimizer.lr=1e-3,1e-2",)


@pytest.mark.parametrize(
    ("options", "extra", "message"),
    [
        ({"seeds": None, "until": "decided", "seeds_at_most": 3}, [], "single look"),
        ({"vary": ("model.share=none,all",)}, [], "use --match flops or --match time"),
        ({"tune": GRID, "first_tuning_seed": 2}, [], "seed 2 would tune and be compared"),
        ({"tune": GRID, "first_seed": 998}, [], "seed 1000 would tune and be compared"),
        ({"tune": ("model.dropout=0,0.1",), "extend": 1}, [], "--extend"),
        ({}, ["data.split=90/10/0"], r"data\.split"),
        ({"tune": GRID}, ["data.split=90/0/10", "train.best_by=last"], r"--tune .*data\.split"),
    ],
)
def test_a_comparison_without_meaning_is_refused_before_anything_is_trained(
    settings: list[str], options: dict[str, Any], extra: list[str], message: str
):
    layers = ["model.n_layers=2" if text == "model.n_layers=1" else text for text in settings]
    with pytest.raises(ConfigError, match=message):
        run_study(["gpt"], [*layers, *extra], Options(**{"vary": (FFN,), "seeds": 3, **options}))
    assert not list(Path().rglob("record.json"))


def test_failed_runs_are_listed_and_stop_nothing(studies: Studies, settings: list[str]):
    folder = studies.failed()
    result = read_results(folder)
    assert [(failure["arm"], failure["seed"]) for failure in result["failures"]] == [
        ("lr=1e6", seed) for seed in range(3)
    ]
    assert [len(arm["values"]) for arm in result["arms"]] == [3, 3, 0]
    # Three of three failed: two by chance in the 20 ways to divide six runs.
    *_, failed = result["differences"]
    assert (failed["by_ranks"], failed["n_failed"]) == (True, [3, 0])
    assert failed["p_raw"] == pytest.approx(2 / 20)
    assert failed["verdict"] == "cannot tell"
    # The arm of which no run has a score is in the report that is written again, too.
    assert again(folder)["differences"] == result["differences"]
    copy = copied(folder, "copy")
    found = compare("gpt", settings, vary=["optimizer.lr=1e-3,1e-2,1e6"], seeds=3, out=copy)
    assert found["failures"] == result["failures"]


@pytest.mark.parametrize(("rates", "seeds"), [("1e-3,1e6", 1)])
def test_a_study_of_which_nothing_can_be_compared_fails_after_its_report(
    settings: list[str], rates: str, seeds: int
):
    with pytest.raises(TrainingError, match=r"no arm has .* see .*report\.html"):
        compare("gpt", settings, vary=[f"optimizer.lr={rates}"], seeds=seeds)
    assert "not finite" in Path("runs/gpt-lr/report.html").read_text()


def test_the_mismatch_of_time_is_of_the_time_that_runs_took(settings: list[str]):
    result = compare("gpt", settings, vary=[FFN], match="time", seeds=1)
    gelu, swiglu = result["arms"]
    assert swiglu["matched"][0].startswith("train.steps=")
    share = swiglu["training_seconds"] / gelu["training_seconds"] - 1
    assert (gelu["mismatch"], swiglu["mismatch"]) == (0.0, pytest.approx(share))
    assert swiglu["excess"]["realised"]["time"] == pytest.approx(share)


def test_minutes_become_the_same_steps_for_every_arm(settings: list[str]):
    timed = [text for text in settings if "steps" not in text] + ["train.minutes=0.004"]
    result = compare("gpt", timed, vary=[FFN], seeds=1)
    gelu, swiglu = (arm["steps"] for arm in result["arms"])
    assert gelu == swiglu
    settled = read_toml(Path("runs/gpt-ffn/study.toml"))["settled"]
    assert {each["settings"]["train.steps"] for each in settled} == {gelu}
    assert compare("gpt", timed, vary=[FFN], seeds=1) == result


@pytest.mark.usefixtures("settings")
@hypothesis.given(number=st.integers(0, 10**6), alteration=alterations())
@hypothesis.settings(examples(10), suppress_health_check=list(hypothesis.HealthCheck))
def test_an_altered_study_is_one_line_of_error_or_goes_on(
    studies: Studies, capsys, tmp_path_factory, number, alteration
) -> None:
    altered = copy(studies.plain(), tmp_path_factory.mktemp("altered") / "study")
    paths = sorted(
        path for path in altered.rglob("*") if path.is_file() and "tensorboard" not in path.parts
    )
    alteration(paths[number % len(paths)])
    words = [*studies.settings, "--vary", FFN, "--seeds", "3", "--out", str(altered)]
    code = cli.main(["compare", "gpt", *words])
    lines = capsys.readouterr().err.splitlines()
    assert code in (cli.DONE, cli.MISTAKE, cli.FAILED) and "Traceback" not in "".join(lines)
    errors = [line for line in lines if line.startswith("error: ")]
    assert errors == ([] if code == cli.DONE else lines[-1:])
