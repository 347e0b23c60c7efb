"""Losses of recipes of every kind over twenty steps, initial weights and the last checkpoint."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import sublayer
from sublayer.config.layers import shipped_recipes
from sublayer.config.load import load_recipe
from sublayer.config.resolve import resolve_model
from sublayer.model.transformer import build
from sublayer.objective.base import family_of
from tests.golden.core import compare, digest, expect_names
from tests.golden.recipes import (
    ADAM,
    BLOCKS,
    RECIPES,
    STEPS,
    STORIES,
    batches_of,
    settings_of,
    tiny_widths,
)

SUBJECT = "recipes"
SHIPPED = "shipped recipes"
ROOT = Path(__file__).parents[2]
TOLERANCE = 1e-5
NOISE = 1e-5
"""Tensors of a smaller norm are moved by rounding alone, such as a bias that a softmax ignores."""

IS_DRAWN_ALIKE = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
"""Whether initial weights are those on file to the bit: these draw by the same code."""


def results(run: Path) -> tuple[dict[str, object], dict[str, object]]:
    """Return what a run measured and its weights' norms, and what is held to the bit."""
    columns: dict[str, list[float]] = {}
    for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        for name in line.keys() - {"kind", "step", "seconds"}:
            columns.setdefault(f"{line['kind']} {name}", []).append(line[name])
    columns = dict(sorted(columns.items()))
    weights = load_file(run / "model" / "model.safetensors")
    norms = {name: float(weight.double().norm()) for name, weight in sorted(weights.items())}
    norms = {name: norm if norm > NOISE else 0.0 for name, norm in norms.items()}
    checkpoint = run / "checkpoints" / f"step-{STEPS:08}"
    files = sorted(checkpoint.rglob("*.safetensors"))
    sums = {path.relative_to(checkpoint).as_posix(): digest(load_file(path)) for path in files}
    bits = {"metrics": columns, "model": digest(weights), "checkpoint": sums}
    return {"metrics": columns, "norms": norms}, bits


@pytest.mark.parametrize("name", RECIPES)
def test_twenty_steps(name: str, texts: Path, tmp_path: Path) -> None:
    recipe, path, words = RECIPES[name]
    settings = settings_of(words, texts / path)
    compare("batches", name, batches_of(recipe, settings))
    initial = sublayer.from_recipe(recipe, settings).state_dict()
    if IS_DRAWN_ALIKE:
        compare("initial", name, digest(initial))
    sublayer.train(recipe, settings, out=tmp_path / "run", device="cpu")
    found, bits = results(tmp_path / "run")
    compare(SUBJECT, name, found, tolerance=TOLERANCE, bits=bits)


@pytest.mark.skipif(not IS_DRAWN_ALIKE, reason="a processor that rounds what it draws otherwise")
def test_initial_weights_of_shipped_recipes() -> None:
    """Hold names and initial values, those of training's own heads included, at tiny widths."""
    checksums = {}
    for name in shipped_recipes():
        recipe = load_recipe(name).recipe
        config = recipe.model.model_copy(update=tiny_widths(recipe.model))
        model = build(resolve_model(config, vocab_size=97, context=32), seed=recipe.train.seed)
        objective = family_of(recipe.objective).build(model, recipe.objective, recipe.train.seed)
        checksums[name] = digest({**model.state_dict(), **objective.training_only()})
    compare("initial", SHIPPED, checksums)


def test_a_warm_start(texts: Path, tmp_path: Path) -> None:
    recipe, path, words = RECIPES["decoder"]
    settings = settings_of(words, texts / path)
    sublayer.train(recipe, settings, out=tmp_path / "first", device="cpu")
    start = [f"init.run={tmp_path / 'first'}", "init.layers=1", "init.freeze=embeddings"]
    sublayer.train(recipe, [*settings, *start], out=tmp_path / "run", device="cpu")
    found, bits = results(tmp_path / "run")
    compare(SUBJECT, "warm start", found, tolerance=TOLERANCE, bits=bits)


def test_bfloat16(texts: Path, tmp_path: Path) -> None:
    recipe, path, words = RECIPES["modern decoder"]
    settings = settings_of(f"{words} train.precision=bfloat16", texts / path)
    sublayer.train(recipe, settings, out=tmp_path / "run", device="cpu")
    compare(SUBJECT, "bfloat16", {}, bits=results(tmp_path / "run")[1])


@pytest.fixture(scope="module")
def together(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs of 1, 2 and 4 processes with ``train.exact``, and of 2 that share."""
    folder = tmp_path_factory.mktemp("together")
    words = f"{BLOCKS} {ADAM} model.dropout=0.1 train.batch_sequences=8"
    exact = settings_of(f"{words} train.exact=true train.micro_batch_sequences=1", texts / STORIES)
    full = settings_of(f"{words} train.shard=full", texts / STORIES)
    ways = {"exact-1": exact, "exact-2": exact, "exact-4": exact, "full-2": full}
    end = ["--device", "cpu", "--out"]
    trainings = [
        (int(name[-1]), ["train", "gpt", *settings, *end, str(folder / name)])
        for name, settings in ways.items()
    ]
    command = [sys.executable, "-m", "tests.golden.processes", json.dumps(trainings)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr[-6000:]
    return folder


def test_exact_on_one_two_and_four_processes(together: Path) -> None:
    found, bits = results(together / "exact-1")
    for n_processes in (2, 4):
        assert results(together / f"exact-{n_processes}") == (found, bits)
    compare(SUBJECT, "exact on 1, 2, 4 processes", found, tolerance=TOLERANCE, bits=bits)


def test_sharded_on_two_processes(together: Path) -> None:
    found, bits = results(together / "full-2")
    compare(SUBJECT, "sharded on 2 processes", found, tolerance=TOLERANCE, bits=bits)


def test_nothing_else_is_on_file() -> None:
    others = ["warm start", "bfloat16", "exact on 1, 2, 4 processes", "sharded on 2 processes"]
    expect_names(SUBJECT, [*RECIPES, *others])
    expect_names("initial", [*RECIPES, SHIPPED])
