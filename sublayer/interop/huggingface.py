"""Import and export of HuggingFace folders: a family chosen, logits compared by a certificate."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from torch import Tensor

from sublayer.config.model import BiasedMap
from sublayer.config.objective import KINDS
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import asked_heads, has_bias
from sublayer.data.tokenizers.settings import CONFIG_NAME
from sublayer.data.tokenizers.subword import SubwordTokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import read_json_object
from sublayer.files.storage import check_paths
from sublayer.interop.certificate import (
    certify,
    certify_tokenizer,
    describe_ids,
    quiet,
    save_exported,
    save_imported,
)
from sublayer.interop.exits import Exported, HubModel
from sublayer.interop.family import (
    CLASSIFICATION,
    NAMED,
    REGRESSION,
    Answers,
    Family,
    Tensors,
    as_labels,
    label_fields,
    label_words,
    task_of,
)
from sublayer.interop.folder import BUNDLE, CONFIG, fetch_model, read_json, read_tensors
from sublayer.interop.foreign_config import (
    CLASSES,
    ClassConfig,
    Content,
    check_fields,
    refused_fields,
)
from sublayer.interop.generation import describe_kept, read_generation
from sublayer.interop.own_code import export_own_code, read_code
from sublayer.interop.weight_map import expand, read_pairs, strip_prefix, unwrap
from sublayer.loading import load_task, with_weights
from sublayer.model.layers import load_class
from sublayer.model.model_folder import describe_conversion
from sublayer.numbers import count, enumerate_names
from sublayer.objective.supervised.heads import from_numbers
from sublayer.tasks.registry import FILE_NAME, TaskSpec, read_spec
from sublayer.tasks.task import Kind, Task
from sublayer.text_model import Generation, TextModel
from sublayer.values import show

_CLASSES: tuple[type[Family], ...] = tuple(load_class(row.family) for row in CLASSES)
FAMILIES: dict[str, Family] = {
    class_.model_type + (f" for {answers}" if answers != "tokens" else ""): class_(answers)
    for class_ in _CLASSES
    for answers in ("tokens", *class_.answering)
}
"""Families by ``model_type``, and by the kind of output for tasks, as in ``bert for labels``."""
_TELLING = ("positions", "norm_order", "d_embed", "project_embeddings", "share")
"""Fields that tell apart the classes for a kind of model."""
_OTHER_HEADS = (
    *("ForTokenClassification", "DoubleHeadsModel", "EncoderModel"),
    *(ending for ending, _ in NAMED.values()),
)
"""Endings of classes with heads, or without a stack, unlike the type's other classes."""


def family_for(
    config: ResolvedModel, task: Task | None = None, class_name: str | None = None
) -> Family:
    """Choose the export family of a resolved config's model; ``task`` is the model's.

    It is that of ``class_name``, or else the first that can represent the model with the fewest
    biases. Raises ConfigError for a task with inputs that the class cannot read, and for a model
    that no class can represent, naming every unsupported field of the nearest class.
    """
    classes = [
        class_
        for class_ in _CLASSES
        if class_name in (None, class_.title, class_.name, class_.name + class_.predicts)
    ]
    if not classes:
        known = enumerate_names([class_.title for class_ in _CLASSES], "or")
        raise ConfigError(f"--class {show(class_name)} is not a known class: give {known}")
    answers: Answers = "spans" if config.span_head != "none" else "tokens"
    if config.label_outputs and answers == "tokens":
        answers = "choices" if task is not None and task.kind == "choice" else "labels"
    types = [class_.model_type for class_ in classes if class_.always["kind"] == config.kind]
    if not types:
        none = "no class can" if class_name is None else f"{classes[0].title}'s class cannot"
        raise ConfigError(f"{none} represent model.kind = {config.kind}: it cannot be exported")

    def distance(family: Family) -> tuple[list[bool], int, int]:
        named = {field.split()[0] for field in refused_fields(config, family.table)}
        full = config.model_copy(update=family.required_fields(config))
        n_biases = sum(has_bias(full, name) for name in get_args(BiasedMap))
        return [f"model.{name}" in named for name in _TELLING], len(named), n_biases

    families = (FAMILIES.get(f"{each} for {answers}", FAMILIES[each]) for each in types)
    family = min(families, key=distance)
    if task is not None and (rows := family.describe_unanswered(task)):
        raise ConfigError(
            f"{task.title} is answered from {rows}, and {family.name}ForSequenceClassification "
            "reads one row: the model cannot be exported"
        )
    hint, refused = "", refused_fields(config, family.table)
    if config.label_outputs and refused == ["model.pooler = none"]:
        hint = "; a model fine-tuned with model.pooler=tanh can be"
    elif family.answers == "choices" and refused == ["model.head = none"]:
        hint = "; a model fine-tuned with objective.language_weight=0.5 can be"
    check_fields(config, family.table, f"{type(family).title}'s class", hint)
    return family


