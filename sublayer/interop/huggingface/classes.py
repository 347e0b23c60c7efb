"""The families of models of HuggingFace folders: how each is read, written and checked."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from torch import Tensor

from sublayer.config.architecture.derived import is_factorised
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.answers.classes import (
    Fields,
    decoder_labels,
    encoder_classes,
)
from sublayer.interop.answers.double_heads import double_heads
from sublayer.interop.bert import albert_config, encoder_config, encoder_weights
from sublayer.interop.bert.encoder_fields import ALBERT_FIELDS, BERT_FIELDS
from sublayer.interop.bert.encoder_names import ALBERT, BERT
from sublayer.interop.config_reader import Content
from sublayer.interop.gpt1 import gpt1_config, gpt1_weights
from sublayer.interop.gpt1.gpt1_fields import GPT1_FIELDS
from sublayer.interop.gpt2 import gpt2_config, gpt2_weights
from sublayer.interop.gpt2.gpt2_fields import GPT2_FIELDS
from sublayer.interop.huggingface import class_tables
from sublayer.interop.huggingface.class_fields import ClassConfig, ClassFields
from sublayer.interop.huggingface.family import ANSWERS, Answers, Family, Oracle, Tensors
from sublayer.interop.huggingface.folder_tokenizer import decoder_files, encoder_files
from sublayer.interop.huggingface.representable import Table, refused_fields
from sublayer.interop.seq2seq import translator_config, translator_weights
from sublayer.interop.seq2seq.translator_fields import M2M100_FIELDS, MARIAN_FIELDS
from sublayer.interop.seq2seq.translator_tokenizer import (
    describe_unread,
    read_translators,
    translator_files,
)
from sublayer.interop.t5 import t5_config, t5_tokenizer, t5_weights
from sublayer.interop.t5.t5_fields import T5_FIELDS
from sublayer.interop.values import format_value
from sublayer.tasks.task import Task


def families_of(content: Content) -> dict[Answers, Family]:
    """Find the families of a config.json by its ``model_type``, by what they answer.

    Raises CheckpointError where there are none.
    """
    model_type = content.fields.get("model_type")
    if not isinstance(model_type, str) or model_type not in _OF_TOKENS:
        raise CheckpointError(
            f"{content.file} has model_type = {format_value(model_type)}; "
            f"only {', '.join(map(repr, _OF_TOKENS))} can be imported"
        )
    found: dict[Answers, Family] = {"tokens": FAMILIES[model_type]}
    for answers in ANSWERS:
        if (key := _key(model_type, answers)) in FAMILIES:
            found[answers] = FAMILIES[key]
    return found


def family_for(config: ResolvedModel, task: Task | None = None) -> Family:
    """Choose the family that a resolved config's model is exported as; ``task`` is what it answers.

    Raises ConfigError that names every field which no class of the model's kind can represent.
    """
    name, whose = _class_for(config)
    family = FAMILIES.get(_key(name, _answers(config, task)), FAMILIES[name])
    if refused := refused_fields(config, family.table):
        hint = ""
        if config.label_outputs and refused == ["model.pooler = none"]:
            hint = "; fine-tuned with model.pooler=tanh it can be"
        elif family.answers == "choices" and refused == ["model.head = none"]:
            hint = "; fine-tuned with objective.language_weight=0.5 it can be"
        raise ConfigError(
            f"{whose} represent {', '.join(refused)}: the model cannot be exported{hint}"
        )
    return family


def families_for(config: ResolvedModel) -> dict[Answers, Family]:
    """Find the families that a model might be exported as, by what they answer. Raises as above."""
    name, _ = _class_for(config)
    keys = {answers: _key(name, answers) for answers in ANSWERS}
    return {answers: FAMILIES[key] for answers, key in keys.items() if key in FAMILIES}


def _key(name: str, answers: Answers) -> str:
    return f"{name} for {answers}"


def _answers(config: ResolvedModel, task: Task | None) -> Answers:
    if config.span_head != "none":
        return "spans"
    if config.label_outputs:
        return "choices" if task is not None and task.kind == "choice" else "labels"
    return "tokens"


def _class_for(config: ResolvedModel) -> tuple[str, str]:
    """Return the one class that might represent a model, and the words for all of its kind."""
    match config.kind:
        case "decoder" if config.norm_order == "post":
            return "openai-gpt", "GPT-1's class cannot"
        case "decoder":
            return "gpt2", "GPT-2's class cannot"
        case "encoder":
            is_albert = config.share == "all" or is_factorised(config)
            return "albert" if is_albert else "bert", "neither BERT's class nor ALBERT's can"
        case "encoder-decoder" if config.positions == "relative":
            return "t5", "T5's class cannot"
        case "encoder-decoder":
            is_marian = config.norm_order == "post"
            name = "marian" if is_marian else "m2m_100"
            return name, "neither M2M100's class nor Marian's can"
    raise ConfigError(f"no class can represent model.kind = {config.kind}: it cannot be exported")


def _prepare_albert(content: Content, tensors: Tensors) -> dict[str, Tensor]:
    weights = encoder_weights.prepare(content, tensors, ALBERT)
    projection = ALBERT.projection + ALBERT.linear[0]
    if projection not in weights:
        raise CheckpointError(f"the weights lack {projection}")
    encoder_weights.leave_out_identity(weights, ALBERT)
    return weights


def _read_bert(content: ClassConfig, weights: Tensors, heads: Fields) -> ResolvedModel:
    return encoder_config.read_bert(content, heads)


def _read_albert(content: ClassConfig, weights: Tensors, heads: Fields) -> ResolvedModel:
    has_projection = ALBERT.projection + ALBERT.linear[0] in weights
    return albert_config.read_albert(content, heads, has_projection=has_projection)


def _encoder_oracle(
    config: ResolvedModel, prefix: str, sentence: str, judging: tuple[str, str]
) -> Oracle:
    """Return the class of an encoder by its heads.

    ``sentence`` is what ``ForPreTraining`` calls the logits of pairs; ``judging`` is the ending of
    the class that has no other head, and what it calls them.
    """
    if config.head == "none" and config.sentence_classes:
        ending, logits = judging
        return Oracle(prefix + ending, {logits: "sentence_logits"})
    if config.head == "none":
        pooled = {"pooler_output": "pooled"} if config.pooler == "tanh" else {}
        return Oracle(f"{prefix}Model", {"last_hidden_state": "states", **pooled})
    if config.sentence_classes:
        return Oracle(
            f"{prefix}ForPreTraining", {"prediction_logits": "logits", sentence: "sentence_logits"}
        )
    return Oracle(f"{prefix}ForMaskedLM", {"logits": "logits"})


_bert_oracle = partial(
    _encoder_oracle,
    prefix="Bert",
    sentence="seq_relationship_logits",
    judging=("ForNextSentencePrediction", "logits"),
)
# No class of ALBERT's has that head alone.
_albert_oracle = partial(
    _encoder_oracle,
    prefix="Albert",
    sentence="sop_logits",
    judging=("ForPreTraining", "sop_logits"),
)


def _translator(
    title: str,
    oracle: str,
    table: Table,
    fields: ClassFields,
    read: Callable[[ClassConfig], ResolvedModel],
) -> Family:
    return Family(
        title=title,
        table=table,
        fields=fields,
        prefix="model.",
        heads=translator_weights.HEADS,
        is_ignored=translator_weights.is_sinusoids,
        prepare=translator_weights.prepare,
        read_config=lambda content, weights: read(content),
        required_fields=translator_config.required_fields,
        write_config=translator_config.write_config,
        tokenizer_files=translator_files,
        pairs=translator_weights.pairs,
        oracle=lambda config: Oracle(oracle, {"logits": "logits"}),
        copies=translator_weights.copies,
        read_tokenizer=read_translators,
        describe_unread=describe_unread,
    )


_OF_TOKENS: dict[str, Family] = {
    "gpt2": Family(
        title="GPT-2's language model",
        table=class_tables.GPT2,
        fields=GPT2_FIELDS,
        prefix="transformer.",
        heads=(gpt2_weights.HEAD,),
        is_ignored=gpt2_weights.is_mask,
        prepare=gpt2_weights.prepare,
        read_config=lambda content, weights: gpt2_config.read_config(content, {}),
        required_fields=gpt2_config.required_fields,
        write_config=gpt2_config.write_config,
        tokenizer_files=decoder_files,
        pairs=gpt2_weights.pairs,
        oracle=lambda config: Oracle("GPT2LMHeadModel", {"logits": "logits"}),
    ),
    "openai-gpt": Family(
        title="GPT-1's language model",
        table=class_tables.GPT1,
        fields=GPT1_FIELDS,
        prefix="transformer.",
        heads=(gpt2_weights.HEAD,),
        is_ignored=gpt1_weights.is_constant,
        prepare=gpt1_weights.prepare,
        read_config=lambda content, weights: gpt1_config.read_config(content, {}),
        required_fields=gpt1_config.required_fields,
        write_config=gpt1_config.write_config,
        tokenizer_files=decoder_files,
        pairs=gpt1_weights.pairs,
        oracle=lambda config: Oracle("OpenAIGPTLMHeadModel", {"logits": "logits"}),
    ),
    "bert": Family(
        title="BERT for pre-training",
        table=class_tables.BERT,
        fields=BERT_FIELDS,
        prefix="bert.",
        heads=("cls.",),
        is_ignored=encoder_weights.is_constant,
        prepare=partial(encoder_weights.prepare, names=BERT),
        read_config=lambda content, weights: _read_bert(
            content, weights, encoder_weights.find_heads(weights, BERT)
        ),
        required_fields=encoder_config.required_fields,
        write_config=lambda config, tokenizer: encoder_config.write_bert(
            config, tokenizer, architecture=_bert_oracle(config).name
        ),
        tokenizer_files=encoder_files,
        pairs=partial(encoder_weights.pairs, names=BERT),
        oracle=_bert_oracle,
    ),
    "albert": Family(
        title="ALBERT for pre-training",
        table=class_tables.ALBERT,
        fields=ALBERT_FIELDS,
        prefix="albert.",
        heads=("predictions.", "sop_classifier."),
        is_ignored=encoder_weights.is_constant,
        prepare=_prepare_albert,
        read_config=lambda content, weights: _read_albert(
            content, weights, encoder_weights.find_heads(weights, ALBERT)
        ),
        required_fields=albert_config.required_fields,
        write_config=lambda config, tokenizer: albert_config.write_albert(
            config, tokenizer, architecture=_albert_oracle(config).name
        ),
        tokenizer_files=encoder_files,
        pairs=partial(encoder_weights.pairs, names=ALBERT),
        oracle=_albert_oracle,
    ),
    "m2m_100": _translator(
        "M2M100",
        "M2M100ForConditionalGeneration",
        class_tables.M2M100,
        M2M100_FIELDS,
        translator_config.read_m2m100,
    ),
    "marian": replace(
        _translator(
            "Marian",
            "MarianMTModel",
            class_tables.MARIAN,
            MARIAN_FIELDS,
            translator_config.read_marian,
        ),
        is_ignored=lambda name: False,
        prepare=translator_weights.prepare_marian,
    ),
    "t5": Family(
        title="T5",
        table=class_tables.T5,
        fields=T5_FIELDS,
        prefix="",
        heads=(t5_weights.OUTPUT,),
        is_ignored=t5_weights.is_unused,
        prepare=t5_weights.prepare,
        read_config=t5_config.read_config,
        required_fields=t5_config.required_fields,
        write_config=t5_config.write_config,
        tokenizer_files=t5_tokenizer.write_files,
        pairs=t5_weights.pairs,
        oracle=lambda config: Oracle("T5ForConditionalGeneration", {"logits": "logits"}),
        read_tokenizer=t5_tokenizer.read_tokenizer,
        describe_unread=t5_tokenizer.describe_unread,
    ),
}


def _with_answers(families: Mapping[str, Family]) -> dict[str, Family]:
    """Return families with those of the same models that answer tasks."""
    answering: dict[str, Mapping[Answers, Family]] = {
        "bert": encoder_classes(
            families["bert"],
            "Bert",
            tables=class_tables.BERT_ANSWERS,
            read=_read_bert,
            write=encoder_config.write_bert,
        ),
        "albert": encoder_classes(
            families["albert"],
            "Albert",
            tables=class_tables.ALBERT_ANSWERS,
            read=_read_albert,
            write=albert_config.write_albert,
        ),
        "gpt2": {
            "labels": decoder_labels(
                families["gpt2"],
                "GPT2",
                class_tables.GPT2_LABELS,
                read=gpt2_config.read_config,
                last_norm=gpt2_weights.last_norm,
            )
        },
        "openai-gpt": {
            "labels": decoder_labels(
                families["openai-gpt"],
                "OpenAIGPT",
                class_tables.GPT1_LABELS,
                read=gpt1_config.read_config,
                last_norm=gpt1_weights.last_norm,
            ),
            "choices": double_heads(
                families["openai-gpt"],
                "OpenAIGPT",
                class_tables.GPT1_CHOICES,
                read=gpt1_config.read_config,
                table_name=gpt1_weights.TABLE,
            ),
        },
    }
    found = dict(families)
    for name, by_answers in answering.items():
        for answers, family in by_answers.items():
            found[_key(name, answers)] = family
    return found


FAMILIES: dict[str, Family] = _with_answers(_OF_TOKENS)
"""By ``model_type``; those that answer also by what, such as ``bert for labels``."""
