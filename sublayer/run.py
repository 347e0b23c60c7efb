"""A run: recipe -> model, data, objective -> loop -> evaluation -> record. The file to read first."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from sublayer.announce import announced, say_nothing
from sublayer.config.layers import LoadedRecipe, load_recipe
from sublayer.config.length import derived_fields
from sublayer.config.paths import anchored
from sublayer.config.resolve import resolve_model
from sublayer.machine import choose_device
from sublayer.model.build import build
from sublayer.model.saved import save_model
from sublayer.model.transformer import Transformer
from sublayer.record import describe_run
from sublayer.run_folder import RunFolder, default_folder
from sublayer.session import PACE_LIVES_S, Place, Session, assemble, prepare_data, resolve, resolve_run
from sublayer.train.distributed import World, join_world
from sublayer.train.loop import Evaluate, Loop
from sublayer.train.memory import PeakMemory
from sublayer.train.pace import Pace, PaceChanged, median_step
from sublayer.train.progress import Progress, SilentProgress, default_progress
from sublayer.train.snapshot import LoopState, Snapshots
from sublayer.train.start import start_from
from sublayer.train.step import resolved


def train(
    source: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
) -> dict[str, Any]:
    """Train a recipe (a shipped name, a file, or a run) and return its record, as ``sublayer train`` does.

    ``overrides`` maps fields to values, such as ``{"model.d_ff": 512}``. Raises the errors of :mod:`sublayer.errors`.
    """
    loaded = load_recipe(source, overrides or {})
    folder = Path(out) if out is not None else default_folder(loaded.name, resume=resume)
    return train_run(loaded, folder, resume=resume)


def from_recipe(source: str | Path, overrides: Mapping[str, Any] | None = None) -> Transformer:
    """Build the untrained model of a recipe, in evaluation mode, with ``.config`` and ``.tokenizer``."""
    recipe = load_recipe(source, overrides or {}).recipe
    tokenizer = prepare_data(recipe).tokenizer
    config = resolve_model(recipe.model, vocab_size=tokenizer.vocab_size, context=recipe.data.context)
    model = build(config, seed=recipe.train.seed)
    start_from(model, recipe.init)
    model.tokenizer = tokenizer
    return model.eval()


def train_run(
    loaded: LoadedRecipe,
    out: Path,
    *,
    resume: bool = False,
    device: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train in the folder ``out`` and return the record; with ``resume``, go on from where it stands.

    A finished run is left as it is. Raises ConfigError, DataError and CheckpointError before training, Interrupted
    and TrainingError in it.
    """
    chosen = choose_device(device)
    place = Place(chosen, join_world(chosen))
    folder = RunFolder(out)
    shown = progress or (default_progress() if place.world.is_main else SilentProgress())
    with folder.held() if place.world.is_main else nullcontext():
        if not resume:
            folder.check_free()
        place.world.wait()
        record = folder.record()
        if record is not None:
            folder.check_recipe(anchored(loaded.recipe))
            return record
        with PeakMemory(chosen) as memory:
            session, state = _set_up_and_train(folder, loaded, place, shown)
        record = describe_run(out, session, state, memory.bytes)
        if place.world.is_main:
            folder.finish(record)
        place.world.wait()
    return record


def measure_step(loaded: LoadedRecipe, budget_s: float, device: str | None = None) -> float:
    """Measure the median seconds of an optimizer step of a recipe on its own data, within about ``budget_s``."""
    chosen = choose_device(device)
    place = Place(chosen, World(rank=0, size=1))
    data = prepare_data(loaded.recipe)
    session = assemble(resolve(loaded.recipe, data, place, steps=1000), data, place)
    return median_step(session.train_step, budget_s=budget_s, device=chosen)


def _set_up_and_train(
    folder: RunFolder, loaded: LoadedRecipe, place: Place, shown: Progress
) -> tuple[Session, LoopState]:
    session, pace = _open_session(folder, loaded, place, shown)
    state = _train(session, folder, shown, pace)
    if state is None:
        # Nothing has been kept: the run begins again, once, with the length that the pace of now gives it.
        del session
        session, _ = _open_session(folder, loaded, place, shown, is_again=True)
        state = _train(session, folder, shown, None)
        assert state is not None, "a pace is checked where one is expected"
    return session, state


def _open_session(
    folder: RunFolder, loaded: LoadedRecipe, place: Place, shown: Progress, *, is_again: bool = False
) -> tuple[Session, Pace | None]:
    given, pace = anchored(loaded.recipe), None
    say = shown.note if place.world.is_main else say_nothing
    if place.world.is_main:
        if not is_again:
            folder.check_recipe(given)
            folder.check_model()
        prepare_data(given, say)
    # Asked before the first process can write it, so that all answer alike.
    is_new = is_again or not folder.has_recipe()
    # The others find the data prepared.
    place.world.wait()
    data = prepare_data(given)
    if is_new:
        found = resolve_run(given, data, place, oldest_s=-1.0 if is_again else PACE_LIVES_S, say=say)
        pace = found.pace
        if place.world.is_main:
            folder.write_recipe(found.recipe, derived_fields(given, found.recipe))
        place.world.wait()
    recipe = folder.recipe()
    torch.set_num_threads(resolved(recipe.train.threads))
    with announced("building the model", say):
        return assemble(recipe, data, place), pace


def _train(session: Session, folder: RunFolder, progress: Progress, pace: Pace | None) -> LoopState | None:
    """Train to the end; None where the first steps show another pace, so that nothing has been kept."""

    def write_model(target: Path) -> None:
        save_model(target, session.train_step.objective.model, {"tokenizer.json": session.data.tokenizer.serialize()})

    snapshots = Snapshots(folder.path, session.train_step, write_model)
    with progress:
        checkpoint = snapshots.newest(progress.note)
        for note in session.notes():
            progress.note(note)
        session.place.world.wait()
        state = LoopState() if checkpoint is None else snapshots.restore(checkpoint)
        evaluate = Evaluate(session.evaluate, session.metrics)
        expected_s = None if pace is None else pace.step_s
        loop = Loop(session.recipe.train, session.train_step, evaluate, snapshots, state, pace_s=expected_s)
        try:
            return loop.run(progress)
        except PaceChanged as change:
            if session.place.world.is_main:
                progress.note(str(change))
            return None
