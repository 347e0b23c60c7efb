"""Import and export of HuggingFace folders, with a certificate that compares logits."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import asked_heads
from sublayer.counts import count
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.settings import CONFIG_NAME
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.storage import new_folder
from sublayer.interop.answers import describe_labels, folder_task, with_row_of_each
from sublayer.interop.certificate import CERTIFICATE, certify, certify_tokenizer
from sublayer.interop.families import (
    choose_family,
    describe_class,
    families_of,
    family_for,
)
from sublayer.interop.family import Family, Tensors
from sublayer.interop.folder import (
    BUNDLE,
    CONFIG,
    check_paths,
    fetch_model,
    is_hub_name,
    read_content,
    read_json,
    read_tensors,
    write_folder,
    write_json,
)
from sublayer.interop.foreign_config import ClassConfig, Content, format_value
from sublayer.interop.tokenizers import settings_file
from sublayer.interop.translator_tokenizers import describe_text
from sublayer.interop.weight_map import (
    expand,
    read_pairs,
    strip_prefix,
    unwrap,
    with_weights,
    write_pairs,
)
from sublayer.model.model_folder import describe_conversion, save_model
from sublayer.objective.supervised.loss import from_numbers, to_numbers
from sublayer.tasks.spec import spec_files
from sublayer.text_model import TextModel

_MOST_NAMED = 5
Notes = dict[str, list[str | None]]
"""Lines on parts of a model, by their name in the certificate; None says nothing."""


def import_huggingface(folder: Path, out: Path) -> dict[str, Any]:
    """Convert a HuggingFace folder to a new model folder and return its certificate.

    A name that is not a folder is fetched as a model from the hub.

    The tokenizer comes along where the folder has one. Weights become float32, which of float16 and
    bfloat16 is exact; those that are all float64 stay so. What config.json says beyond the class's
    fields is named in the certificate, which stands in ``out`` too.

    Raises CheckpointError where the folder is damaged, cannot be represented, or gives other logits
    than transformers' class; DataError where its tokenizer is damaged; ConfigError where ``out``
    exists, or memory is too small. Nothing is written then.
    """
    check_paths(folder, out)
    if not folder.is_dir():
        if folder.suffix == ".index" or folder.with_name(f"{folder.name}.index").exists():
            raise CheckpointError(f"{folder} is {BUNDLE}")
        if folder.exists() or not is_hub_name(str(folder)):
            raise CheckpointError(
                f"{folder} is not a folder: name one with {CONFIG} and model.safetensors"
            )
        folder = fetch_model(str(folder))
    model, family, settings, tensors, notes = _read(folder)
    spec = model.task
    task = None if spec is None else spec.tasks[0]
    oracle = family.oracle(model.model.config)
    certificate = certify(model.model, settings.given, tensors, oracle, task)
    notes["tokenizer"] = [family.describe_unread(folder)]
    certificate |= _noted(notes) | certify_tokenizer(model.tokenizer, folder)
    save_imported(model, out, certificate)
    return certificate


def read_huggingface(folder: Path) -> TextModel:
    """Read the model of a HuggingFace folder, in evaluation mode, with its tokenizer if any.

    Without a certificate. Raises as ``import_huggingface`` does on reading.
    """
    return _read(folder)[0]


def _read(folder: Path) -> tuple[TextModel, Family, ClassConfig, Tensors, Notes]:
    """Read a model, its family, config and those of the folder's own tensors that hold weights."""
    content = read_content(folder / CONFIG)
    families = families_of(content)
    prefixes = {family.prefix for family in families.values()}
    held, unwrapped = unwrap(read_tensors(folder), prefixes)
    family = choose_family(families, content, held)
    try:
        settings = family.fields.read(content)
        tensors = {
            name: tensor
            for name, tensor in held.items()
            if not family.is_ignored(name.removeprefix(family.prefix))
        }
        weights = family.prepare(settings, strip_prefix(tensors, family.prefix))
        config = family.read_config(settings, weights)
        task = folder_task(folder, family.answers, settings, config)
        ours = read_pairs(weights, family.pairs(config), config, title=family.title)
        model = with_weights(config, ours if task is None else from_numbers(ours, task.tasks[0]))
        tokenizer = family.read_tokenizer(folder, vocab_size=config.vocab_size)
    except CheckpointError as error:
        described = describe_class(families, content)
        if described is None:
            raise
        raise CheckpointError(f"{described}: {error}") from error
    pad_id = content.fields.get("pad_token_id") if config.kind == "decoder" else None
    tokenizer = _padded(tokenizer, pad_id)
    is_padding_kept = task is not None or pad_id in (None, getattr(tokenizer, "pad_id", None))
    given = f"pad_token_id = {format_value(pad_id)} of {CONFIG}"
    padding = None if is_padding_kept else f"{given}, no special token of the tokenizer"
    notes: Notes = {
        "weights": [unwrapped, describe_conversion(tensors, model.embedding.weight.dtype)],
        "ignored": [_describe_unknown(settings, family), padding],
    }
    return TextModel(model, tokenizer, task), family, settings, tensors, notes


