"""What attention takes, of a sequence to itself and of a decoder to what an encoder read."""

from dataclasses import replace

from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.architecture.stacks import StackShape
from sublayer.estimate.kernel_sizes import BLOCK_ROWS, GRAIN, NARROW_HEAD
from sublayer.estimate.micro_batch import FLOAT32_BYTES, MicroBatch, stack_length
from sublayer.estimate.sublayers.base import SublayerEstimate


class AttentionEstimate(SublayerEstimate):
    """Queries, keys and values, the scores of their pairs, and the map of what they mix."""

    n_inputs = 3
    n_backward_maps = 3

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.config.d_head

    @property
    def width(self) -> int:
        """Features of all heads."""
        return self.config.n_heads * self.d_head

    def n_products(self, stack: StackShape, n_tokens: int, n_memory: int) -> int:
        """Count the multiply-adds of an example: maps, scores and weighted values."""
        maps = super().n_products(stack, n_tokens, n_memory)
        n_pairs = n_tokens**2  # of a query and a key
        scores_and_values = 2 * self.width * n_pairs
        if stack.is_causal:
            scores_and_values //= 2
        return maps + scores_and_values

    def n_products_of_queries(self, n_queries: int, n_keys: int) -> int:
        """Count the multiply-adds of an example: maps on either side, scores, weighted values."""
        query_and_output = 2 * self.n_matrix * n_queries
        key_and_value = 2 * self.n_matrix * n_keys
        scores_and_values = 2 * self.width * n_queries * n_keys
        return query_and_output + key_and_value + scores_and_values

    def saved_of_queries(self, step: MicroBatch, stack: StackShape, n_queries: int) -> int:
        """Sum the bytes of keys and values, and of queries with their input, mix and weights."""
        length = stack_length(stack, step.lengths)
        keys = step.sequences * length * 2 * self.width
        per_query = 2 * self.width + self.config.d_model
        queries = step.sequences * n_queries * per_query
        is_fused = step.device != "cpu"
        few = replace(step, context=n_queries)
        weights = self.saved_weights(few, stack, n_queries * length, is_fused=is_fused)
        return step.narrow * (keys + queries) + weights

    def saved(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum the bytes of queries, keys, values, what the output map reads, and weights."""
        n_projected = self.n_inputs + 1  # queries, keys, values, and the output map's input
        features = step.narrow * n_projected * self.width
        length = stack_length(stack, step.lengths)
        n_seen = _n_causal(length) if stack.is_causal else length**2
        weights = self.saved_weights(step, stack, n_seen, is_fused=self.is_fused(step, stack))
        return step.n_tokens(stack) * features + weights

    def saved_weights(
        self, step: MicroBatch, stack: StackShape, n_seen: int, *, is_fused: bool
    ) -> int:
        """Sum the bytes of an example's ``n_seen`` attention weights, or of their statistics.

        Fused kernels save the log of each query's partition function alone.
        """
        n_heads = self.config.n_heads
        n_tokens = step.n_tokens(stack)
        if is_fused:
            return n_tokens * FLOAT32_BYTES * n_heads
        length = stack_length(stack, step.lengths)
        n_per_token = n_heads * n_seen // length
        return n_tokens * step.narrow * n_per_token

    def saved_per_layer(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum the bytes of cosines and sines that rotate queries and keys.

        In float32 all layers share them.
        """
        is_rotated = POSITIONS[step.config.positions].in_attention == "rotation"
        if not is_rotated or step.precision == "float32":
            return 0
        n_casts = 4  # cosines and sines, of queries and of keys
        n_angles = stack_length(stack, step.lengths) * self.d_head
        return n_casts * step.narrow * n_angles

    def n_gradients(self, step: MicroBatch, stack: StackShape) -> int:
        """Count gradients of queries, keys, values and their mix, and of a block's scores."""
        length = stack_length(stack, step.lengths)
        features = 4 * self.width  # queries, keys, values, their mix
        scores = 0 if self.is_fused(step, stack) else self.scores_per_key(step, length, length)
        return step.n_tokens(stack) * (features + scores)

    def is_fused(self, step: MicroBatch, stack: StackShape) -> bool:
        """Check whether a fused kernel attends, which keeps no weights, as ``attend`` chooses."""
        config = step.config
        is_narrow = self.d_head <= NARROW_HEAD and step.precision == "float32"
        is_plain = stack.is_causal and not (config.dropout_attention or step.keeps_documents_apart)
        is_biased = POSITIONS[config.positions].in_attention == "bias"
        has_no_mask = step.objective.kind in ("causal", "translation")
        on_cpu = is_narrow and is_plain and not is_biased and has_no_mask
        return step.device != "cpu" or on_cpu

    def scores_per_key(self, step: MicroBatch, n_queries: int, n_keys: int) -> int:
        """Count what a backward pass holds of a block's scores, for each key of a micro-batch.

        It goes by ``BLOCK_ROWS`` queries at a time on a CPU; fused kernels hold none.
        """
        config = step.config
        if step.device != "cpu":
            return 0
        # Gradients of weights and scores; under dropout, weights with zeros and without signs too.
        n_arrays = 4 if config.dropout_attention else 2
        n_rows = min(BLOCK_ROWS, n_queries)
        scores = n_arrays * config.n_heads * n_rows
        # As attend_blockwise chooses: sequences one at a time, or all together.
        has_many = config.n_heads * n_queries * n_keys >= GRAIN
        goes_by_sequence = step.precision == "float32" and has_many
        return scores // step.sequences if goes_by_sequence else scores


class CrossAttentionEstimate(AttentionEstimate):
    """The same, with keys and values of the memory, all of which every query sees.

    No position rotates them.
    """

    def n_products(self, stack: StackShape, n_tokens: int, n_memory: int) -> int:
        """Count the multiply-adds of an example: maps on either side, scores, weighted values."""
        return self.n_products_of_queries(n_tokens, n_memory)

    def saved(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum the same bytes, and those of a cast of the memory.

        In float32 all cross entries keep one memory.
        """
        # Queries and what the output map reads; keys and values.
        n_projected = 2 * step.n_tokens(stack) + 2 * step.n_read
        projected = step.narrow * n_projected * self.width
        n_seen = step.lengths.written * step.lengths.read
        weights = self.saved_weights(step, stack, n_seen, is_fused=self.is_fused(step, stack))
        if step.precision == "float32":
            return projected + weights
        memory_cast = step.n_read * step.narrow * step.config.d_model
        return projected + weights + memory_cast

    def is_fused(self, step: MicroBatch, stack: StackShape) -> bool:
        """Check for a GPU: on a CPU a memory is masked, or may be."""
        return step.device != "cpu"

    def saved_per_layer(self, step: MicroBatch, stack: StackShape) -> int:
        """Sum nothing."""
        return 0

    def n_gradients(self, step: MicroBatch, stack: StackShape) -> int:
        """Count the same gradients: of queries and their mix, of keys and values."""
        n_projected = 2 * step.n_tokens(stack) + 2 * step.n_read
        scores = self.scores_per_key(step, step.lengths.written, step.lengths.read)
        return n_projected * self.width + step.n_read * scores


def _n_causal(length: int) -> int:
    """Count the pairs whose weights are kept: causal ones, in blocks below the diagonal."""
    # Blocks begin at the last row: that of number i, from 0, sees all keys but its i * BLOCK_ROWS.
    n_whole, rest = divmod(length, BLOCK_ROWS)
    n_unseen = BLOCK_ROWS * n_whole * (n_whole - 1) // 2  # keys, summed over whole blocks
    n_seen = n_whole * length - n_unseen
    return BLOCK_ROWS * n_seen + rest**2
