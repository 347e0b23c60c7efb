"""Macaron Net's BERT: settings, weights and answers of the encoders of its published code.

Source: Lu et al. 2019 (1906.02762), as released (zhuohan123/macaron-net, ``bert``). Pre-training
saves an encoder with heads for masked tokens and for pairs, fine-tuning one with a head for labels.
"""

from collections.abc import Iterator, Mapping

from torch import Tensor

from sublayer.config.limits import LONGEST_WINDOW, MOST_LABELS, MOST_LAYERS, WIDEST, WIDEST_FFN
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import CheckpointError
from sublayer.interop.answers.folder_task import task_of
from sublayer.interop.answers.label_fields import default_words
from sublayer.interop.config_reader import Content
from sublayer.interop.fairseq.fairseq_config import PAD_ID, is_macaron
from sublayer.interop.fairseq.fairseq_weights import TABLE, drop_copy
from sublayer.interop.seq2seq import translator_weights
from sublayer.interop.values import format_value
from sublayer.interop.weight_map import Pair, pair_linear
from sublayer.tasks.spec import TaskSpec

OUTPUT = "embed_out"
_HEAD, _SEGMENTS, _CLASSIFIER = "mid_layer.", "encoder.embed_segment.weight", "classifier"
_ACTIVATIONS = {"relu": ("relu", "exact"), "gelu": ("gelu", "exact")}
_REFUSED = ("encoder_learned_pos", "no_token_positional_embeddings")
_LONGEST = 384
_BINARY, _CLASSES, _NUMBER = (
    "cross_entropy_classify_binary",
    "cross_entropy_classify",
    "mean_squared_error",
)


def is_bert(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether a checkpoint's tensors are of an encoder that reads segments, alone."""
    return _SEGMENTS in tensors and not any(name.startswith("decoder.") for name in tensors)


def prepare_bert(content: Content, weights: dict[str, Tensor]) -> list[str]:
    """Turn upgraded weights, in place, into those by our conventions; return the copies left out.

    The first segment's vector, which the code pads with, is left out where it is zero; the output
    for pairs is negated: theirs is the logit of a text that follows, ours of one that does not.

    Raises CheckpointError where the output matrix is said to be the embedding matrix and differs.
    """
    table = weights.get(_SEGMENTS)
    if table is None or table.dim() != 2 or len(table) != 2:
        raise CheckpointError(f"{_SEGMENTS} is no table of two segments")
    # The code numbers them from behind: 1 is the first text.
    weights[_SEGMENTS] = table.flip(0) if table[1].any() else table[:1]
    if not _predicts(weights):
        return []
    for name in (f"{_CLASSIFIER}.weight", f"{_CLASSIFIER}.bias"):
        if name in weights:
            weights[name] = -weights[name]
    is_tied = content.flag("share_all_embeddings", False)
    return drop_copy(content, weights, OUTPUT, is_tied=is_tied)


def read_bert_config(
    content: Content, weights: Mapping[str, Tensor], *, has_final_norm: bool
) -> ResolvedModel:
    """Convert the settings of the fork's BERT, or of its classifier, to a resolved config.

    The activation that the code is given reaches the second network of a Macaron block alone: the
    first has ReLU. Its norms may have no parameters, but that of the head for masked tokens.

    Raises CheckpointError, naming the setting, where it is malformed, or asks for what a recipe
    cannot say.
    """
    content.refuse(_REFUSED)
    activation = content.activation("act_fn", "gelu", _ACTIVATIONS)
    ffn = f"ffn:{activation['ffn']}"
    block = ["ffn:relu*0.5", "attention", f"{ffn}*0.5"]
    d_model = content.whole("encoder_embed_dim", most=WIDEST)
    if d_model % 2:
        raise CheckpointError(
            f"{content.file}: encoder_embed_dim = {d_model} is odd: sinusoids come in pairs"
        )
    is_plain = content.flag("no_normalize_affine", False)
    is_pre_norm = content.flag("encoder_normalize_before", False)
    final_norm = "none"
    if is_pre_norm and has_final_norm:
        final_norm = "plain" if is_plain else "affine"
    head = {"head": "transform", "sentence_classes": 1, "tie_embeddings": OUTPUT not in weights}
    if not _predicts(weights):
        n_outputs = content.whole("n_classes", 1, most=MOST_LABELS)
        head = {"head": "none", "label_outputs": n_outputs}
    return content.resolve(
        {
            "kind": "encoder",
            "block": block if is_macaron(content) else ["attention", ffn],
            "n_layers": content.whole("encoder_layers", most=MOST_LAYERS),
            "d_model": d_model,
            "n_heads": content.heads("encoder_attention_heads", "encoder_embed_dim", d_model),
            "d_ff": content.whole("encoder_ffn_embed_dim", most=WIDEST_FFN),
            **activation,
            "norm_order": "pre" if is_pre_norm else "post",
            "norm_affine": not is_plain,
            "norm_eps": 1e-5,
            "final_norm": final_norm,
            "positions": "sinusoidal",
            "sinusoids": "fairseq",
            "first_position": PAD_ID + 1,
            "embedding_scale": "sqrt",
            "segments": "second" if len(weights[_SEGMENTS]) == 1 else "both",
            **head,
            "dropout": content.share("dropout", 0.1),
            "dropout_attention": content.share("attention_dropout", 0.0),
            "dropout_ffn": content.share("relu_dropout", 0.0),
            "init": "kaiming",
            "zero_padding": True,
            "vocab_size": len(weights[TABLE]),
            "max_len": content.whole("max_positions", _LONGEST, most=LONGEST_WINDOW),
        }
    )


def bert_pairs(config: ResolvedModel) -> Iterator[Pair]:
    """Pair the tensors that ``prepare_bert`` left with a model's."""
    yield from translator_weights.pairs(config, table=TABLE, output=OUTPUT)
    yield Pair((_SEGMENTS,), "segment_table.weight")
    if config.head != "none":
        yield from pair_linear(f"{_HEAD}0", "head.projection")
        yield from pair_linear(f"{_HEAD}2", "head.norm")
    yield from pair_linear(
        _CLASSIFIER, "sentence_head" if config.sentence_classes else "label_head"
    )


def bert_task(content: Content, config: ResolvedModel) -> TaskSpec | None:
    """Return what a fine-tuned model answers; None where it was not.

    Labels have no words there. One output is the logit of the second of two labels, or a number
    that is learned on the scale of STS-B, ``(score - 3) / 2``, as its criterion says.

    Raises CheckpointError where the criterion is no one of these.
    """
    n_outputs = config.label_outputs
    if not n_outputs:
        return None
    criterion = content.fields.get("criterion")
    if criterion == _NUMBER and n_outputs == 1:
        return task_of("number", (), config, numbers=(1.0, 5.0))
    if criterion == _BINARY and n_outputs == 1:
        return task_of("classes", default_words(2), config)
    if criterion == _CLASSES and n_outputs > 1:
        return task_of("classes", default_words(n_outputs), config)
    raise CheckpointError(
        f"{content.file}: criterion = {format_value(criterion)} of n_classes = {n_outputs} does "
        f"not say what is answered: it is {_BINARY} or {_NUMBER} of one output, or {_CLASSES}"
    )


def _predicts(weights: Mapping[str, Tensor]) -> bool:
    """Return whether masked tokens are predicted; a fine-tuned model has a head of labels alone."""
    return any(name.startswith((_HEAD, OUTPUT)) for name in weights)
