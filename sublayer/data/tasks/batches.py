"""Splits of tasks and their batches: a pure function of (seed, step)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, TypeVar

import numpy as np

from sublayer.config.supervised import Format
from sublayer.counts import count
from sublayer.data.arrays import Ints
from sublayer.data.cache import content_key
from sublayer.data.counter_rng import Epochs, Purpose, fork, seeds
from sublayer.data.packing import PackedBatch, n_that_fit
from sublayer.data.store import Split
from sublayer.data.tasks.assembly import Assembler, RowRule
from sublayer.data.tasks.encoded import EncodedExamples, Marks, SpanExamples, joined
from sublayer.errors import DataError
from sublayer.tasks.task import Example, Task

_T = TypeVar("_T")


@dataclass(frozen=True)
class TaskPart:
    """The examples of one task."""

    task: Task
    published: str
    """The name of the publisher's split that they are of, such as ``dev_matched``."""
    encoded: EncodedExamples
    read_examples: Callable[[], Sequence[Example]]
    """Reads all examples of the publisher's split, of which ``encoded.numbers`` are these."""
    notes: Sequence[str] = ()
    """Notes on the split's rows: those left out, repaired, or kept as they are."""
    weight: float | None = None
    """Weight of it in training's draws, in proportion to the others; None: by its size."""
    size_limit: int | None = None
    """Of a mixture by size: the examples that it counts as at most; None: all that it has."""
    digest: str = ""
    """Of the publisher's split, however its examples are written."""
    n_lost: int = 0
    """Questions that are left out, since no tokens of their passages are the answer."""

    @property
    def distinct_examples(self) -> list[Example]:
        """The examples, once each, where ``encoded`` has several of one."""
        read = self.read_examples()
        return [read[number] for number in dict.fromkeys(self.encoded.numbers.tolist())]

    @cached_property
    def examples(self) -> list[Example]:
        """The examples, in the order of ``encoded``; read at the first access."""
        read = self.read_examples()
        return [read[number] for number in self.encoded.numbers]


@dataclass(frozen=True, kw_only=True)
class TaskSplit(Split):
    """Examples of one task or several, one after another."""

    parts: tuple[TaskPart, ...]
    format: Format
    marks: Marks

    @cached_property
    def encoded(self) -> EncodedExamples:
        """The examples of all parts, one after another."""
        return joined([part.encoded for part in self.parts])

    @property
    def n_examples(self) -> int:
        """Count the examples."""
        return sum(len(part.encoded) for part in self.parts)

    def by_part(self, items: Sequence[_T]) -> Iterator[tuple[TaskPart, Sequence[_T]]]:
        """Yield each part with its share of ``items``, one per example."""
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
        """Return the examples and tokens, for a record."""
        return {"examples": self.n_examples, "tokens": len(self.ids)}


def of_tasks(split: Split) -> TaskSplit:
    """Narrow a split to a ``TaskSplit``."""
    assert isinstance(split, TaskSplit), "the objective reads tasks"
    return split


def describe_cuts(split: TaskSplit, rule: RowRule) -> list[str]:
    """Return lines on truncated rows and targets of a split, if any."""
    assembler = Assembler(split.encoded, rule)
    notes = []
    if assembler.n_cut:
        n_rows = assembler.n_rows
        notes.append(
            f"{assembler.n_cut:,} of {count(n_rows, 'row')} ({assembler.n_cut / n_rows:.0%}) of "
            f"the {split.name} part, longer than data.context = {rule.context}, cut to it: "
            f"{assembler.share_read:.0%} of their tokens are read"
        )
    if assembler.n_cut_targets:
        longest = assembler.longest_target
        notes.append(
            f"{count(assembler.n_cut_targets, 'target')} of the {split.name} part, longer than "
            f"objective.target_length = {rule.target_length}, cut to it: no such answer can be "
            f"written whole; objective.target_length={longest} has room for all"
        )
    return notes


def describe_windows(part: TaskPart) -> list[str]:
    """Return notes on the windows of passages in training, and on questions cut or left out."""
    encoded = part.encoded
    if not isinstance(encoded, SpanExamples):
        return []
    notes = []
    if encoded.n_rows > encoded.n_questions:
        n_without = int((encoded.spans[:, 0] == 0).sum())
        notes.append(
            f"{count(encoded.n_questions, 'question')} of the train part in "
            f"{count(encoded.n_rows, 'window')} of their passages, {n_without:,} of which have no "
            "answer"
        )
    if encoded.n_cut_questions:
        notes.append(
            f"{count(encoded.n_cut_questions, 'question')} of the train part cut to "
            f"{encoded.most_question_tokens} tokens, to leave room for a passage"
        )
    if part.n_lost:
        notes.append(
            f"{count(part.n_lost, 'question')} of the train part left out: their answers are "
            "not found in their passages"
        )
    return notes


Orders = Literal["given", "random", "both"]


