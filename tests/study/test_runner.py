"""Whole comparisons of tiny models and of finished runs: complete, resumable, honest."""

import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import hypothesis
import hypothesis.strategies as st
import pytest
import tomli_w

from sublayer.api.run import load, train
from sublayer.cli import main as cli
from sublayer.config.layers import read_toml
from sublayer.config.load import load_recipe
from sublayer.data import prepare as preparing
from sublayer.errors import CheckpointError, ConfigError, DataError, TrainingError
from sublayer.evaluation.items import ITEMS, read_items, write_items
from sublayer.judging.folders import read_comparison_items
from sublayer.objective import base
from sublayer.objective.causal import BITS_PER_BYTE, score
from sublayer.reporting.files import results_to_json
from sublayer.runs.folder import RunFolder
from sublayer.runs.session import prepare_data
from sublayer.study.arms import Arm
from sublayer.study.collect import results_of_folder
from sublayer.study.definition import Options, Study, ask
from sublayer.study.finished import check_agree
from sublayer.study.folder import StudyFolder, keep_tokenizer
from sublayer.study.plan_file import Request
from sublayer.study.runner import run_study
from tests.alterations import alterations, copy
from tests.breadth import examples
from tests.made import KINDS, TINY
from tests.study.studies import (
    FAILING,
    FFN,
    LR,
    compared,
    copied,
    files,
    read_results,
    settings_of,
    values,
)

BOOK = {"data.path": "book.txt"}


def again(folder: Path):
    page = folder.resolve() / "report.html"
    return json.loads(json.dumps(results_to_json(results_of_folder(folder), page)))


def test_values_are_those_of_the_models_and_items_on_the_test_split(studies, settings):
    run = studies.plain() / "arms/1-ffn=swiglu/seed-1"
    test = prepare_data(RunFolder(run).recipe()).test
    likelihood = score(load(run).model, test, context=16, stride=8, batch_sequences=4)
    result = read_results(studies.plain())
    gelu, swiglu = values(result)
    assert likelihood.bits_per_byte == pytest.approx(swiglu[1], rel=1e-5)
    (difference,) = result["differences"]
    assert difference["mean"] == pytest.approx((sum(swiglu) - sum(gelu)) / 3)
    assert again(studies.plain())["differences"] == result["differences"]
    of_items = BITS_PER_BYTE.from_items.of
    folder = studies.plain()
    arms = read_results(folder)["arms"]
    known = {(arm["name"], seed): arm["values"][seed] for arm in arms for seed in range(3)}
    digests = set()
    for place, (name, seed) in enumerate(known):
        items = read_items(folder / f"arms/{place // 3}-{name}/seed-{seed}")
        assert of_items(items) == pytest.approx(known[name, seed], rel=1e-9)
        digests.add(items.tables["windows"].digest)
    assert len(digests) == 1
    kept = read_comparison_items(folder, read_results(folder))
    found = {(run.arm, run.seed): of_items(run.items) for run in kept}
    assert found == pytest.approx(known, rel=1e-9)


def test_arms_scored_on_other_items_are_compared_over_seeds_alone(studies, settings):
    folder = copied(studies.plain(), "copy")
    for run in folder.glob("arms/1-*/seed-*"):
        items = read_items(run)
        other = replace(items.tables["windows"], digest="0" * 64)
        write_items(run, replace(items, tables={"windows": other}), {"bits_per_byte": "windows"})
    asked = {"vary": [FFN], "seeds": 3, "out": folder}
    (difference,) = compared("gpt", settings, **asked)["differences"]
    assert difference["verdict"] in ("better", "worse", "cannot tell")
    assert difference["parts"]["items"] is None
    test, items = (folder / "arms/0-ffn=gelu/seed-1" / name for name in ("test.json", ITEMS))
    kept = items.read_bytes()
    items.write_bytes(b"no items")
    with pytest.raises(CheckpointError, match=r"seed-1/items\.npz is damaged"):
        compared("gpt", settings, **asked)
    items.write_bytes(kept)
    test.write_text(json.dumps({**json.loads(test.read_text()), "bits_per_byte": []}))
    with pytest.raises(CheckpointError, match=r"test\.json is damaged, as bits_per"):
        compared("gpt", settings, **asked)


