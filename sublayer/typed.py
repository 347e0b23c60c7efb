"""JSON that the program wrote and reads back: every value is of the type that it was written with, or is refused."""

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sublayer.errors import SublayerError
from sublayer.parsing import read_json

Count = Annotated[int, Field(ge=0, lt=2**63)]
"""Steps, tokens, bytes."""
Number = Annotated[float, Field(ge=-1e40, le=1e40)]
"""What is measured, in float32 at most: a sum of many of them is finite too."""


class Typed(BaseModel):
    """Content of a file: nothing is converted but whole numbers to floating-point ones."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, extra="ignore")


Content = TypeVar("Content")


def read_typed(path: Path, kind: type[Content], error: type[SublayerError]) -> Content:
    """Read a JSON file as the type that it was written from.

    Raises FileNotFoundError where there is none, else ``error`` with the file and, within it, the place.
    """
    return check_typed(read_json(path, error), kind, str(path), error)


def check_typed(content: Any, kind: type[Content], name: str, error: type[SublayerError]) -> Content:
    """Check what was read against a type; ``name`` says in errors whose it is."""
    try:
        checked: Content = TypeAdapter(kind).validate_python(content, strict=True)
    except ValidationError as problem:
        detail = problem.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in detail["loc"])[:80]
        says = detail["msg"][:1].lower() + detail["msg"][1:]
        raise error(f"{name} is damaged: {place + ': ' if place else ''}{says}") from None
    return checked
