"""What every sub-layer takes: maps to its inner width, and one back to the residual stream."""

from abc import ABC, abstractmethod

from sublayer.config.architecture.block import Entry
from sublayer.config.architecture.stacks import StackShape
from sublayer.config.resolved import ResolvedModel
from sublayer.estimate.micro_batch import FLOAT32_BYTES, MicroBatch


class SublayerEstimate(ABC):
    """Parameters, operations and memory of an entry of a block, its norm and dropout left out.

    The maps to the inner width read the same input, and are stored together where there are
    several. The config is resolved.
    """

    def __init__(self, config: ResolvedModel, entry: Entry) -> None:
        self.config = config
        self.entry = entry

    @property
    @abstractmethod
    def width(self) -> int:
        """Features of what one of the input maps makes."""

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """Count the maps from the residual stream to the inner width."""

    @property
    @abstractmethod
    def n_backward_maps(self) -> int:
        """Count the maps whose gradients exist while its backward pass holds most."""

    @abstractmethod
    def saved(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum the bytes that it saves of a micro-batch, inside and of the memory.

        That is without its input, which is counted with the norm and the dropout around it.
        """

    @abstractmethod
    def n_gradients(self, step: MicroBatch, stack: StackShape) -> int:
        """Count the numbers inside that a backward pass of a micro-batch holds at its most."""

    def n_parameters(self) -> int:
        """Count the parameters of one copy."""
        n_weights = (self.n_inputs + 1) * self.n_matrix
        if not self.config.bias:
            return n_weights
        n_biases = self.n_inputs * self.width + self.config.d_model
        return n_weights + n_biases

    def n_products(self, stack: StackShape, n_tokens: int, n_memory: int) -> int:
        """Count the multiply-adds of an example of ``n_tokens`` in a block.

        ``n_memory`` are the tokens of the memory, which a cross entry attends to.
        """
        return (self.n_inputs + 1) * self.n_matrix * n_tokens

    @property
    def n_matrix(self) -> int:
        """Count the numbers of one map."""
        return self.config.d_model * self.width

    def matrix_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes in which the maps are stored: to the inner width, and back."""
        inwards: tuple[int, ...] = (self.width, self.config.d_model)
        if self.n_inputs > 1:
            inwards = (self.n_inputs, *inwards)
        return inwards, (self.config.d_model, self.width)

    @property
    def n_stacked(self) -> int:
        """Count the numbers of the maps stored together, which autocast casts for every use."""
        if self.n_inputs == 1:
            return 0
        return self.n_inputs * self.n_matrix

    @property
    def n_alone(self) -> int:
        """Count the numbers of the maps that are stored alone."""
        # The map back, and the only one before it.
        n_maps = 1 if self.n_inputs > 1 else 2
        return n_maps * self.n_matrix

    def saved_per_layer(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum the bytes that an executed block saves once, whatever the number of sequences."""
        return 0

    def backward_work(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum the bytes of gradients in its backward pass: inside, of the stream, of weights."""
        # Each gradient is there as computed, narrow, and as added up, in float32.
        number_bytes = FLOAT32_BYTES + step.narrow
        stream = number_bytes * self.config.d_model
        weights = number_bytes * self.n_backward_maps * self.n_matrix
        inside = step.narrow * self.n_gradients(step, stack)
        return step.n_tokens(stack) * stream + inside + weights

    def forward_work(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum the bytes that its forward pass works with, where they may be more than backwards."""
        return 0
