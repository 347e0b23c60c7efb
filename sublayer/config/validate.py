"""From merged settings to a recipe, and from pydantic's errors to one line."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sublayer.config.catalog import TABLES, declaration, declarations, is_union
from sublayer.config.recipe import Recipe
from sublayer.config.settings import Setting, chosen_kind, where
from sublayer.config.texts import text_problem
from sublayer.config.wording import choice_error, choices_of, rule_in_words, show, type_in_words
from sublayer.errors import ConfigError


def build(settings: Mapping[str, Setting]) -> Recipe:
    """Make the recipe that the settings describe; fields that no layer set have their defaults.

    Raises ConfigError, in one line with field, value and rule, for the first value that its field does not take.
    """
    tables: dict[str, Any] = {table: {} for table in TABLES}
    for table in filter(is_union, TABLES):
        tables[table]["kind"] = chosen_kind(table, settings)
    for key, setting in settings.items():
        table, _, name = key.rpartition(".")
        _check_texts(key, setting)
        if table and is_union(table) and tables[table]["kind"] not in declarations(key):
            raise ConfigError(_of_another_kind(key, tables[table]["kind"]) + where(setting.origin))
        (tables[table] if table else tables)[name] = setting.value
    try:
        return Recipe.model_validate(tables)
    except ValidationError as error:
        raise ConfigError(_one_line(error.errors(include_url=False)[0], settings)) from None


def _check_texts(key: str, setting: Setting) -> None:
    value = setting.value
    texts = value if isinstance(value, list | tuple | Mapping) else [value]
    for text in texts:
        problem = text_problem(text) if isinstance(text, str) else None
        if problem:
            raise ConfigError(f"{key} = {show(text)} {problem}{where(setting.origin)}")


def _of_another_kind(key: str, kind: str) -> str:
    table = key.partition(".")[0]
    return f"{key} is a field of {table}.kind = {' or '.join(declarations(key))}, not of {kind}"


def _one_line(detail: Mapping[str, Any], settings: Mapping[str, Setting]) -> str:
    table, *rest = [str(part) for part in detail["loc"]]
    kind = ""
    if table in TABLES and len(TABLES[table]) > 1:
        kind, *rest = rest
    key = f"{table}.{rest[0]}" if rest else table
    setting, annotation = settings[key], declaration(key, kind).annotation
    value = setting.value
    rule = rule_in_words(detail)
    if choices_of(annotation):
        text = choice_error(key, value, choices_of(annotation))
    elif rule:
        text = f"{key} = {show(value)} {rule}"
    else:
        text = f"{key} = {show(value)} is not {type_in_words(annotation)}"
        if "text" in type_in_words(annotation) and isinstance(value, int | float):
            text += ": put it in quotes"
    return text + where(setting.origin)
