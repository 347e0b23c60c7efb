"""Everything that a run needs to go on as if it had never stopped, to and from checkpoints."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sublayer.errors import CheckpointError
from sublayer.storage import check_file
from sublayer.train.checkpoint import (
    STATE,
    SavedState,
    checkpoint_path,
    newest_checkpoint,
    prune_checkpoints,
    read_state,
    saved_steps,
    set_aside,
    write_checkpoint,
)
from sublayer.train.headers import check_headers, check_names_and_shapes, read_headers
from sublayer.train.optimizer import check_state, optimizer_tensors, restore_optimizer
from sublayer.train.step import TrainStep, resolved

CHECKPOINTS = "checkpoints"
TRAINING = "training.safetensors"
WEIGHTS = "model/model.safetensors"
_HEAD = "head/"


@dataclass
class LoopState:
    """What a run carries from step to step beside weights and optimizer."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """Wall clock so far, evaluation and checkpoints included."""
    step_seconds: float = 0.0
    """Wall clock of the optimizer steps alone."""
    best: dict[str, Any] | None = None
    """Step and figures of the best evaluation so far."""
    pending_losses: list[float] = field(default_factory=list)
    """Losses since the last line of metrics.jsonl."""


class Snapshots:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, train_step: TrainStep, write_model: Callable[[Path], None]) -> None:
        self.folder = folder
        self._train_step = train_step
        self._write_model = write_model

    @property
    def root(self) -> Path:
        """The folder of checkpoints."""
        return self.folder / CHECKPOINTS

    def save(self, state: LoopState, *, keep: int) -> None:
        """Write a checkpoint of ``state`` and delete those no longer needed: all but ``keep`` newest and the best."""

        def fill(folder: Path) -> None:
            self._write_model(folder / "model")
            try:
                save_file(self._training_tensors(), folder / TRAINING)
            except SafetensorError as error:
                raise CheckpointError(
                    f"cannot write {folder / TRAINING}: {error}; free some space, then --resume"
                ) from None
            (folder / STATE).write_text(json.dumps(asdict(state)))

        write_checkpoint(self.root, state.step, fill)
        newest = [step for step in saved_steps(self.root) if step <= state.step][-keep:]
        best = [] if state.best is None else [int(state.best["step"])]
        prune_checkpoints(self.root, [*newest, *best])

    def set_aside_after(self, step: int) -> None:
        """Move the checkpoints beyond ``step``, which were refused, out of the way; nothing is deleted."""
        for later in saved_steps(self.root):
            if later > step:
                set_aside(checkpoint_path(self.root, later))

    def describe_last(self) -> str:
        """Say in words where the last checkpoint is."""
        steps = saved_steps(self.root)
        if not steps:
            return "there is no checkpoint before it"
        return f"the last good checkpoint is {checkpoint_path(self.root, steps[-1])}"

    def newest(self, report: Callable[[str], None]) -> Path | None:
        """Find the newest checkpoint that this run can go on from, or None; those refused are named by ``report``.

        Raises CheckpointError where there are whole ones, all of another model: to begin anew would be no going on.
        """
        foreign: list[CheckpointError] = []

        def check(checkpoint: Path, state: SavedState) -> None:
            try:
                self.check(checkpoint, state)
            except CheckpointError as error:
                foreign.append(error)
                raise

        found = newest_checkpoint(self.root, report, check)
        if found is None and foreign:
            raise CheckpointError(f"{foreign[0]}: give another --out")
        return found

    def check(self, checkpoint: Path, state: SavedState) -> None:
        """Raise CheckpointError, naming file and tensor, unless a checkpoint holds what this run restores."""
        train_step = self._train_step
        self._check_progress(checkpoint / STATE, state)
        check_headers(train_step.objective.model.state_dict(), read_headers(checkpoint / WEIGHTS), checkpoint / WEIGHTS)
        training = read_headers(checkpoint / TRAINING)
        heads = {name: training.pop(name) for name in list(training) if name.startswith(_HEAD)}
        expected = {f"{_HEAD}{name}": value for name, value in train_step.objective.training_only().items()}
        check_headers(expected, heads, checkpoint / TRAINING)
        check_state(train_step.optimizer, train_step.parameters, training, checkpoint / TRAINING)

    def restore(self, checkpoint: Path) -> LoopState:
        """Give weights, heads and optimizer back what ``checkpoint`` holds; return the loop's state.

        Raises CheckpointError where the checkpoint belongs to another model.
        """
        train_step = self._train_step
        state = read_state(checkpoint)
        self.check(checkpoint, state)
        training = _read_tensors(checkpoint / TRAINING)
        load_into(train_step.objective.model.state_dict(), _read_tensors(checkpoint / WEIGHTS), checkpoint)
        heads = {name: training.pop(name) for name in list(training) if name.startswith(_HEAD)}
        heads = {name.removeprefix(_HEAD): value for name, value in heads.items()}
        load_into(train_step.objective.training_only(), heads, checkpoint)
        restore_optimizer(train_step.optimizer, train_step.parameters, training)
        best = None if state.best is None else state.best.model_dump()
        return LoopState(**{**dict(state), "best": best})

    def _check_progress(self, path: Path, state: SavedState) -> None:
        train = self._train_step.recipe.train
        steps = resolved(train.steps)
        if not 0 < state.step <= steps:
            raise CheckpointError(f"{path} is of step {state.step}, of a run of {steps}")
        is_evaluated = state.step >= min(steps, resolved(train.evaluate_steps))
        if is_evaluated != (state.best is not None):
            raise CheckpointError(f"{path} has {'no best' if is_evaluated else 'a'} evaluation at step {state.step}")
        if state.best is not None and train.best_by not in state.best.model_dump():
            raise CheckpointError(f"{path} has a best evaluation without {train.best_by}")

    def _training_tensors(self) -> dict[str, Tensor]:
        heads = {f"{_HEAD}{name}": value.detach() for name, value in self._train_step.objective.training_only().items()}
        return heads | optimizer_tensors(self._train_step.optimizer, self._train_step.parameters)


def load_into(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: Path) -> None:
    """Copy ``tensors`` into ``targets`` in place.

    Raises CheckpointError, naming the tensor and both shapes, unless names and shapes are the same.
    """
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    check_names_and_shapes({name: list(target.shape) for name, target in targets.items()}, shapes, where)
    for name, target in targets.items():
        target.detach().copy_(tensors[name])


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        check_file(path)
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
