"""Models in and out of HuggingFace folders, each time with a certificate of the largest difference of logits."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.certificate import CERTIFICATE, certify
from sublayer.interop.class_fields import ClassConfig
from sublayer.interop.content import Content
from sublayer.interop.families import Family, family_for, family_of
from sublayer.interop.folder import (
    CONFIG,
    check_new,
    check_path,
    read_content,
    read_json,
    read_tensors,
    write_folder,
    write_json,
)
from sublayer.interop.folder_tokenizer import read_tokenizer
from sublayer.interop.pairs import assemble, strip_prefix, write_pairs
from sublayer.interop.translator_tokenizer import describe_text, describe_unread, read_translators
from sublayer.interop.values import shown
from sublayer.interop.written_out import write_out
from sublayer.model.cost import need
from sublayer.model.saved import save_model
from sublayer.model.transformer import Transformer
from sublayer.model.weights import describe_conversion
from sublayer.storage import new_folder

_MOST_NAMED = 5


@dataclass(frozen=True)
class _Read:
    """A model, the config that it was read by, and the folder's own tensors without those that hold no weights."""

    model: Transformer
    family: Family
    config: ClassConfig
    tensors: Mapping[str, Tensor]


def import_huggingface(folder: Path, out: Path) -> dict[str, Any]:
    """Turn a HuggingFace folder of a known family into a new model folder and return its certificate.

    The tokenizer comes along where the folder has one. Weights become float32, which of float16 and bfloat16 is exact;
    those that are all float64 stay so. What config.json says beyond the class's fields is named in the certificate.
    Raises CheckpointError where the folder is damaged or cannot be represented, ConfigError where ``out`` exists.
    """
    check_path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder: name one with {CONFIG} and model.safetensors")
    check_new(out)
    read = _read(folder)
    model = read.model
    certificate = certify(model, read.config.given, read.tensors, read.family.oracle(model.config))
    certificate |= _noted("weights", describe_conversion(read.tensors, model.embedding.weight.dtype))
    certificate |= _noted("ignored", _describe_unknown(read.config, read.family))
    certificate |= _noted("tokenizer", describe_unread(folder) if model.config.kind == "encoder-decoder" else None)
    save_imported(model, out, certificate)
    return certificate


def read_huggingface(folder: Path) -> Transformer:
    """Read the model of a HuggingFace folder, in evaluation mode, with its tokenizer if it has one."""
    return _read(folder).model


def _read(folder: Path) -> _Read:
    content = read_content(folder / CONFIG)
    family = family_of(content)
    settings = family.fields.read(content)
    tensors = {
        name: tensor
        for name, tensor in read_tensors(folder).items()
        if not family.is_ignored(name.removeprefix(family.prefix))
    }
    found = family.prepare(settings, strip_prefix(tensors, family.prefix))
    config = family.read_config(settings, found)
    model = assemble(found, family.pairs(config), config, title=family.title)
    read = read_translators if config.kind == "encoder-decoder" else read_tokenizer
    model.tokenizer = read(folder, vocab_size=need(config.vocab_size))
    return _Read(model, family, settings, tensors)


def save_imported(model: Transformer, out: Path, certificate: dict[str, Any]) -> None:
    """Write a model folder with its tokenizer, if the model has one, and its certificate."""
    files = {} if model.tokenizer is None else {"tokenizer.json": model.tokenizer.serialize()}
    files[CERTIFICATE] = json.dumps(certificate, indent=2).encode() + b"\n"
    save_model(out, model, files)


def export_huggingface(model: Transformer, out: Path) -> dict[str, Any]:
    """Write a model as a new HuggingFace folder that transformers loads, and return its certificate.

    Decoders become GPT-2, encoders BERT or ALBERT, translators M2M100 or Marian. Raises ConfigError, naming every field
    that those classes cannot represent, and where ``out`` exists.
    """
    check_new(out)
    tokenizer = model.tokenizer
    family = family_for(model.config)
    full, weights = write_out(model.state_dict(), model.config, family.written_out(model.config))
    found = write_pairs(weights, family.pairs(full))
    found |= {name: found[source].clone() for name, source in family.copies(full).items()}
    tensors = {
        name if name.startswith(family.heads) else family.prefix + name: tensor for name, tensor in found.items()
    }
    described = family.write_config(full, tokenizer)
    try:
        with new_folder(out) as partial:
            write_folder(partial, described, tensors)
            for name, content in family.tokenizer_files(tokenizer, max_len=need(full.max_len)).items():
                (partial / name).write_bytes(content)
            # What was written is what is compared.
            given = family.fields.read(Content(CONFIG, read_json(partial / CONFIG))).given
            certificate = certify(model, given, read_tensors(partial), family.oracle(full))
            certificate |= _noted("tokenizer", describe_text(tokenizer))
            write_json(partial / CERTIFICATE, certificate)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror or error}") from None
    return certificate


def _noted(name: str, note: str | None) -> dict[str, Any]:
    return {} if note is None else {name: note}


def _describe_unknown(config: ClassConfig, family: Family) -> str | None:
    """Say in a line what of a config.json has no meaning to its class; None: nothing."""
    if not config.unknown:
        return None
    named = ", ".join(name if name.isidentifier() else shown(name) for name in sorted(config.unknown)[:_MOST_NAMED])
    others = f" and {len(config.unknown) - _MOST_NAMED} other(s)" if len(config.unknown) > _MOST_NAMED else ""
    return f"{named}{others} of {config.file}, which transformers' {family.fields.title} has not"
