"""A translator so small that it learns a few words within seconds, and texts of such words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sublayer.api.training import train

TINY: dict[str, Any] = {
    "data.moses": "none",
    "data.context": 32,
    "model.n_layers": 1,
    "model.d_model": 32,
    "model.d_ff": 32,
    "model.dropout": 0.0,
    "model.dropout_attention": 0.0,
    "model.dropout_ffn": 0.0,
    "optimizer.warmup_steps": 30,
    "optimizer.clip_norm": 1.0,
    "train.steps": 150,
    "train.batch_tokens": 320,
    "train.evaluate_steps": 50,
    "train.precision": "float32",
    "train.threads": 1,
}


def train_translator(folder: Path, **settings: Any) -> Path:
    """Train on ``a.en`` and ``a.de`` of a folder and return the run in it.

    Settings are named with ``__`` for a dot.
    """
    paths = {"data.source_path": str(folder / "a.en"), "data.target_path": str(folder / "a.de")}
    given = {name.replace("__", "."): value for name, value in settings.items()}
    train("multi30k-tiny", {**TINY, **paths, **given}, out=folder / "run")
    return folder / "run"


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write lines, each with its end."""
    path.write_text("".join(f"{line}\n" for line in lines))


def write_pair(folder: Path, sources: Sequence[str], targets: Sequence[str]) -> None:
    """Write a text and its translation as ``a.en`` and ``a.de``."""
    write_lines(folder / "a.en", sources)
    write_lines(folder / "a.de", targets)


def sentences(words: Sequence[str], n: int, longest: int) -> list[str]:
    """Build sentences of one word up to a length, the same for any seven words."""
    return [
        " ".join(words[(i // 7 + i * j) % 7] for j in range(1, 2 + i % longest)) for i in range(n)
    ]
