"""Base class of a recipe's tables, declaration of fields, quantities and their limits.

Each limit is far above any real training, but low enough that no sum or product of allowed values
overflows: counts of bytes and operations remain machine numbers. The memory of the machine is
checked separately, before anything is allocated.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MOST_LAYERS = 1000
"""Maximum number of blocks of a stack; the deepest published stack has 1,000."""
MOST_HEADS = 100_000
MOST_LABELS = 100_000
WIDEST = 1_000_000
"""Maximum width of a residual stream, a head or an embedding."""
WIDEST_FFN = 10_000_000
LARGEST_VOCABULARY = 100_000_000
LARGEST_TRAINED_VOCABULARY = 2_000_000
MOST_SENTINELS = 100_000
"""Maximum number of sentinels; published vocabularies have 100 to 300."""
MOST_BUCKETS = 1024
"""Maximum distance that relative positions distinguish."""
LONGEST_WINDOW = 100_000_000
"""Maximum number of tokens of a window."""
MOST_WINDOWS = 1_000_000_000
"""Maximum number of windows of a batch."""
MOST_BATCH_TOKENS = 1_000_000_000_000
MOST_STEPS = 1_000_000_000_000
MOST_TOKENS = 1e18
LARGEST_SEED = 2**63 - 1
"""Largest seed of a random number generator."""
MOST_THREADS = 1024
LARGEST_FACTOR = 1e6
"""Largest factor, such as a weight or a standard deviation."""
LARGEST_RATE = 1e38
"""Largest learning rate, within float32; a rate that makes training diverge is reported then."""
MOST_ENTRIES = 100
"""Maximum number of sub-layers of a block."""
WIDEST_BEAM = 1000
LARGEST_PENALTY = 10.0
"""Largest exponent of the length of a translation."""
MOST_ROWS = 1_000_000
"""Maximum number of lines, windows or continuations that a command computes at a time."""
LONGEST_TEXT = 65_536
"""Maximum number of characters of a setting."""
MOST_SEEDS = 1000
"""Maximum number of runs of an arm."""
MOST_JOBS = 1024
"""Maximum number of runs at a time."""
MOST_ARMS = 500
"""Maximum number of recipes of a comparison, and of settings tried in each."""
MOST_FINETUNINGS = 1000
"""Maximum number of fine-tunings of a stage per pre-training, and distance of the seeds of two."""


def text_problem(text: str) -> str | None:
    """Describe the fault of a text, whatever its field; None for a valid text."""
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
Factors = Annotated[tuple[Factor, Factor, Factor], Field(strict=False)]
"""Types of TOML arrays, which are converted from lists to tuples, and of bounded numbers."""

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
RotaryBase = Annotated[Number, Field(gt=1.0, le=1e12)]
Rate = Annotated[Number, Field(gt=0.0, le=LARGEST_RATE)]
NormLimit = Annotated[Number, Field(ge=0.0, le=1e30)]
"""Types of quantities: ``int`` or ``float``, optionally None, with a unit and a range."""


class Table(BaseModel):
    """Table of a recipe: frozen, strict, and closed to unknown keys.

    Its validator is built at the first use, since most optimizers' validators are never used.
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
    """Declare a field of a table with more properties than its default.

    ``unit`` is the unit of a number. ``needs`` maps a sibling field to the values with which this
    field has an effect, ``when`` names further conditions, of ``CONDITIONS`` in ``rules.py``; to
    set the field otherwise is a ConfigError. ``derived`` describes the value of an unset field.
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


def name_in(table: Mapping[str, Any]) -> Any:
    """Return the type of a name in a table, to which plugins may add rows."""

    def known(value: str) -> str:
        if value not in table:
            raise ValueError(f"is not one of {', '.join(table)}")
        return value

    class Name(str):
        """A text with its ``choices``, as ``Literal`` has them."""

        choices = table

        @classmethod
        def __get_pydantic_core_schema__(cls, _: Any, handler: Any) -> Any:
            return handler.generate_schema(Annotated[str, AfterValidator(known)])

        @classmethod
        def __get_pydantic_json_schema__(cls, *_: Any) -> dict[str, Any]:
            return {"enum": [*table], "type": "string"}

    return Name


def checked_by(check: Callable[[Any], object]) -> AfterValidator:
    """Return the validator of a field whose values ``check`` rejects by a ConfigError."""

    def validated(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(validated)
