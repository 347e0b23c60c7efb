"""``sublayer export``: write a model in another system's format."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from sublayer.commands.shared.base import AverageOption, JsonObject, JsonOption, RunArgument, emit
from sublayer.errors import CheckpointError
from sublayer.files.parsing import read_json_object
from sublayer.system.stages import stage

_LABELS = "ForSequenceClassification"
EXAMPLE = "sublayer export runs/book --to huggingface exported"


def command(
    run: RunArgument,
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The new folder to write.")],
    system: Annotated[
        Literal["huggingface"],
        typer.Option(
            "--to", metavar="huggingface", help="The format: that of Hugging Face's transformers."
        ),
    ] = "huggingface",
    average: AverageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a model so that transformers loads it: a decoder as GPT-2 or GPT-1, an encoder as BERT
    or ALBERT, an encoder-decoder as M2M100, Marian or T5.

    GPT-1 is the class of decoders whose norms stand after their sub-layers, T5 that of
    encoder-decoders with relative positions. A model that was fine-tuned on a task becomes the
    class that answers it (labels or a number, choices, spans), with the words of its labels. A
    model that none of these classes can represent is refused, and the field that prevents it is
    named. Where transformers is installed, the logits of both models are compared; the largest
    difference is printed, and kept in certificate.json.
    """
    with stage("starting PyTorch"):
        from sublayer.interop.huggingface import export_huggingface
        from sublayer.loading import load

    model = load(run, average=average)
    with stage(f"writing {out}"):
        certificate = export_huggingface(model, out)
    written_config = read_json_object(out / "config.json", CheckpointError)
    result = {
        "model": str(out),
        "class": written_config["architectures"][0],
        "has_tokenizer": (out / "tokenizer_config.json").is_file(),
        "certificate": certificate,
    }
    emit(result, as_json, _render)


def _render(result: JsonObject) -> str:
    from sublayer.interop.certificate import describe, describe_ids

    certificate = result["certificate"]
    tokenizer = "with its tokenizer" if result["has_tokenizer"] else "without a tokenizer"
    exported = f"exported: {result['model']}, {tokenizer}"
    if certificate.get("tokenizer"):
        exported += f": {certificate['tokenizer']}"
    lines = [exported, describe(certificate)]
    compared = certificate.get("tokenizer_ids", {})
    if not compared.get("checked", True) or "first" in compared:
        lines.append(f"tokenizer: {describe_ids(certificate)}")
    if "left_out" in certificate:
        lines.append(f"left out, as {result['class']} has none: {certificate['left_out']}")
    following = f"{result['class']}.from_pretrained({result['model']!r})"
    if result["has_tokenizer"] and result["class"].endswith(_LABELS):
        following = f"pipeline('text-classification', model={result['model']!r})"
    return "\n".join([*lines, f"next: transformers.{following}"])
