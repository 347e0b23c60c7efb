"""Parsing of untrusted JSON and TOML, limited in size, depth and digits.

Errors: duplicate keys, text that is not Unicode (lone surrogates), numbers that are not finite or
have more digits than any field needs. The error class is the caller's; its line names the file and
the place in it.
"""

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sublayer.errors import DataError, SublayerError
from sublayer.files.storage import open_file

MAX_BYTES = 16 << 20
"""Maximum size of a file, unless its reader passes another."""
MAX_DEPTH = 64
"""Maximum nesting of objects and lists."""
MAX_DIGITS = 40
"""Maximum number of digits of an integer; a double has 17."""

_MAX_BITS = (10**MAX_DIGITS).bit_length()
_MAX_KEY_PARTS = 32
# tomllib takes time quadratic in the parts of a dotted key.
_LONG_KEY = re.compile(rf"""(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_MAX_KEY_PARTS}}}""")
_SHOWN = 60


def read_json(path: Path, error: type[SublayerError], *, max_bytes: int = MAX_BYTES) -> Any:
    """Read a JSON file within this module's limits.

    Raises FileNotFoundError without a file; ``error``, with the file's name, where it cannot be
    read, is larger than ``max_bytes`` or is not valid JSON.
    """
    return parse_json(read_bytes(path, error, max_bytes=max_bytes), str(path), error)