_MOST_NAMED = 5
Notes = dict[str, list[str | None]]
"""Notes on parts of a model, by their names in the certificate; None is no note."""


def import_huggingface(folder: Path, out: Path) -> dict[str, Any]:
    """Convert a HuggingFace folder to a new model folder and return its certificate.

    A name that is not a folder, or ``hub:OWNER/NAME@REVISION``, is fetched from the hub. Weights
    become float32, exactly so from float16 and bfloat16; a model entirely in float64 stays float64.

    Raises CheckpointError where the folder is damaged, cannot be represented, or gives other logits
    than transformers' class; DataError where its tokenizer is damaged; ConfigError where ``out``
    exists, or memory is too small. Nothing is written then.
    """
    check_paths(folder, out)
    hub = HubModel.parse(str(folder))
    if hub is not None:
        folder = fetch_model(hub)
    elif not folder.is_dir():
        if folder.suffix == ".index" or folder.with_name(f"{folder.name}.index").exists():
            raise CheckpointError(f"{folder} is {BUNDLE}")
        hub = HubModel.parse(f"hub:{folder}")
        if folder.exists() or hub is None:
            raise CheckpointError(
                f"{folder} is not a folder: name a folder with {CONFIG} and model.safetensors"
            )
        try:
            folder = fetch_model(hub)
        except CheckpointError as error:
            raise CheckpointError(f"there is no folder {folder}, and {error}") from error
    model, family, settings, tensors, notes = _read(folder)
    task = None if model.task is None else model.task.tasks[0]
    if settings is None:
        reason = "its code is never run; names and shapes of all weights are those of its table"
        certificate: dict[str, Any] = {"checked": False, "reason": reason}
    else:
        oracle = family.oracle(model.model.config)
        certificate = certify(model.model, settings.computed, tensors, oracle, task)
        notes["ignored"].insert(0, _describe_unknown(folder, family))
    notes["tokenizer"] = [family.describe_unread(folder)]
    notes["source"] = [str(HubModel(hub.name, folder.name)) if hub else None]
    joined = {name: "; ".join(filter(None, lines)) for name, lines in notes.items()}
    certificate |= {name: note for name, note in joined.items() if note}
    certificate |= certify_tokenizer(model.tokenizer, folder)
    save_imported(model, out, certificate)
    return certificate


def read_huggingface(folder: Path) -> TextModel:
    """Read the model of a folder as ``import_huggingface`` does, without a certificate."""
    return _read(folder)[0]


def _family_of(
    content: Content, families: Mapping[Answers, Family], held: Collection[str]
) -> Family:
    """Return the family of a config.json and of the names of its tensors."""
    listed = content.fields.get("architectures")
    title = str(listed[0]) if isinstance(listed, list) and listed else ""
    named = [family for family in families.values() if family.title == title]
    if title.endswith(_OTHER_HEADS) and not named:
        known = enumerate_names([*families], "or")
        unread = f"names {title:.60}, which cannot be imported: only a class for {known}"
        raise content.error(unread)
    # Labels and choices have the same head: the class name decides, by default for labels.
    fitting = [
        family
        for answers, family in families.items()
        if answers != "tokens" and any(name.startswith(family.heads[0]) for name in held)
    ]
    return next((f for f in fitting if f in named), (fitting or [families["tokens"]])[0])


