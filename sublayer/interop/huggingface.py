"""Models in and out of HuggingFace folders, each time with a certificate of the largest difference of logits."""

import json
from pathlib import Path
from typing import Any

import torch

from sublayer.errors import CheckpointError
from sublayer.interop.certificate import CERTIFICATE, certify
from sublayer.interop.families import family_for, family_of
from sublayer.interop.folder import (
    CONFIG,
    check_new,
    new_folder,
    read_content,
    read_tensors,
    write_folder,
    write_json,
)
from sublayer.interop.folder_tokenizer import read_tokenizer
from sublayer.interop.pairs import read_pairs, strip_prefix, write_pairs
from sublayer.interop.translator_tokenizer import describe_text, describe_unread, read_translators
from sublayer.interop.written_out import write_out
from sublayer.model.build import compose
from sublayer.model.cost import need
from sublayer.model.saved import save_model
from sublayer.model.transformer import Transformer


def import_huggingface(folder: Path, out: Path) -> dict[str, Any]:
    """Turn a HuggingFace folder of a known family into a new model folder and return its certificate.

    The tokenizer comes along where the folder has one. Weights in float16 or bfloat16 become float32, which is exact.
    Raises CheckpointError where the folder is damaged or cannot be represented, ConfigError where ``out`` exists.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder: name one with {CONFIG} and model.safetensors")
    check_new(out)
    model = read_huggingface(folder)
    certificate = certify(model, folder, family_of(read_content(folder / CONFIG)).oracle(model.config))
    certificate |= _noted(describe_unread(folder) if model.config.kind == "encoder-decoder" else None)
    save_imported(model, out, certificate)
    return certificate


def read_huggingface(folder: Path) -> Transformer:
    """Read the model of a HuggingFace folder, in evaluation mode, with its tokenizer if it has one."""
    content = read_content(folder / CONFIG)
    family = family_of(content)
    found = family.prepare(content, strip_prefix(read_tensors(folder), family.prefix))
    config = family.read_config(content, found)
    with torch.device("meta"):
        model = compose(config)
    model.load_state_dict(read_pairs(found, family.pairs(config), config, title=family.title), assign=True)
    read = read_translators if config.kind == "encoder-decoder" else read_tokenizer
    model.tokenizer = read(folder, vocab_size=need(config.vocab_size))
    return model.eval()


def save_imported(model: Transformer, out: Path, certificate: dict[str, Any]) -> None:
    """Write a model folder with its tokenizer, if the model has one, and its certificate."""
    files = {} if model.tokenizer is None else {"tokenizer.json": model.tokenizer.serialize()}
    files[CERTIFICATE] = json.dumps(certificate, indent=2).encode() + b"\n"
    out.parent.mkdir(parents=True, exist_ok=True)
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
    with new_folder(out) as partial:
        write_folder(partial, family.write_config(full, tokenizer), tensors)
        for name, content in family.tokenizer_files(tokenizer, max_len=need(full.max_len)).items():
            (partial / name).write_bytes(content)
        certificate = certify(model, partial, family.oracle(full)) | _noted(describe_text(tokenizer))
        write_json(partial / CERTIFICATE, certificate)
    return certificate


def _noted(note: str | None) -> dict[str, Any]:
    # What transformers' tokenizer leaves to its user, or why there is none.
    return {} if note is None else {"tokenizer": note}