def test_the_same_command_again_shows_what_there_is(studies, settings):
    for other in ("runs/gpt-ffn", "runs/gpt"):
        Path(other).mkdir(parents=True)
        Path(other, "other.txt").touch()
    folder = "runs/gpt-ffn.2"
    before = files(copied(studies.plain(), folder) / "arms")
    found = compared("gpt", settings, vary=[FFN], seeds=3)
    report = str(Path(folder, "report.html").resolve())
    assert found == {**read_results(studies.plain()), "report": report}
    assert files(Path(folder, "arms")) == before


def test_one_seed_is_no_look_and_added_seeds_widen_the_intervals_for_the_second(studies, settings):
    one = compared("gpt", settings, vary=[FFN], seeds=1, first_seed=2)
    assert values(one) == [each[2:] for each in values(read_results(studies.plain()))]
    (difference,) = one["differences"]
    assert difference["verdict"] == "no verdict"
    assert difference["p"] is difference["low"] is difference["high"] is None
    assert (one["planned_seeds"], one["looks"]) == (1, [])
    with pytest.raises(ConfigError, match="with first_seed = 2, not 0"):
        compared("gpt", settings, vary=[FFN], seeds=1, out="runs/gpt-ffn")
    shutil.rmtree("runs")
    first = read_results(studies.plain())
    folder = copied(studies.plain(), "runs/gpt-ffn")
    five = compared("gpt", settings, vary=[FFN], seeds=5)
    assert [each[:3] for each in values(five)] == values(first)
    assert five["looks"] == [3, 5]
    plan = copied(folder, "fresh") / "study.toml"
    plan.write_text(tomli_w.dumps({**read_toml(plan), "reported_seeds": []}))
    fresh = compared("gpt", settings, vary=[FFN], seeds=5, out="fresh")
    assert values(fresh) == values(five)
    assert fresh["looks"] == [5]
    (after,), (alone,) = five["differences"], fresh["differences"]
    assert after["mean"] == alone["mean"]
    assert after["high"] - after["low"] > 1.1 * (alone["high"] - alone["low"])
    assert after["p"] > alone["p"] and after["p_raw"] == alone["p_raw"]
    assert again(folder)["differences"] == five["differences"]
    found = compared("gpt", settings, vary=[FFN], seeds=3)
    assert found["differences"] == first["differences"]
    assert again(folder)["arms"] == found["arms"]


def test_the_folder_of_another_study_is_refused_and_left_alone(studies, settings):
    folder = copied(studies.plain(), "runs/gpt")
    before = files(folder)
    asked = {"overrides": settings, "vary": [FFN], "seeds": 3, "out": folder}
    for changed, difference in (
        ({"vary": ["model.ffn=gelu,relu"]}, "another study, of ffn=gelu, ffn=swiglu"),
        ({"match": "none"}, "another study, with match = parameters, not none"),
        ({"match_multiple": 8}, "another study, with match_multiple = 1, not 8"),
        ({"tune": ["optimizer.lr=1e-3,2e-3"]}, "another study, with tune"),
        ({"overrides": settings_of(studies.text, "train.steps=6")}, "steps = 5, not steps = 6"),
        ({"margin": "0.5"}, "begun with margin = none, not 0.5"),
        ({"seeds": None, "until": "decided", "seeds_at_most": 5}, r"looks = none, not \[3, 5\]"),
    ):
        with pytest.raises(ConfigError, match=difference):
            compared("gpt", **{**asked, **changed})
    assert files(folder) == before
    kept = copied(studies.plain(), "runs/gpt-ffn")
    longer = {"overrides": settings_of(studies.text, "train.steps=6"), "vary": [FFN], "seeds": 3}
    with pytest.raises(ConfigError, match=r"gpt-ffn holds another study: .* in runs/gpt-ffn\.2"):
        compared("gpt", **longer, resume=True)
    shutil.rmtree(kept)
    path = folder / "study.toml"
    kept = path.read_text()
    path.write_text(kept.replace(read_toml(path)["inputs"]["ffn=gelu"][2]["digest"], "0" * 64))
    with pytest.raises(DataError, match="arm ffn=gelu, began with other data: the test split"):
        compared("gpt", **asked)
    plan = tomllib.loads(kept)
    for rule in (None, "in the order of modules"):
        del plan["initial_weights"]
        plan |= {} if rule is None else {"initial_weights": rule}
        path.write_text(tomli_w.dumps(plan))
        with pytest.raises(ConfigError, match="runs/gpt was begun by another version"):
            compared("gpt", settings, vary=[FFN], seeds=4, out="runs/gpt")
        plan["initial_weights"] = rule


