"""Gaps of a text filled by an encoder-decoder, texts continued by a prefix model, masks filled.

Source: Raffel et al. 2020 (1910.10683), sec. 3.1.4.
"""

import math
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sublayer.config.load import find_recipe, read_run_recipe
from sublayer.data.tasks.figure import special_names
from sublayer.data.tokenizers.base import SPECIAL_NAMES, Tokenizer, sentinel_name, split_at_gaps
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.decode.beam import BeamSettings, search
from sublayer.decode.beam_step import Continue, DrawnContinuations, best_continuations
from sublayer.decode.sample import Sampling, check_no_gap, encode_prompt, tokenizer_of
from sublayer.errors import ConfigError
from sublayer.model.context import Layout
from sublayer.model.kernels.products import nats_of_targets
from sublayer.model.transformer import Encoder, EncoderDecoder, Transformer, evaluating
from sublayer.numbers import count, with_article
from sublayer.system.terminal import stage
from sublayer.text_model import TextModel

_BEFORE = ("\U000f0000".encode(), b".", b"0")
"""Characters that few pieces contain together with the text after them; the first is unknown."""
_SHOWN = 32
"""Most characters of a sentinel's name in an error."""


@dataclass(frozen=True)
class Prompt:
    """The texts around n gaps, n + 1 of them, and their ids."""

    texts: list[str]
    ids: list[list[int]]
    sentinels: tuple[int, ...]
    """Sentinel of each gap; empty where the only gap is the continuation of the text."""

    @property
    def source(self) -> list[int]:
        """Return the encoder's input ids, without the end."""
        source = list(self.ids[0])
        for sentinel, ids in zip(self.sentinels, self.ids[1:], strict=False):
            source.append(sentinel)
            source += ids
        return source

    def fills(self, written: Sequence[int]) -> list[slice | None]:
        """Find each gap's tokens after its sentinel; None for a gap with a missing sentinel.

        Only the first of repeated sentinels counts. Where a prompt begins with a gap and the
        written ids begin with text, that text fills the gap, and the first sentinel precedes the
        second gap's text, as in targets of independent noise, where sentinels mark the text between
        gaps.
        """
        if not self.sentinels:
            return [slice(0, len(written))]
        names = set(self.sentinels)
        places = [index for index, id_ in enumerate(written) if id_ in names]
        places.append(len(written))
        behind: dict[int, slice] = {}
        for start, end in pairwise(places):
            behind.setdefault(written[start], slice(start + 1, end))
        spans = [behind.get(sentinel) for sentinel in self.sentinels]
        begins_with_gap = bool(self.sentinels) and not self.ids[0]
        if begins_with_gap and places[0] > 0:
            return [slice(0, places[0]), *spans[:-1]]
        return spans

    def unplaced(self, written: Sequence[int], fills: Sequence[slice | None]) -> list[int]:
        """Return the ids that fill no gap, sentinels aside.

        They precede the first sentinel, or follow a repeated one.
        """
        places = [range(*fill.indices(len(written))) for fill in fills if fill is not None]
        placed, names = set(chain(*places)), set(self.sentinels)
        return [
            id_ for index, id_ in enumerate(written) if index not in placed and id_ not in names
        ]

    def complete(
        self, tokenizer: Tokenizer, fills: Sequence[Sequence[int]]
    ) -> tuple[str, list[slice]]:
        """Insert the ids of each gap into the prompt's text; return it and each gap's place in it.

        The prompt is unchanged except for whitespace before a gap: none where the tokens begin
        without it, else the prompt's, or the tokens' where the prompt has none.
        """
        text = self.texts[0]
        ids = list(self.ids[0])
        places = []
        for fill, after, after_ids in zip(fills, self.texts[1:], self.ids[1:], strict=True):
            space, content = _divided(tokenizer, ids, fill)
            stem = text.rstrip()
            typed = text[len(stem) :]
            if after[:1].isspace() or not after:
                content = content.rstrip()
            if content:
                text = stem + ((typed or space) if space else "")
            elif after[:1].isspace():
                text = stem  # one whitespace is enough
            places.append(slice(len(text), len(text) + len(content)))
            is_start = not text and not content
            text += content + (after.lstrip() if is_start else after)
            ids += [*fill, *after_ids]
        return text, places