def _padded(tokenizer: Tokenizer | None, pad_id: Any) -> Tokenizer | None:
    """Return a decoder's tokenizer with the padding that config.json gives, if it has none."""
    if not isinstance(tokenizer, SubwordTokenizer) or tokenizer.pad_id is not None:
        return tokenizer
    names = [name for name, id_ in tokenizer.marks.items() if id_ == pad_id]
    if not names or isinstance(pad_id, bool):
        return tokenizer
    roles = {**tokenizer.roles, "pad_id": names[0]}
    return tokenizer.replaced(reads_marks=tokenizer.reads_marks, roles=roles)


def save_imported(text_model: TextModel, out: Path, certificate: dict[str, Any]) -> None:
    """Write a model folder with its tokenizer, if the model has one, and its certificate.

    Raises CheckpointError where ``out`` exists or cannot be written.
    """
    files = spec_files(text_model.task)
    if text_model.tokenizer is not None:
        files["tokenizer.json"] = text_model.tokenizer.serialize()
    files[CERTIFICATE] = json.dumps(certificate, indent=2).encode() + b"\n"
    save_model(out, text_model.model, files)


def export_huggingface(text_model: TextModel, out: Path) -> dict[str, Any]:
    """Write a model as a new folder that transformers loads, and return its certificate.

    It is of the nearest class that can represent the model (see ``family_for``). A tokenizer that
    transformers has no equal of is left out, and the certificate says of a translator's why.

    Raises ConfigError, naming every field that no class can represent, and where ``out``
    exists or cannot be written; CheckpointError where the written model gives other logits. Nothing
    is written then.
    """
    check_paths(out, out)
    model, tokenizer, spec = text_model.model, text_model.tokenizer, text_model.task
    task = None if spec is None else spec.tasks[0]
    family = family_for(model.config, task)
    required = family.required_fields(model.config)
    full, weights = expand(model.state_dict(), model.config, required)
    full, weights = with_row_of_each(full, weights, task)
    settled = family.settle(full, to_numbers(weights, task))
    tensors = _foreign_tensors(family, full, settled)
    described = family.write_config(full, tokenizer)
    if spec is not None and spec.pad_id is not None:
        described["pad_token_id"] = spec.pad_id
    if family.answers == "labels":
        described |= describe_labels(task, full.label_outputs)
    try:
        with new_folder(out) as partial:
            write_folder(partial, described, tensors)
            context = full.max_len if spec is None else spec.context
            files = spec_files(spec) | family.tokenizer_files(tokenizer, max_len=context)
            stands_in = spec is not None and spec.pad_id is not None
            is_padded = tokenizer is not None and tokenizer.pad_id is not None
            if stands_in and not is_padded and CONFIG_NAME in files:
                # Padding that only stood in for the config's own.
                settings = json.loads(files[CONFIG_NAME])
                settings.pop("pad_token", None)
                files[CONFIG_NAME] = settings_file(settings)
            for name, file in files.items():
                (partial / name).write_bytes(file)
            # The written files are compared.
            content = Content(CONFIG, read_json(partial / CONFIG))
            given = family.fields.read(content).given
            oracle = family.oracle(full)
            certificate = certify(model, given, read_tensors(partial), oracle, task)
            left_out = _describe_left_out(model.config, full)
            certificate |= _noted({"tokenizer": [describe_text(tokenizer)], "left_out": [left_out]})
            if (partial / CONFIG_NAME).is_file():
                certificate |= certify_tokenizer(tokenizer, partial)
            write_json(partial / CERTIFICATE, certificate)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror or error}") from None
    return certificate


def _describe_left_out(config: ResolvedModel, full: ResolvedModel) -> str | None:
    """Format a line on the heads that a model's class lacks; None without any."""
    kept = asked_heads(full)
    titles = [row.title for name, row in asked_heads(config).items() if name not in kept]
    if "vocabulary" in kept and config.softmax != full.softmax:
        titles.append("positions as classes, so that probabilities are of tokens alone")
    return ", ".join(titles) or None


def _foreign_tensors(
    family: Family, config: ResolvedModel, weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Convert an expanded model's weights to all tensors that a family's file holds."""
    unprefixed = write_pairs(weights, family.pairs(config))
    for copy, source in family.copies(config).items():
        unprefixed[copy] = unprefixed[source].clone()
    tensors = {}
    # As transformers does, a model without a head is written without the prefix.
    has_head = bool(asked_heads(config).keys() - {"pooler"})
    for name, tensor in unprefixed.items():
        prefix = family.prefix if has_head and not name.startswith(family.heads) else ""
        tensors[prefix + name] = tensor
    return tensors


def _noted(notes: Notes) -> dict[str, str]:
    joined = {name: "; ".join(filter(None, lines)) for name, lines in notes.items()}
    return {name: note for name, note in joined.items() if note}


def _describe_unknown(config: ClassConfig, family: Family) -> str | None:
    """Format a line on the fields of a config.json unknown to its class; None without any."""
    if not config.unknown:
        return None
    first = sorted(config.unknown)[:_MOST_NAMED]
    # A name may be any text at all: one that is no field's is quoted and cut.
    named = [name if name.isidentifier() else format_value(name) for name in first]
    n_others = len(config.unknown) - len(first)
    others = f" and {count(n_others, 'other')}" if n_others else ""
    title = family.fields.title
    return f"{', '.join(named)}{others} of {config.file}, which transformers' {title} has not"
