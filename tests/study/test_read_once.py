"""A study reads its texts once: what it prepared serves every run of it, and every test."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sublayer import loading
from sublayer.api.training import compare
from sublayer.config.layering.layers import load_recipe
from sublayer.data import prepare as preparing
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import CheckpointError
from sublayer.evaluation.split_work import ALONE
from sublayer.objective import family
from sublayer.objective.families import family_of
from sublayer.runs.run import from_recipe, train_run
from sublayer.runs.session import prepare_data
from sublayer.training.progress import SilentProgress
from tests.objective.test_items import RECIPES, write_texts

Calls = Counter[str]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """How often data are prepared, texts found, and pairs read."""
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    found: Calls = Counter()

    def count(module: Any, name: str) -> None:
        own: Callable[..., Any] = getattr(module, name)

        def counted(*args: Any, **options: Any) -> Any:
            found[name] += 1
            return own(*args, **options)

        monkeypatch.setattr(module, name, counted)

    count(family, "prepare")
    count(preparing, "find_texts")
    count(preparing, "read_pairs")
    return found


def settings_of(kind: str, folder: Path, **further: Any) -> tuple[str, dict[str, Any]]:
    """Return a tiny recipe of a kind on texts that lie in a folder, named relative to it."""
    name, settings = RECIPES[kind]
    texts = {field: Path(path).name for field, path in write_texts(folder)[kind].items()}
    train = {
        "train.steps": 2,
        "train.batch_sequences": 2,
        "train.precision": "float32",
        "train.threads": 1,
        "optimizer.warmup_steps": 1,
    }
    return name, {**settings, **texts, **train, **further}


@pytest.mark.parametrize("kind", ["causal", "translation"])
@pytest.mark.slow
def test_a_study_prepares_its_data_once(kind: str, calls: Calls, tmp_path: Path) -> None:
    name, settings = settings_of(kind, tmp_path)
    compare(name, settings, vary=["model.dropout=0,0.1"], seeds=3, out=tmp_path / "study")
    expected = {"prepare": 1, "find_texts": 1}
    if kind == "translation":
        # The test split; no run asks for the texts of another.
        expected["read_pairs"] = 1
    assert calls == expected


def test_a_run_prepares_its_data_once(calls: Calls, tmp_path: Path) -> None:
    name, settings = settings_of("causal", tmp_path)
    train_run(load_recipe(name, settings), tmp_path / "run", progress=SilentProgress())
    assert calls["prepare"] == 1


@pytest.fixture
def weights_read(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """How often the weights of each model are read, by the name of its run."""
    read: Calls = Counter()
    own = loading.load_weights

    def counted(folder: Path, **options: Any) -> Any:
        read[folder.parent.name] += 1
        return own(folder, **options)

    monkeypatch.setattr(loading, "load_weights", counted)
    return read


@pytest.fixture
def started(calls: Calls, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """A tiny recipe that starts from a run."""
    name, settings = settings_of("causal", tmp_path)
    train_run(load_recipe(name, settings), tmp_path / "first", progress=SilentProgress())
    calls.clear()
    return name, {**settings, "init.run": "first"}


def test_preparing_data_reads_no_weights_of_the_run_that_training_starts_from(
    started: tuple[str, dict[str, Any]], weights_read: Calls, tmp_path: Path
) -> None:
    data = prepare_data(load_recipe(*started).recipe)
    expected = load_tokenizer(tmp_path / "first" / "model" / "tokenizer.json")
    assert data.tokenizer.fingerprint == expected.fingerprint
    assert weights_read == {}


def test_a_run_whose_weights_are_cut_short_is_refused_before_any_text_is_read(
    started: tuple[str, dict[str, Any]], calls: Calls, tmp_path: Path
) -> None:
    weights = tmp_path / "first" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match="cut short"):
        prepare_data(load_recipe(*started).recipe)
    assert calls == {}


@pytest.mark.slow
def test_a_study_reads_the_weights_that_it_starts_from_once_a_run(
    started: tuple[str, dict[str, Any]], calls: Calls, weights_read: Calls, tmp_path: Path
) -> None:
    # The data of the arms differ, so that those of each are prepared.
    compare(*started, vary=["data.windows=random,shuffled"], seeds=3, out=tmp_path / "study")
    assert calls["prepare"] == 2
    n_runs = 2 * 3
    assert weights_read["first"] == n_runs


def test_a_translators_test_reads_its_text_once(calls: Calls, tmp_path: Path) -> None:
    name, settings = settings_of("translation", tmp_path)
    recipe = load_recipe(name, settings).recipe
    model = from_recipe(name, settings)
    data = prepare_data(recipe)
    calls.clear()
    for _ in range(2):
        family_of(recipe.objective).score(model, data.test, recipe, "test", ALONE)
    assert calls == {"read_pairs": 1}
