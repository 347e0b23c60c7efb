"""GPT-2 in and out of HuggingFace folders, each time with a certificate of the largest difference of logits."""

import json
from pathlib import Path
from typing import Any

import torch

from sublayer.errors import CheckpointError
from sublayer.interop.certificate import CERTIFICATE, certify
from sublayer.interop.gpt2_config import read_config, write_config
from sublayer.interop.gpt2_folder import (
    CONFIG,
    check_new,
    new_folder,
    read_json,
    read_tensors,
    write_folder,
    write_json,
)
from sublayer.interop.gpt2_tokenizer import read_tokenizer, tokenizer_files
from sublayer.interop.gpt2_weights import read_weights, write_weights
from sublayer.model.build import compose
from sublayer.model.cost import need
from sublayer.model.saved import save_model
from sublayer.model.transformer import Transformer


def import_huggingface(folder: Path, out: Path) -> dict[str, Any]:
    """Turn a HuggingFace folder of a GPT-2 language model into a new model folder and return its certificate.

    The tokenizer comes along where the folder has one. Weights in float16 or bfloat16 become float32, which is exact.
    Raises CheckpointError where the folder is damaged or cannot be represented, ConfigError where ``out`` exists.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder: name one with {CONFIG} and model.safetensors")
    check_new(out)
    model = read_gpt2(folder)
    certificate = certify(model, folder)
    files = {} if model.tokenizer is None else {"tokenizer.json": model.tokenizer.serialize()}
    files[CERTIFICATE] = json.dumps(certificate, indent=2).encode() + b"\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    save_model(out, model, files)
    return certificate


def read_gpt2(folder: Path) -> Transformer:
    """Read the GPT-2 language model of a HuggingFace folder, in evaluation mode, with its tokenizer if it has one."""
    config = read_config(read_json(folder / CONFIG))
    with torch.device("meta"):
        model = compose(config)
    model.load_state_dict(read_weights(read_tensors(folder), config), assign=True)
    model.tokenizer = read_tokenizer(folder, vocab_size=need(config.vocab_size))
    return model.eval()


def export_huggingface(model: Transformer, out: Path) -> dict[str, Any]:
    """Write a model as a new HuggingFace folder that transformers loads as GPT-2, and return its certificate.

    Raises ConfigError, naming every field that GPT-2's class cannot represent, and where ``out`` exists.
    """
    check_new(out)
    tokenizer = model.tokenizer
    config = write_config(model.config, end_id=None if tokenizer is None else tokenizer.end_id)
    with new_folder(out) as partial:
        write_folder(partial, config, write_weights(model.state_dict(), model.config))
        for name, content in tokenizer_files(tokenizer, max_len=need(model.config.max_len)).items():
            (partial / name).write_bytes(content)
        certificate = certify(model, partial)
        write_json(partial / CERTIFICATE, certificate)
    return certificate
