"""The base of every table of a recipe, and the declaration of a field."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sublayer.config.limits import (
    LARGEST_FACTOR,
    LARGEST_RATE,
    LONGEST_WINDOW,
    MOST_BATCH_TOKENS,
    MOST_LAYERS,
    MOST_STEPS,
    MOST_WINDOWS,
    WIDEST,
)

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
    """One table of a recipe: frozen, strict, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def field(
    default: Any,
    description: str,
    *,
    unit: str | None = None,
    needs: Mapping[str, tuple[Any, ...]] | None = None,
    when: tuple[str, ...] = (),
    derived: str | None = None,
    **constraints: Any,
) -> Any:
    """Declare a field of a table.

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
    return Field(default, description=description, json_schema_extra=extra, **constraints)


def checked_by(check: Callable[[Any], object]) -> AfterValidator:
    """Return the validator of a field whose values ``check`` refuses, by a ConfigError."""

    def validated(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(validated)
