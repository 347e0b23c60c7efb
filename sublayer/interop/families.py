"""The families of models that a HuggingFace folder can hold: how each is read, written and checked."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import is_factorised
from sublayer.data.vocabulary import Tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop import (
    albert_config,
    encoder_config,
    encoder_weights,
    gpt2_config,
    gpt2_weights,
    translator_config,
    translator_weights,
)
from sublayer.interop.class_fields import (
    ALBERT_FIELDS,
    BERT_FIELDS,
    GPT2_FIELDS,
    M2M100_FIELDS,
    MARIAN_FIELDS,
    ClassConfig,
    ClassFields,
)
from sublayer.interop.content import Content
from sublayer.interop.encoder_names import ALBERT, BERT
from sublayer.interop.folder_tokenizer import decoder_files, encoder_files
from sublayer.interop.pairs import Pair
from sublayer.interop.translator_tokenizer import translator_files
from sublayer.interop.values import shown

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Oracle:
    """A class of transformers, and which of our outputs each of its outputs should equal."""

    name: str
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class Family:
    """One family: names of its tensors stand with ``prefix`` except those that begin as ``heads`` do.

    ``fields`` is what its config.json may say, ``is_ignored`` tells the names of tensors that hold no weights.
    ``prepare`` settles what a file may say in several ways, ``read_config`` sees what it left. ``pairs`` and
    ``write_config`` take a config with all of ``written_out``. ``tokenizer_files`` takes a tokenizer and ``max_len``.
    ``copies`` are tensors that a file holds beside those of ``pairs``, and what each is a copy of.
    """

    title: str
    fields: ClassFields
    prefix: str
    heads: tuple[str, ...]
    is_ignored: Callable[[str], bool]
    prepare: Callable[[Content, Tensors], dict[str, Tensor]]
    read_config: Callable[[ClassConfig, Tensors], ModelConfig]
    written_out: Callable[[ModelConfig], dict[str, Any]]
    write_config: Callable[[ModelConfig, Tokenizer | None], dict[str, Any]]
    tokenizer_files: Callable[..., dict[str, bytes]]
    pairs: Callable[[ModelConfig], Iterable[Pair]]
    oracle: Callable[[ModelConfig], Oracle]
    copies: Callable[[ModelConfig], Mapping[str, str]] = lambda config: {}


def family_of(content: Content) -> Family:
    """Find a config.json's family. Raises CheckpointError where it is none of these."""
    name = content.fields.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise CheckpointError(
            f"{content.file} has model_type = {shown(name)}; only {', '.join(map(repr, FAMILIES))} can be imported"
        )
    return FAMILIES[name]


def family_for(config: ModelConfig) -> Family:
    """Choose the family that a model is exported as: GPT-2 for decoders; BERT for encoders, or ALBERT.

    ALBERT is for encoders that share whole blocks or project their embeddings, Marian for translators with post-norm,
    M2M100 for those with pre-norm.

    Raises ConfigError that names every field which no such class can represent.
    """
    if config.kind == "decoder":
        refused, whose = gpt2_config.unrepresentable(config), "GPT-2's class cannot"
    elif config.kind == "encoder-decoder":
        refused, whose = translator_config.unrepresentable(config), "neither M2M100's class nor Marian's can"
    else:
        refused, whose = encoder_config.unrepresentable(config), "neither BERT's class nor ALBERT's can"
    if refused:
        raise ConfigError(f"{whose} represent {', '.join(refused)}: the model cannot be exported")
    if config.kind == "decoder":
        return FAMILIES["gpt2"]
    if config.kind == "encoder-decoder":
        return FAMILIES["marian" if config.norm_order == "post" else "m2m_100"]
    return FAMILIES["albert" if config.share == "all" or is_factorised(config) else "bert"]


def _prepare_albert(content: Content, tensors: Tensors) -> dict[str, Tensor]:
    found = encoder_weights.prepare(content, tensors, ALBERT)
    if (needed := ALBERT.projection + ALBERT.linear[0]) not in found:
        raise CheckpointError(f"the weights lack {needed}")
    encoder_weights.leave_out_identity(found, ALBERT)
    return found


