"""Completions of a text with gaps, and how they are found."""

from dataclasses import dataclass

from sublayer.decode.sample import Sampling
from sublayer.errors import ConfigError


@dataclass(frozen=True)
class FillSettings:
    """How gaps are filled: most probably, by a beam, or ``n_drawn`` times by a sampling.

    Raises ConfigError for both, or for several drawn without a sampling.
    """

    beam: int = 1
    """Hypotheses kept at a time; 1 is greedy. Their probability alone decides."""
    sampling: Sampling | None = None
    n_drawn: int = 1
    seed: int = 0
    most_tokens: int = 200
    """Tokens written at most, sentinels included; the model's own positions may end before."""

    def __post_init__(self) -> None:
        if self.sampling is None and self.n_drawn > 1:
            raise ConfigError(
                f"{self.n_drawn} completions that are not drawn would all be the same: give a "
                "sampling"
            )
        if self.sampling is not None and self.beam > 1:
            raise ConfigError(
                f"a beam of {self.beam} finds the most probable, and a sampling draws: "
                "leave out one"
            )


@dataclass(frozen=True)
class Gap:
    """What fills a gap."""

    text: str
    score: float | None
    """Log-probability of its tokens, in nats, each given those before; None: there is nothing."""
    n_tokens: int
    place: slice
    """Where the text stands in the completed one."""


@dataclass(frozen=True)
class Completion:
    """A completed text."""

    text: str
    gaps: list[Gap]
    score: float
    """Log-probability of all that was written, sentinels and the end included, in nats."""
    n_tokens: int
    """Tokens written, sentinels included, without the end."""
    unplaced: str = ""
    """What was written for no gap, and is not in the text: a model that has learned little writes
    before the first sentinel, or one sentinel twice."""
