"""The settings of beam search: its width, its longest length, and the length penalty."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sublayer.config.limits import LARGEST_PENALTY, WIDEST_BEAM
from sublayer.config.translation import TranslationObjective
from sublayer.errors import ConfigError

LengthRule = Literal["fairseq", "gnmt"]
_DEFAULTS = TranslationObjective()


@dataclass(frozen=True)
class BeamSettings:
    """Width of the beam, length penalty and longest length of a search for translations.

    A hypothesis of n tokens, its end included, scores ``log p / n ** penalty`` (fairseq) or ``log p
    / ((5 + n) / 6) ** penalty`` (gnmt: Wu et al. 2016, Vaswani et al. 2017). It has at most
    ``int(max_length_ratio * s + max_length_offset)`` tokens beside its end, where s counts the
    source's, its end included. Width, rule and penalty are the recipe's unless given.

    Raises ConfigError for values without meaning: a beam outside 1 to ``WIDEST_BEAM``, a penalty
    that is not finite or beyond ``LARGEST_PENALTY`` either way, lengths that are not finite, or a
    negative ratio.
    """

    beam: int = _DEFAULTS.beam
    """Hypotheses that are extended together; a sentence is done when as many are closed."""
    rule: LengthRule = _DEFAULTS.length_rule
    penalty: float = _DEFAULTS.length_penalty
    """The exponent of the length: 0 for none; a larger one favours longer translations."""
    max_length_ratio: float = 0.0
    """Tokens of a translation for each of its source."""
    max_length_offset: float = 200.0
    """Tokens beyond those."""

    def __post_init__(self) -> None:
        self._check_beam()
        self._check_penalty()
        self._check_max_length()

    @classmethod
    def of(cls, objective: TranslationObjective) -> "BeamSettings":
        """Return the settings that a recipe asks for; lengths are those by default.

        Raises ConfigError as the settings do.
        """
        return cls(objective.beam, objective.length_rule, objective.length_penalty)

    def max_length(self, n_source: int) -> int:
        """Compute the most tokens beside its end that a translation of so many may have.

        ``n_source`` counts the source's end. The model's own positions may end before.
        """
        return int(self.max_length_ratio * n_source + self.max_length_offset)

    def score(self, log_p: float, n_tokens: int) -> float:
        """Score a closed hypothesis of so many tokens, its end included; higher is better.

        ``log_p`` is in nats, the end's included.
        """
        length = n_tokens if self.rule == "fairseq" else (5 + n_tokens) / 6
        return float(log_p / length**self.penalty)

    def _check_beam(self) -> None:
        if self.beam < 1:
            raise ConfigError(f"a beam of {self.beam} finds nothing: give 1 or more")
        if self.beam > WIDEST_BEAM:
            raise ConfigError(f"a beam of {self.beam:,} is too wide: give at most {WIDEST_BEAM:,}")

    def _check_penalty(self) -> None:
        if not np.isfinite(self.penalty):
            raise ConfigError(f"a length penalty of {self.penalty} is not a number")
        if abs(self.penalty) > LARGEST_PENALTY:
            raise ConfigError(
                f"a length penalty of {self.penalty:g} is no exponent of a length: give one "
                f"between {-LARGEST_PENALTY:g} and {LARGEST_PENALTY:g}"
            )

    def _check_max_length(self) -> None:
        lengths = (self.max_length_ratio, self.max_length_offset)
        are_finite = all(map(np.isfinite, lengths))
        if not (self.max_length_ratio >= 0 and are_finite):
            raise ConfigError(
                "the longest length of a translation is ratio * source + offset: give numbers, "
                "the ratio not negative"
            )


@dataclass(frozen=True)
class Hypothesis:
    """A closed hypothesis of beam search."""

    ids: NDArray[np.int64]
    """The tokens without the end."""
    log_p: float
    """The natural log of its probability, the end's included."""
    score: float
    """``log_p`` with its length accounted for, by which hypotheses are compared."""
