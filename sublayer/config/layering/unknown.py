"""What is said of a field or a table that no recipe has, with the name that was probably meant."""

from sublayer.config.fields.catalog import TABLES, nearest_key
from sublayer.config.fields.messages import LONGEST_VALUE, show
from sublayer.config.fields.renames import RENAMED
from sublayer.nearest import nearest


def unknown_field(key: str) -> str:
    """Format the message for a key that no table has: its new name, a near one, where to look."""
    name = key if key.isprintable() and len(key) <= LONGEST_VALUE else show(key)
    if key in RENAMED:
        return f"{name} is now called {RENAMED[key]}: write that"
    near = nearest_key(key)
    if near:
        return f"{name} is not a field: did you mean {near}?"
    table, _, _ = key.partition(".")
    if table in TABLES:
        return f"{name} is not a field: `sublayer fields {table}` lists those of [{table}]"
    return f"{name} is not a field: the tables are {', '.join(TABLES)}"


def unknown_table(name: str) -> str:
    """Format the message for a heading that is no table of a recipe."""
    near = nearest(name, TABLES)
    hint = f"did you mean [{near}]?" if near else f"the tables are {', '.join(TABLES)}"
    return f"[{name}] is not a table of a recipe: {hint}"
