"""Span corruption: its table, and the kinds of noise.

Source of the noise: Raffel et al. 2020 (1910.10683), sec. 3.1.4 and 3.3, as released
(text-to-text-transfer-transformer, ``t5/data/preprocessors.py``).
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from sublayer.config.objective import EvaluatedMetric, Lengths, Loss, ModelKind, ObjectiveTable
from sublayer.config.table import LONGEST_WINDOW, Weight, WindowTokens, field
from sublayer.errors import ConfigError

_SPREAD = 4.0
"""Standard deviations above the mean that room is kept for: 3 in 100,000 pieces have more."""


class Noise(ABC):
    """A kind of noise; the masks themselves are drawn by ``sublayer.data.span``."""

    cuts_targets = False
    """True where targets may be longer, and are then cut."""

    @abstractmethod
    def raw(self, settings: "SpanObjective", context: int) -> int:
        """Count the tokens of a piece whose input fits a context; may raise ConfigError."""

    @abstractmethod
    def target(self, settings: "SpanObjective", raw: int) -> int:
        """Count the tokens of the longest target of a piece of raw tokens, its end included."""

    @abstractmethod
    def n_sentinels(self, settings: "SpanObjective", raw: int) -> int:
        """Count the sentinels that a piece takes. 0: inputs and targets have none at all."""


class _SpanNoise(Noise):
    def raw(self, settings: "SpanObjective", context: int) -> int:
        """Return the longest piece whose input, sentinels and end included, fits the context.

        Raises ConfigError where it has no span, or more spans than tokens.
        """

        def input_length(length: int) -> int:
            n_noise, n_spans = settings.reserved(length)
            return length - n_noise + n_spans + 1

        # An input is at least as long as the rest of a piece without its noise, and grows with the
        # piece.
        longest = math.ceil((context + 2) / (1.0 - settings.noise_density))
        raw = bisect_right(range(longest + 1), context, key=input_length) - 1
        n_noise, n_spans = settings.reserved(max(raw, 0))
        if raw < 2 or n_spans < 1:
            raise ConfigError(
                f"data.context = {context} is too short for a span: of {max(raw, 0)} tokens, "
                f"objective.noise_density = {settings.noise_density:g} makes {n_noise} "
                f"noise tokens, at most half of objective.mean_span = {settings.mean_span:g}; "
                "give a longer context, a greater density or a shorter span"
            )
        n_kept = raw - n_noise
        if n_spans > min(n_noise, n_kept):
            raise ConfigError(
                f"objective.mean_span = {settings.mean_span:g} divides {n_noise} noise "
                f"tokens into {n_spans} spans, with {n_kept} tokens between them: give "
                "longer spans or a lower objective.noise_density"
            )
        if settings.noise_density == 0.5 and self.target(settings, raw) > context:
            # As released: half noise would give targets of one more than the input.
            return raw - 1
        return raw

    def target(self, settings: "SpanObjective", raw: int) -> int:
        return sum(settings.spans(raw)) + 1

    def n_sentinels(self, settings: "SpanObjective", raw: int) -> int:
        return settings.spans(raw)[1]


class _ChanceNoise(Noise):
    cuts_targets = True

    def raw(self, settings: "SpanObjective", context: int) -> int:
        # A piece without noise stays as long as it is, and its end follows.
        return max(2, context - 1)

    def target(self, settings: "SpanObjective", raw: int) -> int:
        return min(raw, sum(settings.runs_by_chance(raw))) + 1

    def n_sentinels(self, settings: "SpanObjective", raw: int) -> int:
        return settings.runs_by_chance(raw)[1] + 1


class _PrefixNoise(Noise):
    def raw(self, settings: "SpanObjective", context: int) -> int:
        # The longest prefix leaves one token, in whose place stands its end.
        return context

    def target(self, settings: "SpanObjective", raw: int) -> int:
        return raw

    def n_sentinels(self, settings: "SpanObjective", raw: int) -> int:
        return 0


NOISES: dict[str, Noise] = {"spans": _SpanNoise(), "iid": _ChanceNoise(), "prefix": _PrefixNoise()}


if TYPE_CHECKING:
    NoiseName = str
else:
    NoiseName = Literal[tuple(NOISES)]


MOST_USED = 100
"""Number of T5's sentinels, suggested where there are none."""


