"""Beam search: the most probable translations, several sentences at a time.

The rules are fairseq's (0.6.0, with which Macaron Net was tested): of the best ``2 * beam`` continuations of a
sentence, an end that ranks among the first ``beam`` closes a hypothesis, and the best ``beam`` others go on; a sentence
is done once ``beam`` hypotheses are closed; at the longest length all that are left are closed; a hypothesis has at
least one token beside its end. A departure: the longest length is each sentence's own, where fairseq takes that of the
longest source beside it, so that a translation does not depend on what is translated beside it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from sublayer.config.limits import LARGEST_PENALTY, WIDEST_BEAM
from sublayer.config.objective import TranslationObjective
from sublayer.decode.beam_cache import FIRST_LENGTH, BeamCache
from sublayer.decode.beam_step import BeamStepper
from sublayer.errors import ConfigError
from sublayer.model.cache import cache_bytes
from sublayer.model.capacity import check_memory
from sublayer.model.encoder_decoder import EncoderDecoder

LengthRule = Literal["fairseq", "gnmt"]

_PIECE = 64
"""Scores of which the highest is looked at first."""
_ROWS = 64
"""Rows whose exponentials stay in the cache."""
_REFILL = 0.75
"""Share of the sentences left over at which new ones join."""


@dataclass(frozen=True)
class BeamSettings:
    """How translations are searched for.

    A hypothesis of n tokens, its end included, scores ``log p / n ** penalty`` (fairseq) or
    ``log p / ((5 + n) / 6) ** penalty`` (gnmt: Wu et al. 2016, Vaswani et al. 2017). It has at most
    ``int(longest_share * s + longest_more)`` tokens beside its end, where s counts the source's, its end included.
    Raises ConfigError for values without meaning.
    """

    beam: int = 5
    rule: LengthRule = "fairseq"
    penalty: float = 1.0
    longest_share: float = 0.0
    longest_more: float = 200.0

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ConfigError(f"a beam of {self.beam} finds nothing: give 1 or more")
        if self.beam > WIDEST_BEAM:
            raise ConfigError(f"a beam of {self.beam:,} is too wide: give at most {WIDEST_BEAM:,}")
        if not np.isfinite(self.penalty):
            raise ConfigError(f"a length penalty of {self.penalty} is not a number")
        if abs(self.penalty) > LARGEST_PENALTY:
            raise ConfigError(
                f"a length penalty of {self.penalty:g} is no exponent of a length: give one between "
                f"{-LARGEST_PENALTY:g} and {LARGEST_PENALTY:g}"
            )
        if not (self.longest_share >= 0 and np.isfinite(self.longest_share) and np.isfinite(self.longest_more)):
            raise ConfigError(
                "the longest length of a translation is share * source + more: give numbers, share not negative"
            )

    @classmethod
    def of(cls, objective: TranslationObjective) -> "BeamSettings":
        """Give a recipe's."""
        return cls(objective.beam, objective.length_rule, objective.length_penalty)

    def score(self, log_p: float, n_tokens: int) -> float:
        """Score a closed hypothesis of so many tokens, its end included."""
        length = n_tokens if self.rule == "fairseq" else (5 + n_tokens) / 6
        return float(log_p / length**self.penalty)


@dataclass(frozen=True)
class Hypothesis:
    """A translation: its ids without the end, the log of its probability with the end, and its score."""

    ids: NDArray[np.int64]
    log_p: float
    score: float


@dataclass
class _Sentence:
    number: int
    longest: int
    closed: list[Hypothesis] = field(default_factory=list)


