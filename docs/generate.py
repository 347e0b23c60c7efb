"""Write the reference pages that follow from the program: every field, every command's help.

They are generated before each build of the documentation and not kept: ``python docs/generate.py``.
"""

import contextlib
import io
import os
from pathlib import Path

from sublayer import cli
from sublayer.config.fields.catalog import TABLES
from sublayer.config.fields.listing import FieldRow, field_rows

REFERENCE = Path(__file__).parent / "reference"

_TABLES = {
    "": "The head of a recipe file",
    "model": "What is computed",
    "data": "What it is computed on",
    "objective": "What the model is trained to do",
    "optimizer": "How weights change",
    "train": "How long, in what batches, what is kept",
    "init": "What training starts from",
}


def write_reference(folder: Path = REFERENCE) -> None:
    """Write ``fields.md`` and ``commands.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fields.md").write_text(fields_page(), encoding="utf-8")
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")


def fields_page() -> str:
    """Lay out what ``sublayer fields`` prints, table by table."""
    lines = [
        "# Fields",
        "",
        "Every field that a recipe may set, as `sublayer fields` prints it. On the command line a",
        "field is set as `TABLE.FIELD=VALUE`. `sublayer fields --schema` prints the same as a JSON",
        "Schema, for editors.",
        "",
    ]
    rows = field_rows()
    for table in ("", *TABLES):
        title = f"`[{table}]`: {_title(table)}" if table else _title(table)
        lines += [f"## {title}", ""]
        for row in rows:
            if row.table == table:
                lines += _field(row)
    return "\n".join(lines)


def commands_page() -> str:
    """Lay out the help of every command."""
    lines = ["# Commands", "", "What `sublayer COMMAND --help` prints.", ""]
    for name in cli.COMMANDS:
        lines += [f"## {name}", "", "```text", _help(name), "```", ""]
    return "\n".join(lines)


def _title(table: str) -> str:
    return _TABLES.get(table, table)


def _field(row: FieldRow) -> list[str]:
    facts = [row.type]
    if row.unit:
        facts.append(f"in {row.unit}")
    if row.default != "unset":
        facts.append(row.default if row.default.startswith("derived") else f"default {row.default}")
    notes = [row.description]
    if row.used_when:
        notes.append(f"Counts where {row.used_when}.")
    if row.set_by and row.table:
        notes.append(f"Set by {', '.join(row.set_by)}.")
    name = ".".join(filter(None, (row.table, row.name)))
    return [f"### `{name}`", "", _escaped("; ".join(facts)), "", _escaped(" ".join(notes)), ""]


def _escaped(text: str) -> str:
    return "".join(
        f"\\{character}" if character in "\\`*_<>[]{}" else character for character in text
    )


def _help(name: str) -> str:
    caught = io.StringIO()
    with contextlib.redirect_stdout(caught):
        code = cli.main([name, "--help"])
    assert code == cli.DONE, f"sublayer {name} --help ends with {code}"
    return caught.getvalue().strip("\n")


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    write_reference()
