"""Training loop: steps, evaluations, checkpoints and the log."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sublayer.config.recipe import ResolvedTrain
from sublayer.config.resolve import format_step
from sublayer.config.train import LAST, is_better
from sublayer.errors import ConfigError, Interrupted, Preempted, TrainingError
from sublayer.files.checkpoints import PACE, Lengthening
from sublayer.numbers import count
from sublayer.system.machine import release_freed_memory, wait_for
from sublayer.system.signals import GracefulStop
from sublayer.system.terminal import stage
from sublayer.training.checkpoints import LoopState, Snapshots
from sublayer.training.log import MetricsLog, Progress, Status
from sublayer.training.step import TrainStep

N_CHECKED = 20
"""Number of first steps that are compared with the pace from which a run's length was derived."""
_LARGEST_CHANGE = 0.5
"""Maximum deviation of the first steps from the expected time, as a share of it."""
_THIRD, _TENTH = 1 / 3, 0.1
"""Relative change of the pace, and delay of the end, beyond which a run by minutes is replanned."""
_CHECKED_SHARE = 0.05
"""Share of a run's minutes after which the pace of its first steps is checked."""


class PaceChanged(Exception):
    """Deviation of a run's first steps from the step time from which its length was derived.

    It is raised before anything of the run is saved.
    """

    def __init__(self, seconds: Sequence[float], expected_s: float) -> None:
        n_steps = len(seconds)
        first = "the first step" if n_steps == 1 else f"the first {n_steps:,} steps"
        took = format_step(_first_median(seconds))
        super().__init__(
            f"{first} took {took} each, not {format_step(expected_s)}: measuring the pace again"
        )


def has_changed(seconds: Sequence[float], expected_s: float) -> bool:
    """Check whether a run's first steps differ by more than half from the expected time.

    The first step is slower than others, so that a single step can only be too fast.
    """
    if len(seconds) == 1:
        return seconds[0] < (1 - _LARGEST_CHANGE) * expected_s
    change_s = abs(_first_median(seconds) - expected_s)
    return change_s > _LARGEST_CHANGE * expected_s


def _first_median(seconds: Sequence[float]) -> float:
    return statistics.median(seconds[1:] or seconds)


class MinutesPlan:
    """Planned length of a run by minutes, replanned when its pace changes.

    The pace includes evaluations and checkpoints. It is checked after each evaluation: if it has
    changed by more than a third, or if the run would end more than a tenth too late, the remaining
    steps become those that fit at the new pace. Between evaluations the run is replanned if the
    next evaluation is more than a third late, or would end more than a tenth after the run's time.
    A resumed run repeats its earlier plans at the same steps, whatever its pace.
    """

    def __init__(
        self,
        minutes: float,
        evaluate_steps: int,
        earlier: Sequence[Lengthening],
        keep: Callable[[Lengthening], object],
    ) -> None:
        """Set the earlier plans, which are repeated; ``keep`` writes new ones."""
        self.seconds = 60.0 * minutes
        """Seconds of the whole run."""
        self._evaluate_steps = evaluate_steps
        self._earlier = tuple(earlier)
        self._keep = keep
        self._step, self._at_s, self._pace_s = 0, 0.0, 0.0

    def steps_at(self, step: int, steps: int) -> int:
        """Return the planned length of the run at ``step``; ``steps`` is the last plan."""
        for change in reversed(self._earlier):
            if change.at_step <= step:
                return change.to_steps
        return self._earlier[0].from_steps if self._earlier else steps

    def begin(self, step: int, seconds: float, steps: int) -> None:
        """Start measuring at ``step``, ``seconds`` into the run."""
        self._step, self._at_s = step, seconds
        self._pace_s = max(self.seconds - seconds, 0.0) / max(1, steps - step)

    def steps(
        self, step: int, steps: int, seconds: float, evaluation_s: float, *, is_evaluated: bool
    ) -> int:
        """Return the new length of a run of ``steps``, at ``step`` after ``seconds``.

        ``evaluation_s`` is the duration of its last evaluation.
        """
        if self._earlier and step <= self._earlier[-1].at_step:
            again = self.steps_at(step, steps)
            self.begin(step, seconds, again)
            return again
        n_taken, taken_s = step - self._step, seconds - self._at_s
        if not n_taken:
            return steps
        pace_s = taken_s / n_taken
        ends_s = seconds + evaluation_s
        if is_evaluated:
            self._step, self._at_s = step, seconds
            is_other = not 1 / (1 + _THIRD) <= pace_s / max(self._pace_s, 1e-9) <= 1 + _THIRD
            is_other |= ends_s + (steps - step) * pace_s > (1 + _TENTH) * self.seconds
        else:
            is_other = taken_s > (1 + _THIRD) * self._pace_s * self._evaluate_steps
            is_other |= ends_s > (1 + _TENTH) * self.seconds
        if not is_other:
            return steps
        self._step, self._at_s, self._pace_s = step, seconds, pace_s
        planned = step + max(0, int((self.seconds - ends_s) / pace_s))
        if planned != steps:
            self._keep(Lengthening(at_step=step, from_steps=steps, to_steps=planned, by=PACE))
        return planned


