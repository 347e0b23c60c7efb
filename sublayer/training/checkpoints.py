"""Checkpoints: their content, saving in the background, and restoring."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from sublayer.config.model import Role
from sublayer.config.optimizers import OptimizerConfig
from sublayer.config.train import LAST
from sublayer.errors import CheckpointError
from sublayer.files.checkpoints import (
    STATE,
    SavedState,
    checkpoint_path,
    new_checkpoint,
    newest_checkpoint,
    prune_checkpoints,
    read_state,
    saved_steps,
    set_aside,
)
from sublayer.files.tensors import (
    Header,
    StoredTensors,
    check_headers,
    check_names_and_shapes,
    header_of,
)
from sublayer.model.model_folder import stored_weights
from sublayer.model.parameters import named_parameters
from sublayer.objective.base import Objective
from sublayer.training.parallel import Owner, Owners
from sublayer.training.step import TrainStep
from sublayer.training.world import is_lost

CHECKPOINTS = "checkpoints"
"""Folder of checkpoints in the folder of a run."""
TRAINING = "training.safetensors"
"""File of a checkpoint with the training state outside the model: optimizer and heads."""
TRAINING_PARTS = "training"
"""Folder of the training state's parts, if each process has written its own."""
MODEL = "model"
"""Model folder in a checkpoint."""
_HEAD = "head/"
"""Prefix of the names of heads in the training state, which tells them from optimizer state."""

Saved = TypeVar("Saved", Tensor, Header)
_NICE = 10
"""Priority of the writing thread, in units of ``nice``: it gets a tenth of a busy core."""


def heads_to_save(objective: Objective) -> dict[str, Tensor]:
    """Return the training-only parameters, by the names under which they are saved."""
    return {f"{_HEAD}{name}": value.detach() for name, value in objective.training_only().items()}


def split_heads(saved: Mapping[str, Saved]) -> tuple[dict[str, Saved], dict[str, Saved]]:
    """Split a saved training state into heads and optimizer state."""
    heads = {name: value for name, value in saved.items() if name.startswith(_HEAD)}
    return heads, {name: value for name, value in saved.items() if name not in heads}


def owner_of_weight(name: str) -> Owner:
    """Return the objective's parameter that a model weight belongs to."""
    return Owner(f"model.{name}")


def owner_of_state(name: str) -> Owner:
    """Return the parameter that a head or an optimizer state belongs to."""
    state, _, parameter = name.partition("/")
    return Owner(parameter) if name.startswith(_HEAD) else Owner(parameter, state)


def stored_model(checkpoint: Path) -> StoredTensors:
    """Return the location of a checkpoint's model weights."""
    return stored_weights(checkpoint / MODEL)


def stored_training(checkpoint: Path) -> StoredTensors:
    """Return the location of a checkpoint's training state."""
    return StoredTensors(checkpoint / TRAINING, checkpoint / TRAINING_PARTS)


def load_into(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: Path) -> None:
    """Copy ``tensors`` into ``targets`` in place, with the targets' dtypes and devices.

    Either all tensors are copied or none. Errors name ``where``.

    Raises CheckpointError, naming the tensor and both shapes, unless names and shapes match.
    """
    expected, stored = (
        {name: list(tensor.shape) for name, tensor in some.items()} for some in (targets, tensors)
    )
    check_names_and_shapes(expected, stored, where)
    for name, target in targets.items():
        target.detach().copy_(tensors[name])


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]
) -> dict[str, Tensor]:
    """Return the optimizer's state: ``<state>/<parameter>`` -> tensor, of any shape.

    Tensors are not copied. A parameter without a gradient so far has no state.
    """
    tensors: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            assert isinstance(value, Tensor), f"{key} must be a tensor in order to be saved"
            tensors[f"{key}/{name}"] = value
    return tensors


def check_state(
    config: OptimizerConfig,
    parameters: Mapping[str, nn.Parameter],
    roles: Mapping[str, Role],
    headers: Mapping[str, Header],
    where: Path,
) -> None:
    """Raise CheckpointError, naming tensor and file, unless a file fits this optimizer's state.

    A parameter without a gradient so far has no state; any other has its full state.
    """
    all_expected: dict[str, dict[str, Header]] = {}
    for name, parameter in parameters.items():
        dtype = header_of(parameter).dtype
        shapes = config.state_shapes(tuple(parameter.shape), roles[name])
        all_expected[name] = {
            key: Header(list(shape), "F32" if key == "step" else dtype)
            for key, shape in shapes.items()
        }
    for full_name, header in headers.items():
        key, _, name = full_name.partition("/")
        expected = all_expected.get(name, {})
        if key not in expected:
            raise CheckpointError(
                f"{where}: the optimizer's state {full_name} belongs to no parameter of the model"
            )
        if header != expected[key]:
            raise CheckpointError(
                f"{where}: the optimizer's state {full_name} is {header.dtype} of shape "
                f"{header.shape}, but optimizer.kind = {config.kind} needs {expected[key].dtype} "
                f"of shape {expected[key].shape}"
            )
        for lacking in (f"{other}/{name}" for other in expected):
            if lacking not in headers:
                raise CheckpointError(f"{where}: the optimizer's state lacks {lacking}")
    if any(all_expected.values()) and not headers:
        raise CheckpointError(f"{where}: the optimizer's state is missing")