def prompt_with_gaps(tokenizer: Tokenizer, text: str) -> Prompt:
    """Parse a text with gaps marked ``<extra_id_0>``, ``<extra_id_1>`` ...

    Text is encoded as in training, where gaps were cut out of ids: a space before a gap belonged to
    the cut text, and is dropped; text that follows a gap without whitespace does not begin a word:
    it lacks the piece for the space that a tokenizer prepends.

    Raises ConfigError where gaps are not numbered in order from 0, there are none, or more than the
    tokenizer has sentinels; DataError as the tokenizer does.
    """
    parts, names = split_at_gaps(text.encode("utf-8", "surrogateescape"))
    if not names:
        raise ConfigError(
            "the prompt has no gap, and the model fills gaps: write <extra_id_0> where text is "
            "missing"
        )
    for number, name in enumerate(names):
        if name != sentinel_name(number):
            raise ConfigError(
                f"the prompt's gap {number + 1} is {name:.{_SHOWN}}: number gaps in their order, "
                f"this one {sentinel_name(number)}"
            )
    n_sentinels = len(tokenizer.sentinel_ids)
    if len(names) > n_sentinels:
        raise ConfigError(
            f"the prompt has {count(len(names), 'gap')}, but the model's tokenizer only "
            f"{count(n_sentinels, 'sentinel')}: leave out gaps"
        )
    ids = [encode_before_gap(tokenizer, parts[0])]
    ids += [_encode_behind_gap(tokenizer, part.rstrip(b" ")) for part in parts[1:-1]]
    ids.append(_encode_behind_gap(tokenizer, parts[-1]))
    texts = [part.decode("utf-8", "surrogateescape") for part in parts]
    return Prompt(texts, ids, tokenizer.sentinel_ids[: len(names)])


def encode_before_gap(tokenizer: Tokenizer, part: bytes) -> list[int]:
    """Encode the text before a gap, without trailing spaces."""
    ids: list[int] = tokenizer.encode(part.rstrip(b" ")).tolist()
    return ids


def _encode_behind_gap(tokenizer: Tokenizer, part: bytes) -> list[int]:
    """Encode text after a gap; without a leading space, behind a character that is cut off."""
    ids: list[int] = tokenizer.encode(part).tolist()
    if not part or part[:1].isspace():
        return ids
    first = part.decode("utf-8", "surrogateescape")[0].encode("utf-8", "surrogateescape")
    for character in _BEFORE:
        before = tokenizer.encode(character).tolist()
        if tokenizer.unk_id in before and tokenizer.unk_id in tokenizer.encode(first):
            continue  # both would be one unknown
        both: list[int] = tokenizer.encode(character + part).tolist()
        if before and both[: len(before)] == before and len(both) > len(before):
            return both[len(before) :]
    begins_with_space = (
        len(ids) > 1
        and ids[0] not in tokenizer.special_ids
        and not tokenizer.decode(ids[:1]).strip()
    )
    return ids[1:] if begins_with_space else ids


@dataclass(frozen=True)
class FillSettings:
    """Settings of filling gaps: by beam search, or by ``n_drawn`` samples.

    Raises ConfigError for both, or for several samples without a sampling rule.
    """

    beam: int = 1
    """Hypotheses kept at a time; 1 is greedy. Their probability alone decides."""
    sampling: Sampling | None = None
    n_drawn: int = 1
    seed: int = 0
    most_tokens: int = 200
    """Most tokens written, including sentinels; the model's positions may allow fewer."""

    def __post_init__(self) -> None:
        if self.sampling is None and self.n_drawn > 1:
            raise ConfigError(
                f"{self.n_drawn} completions without sampling would all be the same: give a "
                "sampling"
            )
        if self.sampling is not None and self.beam > 1:
            raise ConfigError(
                f"a beam of {self.beam} finds the most probable text, but a sampling draws one: "
                "leave out one of them"
            )


@dataclass(frozen=True)
class Gap:
    """The filling of a gap."""

    text: str
    score: float | None
    """Log-probability of its tokens, in nats, each given those before; None: the gap is missing."""
    n_tokens: int
    place: slice
    """Position of the filling in the completed text."""


@dataclass(frozen=True)
class Completion:
    """A completed text."""

    text: str
    gaps: list[Gap]
    score: float
    """Log-probability of all written tokens, including sentinels and the end, in nats."""
    n_tokens: int
    """Tokens written, sentinels included, without the end."""
    unplaced: str = ""
    """Written text without a gap, which is left out: a poorly trained model writes before the first
    sentinel, or repeats a sentinel."""


