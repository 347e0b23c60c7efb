"""Beam search: the most probable texts for sources, several at a time, and translation of lines.

The rules are fairseq's (0.6.0, with which Macaron Net was tested): of the best ``2 * beam``
continuations of a sentence, an end that ranks among the first ``beam`` closes a hypothesis, and the
best ``beam`` others continue; a sentence is done once ``beam`` hypotheses are closed; at the
maximum length all remaining ones are closed; a hypothesis has at least one token before its end.
Departure: the maximum length depends on the sentence's source, not, as in fairseq, on the longest
source in the batch, so that a translation does not depend on its batch.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from sublayer.config.objective import TranslationObjective
from sublayer.config.table import LARGEST_PENALTY, WIDEST_BEAM
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.decode.beam_step import (
    FIRST_LENGTH,
    BeamCache,
    BeamStepper,
    Continuations,
    Continue,
    best_continuations,
    log_sum_exp,
)
from sublayer.errors import ConfigError
from sublayer.model.cache import Cache, cache_bytes
from sublayer.model.transformer import Decoder, EncoderDecoder
from sublayer.system.machine import check_memory
from sublayer.system.terminal import stage
from sublayer.text_model import TextModel

LengthRule = Literal["fairseq", "gnmt"]
_DEFAULTS = TranslationObjective()


@dataclass(frozen=True)
class BeamSettings:
    """Beam width, length penalty and maximum length of a translation search.

    A hypothesis of n tokens, its end included, scores ``log p / n ** penalty`` (fairseq) or ``log p
    / ((5 + n) / 6) ** penalty`` (gnmt: Wu et al. 2016, Vaswani et al. 2017). It has at most
    ``int(max_length_ratio * s + max_length_offset)`` tokens before its end, where s is the length
    of the source with its end. Width, rule and penalty default to the recipe's.

    Raises ConfigError for values without meaning: a beam outside 1 to ``WIDEST_BEAM``, a penalty
    that is not finite or beyond ``LARGEST_PENALTY`` either way, lengths that are not finite, or a
    negative ratio.
    """

    beam: int = _DEFAULTS.beam
    """Hypotheses extended together; a sentence is done when this many are closed."""
    rule: LengthRule = _DEFAULTS.length_rule
    penalty: float = _DEFAULTS.length_penalty
    """Exponent of the length: 0 for none; a larger one favours longer translations."""
    max_length_ratio: float = 0.0
    """Most tokens of a translation per source token."""
    max_length_offset: float = 200.0
    """Most tokens in addition."""

    def __post_init__(self) -> None:
        if not 1 <= self.beam <= WIDEST_BEAM:
            raise ConfigError(
                f"a beam of {self.beam:,} is out of range: give 1 to {WIDEST_BEAM:,} hypotheses"
            )
        if not abs(self.penalty) <= LARGEST_PENALTY:  # NaN included
            raise ConfigError(
                f"a length penalty of {self.penalty:g} is out of range: give one "
                f"between {-LARGEST_PENALTY:g} and {LARGEST_PENALTY:g}"
            )
        are_finite = math.isfinite(self.max_length_ratio) and math.isfinite(self.max_length_offset)
        if not (self.max_length_ratio >= 0 and are_finite):
            raise ConfigError(
                "the maximum length of a translation is ratio * source + offset: give finite "
                "numbers, and a ratio of 0 or more"
            )

    @classmethod
    def of(cls, objective: TranslationObjective) -> "BeamSettings":
        """Return a recipe's settings, with default lengths.

        Raises ConfigError as the settings do.
        """
        return cls(objective.beam, objective.length_rule, objective.length_penalty)

    def max_length(self, n_source: int) -> int:
        """Compute the maximum length of a translation, without its end.

        ``n_source`` counts the source's end. The model may have fewer positions.
        """
        return int(self.max_length_ratio * n_source + self.max_length_offset)

    def length_limit(self, n_source: int, n_positions: int) -> int:
        """Compute the maximum length for a decoder of ``n_positions``; at least 1."""
        return max(1, min(self.max_length(n_source), n_positions - 1))

    def score(self, log_p: float, n_tokens: int) -> float:
        """Score a closed hypothesis by its length, end included; higher is better.

        ``log_p`` is in nats, the end's included.
        """
        length = n_tokens if self.rule == "fairseq" else (5 + n_tokens) / 6
        return float(log_p / length**self.penalty)


@dataclass(frozen=True)
class BeamHypothesis:
    """A closed hypothesis of beam search."""

    ids: NDArray[np.int64]
    """Token ids without the end."""
    log_p: float
    """Natural log of its probability, the end's included."""
    score: float
    """``log_p`` adjusted for length; ranks hypotheses."""


