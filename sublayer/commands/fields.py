"""``sublayer fields``: every field that a recipe may set."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from sublayer.commands.shared import candidates
from sublayer.commands.shared.base import JsonObject, JsonOption, emit
from sublayer.config.catalog import TABLES
from sublayer.config.listing import field_rows, find_fields, json_schema
from sublayer.config.messages import show
from sublayer.errors import ConfigError
from sublayer.system.terminal import paragraph

EXAMPLE = "sublayer fields d_ff"


def command(
    asked: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|WORD",
            autocompletion=candidates.fields,
            help=f"A field (d_ff, model.d_ff), a table ({', '.join(TABLES)}), or a word to look "
            "for in names, choices and descriptions; without it, all are listed.",
        ),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a recipe file, for editors.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the fields that a recipe may set: type, unit, default, when it counts, and which recipes
    set it.

    On the command line a field is set as TABLE.FIELD=VALUE.
    """
    if schema:
        if asked is not None:
            raise ConfigError(f"--schema is of all fields: leave out {show(asked)}")
        emit(json_schema(), as_json, lambda result: json.dumps(result, indent=2))
    else:
        rows = field_rows() if asked is None else find_fields(asked)
        emit({"fields": [asdict(row) for row in rows]}, as_json, _render)


def _render(result: JsonObject) -> str:
    return "\n\n".join(_render_field(field) for field in result["fields"])


def _render_field(field: JsonObject) -> str:
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
    fact_lines = paragraph("; ".join(facts), indent="    ")
    note_lines = paragraph(" ".join(notes), indent="    ")
    return f"{name}\n{fact_lines}\n{note_lines}"
