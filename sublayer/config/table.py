"""The base of every table of a recipe, the declaration of a field, quantities and their limits.

Each limit is far above what anyone trains, and low enough that no sum or product of the values
that they allow overflows: a count of bytes or operations stays a number of the machine. Whether a
machine can hold these values is another question, asked before anything is allocated.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MOST_LAYERS = 1000
"""Blocks of a stack; the deepest published has 1,000."""
MOST_HEADS = 100_000
MOST_LABELS = 100_000
WIDEST = 1_000_000
"""Features of a residual stream, a head or an embedding."""
WIDEST_FFN = 10_000_000
LARGEST_VOCABULARY = 100_000_000
LARGEST_TRAINED_VOCABULARY = 2_000_000
MOST_SENTINELS = 100_000
"""Gaps of a text, each with an id of its own; the published vocabularies have 100 to 300."""
MOST_BUCKETS = 1024
"""Distances that positions tell apart."""
LONGEST_WINDOW = 100_000_000
"""Tokens of a window."""
MOST_WINDOWS = 1_000_000_000
"""Windows of a batch."""
MOST_BATCH_TOKENS = 1_000_000_000_000
MOST_STEPS = 1_000_000_000_000
MOST_TOKENS = 1e18
LARGEST_SEED = 2**63 - 1
"""Largest seed of a generator of random numbers."""
MOST_THREADS = 1024
LARGEST_FACTOR = 1e6
"""A weight, a standard deviation: what numbers are multiplied with."""
LARGEST_RATE = 1e38
"""A learning rate that float32 holds: one that ruins a training ends it with what to do."""
MOST_ENTRIES = 100
"""Sub-layers of a block."""
WIDEST_BEAM = 1000
LARGEST_PENALTY = 10.0
"""Exponent of a translation's length."""
MOST_ROWS = 1_000_000
"""Lines, windows or continuations that a command computes at a time."""
LONGEST_TEXT = 65_536
"""Characters of a setting."""
MOST_SEEDS = 1000
"""Runs of an arm."""
MOST_JOBS = 1024
"""Runs at a time."""
MOST_ARMS = 500
"""Recipes that a comparison compares, and settings that it tries in each."""
MOST_FINETUNINGS = 1000
"""Of a stage of tasks under one pre-training; seeds of two pre-trainings are so far apart."""


def text_problem(text: str) -> str | None:
    """Return the fault of a text as such, in words; None for an ordinary one."""
    if len(text) > LONGEST_TEXT:
        return f"has {len(text):,} characters: give at most {LONGEST_TEXT:,}"
    if "\0" in text:
        return "contains a null character: leave it out"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "is not valid UTF-8: write the text, or rename the file, in valid UTF-8"
    return None


List = Annotated[tuple[str, ...], Field(strict=False)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Factor = Annotated[float, Field(ge=-LARGEST_FACTOR, le=LARGEST_FACTOR)]
Steps = Annotated[tuple[Annotated[int, Field(ge=1, le=MOST_STEPS)], ...], Field(strict=False)]
SharePair = Annotated[tuple[Share, Share], Field(strict=False)]
"""TOML arrays, which arrive as lists and are kept as tuples, and bounded numbers."""

Number = TypeVar("Number")


def _of(unit: str, **constraints: Any) -> Any:
    return Field(json_schema_extra={"unit": unit}, **constraints)


Blocks = Annotated[Number, _of("blocks", ge=1, le=MOST_LAYERS)]
Features = Annotated[Number, _of("features", ge=1, le=WIDEST)]
Tokens = Annotated[Number, _of("tokens", ge=1, le=LONGEST_WINDOW)]
WindowTokens = Annotated[Number, _of("tokens", ge=2, le=LONGEST_WINDOW)]
BatchTokens = Annotated[Number, _of("tokens", ge=1, le=MOST_BATCH_TOKENS)]
Windows = Annotated[Number, _of("windows", ge=1, le=MOST_WINDOWS)]
Interval = Annotated[Number, _of("steps", ge=1, le=MOST_STEPS)]
Dropout = Annotated[Number, _of("probability", ge=0.0, lt=1.0)]
Probability = Annotated[Number, _of("probability", ge=0.0, le=1.0)]
RunShare = Annotated[Number, _of("share", ge=0.0, le=1.0)]
Fraction = Annotated[Number, Field(gt=0.0, le=1.0)]
Weight = Annotated[Number, Field(ge=0.0, le=LARGEST_FACTOR)]
Scale = Annotated[Number, Field(gt=0.0, le=LARGEST_FACTOR)]
Rate = Annotated[Number, Field(gt=0.0, le=LARGEST_RATE)]
NormLimit = Annotated[Number, Field(ge=0.0, le=1e30)]
"""Quantities: ``int`` or ``float``, or None beside it, with a unit and a range."""


class Table(BaseModel):
    """One table of a recipe: frozen, strict, and closed to unknown keys.

    Its validator is built when it is first used: that of an optimizer alone seldom is.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )


def field(
    default: Any,
    *,
    unit: str | None = None,
    needs: Mapping[str, tuple[Any, ...]] | None = None,
    when: tuple[str, ...] = (),
    derived: str | None = None,
    **constraints: Any,
) -> Any:
    """Declare a field of a table, of which more is to be said than its default.

    ``unit`` names what a number counts. ``needs`` maps a sibling field to the values under which
    this field has an effect, ``when`` names further conditions, of ``CONDITIONS`` in ``rules.py``;
    setting it elsewhere is a ConfigError. ``derived`` names in words the value of an unset field.
    ``constraints`` are pydantic's (``ge``, ``gt``, ``lt`` ...).
    """
    extra: dict[str, Any] = {}
    if unit is not None:
        extra["unit"] = unit
    if needs:
        extra["needs"] = {name: list(values) for name, values in needs.items()}
    if when:
        extra["when"] = list(when)
    if derived is not None:
        extra["derived"] = derived
    return Field(default, json_schema_extra=extra, **constraints)


def checked_by(check: Callable[[Any], object]) -> AfterValidator:
    """Return the validator of a field whose values ``check`` refuses, by a ConfigError."""

    def validated(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(validated)
