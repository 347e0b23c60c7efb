"""Which tokens of a piece are noise, drawn for many pieces at once."""

from collections.abc import Callable

import numpy as np

from sublayer.config.span import NoiseSettings, spans_of
from sublayer.data.arrays import Bools, Ints
from sublayer.data.counter_rng import Bits, below, fork, uniform

Draw = Callable[[Bits, int, NoiseSettings], Bools]
"""Draws masks ``[B, L]``, True at noise, from a seed for each piece ``[B]`` and their length L."""


def span_mask(bits: Bits, length: int, settings: NoiseSettings) -> Bools:
    """Draw exactly as many spans of noise as ``spans_of`` counts, of random lengths.

    Noise is divided into spans, and what is not noise into as many parts, by a composition of each
    that is drawn uniformly. They alternate, what is not noise first: the first token is never
    noise, the last always.
    """
    n_noise, n_spans = spans_of(settings, length)
    n_kept = length - n_noise
    # The gaps between what is not noise, and then those between noise.
    keys = _keys(bits, n_kept - 1 + n_noise - 1)  # [B, gaps]
    kept_parts = _composition(keys[:, : n_kept - 1], n_spans)  # [B, S]
    noise_parts = _composition(keys[:, n_kept - 1 :], n_spans)  # [B, S]
    n_rows = len(bits)
    parts = np.stack([kept_parts, noise_parts], axis=2).reshape(n_rows, 2 * n_spans)
    # A part ends where the sum of the lengths up to it ends; the last ends with the piece.
    ends = np.cumsum(parts, axis=1)[:, :-1]  # [B, 2 S - 1]
    changes = np.zeros((n_rows, length), dtype=np.bool_)
    np.put_along_axis(changes, ends, True, axis=1)
    mask: Bools = np.logical_xor.accumulate(changes, axis=1)
    return mask


def chance_mask(bits: Bits, length: int, settings: NoiseSettings) -> Bools:
    """Draw each token as noise or not, on its own, with the probability of the density."""
    drawn = uniform(_keys(bits, length))
    mask: Bools = drawn < settings.noise_density
    return mask


def prefix_mask(bits: Bits, length: int, settings: NoiseSettings) -> Bools:
    """Draw the length of a prefix, from 1 to ``length - 1``; all that follows it is noise."""
    n_prefix = 1 + below(bits, length - 1)  # [B]
    mask: Bools = np.arange(length) >= n_prefix[:, None]
    return mask


MASKS: dict[str, Draw] = {"spans": span_mask, "iid": chance_mask, "prefix": prefix_mask}
"""How each kind of noise is drawn, by its name in ``sublayer.config.span.NOISES``."""


def _keys(bits: Bits, count: int) -> Bits:
    """Return ``count`` random numbers for each seed, ``[B, count]``."""
    numbers = np.tile(np.arange(count), len(bits))
    forked = fork(np.repeat(bits, count), numbers)
    return forked.reshape(len(bits), count)


def _composition(keys: Bits, n_parts: int) -> Ints:
    """Divide the tokens between gaps into parts of at least one, [B, S]; every way is as likely.

    ``keys`` [B, G] order the G gaps between G + 1 tokens: the first S - 1 of them are cut.
    """
    n_rows, n_gaps = keys.shape
    n_cuts = n_parts - 1
    bounds = np.zeros((n_rows, n_parts + 1), dtype=np.int64)
    bounds[:, -1] = n_gaps + 1
    if n_cuts == n_gaps:
        bounds[:, 1:-1] = np.arange(1, n_parts)
    elif n_cuts:
        cut = np.argpartition(keys, n_cuts, axis=1)[:, :n_cuts]
        # The gap after token i, from 0, ends a part of i + 1 tokens.
        bounds[:, 1:-1] = np.sort(cut, axis=1) + 1
    parts: Ints = np.diff(bounds, axis=1)
    return parts