def _read(folder: Path) -> tuple[TextModel, Family, ClassConfig | None, Tensors, Notes]:
    """Read a model, its family, its config (None of code of its own) and the read tensors."""
    content = Content(CONFIG, read_json(folder / CONFIG))
    settings, unwrapped = None, None
    if (code := read_code(folder, content.fields)) is not None:
        family, config, task = code.family, code.config, load_task(folder)
        held = tensors = weights = read_tensors(folder)
        pairs, title = code.pairs(), "the model's table"
    else:
        if content.fields.get("auto_map"):
            own = "code of the folder's own (auto_map), which is never run"
            raise content.error(
                f"it names {own}: import the model that the folder was written from"
            )
        model_type = content.fields.get("model_type")
        families = {f.answers: f for f in FAMILIES.values() if f.model_type == model_type}
        if not families:
            types = dict.fromkeys(repr(family.model_type) for family in FAMILIES.values())
            known = f"only {', '.join(types)} can be imported"
            raise content.error(f"model_type = {show(model_type)}; {known}")
        held, unwrapped = unwrap(read_tensors(folder), {f.prefix for f in families.values()})
        family = _family_of(content, families, held)
        settings = family.fields.read(content)
        tensors = {
            name: tensor
            for name, tensor in held.items()
            if not family.is_ignored(name.removeprefix(family.prefix))
        }
        weights = family.prepare(settings, strip_prefix(tensors, family.prefix))
        config = family.read_config(settings, weights)
        task = _folder_task(folder, family.answers, settings, config)
        pairs, title = family.pairs(config), family.title
    ours = read_pairs(weights, pairs, config, title=title)
    model = with_weights(config, ours if task is None else from_numbers(ours, task.tasks[0]))
    tokenizer = family.read_tokenizer(folder, vocab_size=config.vocab_size)
    generation, pad_id = Generation(), None
    if config.kind != "encoder":
        generation = read_generation(folder, content.fields, config, tokenizer)
    if config.kind == "decoder":
        pad_id = content.fields.get("pad_token_id")
    # A decoder's tokenizer without padding takes config.json's.
    if isinstance(tokenizer, SubwordTokenizer) and tokenizer.pad_id is None:
        names = [name for name, id_ in tokenizer.marks.items() if id_ == pad_id]
        if names and not isinstance(pad_id, bool):
            roles = {**tokenizer.roles, "pad_id": names[0]}
            tokenizer = tokenizer.replaced(reads_marks=tokenizer.reads_marks, roles=roles)
    ignored: list[str | None] = []
    for start, what in family.unread.items():
        if any(name.startswith(start) for name in held):
            ignored.append(f"the head {start.rstrip('.')}, which {what}")
    if task is None and pad_id not in (None, getattr(tokenizer, "pad_id", None)):
        ignored.append(f"pad_token_id = {show(pad_id)} of {CONFIG}, not the tokenizer's padding")
    if tokenizer is not None and settings is not None and config.kind == "encoder-decoder":
        for name, role in (("eos_token_id", "sep_id"), ("pad_token_id", "pad_id")):
            id_, own = settings.fields[name], getattr(tokenizer, role)
            if own not in (None, id_):
                ignored.append(f"{name} = {show(id_)} of {CONFIG}: the tokenizer's, {own}, counts")
    notes: Notes = {
        "weights": [unwrapped, describe_conversion(tensors, model.embedding.weight.dtype)],
        "ignored": ignored,
        "kept": [describe_kept(generation)],
    }
    text_model = TextModel(model, tokenizer, task, generation=generation)
    return text_model, family, settings, tensors, notes


def _describe_unknown(folder: Path, family: Family) -> str | None:
    """Name the fields that transformers' class lacks and so drops; None without transformers."""
    if find_spec("transformers") is None:
        return None
    transformers: Any = import_module("transformers")
    known = {"attn_implementation", "experts_implementation", *family.fields.fields}
    with quiet():
        known |= transformers.GenerationConfig().to_dict().keys()
        config = getattr(transformers, family.fields.title)()
        public = [name for name in read_json(folder / CONFIG) if not name.startswith("_")]
        unknown = sorted(n for n in public if n not in known and not hasattr(config, n))
    if not unknown:
        return None
    # A name may be any text: one that is not an identifier is quoted and cut.
    quoted = [name if name.isidentifier() else show(name) for name in unknown[:_MOST_NAMED]]
    n_others = len(unknown) - len(quoted)
    listed = ", ".join(quoted) + (f" and {count(n_others, 'other')}" if n_others else "")
    return f"{listed} of {CONFIG}, unknown to transformers' {family.fields.title}"


_KINDS: dict[Answers, Kind] = {"choices": "choice", "spans": "span", "labels": "classes"}