def read_json_object(
    path: Path, error: type[SublayerError], *, max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises as ``read_json`` does, and ``error`` for anything else.
    """
    content = read_json(path, error, max_bytes=max_bytes)
    if not isinstance(content, dict):
        raise error(f"{path} is not a JSON object")
    return content


def read_toml(
    path: Path, error: type[SublayerError], *, max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """Read a TOML file within this module's limits.

    Raises FileNotFoundError without a file; ``error``, with the file's name, where it cannot be
    read, is larger than ``max_bytes`` or is not valid TOML.
    """
    return parse_toml(read_bytes(path, error, max_bytes=max_bytes), str(path), error)


def read_bytes(path: Path, error: type[SublayerError], *, max_bytes: int) -> bytes:
    """Read a file of at most ``max_bytes``.

    Raises FileNotFoundError without a file; ``error``, with the file's name, where it is larger,
    cannot be read, or is a pipe or a device.
    """
    try:
        with open_file(path) as file:
            data = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror or problem}") from None
    if len(data) > max_bytes:
        raise error(f"{path} is larger than the maximum of {max_bytes:,} bytes")
    return data


def parse_json(data: bytes | str, name: str, error: type[SublayerError]) -> Any:
    """Parse JSON within this module's limits; errors begin with ``name``.

    Raises ``error`` for invalid JSON, and for the cases of the module's docstring.
    """
    text = _decode(data, name, error)

    def refuse(why: str) -> NoReturn:
        raise error(f"{name} {why}")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated, _ = counts.most_common(1)[0]
            refuse(f"has the key {_shorten(repeated)} twice in one object")
        return content

    try:
        content = json.loads(
            text,
            object_pairs_hook=unique,
            parse_int=lambda digits: _whole(digits, refuse),
            parse_constant=lambda word: refuse(f"holds {word}, which is not valid in JSON"),
        )
    except json.JSONDecodeError as problem:
        refuse(f"is not JSON: {problem}")
    except RecursionError:
        refuse(f"is nested more than {MAX_DEPTH} deep")
    _check(content, name, error)
    return content


def parse_toml(data: bytes | str, name: str, error: type[SublayerError]) -> dict[str, Any]:
    """Parse TOML within this module's limits; errors begin with ``name``.

    Raises ``error`` for invalid TOML, with the line of a syntax error.
    """
    text = _decode(data, name, error)
    try:
        return _load_toml(text, name, error)
    except tomllib.TOMLDecodeError as problem:
        raise error(f"{name} is not TOML: {problem}") from None


def parse_toml_value(text: str) -> Any:
    """Parse a setting's value; text that is not valid TOML is returned unchanged.

    Text beyond this module's limits is returned unchanged, too. Numbers that are not finite are
    returned, so that the field reports them.
    """
    try:
        content = _load_toml(f"value = {text}", "", DataError)
    except (tomllib.TOMLDecodeError, DataError):
        # A number that is not finite is returned, so that the error can name it.
        if text in ("inf", "+inf", "-inf", "nan", "+nan", "-nan"):
            return float(text)
        return text
    if len(content) > 1:  # the text has a line break and a second key
        return text
    return content["value"]


def _load_toml(text: str, name: str, error: type[SublayerError]) -> dict[str, Any]:
    if _LONG_KEY.search(text):
        raise error(f"{name} has a key of more than {_MAX_KEY_PARTS} parts")
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise error(f"{name} is nested more than {MAX_DEPTH} deep") from None
    except ValueError:  # Python rejects thousands of digits, and invalid dates
        raise error(
            f"{name} holds a number of more than {MAX_DIGITS} digits, or an invalid date"
        ) from None
    _check(content, name, error)
    return content


def _decode(data: bytes | str, name: str, error: type[SublayerError]) -> str:
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(f"{name} is not UTF-8 text (byte {problem.start})") from None


def _whole(digits: str, refuse: Callable[[str], NoReturn]) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        refuse(f"holds a number of {len(digits):,} digits, {_shorten(digits)}")
    return int(digits)


def _check(content: Any, name: str, error: type[SublayerError]) -> None:
    """Raise ``error`` where values are nested too deep, not finite, too long or not Unicode."""
    # Breadth first, with the path of keys: recursion would be as deep as a malicious file.
    level: list[tuple[str, Any]] = [("", content)]
    for _ in range(MAX_DEPTH + 1):
        next_level: list[tuple[str, Any]] = []
        for keys, value in level:
            if isinstance(value, dict):
                for key, inner in value.items():
                    _check_value(keys, key, name, error)
                    # Truncated, so that long keys cannot fill the memory.
                    next_level.append((f"{keys}.{key}"[:_SHOWN], inner))
            elif isinstance(value, list):
                next_level.extend((keys, inner) for inner in value)
            else:
                _check_value(keys, value, name, error)
        if not next_level:
            return
        level = next_level
    raise error(f"{name} is nested more than {MAX_DEPTH} deep")


def _check_value(keys: str, value: Any, name: str, error: type[SublayerError]) -> None:
    why = None
    if isinstance(value, str):
        if not value.isascii() and value.encode(errors="ignore").decode() != value:
            why = "is not Unicode text (a lone surrogate)"
    elif isinstance(value, float) and not math.isfinite(value):
        why = f"is {value}, which is not finite"
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        why = f"is a number of more than {MAX_DIGITS} digits"
    if why is not None:
        raise error(f"{name}: {_shorten(keys.lstrip('.') or 'a value')} {why}")


def _shorten(text: str) -> str:
    if not text.isprintable():
        text = text.encode("ascii", "backslashreplace").decode()
    if len(text) <= _SHOWN:
        return text
    return f"{text[: _SHOWN - 4]} ..."


Count = Annotated[int, Field(ge=0, lt=2**63)]
"""Count of steps, tokens or bytes."""
Number = Annotated[float, Field(ge=-1e40, le=1e40)]
"""Measured number within the range of float32, so that sums of many remain finite."""


class Typed(BaseModel):
    """Typed content of a file; the only conversion is from integers to floating-point numbers."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, extra="ignore")


Content = TypeVar("Content")


def read_typed(path: Path, kind: type[Content], error: type[SublayerError]) -> Content:
    """Read a JSON file as a type.

    Raises FileNotFoundError without a file; otherwise ``error`` with the file and the place in it.
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
    """Check parsed content against a type; errors begin with ``name``.

    ``has_tuples`` accepts JSON lists as tuples.

    Raises ``error`` with the place of the first invalid value.
    """
    adapter = TypeAdapter(kind)
    try:
        if has_tuples:
            return adapter.validate_json(json.dumps(content), strict=True)
        checked: Content = adapter.validate_python(content, strict=True)
    except ValidationError as problem:
        first, *_ = problem.errors(include_url=False, include_input=False, include_context=False)
        keys, message = ".".join(map(str, first["loc"])), first["msg"]
        where = f"{keys[:80]}: " if keys else ""
        # Pydantic's messages begin with a capital letter, but here they end a sentence.
        why = message[:1].lower() + message[1:]
        raise error(f"{name} is damaged: {where}{why}") from None
    return checked
