"""Costs of a model and its sub-layers, from its config only, without PyTorch.

Of a sub-layer they are parameters, operations, saved activations and work space; of a model
parameters and floating-point operations, which are tested to equal those of the built module.
Configs are resolved (``sublayer.config.resolve.resolve_model``): no derived field is None.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from sublayer.config.model import POSITIONS, BiasedMap, Entry, Ffn
from sublayer.config.objective import Lengths, ObjectiveTable
from sublayer.config.recipe import NEXT_TOKEN, ResolvedModel
from sublayer.config.stacks import (
    GLOBAL,
    AttentionForm,
    HeadRow,
    StackShape,
    activation_parameters,
    asked_heads,
    attention_forms,
    embedding_width,
    has_bias,
    is_factorised,
    key_heads,
    learned_shares,
    linear_parameters,
    n_copies,
    n_gates,
    n_norms,
    n_rotated,
    norm_parameters,
    stacks,
)
from sublayer.config.train import NOTHING, Frozen
from sublayer.model.kernels.sizes import BLOCK_ROWS, GELU_PART, GRAIN, NARROW_HEAD, SWISH_PART

Precision = Literal["float32", "bfloat16"]
DeviceKind = Literal["cpu", "cuda"]

FLOAT32_BYTES = 4
Forms = tuple[AttentionForm | None, ...]
"""Form of each entry of an executed block, as ``attention_forms`` returns it."""


@dataclass(frozen=True)
class Workload:
    """Forward and backward pass to estimate: a micro-batch of ``sequences`` examples on a device.

    The objective determines an example's lengths from ``context``: those of the encoder's and the
    decoder's side, or that of a single stack.
    """

    config: ResolvedModel
    sequences: int
    context: int
    """Length of an example in tokens, as in ``data.context``."""
    precision: Precision
    """Precision of matrix products; weights and the residual stream are always float32."""
    device: DeviceKind = "cpu"
    objective: ObjectiveTable = NEXT_TOKEN
    recomputes: bool = False
    """Whether the backward pass recomputes each block instead of keeping its activations."""
    keeps_documents_apart: bool = False
    """Whether documents are separated, so that rows differ in their positions."""
    frozen: Frozen = NOTHING
    """Part of the model without gradients."""
    caches_casts: bool = True
    """Whether a matrix that several blocks share is cast to bfloat16 only once."""
    replicas: int = 1
    """Number of replicas that compute the micro-batch together, with gradients of their own."""

    @property
    def narrow(self) -> int:
        """Return the bytes per element of matrix products."""
        return FLOAT32_BYTES if self.precision == "float32" else 2

    @property
    def lengths(self) -> Lengths:
        """Return the lengths of an example's input and output."""
        return self.objective.lengths(self.context)

    @property
    def n_read(self) -> int:
        """Count the micro-batch's input tokens, which are the memory of cross-attention."""
        return self.sequences * self.lengths.read

    @property
    def n_written(self) -> int:
        """Count the micro-batch's tokens in the predicting stack."""
        return self.sequences * self.lengths.written

    def n_tokens(self, stack: StackShape) -> int:
        """Count the micro-batch's tokens in a stack."""
        return self.sequences * stack_length(stack, self.lengths)


def stack_length(stack: StackShape, lengths: Lengths) -> int:
    """Return an example's length in a stack: of its output if the stack ``is_fed``, else input."""
    return lengths.written if stack.is_fed else lengths.read