def restore_optimizer(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, nn.Parameter],
    tensors: Mapping[str, Tensor],
) -> None:
    """Restore a state of ``optimizer_tensors`` that ``check_state`` has checked.

    The optimizer's state is replaced; tensors on their parameter's device are not copied.
    """
    optimizer.state.clear()
    for full_name, tensor in tensors.items():
        key, _, name = full_name.partition("/")
        parameter = parameters[name]
        # Adam's step counters are on the device that the fused kernel expects, moments on that of
        # the parameter.
        optimizer.state[parameter][key] = tensor.to(parameter.device)


@dataclass
class LoopState:
    """State of a run's training loop, without weights and optimizer."""

    step: int = 0
    """Number of optimizer steps so far."""
    tokens: int = 0
    """Number of tokens read so far by all processes, without padding."""
    seconds: float = 0.0
    """Wall-clock time so far, evaluations and checkpoints included."""
    step_seconds: float = 0.0
    """Wall-clock time of the optimizer steps alone."""
    best: dict[str, Any] | None = None
    """Step and metrics of the best evaluation so far."""
    task_bests: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Step and metrics of the best evaluation so far of each task of a mixture."""
    waited: int = 0
    """Number of evaluations since the best one."""
    has_stopped: bool = False
    """Whether the run stopped early, by ``train.patience``."""
    pending_losses: list[float] = field(default_factory=list)
    """Losses since the last line of metrics.jsonl."""


def give_way() -> None:
    """Lower the calling thread's priority, if threads have one."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # Without permission, work continues at normal priority.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICE)


