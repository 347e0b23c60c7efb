"""The families of models of HuggingFace folders, and the choice of one for a folder or a model."""

from collections.abc import Collection, Mapping

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import is_factorised
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.answers import ANSWERS, Answers
from sublayer.interop.bert import Albert, Bert
from sublayer.interop.family import ENDINGS, Family
from sublayer.interop.foreign_config import Content, format_value
from sublayer.interop.gpt import Gpt1, Gpt2
from sublayer.interop.representable import refused_fields
from sublayer.interop.seq2seq import M2M100, Marian
from sublayer.interop.t5 import T5
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Task

_OF_TOKENS: dict[str, Family] = {
    "gpt2": Gpt2(),
    "openai-gpt": Gpt1(),
    "bert": Bert(),
    "albert": Albert(),
    "m2m_100": M2M100(),
    "marian": Marian(),
    "t5": T5(),
}
FAMILIES: dict[str, Family] = {
    **_OF_TOKENS,
    **{f"bert for {answers}": Bert(answers) for answers in ANSWERS},
    **{f"albert for {answers}": Albert(answers) for answers in ANSWERS},
    "gpt2 for labels": Gpt2("labels"),
    "openai-gpt for labels": Gpt1("labels"),
    "openai-gpt for choices": Gpt1("choices"),
}
"""By ``model_type``; those that answer also by what, such as ``bert for labels``."""
_LABELS_OF_TOKENS = "ForTokenClassification"
_WITH_OTHER_HEADS = (*ENDINGS.values(), _LABELS_OF_TOKENS, "DoubleHeadsModel", "EncoderModel")
"""Endings of classes whose heads, or lack of a stack, other classes of the type do not share."""


def families_of(content: Content) -> dict[Answers, Family]:
    """Find the families of a config.json by its ``model_type``, by their answers.

    Raises CheckpointError where there are none.
    """
    model_type = content.fields.get("model_type")
    if not isinstance(model_type, str) or model_type not in _OF_TOKENS:
        raise CheckpointError(
            f"{content.file} has model_type = {format_value(model_type)}; "
            f"only {', '.join(map(repr, _OF_TOKENS))} can be imported"
        )
    return {"tokens": FAMILIES[model_type], **_answering(model_type)}


def _answering(model_type: str) -> dict[Answers, Family]:
    keys = {answers: f"{model_type} for {answers}" for answers in ANSWERS}
    return {answers: FAMILIES[key] for answers, key in keys.items() if key in FAMILIES}


def choose_family(
    families: Mapping[Answers, Family], content: Content, names: Collection[str]
) -> Family:
    """Choose the family of a folder, of those of its type, by the ``names`` of its tensors.

    Labels and choices have one head: the class that a config.json names decides, of which labels
    are meant where it names neither. Raises CheckpointError where that class labels tokens.
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


def family_for(config: ResolvedModel, task: Task | None = None) -> Family:
    """Choose the family that a resolved config's model is exported as; ``task`` is its own.

    Raises ConfigError that names every field which no class of the model's kind can represent.
    """
    name, whose = _class_for(config)
    answers: Answers = "tokens"
    if config.span_head != "none":
        answers = "spans"
    elif config.label_outputs:
        answers = "choices" if task is not None and task.kind == "choice" else "labels"
    family = FAMILIES.get(f"{name} for {answers}", FAMILIES[name])
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


def check_task(spec: TaskSpec, config: ResolvedModel) -> None:
    """Raise ConfigError where a class reads one row, and a task is answered from several."""
    families = _answering(_class_for(config)[0])
    task = spec.tasks[0]
    if spec.format != "traversal" or "labels" not in families:
        return
    if task.kind == "choice" and "choices" not in families:
        rows = "a row for each choice"
    elif task.is_symmetric:
        rows = "both orders of its texts, whose states are added"
    else:
        return
    raise ConfigError(
        f"{task.title} is answered from {rows}, and {families['labels'].title} reads one row: "
        "the model cannot be exported"
    )


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