class SublayerEstimate(ABC):
    """Parameters, operations and memory of a block's entry, without norm and dropout.

    The maps from the residual stream read the same input; consecutive maps of equal width are
    stacked. One map leads back to the stream. The config is resolved.
    """

    inputs: tuple[int, ...]
    """Output features of each map from the residual stream."""
    maps: tuple[BiasedMap, ...]
    """Names of these maps, and of the map back, in ``model.bias``."""
    n_backward: int
    """Number of maps whose gradients exist at the memory peak of the backward pass."""
    form = GLOBAL
    """Form of a self-attention."""

    def __init__(self, config: ResolvedModel, entry: Entry, width: int) -> None:
        """Set the config, the entry and the input features (``width``) of the map back."""
        self.config = config
        self.entry = entry
        self.width = width
        self.n_matrix = config.d_model * width  # elements of the map back

    @abstractmethod
    def saved(self, step: Workload, stack: StackShape) -> int:
        """Sum the bytes saved for a micro-batch: activations inside, and those of the memory.

        The input is excluded, since it is counted with the surrounding norm and dropout.
        """

    @abstractmethod
    def n_gradients(self, step: Workload, stack: StackShape) -> int:
        """Count the elements of gradients inside, at the peak of a micro-batch's backward pass."""

    def n_parameters(self) -> int:
        """Count the parameters of one set of weights."""
        widths = zip((*self.inputs, self.config.d_model), self.maps, strict=True)
        n_biases = sum(width for width, name in widths if has_bias(self.config, name))
        return self.n_stacked + self.n_alone + n_biases

    def n_products(self, stack: StackShape, n_tokens: int, n_memory: int) -> int:
        """Count the multiply-adds of an example of ``n_tokens`` in a block.

        ``n_memory`` counts the tokens of a cross-attention's memory.
        """
        return (self.n_stacked + self.n_alone) * n_tokens

    def matrix_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the stored shapes of the maps: from the residual stream, and back."""
        d_model = self.config.d_model
        shapes: list[tuple[int, ...]] = []
        for width, group in groupby(self.inputs):
            n_maps = len(list(group))
            shapes.append((n_maps, width, d_model) if n_maps > 1 else (width, d_model))
        return *shapes, (d_model, self.width)

    def shapes_by_head(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the maps, those of an attention divided into its heads' parts."""
        return self.matrix_shapes()

    @property
    def n_stacked(self) -> int:
        """Count the elements of stacked maps, which autocast casts at every use."""
        return sum(math.prod(shape) for shape in self.matrix_shapes() if len(shape) > 2)

    @property
    def n_alone(self) -> int:
        """Count the elements of unstacked maps."""
        return sum(math.prod(shape) for shape in self.matrix_shapes() if len(shape) == 2)

    def saved_per_layer(self, step: Workload, stack: StackShape) -> int:
        """Sum the bytes that an executed block saves, whatever the number of sequences."""
        return 0

    def backward_work(self, step: Workload, stack: StackShape) -> int:
        """Sum the bytes of the backward pass's gradients: inside, of the stream, of weights."""
        # Gradients exist as computed, in the narrow type, and as accumulated, in float32.
        number_bytes = FLOAT32_BYTES + step.narrow
        stream = number_bytes * self.config.d_model
        weights = number_bytes * self.n_backward
        inside = step.narrow * self.n_gradients(step, stack)
        return step.n_tokens(stack) * stream + inside + weights

    def forward_work(self, step: Workload, stack: StackShape) -> int:
        """Sum the bytes of forward work space, if it may exceed the backward pass's work space."""
        return 0


