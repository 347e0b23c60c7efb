"""``sublayer fields``: every field that a recipe may set."""

import json
import shutil
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from sublayer.commands.base import JsonOption, emit
from sublayer.config.catalog import TABLES
from sublayer.config.fields import field_rows, json_schema
from sublayer.config.wording import choice_error
from sublayer.errors import ConfigError

EXAMPLE = "sublayer fields model"


def command(
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help=f"One of {', '.join(TABLES)}; none lists all.")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a recipe file, for editors.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List every field that a recipe may set: type, unit, default, when it counts, and which recipes set it.

    On the command line a field is set as TABLE.FIELD=VALUE.
    """
    if table is not None and table not in TABLES:
        raise ConfigError(choice_error("TABLE", table, TABLES))
    if schema:
        emit(json_schema(), as_json, lambda result: json.dumps(result, indent=2))
    else:
        emit({"fields": [asdict(row) for row in field_rows(table)]}, as_json, _render)


def _render(result: Mapping[str, Any]) -> str:
    width = max(40, min(shutil.get_terminal_size().columns, 120))
    return "\n\n".join(_render_field(field, width) for field in result["fields"])


def _render_field(field: Mapping[str, Any], width: int) -> str:
    facts = [field["type"]]
    if field["unit"]:
        facts.append(f"in {field['unit']}")
    if field["default"] != "unset":
        facts.append(field["default"] if field["default"].startswith("derived") else f"default {field['default']}")
    notes = [f"{field['description']}"]
    if field["used_when"]:
        notes.append(f"Counts where {field['used_when']}.")
    if field["set_by"] and field["table"]:
        notes.append(f"Set by {', '.join(field['set_by'])}.")
    fill = textwrap.TextWrapper(width, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False).fill
    return "\n".join(
        [".".join(filter(None, (field["table"], field["name"]))), fill("; ".join(facts)), fill(" ".join(notes))]
    )
