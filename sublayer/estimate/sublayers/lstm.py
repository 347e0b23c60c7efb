"""What a layer of an LSTM takes: the maps of its gates, of its input and of its own output."""

from sublayer.config.architecture.stacks import StackShape
from sublayer.estimate.micro_batch import FLOAT32_BYTES, MicroBatch
from sublayer.estimate.sublayers.base import SublayerEstimate

_GATES = 4
_SAVED = 6
"""Of each unit and token, by the kernels: four gates, the cell, the output."""


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
        """Count the numbers of the maps that are stored alone."""
        return 2 * _GATES * self.n_matrix

    def saved(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum the bytes of gates, cells and outputs."""
        return step.n_tokens(stack) * FLOAT32_BYTES * _SAVED * self.width

    def n_gradients(self, step: MicroBatch, stack: StackShape) -> int:
        """Count the gradients of the gates."""
        return step.n_tokens(stack) * _GATES * self.width