def _copies(tensors: Mapping[str, Tensor], memory: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors, or local parts of distributed ones, to the CPU, reusing ``memory``.

    Page faults of new memory would take longer than the copies.
    """
    for name, tensor in tensors.items():
        copy = memory.get(name)
        if copy is not None and tensor.device.type == "cpu":
            copy.copy_(tensor)
        else:
            memory[name] = tensor.to("cpu", copy=True)
    return {name: memory[name] for name in tensors}


class Snapshots:
    """Checkpoints of a run, folders in its ``checkpoints``, to be saved, checked and restored.

    Checkpoints are atomic, and written one at a time.
    """

    def __init__(
        self,
        folder: Path,
        train_step: TrainStep,
        describe_model: Callable[[Path], None],
        *,
        earlier_ends: Sequence[int] = (),
    ) -> None:
        """Make updates of ``train_step`` wait for pending copies from now on. Collective.

        ``describe_model`` writes a model's files except the weights. ``earlier_ends`` are the steps
        at which the run ended, and was evaluated, before it was extended.
        """
        self._earlier_ends = tuple(earlier_ends)
        self.folder = folder
        self.root = folder / CHECKPOINTS
        self._train_step = train_step
        self._describe_model = describe_model
        self._writers = train_step.world.beside()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._has_copied = threading.Event()
        self._has_copied.set()
        train_step.before_update = self._has_copied.wait
        self._weights: dict[str, Tensor] = {}
        self._training: dict[str, Tensor] = {}

    def save(self, state: LoopState, *, waits: bool = False) -> None:
        """Write a checkpoint of ``state``, and delete those that ``[train]`` does not keep.

        With ``train.save_in_background`` training continues: copies are made before the next
        update, and then written in order. With ``waits``, as at the end of training, it returns
        once all is on disk. Collective: every process may hold and write a part.

        A process that cannot write raises the error, such as CheckpointError; the others raise it
        too, or SaidElsewhere. In the background, ``wait`` and the next ``save`` raise it.
        """
        self.wait()
        train_step, step, state_json = self._train_step, state.step, json.dumps(asdict(state))
        model = train_step.objective.model.state_dict()
        weights = train_step.parallel.to_write(model, owner_of_weight)
        states = heads_to_save(train_step.objective)
        states |= optimizer_tensors(train_step.optimizer, train_step.parameters)
        training = train_step.parallel.to_write(states, owner_of_state)
        if waits or not train_step.recipe.train.save_in_background:
            self._write(step, state_json, weights, training)
            return

        def copy_and_write() -> None:
            try:
                try:
                    # The copies overwrite the previous checkpoint's copies, which are on disk.
                    copied = _copies(weights, self._weights), _copies(training, self._training)
                finally:
                    self._has_copied.set()
                give_way()  # only now, since an update may wait for the copies
                self._write(step, state_json, *copied)
            except BaseException as error:
                self._error = error

        self._has_copied.clear()
        # A process that ends because another is lost must not wait for collective work.
        self._thread = threading.Thread(target=copy_and_write, daemon=True)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Return whether a checkpoint failed in the background; ``wait`` raises the error."""
        return self._error is not None

    def wait(self) -> None:
        """Wait until all checkpoints are on disk; collective. Raises an error of ``save`` once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    @contextmanager
    def finished(self) -> Iterator[None]:
        """Leave the context once all checkpoints are on disk, or at once if a process is lost."""
        try:
            yield
        except Exception as error:
            if not is_lost(error):
                self.wait()
            raise
        self.wait()

    def _write(
        self,
        step: int,
        state_json: str,
        weights: Mapping[str, Tensor],
        training: Mapping[str, Tensor],
    ) -> None:
        world, write = self._writers, self._train_step.parallel.write
        opened: list[Path] = []
        with ExitStack() as stack:
            # Rank 0 creates the checkpoint's temporary folder, and completes it at the end.
            world.by_first(
                lambda: opened.append(stack.enter_context(new_checkpoint(self.root, step)))
            )
            folder = Path(world.share_text("".join(map(str, opened))))

            def describe() -> None:
                (folder / MODEL).mkdir()
                self._describe_model(folder / MODEL)
                (folder / STATE).write_text(state_json)

            world.by_first(describe)
            write(weights, stored_model(folder), world)
            write(training, stored_training(folder), world)
            world.by_first(stack.close)
        world.by_first(lambda: self._prune(step))

    def _prune(self, last: int) -> None:
        train = self._train_step.recipe.train
        steps = [step for step in saved_steps(self.root) if step <= last]
        newest = steps[-train.keep_checkpoints :]
        to_keep = {*newest, *train.keep_steps}
        for step in newest:
            # Checkpoints that a resumed run requires.
            with suppress(CheckpointError):
                to_keep |= read_state(checkpoint_path(self.root, step)).best_steps()
        prune_checkpoints(self.root, to_keep)

    def set_aside_after(self, step: int) -> None:
        """Rename the invalid checkpoints beyond ``step``; nothing is deleted."""
        for later in saved_steps(self.root):
            if later > step:
                set_aside(checkpoint_path(self.root, later))

    def describe_last(self) -> str:
        """Describe the last checkpoint's location as part of a sentence; collective."""
        self.wait()
        steps = saved_steps(self.root)
        if not steps:
            return "there is no checkpoint before it"
        return f"the last good checkpoint is {checkpoint_path(self.root, steps[-1])}"

    def newest(self, report: Callable[[str], None]) -> Path | None:
        """Find the newest valid checkpoint to resume from; None if the run starts at step 0.

        ``report`` receives a line for each invalid one. Raises CheckpointError if all complete
        checkpoints belong to another model, since a new start would not resume the run.
        """
        foreign: list[CheckpointError] = []

        def check(checkpoint: Path, state: SavedState) -> None:
            try:
                self.check(checkpoint, state)
            except CheckpointError as error:
                foreign.append(error)
                raise

        latest = newest_checkpoint(self.root, report, check)
        if latest is None and foreign:
            raise CheckpointError(f"{foreign[0]}: give another --out")
        return latest

    def check(self, checkpoint: Path, state: SavedState) -> None:
        """Raise CheckpointError unless this run can be restored from a checkpoint.

        The step, the evaluation that it requires, and names, shapes and dtypes of tensors are
        checked before anything is restored, from headers alone.
        """
        train_step, path = self._train_step, checkpoint / STATE
        train = train_step.recipe.train
        if not 0 < state.step <= train.steps:
            raise CheckpointError(
                f"{path} has step {state.step}, but the run has {train.steps} steps"
            )
        is_evaluated = state.step >= min(train.steps, train.evaluate_steps, *self._earlier_ends)
        if is_evaluated != (state.best is not None):
            raise CheckpointError(
                f"{path} has {'no best' if is_evaluated else 'a'} evaluation at step {state.step}"
            )
        if state.best is not None and train.best_by not in (LAST, *state.best.model_dump()):
            raise CheckpointError(f"{path} has a best evaluation without {train.best_by}")
        weights = stored_model(checkpoint)
        model = train_step.objective.model.state_dict()
        check_headers(model, _headers(weights), weights.described)
        training = stored_training(checkpoint)
        heads, optimizer_state = split_heads(_headers(training))
        expected = heads_to_save(train_step.objective)
        check_headers(expected, heads, training.described)
        config = train_step.recipe.optimizer
        trained = {
            name: parameter
            for name, parameter in named_parameters(train_step.objective)
            if parameter.requires_grad
        }
        check_state(config, trained, train_step.parallel.roles, optimizer_state, training.whole)

    def restore(self, checkpoint: Path) -> LoopState:
        """Restore weights, heads and optimizer from a checkpoint; return the loop state.

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
        return LoopState(**state.model_dump())

    def _read(self, stored: StoredTensors, owner: Owners) -> dict[str, Tensor]:
        with _reading(stored):
            return self._train_step.parallel.read(owner, stored)


def _headers(stored: StoredTensors) -> dict[str, Header]:
    with _reading(stored):
        return stored.headers()


@contextmanager
def _reading(stored: StoredTensors) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        where = stored.whole if stored.is_whole else stored.folder
        raise CheckpointError(f"{where} cannot be read: {error}") from None
