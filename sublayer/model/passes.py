"""One forward and backward pass, as far as its memory goes."""

from dataclasses import dataclass
from typing import Literal

from sublayer.config.model import ModelConfig
from sublayer.config.objective import NEXT_TOKEN, ObjectiveConfig

Precision = Literal["float32", "bfloat16"]
DeviceKind = Literal["cpu", "cuda"]

FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass: a micro-batch of ``sequences`` windows of ``context`` tokens on a device.

    ``recomputes`` says that the backward pass runs each block again instead of keeping what it needs of it.
    """

    config: ModelConfig
    sequences: int
    context: int
    precision: Precision
    device: DeviceKind = "cpu"
    objective: ObjectiveConfig = NEXT_TOKEN
    recomputes: bool = False

    @property
    def narrow(self) -> int:
        """Bytes of a number in matrix products."""
        return FLOAT32_BYTES if self.precision == "float32" else 2

    @property
    def n_tokens(self) -> int:
        """Tokens of the micro-batch."""
        return self.sequences * self.context
