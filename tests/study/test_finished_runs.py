"""Runs that exist, compared as they are; and how often a study reads its texts and weights."""

import json
import shutil
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import tomli_w

from sublayer import loading
from sublayer.api.training import compare, train
from sublayer.config.layering.layers import load_recipe, vary
from sublayer.data import prepare as preparing
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.objective import family
from sublayer.runs.run import train_run
from sublayer.runs.session import prepare_data
from sublayer.study.agreement import check_agree
from sublayer.study.arms import Arm
from sublayer.study.budget.budget import MatchedArm
from sublayer.study.budget.shared_tokenizer import keep_tokenizer
from sublayer.study.folder import StudyFolder
from sublayer.study.plan_file import Request
from sublayer.study.recorded import Recorded
from sublayer.training.progress import SilentProgress
from tests.objective.test_items import RECIPES, write_texts
from tests.study.studies import Studies, files, read_results

BOOK = {"data.path": "book.txt"}
Calls = Counter[str]


@pytest.fixture
def runs(studies: Studies, settings: list[str]) -> list[str]:
    """Copies of the plain study's runs, which were never scored on the test split."""
    names = []
    for arm in ("0-ffn=gelu", "1-ffn=swiglu"):
        for seed in range(3):
            name = f"{arm[2:].replace('=', '-')}-{seed}"
            source = studies.plain() / "arms" / arm / f"seed-{seed}"
            shutil.copytree(source, name, ignore=shutil.ignore_patterns("test.json", "items.*"))
            names.append(name)
    return names


def test_one_run_each_gives_the_values_of_their_study_and_no_verdict(
    studies: Studies, runs: list[str]
):
    before = files(Path())
    result = compare([runs[0], runs[3]])
    assert [arm["name"] for arm in result["arms"]] == ["ffn-gelu-0", "ffn-swiglu-0"]
    for arm, known in zip(result["arms"], read_results(studies.plain())["arms"], strict=True):
        assert arm["values"] == pytest.approx(known["values"][:1], rel=1e-9)
        assert arm["curves"] and arm["parameters"] == known["parameters"]
    assert result["differences"][0]["verdict"] == "no verdict"
    after = files(Path())
    assert before.items() <= after.items()
    assert all(path.startswith("runs/") for path in after.keys() - before.keys())


def test_runs_of_one_recipe_are_the_seeds_of_an_arm(studies: Studies, runs: list[str]):
    result = compare(runs, out="together")
    assert [arm["seeds"] for arm in result["arms"]] == [[0, 1, 2], [0, 1, 2]]
    (difference,) = result["differences"]
    (known,) = read_results(studies.plain())["differences"]
    assert difference["verdict"] == known["verdict"]
    for name in ("mean", "low", "high"):
        assert difference[name] == pytest.approx(known[name])
    # The same command again scores nothing.
    kept = files(Path("together/scores"))
    assert compare(runs, out="together") == result
    assert files(Path("together/scores")) == kept
    # Nor are scores made anew that a study has kept.
    arms = studies.plain() / "arms"
    again = compare([arms / "0-ffn=gelu/seed-1", arms / "1-ffn=swiglu/seed-1"], out="again")
    assert [arm["name"] for arm in again["arms"]] == ["ffn=gelu", "ffn=swiglu"]
    assert not Path("again/scores").exists()


def test_a_run_that_was_made_longer_is_scored_again(studies: Studies, settings: list[str]):
    train("gpt", settings, out="longer")
    train("gpt", [*settings, "model.ffn=relu"], out="plain")
    before = compare(["longer", "plain"], out="both")["arms"]
    train("longer", {"train.steps": 2 * before[0]["steps"]}, resume=True)
    result = compare(["longer", "plain"], out="both")
    after = result["arms"]
    assert after[0]["values"] != before[0]["values"]
    assert after[0]["values"] == compare(["longer", "plain"], out="anew")["arms"][0]["values"]
    assert after[1]["values"] == before[1]["values"]
    assert any("lengthened from 5 to 10 steps" in note for note in result["notes"])
    # The other network's products are as many, of half the tokens.
    budgets = [each[1]["excess"]["realised"] for each in (before, after)]
    assert [each["operations"] for each in budgets] == [0.0, -0.5]


