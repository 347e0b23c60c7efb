"""What every objective gives the training loop."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from sublayer.model.transformer import Transformer


class Objective(nn.Module, ABC):
    """A model and the terms of its loss.

    The loss of an optimizer step is the sum over terms of ``weights[term] * total / count``, where totals (nats) and
    counts are summed over all micro-batches and processes. ``counts`` needs only the batch, so the loop knows every
    denominator before the first forward pass, and accumulating over ragged micro-batches equals the large batch.
    """

    weights: Mapping[str, float]
    """The terms of the next forward pass."""
    reported: ClassVar[str]

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def begin(self, step: int, steps: int) -> None:
        """Set the terms and weights of optimizer step ``step`` (0-based) of ``steps``; most do not change."""

    @property
    def stops(self) -> bool:
        """Whether some terms end before the run does, and leave parameters without gradients."""
        return False

    @abstractmethod
    def counts(self, batch: Any) -> dict[str, int]:
        """Count what each term averages over."""

    @abstractmethod
    def forward(self, batch: Any) -> dict[str, Tensor]:
        """Compute each term's total in nats, a scalar each."""

    def training_only(self) -> dict[str, nn.Parameter]:
        """Name the parameters that training needs and the saved model does not."""
        return {name: value for name, value in self.named_parameters() if not name.startswith("model.")}
