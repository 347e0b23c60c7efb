"""Activation memory outside the blocks: embeddings, final norm, heads, losses.

Sizes are bytes, per token of what runs on every token.
"""

from sublayer.config.architecture.derived import embedding_width, head_activation, is_factorised
from sublayer.config.architecture.heads import has_head_projection, n_classes
from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.resolved import ResolvedModel
from sublayer.estimate.cost import all_classifiers, trained_on_texts
from sublayer.estimate.micro_batch import FLOAT32_BYTES, MicroBatch
from sublayer.estimate.saved_by_blocks import norm_activations

_ID_BYTES = 8
_SEGMENT_BYTES = {
    "none": 0,
    "second": FLOAT32_BYTES,  # the id as a factor of the one vector
    "both": _ID_BYTES,
}


def embedding_activations(step: MicroBatch) -> int:
    """Sum the bytes that the embedding stage saves of a token.

    These are ids, the norm's input, the dropout's mask and what is projected.
    """
    config = step.config
    width = embedding_width(config)
    total = _ID_BYTES + _SEGMENT_BYTES[config.segments]
    if config.embedding_norm:
        total += norm_activations(config, width)
    if config.dropout_embedding and config.dropout_embedding_of == "sum":
        total += width  # the mask, a byte for each element
    if is_factorised(config):
        total += step.narrow * config.d_embed
    return total


def n_dropped_in_matrix(config: ResolvedModel) -> int:
    """Count the elements of the embedding matrix, where dropout is of them; else 0."""
    if config.dropout_embedding_of == "sum" or not config.dropout_embedding:
        return 0
    positions = config.max_len * embedding_width(config)
    return config.vocab_size * config.d_embed + positions


def final_norm_activations(step: MicroBatch) -> int:
    """Compute the bytes that the final norm saves of a token."""
    if step.config.final_norm == "none":
        return 0
    return norm_activations(step.config)


def final_activations(step: MicroBatch) -> int:
    """Compute the bytes that the final norm and the dropout behind it save of a token."""
    config = step.config
    dropout_mask = config.d_model if config.dropout_final else 0  # a byte for each element
    return final_norm_activations(step) + dropout_mask


def loss_activations(step: MicroBatch) -> int:
    """Sum the bytes that heads save of a micro-batch, and of gradients made by forward passes.

    The loss over the vocabulary computes its gradients beside its value: that of its matrix is as
    large as the matrix, whatever the micro-batch.
    """
    config = step.config
    texts = _n_read_texts(step) * _text_activations(step)
    texts += step.n_read * _span_activations(step)
    if not n_predicted(step):
        return texts
    predictions = n_predicted(step) * _prediction_activations(step)
    n_columns = config.d_embed + (1 if config.head_bias else 0)
    matrix_gradient = FLOAT32_BYTES * n_classes(config) * n_columns
    return predictions + matrix_gradient + texts + _classifier_activations(step)


def _prediction_activations(step: MicroBatch) -> int:
    """Sum the bytes of a position that predicts.

    These are its index, what the head saves, and the gradient of what the output matrix multiplies.
    """
    config = step.config
    total = 0
    if step.objective.gathers_positions:
        total += _ID_BYTES
    if has_head_projection(config):
        total += step.narrow * config.d_model
    if config.head == "transform":
        total += _transform_activations(step)
    gradient_bytes = FLOAT32_BYTES if _has_wide_output(step) else step.narrow
    return total + gradient_bytes * config.d_embed


def _has_wide_output(step: MicroBatch) -> bool:
    """Check whether what the output matrix multiplies is float32 under autocast too.

    Autocast computes layer norms in float32, which linear maps and our other norm narrow.
    """
    config = step.config
    if config.head == "transform":
        return config.norm == "layer"
    return not has_head_projection(config)


def _transform_activations(step: MicroBatch) -> int:
    """Sum the bytes that activation and norm of a transform head save.

    The activation saves its input or its slope, the norm its input.
    """
    config = step.config
    d_embed = step.config.d_embed
    activation = step.narrow * d_embed
    norm = norm_activations(config, d_embed)
    if config.norm == "rms":
        norm = step.narrow * (d_embed + 1)
    # ReLU saves its output, which is the very input of a norm that casts nothing.
    casts_nothing = config.norm == "rms" or step.precision == "float32"
    is_norms_input = config.norm != "none" and casts_nothing
    if head_activation(config) == "relu" and is_norms_input:
        activation = 0
    return activation + norm


def _n_read_texts(step: MicroBatch) -> int:
    return step.sequences if trained_on_texts(step.config, step.objective) else 0


def _text_activations(step: MicroBatch) -> int:
    """Compute the bytes of a text that heads read: its index, its state, the pooled one."""
    n_states = 2 if step.config.pooler == "tanh" else 1
    states = step.narrow * step.config.d_model * n_states
    return _ID_BYTES + states


def _span_activations(step: MicroBatch) -> int:
    """Compute the bytes of a token that heads for spans save."""
    config = step.config
    width = config.d_model
    if config.span_head == "none" or not step.objective.trains("span"):
        return 0
    state = step.narrow * width
    if config.span_head == "independent":
        return state
    norm = norm_activations(config, width)
    if step.precision == "float32" and norm:
        # Its input is what tanh has saved.
        norm -= FLOAT32_BYTES * width
    # The start reads the state, the end it beside the start's, tanh and norm return as much each.
    return 5 * state + norm


def _classifier_activations(step: MicroBatch) -> int:
    """Sum the gradients of training-only classifiers, and the norms of the blocks that predict."""
    config = step.config
    d_model = config.d_model
    vocab_size = config.vocab_size
    state_gradients = FLOAT32_BYTES * n_predicted(step) * d_model
    weight_gradients = FLOAT32_BYTES * vocab_size * (d_model + 1)
    classifier = state_gradients + weight_gradients
    norm_per_token = final_norm_activations(step)
    if norm_per_token and _saves_block_inputs(step):
        # Its input is counted already, as that of the next block.
        norm_per_token -= FLOAT32_BYTES * d_model
    norm = step.n_written * norm_per_token
    predicts_below, _ = step.objective.n_classifiers()
    n_below = config.n_layers - 1 if predicts_below else 0
    n_classifiers = all_classifiers(config, step.objective)
    return n_classifiers * classifier + n_below * norm


def _saves_block_inputs(step: MicroBatch) -> bool:
    """Check whether a block saves the very tensor that the block below it returned."""
    config = step.config
    if POSITIONS[config.positions].adds_before == "every":
        return False
    return step.recomputes or (config.norm_order == "pre" and config.norm != "none")


def n_predicted(step: MicroBatch) -> int:
    """Count the positions of a micro-batch that have a loss over the vocabulary."""
    return step.objective.n_predictions(step.lengths.written) * step.sequences
