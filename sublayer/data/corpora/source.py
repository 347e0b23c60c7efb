"""A text with its documents, to be split or as its publishers split it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sublayer.data.text.files import Document
from sublayer.data.text.splitting import SplitName


@dataclass(frozen=True)
class Source:
    """A text of its own: documents to be split, or the splits that its publishers made."""

    name: str
    documents: Sequence[Document] = ()
    """Those to be split; empty where there are ``published`` splits."""
    published: Mapping[SplitName, Sequence[Document]] = field(default_factory=dict)
    """The publishers' splits; empty where they made none."""
    weight: float | None = None
    """How often training draws from it, in proportion to other sources; None: by its size."""
