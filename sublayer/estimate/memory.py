"""Peak memory of a training step, and operations with its update, from the config only.

Parameters, optimizer states, activations saved by blocks, ends and a full pass, and working memory
of kernels, tensor by tensor as the modules save them; tested against the tensors that autograd
keeps, and against the memory of processes. Configs are resolved. Sizes are bytes, of a micro-batch
or per token if stated; counts are of numbers. Emulated bfloat16, which no run chooses by default,
makes float32 copies that are not counted.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from sublayer.config.model import ACTIVATIONS, POSITIONS, Entry, Role
from sublayer.config.objective import ObjectiveTable
from sublayer.config.optimizers import MuonConfig, OptimizerConfig, Shape
from sublayer.config.recipe import Recipe, ResolvedModel
from sublayer.config.resolve import batch_sequences
from sublayer.config.stacks import (
    HEADS,
    AttentionForm,
    StackShape,
    attention_forms,
    embedding_width,
    has_head_projection,
    has_input_norm,
    head_activation,
    is_factorised,
    key_heads,
    learned_shares,
    n_classes,
    n_frozen_sets,
    n_norms,
    norm_parameters,
    stacks,
)
from sublayer.config.train import NOTHING, Frozen
from sublayer.model.estimates import (
    FLOAT32_BYTES,
    AttentionEstimate,
    Forms,
    Precision,
    Workload,
    all_classifiers,
    count_parameters,
    embedding_parameters,
    entry_parameters,
    entry_sets,
    estimate_of,
    flops_per_token,
    n_own_parameters,
    n_read_states,
    stack_length,
    trained_heads,
)
from sublayer.model.kernels.sizes import (
    CPU_CHUNK_LOGITS,
    CPU_UPDATE_PART,
    GPU_CHUNK_LOGITS,
    GPU_UPDATE_PART,
    LEAST_PRODUCTS,
)

_UPDATE_PART = {"cpu": CPU_UPDATE_PART, "cuda": GPU_UPDATE_PART}
_HOLES: dict[Precision, float] = {"float32": 0.18, "bfloat16": 0.38}
_HOLES_AGAIN: dict[Precision, float] = {"float32": 0.24, "bfloat16": 0.48}
"""Fragmentation: memory held between tensors, as a share of the tensors that move.

