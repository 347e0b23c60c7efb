"""What is before and after the blocks keeps for its backward pass: embeddings, the final norm, heads and losses.

Sizes are bytes, per token of what runs on every token.
"""

from sublayer.config.objective import CausalObjective
from sublayer.config.resolve import embedding_width, head_activation, is_factorised
from sublayer.model.cost import all_classifiers, has_head_projection, judges_pairs, n_classifiers, n_predicting, need
from sublayer.model.kept_blocks import norm_kept
from sublayer.model.passes import FLOAT32_BYTES, Pass

_ID_BYTES = 8


def before_kept(step: Pass) -> int:
    """Sum ids and what the embedding stage keeps: its norm's input, the dropout's mask, what is projected."""
    config, width = step.config, embedding_width(step.config)
    segments = {"none": 0, "second": FLOAT32_BYTES, "both": _ID_BYTES}[config.segments]
    norm = norm_kept(config, width) if config.embedding_norm else 0
    mask = width if config.dropout_embedding else 0
    projected = step.narrow * need(config.d_embed) if is_factorised(config) else 0
    return _ID_BYTES + segments + norm + mask + projected


def after_kept(step: Pass) -> int:
    """Give what the final norm keeps."""
    return 0 if step.config.final_norm == "none" else norm_kept(step.config)


def loss_kept(step: Pass) -> int:
    """Sum what heads keep of a micro-batch, and gradients that losses compute in their forward pass."""
    config = step.config
    vocab_size, d_embed = need(config.vocab_size), need(config.d_embed)
    own = n_predicted(step) * _head_row(step) + FLOAT32_BYTES * vocab_size * (d_embed + (1 if config.head_bias else 0))
    return own + _judged_pairs(step) * _pair_row(step) + _classifiers_saved(step)


def _head_row(step: Pass) -> int:
    """Bytes of a place that predicts: the gradient of what is multiplied by the output matrix, the head, the place."""
    config, d_embed = step.config, need(step.config.d_embed)
    place = 0 if isinstance(step.objective, CausalObjective) else _ID_BYTES
    read = step.narrow * config.d_model if has_head_projection(config) else 0
    # Autocast gives layer norms float32, which linear maps and our other norm narrow.
    is_wide = config.norm == "layer" if config.head == "transform" else not has_head_projection(config)
    gradient = (FLOAT32_BYTES if is_wide else step.narrow) * d_embed
    return place + read + (_transform_row(step) if config.head == "transform" else 0) + gradient


def _transform_row(step: Pass) -> int:
    """Bytes that activation and norm of a transform head keep: one saves its input or slope, the other its input."""
    config, d_embed = step.config, need(step.config.d_embed)
    activation = step.narrow * d_embed
    is_shared = config.norm == "rms" or (config.norm == "layer" and step.precision == "float32")
    if head_activation(config) == "relu" and is_shared:
        activation = 0
    norm = step.narrow * (d_embed + 1) if config.norm == "rms" else norm_kept(config, d_embed)
    return activation + norm


def _judged_pairs(step: Pass) -> int:
    return step.sequences if judges_pairs(step.config, step.objective) else 0


def _pair_row(step: Pass) -> int:
    """Bytes of a pair that is judged: its place, its first state, what is pooled of it."""
    return _ID_BYTES + step.narrow * step.config.d_model * (2 if step.config.pooler == "tanh" else 1)


def _classifiers_saved(step: Pass) -> int:
    """Gradients of the training-only classifiers, and the norms of the blocks that predict."""
    config = step.config
    n_all, (below, _) = all_classifiers(config, step.objective), n_classifiers(step.objective)
    width, vocab_size = config.d_model, need(config.vocab_size)
    classifier = FLOAT32_BYTES * (n_predicted(step) * width + vocab_size * (width + 1))
    norm = 0 if config.final_norm == "none" else step.n_tokens * norm_kept(config)
    if norm and _keeps_block_inputs(step):
        norm -= step.n_tokens * FLOAT32_BYTES * width
    return n_all * classifier + (config.n_layers - 1 if below else 0) * norm


def _keeps_block_inputs(step: Pass) -> bool:
    """Whether a block keeps the very tensor that the block below it gave."""
    config = step.config
    is_kept = step.recomputes or (config.norm_order == "pre" and config.norm != "none")
    return is_kept and config.positions != "learned-per-layer"


def n_predicted(step: Pass) -> int:
    """Count the positions of a micro-batch that have a loss."""
    return n_predicting(step.objective, step.context) * step.sequences
