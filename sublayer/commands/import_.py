"""``sublayer import``: make another system's model one of ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sublayer.commands.base import JsonOption, emit
from sublayer.config.texts import resolved
from sublayer.errors import CheckpointError
from sublayer.parsing import read_json_object

EXAMPLE = "sublayer import huggingface downloads/gpt2 --out runs/gpt2"


def command(
    system: Annotated[
        Literal["huggingface", "albert-tf", "fairseq"],
        typer.Argument(
            metavar="huggingface|albert-tf|fairseq",
            help="The system whose format it has: huggingface for transformers' GPT-2, BERT, ALBERT, M2M100 and "
            "Marian, albert-tf for ALBERT's release in TensorFlow, fairseq for its Transformer and Macaron Net's.",
        ),
    ],
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="The model's folder; of albert-tf also a checkpoint's prefix, of fairseq a checkpoint's file.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The new model's folder. Default: runs/NAME, then runs/NAME-2, ...")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read a model of another system, and its tokenizer if it has one, into a folder of ours.

    Where transformers is installed and can read the model, the logits of the two are compared; the largest difference
    is shown and kept in certificate.json. Encoders need the head that predicts masked tokens. Of pickles only fairseq's
    are read, as tensors and plain values: nothing that a file names is run.
    """
    from sublayer.interop.albert_tf import import_albert_tf
    from sublayer.interop.fairseq import import_fairseq
    from sublayer.interop.huggingface import import_huggingface
    from sublayer.run_folder import free_folder

    readers = {"huggingface": import_huggingface, "albert-tf": import_albert_tf, "fairseq": import_fairseq}
    target = out or free_folder(resolved(path).name.removesuffix(".pt"))
    certificate = readers[system](path, target)
    result = {
        "system": system,
        "model": str(target),
        "kind": read_json_object(target / "config.json", CheckpointError)["model"]["kind"],
        "has_tokenizer": (target / "tokenizer.json").is_file(),
        "certificate": certificate,
    }
    emit(result, as_json, _render)


def _render(result: Mapping[str, Any]) -> str:
    from sublayer.interop.certificate import describe

    tokenizer = "with its tokenizer"
    if not result["has_tokenizer"]:
        tokenizer = f"without a tokenizer: {result['certificate'].get('tokenizer', 'the folder has none')}"
    lines = [f"model: {result['model']}, {tokenizer}", describe(result["certificate"])]
    for name, what in (("weights", "weights"), ("ignored", "ignored")):
        if name in result["certificate"]:
            lines.append(f"{what}: {result['certificate'][name]}")
    if "left_out" in result["certificate"]:
        lines.append(f"left out: {_left_out(result['certificate']['left_out'])}")
    if result["has_tokenizer"] and result["kind"] == "decoder":
        lines.append(f"next: sublayer evaluate {result['model']} --path TEXT")
    return "\n".join(lines)


def _left_out(found: Mapping[str, Any]) -> str:
    parts = [f"{found['optimizer_tensors']} tensors of an optimizer"]
    for name, reason in (("no_weights", "no weights"), ("copies", "equal to the token table")):
        if found.get(name):
            parts.append(f"{', '.join(found[name])} ({reason})")
    return "; ".join(parts)