Weights and optimizer states do not move. This memory is free, but in pieces too small for the next
tensor; it grows with several passes, where gradients of the first split it. Tests hold the estimate
to within 10 % of a process's memory.
"""
_HOLES_OF_LSTM = 0.15
"""For an LSTM: each layer keeps one large tensor and few small ones."""
_BESIDE_RETURNED: dict[Precision, float] = {"float32": 0.0, "bfloat16": 0.1}
"""For recomputed blocks: their freed memory returns to the system at once."""
_PRODUCTS_BYTES: dict[Precision, int] = {"float32": 14_000_000, "bfloat16": 0}
"""Code and work space of oneDNN on a CPU; in bfloat16 the shares above include it."""
_INDEX_BYTES = 4


def block_activations(
    step: Workload, stack: StackShape, forms: Forms, *, is_last: bool = False
) -> int:
    """Sum the bytes of activations of a micro-batch that one block of a stack saves.

    Casts of stacked weights count, once per block. If only some states of the last block are read,
    sub-layers after its last attention save only these.
    """
    config, length = step.config, stack_length(stack, step.lengths)
    n_read = n_read_states(config, step.objective, length) if is_last else length
    few = replace(step, context=n_read)
    dropout_mask = config.d_model if config.dropout else 0
    total, now = 0, step
    for index, (entry, form) in enumerate(zip(stack.block, forms, strict=True)):
        estimate = estimate_of(config, entry, form)
        total += estimate.saved_per_layer(step, stack)
        if step.precision == "bfloat16":
            # Autocast casts stacked weights anew for every use.
            total += step.narrow * estimate.n_stacked
        if index in stack.last_attention and n_read < length:
            n_before, n_after = n_norms(config, entry)
            n_normed = n_before * step.n_tokens(stack) + n_after * few.n_tokens(stack)
            total += n_normed * norm_activations(config)
            total += few.n_tokens(stack) * dropout_mask
            if isinstance(estimate, AttentionEstimate):
                total += step.n_tokens(stack) * step.narrow * config.d_model
                total += estimate.saved_of_queries(step, stack, n_read)
            else:
                total += few.n_tokens(stack) * step.narrow * config.d_model
                total += estimate.saved(few, stack)
            now = few
        else:
            total += sublayer_activations(now, stack, entry, form)
    return total


def sublayer_activations(
    step: Workload, stack: StackShape, entry: Entry, form: AttentionForm | None = None
) -> int:
    """Sum the bytes of activations of a micro-batch that a sub-layer saves.

    Inputs of its norms and its function, its dropout mask, and tensors saved inside the function.
    """
    config = step.config
    norm = sum(n_norms(config, entry)) * norm_activations(config)
    function_input = step.narrow * config.d_model
    if entry.is_joined and has_input_norm(config) and config.parallel_norm == "separate":
        norm -= FLOAT32_BYTES * config.d_model  # the first norm saves the same input
    elif entry.is_joined and step.precision == "float32":
        function_input = 0  # that of the first function
    dropout_mask = config.d_model if config.dropout else 0  # a byte for each element
    per_token = norm + function_input + dropout_mask
    inside = estimate_of(config, entry, form).saved(step, stack)
    return step.n_tokens(stack) * per_token + inside


def norm_activations(config: ResolvedModel, width: int | None = None) -> int:
    """Compute the bytes that a norm saves of a token: its input and statistics in float32.

    ``width`` is the input width, ``d_model`` if None. Zero without a norm.
    """
    if config.norm == "none":
        return 0
    n_inputs = width or config.d_model
    # Layer norm: mean and inverse deviation; RMS norm: inverse root of the mean square; dynamic
    # tanh: its tanh.
    n_beside = {"layer": 2, "rms": 1}.get(config.norm, n_inputs)
    return FLOAT32_BYTES * (n_inputs + n_beside)


def score_bias(step: Workload, stack: StackShape) -> tuple[int, int, int]:
    """Compute the bytes of a stack's score bias, of its gradient, and of the indices that find it.

    The bias is one tensor for all blocks. CPU kernels do not save it: only the forward pass holds
    it, unless blocks are recomputed. GPU kernels save it, in the dtype of the products. With
    padding or document masking, positions differ by row.

    Of a learned bias each block makes a gradient as large as the bias, and adds it to the sum of
    the blocks above; GPU kernels make one per row, even if all rows share the bias. It has an index
    into its table per query-key pair if positions differ by row, else one per offset, which is
    negligible.
    """
    config, row = step.config, POSITIONS[step.config.positions]
    if row.in_attention != "bias" or not stack.attends_to_itself:
        return 0, 0, 0
    is_padded = step.objective.text != "windows" and not stack.is_causal
    differs_by_row = is_padded or step.keeps_documents_apart
    n_rows = step.sequences if differs_by_row else 1
    n_pairs = n_rows * stack_length(stack, step.lengths) ** 2
    number_bytes = FLOAT32_BYTES if step.device == "cpu" else step.narrow
    one = bias = number_bytes * config.n_heads * n_pairs
    if step.device == "cuda":
        # Each form of attention has a copy with its mask.
        forms = {form for of_block in attention_forms(config, stack) for form in of_block}
        bias *= sum(form is not None and form.has_positions for form in forms)
    if row.n_parameters(config, stack.n_layers, 0) == 0:
        return bias, 0, 0
    n_gradients = step.sequences if step.device == "cuda" and not differs_by_row else 1
    return bias, n_gradients * one, _INDEX_BYTES * n_pairs if differs_by_row else 0


_ID_BYTES = 8
_SEGMENT_BYTES = {
    "none": 0,
    "second": FLOAT32_BYTES,  # the id as a factor of the one vector
    "both": _ID_BYTES,
}


def n_dropped_in_matrix(config: ResolvedModel) -> int:
    """Count the elements of the embedding matrix if dropout is applied to it; else 0."""
    if config.dropout_embedding_of == "sum" or not config.dropout_embedding:
        return 0
    positions = config.max_len * embedding_width(config)
    return config.vocab_size * config.d_embed + positions


def final_norm_activations(step: Workload) -> int:
    """Compute the bytes that the final norm saves of a token."""
    return 0 if step.config.final_norm == "none" else norm_activations(step.config)


def final_activations(step: Workload) -> int:
    """Compute the bytes of a token that the final norm and the dropout after it save."""
    dropout_mask = step.config.d_model if step.config.dropout_final else 0
    return final_norm_activations(step) + dropout_mask


def loss_activations(step: Workload) -> int:
    """Sum the bytes of a micro-batch that heads save, with gradients computed in the forward pass.

    The vocabulary loss computes gradients along with its value; the gradient of its matrix is as
    large as the matrix, whatever the micro-batch.
    """
    config, objective = step.config, step.objective
    state, norm = step.narrow * config.d_model, norm_activations(config)
    span_head = config.span_head if objective.trains("span") else "none"
    span = state if span_head == "independent" else 0
    if span_head not in ("none", "independent"):
        # The start reads the state; the end the state and the start's; tanh and norm return as
        # much. In float32 the norm's input is what tanh has saved.
        is_kept = step.precision == "float32" and norm
        span = 5 * state + norm - (FLOAT32_BYTES * config.d_model if is_kept else 0)
    texts = step.n_read * span
    if any(row.reads != "positions" for row in trained_heads(config, objective)):
        # The index of a text, its state, and the pooled one.
        n_states = 1 if config.pooler == "none" else 2
        texts += step.sequences * (_ID_BYTES + state * n_states)
    if not n_predicted(step):
        return texts
    # Per predicting position: its index, tensors saved by the head, and the gradient of the output
    # matrix's input.
    projects = has_head_projection(config)
    position = _ID_BYTES if objective.gathers_positions else 0
    position += state if projects else 0
    if config.head == "transform":
        # The activation saves its input or its slope, the norm its input. An output that is saved,
        # as ReLU's, is the same tensor as the input of a norm without casts.
        casts_nothing = config.norm in ("rms", "dyt") or step.precision == "float32"
        is_norms_input = config.norm != "none" and casts_nothing
        saved = ACTIVATIONS[head_activation(config)]
        is_counted = saved == "nothing" or (saved == "output" and is_norms_input)
        position += 0 if is_counted else step.narrow * config.d_embed
        if config.norm == "rms":
            position += step.narrow * (config.d_embed + 1)
        elif config.norm == "dyt":
            position += (step.narrow + FLOAT32_BYTES) * config.d_embed
        else:
            position += norm_activations(config, config.d_embed)
    # Autocast computes layer norms in float32, which linear maps and RMS norm narrow.
    is_wide = config.norm in ("layer", "dyt") if config.head == "transform" else not projects
    position += (FLOAT32_BYTES if is_wide else step.narrow) * config.d_embed
    n_columns = config.d_embed + (1 if config.head_bias else 0)
    matrix_gradient = FLOAT32_BYTES * n_classes(config) * n_columns
    predictions = n_predicted(step) * position
    # The gradients of training-only classifiers, and the norms of the blocks that predict.
    state_gradients = FLOAT32_BYTES * n_predicted(step) * config.d_model
    weight_gradients = FLOAT32_BYTES * config.vocab_size * (config.d_model + 1)
    norm_per_token = final_norm_activations(step)
    is_normed_first = has_input_norm(config)
    adds_positions = POSITIONS[config.positions].adds_before == "every"
    if norm_per_token and not adds_positions and (step.recomputes or is_normed_first):
        # Its input is counted already: the next block saves the same tensor.
        norm_per_token -= FLOAT32_BYTES * config.d_model
    predicts_below, _ = objective.n_classifiers()
    n_below = config.n_layers - 1 if predicts_below else 0
    classifiers = all_classifiers(config, objective) * (state_gradients + weight_gradients)
    classifiers += n_below * step.n_written * norm_per_token
    return predictions + matrix_gradient + texts + classifiers


def n_predicted(step: Workload) -> int:
    """Count the positions of a micro-batch with a vocabulary loss."""
    return step.objective.n_predictions(step.lengths.written) * step.sequences


def saved_activations(step: Workload) -> int:
    """Sum the bytes that the forward pass of a micro-batch saves, the loss's gradients included.

    Without the casts of weights that autocast keeps: see ``saved_casts``.
    """
    # The dropout mask of an embedding matrix is kept, a byte per element.
    total = loss_activations(step) + n_dropped_in_matrix(step.config)
    for stack in stacks(step.config):
        total += stack_activations(step, stack)
    return total


def stack_activations(step: Workload, stack: StackShape) -> int:
    """Sum the bytes of a micro-batch that a stack saves, its embedding stage included."""
    config = step.config
    n_read = n_read_states(config, step.objective, stack_length(stack, step.lengths))
    # The embedding stage: ids, norm input, dropout mask and projection input of a token.
    width = embedding_width(config)
    per_token = _ID_BYTES + _SEGMENT_BYTES[config.segments]
    per_token += norm_activations(config, width) if config.embedding_norm != "none" else 0
    is_dropped = config.dropout_embedding and config.dropout_embedding_of == "sum"
    per_token += width if is_dropped else 0  # a byte for each element
    per_token += step.narrow * config.d_embed if is_factorised(config) else 0
    total = step.n_tokens(stack) * per_token
    total += step.sequences * n_read * final_activations(step)
    if step.recomputes:
        stream = FLOAT32_BYTES * config.d_model
        total += stack.n_layers * step.n_tokens(stack) * stream  # only their inputs
        if stack.is_fed:
            total += step.n_read * stream  # the encoder's output is another
        if config.value_residual != "none":
            # The first attention's values are inputs of all blocks after it.
            total += step.n_tokens(stack) * step.narrow * key_heads(config) * config.d_head
    else:
        if not config.first_norm:
            total -= step.n_tokens(stack) * norm_activations(config)
        *below, last = attention_forms(config, stack)
        for forms, n_blocks in Counter(below).items():
            total += n_blocks * block_activations(step, stack, forms)
        total += block_activations(step, stack, last, is_last=True)
    bias, _, index = score_bias(step, stack)
    total += index
    if step.recomputes or step.device == "cuda":
        total += bias
    return total


def saved_casts(step: Workload) -> int:
    """Sum the bytes of casts of unstacked matrices, which autocast keeps through all passes.

    They are freed at the optimizer step. None in float32.
    """
    config = step.config
    if step.precision == "float32":
        return 0
    n_projections = is_factorised(config) + has_head_projection(config)
    n_numbers = n_projections * config.d_model * config.d_embed
    for head in trained_heads(config, step.objective):
        # The output matrix is cast by the loss, in chunks.
        if head is not HEADS["vocabulary"]:
            n_numbers += head.n_products(config)
    for stack, entry, n_sets in entry_sets(config):
        # Matrices that are stored together are cast for every use.
        n_casts = n_sets if step.caches_casts else stack.n_layers
        n_numbers += n_casts * estimate_of(config, entry).n_alone
    return step.narrow * n_numbers


_CHUNK_LOGITS = {"cpu": CPU_CHUNK_LOGITS, "cuda": GPU_CHUNK_LOGITS}


def _blocks_work(step: Workload, stack: StackShape) -> int:
    """Compute the largest working memory of a block's backward pass, less what later ones saved."""
    by_block = attention_forms(step.config, stack)
    found: dict[Forms, int] = {}
    freed = 0
    for forms in reversed(by_block):
        if forms not in found:
            found[forms] = _block_work(step, stack, forms) - freed
        if len(found) == len(set(by_block)):
            break
        freed += block_activations(step, stack, forms)
    return max(found.values())


