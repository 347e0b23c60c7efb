"""A table of one's own as ``[data]`` names it: its path, and which of its columns are what."""

from sublayer.config.table import List
from sublayer.errors import ConfigError
from sublayer.tasks.own_table.table import Table, table_of
from sublayer.tasks.own_table.task import NAME

OwnColumns = dict[str, str | List]
"""The columns, by what they are."""


def check_columns(columns: OwnColumns | None) -> None:
    """Raise ConfigError for columns of a table of one's own that contradict each other."""
    if columns is not None:
        table_of("", columns)


def own_table(path: object, columns: OwnColumns | None) -> Table:
    """Return the table that ``data.path`` and ``data.columns`` name.

    Raises ConfigError where they do not say which it is, or what is right in it.
    """
    if not isinstance(path, str):
        raise ConfigError(
            f"data.tasks = {NAME} needs data.path: the file of the table, or a folder of them"
        )
    if columns is None:
        raise ConfigError(
            f"data.tasks = {NAME} needs data.columns, such as "
            '{ text = "review", label = "stars" }: which columns of the table are what'
        )
    return table_of(path, columns)
