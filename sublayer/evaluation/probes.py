"""Likelihood of texts given prompts: zero-shot probes, and the requests of evaluation harnesses.

Source of the probes: Radford et al. 2018, sec. 5 and figure 2.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from sublayer.data.tokenizers.base import Tokenizer
from sublayer.decode.sample import Sampling, generate
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.items import Progress, silent
from sublayer.model.cache import Cache
from sublayer.model.context import Layout
from sublayer.model.kernels.products import nats_of_targets
from sublayer.model.transformer import Decoder, EncoderDecoder, evaluating
from sublayer.numbers import count
from sublayer.system.terminal import stage
from sublayer.tasks.probes import (
    PROBES,
    Nats,
    Probe,
    ProbeExamples,
    Query,
    Settings,
    best_threshold,
    check_names,
)
from sublayer.tasks.published import Found
from sublayer.tasks.registry import TASKS, find_files, locate_files, read_split
from sublayer.tasks.scoring import score
from sublayer.tasks.task import Example, Task
from sublayer.text_model import TextModel


class EncodedQuery(NamedTuple):
    """A query as tokens."""

    prompt: tuple[int, ...]
    """At least one token, which nothing predicts."""
    text: tuple[int, ...]
    """Scored tokens."""
    is_cut: bool = False
    """True where prompt and text together exceed the context."""


def encode_queries(
    queries: Sequence[Query], tokenizer: Tokenizer, context: int
) -> list[EncodedQuery]:
    """Encode queries, prompt and text as one text.

    The scored text begins with the first token that differs from the encoded prompt. An empty
    prompt is the tokenizer's start, or else its end-of-document token, which precedes every
    document in training; without such a token it is the first token of the text, which is then not
    scored. A prompt is truncated at its beginning, alike for all its texts, where it does not fit
    ``context`` with the longest of them; a text longer than ``context`` is truncated at its end.
    """
    prompts = [query.prompt.encode() for query in queries]
    wholes = [f"{query.prompt}{query.text}".encode() for query in queries]
    encoded_prompts = _encode_each(tokenizer, prompts)
    # A common part before a safe cut, where splitting changes no id, is encoded once.
    cuts = [
        tokenizer.cut(whole, len(prompt)) for prompt, whole in zip(prompts, wholes, strict=True)
    ]
    before = _encode_each(tokenizer, [whole[:cut] for whole, cut in zip(wholes, cuts, strict=True)])
    behind = _encode_each(tokenizer, [whole[cut:] for whole, cut in zip(wholes, cuts, strict=True)])
    divided = [
        _divided(prompt, [*first, *second], tokenizer)
        for prompt, first, second in zip(encoded_prompts, before, behind, strict=True)
    ]
    longest: dict[str, int] = {}
    for query, (_, text) in zip(queries, divided, strict=True):
        longest[query.prompt] = max(longest.get(query.prompt, 0), len(text))
    encoded = []
    for query, (prompt, text) in zip(queries, divided, strict=True):
        # The last token of a text is predicted, not read.
        room = max(1, context + 1 - longest[query.prompt])
        kept_text = text[:context]
        kept_prompt = prompt[-room:]
        is_cut = len(kept_text) < len(text) or len(kept_prompt) < len(prompt)
        encoded.append(EncodedQuery(tuple(kept_prompt), tuple(kept_text), is_cut))
    return encoded


def _encode_each(tokenizer: Tokenizer, texts: Sequence[bytes]) -> list[list[int]]:
    """Encode texts, equal ones once."""
    distinct = list(dict.fromkeys(texts))
    ids = [tokens.tolist() for tokens in tokenizer.encode_many(distinct)]
    by_text = dict(zip(distinct, ids, strict=True))
    return [by_text[text] for text in texts]


def _divided(
    prompt: list[int], whole: list[int], tokenizer: Tokenizer
) -> tuple[list[int], list[int]]:
    pairs = zip(prompt, whole, strict=False)
    n_shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if n_shared:
        start = [] if tokenizer.start_id is None else [tokenizer.start_id]
        return [*start, *whole[:n_shared]], whole[n_shared:]
    if tokenizer.first_id is not None:
        return [tokenizer.first_id], whole
    return whole[:1], whole[1:]


_TOKENS = 4096
"""Most tokens of a batch."""
_ROWS = 256
"""Rows of logits at a time when searching the likeliest token."""
_WORTH_SHARING = 8
"""Fewest tokens of a prompt that is read once for several texts."""
_MOST_BEHIND = 16
"""Most texts after a prompt at a time."""


def decoder_nats(
    model: Decoder,
    queries: Sequence[EncodedQuery],
    progress: Progress = silent,
    *,
    with_tops: bool = False,
) -> list[Nats]:
    """Compute the nats of each token of the texts, in the order of the queries.

    ``with_tops`` adds a column, 1 where a token is the likeliest, ``[T, 2]``.

    Prompts shared by several texts are read once, into a cache; prompts of equal length are
    batched, without padding. Deterministic, in the precision of the weights.
    """
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for number, query in enumerate(queries):
        by_prompt.setdefault(query.prompt, []).append(number)
    by_number: dict[int, Nats] = {}
    alone: list[int] = []
    shared: list[list[int]] = []  # queries of one prompt
    for prompt, numbers in by_prompt.items():
        if len(numbers) == 1 or len(prompt) < _WORTH_SHARING:
            alone += numbers
            continue
        for low in range(0, len(numbers), _MOST_BEHIND):
            shared.append(numbers[low : low + _MOST_BEHIND])
    with evaluating(model), torch.inference_mode():
        for batch in _batches_of_rows(queries, alone):
            by_number |= _score_rows(model, queries, batch, with_tops)
            progress(len(by_number), len(queries))
        for groups in _batches_of_prompts(queries, shared):
            by_number |= _score_behind(model, queries, groups, with_tops)
            progress(len(by_number), len(queries))
    return [by_number[number] for number in range(len(queries))]


def _batches_of_rows(
    queries: Sequence[EncodedQuery], numbers: Sequence[int]
) -> Iterator[list[int]]:
    """Yield batches of queries of similar lengths, longest first."""
    lengths = {n: len(queries[n].prompt) + len(queries[n].text) for n in numbers}
    batch: list[int] = []
    for number in sorted(numbers, key=lengths.__getitem__, reverse=True):
        if batch and (len(batch) + 1) * lengths[batch[0]] > _TOKENS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _batches_of_prompts(
    queries: Sequence[EncodedQuery], groups: Sequence[list[int]]
) -> Iterator[list[list[int]]]:
    """Yield batches of groups of queries, with a prompt each, of one length.

    Longest first: a batch then fits the memory freed by the one before.
    """

    def prompt_length(numbers: list[int]) -> int:
        return len(queries[numbers[0]].prompt)

    in_order = sorted(groups, key=prompt_length, reverse=True)
    for length, alike in groupby(in_order, prompt_length):
        batch: list[list[int]] = []
        size = 0
        for numbers in alike:
            longest = max(len(queries[number].text) for number in numbers)
            n_tokens = length + len(numbers) * longest
            if batch and size + n_tokens > _TOKENS:
                yield batch
                batch, size = [], 0
            batch.append(numbers)
            size += n_tokens
        yield batch


def _score_rows(
    model: Decoder, queries: Sequence[EncodedQuery], numbers: Sequence[int], with_tops: bool
) -> dict[int, Nats]:
    """Score queries as rows; no token sees the padding to its right."""
    wholes = [(*queries[number].prompt, *queries[number].text) for number in numbers]
    tokens = _padded(wholes, model)  # [B, T]
    inputs = tokens[:, :-1]
    final = model.hidden(inputs, Layout.causal(inputs)).final
    firsts = torch.tensor([len(queries[number].prompt) for number in numbers])
    stops = torch.tensor([len(whole) for whole in wholes])
    places = torch.arange(1, tokens.shape[1])  # of predicted tokens
    is_scored = (places >= firsts[:, None]) & (places < stops[:, None])
    nats = _nats(model, final, tokens[:, 1:], is_scored.to(tokens.device), with_tops)
    return _by_query(nats, [len(queries[number].text) for number in numbers], numbers)


def _score_behind(
    model: Decoder, queries: Sequence[EncodedQuery], groups: Sequence[list[int]], with_tops: bool
) -> dict[int, Nats]:
    """Score groups of queries, with a prompt each, of one length; a prompt is read once."""
    device = model.embedding.weight.device
    rows = _padded([queries[group[0]].prompt for group in groups], model)  # [P, T]
    numbers = [number for group in groups for number in group]
    texts = [queries[number].text for number in numbers]
    longest = max(map(len, texts))
    cache = Cache(
        model.config,
        len(groups),
        rows.shape[1] + longest,
        dtype=model.embedding.weight.dtype,
        device=device,
    )
    layout = Layout.causal(rows)
    final = model.hidden(rows, layout, cache=cache).final
    cache.advance(rows.shape[1], None)
    # The row of each text's prompt.
    of_text = torch.tensor([row for row, group in enumerate(groups) for _ in group], device=device)
    tokens = _padded(texts, model)  # [N, T]
    states = final[of_text, -1:]  # [N, 1, D], predict the first token
    if longest > 1:
        inputs = tokens[:, :-1]
        cache.take_rows(of_text)
        behind = Layout.causal(inputs, past=cache.n_past)
        further = model.hidden(inputs, behind, cache=cache).final
        states = torch.cat([states, further], dim=1)  # [N, T, D]
    lengths = torch.tensor([len(text) for text in texts], device=device)
    is_scored = torch.arange(longest, device=device) < lengths[:, None]
    nats = _nats(model, states, tokens, is_scored, with_tops)
    return _by_query(nats, [len(text) for text in texts], numbers)


def _nats(
    model: Decoder,
    states: Float[Tensor, "N T D"],
    targets: Int[Tensor, "N T"],
    is_scored: Tensor,
    with_tops: bool,
) -> Nats:
    """Compute the nats of the scored tokens, row by row."""
    matrix, bias, cap = model.output_projection()
    embedded = model.to_embedding(states[is_scored])
    nats = nats_of_targets(embedded, matrix, bias, targets[is_scored], cap=cap).each.double()
    if with_tops:
        scored = states[is_scored]
        parts = [scored[low : low + _ROWS] for low in range(0, len(scored), _ROWS)]
        tops = [model.logits(part).argmax(-1) for part in parts]
        is_top = torch.cat(tops or [targets.new_zeros(0)]) == targets[is_scored]
        nats = torch.stack([nats, is_top.double()], dim=1)
    return nats.cpu().numpy()


def _by_query(nats: Nats, lengths: Sequence[int], numbers: Sequence[int]) -> dict[int, Nats]:
    parts = np.split(nats, np.cumsum(lengths)[:-1])
    return dict(zip(numbers, parts, strict=True))


def _padded(rows: Sequence[Sequence[int]], model: Decoder) -> Int[Tensor, "B T"]:
    """Stack rows of tokens, right-padded with an arbitrary id."""
    longest = max(map(len, rows))
    ids = [[*row, *[0] * (longest - len(row))] for row in rows]
    return torch.tensor(ids, dtype=torch.long, device=model.embedding.weight.device)


def target_nats(
    model: EncoderDecoder,
    queries: Sequence[EncodedQuery],
    first_id: int,
    sentinel_id: int,
    end_id: int,
    progress: Progress = silent,
) -> list[NDArray[np.float64]]:
    """Compute the nats of each token of the texts, in the order of the queries.

    As in span corruption, the source is the prompt, the first sentinel and the end; the target,
    after ``first_id``, is that sentinel and the text. Queries of equal lengths are batched, without
    padding.
    """
    by_lengths: dict[tuple[int, int], list[int]] = {}
    for number, query in enumerate(queries):
        by_lengths.setdefault((len(query.prompt), len(query.text)), []).append(number)
    by_number: dict[int, NDArray[np.float64]] = {}
    device = model.embedding.weight.device
    matrix, bias, cap = model.output_projection()
    with evaluating(model), torch.inference_mode():
        for (n_read, n_written), numbers in by_lengths.items():
            if not n_written:
                by_number |= dict.fromkeys(numbers, np.zeros(0))
                continue
            size = max(1, _TOKENS // (n_read + n_written))
            for low in range(0, len(numbers), size):
                batch = numbers[low : low + size]
                sources = [[*queries[number].prompt, sentinel_id, end_id] for number in batch]
                targets = [[first_id, sentinel_id, *queries[number].text] for number in batch]
                source = torch.tensor(sources, device=device)
                target = torch.tensor(targets, device=device)
                inputs = target[:, :-1]
                memory = model.encode(source)
                final = model.hidden(inputs, Layout.causal(inputs), memory=memory).final
                embedded = model.to_embedding(final[:, 1:]).flatten(0, 1)
                nats = nats_of_targets(embedded, matrix, bias, target[:, 2:].flatten(), cap=cap)
                rows = nats.each.double().view(len(batch), -1).cpu().numpy()
                by_number |= dict(zip(batch, rows, strict=True))
                progress(len(by_number), len(queries))
    return [by_number[number] for number in range(len(queries))]


_MOST_TOKENS = 256
"""Most tokens written, unless a request says otherwise."""
_KNOWN = ("until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p")


class Requests:
    """Requests of an evaluation harness, answered by a decoder or LSTM of ``context`` tokens.

    Raises ConfigError for a model of another kind or without a tokenizer.
    """

    def __init__(self, text_model: TextModel, context: int, what: str) -> None:
        model, tokenizer = text_model.model, text_model.tokenizer
        if not isinstance(model, Decoder):
            raise ConfigError(
                f"{what} is of model.kind = {model.config.kind}, which does not predict "
                "the next token: name a decoder or an LSTM"
            )
        if tokenizer is None:
            raise ConfigError(f"{what} has no tokenizer.json, and cannot read text without one")
        self._model = model
        self._tokenizer = tokenizer
        self._context = context

    def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """Return the log-probability of each continuation, and whether greedy decoding writes it.

        Encoded as probes are: both as one text, the prompt truncated at its beginning to fit the
        context.
        """
        queries = [Query(prompt, text) for prompt, text in pairs]
        encoded = encode_queries(queries, self._tokenizer, self._context)
        return [
            (-float(nats[:, 0].sum()), bool(nats[:, 1].all()))
            for nats in decoder_nats(self._model, encoded, with_tops=True)
        ]

    def wholes(self, texts: Sequence[str]) -> list[float]:
        """Return the log-probability of each text, every token scored once.

        The first token follows an end of document; without one in the tokenizer it is not scored.
        Longer texts are read in disjoint windows, except the last, which is full.
        """
        parts = [
            (number, part)
            for number, text in enumerate(texts)
            for part in self._windows(self._tokenizer.encode(text.encode()).tolist())
        ]
        part_nats = decoder_nats(self._model, [part for _, part in parts])
        totals = [0.0] * len(texts)
        for (number, _), nats in zip(parts, part_nats, strict=True):
            totals[number] -= float(nats.sum())
        return totals

    def _windows(self, ids: list[int]) -> list[EncodedQuery]:
        first_id = self._tokenizer.first_id
        if first_id is not None:
            ids = [first_id, *ids]
        windows = []
        for first in range(1, len(ids), self._context):
            stop = min(first + self._context, len(ids))
            start = max(0, min(first - 1, stop - 1 - self._context))
            windows.append(EncodedQuery(tuple(ids[start:first]), tuple(ids[first:stop])))
        return windows

    def written(self, prompt: str, settings: Mapping[str, Any]) -> str:
        """Continue a prompt up to the first of ``until``, excluded, or the maximum length.

        Greedy unless ``do_sample``. Raises ConfigError for an unknown setting, and for an empty
        prompt where the tokenizer has no end of document.
        """
        for name in settings:
            if name not in _KNOWN:
                raise ConfigError(f"the harness setting {name} is not one of {', '.join(_KNOWN)}")
        until = settings.get("until") or []
        stops = [until] if isinstance(until, str) else list(until)
        start_id, first_id = self._tokenizer.start_id, self._tokenizer.first_id
        ids = self._tokenizer.encode(prompt.encode()).tolist()
        ids = [*([] if start_id is None else [start_id]), *ids][-self._context :]
        if not ids:
            if first_id is None:
                raise ConfigError(
                    "a prompt is empty, and the tokenizer has no end-of-document token"
                )
            ids = [first_id]
        tokens = torch.tensor([ids], device=self._model.embedding.weight.device)
        n_tokens = int(settings.get("max_gen_toks", _MOST_TOKENS))
        sampling = _sampling(settings)
        written: list[int] = []
        text = ""
        for token in generate(self._model, tokens, n_tokens, sampling, context=self._context):
            if int(token) == self._tokenizer.end_id:
                break
            written.append(int(token))
            text = self._tokenizer.decode(np.array(written)).decode(errors="replace")
            places = [text.find(stop) for stop in stops if stop and stop in text]
            if places:
                return text[: min(places)]
        return text


def _sampling(settings: Mapping[str, Any]) -> Sampling:
    temperature = float(settings.get("temperature", 1.0))
    if not settings.get("do_sample", False) or temperature == 0.0:
        return Sampling(temperature=0.0)
    return Sampling(temperature, settings.get("top_k"), settings.get("top_p"))


_MOST_LEARNED = 2000
"""Most training rows to choose a threshold on."""


@dataclass(frozen=True)
class ProbeScore:
    """Score of a model on a probe."""

    probe: Probe
    value: float
    standard_error: float | None
    """Of so many examples."""
    reference: float | None
    n_examples: int
    notes: Sequence[str] = ()

    @property
    def normalised(self) -> float | None:
        """Return the score on the paper's scale: 0 is chance, 1 the reference; None without one."""
        if self.reference is None:
            return None
        return (self.value - self.probe.chance) / (self.reference - self.probe.chance)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "probe": self.probe.name,
            "title": self.probe.title,
            "metric": self.probe.metric,
            "value": self.value,
            "standard_error": self.standard_error,
            "chance": self.probe.chance,
            "reference": self.reference,
            "normalised": self.normalised,
            "examples": self.n_examples,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class ReadProbe:
    """A probe with its examples, for any number of models."""

    probe: Probe
    items: ProbeExamples
    learned_from: ProbeExamples | None
    """Examples to choose the threshold on."""
    settings: Settings
    _encoded: dict[tuple[int, str, int], list[EncodedQuery]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def encoded(
        self, items: ProbeExamples, tokenizer: Tokenizer, context: int
    ) -> list[EncodedQuery]:
        """Encode all queries of items, once for all evaluations of a training run."""
        key = id(items), tokenizer.fingerprint, context
        if key not in self._encoded:
            flat = [query for queries in items.queries for query in queries]
            self._encoded[key] = encode_queries(flat, tokenizer, context)
        return self._encoded[key]

    def nats_by_example(
        self, text_model: TextModel, items: ProbeExamples, context: int, progress: Progress
    ) -> tuple[list[list[Nats]], int]:
        """Compute the nats of each example's queries; count the cut examples."""
        model, tokenizer = text_model.model, text_model.tokenizer
        assert tokenizer is not None, "a model without a tokenizer is refused"
        if isinstance(model, EncoderDecoder):
            # A source also has a sentinel and an end.
            encoded = self.encoded(items, tokenizer, max(1, context - 2))
            starts_with_pad = model.config.decoder_start == "pad"
            first = tokenizer.pad_id if starts_with_pad else tokenizer.end_id
            end = tokenizer.sep_id
            assert first is not None and end is not None, "targets of span corruption start and end"
            nats = target_nats(model, encoded, first, tokenizer.sentinel_ids[0], end, progress)
        else:
            assert isinstance(model, Decoder), "other kinds are refused"
            encoded = self.encoded(items, tokenizer, context)
            nats = decoder_nats(model, encoded, progress)
        answered = iter(zip(nats, encoded, strict=True))
        by_example = [list(islice(answered, len(queries))) for queries in items.queries]
        n_cut = sum(any(query.is_cut for _, query in pairs) for pairs in by_example)
        return [[nll for nll, _ in pairs] for pairs in by_example], n_cut

    def ask(self, text_model: TextModel, context: int, progress: Progress) -> ProbeScore:
        """Ask a model the probe."""
        probe, items, settings = self.probe, self.items, self.settings
        threshold = None
        notes = [
            f"{count(n, 'example')} left out: {reason}" for reason, n in items.left_out.items()
        ]
        with stage(f"asking {probe.title}"):
            if self.learned_from is not None:
                learned, _ = self.nats_by_example(text_model, self.learned_from, context, progress)
                threshold = best_threshold(learned, self.learned_from.examples)
                rows = count(len(self.learned_from.examples), "training row")
                notes.append(
                    f"all sentences count as acceptable: no threshold is better on {rows}"
                    if math.isinf(threshold)
                    else f"threshold {threshold:.4f}, a mean log-probability of tokens, chosen on "
                    f"{rows}"
                )
            nats, n_cut = self.nats_by_example(text_model, items, context, progress)
        stats = score(
            items.examples, [probe.answer(nlls, threshold) for nlls in nats], (probe.metric,)
        )
        if n_cut:
            notes.append(
                f"{count(n_cut, 'example')} longer than the context of {context:,} tokens: the "
                "prompt loses its beginning or, where it is empty, the text its end"
            )
        tokenizer = text_model.tokenizer
        assert tokenizer is not None, "a model without a tokenizer is refused"
        for word in settings.compared if probe.compares_words else ():
            n_before = len(tokenizer.encode(b"very"))
            n_tokens = len(tokenizer.encode(f"very {word}".encode())) - n_before
            if n_tokens > 1:
                notes.append(f"{word!r} is {count(n_tokens, 'token')}, scored as a whole")
        reference = settings.references.get(probe.name, probe.reference)
        return ProbeScore(
            probe, stats.value, stats.standard_error, reference, stats.n_examples, notes
        )


def read_probes(
    names: Sequence[str], folder: str | None, settings: Settings | None = None
) -> list[ReadProbe]:
    """Read the files of probes from a folder, by default from the cache.

    Raises ConfigError for unknown names, none at all, and settings of unused probes; DataError
    where files are missing.
    """
    settings = settings or Settings()
    check_names(names)
    check_names(list(settings.references))
    settings.check_asked(names)
    return [_read(PROBES[name], folder, settings) for name in names]


def probe_files(name: str, folder: str | None) -> list[Path]:
    """List the files of a probe in a folder or the cache; raise as ``read_probes`` does."""
    _, files = _find(PROBES[name], folder)
    return sorted(path for paths in files.values() for path in paths)


def check_model(text_model: TextModel, what: str) -> None:
    """Raise ConfigError where a model has no tokenizer, or does not predict text."""
    model, tokenizer = text_model.model, text_model.tokenizer
    if tokenizer is None:
        raise ConfigError(f"{what} has no tokenizer.json, and cannot read text without one")
    if isinstance(model, Decoder):
        return
    if not isinstance(model, EncoderDecoder):
        raise ConfigError(
            f"{what} is an {model.config.kind}, which predicts no text: probes need a decoder, an "
            "LSTM or an encoder-decoder of span corruption"
        )
    if not tokenizer.sentinel_ids:
        raise ConfigError(
            f"{what} has no sentinels, which let an encoder-decoder continue a text: name one of "
            "span corruption"
        )


def ask(
    text_model: TextModel,
    probes: Sequence[ReadProbe],
    context: int,
    progress: Progress = silent,
) -> list[ProbeScore]:
    """Score a model that reads ``context`` tokens on probes; raise as ``check_model`` does."""
    check_model(text_model, "the model")
    return [probe.ask(text_model, context, progress) for probe in probes]


def _read(probe: Probe, folder: str | None, settings: Settings) -> ReadProbe:
    task, files = _find(probe, folder)
    for option in probe.splits:
        splits = option.split("+")
        if all(split in files for split in splits):
            break
    else:
        raise DataError(
            f"{folder or 'the cache'} has no {probe.splits[0]} split of {task.title} to score "
            f"the probe {probe.name} on"
        )

    def examples(split: str) -> list[Example]:
        with stage(f"reading {task.title}, {split}"):
            read = read_split(task, split, files[split])
        return [example for example in read.examples if example.is_labelled]

    scored = [example for split in splits for example in examples(split)]
    if not scored:
        raise DataError(f"no row of {task.title}, {', '.join(splits)}, has a label")
    learned = None
    if probe.has_threshold:
        if "train" not in files:
            raise DataError(
                f"{folder or 'the cache'} has no training split of {task.title} to choose the "
                f"threshold of the probe {probe.name} on"
            )
        rows = examples("train")
        step = max(1, -(-len(rows) // _MOST_LEARNED))
        learned = probe.items(task, rows[::step], settings)
    return ReadProbe(probe, probe.items(task, scored, settings), learned, settings)


def _find(probe: Probe, folder: str | None) -> tuple[Task, Found]:
    """Find the files of a probe's first available task."""
    *others, last = (TASKS[name] for name in probe.tasks)
    for task in others:
        if folder is not None and (files := find_files(task, folder)):
            return task, files
    return last, locate_files(last, folder)
