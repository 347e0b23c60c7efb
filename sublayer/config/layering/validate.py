"""Build a recipe from merged settings, and format pydantic's errors as one line."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from sublayer.config.fields.catalog import TABLES, declaration, declarations, is_union
from sublayer.config.fields.messages import (
    choice_error,
    choices_of,
    is_choice,
    rule_in_words,
    show,
    type_in_words,
)
from sublayer.config.layering.settings import Setting, chosen_kind, where
from sublayer.config.layering.texts import text_problem
from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError


def build(settings: Mapping[str, Setting]) -> Recipe:
    """Build the recipe that the settings describe; fields that no layer set have their defaults.

    Raises ConfigError, in one line with field, value and rule, for the first value that its field
    does not take.
    """
    tables: dict[str, dict[str, Any]] = {}
    kinds = {}
    for table in TABLES:
        tables[table] = {}
        if is_union(table):
            # Pydantic tells the members of a union by it, also where no layer set it.
            kinds[table] = chosen_kind(table, settings)
            tables[table]["kind"] = kinds[table]
    headings = {}
    for key, setting in settings.items():
        _check_texts(key, setting)
        table, _, name = key.rpartition(".")
        if not table:
            headings[name] = setting.value
            continue
        if table in kinds:
            _check_kind(key, kinds[table], setting)
        tables[table][name] = setting.value
    try:
        return Recipe.model_validate({**headings, **tables})
    except ValidationError as error:
        first, *_ = error.errors(include_url=False)
        raise ConfigError(_one_line(first, settings)) from None


def _check_texts(key: str, setting: Setting) -> None:
    value = setting.value
    members = value if isinstance(value, list | tuple | Mapping) else [value]
    for text in members:
        if not isinstance(text, str):
            continue
        problem = text_problem(text)
        if problem:
            raise ConfigError(f"{key} = {show(text)} {problem}{where(setting.origin)}")


def _check_kind(key: str, kind: str, setting: Setting) -> None:
    kinds = declarations(key).keys()
    if kind in kinds:
        return
    table, _, _ = key.partition(".")
    its_kinds = " or ".join(kinds)
    raise ConfigError(
        f"{key} is a field of {table}.kind = {its_kinds}, not of {kind}{where(setting.origin)}"
    )


def _one_line(detail: Mapping[str, Any], settings: Mapping[str, Setting]) -> str:
    key, kind = _field_of(detail["loc"])
    setting = settings[key]
    annotation = declaration(key, kind).annotation
    value = setting.value
    rule = rule_in_words(detail)
    if rule:
        text = f"{key} = {show(value)} {rule}"
    elif is_choice(annotation):
        text = choice_error(key, value, choices_of(annotation))
    else:
        expected = type_in_words(annotation)
        text = f"{key} = {show(value)} is not {expected}"
        if "text" in expected and isinstance(value, int | float):
            text += ": put it in quotes"
    return text + where(setting.origin)


def _field_of(location: Sequence[str | int]) -> tuple[str, str]:
    """Return the field that pydantic's location of an error begins with, and its table's kind."""
    table, *rest = [str(part) for part in location]
    # The location names a union's kind between table and field.
    kind = ""
    if table in TABLES and is_union(table):
        kind, *rest = rest
    key = f"{table}.{rest[0]}" if rest else table
    return key, kind
