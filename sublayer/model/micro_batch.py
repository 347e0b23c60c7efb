"""Description of a micro-batch for memory estimates: lengths, precision, device."""

from dataclasses import dataclass
from typing import Literal

from sublayer.config.objective import Lengths, ObjectiveTable
from sublayer.config.recipe import NEXT_TOKEN, ResolvedModel
from sublayer.config.stacks import StackShape
from sublayer.config.train import NOTHING, Frozen

Precision = Literal["float32", "bfloat16"]
DeviceKind = Literal["cpu", "cuda"]

FLOAT32_BYTES = 4


@dataclass(frozen=True)
class MicroBatch:
    """One forward and backward pass: a micro-batch of ``sequences`` examples on a device.

    The objective determines an example's lengths from ``context``: of the encoder's and the
    decoder's side, or of the single stack.
    """

    config: ResolvedModel
    sequences: int
    context: int
    """In tokens, as ``data.context``."""
    precision: Precision
    """Precision of matrix products; weights and the residual stream are float32 under either."""
    device: DeviceKind = "cpu"
    objective: ObjectiveTable = NEXT_TOKEN
    recomputes: bool = False
    """True where the backward pass runs each block again instead of keeping its activations."""
    keeps_documents_apart: bool = False
    """True where each row has positions of its own."""
    frozen: Frozen = NOTHING
    """The part of the model that has no gradient."""
    caches_casts: bool = True
    """True where a matrix that several blocks share is cast to bfloat16 once, not for each."""

    @property
    def narrow(self) -> int:
        """Return the bytes per element in matrix products."""
        return FLOAT32_BYTES if self.precision == "float32" else 2

    @property
    def lengths(self) -> Lengths:
        """Return the lengths of an example's input and output."""
        return self.objective.lengths(self.context)

    @property
    def n_read(self) -> int:
        """Count the micro-batch's input tokens: the memory of cross-attention."""
        return self.sequences * self.lengths.read

    @property
    def n_written(self) -> int:
        """Count the micro-batch's tokens in the predicting stack."""
        return self.sequences * self.lengths.written

    def n_tokens(self, stack: StackShape) -> int:
        """Count the micro-batch's tokens in a stack."""
        return self.sequences * stack_length(stack, self.lengths)


def stack_length(stack: StackShape, lengths: Lengths) -> int:
    """Return an example's length in a stack: of its output if ``is_fed``, else of its input."""
    return lengths.written if stack.is_fed else lengths.read