GoesOn = Callable[[int, Sequence[int]], bool]
"""Returns, from a sentence's number and the ids written so far, whether it continues."""
_REFILL = 0.75
"""Share of unfinished sentences at which new ones are admitted."""


@dataclass
class _Sentence:
    number: int
    """Index among the sources, from 0."""
    max_length: int
    """Most tokens of a hypothesis, without the end."""
    closed: list[BeamHypothesis] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    """Ids of its only hypothesis, where ``goes_on`` is given."""


@torch.inference_mode()
def search(
    model: EncoderDecoder,
    sources: Iterable[NDArray[np.integer]],
    settings: BeamSettings,
    *,
    end_id: int,
    pad_id: int,
    start_id: int | None = None,
    other_ends: Sequence[int] = (),
    continuations: Continue = best_continuations,
    sentences: int = 32,
    goes_on: GoesOn | None = None,
) -> Iterator[tuple[int, list[BeamHypothesis]]]:
    """Translate sources; yield the index of a source and its hypotheses, best first.

    A source is its ids without the end. ``sentences`` are translated at a time and yielded in order
    of completion; a finished one makes room for the next source, which is read then. Indices begin
    at 0. ``sentences`` changes speed and memory only. A sentence has at most ``beam`` hypotheses; a
    translation has no padding, ``pad_id``, which may be the end, and is never empty. ``start_id``
    is the decoder's first id, by default the end. ``other_ends`` also end a text: their
    probabilities are added to the end's. ``continuations`` selects the best continuations or, with
    a beam of 1, samples them. With a beam of 1, ``goes_on`` decides from a sentence's index and ids
    so far whether it continues.

    Raises ConfigError where the model is in training mode or the rows do not fit in memory, and,
    once it is reached, for a source longer than the model's positions.
    """
    if model.training:
        raise ConfigError(
            "the model is in training mode, with dropout: call model.eval() before translating"
        )
    ids = {
        "end_id": end_id,
        "pad_id": pad_id,
        "start_id": end_id if start_id is None else start_id,
    }
    waiting = enumerate(sources)
    if model.engine is not None:
        assert not other_ends and goes_on is None, "an engine knows one end"
        while part := list(islice(waiting, sentences)):
            rows = [[*source.tolist(), end_id] for _, source in part]
            longest = [settings.length_limit(len(row), model.config.max_len) for row in rows]
            found = model.engine.search(rows, longest, settings, **ids)
            yield from zip((number for number, _ in part), found, strict=True)
        return
    batch = _SourceSearch(
        model,
        settings,
        sentences,
        **ids,
        other_ends=other_ends,
        continuations=continuations,
        goes_on=goes_on,
    )
    while True:
        if batch.n_sentences <= _REFILL * sentences:
            n_free = sentences - batch.n_sentences
            batch.admit(list(islice(waiting, n_free)))
        if not batch.n_sentences:
            return
        yield from batch.step()