class SpanObjective(ObjectiveTable):
    """Predict the parts of a text that were cut out of it, each behind its sentinel (T5)."""

    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("encoder-decoder",)
    is_probed: ClassVar[bool] = True
    evaluated: ClassVar[Mapping[str, EvaluatedMetric]] = {
        "loss": EvaluatedMetric(is_lower_better=True, table="pieces", columns=("nats", "tokens"))
    }

    kind: Literal["span"] = "span"
    """Predict the parts of a text that were cut out of it, each behind its sentinel (T5)."""
    noise: NoiseName = "spans"
    """Kind of noise: spans, a fixed number of spans of random lengths; iid, each token
    independently; prefix, everything after a random prefix, without sentinels (prefix language
    model)."""
    noise_density: float = field(
        0.15, unit="share of tokens", needs={"noise": ("spans", "iid")}, gt=0.0, lt=1.0
    )
    """Share of the tokens that is cut out."""
    mean_span: float = field(
        3.0, unit="tokens", needs={"noise": ("spans",)}, ge=1.0, le=LONGEST_WINDOW
    )
    """Mean length of a span."""
    raw_length: WindowTokens[int | None] = field(
        None, derived="the longest whose input, sentinels and end included, fits data.context"
    )
    """Length of a piece of text before its spans are cut out."""
    target_length: WindowTokens[int | None] = field(
        None,
        derived="the target length of a piece; for iid, four standard deviations above its mean",
    )
    """Length of the longest target, sentinels and end included; longer targets of iid noise are
    truncated."""
    chunk_tokens: WindowTokens[int] = field(65_536, when=("shuffled",))
    """Tokens of the chunk that each epoch takes from a longer document, at a random multiple of
    this length, with data.windows = shuffled."""
    z_loss: Weight[float] = 0.0
    """Weight of the squared log of the softmax's denominator, in training alone; T5: 1e-4."""

    @property
    def row(self) -> Noise:
        """Return the row of the kind of noise."""
        return NOISES[self.noise]

    def resolve(self, context: int) -> Self:
        """Return the table with its lengths filled in; raise ConfigError where there is no room."""
        raw = self.raw_length or self.row.raw(self, context)
        target = self.target_length or self.row.target(self, raw)
        return self.model_copy(update={"raw_length": raw, "target_length": target})

    def lengths(self, context: int) -> Lengths:
        """Return the greatest lengths of an input and of a target."""
        target = self.resolve(context).target_length
        assert target is not None, "it was resolved"
        return Lengths(context, target)

    def n_sentinels(self, context: int) -> int:
        """Count the sentinels that a piece takes at most; none where what follows is cut out."""
        raw = self.resolve(context).raw_length
        assert raw is not None, "it was resolved"
        return self.row.n_sentinels(self, raw)

    def n_ids(self, context: int) -> int:
        """Count the ids that a row of a batch has at least: the token left of a piece of 2."""
        return 1

    def reads(self) -> str:
        """Name the input of the encoder."""
        if self.noise == "prefix":
            return "tokens of a text's beginning"
        return "tokens, sentinels for the gaps"

    def losses(self) -> tuple[Loss, ...]:
        """Return the loss: of the next token of the spans that were cut out."""
        if self.noise == "prefix":
            title, notes = "next token of the rest", []
        else:
            title = "next token of the gaps"
            notes = [f"{self.noise_density:.0%} of the tokens cut out"]
        if self.z_loss:
            notes.append(f"and z-loss × {self.z_loss:g}")
        return (Loss(title, notes=tuple(notes)),)

    def spans(self, length: int) -> tuple[int, int]:
        """Count the noise tokens and the spans of a piece of ``length`` tokens, 2 or more.

        There is at least one each. Halves are rounded to even. Pieces that are shorter than the
        spans ask for have fewer spans.
        """
        n_noise = round(length * self.noise_density)
        n_noise = min(max(n_noise, 1), length - 1)
        n_spans = max(1, round(n_noise / self.mean_span))
        return n_noise, min(n_spans, n_noise, length - n_noise)

    def reserved(self, length: int) -> tuple[int, int]:
        """Count the noise tokens and the spans that a piece of ``length`` tokens asks for."""
        n_noise = round(length * self.noise_density)
        return n_noise, round(n_noise / self.mean_span)

    def runs_by_chance(self, raw: int) -> tuple[int, int]:
        """Compute the most noise by chance of nearly every piece: tokens, and runs of them."""
        density = self.noise_density
        variance = density * (1.0 - density)
        n_noise = raw * density + _SPREAD * math.sqrt(raw * variance)
        # A run begins at a token that is noise after one that is not.
        mean_runs = density + (raw - 1) * variance
        n_runs = mean_runs + _SPREAD * math.sqrt(mean_runs * (1.0 - 3.0 * variance))
        return min(raw, math.ceil(n_noise)), min(raw, math.ceil(n_runs))
