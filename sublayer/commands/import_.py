"""``sublayer import``: make another system's model one of ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sublayer.commands.base import JsonOption, emit

EXAMPLE = "sublayer import huggingface downloads/gpt2 --out runs/gpt2"


def command(
    system: Annotated[
        Literal["huggingface"], typer.Argument(metavar="huggingface", help="The system whose format it has.")
    ],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of a GPT-2 language model.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The new model's folder. Default: runs/NAME, then runs/NAME-2, ...")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read a model of another system, and its tokenizer if it has one, into a folder of ours.

    Where transformers is installed, the logits of the two are compared; the largest difference is shown and kept in
    certificate.json. Pickles are never read.
    """
    from sublayer.interop.huggingface import import_huggingface
    from sublayer.run_folder import free_folder

    target = out or free_folder(path.resolve().name)
    certificate = import_huggingface(path, target)
    has_tokenizer = (target / "tokenizer.json").is_file()
    emit({"model": str(target), "has_tokenizer": has_tokenizer, "certificate": certificate}, as_json, _render)


def _render(result: Mapping[str, Any]) -> str:
    from sublayer.interop.certificate import describe

    tokenizer = "with its tokenizer" if result["has_tokenizer"] else "without a tokenizer: the folder has none"
    lines = [f"model: {result['model']}, {tokenizer}", describe(result["certificate"])]
    if result["has_tokenizer"]:
        lines.append(f"next: sublayer evaluate {result['model']} --path TEXT")
    return "\n".join(lines)