@torch.inference_mode()
def search_behind(
    model: Decoder,
    prompts: Int[Tensor, "N P"],
    settings: BeamSettings,
    *,
    end_id: int,
    pad_id: int,
) -> list[list[BeamHypothesis]]:
    """Search continuations of prompts with a decoder, as ``search`` does.

    Returns the hypotheses of each prompt, best first. The maximum length is computed from the
    prompts' length as from a source's.

    Raises ConfigError where the cache does not fit in memory, or the text exceeds the model's
    positions.
    """
    n, length = prompts.shape
    longest = max(1, settings.max_length(length))
    dtype = torch.promote_types(model.embedding.weight.dtype, torch.float32)
    cache = Cache(model.config, n, length + longest, dtype, prompts.device)
    return search_rows(
        lambda tokens: model.last_logits(tokens, cache),
        cache.take_rows,
        prompts,
        [longest] * n,
        settings,
        end_id=end_id,
        pad_id=pad_id,
    )


@torch.inference_mode()
def search_rows(
    read: Callable[[Tensor], Tensor],
    take_rows: Callable[[Tensor], None],
    prompts: Int[Tensor, "N P"],
    longest: Sequence[int],
    settings: BeamSettings,
    *,
    end_id: int,
    pad_id: int,
) -> list[list[BeamHypothesis]]:
    """Search continuations of prompts, of ``longest`` tokens at most, as ``search_behind`` does.

    ``read`` appends tokens to rows, and computes the logits after the last; ``take_rows`` selects
    rows.
    """
    n = len(prompts)
    rows = _PromptRows(read, take_rows, prompts, settings.beam)
    batch = _Search(settings, rows, rows.logits, rows.first, end_id=end_id, pad_id=pad_id)
    batch.make_slots(n)
    batch.begin([_Sentence(*each) for each in enumerate(longest)], range(n), end_id)
    finished: list[tuple[int, list[BeamHypothesis]]] = []
    while batch.n_sentences:
        finished += batch.step()
    return [hypotheses for _, hypotheses in sorted(finished, key=itemgetter(0))]


class _PromptRows:
    """Hypotheses of prompts, ``beam`` of each, as rows of a cache."""

    def __init__(
        self,
        read: Callable[[Tensor], Tensor],
        take_rows: Callable[[Tensor], None],
        prompts: Int[Tensor, "N P"],
        beam: int,
    ) -> None:
        n, device = len(prompts), prompts.device
        self.lengths = [0] * n
        """Tokens written after each prompt."""
        self._read, self._take_rows = read, take_rows
        self._first_rows = torch.arange(n, device=device)[:, None] * beam  # [N, 1]
        self.first = read(prompts).repeat_interleave(beam, 0)
        """Logits after the prompts."""
        take_rows(torch.arange(n, device=device).repeat_interleave(beam))
        self._written = torch.zeros(n, beam, 0, dtype=torch.long, device=device)

    def logits(self, tokens: Int[Tensor, " R"]) -> Float[Tensor, "R V"]:
        """Return the next-token logits; the first call ignores the tokens: the prompts are read."""
        if not self.lengths[0]:
            return self.first
        newest = tokens.view(*self._written.shape[:2], 1)
        self._written = torch.cat([self._written, newest], 2)
        return self._read(tokens[:, None])

    def written(self, slot: int, hypothesis: int) -> Int[Tensor, " L"]:
        """Return the tokens of a hypothesis."""
        return self._written[slot, hypothesis]

    def advance(self, origins: Int[Tensor, "N beam"]) -> None:
        """Let hypothesis j of each prompt continue from ``origins[:, j]``."""
        index = origins[:, :, None].expand_as(self._written)
        self._written = self._written.gather(1, index)
        self._take_rows((origins + self._first_rows).flatten())
        self.lengths = [length + 1 for length in self.lengths]

    def free(self, slots: Sequence[int]) -> None:
        """Do nothing: rows of closed hypotheses stay."""


