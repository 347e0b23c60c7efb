"""Answers as text: loss of targets, written and ranked texts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sublayer.config.objective import SupervisedObjective
from sublayer.data.batches import PackedBatch
from sublayer.data.counter_rng import Purpose, generator
from sublayer.data.tasks.batches import Assembler, RowRule, TaskPart
from sublayer.data.tasks.encoded import EncodedExamples
from sublayer.decode.beam import BeamSettings, GoesOn, search, search_behind
from sublayer.decode.beam_step import Continue, DrawnContinuations, best_continuations
from sublayer.decode.sample import GREEDY, Sampling, generate
from sublayer.errors import ConfigError
from sublayer.evaluation.items import compute_each, silent
from sublayer.files.arrays import Ints
from sublayer.model.context import Layout
from sublayer.model.kernels.products import nats_of_targets, product
from sublayer.model.transformer import Decoder, EncoderDecoder, Hidden, Transformer, evaluating
from sublayer.objective.base import Objective, target_hidden
from sublayer.objective.supervised.heads import AskedSplit
from sublayer.tasks.registry import wording_of
from sublayer.tasks.task import Prediction

WRITING_OPTIONS = "--beam, --length-penalty, --temperature, --top-k, --top-p and --seed"


@dataclass(frozen=True)
class Writing:
    """Decoding of written answers: greedy, the best of a beam, or sampled.

    Raises ConfigError for a beam with sampling, and for a length penalty without a beam.
    """

    beam: int = 1
    penalty: float | None = None
    """Exponent of the length in tokens that divides the log-probability. None: 1."""
    sampling: Sampling | None = None
    seed: int = 0
    block: int = 0
    """Number of the block of rows; each block draws different random numbers."""
    is_scored: bool = False
    """True where answers are only scored, not shown: writing ends once an answer is certainly
    wrong."""

    def __post_init__(self) -> None:
        if self.sampling is not None and self.beam > 1:
            raise ConfigError(
                f"--beam {self.beam} finds the most probable text, but sampling draws one: leave "
                "one of them out"
            )
        if self.penalty is not None and self.beam == 1:
            raise ConfigError("--length-penalty has no effect without a beam: give --beam, too")

    def of_batch(self, number: int) -> "Writing":
        """Return the decoding of one batch of a block, with a derived seed."""
        if self.sampling is None:
            return self
        drawn = generator(self.seed, Purpose.ANSWERS, self.block, number).integers(1 << 62)
        return replace(self, seed=int(drawn))

    def settings(self, most_tokens: int) -> BeamSettings:
        """Return the beam settings for texts of at most ``most_tokens``."""
        penalty = 0.0 if self.beam == 1 else 1.0 if self.penalty is None else self.penalty
        return BeamSettings(self.beam, "fairseq", penalty, max_length_offset=most_tokens)


_CHUNK = 4096
"""Most tokens with logits computed at once."""
GREEDILY = Writing()
SCORED = Writing(is_scored=True)


class TextAnswers(Objective):
    """Cross-entropy of the target's tokens, its end included, averaged over the global batch."""

    reported = "task"

    def __init__(self, model: Transformer, config: SupervisedObjective) -> None:
        super().__init__(model)
        self.weights = {"task": 1.0}

    def counts(self, batch: PackedBatch) -> dict[str, int]:
        """Count the target's tokens, its end included; none where no example counts."""
        return {"task": batch.n_predicted if batch.weights.any() else 0}

    def forward(self, batch: PackedBatch) -> dict[str, Tensor]:
        """Sum the nats of the target's tokens, under teacher forcing."""
        assert batch.predicted is not None, "answers are written"
        hidden = written_hidden(self.model, batch)
        of_pass = hidden.matrix
        states = hidden.final.flatten(0, 1).index_select(0, batch.predicted)
        totals = self.auxiliary_totals(hidden.auxiliary, batch.weights)
        # States of other positions are freed before the loss is computed.
        del hidden
        embedded = self.model.to_embedding(states)
        of_tokens = self.token_totals(embedded, batch.predicted_ids, None, of_pass)
        return {"task": of_tokens["task"] * (batch.weights.max() > 0), **totals}


