"""``sublayer export``: write a model in another system's format."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sublayer.commands.base import AverageOption, JsonOption, emit
from sublayer.errors import CheckpointError
from sublayer.parsing import read_json_object

EXAMPLE = "sublayer export runs/gpt --to huggingface exported"


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, a checkpoint, or an imported folder.")],
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The new folder.")],
    system: Annotated[
        Literal["huggingface"],
        typer.Option("--to", metavar="huggingface", help="The system whose format it gets: transformers'."),
    ] = "huggingface",
    average: AverageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a model so that transformers loads it: a decoder as GPT-2, an encoder as BERT or ALBERT.

    A translator becomes M2M100 or Marian. Models that those classes cannot represent are refused by field. Where
    transformers is installed, the logits of the two are compared; the largest difference is shown and kept in
    certificate.json.
    """
    from sublayer.interop.huggingface import export_huggingface
    from sublayer.load import load

    model = load(run, average=average)
    certificate = export_huggingface(model, out)
    result = {
        "model": str(out),
        "class": read_json_object(out / "config.json", CheckpointError)["architectures"][0],
        "has_tokenizer": (out / "tokenizer_config.json").is_file(),
        "certificate": certificate,
    }
    emit(result, as_json, _render)


def _render(result: Mapping[str, Any]) -> str:
    from sublayer.interop.certificate import describe

    what = "with its tokenizer" if result["has_tokenizer"] else "without a tokenizer"
    note = result["certificate"].get("tokenizer")
    return "\n".join(
        [
            f"exported: {result['model']}, {what}" + (f": {note}" if note else ""),
            describe(result["certificate"]),
            f"next: transformers.{result['class']}.from_pretrained({result['model']!r})",
        ]
    )
