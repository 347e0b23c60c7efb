"""The items of an encoder's test: examples with masked tokens, and pairs that are judged."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sublayer.data.masked.batches import PairBatches
from sublayer.data.masked.packing import Example, packed_order
from sublayer.data.split import Split
from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable, Numbers, Sums
from sublayer.evaluation.split_work import Row

HIDDEN = "examples"
_HIDDEN_UNIT = "an example: the tokens that are hidden in it"
_PAIR_UNIT = "a pair of texts that is judged"


def _loss(sums: Sums) -> float:
    nats = float(sums["nats"])
    n_tokens = float(sums["tokens"])
    return nats / n_tokens


def _accuracy(sums: Sums) -> float:
    n_correct = float(sums["correct"])
    n_tokens = float(sums["tokens"])
    return n_correct / n_tokens


def _judged(sums: Sums) -> float:
    n_correct = float(sums["correct"])
    n_pairs = float(sums["pairs"])
    if not n_pairs:
        return math.nan
    return n_correct / n_pairs


LOSS_OF_ITEMS = FromItems(HIDDEN, _loss)
ACCURACY_OF_ITEMS = FromItems(HIDDEN, _accuracy)


def judged_of_items(task: str) -> FromItems:
    """Return how the share of pairs that are judged rightly follows from them; NaN of no pair."""
    return FromItems(f"{task}_pairs", _judged)


@dataclass(frozen=True)
class ScoredExamples:
    """Examples that are scored together, in the order of their pass."""

    made: list[Example]
    documents: list[int]
    """The documents of the split that they begin in."""
    order: NDArray[np.int64]
    """The indices of the examples in the order of their batch: [N]."""

    @property
    def owners(self) -> NDArray[np.int64]:
        """The index of the example of each masked token of the batch: [P]."""
        n_hidden = [len(self.made[index].positions) for index in self.order]
        return np.repeat(self.order, n_hidden)


def examples_at(batches: PairBatches, positions: range) -> ScoredExamples:
    """Build the examples at positions of the endless row of passes."""
    made = batches.make(positions)
    order = np.array(packed_order(made, width=batches.context), dtype=np.int64)
    return ScoredExamples(made, batches.documents(positions), order)


class ExampleItems:
    """What examples scored, gathered batch by batch.

    ``name`` is that of the table, ``unit`` what an item is.
    """

    def __init__(self, name: str, unit: str, split: Split) -> None:
        self._unit = unit
        self._digest = Digest(name, split.store.sha256)
        self._documents: list[int] = []
        self._parts: list[Mapping[str, Numbers]] = []

    def add_hidden(
        self, examples: ScoredExamples, nats: Row, is_correct: NDArray[np.bool_]
    ) -> None:
        """Add the nats of masked tokens, in the order of their batch, and which are correct."""
        n = len(examples.made)
        owners = examples.owners
        # Added up per example: items are examples, and not their tokens.
        correct = owners[is_correct]
        columns = {
            "nats": np.bincount(owners, nats, n),
            "tokens": np.bincount(owners, minlength=n),
            "correct": np.bincount(correct, minlength=n),
        }
        self._add(examples, columns)

    def add_pairs(
        self, examples: ScoredExamples, is_counted: NDArray[np.bool_], is_correct: NDArray[np.bool_]
    ) -> None:
        """Add which examples, in their batch's order, are labelled pairs and judged rightly."""
        n = len(examples.made)
        counted = examples.order[is_counted]
        correct = examples.order[is_correct]
        columns = {
            "pairs": np.bincount(counted, minlength=n),
            "correct": np.bincount(correct, minlength=n),
        }
        self._add(examples, columns)

    def table(self) -> ItemTable | None:
        """Return what was gathered, if anything was."""
        if not self._parts:
            return None
        columns: dict[str, Numbers] = {}
        for name in self._parts[0]:
            columns[name] = np.concatenate([part[name] for part in self._parts])
        return ItemTable(
            unit=self._unit,
            digest=self._digest.hexdigest(),
            columns=columns,
            documents=np.array(self._documents),
        )

    def _add(self, examples: ScoredExamples, columns: Mapping[str, Numbers]) -> None:
        self._parts.append(columns)
        self._documents.extend(examples.documents)
        for example in examples.made:
            for ids in (example.ids, example.segments, example.positions, example.targets):
                self._digest.add(ids)
            self._digest.add([example.label])


@dataclass
class EncoderItems:
    """What the examples of a text scored: masked tokens, and pairs by their task."""

    split: Split
    hidden: ExampleItems = field(init=False)
    _judged: dict[str, ExampleItems] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.hidden = ExampleItems(HIDDEN, _HIDDEN_UNIT, self.split)

    def pairs(self, task: str) -> ExampleItems:
        """Begin the table of a task; one that was begun before is replaced."""
        pairs = ExampleItems(f"{task}_pairs", _PAIR_UNIT, self.split)
        self._judged[task] = pairs
        return pairs

    def items(self) -> Items:
        """Return the tables of what was scored, without those to which nothing was added."""
        by_name = {HIDDEN: self.hidden}
        for task, judged in self._judged.items():
            by_name[f"{task}_pairs"] = judged
        tables = {}
        for name, gathered in by_name.items():
            table = gathered.table()
            if table is not None:
                tables[name] = table
        return Items(self.split.name, self.split.store.sha256, tables)
