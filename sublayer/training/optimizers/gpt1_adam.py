"""Adam as released with GPT-1, whose decay is corrected as its moments are."""

from typing import Any

import torch
from torch import Tensor

from sublayer.training.optimizers.division import Exchanging
from sublayer.training.optimizers.moments import MomentOptimizer, count_steps


class Gpt1Adam(MomentOptimizer):
    """Update ``w`` by ``-lr * c * (m / (sqrt(v) + eps) + weight_decay * w)``.

    ``c = sqrt(1 - beta2^t) / (1 - beta1^t)`` corrects moments for their start at 0, and decay with
    them: by 0.316 at the first update, 0.795 at the thousandth, for betas of 0.9 and 0.999.

    Source: openai/finetune-transformer-lm, ``opt.py``.
    """

    def scale_updates(
        self, updates: list[Tensor], parameters: list[Tensor], group: dict[str, Any]
    ) -> Exchanging[None]:
        """Multiply every update by the correction of its parameter's moments."""
        beta1, beta2 = group["betas"]
        steps = count_steps(self.state, parameters)
        corrections = (1.0 - beta2**steps).sqrt() / (1.0 - beta1**steps)
        torch._foreach_mul_(updates, corrections.unbind())
        yield from ()
