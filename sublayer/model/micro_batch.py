"""A micro-batch as far as its memory goes: lengths, precision, device."""

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

    An example is as long as the objective says for a ``context``: on the encoder's and on the
    decoder's side, or of one length where there is one stack.
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
        """Return the bytes of a number in matrix products."""
        return FLOAT32_BYTES if self.precision == "float32" else 2

    @property
    def lengths(self) -> Lengths:
        """Return the numbers of tokens that an example reads and writes."""
        return self.objective.lengths(self.context)

    @property
    def n_read(self) -> int:
        """Count the tokens that the micro-batch reads: those of the memory of cross entries."""
        return self.sequences * self.lengths.read

    @property
    def n_written(self) -> int:
        """Count the tokens of the micro-batch in the stack that predicts."""
        return self.sequences * self.lengths.written

    def n_tokens(self, stack: StackShape) -> int:
        """Count the tokens of the micro-batch in a stack, in all of its examples."""
        return self.sequences * stack_length(stack, self.lengths)


def stack_length(stack: StackShape, lengths: Lengths) -> int:
    """Return how many tokens of an example a stack has: those written, of one beside an encoder."""
    return lengths.written if stack.is_fed else lengths.read
