"""Families of models in HuggingFace folders, and their selection."""

from collections.abc import Collection, Mapping

from sublayer.config.recipe import ResolvedModel
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.answers import Answers
from sublayer.interop.bert import Albert, Bert
from sublayer.interop.family import Family
from sublayer.interop.foreign_config import Content, format_value
from sublayer.interop.gpt import Gpt1, Gpt2
from sublayer.interop.representable import refused_fields
from sublayer.interop.seq2seq import M2M100, Marian
from sublayer.interop.t5 import T5
from sublayer.tasks.task import Task

_CLASSES: tuple[type[Family], ...] = (Gpt2, Gpt1, Bert, Albert, M2M100, Marian, T5)
"""Of several that can represent a model the first is written."""
FAMILIES: dict[str, Family] = {}
"""By ``model_type``; those that answer also by what, such as ``bert for labels``."""
for _class in _CLASSES:
    FAMILIES[_class.model_type] = _class()
    for _answers in _class.answering:
        FAMILIES[f"{_class.model_type} for {_answers}"] = _class(_answers)
_TELLING = ("positions", "norm_order", "d_embed", "project_embeddings", "share")
"""Fields by which the classes for a kind of model differ."""
_LABELS_OF_TOKENS = "ForTokenClassification"
_WITH_OTHER_HEADS = (
    *("ForSequenceClassification", "ForMultipleChoice", "ForQuestionAnswering"),
    *(_LABELS_OF_TOKENS, "DoubleHeadsModel", "EncoderModel"),
)
"""Endings of classes whose heads, or lack of a stack, other classes of the type do not share."""


def families_of(content: Content) -> dict[Answers, Family]:
    """Find the families of a config.json by its ``model_type``, by their answers.

    Raises CheckpointError where there are none.
    """
    model_type = content.fields.get("model_type")
    families = {f.answers: f for f in FAMILIES.values() if f.model_type == model_type}
    if not families:
        types = dict.fromkeys(repr(family.model_type) for family in FAMILIES.values())
        raise CheckpointError(
            f"{content.file} has model_type = {format_value(model_type)}; "
            f"only {', '.join(types)} can be imported"
        )
    return families


def choose_family(
    families: Mapping[Answers, Family], content: Content, names: Collection[str]
) -> Family:
    """Choose the family of a folder, of those of its type, by the ``names`` of its tensors.

    Labels and choices have the same head: the class in config.json decides, by default labels.
    Raises CheckpointError where that class labels tokens.
    """
    fitting = []
    for answers, family in families.items():
        if answers != "tokens" and any(name.startswith(family.heads[0]) for name in names):
            fitting.append(family)
    if not fitting:
        return families["tokens"]
    named = _class_named(content)
    if named.endswith(_LABELS_OF_TOKENS):
        raise CheckpointError(
            f"{content.file} is of {named:.60}, which labels tokens: only models that label texts "
            "can be imported"
        )
    return next((family for family in fitting if named == family.title), fitting[0])


def describe_class(families: Mapping[Answers, Family], content: Content) -> str | None:
    """Describe a folder's class with an unsupported head; None otherwise."""
    named = _class_named(content)
    titles = [family.title for family in families.values()]
    if named in titles or not named.endswith(_WITH_OTHER_HEADS):
        return None
    return f"{content.file} is of {named:.60}, which cannot be imported"


def _class_named(content: Content) -> str:
    """Return the class named in a config.json, or ""."""
    architectures = content.fields.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else None
    return named if isinstance(named, str) else ""


def family_for(config: ResolvedModel, task: Task | None = None) -> Family:
    """Choose the export family of a resolved config's model; ``task`` is the model's.

    Raises ConfigError for a task that needs more than the class reads, and for a model that no
    class can represent, naming every obstructing field of the nearest one.
    """
    answers: Answers = "tokens"
    if config.span_head != "none":
        answers = "spans"
    elif config.label_outputs:
        answers = "choices" if task is not None and task.kind == "choice" else "labels"
    ranked = []
    for class_ in _CLASSES:
        if class_.always["kind"] != config.kind:
            continue
        model_type = class_.model_type
        family = FAMILIES.get(f"{model_type} for {answers}", FAMILIES[model_type])
        refused = refused_fields(config, family.table)
        names = [field.split()[0] for field in refused]
        is_other = [f"model.{name}" in names for name in _TELLING]
        ranked.append(((is_other, len(refused)), refused, family))
    if not ranked:
        raise ConfigError(
            f"no class can represent model.kind = {config.kind}: it cannot be exported"
        )
    _, refused, family = min(ranked, key=lambda row: row[0])
    if task is not None and (rows := family.describe_unanswered(task)):
        raise ConfigError(
            f"{task.title} is answered from {rows}, and {family.name}ForSequenceClassification "
            "reads one row: the model cannot be exported"
        )
    if refused:
        hint = ""
        if config.label_outputs and refused == ["model.pooler = none"]:
            hint = "; fine-tuned with model.pooler=tanh it can be"
        elif family.answers == "choices" and refused == ["model.head = none"]:
            hint = "; fine-tuned with objective.language_weight=0.5 it can be"
        raise ConfigError(
            f"{family.known_as}'s class cannot represent {', '.join(refused)}: the model cannot be "
            f"exported{hint}"
        )
    return family
