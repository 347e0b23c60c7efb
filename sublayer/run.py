"""A run: recipe -> model, data, objective -> loop -> evaluation -> record. The file to read first."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from sublayer.config.layers import LoadedRecipe, load_recipe
from sublayer.config.length import derived_fields
from sublayer.config.paths import anchored
from sublayer.config.resolve import resolve_model
from sublayer.model.build import build
from sublayer.model.saved import save_model
from sublayer.model.transformer import Transformer
from sublayer.record import describe_run
from sublayer.run_folder import RunFolder, default_folder
from sublayer.session import Place, Session, assemble, prepare_data, resolve
from sublayer.train.checkpoint import newest_checkpoint
from sublayer.train.distributed import World, join_world
from sublayer.train.loop import Evaluate, Loop
from sublayer.train.machine import choose_device
from sublayer.train.memory import PeakMemory
from sublayer.train.pace import measure_pace
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
            session = _open_session(folder, loaded, place)
            state = _train(session, folder, shown)
        record = describe_run(out, session, state, memory.bytes)
        if place.world.is_main:
            folder.finish(record)
        place.world.wait()
    return record


def measure_step(loaded: LoadedRecipe, budget_s: float, device: str | None = None) -> float:
    """Measure the mean seconds of an optimizer step of a recipe on its own data, within about ``budget_s``."""
    chosen = choose_device(device)
    place = Place(chosen, World(rank=0, size=1))
    data = prepare_data(loaded.recipe)
    session = assemble(resolve(loaded.recipe, data, place, steps=1000), data, place)
    return measure_pace(session.train_step, lambda: None, budget_s=budget_s, device=chosen).step_s


def _open_session(folder: RunFolder, loaded: LoadedRecipe, place: Place) -> Session:
    given = anchored(loaded.recipe)
    if place.world.is_main:
        folder.check_recipe(given)
        prepare_data(given)
    # Asked before the first process can write it, so that all answer alike.
    is_new = not folder.has_recipe()
    # The others find the data prepared.
    place.world.wait()
    data = prepare_data(given)
    if is_new:
        recipe = resolve(given, data, place)
        if place.world.is_main:
            folder.write_recipe(recipe, derived_fields(given, recipe))
        place.world.wait()
    recipe = folder.recipe()
    torch.set_num_threads(resolved(recipe.train.threads))
    return assemble(recipe, data, place)


def _train(session: Session, folder: RunFolder, progress: Progress) -> LoopState:
    def write_model(target: Path) -> None:
        save_model(target, session.train_step.objective.model, {"tokenizer.json": session.data.tokenizer.serialize()})

    snapshots = Snapshots(folder.path, session.train_step, write_model)
    with progress:
        checkpoint = newest_checkpoint(snapshots.root, progress.note)
        for note in session.notes():
            progress.note(note)
        session.place.world.wait()
        state = LoopState() if checkpoint is None else snapshots.restore(checkpoint)
        evaluate = Evaluate(session.evaluate, session.metrics)
        return Loop(session.recipe.train, session.train_step, evaluate, snapshots, state).run(progress)
