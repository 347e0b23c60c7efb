"""Greedy decoders compared: an untrained T5 of ours and one of transformers.

Both write the same number of tokens behind the same sources, one batch after another, in one
process, by turns, each at its best number of threads and in the better of the precisions that are
worth timing here. Neither ever writes the end: its vector is zero, and other logits are above that.
Setting up (ours packs weights once a turn) and encoding are part of the time.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from contestants import OURS
from products import precisions
from span_models import N_SENTINELS, PEER, SpanSize, t5, untrained
from stand_in import StandInTokenizer
from torch import Tensor
from turns import Contestant

from sublayer.decode.beam import BeamSettings, search

Decode = Callable[[int], int]
"""Decodes the sources so many times, one batch after another, and counts the tokens."""
_FIRST_TEXT_ID = 5


class _Special(NamedTuple):
    """Ids that stand for no text."""

    pad: int
    end: int


def decoders(size: SpanSize, n_rows: int, n_new: int, most_threads: int) -> list[Contestant]:
    """List the contestants: each writes ``n_new`` tokens behind each of ``n_rows`` sources."""
    special = _special(size)
    generator = torch.Generator().manual_seed(0)
    last_text_id = size.vocab_size - N_SENTINELS
    shape = (n_rows, size.context)
    sources = torch.randint(_FIRST_TEXT_ID, last_text_id, shape, generator=generator)
    sources[:, -1] = special.end
    found = []
    for precision in precisions(size.d_model):
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        ours = _ours(size, sources, n_new, special, dtype)
        theirs = {
            variant: _theirs(size, sources, n_new, special, variant, dtype)
            for variant in ("sdpa", "eager")
        }
        for threads in range(1, most_threads + 1):
            setup = f"{precision}, {threads} thread{'s' if threads > 1 else ''}"
            found.append(Contestant(OURS, setup, _on_threads(ours, threads)))
            for variant, decode in theirs.items():
                found.append(Contestant(PEER, f"{setup}, {variant}", _on_threads(decode, threads)))
    return found


def _special(size: SpanSize) -> _Special:
    tokenizer = StandInTokenizer(size.vocab_size, N_SENTINELS)
    assert tokenizer.pad_id is not None and tokenizer.sep_id is not None, "a stand-in has both"
    return _Special(tokenizer.pad_id, tokenizer.sep_id)


def _on_threads(decode: Decode, threads: int) -> Decode:
    """Return what decodes on so many threads."""

    def run(count: int) -> int:
        torch.set_num_threads(threads)
        return decode(count)

    return run


def _ours(
    size: SpanSize, sources: Tensor, n_new: int, special: _Special, dtype: torch.dtype
) -> Decode:
    model = untrained(size).to(dtype)
    with torch.no_grad():
        model.embedding.weight[special.end] = 0.0
    # Without its end, which the search adds.
    rows: list[Any] = [np.asarray(row[:-1]) for row in sources]
    # At the longest length the end is the one token that is left: a step as any other.
    settings = BeamSettings(beam=1, max_length_offset=n_new - 1)

    def decode(count: int) -> int:
        found = search(
            model,
            itertools.chain.from_iterable(itertools.repeat(rows, count)),
            settings,
            end_id=special.end,
            pad_id=special.pad,
            start_id=special.pad,
            sentences=len(rows),
        )
        n_written = sum(len(hypotheses[0].ids) + 1 for _, hypotheses in found)
        assert n_written == count * len(rows) * n_new, "no row ended early"
        return n_written

    return decode


def _theirs(
    size: SpanSize,
    sources: Tensor,
    n_new: int,
    special: _Special,
    variant: str,
    dtype: torch.dtype,
) -> Decode:
    torch.manual_seed(0)
    model: Any = t5(size, 0.0, variant).to(dtype).eval()
    with torch.no_grad():
        model.shared.weight[special.end] = 0.0
    mask = torch.ones_like(sources)

    @torch.inference_mode()
    def write() -> int:
        ids = model.generate(
            sources,
            attention_mask=mask,
            num_beams=1,
            do_sample=False,
            max_new_tokens=n_new,
            decoder_start_token_id=special.pad,
            eos_token_id=special.end,
            pad_token_id=special.pad,
        )
        n_written = ids.shape[0] * (ids.shape[1] - 1)
        assert n_written == len(sources) * n_new, "no row ended early"
        return int(n_written)

    return lambda count: sum(write() for _ in range(count))