@dataclass(frozen=True)
class Evaluate:
    """Evaluation during training, and the names of its metrics.

    The names include the loss, if there is a validation split, and always the metric that selects
    the best checkpoint.
    """

    score: Callable[[], Mapping[str, Any]]
    """Function that returns metrics by name, some of which, but not the loss, may be missing;
    collective."""
    names: tuple[str, ...]
    """Names of the metrics that are logged, in the same order in every process."""
    task_scores: tuple[str, ...] = ()
    """Those of ``names`` that select a best checkpoint for each task of a mixture."""
    describe: Callable[[Mapping[str, Any]], Sequence[str]] = lambda _: ()
    """Function that describes an evaluation in lines, such as the scores of watched texts."""


class Loop:
    """Training of a run from its current step to its last.

    Each process has a loop, but only rank 0 writes files and notes. Logging, evaluations and
    checkpoints follow at the intervals of ``[train]``, and after the last step.
    """

    def __init__(
        self,
        config: ResolvedTrain,
        train_step: TrainStep,
        evaluate: Evaluate,
        snapshots: Snapshots,
        state: LoopState,
        *,
        pace_s: float | None = None,
        plan: MinutesPlan | None = None,
    ) -> None:
        """Set the parts of a run; ``state`` is changed in place.

        ``state`` is changed in place. ``pace_s``: seconds per step from which the run's length was
        derived, if it was. ``plan``: the changing length of a run by minutes.
        """
        self.state = state
        self._plan = plan
        self._evaluation_s = 0.0
        # A run interrupted in its first steps was saved, and resumes with the same length.
        self._pace_s = pace_s if state.step == 0 else None
        self._first_seconds: list[float] = []
        self._note: Callable[[str], None] = lambda _: None
        self._config = config
        self._train_step = train_step
        self._evaluate = evaluate
        self._snapshots = snapshots
        self._world = train_step.world
        self._steps = config.steps if plan is None else plan.steps_at(state.step, config.steps)
        train_step.set_length(self._steps)
        self._log: MetricsLog | None = None
        self._unchecked: list[tuple[int, Tensor, Tensor]] = []
        self._gradient_norm = math.nan
        self._loss = math.nan
        self._valid_loss: float | None = None
        self._saved_step = state.step
        self._began = 0.0

    def run(self, progress: Progress) -> LoopState:
        """Train to the end, and return the final state.

        Raises Interrupted after a signal, once the run is saved; TrainingError if a loss or the
        gradient norm is not finite, before the affected weights are saved; PaceChanged, before
        anything is saved, if the first steps differ from the expected pace. All processes raise
        together.
        """
        with GracefulStop() as watch, ExitStack() as stack:
            if self._world.is_main:
                self._note = progress.note
                self._snapshots.set_aside_after(self.state.step)
                log = MetricsLog(self._snapshots.folder, self.state.step)
                self._log = stack.enter_context(log)
            stack.enter_context(self._snapshots.finished())
            self._began = time.monotonic() - self.state.seconds
            if self._plan is not None:
                self._plan.begin(self.state.step, self.state.seconds, self._steps)
            while self.state.step < self._steps and not self.state.has_stopped:
                begun = time.monotonic()
                result = self._train_step(self.state.step)
                if self._pace_s is not None:
                    wait_for(self._train_step.device)
                self.state.tokens += result.n_tokens
                self.state.step += 1
                # Read only if needed, since reading a number back synchronizes with the device.
                self._unchecked.append((self.state.step, result.loss, result.gradient_norm))
                seconds = time.monotonic() - begun
                self.state.step_seconds += seconds
                if self._pace_s is not None:
                    self._check_pace(seconds, self._pace_s)
                self._finish_step()
                tokens_per_s = self.state.tokens / self.state.step_seconds
                progress.update(
                    Status(self.state.step, self._steps, self._loss, tokens_per_s, self._valid_loss)
                )
                if self._world.any(watch.requested or self._snapshots.has_failed):
                    self._snapshots.wait()
                    self._check_finite()
                    self._save(waits=True)
                    kind = Preempted if self._world.any(watch.is_warned) else Interrupted
                    raise kind(
                        f"interrupted and saved at step {self.state.step:,} of {self._steps:,} in "
                        f"{self._snapshots.folder}; the same command with --resume resumes"
                    )
        return self.state

    def _check_pace(self, seconds: float, pace_s: float) -> None:
        """Compare the first steps with the pace from which the length of the run was derived."""
        self._first_seconds.append(seconds)
        # The comparison precedes evaluations and checkpoints, which cannot be undone.
        config = self._config
        saved_steps = (config.evaluate_steps, config.checkpoint_steps, *config.keep_steps)
        n_checked = min(N_CHECKED, self._steps, *saved_steps)
        # If steps are slow, two suffice, since they must not use up the run's minutes.
        is_long = (
            self._plan is not None
            and len(self._first_seconds) > 1
            and sum(self._first_seconds) > _CHECKED_SHARE * self._plan.seconds
        )
        if self.state.step == n_checked or self._world.any(is_long):
            first = self._world.share(self._first_seconds)
            if has_changed(first, pace_s):
                raise PaceChanged(first, pace_s)
            self._pace_s = None

    def _finish_step(self) -> None:
        """Check, log, evaluate and save after a step, where due."""
        config, state = self._config, self.state
        if state.step % config.evaluate_steps:
            self._plan_anew(is_evaluated=False)
        is_logged = self._is_due(config.log_steps)
        is_evaluated = self._is_due(config.evaluate_steps)
        is_saved = self._is_due(config.checkpoint_steps) or state.step in config.keep_steps
        is_reported = is_logged or is_evaluated or is_saved
        # On a CPU no synchronization is needed.
        has_loss = self._train_step.device.type == "cpu"
        if is_reported or has_loss:
            self._check_finite()
        if is_logged:
            self._log_training()
            if self._train_step.batches.lengths_vary:
                # Freed blocks of one shape do not fit the next shape, so that fragmentation would
                # grow to gigabytes.
                release_freed_memory()
        if is_evaluated:
            # A new best model is always saved, since the result needs its weights.
            is_saved = self._log_evaluation() or is_saved
        if state.has_stopped:
            # The run ends before its last step; a resumed run is complete.
            assert state.best is not None, "patience counts from a best evaluation"
            if state.pending_losses:
                self._log_training()
            self._save(waits=True)
            self._note(
                f"stops early, at step {state.step:,} of {self._steps:,}: train.patience = "
                f"{config.patience}, and no evaluation since step {state.best['step']:,} had a "
                f"better {config.best_by}"
            )
            return
        if not state.step % config.evaluate_steps and self._plan_anew(is_evaluated=True):
            is_saved = True
            if not is_logged:
                self._log_training()
        if is_saved:
            self._save(waits=state.step == self._steps)

    def _plan_anew(self, *, is_evaluated: bool) -> bool:
        """Replan the rest of a run by minutes; return whether the run ends at this step."""
        step, before = self.state.step, self._steps
        if self._plan is None or step >= before:
            return False
        # Rank 0 decides, since clocks differ.
        seconds, evaluation_s = self._world.share(
            [time.monotonic() - self._began, self._evaluation_s]
        )
        self._steps = self._plan.steps(
            step, before, seconds, evaluation_s, is_evaluated=is_evaluated
        )
        self._train_step.set_length(self._steps)
        if self._steps != before:
            self._note(
                f"replanned at step {step:,}, after {seconds / 60:.2g} of "
                f"{count(self._plan.seconds / 60, 'minute', 'g')}: {count(self._steps, 'step')} in "
                f"all instead of {before:,}, since the pace has changed"
            )
            unreached = [at_step for at_step in self._config.keep_steps if at_step > self._steps]
            if unreached:
                self._note(f"train.keep_steps: step {unreached[0]:,} is not reached")
        return self._steps == step

    def _is_due(self, every: int) -> bool:
        """Check whether a periodic action is due after this step; at the end it always is."""
        step = self.state.step
        return step == self._steps or step % every == 0

    def _check_finite(self) -> None:
        # This synchronizes with the device, and is only called when values are needed.
        for step, loss, norm in self._unchecked:
            self._loss = float(loss)
            self._gradient_norm = float(norm)
            self._require_finite("loss", self._loss, step)
            self._require_finite("gradient", self._gradient_norm, step)
            self.state.pending_losses.append(self._loss)
        self._unchecked.clear()

    def _require_finite(self, what: str, value: float, step: int) -> None:
        if not math.isfinite(value):
            raise TrainingError(
                f"the {what} is not finite at step {step:,} of {self._steps:,}; "
                f"{self._snapshots.describe_last()}; a lower optimizer.lr or a longer warm-up may "
                "help"
            )

    def _log_training(self) -> None:
        losses, self.state.pending_losses = self.state.pending_losses, []
        values = {
            "loss": math.fsum(losses) / len(losses),
            "lr": self._train_step.lr,
            "gradient_norm": self._gradient_norm,
        }
        self._write("train", values)

    def _log_evaluation(self) -> bool:
        """Evaluate and log; return whether the model is a new best one, which must be saved."""
        config, state = self._config, self.state
        # All processes evaluate and receive rank 0's metrics, so that they agree on the best.
        begun = time.monotonic()
        with stage(f"evaluating at step {state.step:,}"):
            scores = self._evaluate.score()
        self._evaluation_s = time.monotonic() - begun
        names = self._evaluate.names
        shared = self._world.share([scores.get(name, math.nan) for name in names])
        values = {}
        for name, value in zip(names, shared, strict=True):
            # The loss of validation, or of a watched text.
            is_loss = name.rpartition("/")[2] == "loss"
            # Metrics for which a text is too short are omitted, except the loss, which selects the
            # best.
            if is_loss or math.isfinite(value):
                values[name] = value
            if is_loss:
                what = "validation loss" if name == "loss" else name
                self._require_finite(what, value, state.step)
        self._valid_loss = values.get("loss")
        is_best = state.best is None or config.best_by == LAST
        if state.best is not None and not is_best:
            if config.best_by not in values:
                raise ConfigError(
                    f"train.best_by = {config.best_by}, but this text has no such metric: give "
                    "train.best_by=loss"
                )
            is_best = is_better(config.best_by, values, state.best)
        state.waited = 0 if is_best else state.waited + 1
        if is_best:
            state.best = {"step": state.step, **values}
        if config.patience is not None and state.step < self._steps:
            state.has_stopped = state.waited >= config.patience
        is_tasks_best = False
        for name in self._evaluate.task_scores:
            task = name.rpartition("/")[0]
            best = state.task_bests.get(task)
            if name in values and (best is None or values[name] > best[name]):
                state.task_bests[task] = {"step": state.step, name: values[name]}
                is_tasks_best = True
        for line in self._evaluate.describe(values):
            self._note(f"step {state.step:,}/{self._steps:,}  {line}")
        if values:
            self._write("valid", values)
        # The last evaluation is at the last step, which is saved in any case.
        return (is_best or is_tasks_best) and config.best_by != LAST

    def _write(self, kind: str, values: Mapping[str, float]) -> None:
        if self._log is None:
            return
        seconds = round(time.monotonic() - self._began, 3)
        self._log.write(
            kind, self.state.step, {**values, "tokens": self.state.tokens, "seconds": seconds}
        )

    def _save(self, *, waits: bool) -> None:
        if self._saved_step == self.state.step:
            return
        self._saved_step = self.state.step
        if self._log is not None:
            self._log.sync()
        self.state.seconds = time.monotonic() - self._began
        with stage(f"saving step {self.state.step:,}"):
            self._snapshots.save(self.state, waits=waits)
