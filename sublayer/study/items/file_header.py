"""The header of the file of a study's items."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from sublayer.evaluation.items import Items
from sublayer.files.typed import Count, Number, Typed
from sublayer.runs.items import Sha256

STUDY_ITEMS = "items.safetensors.xz"
VERSION = 1


@dataclass(frozen=True)
class RunItems:
    """The items of one run."""

    arm: str
    seed: int
    items: Items
    added: Mapping[str, int]
    """How many items were added together at a time, for each table; 1 where each is itself."""


class RunHeader(Typed):
    """A run: whose it is, and the text that it was tested on."""

    arm: str
    seed: Count
    split: str
    sha256: str


class GroupHeader(Typed):
    """A table of the runs that scored the same items."""

    table: str
    unit: str
    digest: Sha256
    """Of what was scored."""
    runs: Annotated[list[Count], Field(min_length=1)]
    """Indices into the header's runs, in the order of the rows of columns."""
    n_items: Count
    """Those of each run before any were added together."""
    added: Annotated[Count, Field(ge=1)]
    """How many were added together at a time."""
    across_documents: bool
    """Whether items of several documents were."""
    columns: Annotated[list[str], Field(min_length=1)]
    steps: dict[str, Number]
    """Columns that are stored as counts of a step, and that step."""
    shared: list[str]
    """Columns that are the same in all runs, and stored once."""
    has_documents: bool
    """Whether a further array says which document each item is of."""


class StudyHeader(Typed):
    """The header of the file; ``missing`` names the runs that kept no items."""

    version: int
    study: str
    metrics: dict[str, str]
    runs: list[RunHeader]
    missing: list[str]
    groups: list[GroupHeader]