def test_runs_on_a_text_that_changed_between_them_are_refused(runs: list[str]):
    record = Path(runs[3], "record.json")
    content = json.loads(record.read_text())
    content["data"]["checksums"]["test"] = "0123456789abcdef"
    record.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="their test texts differ"):
        compare([runs[0], runs[3]])
    assert not Path("runs").exists()


def test_options_and_folders_that_fit_no_finished_runs_are_refused(runs: list[str]):
    for name in ("both/runs.json", "mine/thesis.txt"):
        Path(name).parent.mkdir()
        Path(name).write_text("{}")
    shutil.copytree(runs[0], "copy")
    Path(runs[1], "record.json").unlink()
    cases: list[tuple[str, dict[str, Any], str]] = [
        (runs[3], {"seeds": 3}, "leave out --seeds 3"),
        (runs[3], {"overrides": ["train.steps=3"]}, r"leave out train\.steps=3"),
        ("modern", {}, "is a run and modern is not"),
        ("both", {}, "both is a comparison"),
        ("copy", {}, "of one recipe with one seed, 0"),
        (runs[1], {}, f"{runs[1]} has not ended"),
        (runs[3], {"out": "mine"}, "mine holds other files"),
    ]
    for other, options, message in cases:
        with pytest.raises(ConfigError, match=message):
            compare([runs[0], other], **options)
    assert files(Path("mine")).keys() == {"thesis.txt"}


def recorded(name: str, settings: dict[str, Any], **checksums: str) -> Recorded:
    """A run whose text and tokenizer have the checksums of others, but for those given."""
    equal = dict.fromkeys(("train", "valid", "test", "tokenizer"), "0")
    recipe = load_recipe("gpt", settings).recipe
    run = SimpleNamespace(path=Path(name), recipe=recipe, checksums={**equal, **checksums})
    return cast(Recorded, run)


NOTES = {"data.path": "notes.txt"}
PATHS = "data.path = 'book.txt' and 'notes.txt'"


@pytest.mark.parametrize(
    ("settings", "name", "message"),
    [
        ({**NOTES, "data.context": 64}, "train", f"training texts differ, {PATHS}"),
        ({**BOOK, "data.split": "80/10/10"}, "train", "no data.split and data.split = '80"),
        ({**NOTES, "data.tokenizer": "characters"}, "tokenizer", "data.tokenizer = 'bytes' and"),
        ({**BOOK, "model.n_layers": 2}, "valid", "validation texts differ, though their settings"),
    ],
)
def test_settings_that_keep_two_runs_apart_are_named(
    settings: dict[str, Any], name: str, message: str
) -> None:
    check_agree([recorded("a", BOOK), recorded("b", settings)])
    with pytest.raises(ConfigError, match="^a and b do not compare: ") as refused:
        check_agree([recorded("a", BOOK), recorded("b", settings, **{name: "1"})])
    assert message in str(refused.value)


def request_of(**settings: Any) -> Request:
    base = load_recipe("gpt", {"train.steps": 5, **BOOK, **settings})
    arms = [
        Arm(ffn, vary(base, {"model.ffn": ffn}), {"model.ffn": ffn}) for ffn in ("relu", "gelu")
    ]
    return Request(tuple(arms), "parameters", ())


def begin(folder: StudyFolder, request: Request) -> None:
    folder.begin([MatchedArm(arm, {}, (), 0.0) for arm in request.arms], {})


def test_another_setting_makes_another_study_and_fields_that_came_since_do_not(
    tmp_path: Path,
) -> None:
    begin(StudyFolder(tmp_path, request_of()), request_of())
    path = tmp_path / "study.toml"
    plan = tomllib.loads(path.read_text())
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
def test_a_tokenizer_is_kept_only_of_a_study_that_begins(tmp_path: Path, begins: bool) -> None:
    out = tmp_path / "out"
    folder = StudyFolder(out, request_of())
    with folder.held():
        path = keep_tokenizer(out, b"one")
        assert path.read_bytes() == b"one"
        if begins:
            begin(folder, request_of())
    assert out.exists() == path.exists() == begins
    other = keep_tokenizer(tmp_path, b"another's")
    with StudyFolder(tmp_path, request_of()).held():
        assert keep_tokenizer(tmp_path, b"one") != other
    assert [each.read_bytes() for each in tmp_path.glob(".tokenizer*")] == [b"another's"]