def _read_albert(content: ClassConfig, found: Tensors) -> ModelConfig:
    heads = encoder_weights.find_heads(found, ALBERT)
    has_projection = ALBERT.projection + ALBERT.linear[0] in found
    group = albert_config.group_in_transformers
    return albert_config.read_albert(content, heads, has_projection=has_projection, group=group)


def _encoder_oracle(config: ModelConfig, prefix: str, sentence: str) -> Oracle:
    if config.sentence_classes:
        return Oracle(f"{prefix}ForPreTraining", {"prediction_logits": "logits", sentence: "sentence_logits"})
    return Oracle(f"{prefix}ForMaskedLM", {"logits": "logits"})


_bert_oracle = partial(_encoder_oracle, prefix="Bert", sentence="seq_relationship_logits")
_albert_oracle = partial(_encoder_oracle, prefix="Albert", sentence="sop_logits")


def _translator(title: str, oracle: str, fields: ClassFields, read: Callable[[ClassConfig], ModelConfig]) -> Family:
    return Family(
        title=title,
        fields=fields,
        prefix="model.",
        heads=translator_weights.HEADS,
        is_ignored=translator_weights.is_sinusoids,
        prepare=translator_weights.prepare,
        read_config=lambda content, found: read(content),
        written_out=translator_config.written_out,
        write_config=translator_config.write_config,
        tokenizer_files=translator_files,
        pairs=translator_weights.pairs,
        oracle=lambda config: Oracle(oracle, {"logits": "logits"}),
        copies=translator_weights.copies,
    )


FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        title="GPT-2's language model",
        fields=GPT2_FIELDS,
        prefix="transformer.",
        heads=(gpt2_weights.HEAD,),
        is_ignored=gpt2_weights.is_mask,
        prepare=gpt2_weights.prepare,
        read_config=lambda content, found: gpt2_config.read_config(content),
        written_out=gpt2_config.written_out,
        write_config=gpt2_config.write_config,
        tokenizer_files=decoder_files,
        pairs=gpt2_weights.pairs,
        oracle=lambda config: Oracle("GPT2LMHeadModel", {"logits": "logits"}),
    ),
    "bert": Family(
        title="BERT for pre-training",
        fields=BERT_FIELDS,
        prefix="bert.",
        heads=("cls.",),
        is_ignored=encoder_weights.is_constant,
        prepare=partial(encoder_weights.prepare, names=BERT),
        read_config=lambda content, found: encoder_config.read_bert(content, encoder_weights.find_heads(found, BERT)),
        written_out=encoder_config.written_out,
        write_config=lambda config, tokenizer: encoder_config.write_bert(
            config, tokenizer, architecture=_bert_oracle(config).name
        ),
        tokenizer_files=encoder_files,
        pairs=partial(encoder_weights.pairs, names=BERT),
        oracle=_bert_oracle,
    ),
    "albert": Family(
        title="ALBERT for pre-training",
        fields=ALBERT_FIELDS,
        prefix="albert.",
        heads=("predictions.", "sop_classifier."),
        is_ignored=encoder_weights.is_constant,
        prepare=_prepare_albert,
        read_config=_read_albert,
        written_out=albert_config.written_out,
        write_config=lambda config, tokenizer: albert_config.write_albert(
            config, tokenizer, architecture=_albert_oracle(config).name
        ),
        tokenizer_files=encoder_files,
        pairs=partial(encoder_weights.pairs, names=ALBERT),
        oracle=_albert_oracle,
    ),
    "m2m_100": _translator("M2M100", "M2M100ForConditionalGeneration", M2M100_FIELDS, translator_config.read_m2m100),
    "marian": replace(
        _translator("Marian", "MarianMTModel", MARIAN_FIELDS, translator_config.read_marian),
        is_ignored=lambda name: False,
        prepare=translator_weights.prepare_marian,
    ),
}
