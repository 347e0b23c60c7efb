"""The row of a run or of an imported model, from its small files: no weights are read."""

import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sublayer.commands.runs.row import Row, Score, State, newest
from sublayer.config.layering.groups import shipped_recipe
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.run_recipe import read_recipe
from sublayer.config.layering.sources import RUN_RECIPE, shipped_recipes
from sublayer.config.layering.start import is_kept
from sublayer.config.layering.start_folder import read_start
from sublayer.config.recipe import Recipe
from sublayer.errors import CheckpointError
from sublayer.files.checkpoints import checkpoint_path, read_state, saved_steps
from sublayer.files.parsing import read_json_object
from sublayer.files.saved_record import RECORD, read_record
from sublayer.system.lock import is_held

FAILURE, TEST, SCORES = "failure.json", "test.json", "scores.json"
"""What a run of a comparison leaves: why it failed, and its scores of the test split."""
ENSEMBLE = "ensemble.json"
"""What an ensemble of runs leaves beside its scores: which runs they are."""
SHOWN = ("bits_per_byte", "bleu", "mlm_accuracy", "loss")
"""The figures that a row may show: the first that there is."""


def run_row(path: Path) -> Row:
    """Read the row of a run; raise CheckpointError, ConfigError or OSError where it is damaged."""
    record = read_record(path)
    given = load_recipe(path).recipe
    steps = read_recipe(path / RUN_RECIPE).train.steps
    is_early = record is not None and bool(record.get("stopped_early"))
    if record is not None and steps is not None and record["step"] < steps and not is_early:
        record = None  # it was given more steps, and stopped before it took one
    problem = _failure(path)
    state: State = "finished"
    if problem:
        state = "failed"
    elif record is None:
        state = "running" if is_held(path) else "unfinished"
    step, seconds, best = _progress(path) if record is None else _of_record(record)
    name = _shipped_by_title().get(given.title, "")
    return Row(
        folder=str(path),
        kind="run",
        state=state,
        when=newest([path / each for each in (RECORD, TEST, "metrics.jsonl", RUN_RECIPE)]),
        recipe=name,
        title=given.title,
        model=given.model.kind,
        changed=_changed(name, given),
        score=_test_score(path) or _score(best, "valid"),
        step=step,
        steps=steps,
        seconds=seconds,
        resume=_resuming(path) if state == "unfinished" else "",
        problem=problem,
    )


def _resuming(path: Path) -> str:
    return shlex.join(["sublayer", "train", str(path), "--resume"])


def is_imported(folder: Path) -> bool:
    """Return whether a folder is a model by itself, as ``import`` writes them."""
    return (folder / "config.json").is_file() and (folder / "model.safetensors").is_file()


def model_row(path: Path) -> Row:
    """Read the row of an imported model."""
    config = read_json_object(path / "config.json", CheckpointError)
    when = newest([path / "config.json"])
    model = str(config.get("kind", ""))
    return Row(str(path), "model", "finished", when, title="an imported model", model=model)


def _of_record(record: Mapping[str, Any]) -> tuple[int, float, Mapping[str, Any]]:
    return record["step"], record["seconds"], record["valid"]


def _progress(path: Path) -> tuple[int, float | None, Mapping[str, Any]]:
    """Return how far the newest checkpoint of a run is, and its best evaluation."""
    root = path / "checkpoints"
    steps = saved_steps(root)
    if not steps:
        return 0, None, {}
    try:
        state = read_state(checkpoint_path(root, steps[-1]))
    except CheckpointError:
        # Resuming says what is wrong, and uses an older one.
        return steps[-1], None, {}
    best = {} if state.best is None else state.best.model_dump()
    return state.step, state.seconds, best


def _failure(path: Path) -> str:
    try:
        failure = read_json_object(path / FAILURE, CheckpointError)
    except FileNotFoundError:
        return ""
    return str(failure.get("message", "it failed"))


def _test_score(path: Path) -> Score | None:
    try:
        return _score(read_json_object(path / TEST, CheckpointError), "test")
    except FileNotFoundError:
        return None


def _score(figures: Mapping[str, Any], split: Any) -> Score | None:
    for name in SHOWN:
        value = figures.get(name)
        if isinstance(value, int | float):
            return Score(name, float(value), split)
    return None


@cache
def _shipped_by_title() -> dict[str, str]:
    return {shipped_recipe(name).title: name for name in shipped_recipes()}


@cache
def _shipped(name: str) -> dict[str, Any]:
    return load_recipe(name).recipe.model_dump()


def _changed(name: str, given: Recipe) -> dict[str, Any]:
    """Return the fields in which a run's recipe, as it was given, differs from a shipped one's.

    Of a run that starts from another those, that its start did not give.
    """
    if not name:
        return {}
    changed = {}
    base = _shipped(name)
    start = read_start(given.init.run)
    for table, values in given.model_dump().items():
        if not isinstance(values, dict):
            continue
        for field, value in values.items():
            # What a later layer dropped is unset: that which replaces it is listed.
            if value is None or base[table].get(field) == value:
                continue
            if start is None or not is_kept(start, f"{table}.{field}", value):
                changed[f"{table}.{field}"] = value
    return changed
