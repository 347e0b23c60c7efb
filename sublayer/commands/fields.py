"""``sublayer fields``: every field that a recipe may set."""

import json
import shutil
import textwrap
from dataclasses import asdict
from typing import Annotated

import typer

from sublayer.commands.shared.base import JsonObject, JsonOption, emit
from sublayer.config.fields.catalog import TABLES
from sublayer.config.fields.listing import field_rows, json_schema
from sublayer.config.fields.messages import choice_error
from sublayer.errors import ConfigError

EXAMPLE = "sublayer fields model"


def command(
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help=f"One of {', '.join(TABLES)}; none lists all."),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a recipe file, for editors.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List every field that a recipe may set: type, unit, default, when it counts, and which
    recipes set it.

    On the command line a field is set as TABLE.FIELD=VALUE.
    """
    if table is not None and table not in TABLES:
        raise ConfigError(choice_error("TABLE", table, TABLES))
    if schema:
        emit(json_schema(), as_json, lambda result: json.dumps(result, indent=2))
    else:
        rows = [asdict(row) for row in field_rows(table)]
        emit({"fields": rows}, as_json, _render)


def _render(result: JsonObject) -> str:
    width = max(40, min(shutil.get_terminal_size().columns, 120))
    return "\n\n".join(_render_field(field, width) for field in result["fields"])


def _render_field(field: JsonObject, width: int) -> str:
    facts = [field["type"]]
    if field["unit"]:
        facts.append(f"in {field['unit']}")
    default = field["default"]
    if default.startswith("derived"):
        facts.append(default)
    elif default != "unset":
        facts.append(f"default {default}")
    notes = [field["description"]]
    if field["used_when"]:
        notes.append(f"Counts where {field['used_when']}.")
    if field["set_by"] and field["table"]:
        recipes = ", ".join(field["set_by"])
        notes.append(f"Set by {recipes}.")
    name = field["name"]
    if field["table"]:
        name = f"{field['table']}.{name}"
    wrapper = textwrap.TextWrapper(
        width, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
    )
    fact_lines = wrapper.fill("; ".join(facts))
    note_lines = wrapper.fill(" ".join(notes))
    return f"{name}\n{fact_lines}\n{note_lines}"