class _Search:
    """Beam search over slots of one sentence or none, of the type and on the device of ``like``.

    Row i * beam + j is hypothesis j of slot i, in no order.
    """

    def __init__(
        self,
        settings: BeamSettings,
        cache: BeamCache | _PromptRows,
        next_logits: Callable[[Tensor], Tensor],
        like: Tensor,
        *,
        end_id: int,
        pad_id: int,
        other_ends: Sequence[int] = (),
        continuations: Continue = best_continuations,
        goes_on: GoesOn | None = None,
    ) -> None:
        self._settings = settings
        self._rows = cache
        self._next_logits = next_logits
        self._end, self._pad = end_id, pad_id
        self._other_ends = list(other_ends)
        self._continuations = continuations
        self._goes_on = goes_on
        self._device = like.device
        self._slots: list[_Sentence | None] = []
        dtype = torch.promote_types(like.dtype, torch.float32)
        self._log_p = torch.zeros(0, settings.beam, dtype=dtype, device=self._device)
        # The token that each row reads next.
        self._tokens = torch.zeros(0, settings.beam, dtype=torch.long, device=self._device)

    def make_slots(self, count: int) -> None:
        """Create the slots, unless they exist."""
        beam = self._settings.beam
        self._slots = [None] * count
        self._log_p = self._log_p.new_zeros(count, beam)
        self._tokens = self._tokens.new_zeros(count, beam)

    def begin(self, sentences: Sequence[_Sentence], slots: Sequence[int], start_id: int) -> None:
        """Start sentences in free slots."""
        for slot, sentence in zip(slots, sentences, strict=True):
            self._slots[slot] = sentence
        # One hypothesis starts; the others do not exist yet.
        self._tokens[slots] = start_id
        self._log_p[slots] = -torch.inf
        self._log_p[slots, 0] = 0.0

    @property
    def n_sentences(self) -> int:
        return sum(sentence is not None for sentence in self._slots)

    def step(self) -> list[tuple[int, list[BeamHypothesis]]]:
        """Extend every hypothesis by a token; return the finished sentences."""
        n_written = list(self._rows.lengths)
        logits = self._next_logits(self._tokens.flatten()).to(self._log_p.dtype)  # [R, V]
        # Before the mask, so that masked ids keep their part of the probability.
        partition = log_sum_exp(logits)
        if self._other_ends:
            # All ids that end a text count as the end.
            ends = [self._end, *self._other_ends]
            joined = logits[:, ends].logsumexp(-1)  # [R]
            logits[:, self._other_ends] = -torch.inf
            logits[:, self._end] = joined
        # No padding, no end at the first token, and only the end at the maximum length.
        beam = self._settings.beam
        if self._pad != self._end:
            logits[:, self._pad] = -torch.inf
        for slot, sentence in enumerate(self._slots):
            if sentence is None:
                continue
            rows = slice(slot * beam, (slot + 1) * beam)
            if n_written[slot] == 0:
                logits[rows, self._end] = -torch.inf
            elif n_written[slot] == sentence.max_length:
                end_logits = logits[rows, self._end].clone()
                logits[rows] = -torch.inf
                logits[rows, self._end] = end_logits
        best = self._continuations(logits, partition, self._log_p)
        is_end = best.tokens == self._end
        is_possible = np.isfinite(best.log_p)
        self._close(best, is_end & is_possible, n_written)

        # The best continuing hypotheses first, in order; ends after them.
        order = np.argsort(is_end, axis=1, kind="stable")
        order = order[:, :beam]  # [N, beam]
        goes_on = np.take_along_axis(~is_end & is_possible, order, 1)
        done = self._done(goes_on, n_written)
        chosen = best.take(order)
        if self._goes_on is not None:
            # Hypotheses that are stopped are closed as they are.
            for slot, sentence in enumerate(self._slots):
                if sentence is None or slot in done:
                    continue
                sentence.written.append(int(chosen.tokens[slot, 0]))
                if not self._goes_on(sentence.number, sentence.written):
                    ids = np.array(sentence.written)
                    log_p = float(chosen.log_p[slot, 0])
                    score = self._settings.score(log_p, len(ids))
                    sentence.closed.append(BeamHypothesis(ids, log_p, score))
                    done.append(slot)
        # All others are extended; ended ones get probability 0.
        self._tokens = self._tensor(chosen.tokens)
        extended = self._tensor(chosen.log_p).to(self._log_p)
        self._log_p = extended.masked_fill_(self._tensor(~goes_on), -torch.inf)
        self._rows.advance(self._tensor(chosen.origins))
        finished = []
        for slot in done:
            sentence = self._slots[slot]
            assert sentence is not None, "a finished slot has a sentence"
            best_first = sorted(sentence.closed, key=lambda hyp: hyp.score, reverse=True)
            finished.append((sentence.number, best_first))
            self._slots[slot] = None
        if done:
            self._rows.free(done)
            self._log_p[done] = -torch.inf
        return finished

    def _close(self, best: Continuations, is_end: NDArray[np.bool_], n_written: list[int]) -> None:
        """Close the hypotheses with an end among the first ``beam`` continuations."""
        beam = self._settings.beam
        for slot, rank in np.argwhere(is_end[:, :beam]).tolist():
            sentence = self._slots[slot]
            if sentence is None or len(sentence.closed) == beam:
                continue
            ids = self._rows.written(slot, int(best.origins[slot, rank])).cpu().numpy()
            assert len(ids) == n_written[slot], (
                "it has written a token at each position but the first"
            )
            log_p = float(best.log_p[slot, rank])
            score = self._settings.score(log_p, n_written[slot] + 1)
            sentence.closed.append(BeamHypothesis(ids, log_p, score))

    def _done(self, goes_on: NDArray[np.bool_], n_written: list[int]) -> list[int]:
        """Return the slots of finished sentences: none open, or enough closed."""
        done = []
        for slot, sentence in enumerate(self._slots):
            if sentence is None:
                continue
            is_full = len(sentence.closed) == self._settings.beam
            is_longest = n_written[slot] == sentence.max_length
            if is_full or is_longest or not goes_on[slot].any():
                done.append(slot)
        return done

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


