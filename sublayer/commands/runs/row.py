"""A row of ``sublayer runs``: what, when, how good, how long."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal["run", "comparison", "model"]
State = Literal["finished", "unfinished", "running", "failed", "damaged"]


@dataclass(frozen=True)
class Score:
    """A figure of a model, as files keep it."""

    name: str
    """Its key, such as ``bits_per_byte``."""
    value: float
    split: Literal["valid", "test"]


@dataclass(frozen=True)
class Row:
    """A run, a comparison or an imported model; what is not known is None or empty."""

    folder: str
    kind: Kind
    state: State
    when: float
    """When it was last written to, in seconds since 1970."""
    recipe: str = ""
    """The shipped recipe of a run, the name of a study."""
    title: str = ""
    model: str = ""
    """What the model is: decoder, encoder or encoder-decoder."""
    changed: Mapping[str, Any] = field(default_factory=dict)
    """Fields in which a run differs from the recipe, and their values."""
    score: Score | None = None
    step: int | None = None
    """Optimizer steps that were taken; of an unfinished run, up to its newest checkpoint."""
    steps: int | None = None
    """Optimizer steps of the whole run."""
    seconds: float | None = None
    arms: tuple[str, ...] = ()
    seeds: int | None = None
    """Runs of each arm; None for a comparison of before that was kept."""
    finished: int | None = None
    """Single runs of a comparison that were trained and scored."""
    planned: int | None = None
    headline: str = ""
    """The verdicts of a comparison."""
    resume: str = ""
    """The command that resumes what is not finished; empty where none is known."""
    problem: str = ""
    """Why it failed, or cannot be read."""


def newest(paths: Iterable[Path]) -> float:
    """Return when the newest of the files was written, of those that are there; 0 for none."""
    times = [path.lstat().st_mtime for path in paths if path.exists()]
    return max(times, default=0.0)
