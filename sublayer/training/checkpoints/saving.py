"""Write checkpoints, in the background where training does not wait for them."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torch import Tensor

from sublayer.errors import CheckpointError
from sublayer.files.checkpoints import (
    STATE,
    best_steps,
    checkpoint_path,
    new_checkpoint,
    prune_checkpoints,
    read_state,
    saved_steps,
)
from sublayer.training.checkpoints.background import Background, give_way
from sublayer.training.checkpoints.layout import (
    MODEL,
    heads_to_save,
    owner_of_state,
    owner_of_weight,
    stored_model,
    stored_training,
)
from sublayer.training.checkpoints.loop_state import LoopState
from sublayer.training.optimizers.build import optimizer_tensors
from sublayer.training.processes.alone import Held
from sublayer.training.processes.joining import is_lost
from sublayer.training.step import TrainStep


@dataclass(frozen=True)
class _Taken:
    """What a checkpoint is written from."""

    step: int
    state: str
    """The loop's, as JSON."""
    weights: Mapping[str, Tensor]
    training: Mapping[str, Tensor]


class Saving:
    """Writes the checkpoints of one run, one after the other, to the folder ``root``."""

    def __init__(
        self, root: Path, train_step: TrainStep, describe_model: Callable[[Path], None]
    ) -> None:
        """Keep what is saved; ``describe_model`` writes a model's files beside weights.

        Updates of ``train_step`` wait from now on for copies that are being made. All processes
        enter.
        """
        self.root = root
        self._train_step = train_step
        self._describe_model = describe_model
        self._writers = train_step.world.beside()
        self._writing = Background()
        self._has_copied = threading.Event()
        self._has_copied.set()
        train_step.before_update = self._has_copied.wait
        self._weights: dict[str, Tensor] = {}
        self._training: dict[str, Tensor] = {}

    def save(self, state: LoopState, *, waits: bool = False) -> None:
        """Write a checkpoint of ``state``, and delete those that ``[train]`` does not keep.

        With ``train.save_in_background`` training goes on: copies are made before the next update,
        and then written, one checkpoint after another, unless training ends here and ``waits`` for
        what is on disk. All processes enter, for each may hold a part and write it.

        Where one cannot write, it raises why, such as CheckpointError, and so do the others, or
        they raise SaidElsewhere; in the background ``wait`` and the next ``save`` do.
        """
        self.wait()
        taken = self._take(state)
        if waits or not self._train_step.recipe.train.save_in_background:
            self._write(taken)
            return
        self._has_copied.clear()
        self._writing.start(lambda: self._copy_and_write(taken))

    @property
    def has_failed(self) -> bool:
        """Whether a checkpoint could not be written in the background, as ``wait`` says."""
        return self._writing.has_failed

    def wait(self) -> None:
        """Wait until what was saved is on disk; all enter. Raises what ``save`` does."""
        self._writing.wait()

    @contextmanager
    def finished(self) -> Iterator[None]:
        """Leave once what was saved is on disk; where another process is lost, at once."""
        try:
            yield
        except Exception as error:
            if not is_lost(error):
                self.wait()
            raise
        self.wait()

    def _copy_and_write(self, taken: _Taken) -> None:
        try:
            # They take the place of those of the checkpoint before, which is on disk.
            weights = _copies(taken.weights, self._weights)
            training = _copies(taken.training, self._training)
        finally:
            self._has_copied.set()
        # Not before: an update may wait for the copies.
        give_way()
        self._write(replace(taken, weights=weights, training=training))

    def _take(self, state: LoopState) -> _Taken:
        """Take what a checkpoint of now holds, which the next update changes."""
        train_step = self._train_step
        model = train_step.objective.model.state_dict()
        held = [Held(name, owner_of_weight(name), value) for name, value in model.items()]
        weights = train_step.parallel.to_write(held)
        states = {
            **heads_to_save(train_step.objective),
            **optimizer_tensors(train_step.optimizer, train_step.parameters),
        }
        held = [Held(name, owner_of_state(name), value) for name, value in states.items()]
        training = train_step.parallel.to_write(held)
        return _Taken(state.step, json.dumps(asdict(state)), weights, training)

    def _write(self, taken: _Taken) -> None:
        world, write = self._writers, self._train_step.parallel.write
        with self._new_checkpoint(taken.step) as folder:

            def describe() -> None:
                (folder / MODEL).mkdir()
                self._describe_model(folder / MODEL)
                (folder / STATE).write_text(taken.state)

            world.by_first(describe)
            write(taken.weights, stored_model(folder), world)
            write(taken.training, stored_training(folder), world)
        world.by_first(lambda: self._prune(taken))

    @contextmanager
    def _new_checkpoint(self, step: int) -> Iterator[Path]:
        """Give all processes the folder that becomes a checkpoint, which the first makes one."""
        world = self._writers
        opened: list[Path] = []
        with ExitStack() as stack:
            world.by_first(
                lambda: opened.append(stack.enter_context(new_checkpoint(self.root, step)))
            )
            yield Path(world.share_text("".join(map(str, opened))))
            world.by_first(stack.close)

    def _prune(self, taken: _Taken) -> None:
        train = self._train_step.recipe.train
        steps = [step for step in saved_steps(self.root) if step <= taken.step]
        newest = steps[-train.keep_checkpoints :]
        kept = {*newest, *train.keep_steps}
        for step in newest:
            # What one cannot be resumed without.
            with suppress(CheckpointError):
                kept |= best_steps(read_state(checkpoint_path(self.root, step)))
        prune_checkpoints(self.root, kept)


def _copies(tensors: Mapping[str, Tensor], kept: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors to the CPU, the parts of distributed ones as such, into what is ``kept``.

    New memory would be made page by page, which takes longer than to copy.
    """
    for name, each in tensors.items():
        copy = kept.get(name)
        if copy is not None and each.device.type == "cpu":
            copy.copy_(each)
        else:
            kept[name] = each.to("cpu", copy=True)
    return {name: kept[name] for name in tensors}
