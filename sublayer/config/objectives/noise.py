"""The kinds of noise of span corruption: how long pieces and targets are, what sentinels they take.

Source: Raffel et al. 2020 (1910.10683), sec. 3.1.4 and 3.3, as released
(text-to-text-transfer-transformer, ``t5/data/preprocessors.py``).
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sublayer.errors import ConfigError


class NoiseSettings(Protocol):
    """The settings that noise is drawn by."""

    @property
    def noise_density(self) -> float:
        """Return the share of the tokens that are noise."""

    @property
    def mean_span(self) -> float:
        """Return the mean number of tokens of a run of noise."""


class Spans(NamedTuple):
    """What of a piece is noise: so many tokens, in so many runs."""

    n_noise: int
    n_spans: int


def spans_of(settings: NoiseSettings, length: int) -> Spans:
    """Count the noise and the spans of a piece of ``length`` tokens, 2 or more: at least one each.

    Halves are rounded to even. Pieces that are shorter than the spans ask for have fewer spans.
    """
    n_noise = round(length * settings.noise_density)
    n_noise = min(max(n_noise, 1), length - 1)
    n_spans = max(1, round(n_noise / settings.mean_span))
    return Spans(n_noise, min(n_spans, n_noise, length - n_noise))


def _reserved(settings: NoiseSettings, length: int) -> Spans:
    n_noise = round(length * settings.noise_density)
    return Spans(n_noise, round(n_noise / settings.mean_span))


def _raw_of_spans(settings: NoiseSettings, context: int) -> int:
    """Return the longest piece whose input, sentinels and end included, fits the context.

    Raises ConfigError where it has no span, or more spans than tokens.
    """

    def input_length(length: int) -> int:
        spans = _reserved(settings, length)
        return length - spans.n_noise + spans.n_spans + 1

    # An input is at least as long as what is left of a piece, and grows with the piece.
    longest = math.ceil((context + 2) / (1.0 - settings.noise_density))
    raw = bisect_right(range(longest + 1), context, key=input_length) - 1
    spans = _reserved(settings, max(raw, 0))
    if raw < 2 or spans.n_spans < 1:
        raise ConfigError(
            f"data.context = {context} has no room for a span: of {max(raw, 0)} tokens, "
            f"objective.noise_density = {settings.noise_density:g} makes {spans.n_noise} noise, "
            f"at most half of objective.mean_span = {settings.mean_span:g}; give a longer "
            "context, a greater density or a shorter span"
        )
    n_kept = raw - spans.n_noise
    if spans.n_spans > min(spans.n_noise, n_kept):
        raise ConfigError(
            f"objective.mean_span = {settings.mean_span:g} divides {spans.n_noise} noise tokens "
            f"into {spans.n_spans} spans, between which there are {n_kept} tokens: "
            "give longer spans or a lower objective.noise_density"
        )
    if settings.noise_density == 0.5 and _target_of_spans(settings, raw) > context:
        # As released: half noise would give targets of one more than the input.
        return raw - 1
    return raw


def _target_of_spans(settings: NoiseSettings, raw: int) -> int:
    spans = spans_of(settings, raw)
    return spans.n_noise + spans.n_spans + 1


def _sentinels_of_spans(settings: NoiseSettings, raw: int) -> int:
    return spans_of(settings, raw).n_spans


_SPREAD = 4.0
"""Standard deviations above the mean that room is kept for: 3 in 100,000 pieces have more."""


class _Runs(NamedTuple):
    """The most noise by chance that nearly every piece has: tokens, and runs of them."""

    n_noise: int
    n_runs: int


def _runs_by_chance(settings: NoiseSettings, raw: int) -> _Runs:
    density = settings.noise_density
    variance = density * (1.0 - density)
    n_noise = raw * density + _SPREAD * math.sqrt(raw * variance)
    # A run begins at a token that is noise after one that is not.
    mean_runs = density + (raw - 1) * variance
    n_runs = mean_runs + _SPREAD * math.sqrt(mean_runs * (1.0 - 3.0 * variance))
    return _Runs(min(raw, math.ceil(n_noise)), min(raw, math.ceil(n_runs)))


def _raw_by_chance(settings: NoiseSettings, context: int) -> int:
    # A piece without noise stays as long as it is, and its end follows.
    return max(2, context - 1)


def _target_by_chance(settings: NoiseSettings, raw: int) -> int:
    runs = _runs_by_chance(settings, raw)
    return min(raw, runs.n_noise + runs.n_runs) + 1


def _sentinels_by_chance(settings: NoiseSettings, raw: int) -> int:
    return _runs_by_chance(settings, raw).n_runs + 1


def _raw_of_prefix(settings: NoiseSettings, context: int) -> int:
    # The longest prefix leaves one token, in whose place stands its end.
    return context


def _target_of_prefix(settings: NoiseSettings, raw: int) -> int:
    return raw


def _no_sentinels(settings: NoiseSettings, raw: int) -> int:
    return 0


Count = Callable[[NoiseSettings, int], int]


@dataclass(frozen=True)
class Noise:
    """A kind of noise; the masks themselves are drawn by ``sublayer.data.span.masks``."""

    raw: Count
    """Counts the tokens of a piece whose input fits a context; may raise ConfigError."""
    target: Count
    """Counts the tokens of the longest target of a piece of raw tokens, its end included."""
    n_sentinels: Count
    """Counts the sentinels that a piece takes. 0: inputs and targets have none at all."""
    cuts_targets: bool = False
    """Whether targets may be longer, and are then cut."""


NOISES: dict[str, Noise] = {
    "spans": Noise(_raw_of_spans, _target_of_spans, _sentinels_of_spans),
    "iid": Noise(_raw_by_chance, _target_by_chance, _sentinels_by_chance, cuts_targets=True),
    "prefix": Noise(_raw_of_prefix, _target_of_prefix, _no_sentinels),
}