def _block_work(step: Workload, stack: StackShape, forms: Forms) -> int:
    """Compute the largest working memory of a sub-layer's backward pass, in a stack's last block.

    Gradients of tensors between its matrix products; later sub-layers of the block have freed their
    saved tensors. An embedding matrix with dropout is held for the head during the forward pass; it
    is gone when a block is recomputed.
    """
    dropped = 0 if step.recomputes else FLOAT32_BYTES * n_dropped_in_matrix(step.config)
    _, bias_gradient, _ = score_bias(step, stack)
    beyond_saved = []
    freed = 0
    for entry, form in reversed(list(zip(stack.block, forms, strict=True))):
        estimate = estimate_of(step.config, entry, form)
        forward = dropped + estimate.forward_work(step, stack)
        work = max(estimate.backward_work(step, stack), forward)
        if entry.kind.attends_to == "itself":
            work += bias_gradient
        beyond_saved.append(work - freed)
        freed += sublayer_activations(step, stack, entry, form)
    if stack.n_layers == 1:
        return max(beyond_saved)
    # Blocks below hold the last block's bias gradient besides their own, in place of the tensors
    # that the last one saved.
    above = bias_gradient
    if not step.recomputes:
        above = max(0, above - block_activations(step, stack, forms))
    return max(beyond_saved) + above


