"""Models of other systems from Python: imported, exported."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from sublayer.api.arguments import Average, Model
from sublayer.api.results import Result
from sublayer.counts import count
from sublayer.errors import CheckpointError
from sublayer.files.parsing import read_json_object
from sublayer.files.paths import resolved
from sublayer.options import Argument, Option, PathText, checked
from sublayer.system.stages import stage


@checked
def import_model(
    system: Annotated[
        Literal["huggingface", "gpt1-numpy", "fairseq"],
        Argument(
            "The system whose format it has: huggingface for transformers' GPT-1, GPT-2, BERT, "
            "ALBERT, M2M100, Marian and T5, gpt1-numpy for the arrays of GPT-1's release, "
            "fairseq for its Transformer, Macaron Net's translators and its BERT.",
            metavar="SYSTEM",
        ),
    ],
    path: Annotated[
        PathText,
        Argument(
            "The model's folder; of huggingface also its name on the hub, which is fetched; of "
            "fairseq also a checkpoint's file.",
            metavar="PATH",
        ),
    ],
    *,
    out: Annotated[
        PathText | None,
        Option("The new model's folder. Default: runs/NAME, then runs/NAME.2, ..."),
    ] = None,
) -> Result:
    """Import a model of another system, with its tokenizer if it has one, into a new folder.

    The result has the folder (``model``) and the ``certificate`` of the comparison with the
    original. Nothing that a file names is run. Raises CheckpointError and DataError for files that
    cannot be read, ConfigError for a model that no recipe describes.
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
    source = Path(path)
    folder = free_folder(resolved(source).name.removesuffix(".pt")) if out is None else Path(out)
    with stage(f"reading {path}"):
        certificate = readers[system](source, folder)
    imported = {
        "system": system,
        "model": str(folder),
        "kind": read_json_object(folder / "config.json", CheckpointError)["model"]["kind"],
        "has_tokenizer": (folder / "tokenizer.json").is_file(),
        "certificate": certificate,
    }
    return Result(imported, _render_imported)


@checked
def export(
    run: Model,
    out: Annotated[PathText, Argument("The new folder to write.", metavar="DIR")],
    *,
    to: Annotated[
        Literal["huggingface"], Option("The format: that of Hugging Face's transformers.")
    ] = "huggingface",
    average: Average = None,
) -> Result:
    """Write a model into a new folder so that transformers loads it.

    The result has the ``class`` that loads it and the ``certificate`` of both models' logits
    compared. Raises ConfigError, with the field, for a model that no class can represent.
    """
    with stage("starting PyTorch"):
        from sublayer.interop.huggingface import export_huggingface
        from sublayer.loading import load

    model = load(Path(run), average=average)
    folder = Path(out)
    with stage(f"writing {out}"):
        certificate = export_huggingface(model, folder)
    config = read_json_object(folder / "config.json", CheckpointError)
    exported = {
        "model": str(folder),
        "class": config["architectures"][0],
        "has_tokenizer": (folder / "tokenizer_config.json").is_file(),
        "certificate": certificate,
    }
    return Result(exported, _render_exported)


def _render_imported(imported: Mapping[str, Any]) -> str:
    from sublayer.interop.certificate import describe, describe_ids

    certificate = imported["certificate"]
    tokenizer = "with its tokenizer"
    if not imported["has_tokenizer"]:
        tokenizer = f"without a tokenizer: {certificate.get('tokenizer', 'the folder has none')}"
    lines = [f"model: {imported['model']}, {tokenizer}", describe(certificate)]
    ids = describe_ids(certificate)
    if ids is not None:
        lines.append(f"tokenizer: {ids}")
    for name in ("weights", "ignored"):
        if name in certificate:
            lines.append(f"{name}: {certificate[name]}")
    if "left_out" in certificate:
        lines.append(f"left out: {_left_out(certificate['left_out'])}")
    return "\n".join(lines)


def _left_out(report: Mapping[str, Any]) -> str:
    parts = [f"{count(report['optimizer_tensors'], 'tensor')} of an optimizer"]
    for name, reason in (("no_weights", "no weights"), ("copies", "equal to the embedding matrix")):
        if report.get(name):
            parts.append(f"{', '.join(report[name])} ({reason})")
    return "; ".join(parts)


def _render_exported(exported: Mapping[str, Any]) -> str:
    from sublayer.interop.certificate import describe, describe_ids

    certificate, folder, name = exported["certificate"], exported["model"], exported["class"]
    tokenizer = "with its tokenizer" if exported["has_tokenizer"] else "without a tokenizer"
    if certificate.get("tokenizer"):
        tokenizer += f": {certificate['tokenizer']}"
    lines = [f"exported: {folder}, {tokenizer}", describe(certificate)]
    compared = certificate.get("tokenizer_ids", {})
    if not compared.get("checked", True) or "first" in compared:
        lines.append(f"tokenizer: {describe_ids(certificate)}")
    if "left_out" in certificate:
        lines.append(f"left out, as {name} has none: {certificate['left_out']}")
    following = f"{name}.from_pretrained({folder!r})"
    if exported["has_tokenizer"] and name.endswith("ForSequenceClassification"):
        following = f"pipeline('text-classification', model={folder!r})"
    return "\n".join([*lines, f"next: transformers.{following}"])
