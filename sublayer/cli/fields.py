"""``sublayer fields``: every field that a recipe may set."""

import json
from dataclasses import asdict
from typing import Annotated

from sublayer.cli.build import Json, JsonObject, client_of, emit
from sublayer.config.catalog import TABLES
from sublayer.config.listing import field_rows, find_fields, json_schema
from sublayer.config.messages import show
from sublayer.errors import ConfigError
from sublayer.options import Argument, Option
from sublayer.system.terminal import paragraph

EXAMPLE = "sublayer fields d_ff"

Name = Annotated[
    str | None,
    Argument(
        f"A field (d_ff, model.d_ff), a table ({', '.join(TABLES)}), or a word to look "
        "for in names, choices and descriptions; without it, all are listed.",
        metavar="NAME|WORD",
        complete="fields",
    ),
]


@client_of()
def command(
    name: Name = None,
    schema: Annotated[bool, Option("Print the JSON Schema of a recipe file, for editors.")] = False,
    as_json: Json = False,
) -> None:
    """List the fields that a recipe may set: type, unit, default, when it counts, and which recipes
    set it.

    On the command line a field is set as TABLE.FIELD=VALUE.
    """
    if schema:
        if name is not None:
            raise ConfigError(f"--schema is of all fields: leave out {show(name)}")
        emit(json_schema(), as_json, lambda result: json.dumps(result, indent=2))
        return
    rows = field_rows() if name is None else find_fields(name)
    fields = [asdict(row) for row in rows]
    emit({"fields": fields}, as_json, lambda _: "\n\n".join(map(_render, fields)))


def _render(field: JsonObject) -> str:
    facts = [field["type"]]
    if field["unit"]:
        facts.append(f"in {field['unit']}")
    default = field["default"]
    if default != "unset":
        facts.append(default if default.startswith("derived") else f"default {default}")
    notes = [field["description"]]
    if field["used_when"]:
        notes.append(f"Counts where {field['used_when']}.")
    if field["set_by"] and field["table"]:
        notes.append(f"Set by {', '.join(field['set_by'])}.")
    name = ".".join(filter(None, (field["table"], field["name"])))
    indented = (paragraph(text, indent="    ") for text in ("; ".join(facts), " ".join(notes)))
    return "\n".join([name, *indented])