@torch.inference_mode()
def search(
    model: EncoderDecoder,
    sources: Iterable[NDArray[np.integer]],
    settings: BeamSettings,
    *,
    end_id: int,
    pad_id: int,
    start_id: int | None = None,
    sentences: int = 32,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Translate sources, ids without their end, and give each one's number with its hypotheses, the best first.

    ``sentences`` are translated at a time: those that are done make room for the next, which changes speed and memory
    only; they come in the order in which they are done. ``start_id`` is what the decoder begins with, by default the
    end. Raises ConfigError where the model would drop units out, or a source is longer than its positions.
    """
    if model.training:
        raise ConfigError("the model is in training mode, with dropout: call model.eval() before translating")
    batch = _Search(model, settings, end_id, pad_id, end_id if start_id is None else start_id, sentences)
    waiting = enumerate(sources)
    while True:
        if batch.n_sentences <= _REFILL * sentences:
            batch.admit(list(islice(waiting, sentences - batch.n_sentences)))
        if not batch.n_sentences:
            return
        yield from batch.step()


def top(scores: Float[Tensor, "R V"], count: int) -> tuple[Float[Tensor, "R C"], Int[Tensor, "R C"]]:
    """Give the ``count`` highest scores of each row and where they are, in no order of equal ones.

    The highest stand in the pieces of highest maximum, so that few pieces are searched: on a CPU that is faster.
    """
    n_pieces = scores.shape[1] // _PIECE
    if n_pieces <= 2 * count:
        best = scores.topk(count, -1)
        return best.values, best.indices
    whole = scores[:, : n_pieces * _PIECE].view(-1, n_pieces, _PIECE)
    pieces = whole.amax(-1).topk(count, -1, sorted=False).indices  # [R, C]
    found = whole.gather(1, pieces[:, :, None].expand(-1, -1, _PIECE)).flatten(1)  # [R, C piece]
    rest = scores[:, n_pieces * _PIECE :]
    best = torch.cat([found, rest], 1).topk(count, -1)
    places = (pieces[:, :, None] * _PIECE + torch.arange(_PIECE, device=scores.device)).flatten(1)
    behind = torch.arange(n_pieces * _PIECE, scores.shape[1], device=scores.device).expand(len(scores), -1)
    return best.values, torch.cat([places, behind], 1).gather(1, best.indices)


def log_total(logits: Float[Tensor, "R V"]) -> Float[Tensor, "R 1"]:
    """Give the log of the sum of each row's exponentials, as ``logsumexp`` does: on a CPU faster."""
    # The largest share is 1 / sum(exp(logit - largest logit)).
    largest_shares = [part.softmax(-1).amax(-1, keepdim=True) for part in torch.split(logits, _ROWS)]
    return logits.amax(-1, keepdim=True) - torch.cat(largest_shares).log()


def _check_rows(model: EncoderDecoder, sentences: int, beam: int) -> None:
    """Refuse rows whose logits, and the first places of whose keys and values, cannot fit."""
    config, itemsize = model.config, model.embedding.weight.dtype.itemsize
    assert config.vocab_size is not None, "a saved config is resolved"
    rows = sentences * beam
    needed = 2 * rows * config.vocab_size * itemsize + cache_bytes(config, rows, FIRST_LENGTH, torch.float32)
    check_memory(needed, f"a beam of {beam:,} for {sentences:,} sentences", "give a smaller --beam or --batch")


class _Search:
    """Sentences in work, one in each slot or none: row i * beam + j is hypothesis j of slot i, in no order."""

    def __init__(
        self, model: EncoderDecoder, settings: BeamSettings, end_id: int, pad_id: int, start_id: int, sentences: int
    ) -> None:
        self._settings = settings
        self._end, self._pad, self._start = end_id, pad_id, start_id
        assert model.config.max_len is not None, "a saved config is resolved"
        self._max_len = model.config.max_len
        self._device = model.embedding.weight.device
        _check_rows(model, sentences, settings.beam)
        self._stepper = BeamStepper(model, sentences * settings.beam)
        self._cache = BeamCache(settings.beam, self._device)
        self._slots: list[_Sentence | None] = []
        dtype = torch.promote_types(model.embedding.weight.dtype, torch.float32)
        self._log_p = torch.zeros(0, settings.beam, dtype=dtype, device=self._device)
        self._tokens = torch.zeros(0, settings.beam, dtype=torch.long, device=self._device)  # what each row reads next

    @property
    def n_sentences(self) -> int:
        return sum(each is not None for each in self._slots)

    def admit(self, sources: list[tuple[int, NDArray[np.integer]]]) -> None:
        """Let sentences begin in slots that are free; without any more, go on with the slots in use alone."""
        if not sources:
            self._shrink()
            return
        settings = self._settings
        lengths = np.array([len(ids) + 1 for _, ids in sources])
        tokens = np.full((len(sources), lengths.max()), self._pad, dtype=np.int64)
        slots = self._free_slots(len(sources))
        for row, (slot, (number, ids)) in enumerate(zip(slots, sources, strict=True)):
            tokens[row, : len(ids)], tokens[row, len(ids)] = ids, self._end
            longest = int(settings.longest_share * lengths[row] + settings.longest_more)
            self._slots[slot] = _Sentence(number, max(1, min(longest, self._max_len - 1)))
        mask = np.arange(tokens.shape[1]) < lengths[:, None]
        self._stepper.admit(
            torch.from_numpy(tokens).to(self._device),
            None if mask.all() else torch.from_numpy(mask).to(self._device),
            self._cache,
            slots,
        )
        # One hypothesis begins; the others are not there yet.
        self._log_p[slots], self._tokens[slots] = -torch.inf, self._start
        self._log_p[slots, 0] = 0.0

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """Let every hypothesis grow by a token; give the sentences that are done."""
        beam = self._settings.beam
        n_written = self._cache.lengths.tolist()
        logits = self._stepper(self._tokens.flatten(), self._cache).to(self._log_p.dtype)  # [R, V]
        total = log_total(logits)
        self._bar(logits, n_written)
        scores, origins, tokens = (each.cpu().numpy() for each in self._candidates(logits, total))  # [N, C] each
        is_end, is_found = tokens == self._end, np.isfinite(scores)
        for slot, rank in np.argwhere(is_end[:, :beam] & is_found[:, :beam]).tolist():
            sentence = self._slots[slot]
            if sentence is not None and len(sentence.closed) < beam:
                row, log_p = int(origins[slot, rank]), float(scores[slot, rank])
                sentence.closed.append(self._closed(slot, row, log_p, n_written[slot]))
        # The best that go on come first, in their order; ends behind them.
        order = np.argsort(is_end, axis=1, kind="stable")[:, :beam]
        going = np.take_along_axis(~is_end & is_found, order, 1)
        done = [
            slot
            for slot, sentence in enumerate(self._slots)
            if sentence is not None
            and (len(sentence.closed) == beam or n_written[slot] == sentence.longest or not going[slot].any())
        ]
        chosen = (np.take_along_axis(each, order, 1) for each in (origins, tokens, scores))
        parents, self._tokens, kept = (torch.from_numpy(each).to(self._device) for each in chosen)
        barred = torch.from_numpy(~going).to(self._device)
        self._log_p = kept.to(self._log_p).masked_fill_(barred, -torch.inf)
        is_live = torch.tensor([each is not None for each in self._slots], device=self._device)
        self._cache.advance(parents, is_live)
        return self._finish(done)

    def _bar(self, logits: Float[Tensor, "R V"], n_written: list[int]) -> None:
        """Bar padding, an end at once, and all but the end at the longest length."""
        beam = self._settings.beam
        logits[:, self._pad] = -torch.inf
        for slot, sentence in enumerate(self._slots):
            rows = slice(slot * beam, (slot + 1) * beam)
            if sentence is None:
                continue
            if n_written[slot] == 0:
                logits[rows, self._end] = -torch.inf
            elif n_written[slot] == sentence.longest:
                ends = logits[rows, self._end].clone()
                logits[rows] = -torch.inf
                logits[rows, self._end] = ends

    def _candidates(
        self, logits: Float[Tensor, "R V"], total: Float[Tensor, "R 1"]
    ) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"], Int[Tensor, "N C"]]:
        """Give the best 2 * beam continuations of each sentence: log p, hypothesis, token."""
        beam, n = self._settings.beam, len(self._slots)
        width = min(2 * beam, logits.shape[1])
        values, indices = top(logits, width)
        log_p = (values - total).view(n, beam, width) + self._log_p[:, :, None]
        chosen = log_p.view(n, -1).topk(min(2 * beam, beam * width), -1)
        tokens = indices.view(n, -1).gather(1, chosen.indices)
        return chosen.values, chosen.indices // width, tokens

    def _closed(self, slot: int, row: int, log_p: float, n_written: int) -> Hypothesis:
        ids = self._cache.written(slot, row).cpu().numpy()
        assert len(ids) == n_written, "a hypothesis has written a token at each place but the first"
        return Hypothesis(ids, log_p, self._settings.score(log_p, n_written + 1))

    def _finish(self, done: list[int]) -> list[tuple[int, list[Hypothesis]]]:
        found = []
        for slot in done:
            sentence = self._slots[slot]
            assert sentence is not None, "what is done was in work"
            found.append((sentence.number, sorted(sentence.closed, key=lambda each: -each.score)))
            self._slots[slot] = None
        if done:
            self._cache.free(done)
            self._log_p[done] = -torch.inf
        return found

    def _free_slots(self, count: int) -> list[int]:
        if not self._slots:
            self._slots = [None] * count
            self._log_p, self._tokens = (each.new_zeros(count, each.shape[1]) for each in (self._log_p, self._tokens))
        free = [slot for slot, each in enumerate(self._slots) if each is None]
        return free[:count]

    def _shrink(self) -> None:
        used = [slot for slot, each in enumerate(self._slots) if each is not None]
        if used and 2 * len(used) <= len(self._slots):
            self._slots = [self._slots[slot] for slot in used]
            self._log_p, self._tokens = self._log_p[used], self._tokens[used]
            self._cache.keep(used)