def _divided(tokenizer: Tokenizer, before: Sequence[int], fill: Sequence[int]) -> tuple[str, str]:
    """Decode a gap's ids in the context of the ids before: leading whitespace, and text."""
    prefix = _decode(tokenizer, before)
    whole = _decode(tokenizer, [*before, *fill])
    stem = prefix.rstrip()
    written = whole[len(stem) :] if whole.startswith(stem) else _decode(tokenizer, fill)
    content = written.lstrip()
    return written[: len(written) - len(content)], content


def _decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return tokenizer.decode(ids).decode("utf-8", "replace")


@torch.inference_mode()
def fill_gaps(
    text_model: TextModel, text: str, settings: FillSettings | None = None
) -> list[Completion]:
    """Fill the gaps of a text, ``<extra_id_0>``, ``<extra_id_1>`` ... in their order.

    Returns the hypotheses of a beam, most probable first, or samples. Decoding also ends at a
    sentinel of no gap. Deterministic in weights, text and settings. Unknown characters are read as
    the unknown token.

    Raises ConfigError where the model fills no gaps, the text has none or exceeds the model's
    positions, or the model is in training mode; DataError as the tokenizer does.
    """
    tokenizer = _tokenizer_of(text_model)
    if not tokenizer.sentinel_ids:
        raise ConfigError(
            f"the model's tokenizer, of kind {tokenizer.kind}, has no sentinels to mark gaps: "
            "name a run of objective.kind = span"
        )
    prompt = prompt_with_gaps(tokenizer, text)
    return _completions(text_model.model, tokenizer, prompt, settings or FillSettings())


@torch.inference_mode()
def go_on(
    text_model: TextModel, text: str, settings: FillSettings | None = None
) -> list[Completion]:
    """Continue a text with a model of ``objective.noise = prefix``: a gap at the end.

    Returns and raises as ``fill_gaps`` does.
    """
    tokenizer = _tokenizer_of(text_model)
    ids = encode_before_gap(tokenizer, text.encode("utf-8", "surrogateescape"))
    prompt = Prompt([text, ""], [ids, []], ())
    return _completions(text_model.model, tokenizer, prompt, settings or FillSettings())


def _tokenizer_of(text_model: TextModel) -> Tokenizer:
    tokenizer = text_model.tokenizer
    if tokenizer is None:
        raise ConfigError("the model has no tokenizer: name one that reads text")
    if isinstance(tokenizer, BilingualTokenizer):
        raise ConfigError("the model translates, it does not fill gaps: use `sublayer translate`")
    if tokenizer.sep_id is None or tokenizer.pad_id is None:
        raise ConfigError(
            f"the model's tokenizer, of kind {tokenizer.kind}, has no end-of-text or padding "
            "token, which an encoder-decoder needs: name another model"
        )
    return tokenizer


def _completions(
    model: Transformer, tokenizer: Tokenizer, prompt: Prompt, settings: FillSettings
) -> list[Completion]:
    assert isinstance(model, EncoderDecoder), "others fill no gaps"
    n_read, longest = len(prompt.source) + 1, model.config.max_len
    if n_read > longest:
        raise ConfigError(
            f"the prompt has {n_read:,} tokens, its end included, more than the model's context "
            f"of {longest:,}: shorten it"
        )
    end_id, pad_id = tokenizer.sep_id, tokenizer.pad_id
    assert end_id is not None and pad_id is not None, "the tokenizer was checked"
    first_id = pad_id if model.config.decoder_start == "pad" else end_id
    device = model.embedding.weight.device
    continuations: Continue = best_continuations
    if settings.sampling is not None:
        continuations = DrawnContinuations(settings.sampling, settings.seed, device)
    results = search(
        model,
        [np.array(prompt.source, dtype=np.int64)] * settings.n_drawn,
        BeamSettings(settings.beam, penalty=0.0, max_length_offset=settings.most_tokens),
        end_id=end_id,
        pad_id=pad_id,
        start_id=first_id,
        other_ends=tokenizer.sentinel_ids[len(prompt.sentinels) :],
        continuations=continuations,
        sentences=settings.n_drawn,
    )
    # Another pass for the probabilities of tokens, since the search keeps none.
    memory = model.encode(torch.tensor([[*prompt.source, end_id]], device=device))
    matrix, bias, cap = model.output_projection()
    completions = []
    for hypothesis in chain(*(hypotheses for _, hypotheses in sorted(results, key=itemgetter(0)))):
        written = hypothesis.ids.tolist()
        target = torch.tensor([[first_id, *written]], device=device)
        final = model.hidden(target[:, :-1], Layout.causal(target[:, :-1]), memory=memory).final
        embedded = model.to_embedding(final)[0]
        nats = nats_of_targets(embedded, matrix, bias, target[0, 1:], cap=cap).each
        log_p = (-nats.double()).tolist()
        spans = prompt.fills(written)
        fills = [[] if span is None else written[span] for span in spans]
        text, places = prompt.complete(tokenizer, fills)
        gaps = []
        for tokens, fill, place in zip(spans, fills, places, strict=True):
            score = None if tokens is None else math.fsum(log_p[tokens])
            gaps.append(Gap(text[place], score, len(fill), place))
        unplaced = _decode(tokenizer, prompt.unplaced(written, spans)).strip()
        completions.append(Completion(text, gaps, hypothesis.log_p, len(written), unplaced))
    return completions


