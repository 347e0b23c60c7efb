"""Find fields of a recipe by a name, a table, or a word of what is said of them."""

from collections.abc import Sequence

from sublayer.config.fields.catalog import TABLES, nearest_key
from sublayer.config.fields.listing import FieldRow, field_rows
from sublayer.config.fields.messages import show
from sublayer.config.fields.renames import current_name
from sublayer.errors import ConfigError
from sublayer.nearest import nearest


def find_fields(asked: str) -> tuple[FieldRow, ...]:
    """Return the fields that are meant by a table, a name or a word.

    A name may lack its table. Any other word is looked for in names, types (which list choices) and
    descriptions; fields that have it in their name come first.
    Raises ConfigError, with the nearest names, where there is none.
    """
    if asked in TABLES:
        return field_rows(asked)
    rows = field_rows()
    named = _named(current_name(asked), rows)
    if named:
        return named
    word = asked.casefold().strip()
    found = [row for row in rows if word in _words(row)]
    if not found or not word:
        raise ConfigError(_not_found(asked))
    return tuple(sorted(found, key=lambda row: word not in row.name))


def _named(asked: str, rows: Sequence[FieldRow]) -> tuple[FieldRow, ...]:
    return tuple(row for row in rows if asked in (row.name, f"{row.table}.{row.name}"))


def _words(row: FieldRow) -> str:
    return f"{row.table}.{row.name}\n{row.type}\n{row.description}".casefold()


def _not_found(asked: str) -> str:
    message = f"no field is called {show(asked)}, and no description has it"
    table, dot, _ = asked.partition(".")
    # A table or the name of a field, whichever is nearer.
    near = nearest(asked, [*TABLES, *(row.name for row in field_rows())])
    if dot or near not in TABLES:
        near = nearest_key(asked)
    if near:
        return f"{message}: did you mean {near}?"
    if table in TABLES:
        return f"{message}: `sublayer fields {table}` lists those of [{table}]"
    return f"{message}: give a table ({', '.join(TABLES)}), a field or a word of its description"