def written_hidden(model: Transformer, batch: PackedBatch) -> Hidden:
    """Compute the states that predict a batch's targets, without attention across examples."""
    if batch.written is None:
        read = batch.read
        mask = read.mask if model.has_auxiliary else None
        layout = Layout.causal(read.tokens, mask, read.document_ids, starts=read.starts)
        return model.hidden(read.tokens, layout)
    assert isinstance(model, EncoderDecoder), "separate targets are written by a decoder"
    return target_hidden(model, batch)


def target_vectors(model: Transformer, batch: PackedBatch) -> Float[Tensor, "P E"]:
    """Compute the vectors that predict the targets' tokens, under teacher forcing."""
    assert batch.predicted is not None, "answers are written"
    states = written_hidden(model, batch).final.flatten(0, 1).index_select(0, batch.predicted)
    return model.to_embedding(states)


def nats_of_sequences(
    model: Transformer, batch: PackedBatch, vectors: Float[Tensor, "P E"] | None = None
) -> Float[Tensor, " S"]:
    """Compute the nats of each sequence's target, end included, in batch order."""
    assert batch.targets is not None and batch.predicted is not None, "answers are written"
    matrix, bias, cap = model.output_projection()
    vectors = target_vectors(model, batch) if vectors is None else vectors
    target_nats = nats_of_targets(vectors, matrix, bias, batch.predicted_ids, cap=cap).each
    nats = torch.zeros(batch.targets.numel(), dtype=torch.float64, device=target_nats.device)
    nats[batch.predicted] = target_nats.double()
    side = batch.read if batch.written is None else batch.written
    by_row = nats.view(batch.targets.shape)
    n_most = int(side.sequence_ids.max()) + 1
    sums = by_row.new_zeros(len(side), n_most)
    sums.scatter_add_(1, side.sequence_ids.clamp_min(0), by_row)
    return sums[batch.readouts[:, 0], batch.order]


def greedy_beginnings(
    model: Transformer, batch: PackedBatch, vectors: Float[Tensor, "P E"], rule: RowRule
) -> list[Ints]:
    """Return the prefixes of greedy answers, through the first token that differs from the target.

    Until then teacher forcing and greedy decoding read the same tokens. In batch order, ends
    included.
    """
    assert batch.targets is not None and batch.predicted is not None, "answers are written"
    # A cap leaves the likeliest token.
    matrix, bias, _ = model.output_projection()
    n_columns = batch.targets.shape[1]
    side = batch.read if batch.written is None else batch.written
    rows = batch.predicted // n_columns
    sequences = side.sequence_ids.flatten()[batch.predicted]
    is_first = torch.ones_like(rows, dtype=torch.bool)
    is_first[1:] = (rows[1:] != rows[:-1]) | (sequences[1:] != sequences[:-1])
    likeliest = []
    for part, firsts in zip(
        torch.split(vectors, _CHUNK), torch.split(is_first, _CHUNK), strict=True
    ):
        logits = product(part, matrix, bias)
        if isinstance(model, EncoderDecoder):
            # As in beam search: no padding, and no empty text.
            if rule.marks.pad != rule.marks.last:
                logits[:, rule.marks.pad] = -torch.inf
            logits[firsts, rule.marks.last] = -torch.inf
        likeliest.append(logits.argmax(-1))
    starts = is_first.nonzero()[1:, 0].tolist()
    written = np.split(torch.cat(likeliest).cpu().numpy(), starts)
    targets = np.split(batch.predicted_ids.cpu().numpy(), starts)
    begun = []
    for answer, target in zip(written, targets, strict=True):
        others = np.flatnonzero(answer != target)
        begun.append(answer if not len(others) else answer[: others[0] + 1])
    return begun


