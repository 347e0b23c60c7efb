"""What feed-forward networks take, as their rows of the table say."""

from sublayer.config.architecture.derived import learns_beta
from sublayer.config.architecture.feedforward import Ffn
from sublayer.config.architecture.stacks import StackShape
from sublayer.estimate.kernel_sizes import GELU_PART, SWISH_PART
from sublayer.estimate.micro_batch import FLOAT32_BYTES, MicroBatch
from sublayer.estimate.sublayers.base import SublayerEstimate


class FeedForwardEstimate(SublayerEstimate):
    """One map or, where gated, two, an activation, and the map back."""

    n_backward_maps = 2

    @property
    def ffn(self) -> Ffn:
        """The row of its variant."""
        ffn = self.entry.ffn
        assert ffn is not None, "an ffn entry has a variant"
        return ffn

    @property
    def width(self) -> int:
        """Hidden units."""
        return self.config.d_ff

    @property
    def n_inputs(self) -> int:
        """Count the maps before the activation."""
        return self.ffn.n_inputs

    def n_parameters(self) -> int:
        """Count the parameters of one copy: those of the maps, and a swish's learned slope."""
        return super().n_parameters() + learns_beta(self.config, self.ffn.activation)

    def saved(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum the bytes of what activation, product, dropout and the output map save."""
        n_saved = self._n_saved_gated(step) if self.ffn.is_gated else self._n_saved_plain(step)
        unit = n_saved * step.narrow
        if step.config.dropout_ffn:
            unit += 1  # the mask's byte
        return step.n_tokens(stack) * unit * self.width

    def _n_saved_gated(self, step: MicroBatch) -> int:
        """Count the numbers that a hidden unit of a gated network saves."""
        n_saved = 3  # gate and value, which are one tensor, and their product
        if self.ffn.saves != "nothing":
            n_saved += 1  # the activated gate
        if self._has_own_gelu(step):
            n_saved += 1  # its slope
        return n_saved

    def _n_saved_plain(self, step: MicroBatch) -> int:
        """Count the numbers that a hidden unit of a network without gates saves."""
        n_saved = 1  # the output
        if self.ffn.saves == "input":
            n_saved += 1  # the activation's input; of our GELU its slope instead
        if self.ffn.saves == "output" and step.config.dropout_ffn:
            # What is dropped takes the output's place, unless the activation needs that too.
            n_saved += 1
        return n_saved

    def n_gradients(self, step: MicroBatch, stack: StackShape) -> int:
        """Count gradients of hidden units.

        What the activation saved beside its output is free before its input's gradient is made.
        """
        has_two = self.ffn.is_gated or self.ffn.saves == "output"
        n_gradients = 2 if has_two else 1
        return step.n_tokens(stack) * n_gradients * self.width

    def backward_work(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum the bytes of gradients, and of the parts in float32 of our swish."""
        return super().backward_work(step, stack) + self._swish_work(step, stack)

    def forward_work(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum the bytes of our GELU's forward pass: its input, and some parts of it in float32."""
        if not self._has_own_gelu(step):
            return 0
        n = step.n_tokens(stack) * self.width
        # Two arrays of work; of what is narrow wide copies of input, value and slope too.
        n_arrays = 2 if step.precision == "float32" else 5
        parts = n_arrays * FLOAT32_BYTES * min(n, GELU_PART)
        return step.narrow * n + parts

    def _swish_work(self, step: MicroBatch, stack: StackShape) -> int:
        beta = step.config.swish_beta
        if self.ffn.activation != "swish" or beta == 1.0:
            return 0
        n_arrays = 2  # the gate, and what both derivatives share
        if beta == "learned":
            n_arrays += 1  # their product
        if step.precision == "bfloat16":
            n_arrays += 1  # a wide copy of the input
        n = step.n_tokens(stack) * self.width
        parts = n_arrays * FLOAT32_BYTES * min(n, SWISH_PART)
        if not self.ffn.is_gated:
            return parts
        # The gradients of gate and value are not one tensor yet.
        return max(0, parts - step.narrow * n)

    def _has_own_gelu(self, step: MicroBatch) -> bool:
        """Tell whether it has the GELU that is written here."""
        is_gelu = self.ffn.activation == "gelu"
        return is_gelu and step.config.gelu == "tanh" and step.device == "cpu"