def _forward_work(step: Workload) -> int:
    """Compute the working memory of the last attention's forward pass with a bias.

    The bias is held until then. Later sub-layers have not saved anything by then.
    """
    stack = stacks(step.config)[-1]
    bias, _, _ = score_bias(step, stack)
    if step.device == "cuda" or bias == 0:
        return 0
    attending = [n for n, entry in enumerate(stack.block) if entry.kind.attends_to != "nothing"]
    last = max(attending, default=0)
    unsaved = step.n_tokens(stack) * final_activations(step)
    for entry in stack.block[last + 1 :]:
        unsaved += sublayer_activations(step, stack, entry)
    attention = stack.block[last]
    estimate = estimate_of(step.config, attention)
    if not isinstance(estimate, AttentionEstimate):  # a plugin's
        return bias - unsaved
    n_queries = stack_length(stack, step.lengths)
    n_keys = step.lengths.read if attention.kind.attends_to == "memory" else n_queries
    scores = estimate.scores_per_key(step, n_queries, n_keys)
    # The scores become the saved weights; those after dropout are one array of the backward pass's.
    n_arrays = 3 if step.config.score_cap != "none" else 2
    per_token = step.narrow * scores // n_arrays if step.config.dropout_attention else 0
    return bias + step.n_tokens(stack) * per_token - unsaved