def write_answers(
    model: Transformer,
    sources: Sequence[Ints],
    rule: RowRule,
    writing: Writing = GREEDILY,
    goes_on: GoesOn | None = None,
) -> Iterator[tuple[int, Ints]]:
    """Decode an answer to each source; yield its index and ids.

    Sources include their end. Answers come in order of completion, without their ends; ``goes_on``
    may stop one early.
    """
    most, end = max(1, rule.target_length - 1), rule.marks.last
    if isinstance(model, EncoderDecoder):
        assert rule.first_id is not None, "the decoder reads something first"
        continuations: Continue = best_continuations
        if writing.sampling is not None:
            device = model.embedding.weight.device
            continuations = DrawnContinuations(writing.sampling, writing.seed, device)
        results = search(
            model,
            [source[:-1] for source in sources],
            writing.settings(most),
            end_id=end,
            pad_id=rule.marks.pad,
            start_id=rule.first_id,
            continuations=continuations,
            sentences=len(sources),
            goes_on=goes_on,
        )
        yield from ((number, hypotheses[0].ids) for number, hypotheses in results)
        return
    assert isinstance(model, Decoder), "an encoder writes nothing"
    by_length: dict[int, list[int]] = {}
    for number, source in enumerate(sources):
        by_length.setdefault(len(source), []).append(number)
    groups = []  # of sources of equal length, by index
    for length, numbers in sorted(by_length.items()):
        n_rows = max(1, 8192 // ((length + most) * writing.beam))
        groups += [numbers[first : first + n_rows] for first in range(0, len(numbers), n_rows)]
    for numbers in groups:
        prompt = torch.from_numpy(np.stack([sources[number] for number in numbers]))
        prompt = prompt.to(model.embedding.weight.device)
        if writing.beam > 1:
            settings = writing.settings(most)
            best = search_behind(model, prompt, settings, end_id=end, pad_id=rule.marks.pad)
            yield from ((n, answers[0].ids) for n, answers in zip(numbers, best, strict=True))
            continue
        rows: dict[int, list[int]] = {number: [] for number in numbers}
        is_open = set(numbers)
        sampling, seed = writing.sampling or GREEDY, writing.seed + numbers[0]
        for chosen in generate(model, prompt, most, sampling, seed=seed, context=rule.context):
            for number, token in zip(numbers, chosen.tolist(), strict=True):
                if number not in is_open:
                    continue
                if token != end:
                    rows[number].append(token)
                if token == end or (goes_on is not None and not goes_on(number, rows[number])):
                    is_open.discard(number)
            if not is_open:
                break
        yield from ((number, np.array(row, dtype=np.int64)) for number, row in rows.items())


_AT_A_TIME = 128
"""Examples answered together."""


def write_part(
    request: AskedSplit,
    part: TaskPart,
    writing: Writing = GREEDILY,
    begun: Mapping[int, Ints] = MappingProxyType({}),
) -> list[Prediction]:
    """Answer every example of a task, in order, written or ranked by its spec.

    ``begun``: known prefixes of answers, by example number. Numbers and spans, without labels to
    rank, are always written.
    """
    targets = [wording_of(part.task).text_targets(example) for example in part.examples]
    if request.spec.answer == "rank" and all(targets):
        return _ranked(request, part, targets)
    with evaluating(request.model), torch.inference_mode():
        return _written(request, part, writing, begun)


def text_loss(
    request: AskedSplit, part: TaskPart, *, looks: bool = False
) -> tuple[float, int, Mapping[int, Ints]]:
    """Compute the nats and the number of tokens of all known targets of a part, ends included.

    ``looks`` also finds prefixes of greedy answers, unless computed below the weights' precision:
    by the example's number, up to the first token that is not the target's, ends included.
    """
    model, rule = request.model, request.rule
    places = np.flatnonzero(part.encoded.row_texts == 2)
    labelled = part.encoded.select(places)
    if not len(labelled):
        return 0.0, 0, {}
    looks = looks and not torch.is_autocast_enabled(model.embedding.weight.device.type)

    def work(batch: PackedBatch) -> tuple[float, int, dict[int, Ints]]:
        assert batch.targets is not None, "targets are known"
        vectors = target_vectors(model, batch)
        nats = float(nats_of_sequences(model, batch, vectors).sum())
        beginnings = greedy_beginnings(model, batch, vectors, rule) if looks else []
        owners = [int(places[batch.numbers[owner]]) for owner in batch.owners.tolist()]
        return nats, int((batch.targets >= 0).sum()), dict(zip(owners, beginnings, strict=False))

    rows = replace(request, progress=silent).each_batch(labelled, work)
    begun = {number: ids for _, _, by_number in rows for number, ids in by_number.items()}
    return math.fsum(nats for nats, _, _ in rows), sum(n for _, n, _ in rows), begun


def _written(
    request: AskedSplit, part: TaskPart, writing: Writing, begun: Mapping[int, Ints]
) -> list[Prediction]:
    model, rule, tokenizer = request.model, request.rule, request.split.tokenizer
    wording, most = wording_of(part.task), max(1, rule.target_length - 1)

    @cache
    def text_of(ids: tuple[int, ...]) -> str:
        return tokenizer.decode(list(ids)).decode("utf-8", "replace")

    def may_count(number: int, ids: Sequence[int]) -> bool:
        return wording.may_answer(part.examples[number], text_of(tuple(ids)))

    answers: dict[int, Ints] = {}
    for number, ids in begun.items() if writing.is_scored else ():
        if ids[-1] == rule.marks.last:
            answers[number] = ids[:-1]
        elif len(ids) > most:  # without waiting for an end
            answers[number] = ids[:most]
        elif not may_count(number, ids.tolist()):
            answers[number] = ids
    assembler = Assembler(part.encoded, rule)
    sources = [assembler.source(number) for number in range(len(part.encoded))]
    # Similar lengths together, to save padding.
    order = [
        n for n in sorted(range(len(sources)), key=lambda n: len(sources[n])) if n not in answers
    ]
    n_rows = rule.n_rows or _AT_A_TIME
    groups = [order[start : start + n_rows] for start in range(0, len(order), n_rows)]
    device = model.embedding.weight.device.type

    def work(index: int) -> dict[int, Ints]:
        numbers = groups[index]
        goes_on: GoesOn | None = None
        if writing.is_scored:
            goes_on = lambda row, ids: may_count(numbers[row], ids)  # noqa: E731
        inputs = [sources[number] for number in numbers]
        # In the weights' precision, as answers after training.
        with torch.autocast(device, enabled=False):
            results = write_answers(model, inputs, rule, writing.of_batch(index), goes_on)
            return {numbers[row]: ids for row, ids in results}

    for written in compute_each(work, len(groups), request.processes, request.progress):
        answers |= written
    return [
        wording.read_answer(example, text_of(tuple(answers[number].tolist())))
        for number, example in enumerate(part.examples)
    ]


def _ranked(
    request: AskedSplit, part: TaskPart, targets: Sequence[Sequence[str]]
) -> list[Prediction]:
    model = request.model
    texts = sorted({text for options in targets for text in options})
    encoded_texts = request.split.tokenizer.encode_many([text.encode() for text in texts])
    ids = {text: row.astype(np.int64) for text, row in zip(texts, encoded_texts, strict=True)}
    # A row for every target of each example.
    texts_ids: list[Ints] = []
    example_starts = [0]
    for example, options in enumerate(targets):
        source = part.encoded.texts_of(part.encoded.example_starts[example])[0]
        for text in options:
            texts_ids += [np.asarray(source), ids[text]]
        example_starts.append(example_starts[-1] + len(options))
    n_rows = example_starts[-1]
    encoded = EncodedExamples(
        ids=np.concatenate(texts_ids),
        text_starts=np.concatenate([[0], np.cumsum([len(text_ids) for text_ids in texts_ids])]),
        row_starts=np.arange(n_rows + 1) * 2,
        example_starts=np.array(example_starts),
        labels=part.encoded.labels,
        is_labelled=part.encoded.is_labelled,
        cuts=np.zeros(n_rows, dtype=np.int64),
        numbers=part.encoded.numbers,
    )

    def work(batch: PackedBatch) -> list[tuple[int, float]]:
        nats = nats_of_sequences(model, batch).tolist()
        return list(zip([batch.numbers[n] for n in batch.owners.tolist()], nats, strict=True))

    scores: list[list[float]] = [[] for _ in targets]
    for row in request.each_batch(encoded, work):
        for number, nats in row:
            scores[number].append(-nats)
    predictions = []
    for log_p, options in zip(map(np.array, scores), targets, strict=True):
        shares = np.exp(log_p - log_p.max())
        shares /= shares.sum()
        best = int(log_p.argmax())
        predictions.append(Prediction(best, tuple(shares.tolist()), options[best]))
    return predictions
