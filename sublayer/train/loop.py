"""The one training loop: steps, and between them evaluation, checkpoints and the record."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sublayer.announce import Say, announced, say_nothing
from sublayer.config.train import TrainConfig
from sublayer.errors import Interrupted, TrainingError
from sublayer.machine import wait_for
from sublayer.train.allocator import release_freed_memory
from sublayer.train.interrupt import InterruptWatch
from sublayer.train.metrics import MetricsLog
from sublayer.train.pace import N_CHECKED, Clock, PaceChanged, has_changed
from sublayer.train.progress import Progress, Status
from sublayer.train.snapshot import LoopState, Snapshots
from sublayer.train.step import TrainStep, resolved

_LONG_S = 10.0
"""After so long an evaluation is said to be under way, where lines of progress come every ten seconds."""


@dataclass(frozen=True)
class Evaluate:
    """An evaluation and the names of what it gives; the loss, and what chooses the best checkpoint, are of them."""

    score: Callable[[], Mapping[str, Any]]
    names: tuple[str, ...]


class Loop:
    """Takes a run from the step where it stands to its last."""

    def __init__(
        self,
        config: TrainConfig,
        train_step: TrainStep,
        evaluate: Evaluate,
        snapshots: Snapshots,
        state: LoopState,
        *,
        pace_s: float | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Take what a run is made of; ``pace_s`` is what a step was measured to take, where its length rests on it."""
        self.state = state
        # What was interrupted among the first steps has been saved, and goes on as it began.
        self._pace_s = pace_s if state.step == 0 else None
        self._clock = clock
        self._first_seconds: list[float] = []
        self._say: Say = say_nothing
        self._config = config
        self._train_step = train_step
        self._evaluate = evaluate
        self._snapshots = snapshots
        self._world = train_step.world
        self._steps = resolved(config.steps)
        self._unchecked: list[tuple[int, Tensor, Tensor]] = []
        self._gradient_norm = math.nan
        self._loss = math.nan
        self._valid_loss: float | None = None
        self._saved_step = state.step
        self._began = 0.0

    def run(self, progress: Progress) -> LoopState:
        """Train to the end.

        Raises Interrupted after a signal, saved; TrainingError where the loss or the gradient is not finite; before
        anything is saved, PaceChanged where the first steps show another pace than the expected one.
        """
        self._say = progress.note if self._world.is_main else say_nothing
        with InterruptWatch() as watch, self._open_log() as log:
            self._began = self._clock() - self.state.seconds
            while self.state.step < self._steps:
                begun = self._clock()
                self._take_step()
                seconds = self._clock() - begun
                self.state.step_seconds += seconds
                self._check_pace(seconds)
                self._between_steps(log)
                progress.update(self._status())
                if self._must_stop(watch):
                    self._stop(log)
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
        self.state.tokens += self._train_step.n_tokens(self.state.step)
        self.state.step += 1
        self._unchecked.append((self.state.step, result.loss, result.gradient_norm))

    def _check_pace(self, seconds: float) -> None:
        if self._pace_s is None:
            return
        self._first_seconds.append(seconds)
        # What is evaluated or saved is not taken back, so the comparison comes before.
        if self.state.step == min(N_CHECKED, self._steps, *map(resolved, self._kept_steps())):
            first = self._world.share(self._first_seconds, self._train_step.device)
            if has_changed(first, self._pace_s):
                raise PaceChanged(first, self._pace_s)
            self._pace_s = None

    def _kept_steps(self) -> tuple[int | None, int | None]:
        return self._config.evaluate_steps, self._config.checkpoint_steps

    def _between_steps(self, log: MetricsLog | None) -> None:
        config, is_last = self._config, self.state.step == self._steps
        is_logged, is_evaluated, is_saved = (
            is_last or self.state.step % resolved(every) == 0
            for every in (config.log_steps, config.evaluate_steps, config.checkpoint_steps)
        )
        if is_logged or is_evaluated or is_saved or self._train_step.device.type == "cpu":
            self._check_finite()
        if is_logged:
            self._log_training(log)
            if self._train_step.lengths_vary:
                # What blocks of one shape left does not fit those of the next: without end, holes grow to gigabytes.
                release_freed_memory()
        if is_evaluated:
            # The best weights must outlive the run, so a new best is always saved.
            is_saved = self._log_evaluation(log) or is_saved
        if is_saved:
            self._save(log)

    def _check_finite(self) -> None:
        # The only place of the loop that waits for the device.
        for step, loss, norm in self._unchecked:
            value, self._gradient_norm = float(loss), float(norm)
            self._require_finite("loss", value, step)
            self._require_finite("gradient", self._gradient_norm, step)
            self._loss = value
            self.state.pending_losses.append(value)
        self._unchecked.clear()

    def _require_finite(self, what: str, value: float, step: int) -> None:
        if not math.isfinite(value):
            raise TrainingError(
                f"the {what} is not finite at step {step} of {self._steps}; {self._snapshots.describe_last()}; "
                "a lower optimizer.lr or a longer warm-up may help"
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
        self._require_finite("validation loss", values["loss"], self.state.step)
        self._valid_loss = values["loss"]
        is_best = self.state.best is None or self._is_better(values, self.state.best)
        if is_best:
            self.state.best = {"step": self.state.step, **values}
        self._write(log, "valid", values)
        return is_best

    def _is_better(self, values: Mapping[str, float], best: Mapping[str, float]) -> bool:
        name = self._config.best_by
        return values[name] < best[name] if name == "loss" else values[name] > best[name]

    def _evaluate_once(self) -> dict[str, float]:
        # One process evaluates; the others learn its figures, so that all agree on what is best.
        names = self._evaluate.names
        with announced("evaluating", self._say, _LONG_S):
            found = self._evaluate.score() if self._world.is_main else {}
        values = [found.get(name, math.nan) for name in names]
        values = self._world.share(values, self._train_step.device)
        # What a text is too short for is left out, but for the loss, without which there is no best.
        return {
            name: value for name, value in zip(names, values, strict=True) if name == "loss" or math.isfinite(value)
        }

    def _write(self, log: MetricsLog | None, kind: str, values: Mapping[str, float]) -> None:
        if log is not None:
            where = {"tokens": self.state.tokens, "seconds": round(self._clock() - self._began, 3)}
            log.write(kind, self.state.step, {**values, **where})

    def _save(self, log: MetricsLog | None) -> None:
        if self._saved_step == self.state.step:
            return
        self._saved_step = self.state.step
        if log is not None:
            log.sync()
            self.state.seconds = self._clock() - self._began
            self._snapshots.save(self.state, keep=self._config.keep_checkpoints)
        self._world.wait()

    def _must_stop(self, watch: InterruptWatch) -> bool:
        if self._world.size == 1:
            return watch.requested
        flag = torch.tensor([float(watch.requested)], device=self._train_step.device)
        return bool(self._world.sum(flag) > 0)

    def _stop(self, log: MetricsLog | None) -> None:
        self._check_finite()
        self._save(log)
        raise Interrupted(
            f"interrupted and saved at step {self.state.step} of {self._steps} in {self._snapshots.folder}; "
            "the same command with --resume goes on"
        )

    def _status(self) -> Status:
        tokens_per_s = self.state.tokens / self.state.step_seconds
        return Status(self.state.step, self._steps, self._loss, tokens_per_s, self._valid_loss)