@dataclass(frozen=True)
class TrainingMemory:
    """Memory of a training process in bytes, besides the program."""

    weights: int
    """The process's weights, in float32 under either precision, training-only heads included."""
    gradients: int
    """The process's gradients; all gradients if several micro-batches are summed before
    sharding."""
    optimizer: int
    """The process's optimizer states. Adafactor's means, unsharded and negligible, are not
    counted."""
    gathered: int
    """Most gathered weights of other processes, and gradients in transit; 0 for one process."""
    activations: int
    """Tensors saved for the backward pass, casts of weights included, and the largest kernel
    workspace."""
    step: int
    """Peak of all allocations of a step.

    It may be less than the sum of the above: the first backward pass begins without gradients, the
    optimizer step needs no activations.
    """
    building: int
    """Peak while the model is built: if in parts, with one full parameter at a time."""
    evaluating: int
    """Memory with all weights gathered, as in an evaluation, without its activations."""
    total: int
    """The process's memory at the highest peak, with fragmentation and ``saving``."""
    saving: int = 0
    """Copies for a checkpoint written during training; of full copies, only the first process's."""

    def beside_saving(self) -> Self:
        """Return the same memory with checkpoint copies of weights and states."""
        saving = self.weights + self.optimizer
        return replace(self, saving=saving, total=self.total + saving)


@dataclass(frozen=True)
class StepSizes:
    """Bytes of the parts of a step, before any sharding, and its peaks besides these."""

    weights: int
    gradients: int
    states: int
    update: int
    """The optimizer's update, besides states and gradients; of one process, if sharded."""
    in_loss: int
    in_blocks: int
    """At the start of the blocks' backward pass; the loss has freed its saved tensors."""
    last_block: int
    """At the end of the blocks' backward pass, with all gradients; 0 if lower."""

    @property
    def activations(self) -> int:
        """Return the activations at the highest peak of a pass."""
        return max(self.in_loss, self.in_blocks)