class ExampleBatches:
    """Batches of ``batch_sequences`` examples, each of which an epoch uses once.

    Where the rule fills rows, a batch is as many of the next examples as ``batch_sequences`` rows
    of the context hold by best fit, counted by the side that they fill more.

    Epochs follow without a gap: a batch may span two. In a weighted mixture an epoch has as many
    examples as all tasks together, divided by weight; a task's examples are used in turn. With a
    size limit an epoch has all examples of a task, up to the limit.

    Raises DataError where the split has no example. Source of the limit: Raffel et al. 2020
    (1910.10683), sec. 3.5.2, examples-proportional mixing; there each example is drawn by chance.
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
            raise DataError(f"the {split.name} part of {names} has no example")
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
        """First example of each step of rows, counted over all epochs, as far as was asked."""
        self._is_drawn = False
        """True where an epoch has not each example once."""
        if len(split.parts) > 1:
            assert self._times == 1, "a mixture is text, whose order is given"
            self._shares = _shares(split.parts, self._sizes)
            self._is_drawn = any(part.weight is not None for part in split.parts) or bool(
                (self._shares < self._sizes).any()
            )

    @property
    def n_epoch(self) -> int:
        """Count the examples of an epoch, those read in both orders twice."""
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

        Where there are more processes than examples, those without one get the first, uncounted.
        """
        chosen = self.chosen(step)
        share = chosen[rank::world]
        if not len(share):
            first = chosen[:1] % self.split.n_examples
            return self._assembler.pack(first, weight=0.0)
        numbers = share % self.split.n_examples
        is_swapped = self._is_swapped(chosen, step)[rank::world]
        return self._assembler.pack(numbers, is_swapped=is_swapped)

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch of a step, marks included."""
        numbers = self.chosen(step) % self.split.n_examples
        return int(self._assembler.tokens(numbers).sum())

    def notes(self) -> list[str]:
        """Return lines on truncated rows, if any, and on windows of passages."""
        windows = [note for part in self.split.parts for note in describe_windows(part)]
        limits = [
            f"data.size_limit = {part.size_limit:,}: an epoch has so many of the {size:,} examples "
            f"of {part.task.title}, others in the next"
            for part, size, share in zip(self.split.parts, self._sizes, self._shares, strict=True)
            if part.size_limit is not None and share < size
        ]
        return windows + limits + describe_cuts(self.split, self.rule)

    def chosen(self, step: int) -> Ints:
        """Return the example numbers of a step's global batch, in order: ``[B]``.

        Numbers from the split's number of examples on are the same ones with their texts exchanged.
        """
        return self._at(*self._bounds(step))

    def _bounds(self, step: int) -> tuple[int, int]:
        """Return a step's range of examples in the concatenated epochs."""
        if not self.rule.fills_rows:
            first = step * self._batch_sequences
            return first, first + self._batch_sequences
        starts = self._starts
        while len(starts) < step + 2:
            starts.append(starts[-1] + self._n_that_fit(starts[-1]))
        return starts[step], starts[step + 1]

    def _n_that_fit(self, first: int) -> int:
        """Count the examples from ``first`` on that the rows of a step hold."""
        n_rows, context = self._batch_sequences, self.rule.context
        filling = self._assembler.filling
        n_asked = 16 + int(1.25 * n_rows * context / filling[:, 0].mean())
        while True:
            sizes = filling[self._at(first, first + n_asked) % self.split.n_examples]
            n_items = n_that_fit(sizes[:, 0], sizes[:, 1], n_rows, context)
            if n_items < n_asked:
                return n_items
            n_asked *= 2

    def _at(self, first: int, stop: int) -> Ints:
        return self._epochs.take(np.arange(first, stop), self.n_epoch)

    def _order(self, epoch: int) -> Ints:
        keys = seeds(self._seed, Purpose.EXAMPLE_ORDER, epoch, self.n_epoch)
        order: Ints = np.argsort(keys, kind="stable")
        if not self._is_drawn:
            return order
        # The examples of an epoch of a mixture, task after task [N]: of each task a stretch of its
        # endless sequence of passes, in a new order per pass.
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

    def _is_swapped(self, chosen: Ints, step: int) -> list[bool]:
        """Mark a step's examples with exchanged texts: ``[B]``."""
        n_examples = self.split.n_examples
        if self._orders == "both":
            is_exchanged = chosen >= n_examples
        elif self._orders == "random":
            coins = seeds(self._seed, Purpose.TEXT_ORDER, step, len(chosen))
            is_exchanged = coins % np.uint64(2) == 1
        else:
            is_exchanged = np.zeros(len(chosen), dtype=np.bool_)
        swapped: list[bool] = (is_exchanged & self._is_symmetric[chosen % n_examples]).tolist()
        return swapped


def _shares(parts: Sequence[TaskPart], sizes: Ints) -> Ints:
    """Return the number of examples by task in an epoch of a mixture: ``[T]``."""
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
