"""The training loop: steps, evaluations, checkpoints and the record."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sublayer.config.recipe import ResolvedTrain
from sublayer.config.train import LAST, is_better
from sublayer.errors import ConfigError, Interrupted, Preempted, TrainingError
from sublayer.system.machine import wait_for
from sublayer.system.memory import release_freed_memory
from sublayer.system.signals import GracefulStop
from sublayer.system.stages import stage
from sublayer.training.checkpoints import LoopState, Snapshots
from sublayer.training.log import MetricsLog, Progress, Status
from sublayer.training.step import TrainStep
from sublayer.training.step_time import (
    N_CHECKED,
    Clock,
    MinutesPlan,
    PaceChanged,
    Replanned,
    describe_replanned,
    has_changed,
    has_taken_share,
)


@dataclass(frozen=True)
class Evaluate:
    """An evaluation and the names of its metrics.

    The names include the loss, if there is a validation split, and always the metric that selects
    the best checkpoint.
    """

    score: Callable[[], Mapping[str, Any]]
    """Metrics by name, of which some may be left out, but not the loss; every process calls it."""
    names: tuple[str, ...]
    """The metrics that are written, in the same order in every process."""
    task_scores: tuple[str, ...] = ()
    """Of ``names`` those by which each task of a mixture has a best checkpoint of its own."""
    describe: Callable[[Mapping[str, Any]], Sequence[str]] = lambda _: ()
    """Describes in lines an evaluation, such as the scores of watched texts."""


class Loop:
    """Training of a run from its current step to its last.

    One per process; only rank 0 writes files and notes. Logging, evaluations and checkpoints follow
    at the intervals of ``[train]``, and after the last step.
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
        clock: Clock = time.monotonic,
    ) -> None:
        """Keep the parts of a run.

        ``state`` is changed in place. ``pace_s``: seconds per step from which the run's length was
        derived, if it was. ``plan``: the changing length of a run by minutes. ``clock`` gives
        seconds from any origin.
        """
        self.state = state
        self._plan = plan
        self._evaluation_s = 0.0
        # A run interrupted in its first steps was saved, and resumes in the same way.
        self._pace_s = pace_s if state.step == 0 else None
        self._clock = clock
        self._first_seconds: list[float] = []
        self._note: Callable[[str], None] = lambda _: None
        self._config = config
        self._train_step = train_step
        self._evaluate = evaluate
        self._snapshots = snapshots
        self._world = train_step.world
        self._steps = config.steps if plan is None else plan.steps_at(state.step, config.steps)
        train_step.set_length(self._steps)
        self._unchecked: list[tuple[int, Tensor, Tensor]] = []
        self._gradient_norm = math.nan
        self._loss = math.nan
        self._valid_loss: float | None = None
        self._saved_step = state.step
        self._began = 0.0

    def run(self, progress: Progress) -> LoopState:
        """Train to the end; return the final state.

        Raises Interrupted after a signal, once saved; TrainingError where a loss or the gradient
        norm is not finite, before its consequences are saved; PaceChanged, before anything is
        saved, where the first steps differ from the expected pace. All processes raise together.
        """
        if self._world.is_main:
            self._note = progress.note
        with GracefulStop() as watch, self._open_log() as log, self._snapshots.saving.finished():
            self._began = self._clock() - self.state.seconds
            if self._plan is not None:
                self._plan.begin(self.state.step, self.state.seconds, self._steps)
            while self.state.step < self._steps and not self.state.has_stopped:
                begun = self._clock()
                self._take_step()
                seconds = self._clock() - begun
                self.state.step_seconds += seconds
                self._check_pace(seconds)
                self._between_steps(log)
                tokens_per_s = self.state.tokens / self.state.step_seconds
                progress.update(
                    Status(self.state.step, self._steps, self._loss, tokens_per_s, self._valid_loss)
                )
                if self._must_stop(watch):
                    self._stop(log, watch)
        return self.state

    def _open_log(self) -> AbstractContextManager[MetricsLog | None]:
        if not self._world.is_main:
            return nullcontext()
        self._snapshots.set_aside_after(self.state.step)
        return MetricsLog(self._snapshots.folder, self.state.step)

    def _take_step(self) -> None:
        result = self._train_step(self.state.step)
        if self._pace_s is not None:
            wait_for(self._train_step.device)
        self.state.tokens += result.n_tokens
        self.state.step += 1
        # Read only where needed: reading a number back synchronises with the device.
        self._unchecked.append((self.state.step, result.loss, result.gradient_norm))

    def _check_pace(self, seconds: float) -> None:
        if self._pace_s is None:
            return
        self._first_seconds.append(seconds)
        # Evaluations and checkpoints cannot be undone: the comparison comes first.
        config = self._config
        kept = (config.evaluate_steps, config.checkpoint_steps, *config.keep_steps)
        n_checked = min(N_CHECKED, self._steps, *kept)
        # Few steps suffice where they take long: they must not use up the run's minutes.
        is_long = self._plan is not None and has_taken_share(
            self._first_seconds, self._plan.seconds
        )
        if self.state.step == n_checked or self._world.any(is_long):
            first = self._world.share(self._first_seconds)
            if has_changed(first, self._pace_s):
                raise PaceChanged(first, self._pace_s)
            self._pace_s = None

    def _between_steps(self, log: MetricsLog | None) -> None:
        config = self._config
        if self.state.step % config.evaluate_steps:
            self._plan_anew(is_evaluated=False)
        is_logged = self._is_due(config.log_steps)
        is_evaluated = self._is_due(config.evaluate_steps)
        is_saved = self._is_due(config.checkpoint_steps) or self.state.step in config.keep_steps
        is_reported = is_logged or is_evaluated or is_saved
        # On a CPU no synchronisation is needed.
        has_loss = self._train_step.device.type == "cpu"
        if is_reported or has_loss:
            self._check_finite()
        if is_logged:
            self._log_training(log)
            if self._train_step.batches.lengths_vary:
                # Freed blocks of one shape do not fit the next: fragmentation would grow to
                # gigabytes.
                release_freed_memory()
        if is_evaluated:
            # A new best is always saved, as the result needs its weights.
            is_saved = self._log_evaluation(log) or is_saved
        if self.state.has_stopped:
            self._end_early(log)
            return
        if not self.state.step % config.evaluate_steps and self._plan_anew(is_evaluated=True):
            is_saved = True
            if not is_logged:
                self._log_training(log)
        if is_saved:
            self._save(log, waits=self.state.step == self._steps)

    def _plan_anew(self, *, is_evaluated: bool) -> bool:
        """Replan the rest of a run by minutes; return whether it ends at this step."""
        step, before = self.state.step, self._steps
        if self._plan is None or step >= before:
            return False
        # Clocks differ: rank 0 decides.
        seconds, evaluation_s = self._world.share([self._clock() - self._began, self._evaluation_s])
        self._steps = self._plan.steps(
            step, before, seconds, evaluation_s, is_evaluated=is_evaluated
        )
        self._train_step.set_length(self._steps)
        if self._steps != before:
            change = Replanned(step, before, self._steps)
            self._note(describe_replanned(change, seconds, self._plan.seconds / 60))
            unreached = [at_step for at_step in self._config.keep_steps if at_step > self._steps]
            if unreached:
                self._note(f"train.keep_steps: step {unreached[0]:,} is not reached")
        return self._steps == step

    def _end_early(self, log: MetricsLog | None) -> None:
        """Log and save a run that ends before its last step; a resume finds it complete."""
        best, state = self.state.best, self.state
        assert best is not None, "what waits has a best"
        if state.pending_losses:
            self._log_training(log)
        self._save(log, waits=True)
        self._note(
            f"ends early, at step {state.step:,} of {self._steps:,}: train.patience = "
            f"{self._config.patience}, and no evaluation since step {best['step']:,} had a better "
            f"{self._config.best_by}"
        )

    def _is_due(self, every: int) -> bool:
        """Check whether a periodic action, due also at the end, is due after this step."""
        step = self.state.step
        return step == self._steps or step % every == 0

    def _check_finite(self) -> None:
        # Synchronises with the device: called only where figures are needed.
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

    def _log_training(self, log: MetricsLog | None) -> None:
        losses, self.state.pending_losses = self.state.pending_losses, []
        values = {
            "loss": math.fsum(losses) / len(losses),
            "lr": self._train_step.lr,
            "gradient_norm": self._gradient_norm,
        }
        self._write(log, "train", values)

    def _log_evaluation(self, log: MetricsLog | None) -> bool:
        values = self._evaluate_once()
        for name, value in values.items():
            if _is_loss(name):
                what = "validation loss" if name == "loss" else name
                self._require_finite(what, value, self.state.step)
        self._valid_loss = values.get("loss")
        best = self.state.best
        is_best = best is None or self._is_better(values, best)
        self.state.waited = 0 if is_best else self.state.waited + 1
        if is_best:
            self.state.best = {"step": self.state.step, **values}
        patience = self._config.patience
        if patience is not None and self.state.step < self._steps:
            self.state.has_stopped = self.state.waited >= patience
        is_tasks_best = self._keep_task_bests(values)
        for line in self._evaluate.describe(values):
            self._note(f"step {self.state.step:,}/{self._steps:,}  {line}")
        if values:
            self._write(log, "valid", values)
        # The last evaluation falls on the last step, which is saved anyway.
        return (is_best or is_tasks_best) and self._config.best_by != LAST

    def _keep_task_bests(self, values: Mapping[str, float]) -> bool:
        """Record the tasks of a mixture with a new best score; return whether any has one."""
        is_any = False
        for name in self._evaluate.task_scores:
            task = name.rpartition("/")[0]
            best = self.state.task_bests.get(task)
            if name in values and (best is None or values[name] > best[name]):
                self.state.task_bests[task] = {"step": self.state.step, name: values[name]}
                is_any = True
        return is_any

    def _is_better(self, values: Mapping[str, float], best: Mapping[str, float]) -> bool:
        name = self._config.best_by
        if name == LAST:
            return True
        if name not in values:
            raise ConfigError(
                f"train.best_by = {name}, which this text has not: give train.best_by=loss"
            )
        return is_better(name, values, best)

    def _evaluate_once(self) -> dict[str, float]:
        # All evaluate and receive rank 0's figures, so that all agree on the best.
        names = self._evaluate.names
        begun = self._clock()
        with stage(f"evaluating at step {self.state.step:,}"):
            scores = self._evaluate.score()
        self._evaluation_s = self._clock() - begun
        shared = self._world.share([scores.get(name, math.nan) for name in names])
        # Metrics for which a text is too short are omitted, except the loss, which selects the
        # best.
        return {
            name: value
            for name, value in zip(names, shared, strict=True)
            if _is_loss(name) or math.isfinite(value)
        }

    def _write(self, log: MetricsLog | None, kind: str, values: Mapping[str, float]) -> None:
        if log is None:
            return
        seconds = round(self._clock() - self._began, 3)
        log.write(
            kind, self.state.step, {**values, "tokens": self.state.tokens, "seconds": seconds}
        )

    def _save(self, log: MetricsLog | None, *, waits: bool) -> None:
        if self._saved_step == self.state.step:
            return
        self._saved_step = self.state.step
        if log is not None:
            log.sync()
        self.state.seconds = self._clock() - self._began
        with stage(f"saving step {self.state.step:,}"):
            self._snapshots.saving.save(self.state, waits=waits)

    def _must_stop(self, watch: GracefulStop) -> bool:
        return self._world.any(watch.requested or self._snapshots.saving.has_failed)

    def _stop(self, log: MetricsLog | None, watch: GracefulStop) -> None:
        self._snapshots.saving.wait()
        self._check_finite()
        self._save(log, waits=True)
        kind = Preempted if self._world.any(watch.is_warned) else Interrupted
        raise kind(
            f"interrupted and saved at step {self.state.step:,} of {self._steps:,} in "
            f"{self._snapshots.folder}; the same command with --resume resumes"
        )


def _is_loss(name: str) -> bool:
    """Check whether a metric is the loss on validation or a watched text."""
    return name.rpartition("/")[2] == "loss"
