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

from sublayer.decode.beam_cache import BeamCache
from sublayer.decode.beam_step import BeamStepper
from sublayer.errors import ConfigError
from sublayer.model.encoder_decoder import EncoderDecoder

LengthRule = Literal["fairseq", "gnmt"]

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
        if not np.isfinite(self.penalty):
            raise ConfigError(f"a length penalty of {self.penalty} is not a number")
        if not (self.longest_share >= 0 and np.isfinite(self.longest_share) and np.isfinite(self.longest_more)):
            raise ConfigError(
                "the longest length of a translation is share * source + more: give numbers, share not negative"
            )

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


class _Search:
    """Sentences in work: row i * beam + j is hypothesis j of sentence i, the better ones not always first."""

    def __init__(
        self, model: EncoderDecoder, settings: BeamSettings, end_id: int, pad_id: int, start_id: int, sentences: int
    ) -> None:
        self._model, self._settings = model, settings
        self._end, self._pad, self._start = end_id, pad_id, start_id
        assert model.config.max_len is not None, "a saved config is resolved"
        self._max_len = model.config.max_len
        self._device = model.embedding.weight.device
        self._stepper = BeamStepper(model, sentences * settings.beam)
        self._cache = BeamCache(settings.beam)
        self._sentences: list[_Sentence] = []
        dtype = torch.promote_types(model.embedding.weight.dtype, torch.float32)
        self._log_p = torch.zeros(0, settings.beam, dtype=dtype, device=self._device)
        self._tokens = torch.zeros(0, dtype=torch.long, device=self._device)  # what each row reads next
        self._written = torch.zeros(0, 0, dtype=torch.long, device=self._device)  # [R, L], right-aligned

    @property
    def n_sentences(self) -> int:
        return len(self._sentences)

    def admit(self, sources: list[tuple[int, NDArray[np.integer]]]) -> None:
        if not sources:
            return
        beam, settings = self._settings.beam, self._settings
        lengths = np.array([len(ids) + 1 for _, ids in sources])
        tokens = np.full((len(sources), lengths.max()), self._pad, dtype=np.int64)
        for row, (number, ids) in enumerate(sources):
            tokens[row, : len(ids)], tokens[row, len(ids)] = ids, self._end
            longest = int(settings.longest_share * lengths[row] + settings.longest_more)
            self._sentences.append(_Sentence(number, max(1, min(longest, self._max_len - 1))))
        mask = np.arange(tokens.shape[1]) < lengths[:, None]
        self._stepper.admit(
            torch.from_numpy(tokens).to(self._device),
            None if mask.all() else torch.from_numpy(mask).to(self._device),
            self._cache,
        )
        # One hypothesis begins; the others are not there yet.
        log_p = self._log_p.new_full((len(sources), beam), -torch.inf)
        log_p[:, 0] = 0.0
        self._log_p = torch.cat([self._log_p, log_p])
        n_rows = len(sources) * beam
        self._tokens = torch.cat([self._tokens, self._tokens.new_full((n_rows,), self._start)])
        self._written = torch.cat([self._written, self._written.new_zeros(n_rows, self._written.shape[1])])

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """Let every hypothesis grow by a token; give the sentences that are done."""
        beam, n = self._settings.beam, self.n_sentences
        n_written = (self._cache.length - self._cache.starts).tolist()
        logits = self._stepper(self._tokens, self._cache).to(self._log_p.dtype)  # [R, V]
        self._bar(logits, n_written)
        candidates = self._candidates(logits)
        scores, origins, tokens = (each.cpu().numpy() for each in candidates)  # [N, C] each
        is_end = tokens == self._end
        done: list[int] = []
        # The best that go on come first, in their order; ends behind them.
        order = np.argsort(np.where(is_end, 1, 0), axis=1, kind="stable")[:, :beam]
        for index, sentence in enumerate(self._sentences):
            for rank in range(min(beam, scores.shape[1])):
                if is_end[index, rank] and np.isfinite(scores[index, rank]) and len(sentence.closed) < beam:
                    self._close(
                        sentence, index * beam + int(origins[index, rank]), float(scores[index, rank]), n_written[index]
                    )
            going = np.take_along_axis(scores[index], order[index], 0)
            is_last = n_written[index] == sentence.longest
            if len(sentence.closed) == beam or is_last or not np.isfinite(going[~is_end[index, order[index]]]).any():
                done.append(index)
        rows = np.arange(n)[:, None] * beam + np.take_along_axis(origins, order, 1)
        self._advance(
            torch.from_numpy(rows.reshape(-1)).to(self._device),
            torch.from_numpy(
                np.where(np.take_along_axis(is_end, order, 1), -np.inf, np.take_along_axis(scores, order, 1))
            ),
            torch.from_numpy(np.take_along_axis(tokens, order, 1).reshape(-1)).to(self._device),
        )
        return self._finish(done)

    def _bar(self, logits: Float[Tensor, "R V"], n_written: list[int]) -> None:
        """Bar padding, an end at once, and all but the end at the longest length."""
        beam = self._settings.beam
        self._lse = logits.logsumexp(-1, keepdim=True)
        logits[:, self._pad] = -torch.inf
        for index, sentence in enumerate(self._sentences):
            rows = slice(index * beam, (index + 1) * beam)
            if n_written[index] == 0:
                logits[rows, self._end] = -torch.inf
            elif n_written[index] == sentence.longest:
                ends = logits[rows, self._end].clone()
                logits[rows] = -torch.inf
                logits[rows, self._end] = ends

    def _candidates(
        self, logits: Float[Tensor, "R V"]
    ) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"], Int[Tensor, "N C"]]:
        """Give the best 2 * beam continuations of each sentence: log p, hypothesis, token."""
        beam, n = self._settings.beam, self.n_sentences
        width = min(2 * beam, logits.shape[1])
        best = logits.topk(width, -1)
        log_p = (best.values - self._lse).view(n, beam, width) + self._log_p[:, :, None]
        chosen = log_p.view(n, -1).topk(min(2 * beam, beam * width), -1)
        tokens = best.indices.view(n, -1).gather(1, chosen.indices)
        return chosen.values, chosen.indices // width, tokens

    def _close(self, sentence: _Sentence, row: int, log_p: float, n_written: int) -> None:
        ids = self._written[row, self._written.shape[1] - n_written :].cpu().numpy()
        sentence.closed.append(Hypothesis(ids, log_p, self._settings.score(log_p, n_written + 1)))

    def _advance(self, rows: Tensor, log_p: Tensor, tokens: Tensor) -> None:
        if not bool((rows == torch.arange(len(rows), device=rows.device)).all()):
            self._cache.reorder(rows)
            self._written = self._written.index_select(0, rows)
        self._written = torch.cat([self._written, tokens[:, None]], 1)
        self._tokens, self._log_p = tokens, log_p.to(self._log_p)

    def _finish(self, done: list[int]) -> list[tuple[int, list[Hypothesis]]]:
        if not done:
            return []
        found = [
            (self._sentences[index].number, sorted(self._sentences[index].closed, key=lambda each: -each.score))
            for index in done
        ]
        left = [index for index in range(self.n_sentences) if index not in set(done)]
        kept = torch.tensor(left, dtype=torch.long, device=self._device)
        beam = self._settings.beam
        rows = (kept[:, None] * beam + torch.arange(beam, device=self._device)).flatten()
        self._sentences = [self._sentences[index] for index in left]
        self._cache.keep(kept)
        self._log_p, self._tokens = self._log_p.index_select(0, kept), self._tokens.index_select(0, rows)
        n_written = int((self._cache.length - self._cache.starts).max()) if left else 0
        self._written = self._written.index_select(0, rows)[:, self._written.shape[1] - n_written :]
        if self._cache.first > self._max_len:
            self._cache.compact()
        return found