def _folder_task(
    folder: Path, answers: Answers, content: ClassConfig, config: ResolvedModel
) -> TaskSpec | None:
    """Return the task of a folder's model, if any.

    Our exports hold it in a file. In other folders the class gives the kind of task, and the config
    gives the labels in order and whether the task is a number. Raises CheckpointError where they
    contradict each other.
    """
    by_config = None
    if answers != "tokens":
        kind = _KINDS[answers]
        labels = label_words(content) if answers == "labels" else ()
        problem, is_single = content.fields.get("problem_type"), len(labels) == 1
        contradiction = {REGRESSION: len(labels) > 1, CLASSIFICATION: is_single}
        if problem and contradiction.get(problem):
            outputs = f"{len(labels)} outputs: a number has one, and classes have several"
            raise content.error(f"problem_type = {show(problem)} with {outputs}")
        if is_single:
            kind, labels = "number", ()
        # An encoder's padding comes from its tokenizer; its class never searches rows for it.
        pad_id = content.fields.get("pad_token_id") if config.kind == "decoder" else None
        by_config = replace(task_of(kind, labels, config), pad_id=pad_id)
    path = folder / FILE_NAME
    if not path.is_file():
        return by_config
    spec = read_spec(read_json_object(path, CheckpointError), str(path))
    if config.kind not in KINDS[spec.format]:
        unread = f"the format {spec.format}, which no {config.kind} can read"
        raise CheckpointError(f"{path} has {unread}")
    if by_config is None:
        if spec.format != "text":
            raise CheckpointError(f"{path} has the format {spec.format}: the model lacks its head")
        return spec
    task, expected = spec.tasks[0], by_config.tasks[0]
    compared = {
        "tasks": (len(spec.tasks), 1),
        "format": (spec.format, by_config.format),
        "kind": (task.kind, expected.kind),
        "labels": (", ".join(task.labels), ", ".join(expected.labels)),
        "context": (spec.context, min(spec.context, by_config.context)),
    }
    for name, (stated, wanted) in compared.items():
        if stated != wanted:
            both = f"{name} {stated!s:.80}, not {wanted!s:.80}"
            raise CheckpointError(f"{path} contradicts config.json ({both}): leave it out")
    return spec


def export_huggingface(
    text_model: TextModel, out: Path, class_name: str | None = None
) -> dict[str, Any]:
    """Write a model as a new folder that transformers loads, and return its certificate.

    It uses the class of ``family_for``. A tokenizer without an equivalent in transformers is
    omitted. Raises ConfigError, naming every field that no class can represent, and where ``out``
    exists; CheckpointError where the written model gives other logits. Nothing is written then.
    """
    check_paths(out, out)
    model, tokenizer, spec = text_model.model, text_model.tokenizer, text_model.task
    task = None if spec is None else spec.tasks[0]
    family = family_for(model.config, task, class_name)
    required = family.required_fields(model.config)
    full, weights = as_labels(*expand(model.state_dict(), model.config, required), task)
    settled = family.settle(full, weights, tokenizer)
    unprefixed: dict[str, Tensor] = {}
    for pair in family.pairs(full):
        # Pairs of parts that the model lacks are skipped.
        if pair.ours in settled:
            unprefixed |= pair.write(settled[pair.ours])
    for copy, source in family.copies(full).items():
        unprefixed[copy] = unprefixed[source].clone()
    # A model without a head is written without the prefix, as transformers does.
    has_head = bool(asked_heads(full).keys() - {"pooler"})
    tensors = {
        (family.prefix if has_head and not name.startswith(family.heads) else "") + name: tensor
        for name, tensor in unprefixed.items()
    }
    described = family.write_config(full, tokenizer)
    if spec is not None and spec.pad_id is not None:
        described["pad_token_id"] = spec.pad_id
    if family.answers == "labels":
        described |= label_fields(full, task)
    del unprefixed, settled

    def certify_folder(folder: Path) -> dict[str, Any]:
        # The written files are compared.
        fields = family.fields.read(Content(CONFIG, read_json(folder / CONFIG))).computed
        return certify(model, fields, read_tensors(folder), family.oracle(full), task)

    files = family.folder_files(text_model, described, full)
    return save_exported(text_model, full, out, described, tensors, files, certify_folder)


def export_transformers(
    text_model: TextModel, out: Path, class_name: str | None = None
) -> Exported:
    """Export to the class, or else with code of its own, and say how transformers loads it."""
    try:
        certificate = export_huggingface(text_model, out, class_name)
    except ConfigError as refusal:
        if class_name is not None:
            raise
        certificate = export_own_code(text_model, out, str(refusal).rpartition(": ")[0])
    described = read_json(out / CONFIG)
    name = described["architectures"][0]
    has_tokenizer = (out / CONFIG_NAME).is_file()
    lines = []
    compared = certificate.get("tokenizer_ids", {})
    if not compared.get("checked", True) or "first" in compared:
        lines.append(f"tokenizer: {describe_ids(certificate)}")
    if "left_out" in certificate:
        lines.append(f"left out, as {name} has none: {certificate['left_out']}")
    following = f"{name}.from_pretrained({str(out)!r})"
    if "code" in certificate:
        lines.append(f"with code of its own: {certificate['code']}")
        auto = next(iter(described["auto_map"]))
        following = f"{auto}.from_pretrained({str(out)!r}, trust_remote_code=True)"
    elif has_tokenizer and name.endswith("ForSequenceClassification"):
        following = f"pipeline('text-classification', model={str(out)!r})"
    return Exported(name, certificate, has_tokenizer, f"transformers.{following}", lines)
