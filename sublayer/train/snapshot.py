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
from sublayer.train.checkpoint import (
    checkpoint_path,
    prune_checkpoints,
    read_state,
    saved_steps,
    set_aside,
    write_checkpoint,
)
from sublayer.train.optimizer import optimizer_tensors, restore_optimizer
from sublayer.train.step import TrainStep

CHECKPOINTS = "checkpoints"
TRAINING = "training.safetensors"
WEIGHTS = "model/model.safetensors"
STATE = "state.json"
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

    def restore(self, checkpoint: Path) -> LoopState:
        """Give weights, heads and optimizer back what ``checkpoint`` holds; return the loop's state.

        Raises CheckpointError where the checkpoint belongs to another model.
        """
        train_step = self._train_step
        heads = train_step.objective.training_only()
        training = _read_tensors(checkpoint / TRAINING)
        load_into(train_step.objective.model.state_dict(), _read_tensors(checkpoint / WEIGHTS), checkpoint)
        saved_heads = [name for name in training if name.startswith(_HEAD)]
        load_into(heads, {name.removeprefix(_HEAD): training.pop(name) for name in saved_heads}, checkpoint)
        restore_optimizer(train_step.optimizer, train_step.parameters, training)
        return LoopState(**read_state(checkpoint))  # type: ignore[arg-type]

    def _training_tensors(self) -> dict[str, Tensor]:
        heads = {f"{_HEAD}{name}": value.detach() for name, value in self._train_step.objective.training_only().items()}
        return heads | optimizer_tensors(self._train_step.optimizer, self._train_step.parameters)


def load_into(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: Path) -> None:
    """Copy ``tensors`` into ``targets`` in place.

    Raises CheckpointError, naming the tensor and both shapes, unless names and shapes are the same.
    """
    if missing := sorted(set(targets) - set(tensors)):
        raise CheckpointError(f"{where} belongs to another model: it has no {missing[0]}")
    if surplus := sorted(set(tensors) - set(targets)):
        raise CheckpointError(f"{where} belongs to another model: this one has no {surplus[0]}")
    for name, target in targets.items():
        if target.shape != tensors[name].shape:
            raise CheckpointError(
                f"{where} belongs to another model: {name} is {list(tensors[name].shape)} there, "
                f"{list(target.shape)} here"
            )
        target.detach().copy_(tensors[name])


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
