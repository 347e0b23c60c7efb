"""The families of models that answer tasks, each beside that of the model that predicts tokens."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sublayer.config.resolved import ResolvedModel
from sublayer.errors import CheckpointError
from sublayer.interop.answers.label_fields import label_words, with_fields, with_labels
from sublayer.interop.answers.traversal_tokenizer import (
    padding_id,
    read_tokenizer,
    traversal_files,
)
from sublayer.interop.config_reader import Content
from sublayer.interop.gpt2.score_bias import without_bias
from sublayer.interop.huggingface.class_fields import ClassConfig, ClassFields, Field
from sublayer.interop.huggingface.family import Answers, Family, Oracle, Tensors
from sublayer.interop.huggingface.representable import Table
from sublayer.interop.values import optional, token_id
from sublayer.interop.weight_map import Pair, Zeros

Fields = dict[str, Any]
ReadConfig = Callable[[ClassConfig, Tensors, Fields], ResolvedModel]
"""Takes the fields of the heads, too."""


@dataclass(frozen=True)
class _Class:
    """A kind of class: how its name ends, its head, and what that is compared with of ours."""

    ending: str
    head: str
    outputs: Mapping[str, str]


_CLASSES: dict[Answers, _Class] = {
    "labels": _Class("ForSequenceClassification", "classifier.", {"logits": "label_logits"}),
    "choices": _Class("ForMultipleChoice", "classifier.", {"logits": "choice_logits"}),
    "spans": _Class(
        "ForQuestionAnswering",
        "qa_outputs.",
        {"start_logits": "start_logits", "end_logits": "end_logits"},
    ),
}
_LABELS_OF_TOKENS = "ForTokenClassification"
_WITH_OTHER_HEADS = (
    *(each.ending for each in _CLASSES.values()),
    _LABELS_OF_TOKENS,
    "DoubleHeadsModel",
    "EncoderModel",
)
"""How classes end whose heads, or whose lack of a stack, other classes of the type do not share."""
_SCORE = "score.weight"
_NO_OTHER_HEAD: Fields = {
    "head": "none",
    "softmax": "tokens",
    "head_activation": "ffn",
    "head_bias": False,
    "output_scale": "none",
    "sentence_classes": 0,
}
"""What a model has of the heads that do not answer."""


def choose_family(
    families: Mapping[Answers, Family], content: Content, names: Collection[str]
) -> Family:
    """Choose the family of a folder, of those of its type, by the ``names`` of its tensors.

    Labels and choices have one head: the class that a config.json names decides, of which labels
    are meant where it names neither. Raises CheckpointError where that class labels tokens.
    """
    found = []
    for answers, family in families.items():
        if answers != "tokens" and any(name.startswith(family.heads[0]) for name in names):
            found.append(family)
    if not found:
        return families["tokens"]
    named = _class_named(content)
    if named.endswith(_LABELS_OF_TOKENS):
        raise CheckpointError(
            f"{content.file} is of {named:.60}, which labels tokens: only models that label texts "
            "can be imported"
        )
    for family in found:
        if named == family.title:
            return family
    return found[0]


def describe_class(families: Mapping[Answers, Family], content: Content) -> str | None:
    """Say that a folder is of a class with a head that no family has; None where it is not."""
    named = _class_named(content)
    titles = [family.title for family in families.values()]
    if named in titles or not named.endswith(_WITH_OTHER_HEADS):
        return None
    return f"{content.file} is of {named:.60}, which cannot be imported"


def _class_named(content: Content) -> str:
    """Return the class that a config.json names, or nothing."""
    architectures = content.fields.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else None
    return named if isinstance(named, str) else ""


def encoder_classes(
    base: Family,
    name: str,
    *,
    tables: Mapping[Answers, Table],
    read: ReadConfig,
    write: Callable[..., Fields],
) -> dict[Answers, Family]:
    """Return the families of an encoder that answers.

    ``base`` is that of the same encoder that predicts tokens, ``name`` what its classes' begin
    with, ``tables`` what each of them can represent; ``read`` and ``write`` are of its config.
    """
    return {
        answers: _encoder_class(base, name, answers, table, read, write)
        for answers, table in tables.items()
    }


def decoder_labels(
    base: Family,
    name: str,
    table: Table,
    *,
    read: Callable[[ClassConfig, Fields], ResolvedModel],
    last_norm: Callable[[ResolvedModel], str],
) -> Family:
    """Return the family of a decoder that answers by labels, beside the one that predicts tokens.

    It reads the state of a row's last token that is not the padding. ``name`` is what its classes'
    begin with, ``read`` reads its config, and ``last_norm`` names the norm that its head reads.
    """
    title = name + _CLASSES["labels"].ending
    padding = {"pad_token_id": Field(None, optional(token_id))}
    fields = with_fields(with_labels(base.fields, is_typed=True), padding)
    return replace(
        base,
        title=title,
        answers="labels",
        table=table,
        fields=replace(fields, ids=tuple(padding)),
        heads=(_SCORE,),
        read_config=lambda content, weights: read(
            content, {**_NO_OTHER_HEAD, "label_outputs": len(label_words(content))}
        ),
        required_fields=lambda config: {**base.required_fields(config), **_NO_OTHER_HEAD},
        write_config=lambda config, tokenizer: {
            **base.write_config(config, tokenizer),
            "architectures": [title],
            "pad_token_id": padding_id(tokenizer),
        },
        settle=lambda config, weights: without_bias(weights, last_norm(config), name),
        tokenizer_files=traversal_files,
        read_tokenizer=read_tokenizer,
        pairs=partial(_label_pairs, base),
        oracle=lambda config: Oracle(title, _CLASSES["labels"].outputs),
    )


def _encoder_class(
    base: Family,
    name: str,
    answers: Answers,
    table: Table,
    read: ReadConfig,
    write: Callable[..., Fields],
) -> Family:
    row = _CLASSES[answers]
    title = name + row.ending
    of_spans = answers == "spans"
    left_out = {**_NO_OTHER_HEAD, "pooler": "none"} if of_spans else _NO_OTHER_HEAD
    return replace(
        base,
        title=title,
        answers=answers,
        table=table,
        fields=_fields(base.fields, answers),
        heads=(row.head,),
        # Former versions of transformers wrote a pooler, which a head of spans does not read.
        is_ignored=lambda place: (
            base.is_ignored(place) or (of_spans and place.startswith("pooler."))
        ),
        read_config=lambda content, weights: read(content, weights, _read_head(content, answers)),
        required_fields=lambda config: {**base.required_fields(config), **left_out},
        write_config=partial(write, architecture=title),
        oracle=lambda config: Oracle(title, row.outputs),
    )


def _fields(fields: ClassFields, answers: Answers) -> ClassFields:
    # A class of choices has one output, whatever is said of labels.
    return fields if answers == "choices" else with_labels(fields, is_typed=answers == "labels")


def _read_head(content: ClassConfig, answers: Answers) -> Fields:
    match answers:
        case "labels":
            own: Fields = {"pooler": "tanh", "label_outputs": len(label_words(content))}
        case "choices":
            own = {"pooler": "tanh", "label_outputs": 1}
        case _:
            n_outputs = len(label_words(content))
            if n_outputs != 2:
                raise CheckpointError(
                    f"{content.file}: num_labels = {n_outputs}, and spans have 2, a start and an "
                    "end: leave num_labels and id2label out"
                )
            own = {"pooler": "none", "span_head": "independent"}
    return {**_NO_OTHER_HEAD, **own}


def _label_pairs(base: Family, config: ResolvedModel) -> Iterator[Pair]:
    yield from base.pairs(config)
    yield Pair((_SCORE,), "label_head.weight")
    yield Zeros((), "label_head.bias")