@pytest.mark.parametrize("options, extra, message", [
    ({"seeds": None, "until": "decided", "seeds_at_most": 3}, [], "single look"),
    ({"vary": ("model.share=none,all",)}, [], "use --match flops or --match time"),
    ({"tune": (f"{LR}=1e-3,1e-2",), "first_tuning_seed": 2}, [], "seed 2 is both a tuning seed"),
    ({"tune": ("model.dropout=0,0.1",), "extend": 1}, [], "--extend"),
    ({}, ["data.split=90/10/0"], r"data\.split"),
    ({"tune": (f"{LR}=1e-3,1e-2",)}, ["data.split=90/0/10", "train.best_by=last"], r"--tune .*spl"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused_first(studies, settings, options, extra, message):
    layers = settings_of(studies.text, "model.n_layers=2", *extra)
    with pytest.raises(ConfigError, match=message):
        run_study(["gpt"], layers, Options(**{"vary": (FFN,), "seeds": 3, **options}))
    assert not list(Path().rglob("record.json"))


def test_the_mismatch_of_time_is_of_the_time_that_runs_took_and_minutes_are_equal_steps(settings):
    result = compared("gpt", settings, vary=[FFN], match="time", seeds=1, out="time")
    gelu, swiglu = result["arms"]
    assert swiglu["matched"][0].startswith("train.steps=")
    share = swiglu["training_seconds"] / gelu["training_seconds"] - 1
    assert (gelu["mismatch"], swiglu["mismatch"]) == (0.0, pytest.approx(share))
    assert swiglu["excess"]["realised"]["time"] == pytest.approx(share)
    timed = [text for text in settings if "steps" not in text] + ["train.minutes=0.004"]
    result = compared("gpt", timed, vary=[FFN], seeds=1)
    gelu, swiglu = (arm["steps"] for arm in result["arms"])
    assert gelu == swiglu
    settled = read_toml(Path("runs/gpt-ffn/study.toml"))["settled"]
    assert {each["settings"]["train.steps"] for each in settled} == {gelu}
    assert compared("gpt", timed, vary=[FFN], seeds=1) == result


def test_failed_runs_are_listed_and_stop_nothing(studies, settings):
    folder = studies.failed()
    result = read_results(folder)
    failures = [(failure["arm"], failure["seed"]) for failure in result["failures"]]
    assert failures == [("lr=1e6", seed) for seed in range(3)]
    assert [len(arm["values"]) for arm in result["arms"]] == [3, 3, 0]
    # Three of three failed: two by chance in the 20 ways to divide six runs.
    *_, failed = result["differences"]
    assert (failed["by_ranks"], failed["n_failed"]) == (True, [3, 0])
    assert (failed["p_raw"], failed["verdict"]) == (pytest.approx(2 / 20), "cannot tell")
    assert again(folder)["differences"] == result["differences"]
    copy = copied(folder, "copy")
    found = compared("gpt", settings, vary=[FAILING], seeds=3, out=copy)
    assert found["failures"] == result["failures"]
    with pytest.raises(TrainingError, match=r"no arm has .* see .*report\.html"):
        compared("gpt", settings, vary=["optimizer.lr=1e-3,1e6"], seeds=1)
    assert "not finite" in Path("runs/gpt-lr/report.html").read_text()


@pytest.mark.usefixtures("settings")
@hypothesis.given(number=st.integers(0, 10**6), alteration=alterations())
@hypothesis.settings(examples(10), suppress_health_check=list(hypothesis.HealthCheck))
def test_an_altered_study_fails_or_goes_on(studies, capsys, tmp_path_factory, number, alteration):
    altered = copy(studies.plain(), tmp_path_factory.mktemp("altered") / "study")
    paths = sorted(path for path in altered.rglob("*") if path.is_file())
    paths = [path for path in paths if "tensorboard" not in path.parts]
    alteration(paths[number % len(paths)])
    words = [*studies.settings, "--vary", FFN, "--seeds", "3", "--out", str(altered)]
    code = cli.main(["compare", "gpt", *words])
    lines = capsys.readouterr().err.splitlines()
    assert code in (cli.DONE, cli.MISTAKE, cli.FAILED) and "Traceback" not in "".join(lines)
    errors = [line for line in lines if line.startswith("error: ")]
    assert errors == ([] if code == cli.DONE else lines[-1:])


@pytest.fixture
def runs(studies, settings):
    """Copies of the plain study's runs, which were never scored on the test split."""
    names = {}
    for source in sorted(studies.plain().glob("arms/*/seed-*")):
        name = f"{source.parent.name[2:].replace('=', '-')}-{source.name[5:]}"
        names[name] = source
        shutil.copytree(source, name, ignore=shutil.ignore_patterns("test.json", "items.*"))
    return list(names)


def test_runs_of_one_recipe_are_the_seeds_of_an_arm(studies, runs, monkeypatch):
    result = compared(runs, out="together")
    assert [arm["seeds"] for arm in result["arms"]] == [[0, 1, 2], [0, 1, 2]]
    (difference,) = result["differences"]
    (known,) = read_results(studies.plain())["differences"]
    assert difference["verdict"] == known["verdict"]
    for name in ("mean", "low", "high"):
        assert difference[name] == pytest.approx(known[name])
    kept = files(Path("together/scores"))
    with monkeypatch.context() as patch:  # what was scored is read without the text
        patch.setattr(preparing, "find_texts", None)
        patch.setattr(base, "prepare", None)
        assert compared(runs, out="together") == result
    assert files(Path("together/scores")) == kept
    arms = studies.plain() / "arms"
    again = compared([arms / "0-ffn=gelu/seed-1", arms / "1-ffn=swiglu/seed-1"], out="again")
    assert [arm["name"] for arm in again["arms"]] == ["ffn=gelu", "ffn=swiglu"]
    assert not Path("again/scores").exists()


def test_a_run_that_was_made_longer_is_scored_again(studies, settings):
    train("gpt", settings, out="longer")
    train("gpt", [*settings, "model.ffn=relu"], out="plain")
    before = compared(["longer", "plain"], out="both")["arms"]
    train("longer", {"train.steps": 2 * before[0]["steps"]}, resume=True)
    result = compared(["longer", "plain"], out="both")
    longer, plain = result["arms"]
    assert longer["values"] != before[0]["values"]
    assert longer["values"] == compared(["longer", "plain"], out="anew")["arms"][0]["values"]
    assert plain["values"] == before[1]["values"]
    assert any("lengthened from 5 to 10 steps" in note for note in result["notes"])
    # The other network's products are as many, of half the tokens.
    budgets = [each["excess"]["realised"]["operations"] for each in (before[1], plain)]
    assert budgets == [0.0, -0.5]


def test_options_and_folders_that_fit_no_finished_runs_are_refused(runs):
    for name in ("both/runs.json", "mine/thesis.txt"):
        Path(name).parent.mkdir()
        Path(name).write_text("{}")
    shutil.copytree(runs[0], "copy")
    Path(runs[1], "record.json").unlink()
    record = Path(runs[4], "record.json")
    content = json.loads(record.read_text())
    content["data"]["checksums"]["test"] = "0123456789abcdef"
    record.write_text(json.dumps(content))
    for other, options, message in (
        (runs[4], {}, "their test texts differ"), (runs[3], {"seeds": 3}, "leave out seeds 3"),
        (runs[3], {"overrides": ["train.steps=3"]}, r"leave out train\.steps=3"),
        ("gpt", {}, "is a run and gpt is not"), ("both", {}, "is a run and both is not"),
        ("copy", {}, "same recipe and the same seed, 0"), (runs[1], {}, f"{runs[1]} has not ended"),
        (runs[3], {"out": "mine"}, "mine holds other files"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            compared([runs[0], other], **options)
    assert files(Path("mine")).keys() == {"thesis.txt"} and not Path("runs").exists()


def test_a_name_that_is_too_long_is_named_as_it_is_written():
    with pytest.raises(OSError, match="File name too long") as caught:
        run_study(["a" * 300], [], Options())
    assert caught.value.filename == "a" * 300


@pytest.mark.parametrize("settings, name, message", [
    ({"data.split": "80/10/10"}, "train", "training texts differ, no data.split and data.split = "),
    ({"data.keep_accents": False}, "test", "test texts differ, though their settings"),
    ({"data.keep_accents": False}, "tokenizer", "tokenizers differ, no data.keep_accents and data"),
])  # fmt: skip
def test_settings_that_keep_two_runs_apart_are_named(settings, name, message):
    recipes = [load_recipe("albert-small", {**BOOK, **more}).recipe for more in ({}, settings)]
    runs = [Mock(path=n, recipe=each, checksums={name: n}) for n, each in enumerate(recipes)]
    with pytest.raises(ConfigError, match=f"^0 and 1 cannot be compared: their {message}"):
        check_agree(runs)


def two_arms(**settings) -> list[Arm]:
    base = load_recipe("gpt", {"train.steps": 5, **BOOK, **settings})
    changes = {ffn: {"model.ffn": ffn} for ffn in ("relu", "gelu")}
    return [Arm(ffn, base.vary(change), change) for ffn, change in changes.items()]


def request_of(**settings) -> Request:
    study = Study("gpt", "", "", "parameters", None, tuple(two_arms(**settings)))
    return Request.of(ask(study, Options()))


def test_another_setting_makes_another_study_and_fields_that_came_since_do_not(tmp_path):
    StudyFolder(tmp_path, request_of()).begin(two_arms(), {})
    path = tmp_path / "study.toml"
    plan = read_toml(path)
    for name, text in plan["asked"]["recipes"].items():
        recipe = tomllib.loads(text)
        del recipe["title"], recipe["model"]["norm"], recipe["data"]["windows"]
        recipe["source"] = "A sentence that has been mended since."
        plan["asked"]["recipes"][name] = tomli_w.dumps(recipe)
    path.write_text(tomli_w.dumps(plan))
    folder = StudyFolder(tmp_path, request_of())
    assert folder.is_ours()
    folder.check()
    for settings, message in (
        ({"model.dropout": 0.1}, "its arm relu has dropout = 0.0, not dropout = 0.1"),
        ({"model.norm": "rms"}, "its arm relu has .*, not .*rms"),
    ):
        folder = StudyFolder(tmp_path, request_of(**settings))
        assert not folder.is_ours()
        with pytest.raises(ConfigError, match=message):
            folder.check()


@pytest.mark.parametrize("begins", [False, True])
def test_a_tokenizer_is_kept_only_of_a_study_that_begins(tmp_path, begins):
    out = tmp_path / "out"
    folder = StudyFolder(out, request_of())
    with folder.held():
        path = keep_tokenizer(out, b"one")
        assert path.read_bytes() == b"one"
        if begins:
            folder.begin(two_arms(), {})
    assert out.exists() == path.exists() == begins
    other = keep_tokenizer(tmp_path, b"another's")
    with StudyFolder(tmp_path, request_of()).held():
        assert keep_tokenizer(tmp_path, b"one") != other
    assert [each.read_bytes() for each in tmp_path.glob(".tokenizer*")] == [b"another's"]


@pytest.fixture
def tiny(workshop, settings):
    def tiny(kind):
        steps = {"train.steps": 2, "train.batch_sequences": 2, "optimizer.warmup_steps": 1}
        path = str(workshop.path(KINDS[kind]))
        return {**TINY, **KINDS[kind], "data.path": path, **steps}

    return tiny


@pytest.mark.parametrize(("kind", "n_pairs"), [("causal", 0), ("translation", 1)])
def test_a_study_prepares_its_data_once(tiny, kind, n_pairs, monkeypatch):
    calls = [(base, "prepare"), (preparing, "find_texts"), (preparing, "read_pairs")]
    mocks = [Mock(wraps=getattr(module, name)) for module, name in calls]
    for (module, name), mock in zip(calls, mocks, strict=True):
        monkeypatch.setattr(module, name, mock)
    settings = tiny(kind)
    del settings["model.dropout"]
    compared("gpt", settings, vary=["model.dropout=0,0.1"], seeds=1, out="study")
    assert [mock.call_count for mock in mocks] == [1, 1, n_pairs]


def test_arms_that_are_scored_on_other_targets_have_no_verdict_and_ask_for_no_more_seeds(tiny):
    # Pieces of another length have other gaps, whatever is learned.
    settings = tiny("span")
    del settings["data.context"]
    until = {"until": "decided", "seeds_at_most": 9, "match": "none", "out": "out"}
    result = compared("gpt", settings, vary=["data.context=48,24"], **until)
    (difference,) = result["differences"]
    assert (difference["verdict"], difference["mean"] is None) == ("no verdict", False)
    # No number of seeds would give one: the first look is the last.
    assert (difference["n_seeds"], len(list(Path("out").rglob("record.json")))) == (3, 6)
    assert any("context=24: scored on different targets than" in note for note in result["notes"])
