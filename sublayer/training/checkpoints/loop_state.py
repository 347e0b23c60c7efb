"""What a run carries from step to step beside weights and optimizer."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class LoopState:
    """What a run carries from step to step beside weights and optimizer."""

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
    """Whether it ended early, as ``train.patience`` says."""
    pending_losses: list[float] = field(default_factory=list)
    """Losses since the last line of metrics.jsonl."""
