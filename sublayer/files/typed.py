"""Typed parsing of JSON that the program wrote: a value of another type is refused."""

import json
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sublayer.errors import SublayerError
from sublayer.files.parsing import read_json

Count = Annotated[int, Field(ge=0, lt=2**63)]
"""Steps, tokens, bytes."""
Number = Annotated[float, Field(ge=-1e40, le=1e40)]
"""A measured number within float32, so that a sum of many is finite too."""


class Typed(BaseModel):
    """Content of a file: nothing is converted but whole numbers to floating-point ones."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, extra="ignore")


Content = TypeVar("Content")


def read_typed(path: Path, kind: type[Content], error: type[SublayerError]) -> Content:
    """Read a JSON file as the type that it was written from.

    Raises FileNotFoundError where there is none, else ``error`` with the file and, within it, the
    place.
    """
    return check_typed(read_json(path, error), kind, str(path), error)


def check_typed(
    content: Any,
    kind: type[Content],
    name: str,
    error: type[SublayerError],
    *,
    has_tuples: bool = False,
) -> Content:
    """Check what was read against a type; ``name`` says in errors whose it is.

    ``has_tuples`` takes lists, which JSON alone has, for the tuples of the type.

    Raises ``error`` with the place, within the content, of the first value that does not fit.
    """
    adapter = TypeAdapter(kind)
    try:
        if has_tuples:
            return adapter.validate_json(json.dumps(content), strict=True)
        checked: Content = adapter.validate_python(content, strict=True)
    except ValidationError as problem:
        details = problem.errors(include_url=False, include_input=False, include_context=False)
        first = details[0]
        keys = ".".join(map(str, first["loc"]))
        shortened = keys[:80]
        where = f"{shortened}: " if keys else ""
        # Pydantic's messages begin with a capital; here they end a sentence.
        message = first["msg"]
        why = message[:1].lower() + message[1:]
        raise error(f"{name} is damaged: {where}{why}") from None
    return checked