class _SourceSearch(_Search):
    """Beam search of an encoder-decoder: sources are encoded as slots become free."""

    def __init__(
        self,
        model: EncoderDecoder,
        settings: BeamSettings,
        sentences: int,
        *,
        start_id: int,
        **options: Any,
    ) -> None:
        weight = model.embedding.weight
        beam, n_rows = settings.beam, sentences * settings.beam
        logits_bytes = 2 * n_rows * model.config.vocab_size * weight.dtype.itemsize
        key_value_bytes = cache_bytes(model.config, n_rows, FIRST_LENGTH, torch.float32)
        check_memory(
            logits_bytes + key_value_bytes,
            f"a beam of {beam:,} for {sentences:,} sentences",
            "give a smaller --beam or --batch",
        )
        self._start, self._max_len = start_id, model.config.max_len
        self._stepper = BeamStepper(model, n_rows)
        self._cache = BeamCache(beam, weight.device)
        super().__init__(settings, self._cache, self._next, weight, **options)

    def _next(self, tokens: Int[Tensor, " R"]) -> Float[Tensor, "R V"]:
        return self._stepper(tokens, self._cache)

    def admit(self, sources: list[tuple[int, NDArray[np.integer]]]) -> None:
        """Start sentences in free slots; without any, drop unused slots."""
        if not sources:
            used = [slot for slot, sentence in enumerate(self._slots) if sentence is not None]
            if used and 2 * len(used) <= len(self._slots):
                self._slots = [self._slots[slot] for slot in used]
                self._log_p = self._log_p[used]
                self._tokens = self._tokens[used]
                self._cache.keep(used)
            return
        if not self._slots:
            self.make_slots(len(sources))
        free = [slot for slot, sentence in enumerate(self._slots) if sentence is None]
        slots = free[: len(sources)]
        sentences = []
        for number, ids in sources:
            # With its end.
            longest = self._settings.length_limit(len(ids) + 1, self._max_len)
            sentences.append(_Sentence(number, max_length=longest))
        tokens, mask = self._batch([ids for _, ids in sources])
        self._stepper.admit(tokens, mask, self._cache, slots)
        self.begin(sentences, slots, self._start)

    def _batch(
        self, sources: list[NDArray[np.integer]]
    ) -> tuple[Int[Tensor, "n S"], Bool[Tensor, "n S"] | None]:
        """Stack padded sources with their ends; the mask is None without padding."""
        lengths = np.array([len(ids) + 1 for ids in sources])
        shape = (len(sources), lengths.max())
        tokens = np.full(shape, self._pad, dtype=np.int64)
        for row, ids in enumerate(sources):
            tokens[row, : len(ids)] = ids
            tokens[row, len(ids)] = self._end
        indices = np.arange(tokens.shape[1])
        is_real = indices < lengths[:, None]  # [n, S]
        mask = None if is_real.all() else self._tensor(is_real)
        return self._tensor(tokens), mask


