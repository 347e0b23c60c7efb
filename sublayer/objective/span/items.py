"""The items of a test of span corruption: the pieces of the text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sublayer.data.span.batches import ScoredPieces
from sublayer.data.split import Split
from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable, Sums
from sublayer.evaluation.split_work import Row

PIECES = "pieces"
"""The name of the table."""


@dataclass(frozen=True)
class PieceNats:
    """Nats and tokens of each piece's target, its end included, ``[N]``."""

    nats: NDArray[np.float64]
    tokens: NDArray[np.int64]

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> "PieceNats":
        """Put batches together: each row has the nats of its pieces, and then their tokens."""
        halves = [row.reshape(2, -1) for row in rows]
        nats, tokens = np.concatenate(halves, axis=1)
        return cls(nats, tokens.astype(np.int64))


def _loss(sums: Sums) -> float:
    nats = float(sums["nats"])
    n_tokens = float(sums["tokens"])
    return nats / n_tokens


LOSS_OF_ITEMS = FromItems(PIECES, _loss)


def piece_items(split: Split, pieces: ScoredPieces, nats: PieceNats) -> Items:
    """Return what the target of each piece cost."""
    table = ItemTable(
        unit="a piece of the text: the tokens of its target, sentinels and end included",
        digest=_digest(split, pieces),
        columns={"nats": nats.nats, "tokens": nats.tokens},
        documents=pieces.documents,
    )
    return Items(split.name, split.store.sha256, {PIECES: table})


def _digest(split: Split, pieces: ScoredPieces) -> str:
    rule = pieces.rule
    settings = f"{rule.draw.__name__} {rule.settings.noise_density!r} {rule.settings.mean_span!r}"
    digest = Digest(PIECES, split.store.sha256, settings, str(rule.target_length))
    begins, lengths = pieces.pieces.cuts
    for numbers in (begins, lengths, rule.sentinels):
        digest.add(numbers)
    digest.add(split.ids)
    return digest.hexdigest()