def count_calls(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, calls: Calls) -> None:
    call: Callable[..., Any] = getattr(module, name)

    def counted(*args: Any, **options: Any) -> Any:
        calls[name] += 1
        return call(*args, **options)

    monkeypatch.setattr(module, name, counted)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """How often data are prepared, texts found, pairs and weights read."""
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    found: Calls = Counter()
    count_calls(monkeypatch, family, "prepare", found)
    count_calls(monkeypatch, preparing, "find_texts", found)
    count_calls(monkeypatch, preparing, "read_pairs", found)
    load = loading.load_weights

    def counted(folder: Path, **options: Any) -> Any:
        found[f"weights of {folder.parent.name}"] += 1
        return load(folder, **options)

    monkeypatch.setattr(loading, "load_weights", counted)
    return found


def tiny(kind: str, folder: Path, **further: Any) -> tuple[str, dict[str, Any]]:
    """A tiny recipe of a kind on texts that lie in a folder, named relative to it."""
    name, settings = RECIPES[kind]
    texts = {field: Path(path).name for field, path in write_texts(folder)[kind].items()}
    train = {"train.steps": 2, "train.batch_sequences": 2, "optimizer.warmup_steps": 1}
    fixed = {"train.precision": "float32", "train.threads": 1}
    return name, {**settings, **texts, **train, **fixed, **further}


@pytest.mark.parametrize("kind", ["causal", "translation"])
def test_a_study_prepares_its_data_once(kind: str, calls: Calls, tmp_path: Path) -> None:
    name, settings = tiny(kind, tmp_path)
    compare(name, settings, vary=["model.dropout=0,0.1"], seeds=1, out=tmp_path / "study")
    assert (calls["prepare"], calls["find_texts"]) == (1, 1)
    # The pairs of the test split; no run asks for the texts of another.
    assert calls["read_pairs"] == (kind == "translation")


def test_the_weights_of_the_run_that_a_study_starts_from_are_read_once_a_run(
    calls: Calls, tmp_path: Path
) -> None:
    name, settings = tiny("causal", tmp_path)
    train_run(load_recipe(name, settings), tmp_path / "first", progress=SilentProgress())
    assert calls["prepare"] == 1
    calls.clear()
    settings = {**settings, "init.run": "first"}
    data = prepare_data(load_recipe(name, settings).recipe)
    expected = load_tokenizer(tmp_path / "first" / "model" / "tokenizer.json")
    assert data.tokenizer.fingerprint == expected.fingerprint
    assert calls["weights of first"] == 0
    calls.clear()
    # The data of the arms differ, so that those of each are prepared.
    compare(name, settings, vary=["data.windows=random,shuffled"], seeds=1, out=tmp_path / "study")
    assert (calls["prepare"], calls["weights of first"]) == (2, 2)
    weights = tmp_path / "first" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    calls.clear()
    with pytest.raises(CheckpointError, match="cut short"):
        prepare_data(load_recipe(name, settings).recipe)
    assert not calls


def test_arms_that_are_scored_on_other_targets_have_no_verdict_and_ask_for_no_more_seeds(
    calls: Calls, tmp_path: Path
) -> None:
    # Pieces of another length have other gaps, whatever is learned.
    name, settings = tiny("span", tmp_path)
    del settings["data.context"]
    until = {"until": "decided", "seeds_at_most": 9, "match": "none", "out": "out"}
    result = compare(name, settings, vary=["data.context=48,24"], **until)
    (difference,) = result["differences"]
    assert (difference["verdict"], difference["mean"] is None) == ("no verdict", False)
    # No number of seeds would give one: the first look is the last.
    assert (difference["n_seeds"], len(list(Path("out").rglob("record.json")))) == (3, 6)
    notes = result["notes"]
    assert any("context=24: scored on other targets than the baseline" in note for note in notes)
