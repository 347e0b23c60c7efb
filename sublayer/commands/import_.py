"""``sublayer import``: make another system's model one of ours."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from sublayer.commands.shared.base import JsonObject, JsonOption, emit
from sublayer.commands.shared.following import after_import
from sublayer.counts import count
from sublayer.errors import CheckpointError
from sublayer.files.parsing import read_json_object
from sublayer.files.paths import resolved
from sublayer.system.stages import stage

EXAMPLE = "sublayer import huggingface downloads/gpt2 --out runs/gpt2"


SystemArgument = Annotated[
    Literal["huggingface", "gpt1-numpy", "fairseq"],
    typer.Argument(
        metavar="SYSTEM",
        help="The system whose format it has: huggingface for transformers' GPT-1, GPT-2, BERT, "
        "ALBERT, M2M100, Marian and T5, gpt1-numpy for the arrays of GPT-1's release, "
        "fairseq for its Transformer, Macaron Net's translators and its BERT.",
    ),
]
PathArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="The model's folder; of huggingface also its name on the hub, which is fetched; of "
        "fairseq also a checkpoint's file.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", help="The new model's folder. Default: runs/NAME, then runs/NAME.2, ..."),
]


def command(
    system: SystemArgument,
    path: PathArgument,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import a model of another system, with its tokenizer if it has one, into a new folder that
    all commands read.

    Where transformers is installed and can read the model, the logits of the two are compared, of
    an encoder without a head the hidden states; the largest difference is shown and kept in
    certificate.json. Of pickles only fairseq's are read, as tensors and plain values: nothing that
    a file names is run.
    """
    with stage("starting PyTorch"):
        from sublayer.interop.fairseq import import_fairseq
        from sublayer.interop.gpt1_release import import_gpt1
        from sublayer.interop.huggingface import import_huggingface
        from sublayer.runs.folder import free_folder

    readers = {
        "huggingface": import_huggingface,
        "gpt1-numpy": import_gpt1,
        "fairseq": import_fairseq,
    }
    target = out or free_folder(resolved(path).name.removesuffix(".pt"))
    with stage(f"reading {path}"):
        certificate = readers[system](path, target)
    written_config = read_json_object(target / "config.json", CheckpointError)
    result = {
        "system": system,
        "model": str(target),
        "kind": written_config["model"]["kind"],
        "has_tokenizer": (target / "tokenizer.json").is_file(),
        "certificate": certificate,
    }
    emit(result, as_json, _render)


def _render(result: JsonObject) -> str:
    from sublayer.interop.certificate import describe, describe_ids

    certificate = result["certificate"]
    tokenizer = "with its tokenizer"
    if not result["has_tokenizer"]:
        why = certificate.get("tokenizer", "the folder has none")
        tokenizer = f"without a tokenizer: {why}"
    lines = [f"model: {result['model']}, {tokenizer}", describe(certificate)]
    of_ids = describe_ids(certificate)
    if of_ids is not None:
        lines.append(f"tokenizer: {of_ids}")
    for name in ("weights", "ignored"):
        if name in certificate:
            lines.append(f"{name}: {certificate[name]}")
    if "left_out" in certificate:
        lines.append(f"left out: {_left_out(certificate['left_out'])}")
    if result["has_tokenizer"]:
        lines += _next(result["model"])
    return "\n".join(lines)


def _next(model: str) -> list[str]:
    from sublayer.data.tasks.marks import has_traversal
    from sublayer.data.tokenizers.bilingual import BilingualTokenizer
    from sublayer.data.tokenizers.named import load_tokenizer
    from sublayer.loading import load_task

    config = read_json_object(Path(model) / "config.json", CheckpointError)["model"]
    spec = load_task(Path(model))
    tokenizer = load_tokenizer(Path(model) / "tokenizer.json")
    return after_import(
        model,
        config["kind"],
        is_translator=isinstance(tokenizer, BilingualTokenizer),
        knows_gaps=bool(tokenizer.sentinel_ids),
        has_head=config["head"] != "none" or bool(config["sentence_classes"]),
        answers=None if spec is None else spec.tasks[0].name,
        lacks_marks=spec is not None
        and spec.format == "traversal"
        and not has_traversal(tokenizer),
    )


def _left_out(report: JsonObject) -> str:
    parts = [f"{count(report['optimizer_tensors'], 'tensor')} of an optimizer"]
    for name, reason in (("no_weights", "no weights"), ("copies", "equal to the embedding matrix")):
        if report.get(name):
            names = ", ".join(report[name])
            parts.append(f"{names} ({reason})")
    return "; ".join(parts)