def complete_prompt(
    text_model: TextModel, run: Path, prompt: str, settings: FillSettings, n_tokens: int | None
) -> tuple[list[Completion], float]:
    """Fill the gaps of a prompt, or continue it with a model without gaps; return the seconds.

    At most ``n_tokens`` are written; None: the target length in training. Raises ConfigError for a
    translator, for more tokens than the model writes, and for unknown characters.
    """
    tokenizer = tokenizer_of(run, text_model)
    if isinstance(tokenizer, BilingualTokenizer):
        raise ConfigError(
            f"{run} is a translator, it does not complete text: use `sublayer translate {run}`"
        )
    longest = text_model.model.config.max_len - 1
    if n_tokens is not None and n_tokens > longest:
        raise ConfigError(
            f"--tokens {n_tokens} exceeds the {longest} that the model can write before its end: "
            "give fewer"
        )
    path = find_recipe(run)
    most_tokens, knows_gaps = settings.most_tokens, bool(tokenizer.sentinel_ids)
    if path is not None:
        recipe = read_run_recipe(path)
        # The target length in training, which counts the end.
        most_tokens = recipe.objective.lengths(recipe.data.context).written - 1
        knows_gaps = recipe.objective.n_sentinels(recipe.data.context) > 0
    settings = replace(settings, most_tokens=n_tokens or most_tokens)
    if not knows_gaps:
        check_no_gap(run, "an encoder-decoder that continues a text", prompt)
    texts, _ = split_at_gaps(prompt.encode("utf-8", "surrogateescape"))
    for text in texts:  # this refuses unknown characters
        encode_prompt(tokenizer, text.decode("utf-8", "surrogateescape"))
    start = time.perf_counter()
    with stage("filling the gaps" if knows_gaps else "continuing the prompt"):
        completions = (fill_gaps if knows_gaps else go_on)(text_model, prompt, settings)
    return completions, time.perf_counter() - start


MOST_FILLINGS = 1000


