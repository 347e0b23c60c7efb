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
"""The folder of checkpoints in a run's."""
TRAINING = "training.safetensors"
"""File of a checkpoint with the state of training beside the model: optimizer and heads."""
TRAINING_PARTS = "training"
"""The folder of the parts of that, where each process has written its own."""
MODEL = "model"
"""The model in a checkpoint, a folder that is a model by itself."""
_HEAD = "head/"
"""Prefix of the names of heads there, unlike those of the optimizer's state."""

Saved = TypeVar("Saved", Tensor, Header)
_NICE = 10
"""By how much its thread gives way, in the units of ``nice``: beside a busy core it has a tenth."""


def heads_to_save(objective: Objective) -> dict[str, Tensor]:
    """Return the training-only parameters, by saved name."""
    return {f"{_HEAD}{name}": value.detach() for name, value in objective.training_only().items()}


def split_heads(saved: Mapping[str, Saved]) -> tuple[dict[str, Saved], dict[str, Saved]]:
    """Split the saved training state into heads and optimizer state."""
    heads = {name: value for name, value in saved.items() if name.startswith(_HEAD)}
    return heads, {name: value for name, value in saved.items() if name not in heads}


def owner_of_weight(name: str) -> Owner:
    """Return the objective's parameter of a model weight."""
    return Owner(f"model.{name}")


def owner_of_state(name: str) -> Owner:
    """Return the parameter of a head or optimizer state."""
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

    Errors name ``where``. Either all or nothing is copied.

    Raises CheckpointError, naming tensor and both shapes, unless names and shapes match.
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

    Tensors are not copies. A parameter that had no gradient yet has none.
    """
    tensors: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            assert isinstance(value, Tensor), f"{key} is no tensor, and would not be saved"
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

    A parameter that had no gradient yet has none; any other has its full state.
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
                f"{where}: the optimizer's state {full_name} belongs to no parameter of this model"
            )
        if header != expected[key]:
            raise CheckpointError(
                f"{where}: the optimizer's state {full_name} is {header.dtype} of shape "
                f"{header.shape}, optimizer.kind = {config.kind} asks for {expected[key].dtype} of "
                f"shape {expected[key].shape}"
            )
        for lacking in (f"{other}/{name}" for other in expected):
            if lacking not in headers:
                raise CheckpointError(f"{where}: the optimizer's state has no {lacking}")
    if any(all_expected.values()) and not headers:
        raise CheckpointError(f"{where}: the optimizer's state is missing")


def restore_optimizer(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, nn.Parameter],
    tensors: Mapping[str, Tensor],
) -> None:
    """Restore the state that ``optimizer_tensors`` returned and ``check_state`` has checked.

    Replaces the optimizer's state; tensors on their parameter's device are kept, not copied.
    """
    optimizer.state.clear()
    for full_name, tensor in tensors.items():
        key, _, name = full_name.partition("/")
        parameter = parameters[name]
        # Adam's step counters are where the fused kernel expects them; moments on the parameter's
        # device.
        optimizer.state[parameter][key] = tensor.to(parameter.device)


@dataclass
class LoopState:
    """State of a run's loop, besides weights and optimizer."""

    step: int = 0
    """Optimizer steps so far."""
    tokens: int = 0
    """Tokens that they read, without padding, of all processes."""
    seconds: float = 0.0
    """Wall clock so far, evaluation and checkpoints included."""
    step_seconds: float = 0.0
    """Wall clock of the optimizer steps alone."""
    best: dict[str, Any] | None = None
    """Step and figures of the best evaluation so far."""
    task_bests: dict[str, dict[str, Any]] = field(default_factory=dict)
    """In a mixture of tasks, step and figures of the best evaluation of each so far."""
    waited: int = 0
    """Evaluations since the best."""
    has_stopped: bool = False
    """True where it ended early, as ``train.patience`` says."""
    pending_losses: list[float] = field(default_factory=list)
    """Losses since the last line of metrics.jsonl."""


def give_way() -> None:
    """Lower the calling thread's priority, where threads have one."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # Work continues where this is not permitted.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICE)


def _copies(tensors: Mapping[str, Tensor], memory: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors, or local parts of distributed ones, to the CPU, into the memory in ``memory``.

    Page faults of new memory would take longer than the copy.
    """
    for name, tensor in tensors.items():
        copy = memory.get(name)
        if copy is not None and tensor.device.type == "cpu":
            copy.copy_(tensor)
        else:
            memory[name] = tensor.to("cpu", copy=True)
    return {name: memory[name] for name in tensors}


class Snapshots:
    """Checkpoints of a run, as folders in its ``checkpoints``: saved, checked and restored.

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
        """Keep the parts of a run; ``describe_model`` writes a model's files except the weights.

        ``earlier_ends``: steps at which the run ended, and was evaluated, before it was extended.
        From now on updates of ``train_step`` wait for pending copies. Collective.
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
        update, then written in order. With ``waits``, as where training ends, it returns once all
        is on disk. Collective: every process may hold and write a part.

        A process that cannot write raises the reason, such as CheckpointError; the others raise it
        too, or SaidElsewhere. In the background ``wait`` and the next ``save`` raise.
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
                    # They overwrite the previous checkpoint's copies, which are on disk.
                    copied = _copies(weights, self._weights), _copies(training, self._training)
                finally:
                    self._has_copied.set()
                give_way()  # not before: an update may wait for the copies
                self._write(step, state_json, *copied)
            except BaseException as error:
                self._error = error

        self._has_copied.clear()
        # A process that ends because another is lost must not wait for work that waits for it.
        self._thread = threading.Thread(target=copy_and_write, daemon=True)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """True where a checkpoint failed in the background; ``wait`` raises the error."""
        return self._error is not None

    def wait(self) -> None:
        """Wait until all checkpoints are on disk; collective. Raises an error of ``save``, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    @contextmanager
    def finished(self) -> Iterator[None]:
        """Exit once all checkpoints are on disk; immediately where another process is lost."""
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
            # Rank 0 makes the checkpoint's temporary folder, and completes it at the end.
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
            # State that a resume requires.
            with suppress(CheckpointError):
                to_keep |= read_state(checkpoint_path(self.root, step)).best_steps()
        prune_checkpoints(self.root, to_keep)

    def set_aside_after(self, step: int) -> None:
        """Set refused checkpoints beyond ``step`` aside; nothing is deleted."""
        for later in saved_steps(self.root):
            if later > step:
                set_aside(checkpoint_path(self.root, later))

    def describe_last(self) -> str:
        """Format the last checkpoint's location as part of a sentence; collective."""
        self.wait()
        steps = saved_steps(self.root)
        if not steps:
            return "there is no checkpoint before it"
        return f"the last good checkpoint is {checkpoint_path(self.root, steps[-1])}"

    def newest(self, report: Callable[[str], None]) -> Path | None:
        """Find the newest checkpoint to resume from; ``report`` receives refused ones.

        None without one: the run starts at step 0. Raises CheckpointError where all complete ones
        belong to another model: starting anew would not be resuming.
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

        Checks the step, its required evaluation, and names, shapes and dtypes of tensors. Only
        headers are read, so that nothing is restored in part.
        """
        train_step, path = self._train_step, checkpoint / STATE
        train = train_step.recipe.train
        if not 0 < state.step <= train.steps:
            raise CheckpointError(f"{path} is of step {state.step}, of a run of {train.steps}")
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
