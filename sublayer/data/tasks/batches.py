"""Splits of tasks, examples packed into rows, and batches as a pure function of (seed, step)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from sublayer.config.objective import Format
from sublayer.data.batches import (
    IGNORED,
    PackedBatch,
    PackedSequence,
    Unpacked,
    n_that_fit,
    pack_examples,
)
from sublayer.data.counter_rng import Epochs, Purpose, fork, seeds
from sublayer.data.store import Split
from sublayer.data.tasks.encoded import (
    CUTS,
    EncodedExamples,
    Marks,
    SpanExamples,
    bounds,
    cut_lengths,
    joined,
)
from sublayer.errors import DataError
from sublayer.files.arrays import Bools, Ints
from sublayer.files.cache_folder import content_key
from sublayer.numbers import count
from sublayer.tasks.task import Example, Task


def whole_lengths(encoded: EncodedExamples, marks: Marks) -> Ints:
    """Count the tokens of every row before truncation, special ones included: ``[R]``."""
    n_between = marks.n_between * (encoded.row_texts - 1)
    return encoded.row_tokens + n_between + 1 + (marks.first is not None)


def build_row(
    encoded: EncodedExamples, row: int, marks: Marks, context: int, *, is_swapped: bool = False
) -> tuple[Ints, Ints]:
    """Build a row, truncated to ``context``; ``is_swapped`` exchanges its two texts.

    Returns token ids, special ones included, and segments: 0 for the first text, 1 after it.
    """
    texts = encoded.texts_of(row)
    if is_swapped:
        texts.reverse()
    between = [marks.between] * marks.n_between
    ends = [between] * (len(texts) - 1) + [[marks.last]]
    first = [] if marks.first is None else [marks.first]
    room = context - len(first) - sum(map(len, ends))
    lengths = [len(text) for text in texts]
    if sum(lengths) > room:
        if CUTS[encoded.cuts[row]] == "first":
            others = sum(lengths[1:])
            shortened = [max(0, room - others), *cut_lengths(lengths[1:], room)]
        else:
            shortened = cut_lengths(lengths, room)
        texts = [text[:length] for text, length in zip(texts, shortened, strict=True)]
    parts: list[Any] = [first, *chain.from_iterable(zip(texts, ends, strict=True))]
    ids = np.concatenate(parts).astype(np.int64)
    segments = np.ones(len(ids), dtype=np.int64)
    segments[: len(first) + len(texts[0]) + len(ends[0])] = 0
    return ids, segments


_ROW_TOKENS = 128
"""Minimum width, in tokens, of the rows into which examples are packed."""


@dataclass(frozen=True)
class RowRule:
    """Rule that lays out texts in a model's rows, and the number of rows computed at a time."""

    format: Format
    marks: Marks
    context: int
    """Maximum length of a row in tokens, special ones included."""
    predicts_text: bool = False
    """True where the tokens of a traversal are predicted as well."""
    target_length: int = 0
    """Maximum length of a target of text to text, in tokens, its end included."""
    first_id: int | None = None
    """First input id of an encoder-decoder's decoder; None without one."""
    fills_rows: bool = False
    """True where a batch has as many examples as fit into full rows of the context."""
    n_rows: int | None = None
    """Number of rows computed at a time in evaluation; None: a fast number for the device."""