WINDOW = 2048
"""Lines sorted together."""


@dataclass(frozen=True)
class TranslatedLine:
    """Hypotheses of a line, best first; none where it was not translated.

    Untranslated lines are empty, or too long for the model.
    """

    hypotheses: list[BeamHypothesis]
    n_tokens: int
    """Source tokens, including the end."""
    n_unknown: int
    """Tokens unknown to the vocabulary."""
    is_too_long: bool = False
    """True where the source has more tokens than the model has positions."""

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids of the best hypothesis without its end; empty without hypotheses."""
        if not self.hypotheses:
            return np.zeros(0, dtype=np.int64)
        return self.hypotheses[0].ids


def tokenizer_of(text_model: TextModel) -> BilingualTokenizer:
    """Return a translator's tokenizer.

    Raises ConfigError where it is missing or of another kind.
    """
    if not isinstance(text_model.tokenizer, BilingualTokenizer):
        raise ConfigError(
            "the model has no bilingual tokenizer: name a run that was trained to translate"
        )
    return text_model.tokenizer


def translate_lines(
    text_model: TextModel,
    lines: Iterable[str],
    settings: BeamSettings,
    *,
    sentences: int = 32,
    window: int = WINDOW,
    are_words: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Iterator[TranslatedLine]:
    """Translate lines of text or of space-separated words; yield results in order.

    A line without tokens has no hypotheses; nor has one that exceeds the model's positions, which
    is marked, never cut. Windows of ``window`` lines are read, sorted by length, then translated,
    ``sentences`` at a time, which changes speed and memory only. ``progress`` receives the number
    of translated lines of the window.

    Raises ConfigError where the model has no vocabulary of two languages, and as ``search`` does.
    """
    model, tokenizer = text_model.model, tokenizer_of(text_model)
    assert isinstance(model, EncoderDecoder), "others translate nothing"
    end_id, pad_id = tokenizer.sep_id, tokenizer.pad_id
    assert end_id is not None and pad_id is not None, "the vocabulary was checked"
    starts_with_pad = model.config.decoder_start == "pad"
    rest = iter(lines)
    while batch := list(islice(rest, window)):
        if are_words:
            encoded = tokenizer.encode_many([line.encode() for line in batch])
        else:
            encoded = tokenizer.encode_source(batch)
        translations = []
        for ids in encoded:
            n_tokens = len(ids) + 1
            n_unknown = 0 if tokenizer.unk_id is None else int((ids == tokenizer.unk_id).sum())
            is_too_long = n_tokens > model.config.max_len
            translations.append(TranslatedLine([], n_tokens, n_unknown, is_too_long=is_too_long))
        order = [
            index
            for index, translation in enumerate(translations)
            if translation.n_tokens > 1 and not translation.is_too_long
        ]
        order.sort(key=lambda index: -len(encoded[index]))
        n_done = len(encoded) - len(order)
        with stage("translating"):
            results = search(
                model,
                (encoded[index] for index in order),
                settings,
                end_id=end_id,
                pad_id=pad_id,
                start_id=pad_id if starts_with_pad else end_id,
                sentences=min(sentences, max(1, len(order))),
            )
            for number, hypotheses in results:
                index = order[number]
                translations[index] = replace(translations[index], hypotheses=hypotheses)
                n_done += 1
                if progress is not None:
                    progress(n_done)
        yield from translations
