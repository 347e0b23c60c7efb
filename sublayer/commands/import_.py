"""``sublayer import``: make another system's model one of ours."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sublayer.commands.base import JsonOption, emit

EXAMPLE = "sublayer import huggingface downloads/gpt2 --out runs/gpt2"


def command(
    system: Annotated[
        Literal["huggingface", "albert-tf"],
        typer.Argument(
            metavar="huggingface|albert-tf",
            help="The system whose format it has: huggingface for transformers' GPT-2, BERT and ALBERT, albert-tf for "
            "ALBERT's release in TensorFlow.",
        ),
    ],
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The model's folder; of albert-tf also a checkpoint's prefix.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The new model's folder. Default: runs/NAME, then runs/NAME-2, ...")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read a model of another system, and its tokenizer if it has one, into a folder of ours.

    Where transformers is installed and can read the model, the logits of the two are compared; the largest difference
    is shown and kept in certificate.json. Encoders need the head that predicts masked tokens. Pickles are never read.
    """
    from sublayer.interop.albert_tf import import_albert_tf
    from sublayer.interop.huggingface import import_huggingface
    from sublayer.run_folder import free_folder

    target = out or free_folder(path.resolve().name)
    certificate = (import_huggingface if system == "huggingface" else import_albert_tf)(path, target)
    result = {
        "model": str(target),
        "kind": json.loads((target / "config.json").read_bytes())["model"]["kind"],
        "has_tokenizer": (target / "tokenizer.json").is_file(),
        "certificate": certificate,
    }
    emit(result, as_json, _render)


def _render(result: Mapping[str, Any]) -> str:
    from sublayer.interop.certificate import describe

    tokenizer = "with its tokenizer" if result["has_tokenizer"] else "without a tokenizer: the folder has none"
    lines = [f"model: {result['model']}, {tokenizer}", describe(result["certificate"])]
    if "left_out" in result["certificate"]:
        lines.append(f"left out: {result['certificate']['left_out']['optimizer_tensors']} tensors of an optimizer")
    if result["has_tokenizer"] and result["kind"] == "decoder":
        lines.append(f"next: sublayer evaluate {result['model']} --path TEXT")
    return "\n".join(lines)
