"""A decoder that predicts tokens and chooses: transformers' classes with two heads."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from torch import Tensor

from sublayer.config.resolved import ResolvedModel
from sublayer.interop.answers.classes import Fields
from sublayer.interop.answers.label_fields import with_fields
from sublayer.interop.answers.traversal_tokenizer import read_tokenizer, traversal_files
from sublayer.interop.config_reader import Content
from sublayer.interop.huggingface.class_fields import ClassConfig, harmless
from sublayer.interop.huggingface.family import Family, Oracle, Tensors
from sublayer.interop.huggingface.representable import Table
from sublayer.interop.weight_map import Pair, pair_linear

_ENDING = "DoubleHeadsModel"
_CHOOSES = "multiple_choice_head."
# Any other summary would read other states, or do more with one than a linear map.
_SUMMARY = {
    "summary_type": harmless("cls_index"),
    "summary_use_proj": harmless(True),
    "summary_proj_to_labels": harmless(True),
    "summary_activation": harmless(None, ""),
}


def double_heads(
    base: Family,
    name: str,
    table: Table,
    *,
    read: Callable[[ClassConfig, Fields], ResolvedModel],
    table_name: str,
) -> Family:
    """Return the family of a decoder with a head for choices beside the one that predicts tokens.

    It reads the state at the place that its caller tells, or at a row's last one. ``name`` is what
    its classes' begin with, ``read`` reads its config, and ``table_name`` names the embedding
    matrix.
    """
    (output,) = base.heads
    title = name + _ENDING
    return replace(
        base,
        title=title,
        answers="choices",
        table=table,
        fields=with_fields(base.fields, _SUMMARY),
        heads=(_CHOOSES, output),
        prepare=partial(_prepare, base, table_name, output),
        read_config=lambda content, weights: read(content, {"label_outputs": 1}),
        write_config=lambda config, tokenizer: {
            **base.write_config(config, tokenizer),
            "architectures": [title],
        },
        tokenizer_files=traversal_files,
        read_tokenizer=read_tokenizer,
        pairs=partial(_pairs, base),
        # Of two that are one, some versions of the class take the output matrix for both.
        copies=lambda config: {output: table_name} if config.tie_embeddings else {},
        oracle=lambda config: Oracle(title, {"logits": "logits", "mc_logits": "choice_logits"}),
    )


def _prepare(
    base: Family, table_name: str, output: str, content: Content, tensors: Tensors
) -> dict[str, Tensor]:
    """Take an output matrix that is the embedding matrix for that, where the file has it alone."""
    weights = dict(tensors)
    if content.flag("tie_word_embeddings") and output in weights and table_name not in weights:
        weights[table_name] = weights.pop(output)
    return base.prepare(content, weights)


def _pairs(base: Family, config: ResolvedModel) -> Iterator[Pair]:
    yield from base.pairs(config)
    yield from pair_linear(f"{_CHOOSES}summary", "label_head")