@dataclass(frozen=True)
class Filling:
    """A filling of one mask."""

    text: str
    """Text in the mask's place, without white space around it."""
    probability: float
    """For an encoder the token's probability over the vocabulary, with the other masks unfilled.
    For a T5 a lower bound: the sum over the beam's hypotheses with this filling."""
    completed: str
    """The whole text: for an encoder with the likeliest fillings of all other masks, for a T5 with
    the other fillings of the same hypothesis."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def fill_masks(text_model: TextModel, text: str, n: int = 5) -> list[list[Filling]]:
    """Return the ``n`` likeliest fillings of each mask of a text, likeliest first.

    A mask is ``[MASK]``, ``<mask>`` or the mask token of the model's vocabulary. An encoder fills
    it with one token, never a special one, while all other masks stay (Devlin et al. 2019, sec.
    3.1). A T5 (Raffel et al. 2020, sec. 3.1.4) fills it, or ``<extra_id_0>`` and so on, with any
    number of tokens: the probability sums over all hypotheses of a beam of ``n`` that fill the gap
    alike.

    Raises ConfigError where the text is not a string, has no mask or exceeds the model's positions,
    the model is of another kind, predicts no tokens, or lacks a tokenizer or a mask token, or ``n``
    is outside 1 to ``MOST_FILLINGS``.
    """
    model, tokenizer = text_model.model, text_model.tokenizer
    if not isinstance(text, str):
        raise ConfigError(f"the text is {type(text).__name__}: give one text")
    if not isinstance(model, Encoder | EncoderDecoder):
        raise ConfigError(
            f"the model is {with_article(model.config.kind)}, which cannot fill masks: use "
            "generate, or name an encoder or a T5"
        )
    if tokenizer is None:
        raise ConfigError(
            "the model has no tokenizer, so it cannot read a text: import it from a folder that "
            "has one"
        )
    if not 1 <= n <= MOST_FILLINGS:
        raise ConfigError(f"{n} fillings cannot be listed: request 1 to {MOST_FILLINGS:,}")
    if isinstance(model, Encoder):
        with evaluating(model):
            return _fill_by_encoder(model, tokenizer, text, n)
    _, gaps = split_at_gaps(text.encode("utf-8", "surrogateescape"))
    if not gaps:
        parts = _mask_names(tokenizer).split(text)
        gaps = [sentinel_name(number) for number in range(len(parts) - 1)]
        if not gaps:
            raise ConfigError(_no_mask("<extra_id_0>"))
        text = parts[0] + "".join(map("".join, zip(gaps, parts[1:], strict=True)))
    with evaluating(model):
        completions = fill_gaps(text_model, text, FillSettings(beam=n))
    by_gap: list[dict[str, Filling]] = [{} for _ in completions[0].gaps]
    for completion in completions:  # the likeliest first
        for fillings, gap in zip(by_gap, completion.gaps, strict=True):
            if gap.score is not None:
                filling = Filling(gap.text.strip(), 0.0, completion.text)
                filling = fillings.get(filling.text, filling)
                probability = filling.probability + math.exp(completion.score)
                fillings[filling.text] = replace(filling, probability=probability)
    return [sorted(of_gap.values(), key=lambda filling: -filling.probability) for of_gap in by_gap]


def _mask_names(tokenizer: Tokenizer) -> re.Pattern[str]:
    names = {*SPECIAL_NAMES["mask_id"]}
    if tokenizer.mask_id is not None:
        names.add(special_names(tokenizer)[tokenizer.mask_id])
    return re.compile("|".join(map(re.escape, sorted(names))))


@torch.inference_mode()
def _fill_by_encoder(
    model: Encoder, tokenizer: Tokenizer, text: str, n: int
) -> list[list[Filling]]:
    mask_id, cls_id, sep_id = tokenizer.mask_id, tokenizer.cls_id, tokenizer.sep_id
    if mask_id is None or cls_id is None or sep_id is None:
        raise ConfigError(
            f"the model's tokenizer, of kind {tokenizer.kind}, has no [MASK], [CLS] or [SEP], "
            "which filling by an encoder needs: name another model"
        )
    # Parts are encoded separately, as in transformers; whitespace before a mask belongs to its
    # filling.
    parts = _mask_names(tokenizer).split(text)
    if len(parts) == 1:
        raise ConfigError(_no_mask(special_names(tokenizer)[mask_id]))
    *before, last = [part.encode("utf-8", "surrogateescape") for part in parts]
    part_ids = [encode_before_gap(tokenizer, part) for part in before]
    part_ids.append(tokenizer.encode(last).tolist())
    prompt = Prompt(parts, part_ids, (mask_id,) * len(before))
    ids = [cls_id, *prompt.source, sep_id]
    longest = model.config.max_len
    if len(ids) > longest:
        raise ConfigError(
            f"the text has {len(ids):,} tokens, special ones included, more than the model's "
            f"context of {longest:,}: shorten it"
        )
    tokens = torch.tensor([ids], device=model.embedding.weight.device)
    hidden = model.hidden(tokens, Layout.bidirectional(tokens)).final[0, tokens[0] == mask_id]
    probabilities = model.logits(hidden)[:, : tokenizer.vocab_size].double().softmax(-1)
    ranked = probabilities.clone()
    ranked[:, list(tokenizer.special_ids)] = -1.0
    best = ranked.topk(min(n, int((ranked[0] >= 0).sum())), -1).indices.tolist()
    by_mask = []
    for mask, row in enumerate(best):
        fillings = []
        for id_ in row:
            # The other masks get their likeliest tokens.
            fills = [[id_] if number == mask else [top[0]] for number, top in enumerate(best)]
            filled, places = prompt.complete(tokenizer, fills)
            probability = float(probabilities[mask, id_])
            fillings.append(Filling(filled[places[mask]], probability, filled))
        by_mask.append(fillings)
    return by_mask


def _no_mask(name: str) -> str:
    return f"the text has nothing to fill: write {name} where a word is missing"
