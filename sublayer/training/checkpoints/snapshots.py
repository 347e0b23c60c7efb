"""The checkpoints of a run: which one it can go on from, and what it restores from that."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from sublayer.config.train import LAST
from sublayer.errors import CheckpointError
from sublayer.files.checkpoints import (
    STATE,
    SavedState,
    checkpoint_path,
    newest_checkpoint,
    read_state,
    saved_steps,
    set_aside,
)
from sublayer.files.tensor_headers import Header, check_headers
from sublayer.files.tensor_parts import StoredTensors, read_stored_headers
from sublayer.model.names import named_parameters
from sublayer.training.checkpoints.layout import (
    CHECKPOINTS,
    heads_to_save,
    owner_of_state,
    owner_of_weight,
    split_heads,
    stored_model,
    stored_training,
)
from sublayer.training.checkpoints.loop_state import LoopState
from sublayer.training.checkpoints.saving import Saving
from sublayer.training.load_into import load_into
from sublayer.training.optimizers.build import check_state, restore_optimizer
from sublayer.training.processes.alone import Owner
from sublayer.training.step import TrainStep


class Snapshots:
    """The checkpoints of one run, each a folder in ``checkpoints`` of the run's.

    A checkpoint is there whole or not at all.
    """

    def __init__(
        self,
        folder: Path,
        train_step: TrainStep,
        describe_model: Callable[[Path], None],
        *,
        earlier_ends: Sequence[int] = (),
    ) -> None:
        """Keep what a run is made of; ``describe_model`` writes a model's files beside weights.

        ``earlier_ends`` are the steps at which the run ended before it was given more: at an end
        it was evaluated.
        """
        self._earlier_ends = tuple(earlier_ends)
        self.folder = folder
        self._train_step = train_step
        self.saving = Saving(self.root, train_step, describe_model)

    @property
    def root(self) -> Path:
        """The folder of checkpoints."""
        return self.folder / CHECKPOINTS

    def set_aside_after(self, step: int) -> None:
        """Move the refused checkpoints beyond ``step`` out of the way; nothing is deleted."""
        for later in saved_steps(self.root):
            if later > step:
                set_aside(checkpoint_path(self.root, later))

    def describe_last(self) -> str:
        """Format in words where the last checkpoint is, as part of a sentence; all enter."""
        self.saving.wait()
        steps = saved_steps(self.root)
        if not steps:
            return "there is no checkpoint before it"
        return f"the last good checkpoint is {checkpoint_path(self.root, steps[-1])}"

    def newest(self, report: Callable[[str], None]) -> Path | None:
        """Find the newest checkpoint that this run can resume from; ``report`` names those refused.

        None where there is none, and the run begins at its start. Raises CheckpointError where
        there are whole ones, all of another model: to begin anew would not be to resume.
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
        """Raise CheckpointError unless a checkpoint holds what this run restores.

        That is a step of this run, with the evaluation that it must have had by then, and tensors
        of the right names, shapes and types. Headers are read, and no tensor: all of it is known
        before anything is restored.
        """
        train_step = self._train_step
        self._check_progress(checkpoint / STATE, state)
        weights = stored_model(checkpoint)
        model = train_step.objective.model.state_dict()
        check_headers(model, _headers(weights), weights.described)
        training = stored_training(checkpoint)
        heads, optimizer_state = split_heads(_headers(training))
        expected = heads_to_save(train_step.objective)
        check_headers(expected, heads, training.described)
        config = train_step.recipe.optimizer
        trained = {
            name: each
            for name, each in named_parameters(train_step.objective)
            if each.requires_grad
        }
        check_state(config, trained, optimizer_state, training.whole)

    def restore(self, checkpoint: Path) -> LoopState:
        """Restore weights, heads and optimizer from a checkpoint; return the loop's state.

        Raises CheckpointError where the checkpoint belongs to another model, or cannot be read.
        """
        train_step = self._train_step
        state = read_state(checkpoint)
        self.check(checkpoint, state)
        local = train_step.parallel.local
        weights = self._read(stored_model(checkpoint), owner_of_weight)
        load_into(local(train_step.objective.model.state_dict()), weights, checkpoint)
        training = self._read(stored_training(checkpoint), owner_of_state)
        heads, optimizer_state = split_heads(training)
        load_into(local(heads_to_save(train_step.objective)), heads, checkpoint)
        restore_optimizer(train_step.optimizer, train_step.parameters, optimizer_state)
        fields = dict(state)
        fields["best"] = None if state.best is None else state.best.model_dump()
        fields["task_bests"] = {task: best.model_dump() for task, best in state.task_bests.items()}
        return LoopState(**fields)

    def _read(self, stored: StoredTensors, owner: Callable[[str], Owner]) -> dict[str, Tensor]:
        """Read this process's parts; ``owner`` tells what a tensor is of."""
        with _reading(stored):
            return self._train_step.parallel.read(owner, stored)

    def _check_progress(self, path: Path, state: SavedState) -> None:
        train = self._train_step.recipe.train
        steps = train.steps
        if not 0 < state.step <= steps:
            raise CheckpointError(f"{path} is of step {state.step}, of a run of {steps}")
        is_evaluated = state.step >= min(steps, train.evaluate_steps, *self._earlier_ends)
        if is_evaluated != (state.best is not None):
            raise CheckpointError(
                f"{path} has {'no best' if is_evaluated else 'a'} evaluation at step {state.step}"
            )
        if state.best is not None and train.best_by not in (LAST, *state.best.model_dump()):
            raise CheckpointError(f"{path} has a best evaluation without {train.best_by}")


def _headers(stored: StoredTensors) -> dict[str, Header]:
    with _reading(stored):
        return read_stored_headers(stored)


@contextmanager
def _reading(stored: StoredTensors) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        where = stored.whole if stored.is_whole else stored.folder
        raise CheckpointError(f"{where} cannot be read: {error}") from None