class Assembler:
    """Assembly of batches from encoded examples, by their numbers."""

    def __init__(self, encoded: EncodedExamples, rule: RowRule) -> None:
        self._encoded = encoded
        self._rule = rule

    @cached_property
    def _first_lengths(self) -> Ints:
        """Length in tokens of the first text of every row: [R]."""
        return self._encoded.text_lengths[self._encoded.row_starts[:-1]]

    @cached_property
    def _target_lengths(self) -> Ints:
        """Length in tokens of every target of text to text, its end included; 0 for none: [R]."""
        if self._rule.format != "text":
            return np.zeros(self._encoded.n_rows, dtype=np.int64)
        n_tokens = self._encoded.row_tokens - self._first_lengths + 1
        return np.where(self._encoded.row_texts > 1, n_tokens, 0)

    @cached_property
    def _whole_lengths(self) -> Ints:
        """Length in tokens of every row, or source of text to text, before truncation: [R]."""
        if self._rule.format != "text":
            return whole_lengths(self._encoded, self._rule.marks)
        return self._first_lengths + 1

    @property
    def _read_lengths(self) -> Ints:
        """Length in tokens of every row, or source of text to text, after truncation: [R]."""
        return np.minimum(self._whole_lengths, self._most_tokens)

    @cached_property
    def _row_bounds(self) -> Ints:
        """Bounds of all rows, sources and targets, when concatenated: [R + 1]."""
        written = np.minimum(self._target_lengths, self._rule.target_length)
        return bounds(self._read_lengths + written)

    @property
    def _most_tokens(self) -> int:
        """Maximum length of a row or a source in tokens, special ones included."""
        rule = self._rule
        if rule.format == "text" and rule.first_id is None:
            # Input and target share a row.
            return max(1, rule.context - rule.target_length)
        return rule.context

    @property
    def n_rows(self) -> int:
        """Count the rows."""
        return self._encoded.n_rows

    @property
    def n_cut(self) -> int:
        """Count the truncated rows."""
        return int((self._whole_lengths > self._most_tokens).sum())

    @property
    def share_read(self) -> float:
        """Share of the truncated rows' tokens that is read, from 0 to 1."""
        cut = self._whole_lengths[self._whole_lengths > self._most_tokens]
        return len(cut) * self._most_tokens / int(cut.sum()) if len(cut) else 1.0

    def cut_examples(self) -> Bools:
        """Mark the examples with a truncated row: ``[N]``."""
        n_before = bounds((self._whole_lengths > self._most_tokens).astype(np.int64))[
            self._encoded.example_starts
        ]
        return np.diff(n_before) > 0

    @cached_property
    def n_cut_targets(self) -> int:
        """Count the truncated targets."""
        return int((self._target_lengths > self._rule.target_length).sum())

    @property
    def longest_target(self) -> int:
        """Return the length of the longest target, its end included."""
        return int(self._target_lengths.max(initial=0))

    @cached_property
    def filling(self) -> Ints:
        """Room of each example in a row of the context, in tokens, and its sequences: [E, 2].

        The side of which the example fills a larger share counts; tokens of a target are scaled
        from ``written_width`` to the context.
        """
        filled = self.tokens(np.arange(len(self._encoded)))
        if self._rule.first_id is not None:
            read = self._read_lengths
            written = filled - read
            filled = np.maximum(read, -(-written * self._rule.context // self.written_width))
        n_sequences = np.diff(self._encoded.example_starts)
        return np.stack([np.maximum(filled, 1), n_sequences], axis=1)

    @property
    def written_width(self) -> int:
        """Maximum length of a row of targets in tokens."""
        return max(_ROW_TOKENS, self._rule.target_length)

    def tokens(self, numbers: Ints) -> Ints:
        """Count the tokens of examples, special ones included: ``[N]``."""
        starts = self._row_bounds[self._encoded.example_starts]
        return starts[numbers + 1] - starts[numbers]

    def pack(
        self, numbers: Ints, *, weight: float = 1.0, is_swapped: Sequence[bool] | None = None
    ) -> PackedBatch:
        """Pack the examples with ``numbers`` ``[N]``, at least one.

        A ``weight`` of 0 excludes them from the loss; ``is_swapped`` says which have their texts
        exchanged.
        """
        swapped = is_swapped or [False] * len(numbers)
        examples = []
        for number, swaps in zip(numbers.tolist(), swapped, strict=True):
            rows = self._encoded.rows_of(number)
            sequences = [self._sequence(row, swaps) for row in rows]
            label = float(self._encoded.labels[number])
            examples.append(Unpacked(sequences, label, weight, number))
        longest = max(len(sequence.ids) for one in examples for sequence in one.sequences)
        width = min(self._rule.context, max(_ROW_TOKENS, longest))
        is_filled = self._rule.fills_rows and width == self._rule.context
        return pack_examples(
            examples,
            width=width,
            written_width=self.written_width,
            filling=self.filling[numbers, 0].tolist() if is_filled else None,
            by_written=self._rule.fills_rows,
            pad_id=self._rule.marks.pad,
            first_id=self._rule.first_id or 0,
        )

    def _sequence(self, row: int, is_swapped: bool) -> PackedSequence:
        rule = self._rule
        if rule.format == "text":
            end = rule.marks.last
            texts = self._encoded.texts_of(row)
            source = np.append(texts[0][: self._most_tokens - 1], end).astype(np.int64)
            written = None
            if len(texts) > 1:
                written = np.append(texts[1][: rule.target_length - 1], end).astype(np.int64)
            if rule.first_id is not None:
                return PackedSequence(source, np.zeros_like(source), 0, written=written)
            if written is None:
                return PackedSequence(source, np.zeros_like(source), len(source) - 1)
            ids = np.concatenate([source, written])
            targets = np.full(len(ids), IGNORED, dtype=np.int64)
            # The end of the input predicts the first token of the target.
            targets[len(source) - 1 : -1] = written
            return PackedSequence(ids, np.zeros_like(ids), len(source) - 1, targets=targets)
        ids, segments = build_row(
            self._encoded, row, rule.marks, rule.context, is_swapped=is_swapped
        )
        if rule.format == "pair":
            return PackedSequence(ids, segments, readout=0, span=self._encoded.span_of(row))
        following = np.append(ids[1:], IGNORED) if rule.predicts_text else None
        return PackedSequence(ids, segments, readout=len(ids) - 1, targets=following)

    def source(self, number: int) -> Ints:
        """Return the input of an example of text to text, its end included: ``[T]``."""
        texts = self._encoded.texts_of(self._encoded.example_starts[number])
        return np.append(texts[0][: self._most_tokens - 1], self._rule.marks.last).astype(np.int64)


_T = TypeVar("_T")


@dataclass(frozen=True)
class TaskPart:
    """Part of a split: the examples of one task."""

    task: Task
    published: str
    """Name of the publisher's split with the examples, such as ``dev_matched``."""
    encoded: EncodedExamples
    read_examples: Callable[[], Sequence[Example]]
    """Function that reads all examples of the publisher's split; ``encoded.numbers`` select."""
    notes: Sequence[str] = ()
    """Notes on the publisher's rows: omitted, repaired, or kept with a fault."""
    weight: float | None = None
    """Weight in draws for training, relative to other tasks; None: the number of examples."""
    size_limit: int | None = None
    """Maximum of the number of examples that determines the share of a mixture; None: none."""
    digest: str = ""
    """Digest of the publisher's split, independent of the format of examples."""
    n_lost: int = 0
    """Number of questions left out since their answers were not found in their passages."""

    @property
    def distinct_examples(self) -> list[Example]:
        """Examples without repetition, where ``encoded`` has several of one example."""
        read = self.read_examples()
        return [read[number] for number in dict.fromkeys(self.encoded.numbers.tolist())]

    @cached_property
    def examples(self) -> list[Example]:
        """Examples in the order of ``encoded``, read at the first access."""
        read = self.read_examples()
        return [read[number] for number in self.encoded.numbers]


@dataclass(frozen=True, kw_only=True)
class TaskSplit(Split):
    """Split with the examples of one task or several, concatenated."""

    parts: tuple[TaskPart, ...]
    format: Format
    marks: Marks

    @cached_property
    def encoded(self) -> EncodedExamples:
        """Encoded examples of all parts, concatenated."""
        return joined([part.encoded for part in self.parts])

    @property
    def n_examples(self) -> int:
        """Count the examples."""
        return sum(len(part.encoded) for part in self.parts)

    def by_part(self, items: Sequence[_T]) -> Iterator[tuple[TaskPart, Sequence[_T]]]:
        """Yield each part with its examples' ``items``, of which there is one per example."""
        first = 0
        for part in self.parts:
            stop = first + len(part.encoded)
            yield part, items[first:stop]
            first = stop

    @property
    def examples_digest(self) -> str:
        """Return a digest of the examples, independent of their format."""
        return content_key(
            [(part.digest, np.unique(part.encoded.numbers).tolist()) for part in self.parts]
        )

    def sizes(self) -> dict[str, int]:
        """Count the examples and tokens, for a record."""
        return {"examples": self.n_examples, "tokens": len(self.ids)}

    def describe_cuts(self, rule: RowRule) -> list[str]:
        """Describe the truncated rows and targets of a split, if any."""
        assembler = Assembler(self.encoded, rule)
        notes = []
        if assembler.n_cut:
            n_rows = assembler.n_rows
            notes.append(
                f"{assembler.n_cut:,} of {count(n_rows, 'row')} ({assembler.n_cut / n_rows:.0%}) "
                f"of the {self.name} split are truncated to data.context = {rule.context}: "
                f"{assembler.share_read:.0%} of their tokens are read"
            )
        if assembler.n_cut_targets:
            longest = assembler.longest_target
            notes.append(
                f"{count(assembler.n_cut_targets, 'target')} of the {self.name} split truncated to "
                f"objective.target_length = {rule.target_length}: such answers cannot be generated "
                f"in full; objective.target_length={longest} has room for all"
            )
        return notes


def of_tasks(split: Split) -> TaskSplit:
    """Narrow a split to a ``TaskSplit``."""
    assert isinstance(split, TaskSplit), "the objective reads tasks"
    return split


Orders = Literal["given", "random", "both"]


class ExampleBatches:
    """Batches of ``batch_sequences`` examples, each used once per epoch.

    Where the rule fills rows, a batch has as many of the next examples as ``batch_sequences`` rows
    of the context hold by best fit (``Assembler.filling``).

    Epochs follow without a gap, so that a batch may span two. In a weighted mixture an epoch has as
    many examples as all tasks together, divided by weight; a task's examples are used in turn. With
    a size limit, an epoch has at most so many examples of a task.

    Raises DataError where the split has no example. Source of the limit: Raffel et al. 2020
    (1910.10683), sec. 3.5.2, examples-proportional mixing; there each example is drawn at random.
    """

    lengths_vary: ClassVar[bool] = True

    def __init__(
        self,
        split: TaskSplit,
        *,
        rule: RowRule,
        batch_sequences: int,
        seed: int,
        orders: Orders = "given",
    ) -> None:
        if not split.n_examples:
            names = ", ".join(part.task.title for part in split.parts)
            raise DataError(f"the {split.name} split of {names} has no example: give more rows")
        self.split = split
        self.rule = rule
        self._assembler = Assembler(split.encoded, rule)
        self._batch_sequences = batch_sequences
        self._seed = seed
        self._orders = orders
        self._is_symmetric = np.concatenate(
            [np.full(len(part.encoded), part.task.is_symmetric) for part in split.parts]
        )
        self._epochs = Epochs(self._order)
        self._times = 2 if orders == "both" and self._is_symmetric.any() else 1
        self._sizes = np.array([len(part.encoded) for part in split.parts])
        self._shares = self._times * self._sizes
        self._starts = [0]
        """First example of each step so far, counted over all epochs, where steps fill rows."""
        self._is_drawn = False
        """True where an epoch draws a task's examples rather than using each exactly once."""
        if len(split.parts) > 1:
            assert self._times == 1, "a mixture is text to text, whose texts have one order"
            self._shares = _shares(split.parts, self._sizes)
            self._is_drawn = any(part.weight is not None for part in split.parts) or bool(
                (self._shares < self._sizes).any()
            )

    @property
    def n_epoch(self) -> int:
        """Count the examples of an epoch; those read in both orders count twice."""
        return int(self._shares.sum())

    @property
    def n_epoch_steps(self) -> float:
        """Count the steps of the first epoch, the last possibly partial."""
        if not self.rule.fills_rows:
            return self.n_epoch / self._batch_sequences
        step = 0
        while self._bounds(step)[1] < self.n_epoch:
            step += 1
        first, stop = self._bounds(step)
        return step + (self.n_epoch - first) / (stop - first)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Return examples ``rank``, ``rank + world``, ... of the global batch of a step (0-based).

        Processes beyond the number of examples get the first example, with weight 0.
        """
        chosen = self.chosen(step)
        share = chosen[rank::world]
        if not len(share):
            first = chosen[:1] % self.split.n_examples
            return self._assembler.pack(first, weight=0.0)
        n_examples = self.split.n_examples
        if self._orders == "both":
            is_exchanged = chosen >= n_examples
        elif self._orders == "random":
            coins = seeds(self._seed, Purpose.TEXT_ORDER, step, len(chosen))
            is_exchanged = coins % np.uint64(2) == 1
        else:
            is_exchanged = np.zeros(len(chosen), dtype=np.bool_)
        is_swapped = is_exchanged & self._is_symmetric[chosen % n_examples]  # [B]
        return self._assembler.pack(share % n_examples, is_swapped=is_swapped[rank::world].tolist())

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch of a step, special ones included."""
        numbers = self.chosen(step) % self.split.n_examples
        return int(self._assembler.tokens(numbers).sum())

    def notes(self) -> list[str]:
        """Return notes on windows of passages, size limits and truncated rows, if any."""
        windows = []
        for part in self.split.parts:
            encoded = part.encoded
            if not isinstance(encoded, SpanExamples):
                continue
            if encoded.n_rows > encoded.n_questions:
                n_without = int((encoded.spans[:, 0] == 0).sum())
                windows.append(
                    f"{count(encoded.n_questions, 'question')} of the train split in "
                    f"{count(encoded.n_rows, 'window')} of their passages, {n_without:,} without "
                    "the answer"
                )
            if encoded.n_cut_questions:
                windows.append(
                    f"{count(encoded.n_cut_questions, 'question')} of the train split truncated to "
                    f"{encoded.most_question_tokens} tokens, to leave room for the passage"
                )
            if part.n_lost:
                windows.append(
                    f"{count(part.n_lost, 'question')} of the train split left out: their answers "
                    "are not found in their passages"
                )
        limits = [
            f"data.size_limit = {part.size_limit:,}: an epoch uses that many of the {size:,} "
            f"examples of {part.task.title}; the next epoch uses others"
            for part, size, share in zip(self.split.parts, self._sizes, self._shares, strict=True)
            if part.size_limit is not None and share < size
        ]
        return windows + limits + self.split.describe_cuts(self.rule)

    def chosen(self, step: int) -> Ints:
        """Return the example numbers of a step's global batch, in order: ``[B]``.

        A number of ``n_examples`` or more is that of an example, plus ``n_examples``, whose texts
        are exchanged.
        """
        return self._at(*self._bounds(step))

    def _bounds(self, step: int) -> tuple[int, int]:
        """Return a step's range of examples in the concatenated epochs."""
        if not self.rule.fills_rows:
            first = step * self._batch_sequences
            return first, first + self._batch_sequences
        starts = self._starts
        n_rows, context = self._batch_sequences, self.rule.context
        filling = self._assembler.filling
        while len(starts) < step + 2:
            # Count the next examples that fit into the rows of a step.
            first = starts[-1]
            n_drawn = 16 + int(1.25 * n_rows * context / filling[:, 0].mean())
            while True:
                sizes = filling[self._at(first, first + n_drawn) % self.split.n_examples]
                n_items = n_that_fit(sizes[:, 0], sizes[:, 1], n_rows, context)
                if n_items < n_drawn:
                    break
                n_drawn *= 2
            starts.append(first + n_items)
        return starts[step], starts[step + 1]

    def _at(self, first: int, stop: int) -> Ints:
        return self._epochs.take(np.arange(first, stop), self.n_epoch)

    def _order(self, epoch: int) -> Ints:
        keys = seeds(self._seed, Purpose.EXAMPLE_ORDER, epoch, self.n_epoch)
        order: Ints = np.argsort(keys, kind="stable")
        if not self._is_drawn:
            return order
        # Examples of a mixture's epoch, task after task [N]: each task contributes the next stretch
        # of its endless sequence of passes, of which each has a new order.
        drawn = []
        first = 0
        for number, (size, share) in enumerate(zip(self._sizes, self._shares, strict=True)):
            passes, positions = np.divmod(np.arange(epoch * share, (epoch + 1) * share), size)
            for pass_ in np.unique(passes).tolist():
                bits = seeds(self._seed, Purpose.EXAMPLE_ORDER, pass_, size)
                own_order = np.argsort(fork(bits, number + 1), kind="stable")
                is_of_pass = passes == pass_
                positions[is_of_pass] = own_order[positions[is_of_pass]]
            drawn.append(first + positions)
            first += size
        return np.concatenate(drawn)[order]


def _shares(parts: Sequence[TaskPart], sizes: Ints) -> Ints:
    """Return the number of examples of each task in an epoch of a mixture: ``[T]``."""
    if all(part.weight is None for part in parts):
        limits = [
            size if part.size_limit is None else part.size_limit
            for part, size in zip(parts, sizes, strict=True)
        ]
        limited: Ints = np.minimum(sizes, limits)
        return limited
    n_all = int(sizes.sum())
    # Tasks without examples are not drawn from.
    weights = np.array([part.weight or 0.0 for part in parts]) * (sizes > 0)
    bounds = np.concatenate([[0.0], np.cumsum(weights / weights.sum())])
    edges: Ints = np.round(bounds * n_all).astype(np.int64)
    shares: Ints = edges[1:] - edges[:-1]
    # At least one example per task, however small its weight.
    shares = np.maximum(shares, sizes > 0)
    shares[shares.argmax()] -= shares.sum() - n_all
    return shares