class AttentionEstimate(SublayerEstimate):
    """Estimate of an attention: queries, keys, values, scores, gates, and the output map.

    Keys and values of a cross-attention are computed from the memory, which is fully visible, and
    are not rotated; its output has no gates. Learned shares of the first attention's values differ
    by block, and are not counted among the parameters.
    """

    maps: tuple[BiasedMap, ...] = ("query", "key", "value", "output")

    def __init__(self, config: ResolvedModel, entry: Entry) -> None:
        super().__init__(config, entry, config.n_heads * config.d_head)
        self.key_width = key_heads(config) * config.d_head
        self.inputs = (self.width, self.key_width, self.key_width)
        self.n_gates = 0 if self.is_cross else n_gates(config)
        self.n_gated = self.width + self.n_gates if self.n_gates else 0
        """Features saved for the gradient of gates: the attention's output and the gates."""
        mixes_values = config.value_residual != "none" and not self.is_cross
        self.mixed_width = self.key_width if mixes_values else 0
        """Features of values that are mixed with those of the first attention."""
        self.n_backward = sum(self.inputs) * config.d_model

    def n_parameters(self) -> int:
        """Count the parameters of one set of weights: maps, gains of queries and keys, sinks."""
        n_biases = self.n_gates if has_bias(self.config, "gate") else 0
        config, widths = self.config, (self.width, self.key_width)
        if config.qk_norm_over == "head":
            widths = config.d_head, config.d_head
        per_feature = 1 + (config.qk_norm == "layer" and config.norm_bias)
        n_gains = 0 if config.qk_norm == "none" else config.qk_norm_gain * per_feature * sum(widths)
        return super().n_parameters() + n_biases + n_gains + config.sinks * config.n_heads

    @property
    def has_plain_scores(self) -> bool:
        """Check whether no fused kernel computes its scores, so that a GPU holds them as well."""
        return self.config.score_cap != "none" or self.config.sinks

    @property
    def is_cross(self) -> bool:
        """Return whether it is a cross-attention."""
        return self.entry.kind.attends_to == "memory"

    def matrix_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the stored shapes of the maps: from the residual stream, to gates, and back."""
        *inputs, output = super().matrix_shapes()
        gate = [(self.n_gates, self.config.d_model)] if self.n_gates else []
        return *inputs, *gate, output

    def shapes_by_head(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of the heads' parts of all maps, stacked, and that of the gates."""
        d_head, d_model = self.config.d_head, self.config.d_model
        gate = [(self.n_gates, d_model)] if self.n_gates else []
        return ((sum(self.inputs) + self.width) // d_head, d_head, d_model), *gate

    def n_products(self, stack: StackShape, n_tokens: int, n_memory: int) -> int:
        """Count the multiply-adds of an example; a causal query sees half the keys on average.

        With a window it sees as many keys, but fewer at the start of the example.
        """
        if self.is_cross:
            return self.n_products_of_queries(n_tokens, n_memory)
        reach = self.reach(stack, n_tokens)
        n_beyond = n_tokens - 1 - reach
        # Twice the pairs of a query and a key that it does not see.
        unseen = 2 * n_beyond * (n_beyond + 1)
        if stack.is_causal:
            unseen = 2 * n_tokens * n_beyond + (reach + 1) ** 2
        return self.n_products_of_queries(n_tokens, n_tokens) - self.width * unseen

    def reach(self, stack: StackShape, n_tokens: int) -> int:
        """Return the largest distance between a query and a visible key, among ``n_tokens``."""
        reach = None if self.is_cross else self.form.reach(is_causal=stack.is_causal)
        return n_tokens - 1 if reach is None else min(reach, n_tokens - 1)

    def is_local(self, stack: StackShape, n_tokens: int) -> bool:
        """Check whether a window hides keys among ``n_tokens``."""
        return not self.is_cross and self.reach(stack, n_tokens) < n_tokens - 1

    def n_products_of_queries(self, n_queries: int, n_keys: int) -> int:
        """Count the multiply-adds of an example: maps, scores, weighted values."""
        scores_and_values = 2 * self.width * n_queries * n_keys
        n_of_gates = self.n_gates * self.config.d_model
        n_of_keys = 2 * self.key_width * self.config.d_model
        n_of_queries = 2 * self.n_matrix + n_of_gates
        return n_of_queries * n_queries + n_of_keys * n_keys + scores_and_values

    def saved_of_queries(self, step: Workload, stack: StackShape, n_queries: int) -> int:
        """Sum the bytes of keys, values, queries, and the queries' input, output and weights."""
        length, few = stack_length(stack, step.lengths), replace(step, context=n_queries)
        numbers = (2 * self.key_width + self.n_saved_of_values) * length
        numbers += (2 * self.width + self.n_gated + self.config.d_model) * n_queries
        n_seen = n_queries * length
        is_fused = step.device != "cpu" and not self.has_plain_scores
        weights = self.saved_weights(few, stack, n_seen, is_fused=is_fused)
        normed = self.saved_norms(step, step.sequences * n_queries, length)
        return step.narrow * step.sequences * numbers + weights + normed

    def n_keys(self, step: Workload, stack: StackShape) -> int:
        """Count the keys of an example."""
        return step.lengths.read if self.is_cross else stack_length(stack, step.lengths)

    def n_seen(self, step: Workload, stack: StackShape) -> int:
        """Count an example's query-key pairs with saved weights."""
        length = stack_length(stack, step.lengths)
        if step.device != "cpu":
            return length * self.n_keys(step, stack)
        if self.is_local(stack, length):
            reach, n_seen = self.reach(stack, length), 0
            for end in range(length, 0, -BLOCK_ROWS):
                start = max(end - BLOCK_ROWS, 0)
                last = end if stack.is_causal else min(end + reach, length)
                n_seen += (end - start) * (last - max(start - reach, 0))
            return n_seen
        if self.is_cross or not stack.is_causal:
            return length * self.n_keys(step, stack)
        # Causal pairs are computed in blocks of rows, from the last row on: block i, from 0, does
        # not see the last i * BLOCK_ROWS keys.
        n_whole, rest = divmod(length, BLOCK_ROWS)
        n_unseen = BLOCK_ROWS * n_whole * (n_whole - 1) // 2  # keys, summed over whole blocks
        return BLOCK_ROWS * (n_whole * length - n_unseen) + rest**2

    def n_projected(self, step: Workload, stack: StackShape) -> int:
        """Count the elements of queries, keys, values, the output map's input, and of gates."""
        n_keys = step.sequences * self.n_keys(step, stack)
        n_of_queries = (2 * self.width + self.n_gated) * step.n_tokens(stack)
        return n_of_queries + 2 * self.key_width * n_keys

    @property
    def n_saved_of_values(self) -> int:
        """Return the features saved for the gradient of a learned share."""
        return self.mixed_width if self.config.value_residual == "learned" else 0

    def saved(self, step: Workload, stack: StackShape) -> int:
        """Sum the bytes of queries, keys, values, the output map's input, and weights.

        A cross-attention also saves a cast of the memory; in float32 all layers share the memory.
        """
        features = step.narrow * self.n_projected(step, stack)
        n_seen, is_fused = self.n_seen(step, stack), self.is_fused(step, stack)
        n_more = self.n_saved_of_values
        is_rotated = POSITIONS[self.config.positions].in_attention == "rotation"
        if self.mixed_width and is_fused and step.device == "cpu" and not is_rotated:
            n_more += self.width  # the output, of which the output map has a copy by token
        features += step.narrow * n_more * step.n_tokens(stack)
        is_cast = self.is_cross and step.precision != "float32"
        memory_cast = step.n_read * step.narrow * self.config.d_model if is_cast else 0
        normed = self.saved_norms(step, step.n_tokens(stack), self.n_keys(step, stack))
        weights = self.saved_weights(step, stack, n_seen, is_fused=is_fused)
        return features + memory_cast + normed + weights

    def saved_norms(self, step: Workload, n_queries: int, n_keys: int) -> int:
        """Sum the bytes that norms of queries and keys save: their inputs and statistics.

        ``n_queries`` counts those of a micro-batch, ``n_keys`` those of an example. Inputs that are
        not cast are views of a product that also holds the values; a CPU copies the values from it.
        """
        config, kind = self.config, self.config.qk_norm
        if kind == "none":
            return 0
        is_cast = step.narrow < FLOAT32_BYTES and (step.device != "cpu" or kind != "layer")
        number_bytes = FLOAT32_BYTES if is_cast else step.narrow
        n_copies = 1 if is_cast or step.device != "cpu" else 2
        n_keys *= step.sequences
        features = self.width * n_queries + n_copies * self.key_width * n_keys
        n_norms = n_queries + n_keys
        if config.qk_norm_over == "head":
            n_norms = config.n_heads * n_queries + key_heads(config) * n_keys
        statistics = 2 * FLOAT32_BYTES if kind == "layer" else number_bytes
        return number_bytes * features + statistics * n_norms

    def saved_weights(
        self, step: Workload, stack: StackShape, n_seen: int, *, is_fused: bool
    ) -> int:
        """Sum the bytes of an example's ``n_seen`` attention weights, or of their statistics.

        Fused kernels save only the log partition function of each query. Without them, a GPU saves
        the softmax in float32, and in the dtype of products its cast and the tanh of capped scores,
        and with dropout the dropped weights and their mask.
        """
        n_heads = self.config.n_heads
        n_tokens = step.n_tokens(stack)
        if is_fused:
            return n_tokens * FLOAT32_BYTES * n_heads
        length = stack_length(stack, step.lengths)
        n_per_token = n_heads * n_seen // length
        if step.device == "cpu":
            return n_tokens * step.narrow * n_per_token
        n_casts = (step.precision != "float32") + (self.config.score_cap != "none")
        n_bytes = FLOAT32_BYTES + step.narrow * n_casts
        if self.config.dropout_attention:
            n_bytes += FLOAT32_BYTES + 1
        return n_tokens * n_bytes * n_per_token

    def saved_per_layer(self, step: Workload, stack: StackShape) -> int:
        """Sum the bytes of the cosines and sines of rotations; in float32 all layers share them."""
        row = POSITIONS[step.config.positions]
        is_rotated = row.in_attention == "rotation" and self.form.has_positions
        if not is_rotated or self.is_cross or step.precision == "float32":
            return 0
        # Cosines, padded by ones, and sines, of queries and keys.
        d_head = self.config.d_head
        n_angles = 2 * (d_head + n_rotated(self.config, d_head))
        return step.narrow * n_angles * stack_length(stack, step.lengths)

    def n_gradients(self, step: Workload, stack: StackShape) -> int:
        """Count the elements of gradients: of queries, keys, values, output, a block's scores."""
        features = self.n_projected(step, stack) + self.mixed_width * step.n_tokens(stack)
        if self.is_fused(step, stack):
            return features
        n_keys = self.n_keys(step, stack)
        n_queries = stack_length(stack, step.lengths)
        scores = self.scores_per_key(step, n_queries, n_keys)
        if self.is_local(stack, n_queries):
            n_sides = 1 if stack.is_causal else 2
            n_keys = min(n_keys, BLOCK_ROWS + n_sides * self.reach(stack, n_queries))
        return features + step.sequences * n_keys * scores

    def is_fused(self, step: Workload, stack: StackShape) -> bool:
        """Check whether ``attend`` chooses a fused kernel, which saves no attention weights.

        On a CPU it never does for a memory, which may be masked.
        """
        config = self.config
        if self.has_plain_scores:
            return False
        is_narrow = config.d_head <= NARROW_HEAD and step.precision == "float32"
        is_narrow = is_narrow and key_heads(config) == config.n_heads
        is_plain = stack.is_causal and not (config.dropout_attention or step.keeps_documents_apart)
        is_biased = POSITIONS[config.positions].in_attention == "bias" and self.form.has_positions
        has_no_mask = not (step.objective.masks_keys or self.is_cross)
        is_whole = not self.is_local(stack, stack_length(stack, step.lengths))
        on_cpu = is_narrow and is_plain and not is_biased and has_no_mask and is_whole
        return step.device != "cpu" or on_cpu

    def scores_per_key(self, step: Workload, n_queries: int, n_keys: int) -> int:
        """Count the score elements of a block in a backward pass, per key of a micro-batch.

        A CPU computes ``BLOCK_ROWS`` queries at a time; fused kernels hold no scores.
        """
        config = step.config
        if step.device != "cpu":
            # Gradients of weights and scores, both in float32 behind the softmax.
            n_arrays = 2 * FLOAT32_BYTES // step.narrow if self.has_plain_scores else 0
            return n_arrays * config.n_heads * n_queries
        # Gradients of scores; with dropout also the weights after it, with a cap also its slopes.
        n_arrays = 1 + bool(config.dropout_attention) + (config.score_cap != "none")
        scores = n_arrays * config.n_heads * min(BLOCK_ROWS, n_queries)
        # Sequence by sequence or all together, by the rule of attend_blockwise.
        has_many = config.n_heads * n_queries * n_keys >= GRAIN
        goes_by_sequence = step.precision == "float32" and has_many
        return scores // step.sequences if goes_by_sequence else scores


class FeedForwardEstimate(SublayerEstimate):
    """Estimate of a feed-forward network: one map, or two if gated, an activation, the map back."""

    def __init__(self, config: ResolvedModel, entry: Entry) -> None:
        super().__init__(config, entry, config.d_ff)
        assert entry.ffn is not None, "an ffn entry has a variant"
        self.ffn: Ffn = entry.ffn
        self.inputs = (config.d_ff,) * entry.ffn.n_inputs
        maps: list[BiasedMap] = ["ffn"] * (len(self.inputs) + 1)
        self.maps = tuple(maps)
        self.n_backward = 2 * self.n_matrix

    def n_parameters(self) -> int:
        """Count the parameters of one set of weights: maps and activation."""
        return super().n_parameters() + activation_parameters(self.config, self.ffn.activation)

    def saved(self, step: Workload, stack: StackShape) -> int:
        """Sum the bytes saved by activation, product, dropout and output map."""
        dropout = bool(step.config.dropout_ffn)
        if self.ffn.is_gated:
            # Gate and value in one tensor, their product, the activated gate, and GELU's slope.
            n_saved = 3 + (self.ffn.saves != "nothing") + self._has_own_gelu(step)
        else:
            # The output, and the activation's input or, for our GELU, its slope. The output after
            # dropout replaces the output, unless the activation needs both.
            n_saved = 1 + (self.ffn.saves == "input") + (self.ffn.saves == "output" and dropout)
        unit = n_saved * step.narrow + dropout  # the mask's byte
        return step.n_tokens(stack) * unit * self.width

    def n_gradients(self, step: Workload, stack: StackShape) -> int:
        """Count the elements of gradients of hidden units.

        The saved input of the activation is freed before the gradient of that input is allocated.
        """
        has_two = self.ffn.is_gated or self.ffn.saves == "output"
        n_gradients = 2 if has_two else 1
        return step.n_tokens(stack) * n_gradients * self.width

    def backward_work(self, step: Workload, stack: StackShape) -> int:
        """Sum the bytes of gradients, and of the float32 temporaries of our swish."""
        gradients, beta = super().backward_work(step, stack), step.config.swish_beta
        if self.ffn.saves == "output" and not self.ffn.is_gated:
            # The second gradient of hidden units is freed before the input map's gradients exist.
            of_map = (FLOAT32_BYTES + step.narrow) * self.n_matrix
            gradients -= min(of_map, step.narrow * step.n_tokens(stack) * self.width)
        if self.ffn.activation != "swish" or beta == 1.0:
            return gradients
        n_arrays = 2  # the gate, and the derivatives' common factor
        if beta == "learned":
            n_arrays += 1  # their product
        if step.precision == "bfloat16":
            n_arrays += 1  # a float32 copy of the input
        n = step.n_tokens(stack) * self.width
        parts = n_arrays * FLOAT32_BYTES * min(n, SWISH_PART)
        # The gradients of gate and value are separate tensors.
        separate = step.narrow * n if self.ffn.is_gated else 0
        return gradients + max(0, parts - separate)

    def forward_work(self, step: Workload, stack: StackShape) -> int:
        """Sum the bytes of our GELU's forward pass: its input, and float32 temporaries."""
        if not self._has_own_gelu(step):
            return 0
        n = step.n_tokens(stack) * self.width
        # Two work arrays; in bfloat16 also float32 copies of input, value and slope.
        n_arrays = 2 if step.precision == "float32" else 5
        parts = n_arrays * FLOAT32_BYTES * min(n, GELU_PART)
        return step.narrow * n + parts

    def _has_own_gelu(self, step: Workload) -> bool:
        """Check whether the network uses our GELU."""
        is_gelu = self.ffn.activation == "gelu"
        return is_gelu and step.config.gelu == "tanh" and step.device == "cpu"


N_GATES = 4
"""Number of gates, whose maps are stored as one matrix: input, forget, cell and output."""
_SAVED = {"cpu": 16.1, "cuda": 8.0}
"""Elements saved by the kernels per unit and token: gates, cells and outputs; on a CPU they are in
oneDNN's workspace, whose size was measured."""
_GRADIENTS = 8
"""Elements of gradients per unit and token at the peak of the backward pass."""


class LstmEstimate(SublayerEstimate):
    """Estimate of an LSTM layer: two maps to four gates, stored as one matrix each."""

    def __init__(self, config: ResolvedModel, entry: Entry) -> None:
        super().__init__(config, entry, config.d_model)
        self.inputs = (N_GATES * self.width, N_GATES * self.width)
        self.n_backward = sum(self.inputs) * config.d_model

    def n_parameters(self) -> int:
        """Count the parameters of one set of weights: both maps with their biases."""
        return self.n_backward + (sum(self.inputs) if self.config.bias else 0)

    def n_products(self, stack: StackShape, n_tokens: int, n_memory: int) -> int:
        """Count the multiply-adds of an example: the maps of input and state to the gates."""
        return self.n_backward * n_tokens

    def matrix_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the stored shapes of the maps of input and state."""
        return tuple((width, self.config.d_model) for width in self.inputs)

    @property
    def n_alone(self) -> int:
        """Return 0: a CPU does not cast, and a GPU frees its casts by the next call."""
        return 0

    def saved(self, step: Workload, stack: StackShape) -> int:
        """Sum the bytes of gates, cells and outputs, and of the input if it is not cast."""
        numbers = round(_SAVED[step.device] * self.width)
        not_narrowed = (FLOAT32_BYTES - step.narrow) * self.config.d_model
        return step.n_tokens(stack) * (FLOAT32_BYTES * numbers + not_narrowed)

    def n_gradients(self, step: Workload, stack: StackShape) -> int:
        """Count the elements of gradients of gates, inputs and outputs, with time-major copies."""
        return step.n_tokens(stack) * _GRADIENTS * self.width

    def backward_work(self, step: Workload, stack: StackShape) -> int:
        """Sum the bytes of gradients; maps count twice, as computed and as accumulated."""
        return FLOAT32_BYTES * (self.n_gradients(step, stack) + 2 * self.n_backward)


ESTIMATES: dict[str, Callable[[ResolvedModel, Entry], SublayerEstimate]] = {
    "attention": AttentionEstimate,
    "cross": AttentionEstimate,
    "ffn": FeedForwardEstimate,
    "lstm": LstmEstimate,
}
"""Estimate of each kind of sub-layer."""


def estimate_of(
    config: ResolvedModel, entry: Entry, form: AttentionForm | None = None
) -> SublayerEstimate:
    """Return the estimate of an entry of a resolved config, and of the form of an attention."""
    estimate = ESTIMATES[entry.name](config, entry)
    estimate.form = form or GLOBAL
    return estimate


@dataclass(frozen=True)
class Parameters:
    """Parameter counts of a model by part.

    Papers count different parts of an encoder: the last three are None for other models.
    """

    total: int
    """Each parameter once, as saved."""
    training: int
    """``total`` with training-only heads."""
    non_embedding: int
    """``total`` without tables of tokens, positions and segments; an untied output matrix stays."""
    executed: int
    """Shared block weights once per executed block; a tied embedding matrix once."""
    encoder: int | None = None
    """Without pooler and heads."""
    with_pooler: int | None = None
    """Without heads."""
    with_heads: int | None = None
    """All of it."""


def count_parameters(config: ResolvedModel, objective: ObjectiveTable = NEXT_TOKEN) -> Parameters:
    """Count the parameters of the built model, and the training-only ones of an objective.

    Learned slopes and every bias, gain and offset count.
    """
    position_row = POSITIONS[config.positions]
    positions = sum(
        position_row.n_parameters(config, stack.n_layers, embedding_width(config))
        for stack in stacks(config)
        if position_row.in_attention == "nothing" or stack.attends_to_itself
    )
    tables = _token_and_segment_tables(config) + positions
    around_blocks = embedding_parameters(config) + positions
    if config.final_norm == "affine":
        around_blocks += len(stacks(config)) * norm_parameters(config, config.d_model)
    unique = executed = 0
    for stack, entry, n_sets in entry_sets(config):
        size = entry_parameters(config, entry)
        unique += n_sets * size
        executed += stack.n_layers * size
    for stack in stacks(config):
        shares = learned_shares(config, stack)
        unique += len(set(shares))
        executed += len(shares)
        if config.norm_affine and not config.first_norm:
            unique -= norm_parameters(config, config.d_model)
            executed -= norm_parameters(config, config.d_model)
    body = around_blocks + unique
    heads = {name: row.n_parameters(config) for name, row in asked_heads(config).items()}
    pooler = heads.get("pooler", 0)
    total = body + sum(heads.values())
    classifier = config.vocab_size * (config.d_model + 1)
    is_encoder = config.kind == "encoder"
    return Parameters(
        total=total,
        training=total + all_classifiers(config, objective) * classifier,
        non_embedding=total - tables,
        executed=total - unique + executed,
        encoder=body if is_encoder else None,
        with_pooler=body + pooler if is_encoder else None,
        with_heads=total if is_encoder else None,
    )


def all_classifiers(config: ResolvedModel, objective: ObjectiveTable) -> int:
    """Count the training-only classifiers of all executed blocks."""
    below, last = objective.n_classifiers()
    return (config.n_layers - 1) * below + last


def trained_heads(config: ResolvedModel, objective: ObjectiveTable) -> list[HeadRow]:
    """Return the heads with a loss, and the pooler if one of them reads it."""
    heads = asked_heads(config)
    pooler = heads.pop("pooler", None)
    trained = [row for name, row in heads.items() if objective.trains(name)]
    if pooler is not None and any(row.reads == "pooled" for row in trained):
        trained.append(pooler)
    return trained


def n_read_states(config: ResolvedModel, objective: ObjectiveTable, n_tokens: int) -> int:
    """Count the positions of an example with a final state that is read, of ``n_tokens``.

    Queries of the last attention and all later layers are computed only there.
    """
    if not objective.reads_texts_alone():
        return n_tokens
    is_read = any(
        row.reads == "positions" and not row.predicts_tokens
        for row in trained_heads(config, objective)
    )
    return n_tokens if is_read else 1


def flops_per_token(
    config: ResolvedModel, context: int, objective: ObjectiveTable = NEXT_TOKEN
) -> int:
    """Count the floating-point operations of training on one token: three forward passes.

    A backward pass takes two. A multiply-add is two. Counted: every matrix product, at its actual
    width, once per executed block; attention over ``context`` tokens (half of it in a decoder,
    whose queries see half the keys on average; if one state of a text is read, the last attention
    and later layers have only that position); heads with a loss, at predicting positions or once
    per window for heads of texts; losses that stop during the run, by their mean over it. Not
    counted: lookups, biases, norms, activations, softmax, rotations, biases of scores, dropout, the
    optimizer.

    An encoder-decoder's token is one of the target with one of the source. If an objective's
    examples have lengths other than ``context``, a token is ``1 / context`` of an example.
    ``context`` is in tokens. Recomputation is not counted.
    """
    d_model = config.d_model
    d_embed = config.d_embed
    lengths = objective.lengths(context)
    blocks = n_entering = 0
    for stack in stacks(config):
        n_tokens = stack_length(stack, lengths)
        n_entering += n_tokens
        n_read = n_read_states(config, objective, n_tokens)
        *below, last = attention_forms(config, stack)
        for forms, n_blocks in Counter(below).items():
            blocks += n_blocks * _block_products(config, stack, forms, lengths, n_tokens)
        blocks += _block_products(config, stack, last, lengths, n_read)
    projection = d_model * d_embed if is_factorised(config) else 0
    per_prediction = per_example = 0
    for head in trained_heads(config, objective):
        if head.predicts_tokens:
            per_prediction += head.n_products(config)
        else:
            n_read = lengths.read if head.reads == "positions" else 1
            per_example += n_read * head.n_products(config)
    classifier = config.vocab_size * d_model
    classifiers = objective.mean_classifiers(config.n_layers) * classifier
    n_predictions = objective.n_predictions(lengths.written)
    heads = n_predictions * (per_prediction + classifiers) + per_example
    entering = n_entering * projection
    products = blocks / context + entering / context + heads / context
    # Forward and twice as much backward; a multiply-add is two operations.
    return round(3 * 2 * products)


def _block_products(
    config: ResolvedModel, stack: StackShape, forms: Forms, lengths: Lengths, n_read: int
) -> int:
    """Count the multiply-adds of an example in a block with ``n_read`` output states read."""
    n_tokens, total = stack_length(stack, lengths), 0
    last = stack.last_attention
    for index, (entry, form) in enumerate(zip(stack.block, forms, strict=True)):
        estimate = estimate_of(config, entry, form)
        if index in last and n_read < n_tokens and entry.kind.attends_to == "itself":
            assert isinstance(estimate, AttentionEstimate), "an entry that attends to something"
            total += estimate.n_products_of_queries(n_read, n_tokens)
        else:
            n_computed = n_read if last and index >= last.start else n_tokens
            total += estimate.n_products(stack, n_computed, lengths.read)
    return total


def entry_parameters(config: ResolvedModel, entry: Entry) -> int:
    """Count the parameters of one copy of a sub-layer, with its norms."""
    norm = norm_parameters(config, config.d_model) if config.norm_affine else 0
    return sum(n_norms(config, entry)) * norm + estimate_of(config, entry).n_parameters()


def entry_sets(config: ResolvedModel) -> Iterator[tuple[StackShape, Entry, int]]:
    """Yield each entry of each stack's block, with its sets of weights as ``n_copies`` counts."""
    for stack in stacks(config):
        for entry in stack.block:
            yield stack, entry, n_copies(config, stack, entry)


def n_own_parameters(config: ResolvedModel, stack: StackShape) -> int:
    """Count the parameters of a block that it shares with no other."""
    unshared = (entry for entry in stack.block if n_copies(config, stack, entry) == stack.n_layers)
    return sum(entry_parameters(config, entry) for entry in unshared)


def embedding_parameters(config: ResolvedModel) -> int:
    """Count the parameters before the first blocks, except positions."""
    total = _token_and_segment_tables(config)
    if is_factorised(config):
        total += linear_parameters(config, config.d_embed, config.d_model)
    if config.embedding_norm == "affine":
        total += len(stacks(config)) * norm_parameters(config, embedding_width(config))
    return total


def _token_and_segment_tables(config: ResolvedModel) -> int:
    n_rows_of_segments = {"none": 0, "second": 1, "both": 2}[config.segments]
    return config.vocab_size * config.d_embed + n_rows_of_segments * embedding_width(config)
