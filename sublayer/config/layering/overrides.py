"""Read a layer from ``key=value`` texts, as a command line has them."""

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sublayer.config.fields.messages import show
from sublayer.config.layering.settings import Layer
from sublayer.config.limits import LONGEST_TEXT
from sublayer.errors import ConfigError
from sublayer.files import parsing
from sublayer.values import is_frame, plain


def override_layer(overrides: Sequence[str] | Mapping[str, Any], origin: str) -> Layer:
    """Build a layer from ``key=value`` texts or from a mapping of values.

    The value of a text is TOML, else a bare text. Raises ConfigError for a text without
    ``=`` and for a key given twice.
    """
    if isinstance(overrides, str) or not isinstance(overrides, Iterable):
        raise ConfigError(
            f"settings are given as {show(overrides)}: give a mapping, such as "
            '{"train.steps": 100}, or a list of texts, such as ["train.steps=100"]'
        )
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            if not isinstance(key, str):
                raise ConfigError(f"{show(key)} is {type(key).__name__}: name a field, as text")
            if isinstance(value, set | frozenset):
                raise ConfigError(f"{key} is a set, which has no order: give a list")
            if is_frame(value):
                raise ConfigError(
                    f"{key} is a {type(value).__name__}: write it to a file, as by to_csv, and "
                    "name that"
                )
        return Layer(origin, {key: plain(value) for key, value in overrides.items()})
    values: dict[str, Any] = {}
    for text in overrides:
        if isinstance(text, Unset):
            values[str(text).partition("=")[0]] = None
            continue
        if not isinstance(text, str):
            raise ConfigError(f"{show(text)} is not a setting: write it as text, key=value")
        written_key, equals, written_value = text.partition("=")
        key = written_key.strip()
        if not equals or not key:
            raise ConfigError(
                f"{show(text)} is not a setting: write key=value, such as model.d_ff=512"
            )
        value = _parse_value(written_value)
        if key in values:
            raise ConfigError(f"{key} is given twice: {show(values[key])} and {show(value)}")
        values[key] = value
    return Layer(origin, values)


class Unset(str):
    """The text of a setting, ``key=unset``, whose value is None, which no text says."""


def as_setting(value: Any) -> str:
    """Write a value as the text after ``key=`` that ``override_layer`` reads as it."""
    value = plain(value)
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=True)
    except TypeError:
        kind = type(value).__name__
        raise ConfigError(f"{show(value)} is {kind}, which no field takes") from None


def _parse_value(text: str) -> Any:
    if len(text) > LONGEST_TEXT:
        return text
    value = parsing.parse_toml_value(text)
    # No field takes a date or a time, so such a text is a name.
    if isinstance(value, datetime.date | datetime.time):
        return text
    return value