def step_sizes(step: Workload, optimizer: OptimizerConfig, *, n_parts: int = 1) -> StepSizes:
    """Compute the parts and peaks of an optimizer step from ``step``, a pass over a micro-batch.

    With parameters sharded over ``n_parts`` processes the update is that of one.
    Frozen parameters have neither gradients nor states; a pass may keep less for them than is
    counted.
    """
    config = step.config
    casts = step.replicas * saved_casts(step)
    saved = saved_activations(step) + casts
    # Working memory of the loss: a chunk of logits, casts, a gradient increment.
    width = n_classes(config)
    n_rows_of_chunk = max(1, _CHUNK_LOGITS[step.device] // width)
    n_logits = width * min(n_predicted(step), n_rows_of_chunk)
    matrix = step.narrow * width * config.d_embed
    loss_work = FLOAT32_BYTES * n_logits + matrix  # softmax in place
    if config.logit_cap != "none":
        loss_work += FLOAT32_BYTES * n_logits  # slopes of the cap
    # The matrix of the product, if not the embedding matrix; the lookup matrix.
    loss_work += FLOAT32_BYTES * n_dropped_in_matrix(config)
    if config.softmax == "all":
        loss_work += FLOAT32_BYTES * width * config.d_embed
    if step.precision != "float32":
        # The product coexists with the logits, and the matrix's cast with its increment.
        loss_work += step.narrow * n_logits + matrix
    in_loss = saved + step.replicas * loss_work
    # The loss has freed its saved tensors before the blocks' backward pass, and saved none during
    # their forward pass.
    held = saved - loss_activations(step)
    if step.recomputes:
        # The first and the last block backwards, both recomputed. Later stacks have freed their
        # saved tensors and have their gradients.
        bias, _, _ = score_bias(step, stacks(config)[0])
        beside = n_dropped_in_matrix(config) + casts + bias
        in_first_blocks = []
        in_last_blocks = []
        for stack in reversed(stacks(config)):
            n_tokens = step.n_tokens(stack)
            one_input = n_tokens * FLOAT32_BYTES * config.d_model
            # A recomputed block; its input, if saved uncast, is counted already.
            block = max(
                block_activations(step, stack, forms) + _block_work(step, stack, forms)
                for forms in set(attention_forms(config, stack))
            )
            if has_input_norm(config) or step.precision == "float32":
                block -= one_input
            in_first_blocks.append(held - n_tokens * final_activations(step) + block)
            # The last block backwards has only its input, and not all gradients yet.
            unmade = FLOAT32_BYTES * n_own_parameters(config, stack)
            if step.precision == "float32":
                # The gradient computed there is the one kept.
                estimates = [estimate_of(config, entry) for entry in stack.block]
                unmade += FLOAT32_BYTES * min(estimate.n_backward for estimate in estimates)
            in_last_blocks.append(one_input + beside + block - unmade)
            held -= stack_activations(step, stack)
        in_blocks, last_block = max(in_first_blocks), max(in_last_blocks)
    else:
        stack = stacks(config)[-1]
        work = max(_blocks_work(step, stack), _forward_work(step))
        n_tokens = stack_length(stack, step.lengths)
        if stack.n_layers > 1 and n_read_states(config, step.objective, n_tokens) < n_tokens:
            # The last block needs less, and has freed it before the backward pass of the block
            # below.
            last = attention_forms(config, stack)[-1]
            work -= block_activations(step, stack, last, is_last=True)
        in_blocks, last_block = held + work, 0
    n_parameters = count_parameters(config, step.objective).training
    n_trained = n_parameters - n_frozen_parameters(config, step.frozen)
    return StepSizes(
        weights=FLOAT32_BYTES * n_parameters,
        gradients=step.replicas * FLOAT32_BYTES * n_trained,
        states=FLOAT32_BYTES * n_states(config, step.objective, optimizer, step.frozen),
        update=update_work(step, optimizer, n_trained, n_parts=n_parts),
        in_loss=in_loss,
        in_blocks=in_blocks,
        last_block=last_block,
    )


def training_memory(step: Workload, optimizer: OptimizerConfig, *, n_passes: int) -> TrainingMemory:
    """Estimate the peak memory of one process with steps of ``n_passes`` equal passes.

    ``step`` is one pass. Later passes hold the gradients of earlier ones.
    """
    sizes = step_sizes(step, optimizer)
    backward = sizes.activations + sizes.gradients
    if n_passes == 1:
        # Gradients exist only from the backward pass on.
        backward = max(sizes.activations, sizes.last_block + sizes.gradients)
    moving = max(backward, sizes.gradients + sizes.update)
    return whole_copy(step, sizes, n_passes, moving=moving)


def whole_copy(
    step: Workload,
    sizes: StepSizes,
    n_passes: int,
    *,
    moving: int,
    gradients: int | None = None,
    kept: int = 0,
) -> TrainingMemory:
    """Add up the memory of a process that keeps all weights and states.

    ``moving`` is the peak of all else; ``gradients`` are by default a step's, and ``kept`` is the
    part that stays with the weights.
    """
    staying = sizes.weights + sizes.states + kept
    return TrainingMemory(
        weights=sizes.weights,
        gradients=sizes.gradients if gradients is None else gradients,
        optimizer=sizes.states,
        gathered=0,
        activations=sizes.activations,
        step=staying + moving,
        building=sizes.weights + kept,
        evaluating=staying,
        total=staying + round((1 + holes(step, n_passes)) * moving) + work_space(step),
    )


def holes(step: Workload, n_passes: int, *, is_returned: bool = False) -> float:
    """Return the fragmentation: free memory between tensors, as a share of the tensors that move.

    ``is_returned``: freed memory returns to the system, as with recomputed blocks.
    """
    if step.device == "cuda":
        return 0.0
    if step.recomputes or is_returned:
        return _BESIDE_RETURNED[step.precision]
    if step.config.kind == "lstm":
        return _HOLES_OF_LSTM
    shares = _HOLES if n_passes == 1 else _HOLES_AGAIN
    return shares[step.precision]


def work_space(step: Workload) -> int:
    """Return the bytes that oneDNN keeps for large products of blocks, beside tensors."""
    config, tokens = step.config, max(map(step.n_tokens, stacks(step.config)))
    is_large = tokens * config.d_model * max(config.d_model, config.d_ff) >= LEAST_PRODUCTS
    is_served = is_large and step.device == "cpu" and config.kind != "lstm"
    return _PRODUCTS_BYTES[step.precision] if is_served else 0


def n_states(
    config: ResolvedModel,
    objective: ObjectiveTable,
    optimizer: OptimizerConfig,
    frozen: Frozen = NOTHING,
) -> int:
    """Count the numbers in the optimizer states of all trained parameters.

    Step counters are negligible and left out. A matrix that ``matrix_shapes`` leaves out counts as
    a vector.
    """
    shapes = matrix_shapes(config, objective, frozen)
    n_left = count_parameters(config, objective).training - n_frozen_parameters(config, frozen)
    total = 0
    for (role, shape), n_matrices in shapes.items():
        states = optimizer.state_shapes(shape, role).values()
        total += n_matrices * sum(math.prod(state) for state in states if state)
        n_left -= n_matrices * math.prod(shape)
    return total + optimizer.states_per_vector * n_left


def matrix_shapes(
    config: ResolvedModel,
    objective: ObjectiveTable,
    frozen: Frozen = NOTHING,
    *,
    by_head: bool = False,
) -> Counter[tuple[Role, Shape]]:
    """Count the matrices that are not frozen by role and stored shape.

    With ``by_head`` the maps of attentions are divided into their heads' parts. Left out: tables of
    positions and segments, heads of tasks, and extra parameters of a table's row without shapes.
    """
    sets = ((entry, n_sets) for _, entry, n_sets in entry_sets(config))
    shapes = _shapes_of_entries(config, sets, by_head=by_head)
    shapes.subtract(_shapes_of_entries(config, _frozen_sets(config, frozen), by_head=by_head))
    d_model, d_embed, heads = config.d_model, config.d_embed, trained_heads(config, objective)
    table = config.vocab_size, d_embed
    shapes["embedding", table] += not frozen.embeddings
    shapes["matrix", (d_model, d_embed)] += is_factorised(config) and not frozen.embeddings
    if HEADS["vocabulary"] in heads:
        shapes["matrix", (d_embed, d_model)] += has_head_projection(config)
    shapes["matrix", (d_model, d_model)] += HEADS["pooler"] in heads
    shapes["matrix", (d_model, 2 * d_model)] += 2 * (HEADS["joint_span"] in heads)
    shapes["head", table] += not config.tie_embeddings
    shapes["head", (config.vocab_size, config.d_model)] += all_classifiers(config, objective)
    return +shapes


def _shapes_of_entries(
    config: ResolvedModel, sets: Iterable[tuple[Entry, int]], *, by_head: bool
) -> Counter[tuple[Role, Shape]]:
    """Count the matrices of block entries by shape, times their number of weight sets."""
    shapes: Counter[tuple[Role, Shape]] = Counter()
    for entry, n_sets in sets:
        estimate = estimate_of(config, entry)
        for shape in estimate.shapes_by_head() if by_head else estimate.matrix_shapes():
            shapes["stacked" if len(shape) > 2 else "matrix", shape] += n_sets
    return shapes


def n_frozen_parameters(config: ResolvedModel, frozen: Frozen) -> int:
    """Count the parameters of the frozen parts, as built."""
    positions = POSITIONS[config.positions]
    total = embedding_parameters(config) if frozen.embeddings else 0
    if frozen.embeddings and positions.has_rows:
        total += len(stacks(config)) * config.max_len * embedding_width(config)
    if frozen.n_layers and positions.adds_before == "every":
        total += (frozen.n_layers - 1) * config.max_len * config.d_model
    for entry, n_sets in _frozen_sets(config, frozen):
        total += n_sets * entry_parameters(config, entry)
    if frozen.n_layers:
        (stack,) = stacks(config)
        total += len(set(learned_shares(config, stack, frozen.n_layers)))
        if config.norm_affine and not config.first_norm:
            total -= norm_parameters(config, config.d_model)
    return total


def _frozen_sets(config: ResolvedModel, frozen: Frozen) -> Iterator[tuple[Entry, int]]:
    """Yield the block entries with their frozen sets of weights."""
    if frozen.n_layers:
        (stack,) = stacks(config)
        yield from zip(stack.block, n_frozen_sets(config, frozen.n_layers), strict=True)


def update_work(
    step: Workload, optimizer: OptimizerConfig, n_trained: int, *, n_parts: int = 1
) -> int:
    """Compute the bytes of an update of ``n_trained`` parameters, besides states."""
    matrices = matrix_shapes(step.config, step.objective)
    n_together = _UPDATE_PART[step.device]
    return FLOAT32_BYTES * optimizer.update_numbers(
        n_trained, matrices, n_together, n_parts=n_parts
    )


def update_flops(
    config: ResolvedModel,
    objective: ObjectiveTable,
    optimizer: OptimizerConfig,
    frozen: Frozen = NOTHING,
) -> int:
    """Count the floating-point operations of an update's matrix products, which Muon alone has."""
    if not isinstance(optimizer, MuonConfig):
        return 0
    shapes = matrix_shapes(config, objective, frozen, by_head=optimizer.muon_unit == "head")
    return 2 * sum(
        n * math.prod(shape[:-2]) * optimizer.update_products(*shape[-2:])
        for (role, shape), n in shapes.items()
        if optimizer.is_orthogonalised(shape, role)
    )


def n_orthogonalised(
    config: ResolvedModel,
    objective: ObjectiveTable,
    optimizer: OptimizerConfig,
    frozen: Frozen = NOTHING,
) -> int:
    """Count the numbers of the maps that Muon orthogonalises, and gathers if they are sharded."""
    return sum(
        n * math.prod(shape)
        for (role, shape), n in matrix_shapes(config, objective, frozen).items()
        if optimizer.is_orthogonalised(shape, role)
    )


def training_flops(recipe: Recipe, model: ResolvedModel) -> int:
    """Count the operations of training on one token, with its share of a step's update."""
    per_token = flops_per_token(model, recipe.data.context, recipe.objective)
    update = update_flops(model, recipe.objective, recipe.optimizer, recipe.init.frozen)
    return per_token + round(update / (batch_sequences(recipe) * recipe.data.context))
