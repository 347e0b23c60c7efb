"""What a layer of an LSTM takes: the maps of its gates, of its input and of its own output."""

from sublayer.config.architecture.stacks import StackShape
from sublayer.estimate.micro_batch import FLOAT32_BYTES, MicroBatch
from sublayer.estimate.sublayers.base import SublayerEstimate

_GATES = 4
_SAVED = {"cpu": 16.1, "cuda": 8.0}
"""Numbers of each unit and token that the kernels keep: gates, cells and outputs, of a CPU's in
oneDNN's workspace, as measured there."""
_GRADIENTS = 8
"""Likewise while its backward pass holds most."""


class LstmEstimate(SublayerEstimate):
    """Two maps to four gates, which are stored as one matrix each."""

    n_inputs = 1
    n_backward_maps = 2 * _GATES

    @property
    def width(self) -> int:
        """Units of the layer."""
        return self.config.d_model

    def n_parameters(self) -> int:
        """Count the parameters of one copy: both maps, each with biases of its own."""
        n_biases = 2 * _GATES * self.width if self.config.bias else 0
        return 2 * _GATES * self.n_matrix + n_biases

    def n_products(self, stack: StackShape, n_tokens: int, n_memory: int) -> int:
        """Count the multiply-adds of an example: the gates' maps, of input and of output."""
        return 2 * _GATES * self.n_matrix * n_tokens

    def matrix_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes in which the maps are stored: of the input, and of the output."""
        shape = (_GATES * self.width, self.config.d_model)
        return shape, shape

    @property
    def n_alone(self) -> int:
        """Count no casts: a CPU computes it in float32, and a GPU's are gone by the next call."""
        return 0

    def saved(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum the bytes of gates, cells and outputs, and of an input that is not narrowed."""
        numbers = round(_SAVED[step.device] * self.width)
        not_narrowed = (FLOAT32_BYTES - step.narrow) * self.config.d_model
        return step.n_tokens(stack) * (FLOAT32_BYTES * numbers + not_narrowed)

    def n_gradients(self, step: MicroBatch, stack: StackShape) -> int:
        """Count the gradients of gates, inputs and outputs, those with time first among them."""
        return step.n_tokens(stack) * _GRADIENTS * self.width

    def backward_work(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum the bytes of gradients, and of both maps' twice: as computed, and as added up."""
        maps = 2 * self.n_backward_maps * self.n_matrix
        return FLOAT32_BYTES * (self.n_gradients(step, stack) + maps)
