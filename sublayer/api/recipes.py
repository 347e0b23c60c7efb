"""Recipes, studies and fields: listed, resolved, drawn; fields as a JSON Schema for editors."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic.fields import FieldInfo

from sublayer.api.arguments import Overrides, Plugins, as_path
from sublayer.api.results import Found, check_new, figure, html_table, page, write_plot
from sublayer.config.layers import (
    find_source,
    grouped_recipes,
    layer_of,
    read_toml,
    shipped_recipe,
    shipped_recipes,
)
from sublayer.config.load import LoadedRecipe, load_recipe
from sublayer.config.messages import BOUNDS, show_limit, type_in_words
from sublayer.config.plugins import refuse_idle
from sublayer.config.recipe import (
    HEADINGS,
    TABLES,
    Recipe,
    current_name,
    declaration,
    declarations,
    default_kind,
    description,
    extra,
    is_union,
    keys,
    nearest_key,
)
from sublayer.config.resolve import resolve_model
from sublayer.config.rules import OF_KIND, is_idle, uses, value_of
from sublayer.errors import ConfigError, nearest
from sublayer.files.storage import resolved
from sublayer.options import Option, PathText, as_text, checked
from sublayer.system.terminal import entries, noted, paragraph, terminal_width
from sublayer.tables import table
from sublayer.values import show

_NEXT = (
    "Recipes are for train, plan and compare, studies for plan and compare. A recipe's settings: "
    "`sublayer recipes NAME --changed`; a study's runs and costs: `sublayer plan NAME`."
)


def list_recipes() -> Found:
    """List the available recipes and studies, with titles and costs."""
    from sublayer.study.definition import find_study, shipped_studies, study_scales

    recipes = []
    for name in shipped_recipes():
        described = asdict(shipped_recipe(name))
        del described["place"]
        recipes.append(described)
    studies: list[dict[str, Any]] = []
    for name in shipped_studies():
        if path := find_study(name):
            file = read_toml(path)
            about = {"title": str(file["title"]), "source": str(file["source"])}
            studies.append({"name": name, **about, "scales": list(study_scales(name))})
    parts: list[str] = []
    for group, members in grouped_recipes().items():
        # Cost guides the choice in the first group, for beginners.
        rows = [(one.name, one.title if parts else f"{one.title} ({one.cost})") for one in members]
        parts.append(f"{group}\n{entries(rows)}")
    of_studies = [(x["name"], f"{x['title']} ({', '.join(x['scales'])})") for x in studies]
    text = [*parts, f"studies (and their scales)\n{entries(of_studies)}", paragraph(_NEXT)]
    html = page(
        html_table(
            ["recipe", "title", "cost"], [[x["name"], x["title"], x["cost"]] for x in recipes]
        ),
        html_table(["study", "title"], [[x["name"], x["title"]] for x in studies]),
    )
    return Found({"recipes": recipes, "studies": studies}, "\n\n".join(text), html)


@checked
def recipe(
    source: PathText,
    overrides: Overrides | None = None,
    *,
    changed: Annotated[bool, Option("Show only what the recipe and its bases set.")] = False,
    plugins: Plugins = (),
) -> Found:
    """Resolve a recipe: the value of each field and its origin.

    ``changed`` leaves out defaults and derived values. Raises ConfigError for settings without
    meaning or effect.
    """
    loaded = _loaded(source, overrides)
    unresolved = loaded.recipe
    # The vocabulary size is the tokenizer's, unknown before the text is read.
    vocab_size, context = unresolved.model.vocab_size or 1, unresolved.data.context
    derived = dict(resolve_model(unresolved.model, vocab_size=vocab_size, context=context))
    fields, rows = {}, []
    for key, origin in loaded.origins.items():
        heading, _, name = key.partition(".")
        if not name:
            continue
        value = value_of(key, unresolved)
        kind = str(getattr(getattr(unresolved, heading), "kind", ""))
        rule = extra(declaration(key, kind)).get("derived")
        if value is None and rule:
            if heading == "model" and name != "vocab_size":
                value = derived.get(name)
            origin = f"derived: {rule}"
        if changed and (origin == "default" or origin.startswith("derived: ")):
            continue
        is_used = not is_idle(key, unresolved)
        fields[key] = {"value": value, "origin": origin, "is_used": is_used}
        if value is not None or origin != "default":
            shown = "?" if value is None else show(value)
            rows.append((key, shown, origin if is_used else f"{origin} (no effect)"))
    about = {"title": unresolved.title, "source": unresolved.source, "cost": unresolved.cost}
    lines = [
        *(paragraph(heading) for heading in about.values() if heading),
        "",
        table(["field", "value", "origin"], rows, width=terminal_width()),
        *map(noted, loaded.notes),
    ]
    content = {"name": loaded.name, **about, "fields": fields, "notes": list(loaded.notes)}
    return Found(content, "\n".join(lines))


def _loaded(source: PathText, overrides: Overrides | None) -> LoadedRecipe:
    """Load a recipe; raise ConfigError for a study, which has several recipes."""
    from sublayer.study.definition import shipped_studies

    name = as_text(source, "a recipe")
    if name in shipped_studies():
        raise ConfigError(f"{name} is a study: `sublayer plan {name}` shows its arms")
    loaded = load_recipe(name, overrides or {})
    refuse_idle()
    return loaded


@dataclass(frozen=True, repr=False)
class Diagram(Found):
    """The drawn architecture of a recipe; ``svg`` is the picture."""

    svg: str = field(default="", compare=False)
    """The picture, as the text of an SVG file."""


@checked
def draw(
    source: PathText,
    overrides: Overrides | None = None,
    *,
    out: PathText | None = None,
    plugins: Plugins = (),
) -> Diagram:
    """Draw the architecture of a recipe; ``out`` is a new SVG file.

    Its ``repr`` is the drawing in text, its ``svg`` the picture. Raises ConfigError.
    """
    from sublayer.diagram import describe, draw_svg, draw_text

    file = None if out is None else as_path(out)
    if file is not None:
        check_new(file)
    shown = describe(_loaded(source, overrides))
    svg = draw_svg(shown)
    if file is not None:
        write_plot(file, svg)
    content = {**asdict(shown), "file": None if file is None else str(resolved(file))}
    return Diagram(content, draw_text(shown), figure(svg), svg=svg)


_OWN_KEYWORDS = ("unit", "needs", "when", "derived")
SCHEMA_DRAFT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class FieldRow:
    """One field in words."""

    table: str
    """Empty for a heading."""
    name: str
    type: str
    default: str
    unit: str
    """Unit of a number; empty where it has no unit."""
    used_when: str
    """Empty where the field always counts."""
    description: str
    set_by: tuple[str, ...]
    """The shipped recipes that set it."""


def field_rows(table: str | None = None) -> tuple[FieldRow, ...]:
    """Return the fields of a table, or of a whole recipe file, in the order of declaration.

    Reads every shipped recipe. Raises KeyError for an unknown table.
    """
    setters: dict[str, tuple[str, ...]] = {}
    for recipe in shipped_recipes():
        source = find_source(recipe)
        for key in layer_of(read_toml(source.path), source.origin).values:
            setters[key] = (*setters.get(key, ()), recipe)
    headings = () if table else HEADINGS
    return tuple(_row(key, setters.get(key, ())) for key in (*headings, *keys(table)))


def json_schema() -> dict[str, Any]:
    """Build the JSON Schema (draft 2020-12) of a recipe file, for editors.

    A table may inherit its ``kind`` from the recipe that it extends, so a union takes the fields of
    any of its kinds.
    """
    schema = Recipe.model_json_schema()
    definitions = schema["$defs"]
    rows = field_rows()
    for heading, kinds in TABLES.items():
        by_name = {row.name: row for row in rows if row.table == heading}
        for cls in kinds.values():
            for name, content in definitions[cls.__name__]["properties"].items():
                row = by_name[name]
                parts = {
                    f"Unit: {row.unit}.": row.unit,
                    f"Counts where {row.used_when}.": row.used_when,
                    f"{row.default.capitalize()}.": row.default.startswith("derived"),
                }
                texts = [row.description, *(text for text, is_said in parts.items() if is_said)]
                described = {**content, "description": " ".join(texts)}
                content.clear()
                content |= {
                    word: described[word] for word in sorted(described) if word not in _OWN_KEYWORDS
                }
    # Pydantic discriminates the kinds of a union by a field that a recipe may leave out.
    for content in schema["properties"].values():
        if content.pop("discriminator", None):
            content["anyOf"] = content.pop("oneOf")
    schema["properties"] = {**_FILE_ONLY, **schema["properties"]}
    return {"$schema": SCHEMA_DRAFT, **schema}


def _row(key: str, set_by: tuple[str, ...]) -> FieldRow:
    table, _, name = key.rpartition(".")
    by_kind = declarations(key)
    info = declaration(key)
    limits = [
        f"{words} {show_limit(bound)}"
        for rule in info.metadata
        for short, words in BOUNDS.items()
        if (bound := getattr(rule, short, None)) is not None
    ]
    kind = ", ".join([type_in_words(info.annotation), *limits])
    default = _by_kind({name: _default(decl) for name, decl in by_kind.items()}, ", ")
    # Only conditions that are not those of a field on which this one depends are worth listing.
    needed = [f"{table}.{name}" for name in extra(info).get("needs", {})]
    of_kind = [
        not set(OF_KIND).isdisjoint(extra(declaration(other)).get("when", ()))
        for other in (key, *needed)
    ]
    conditions = [use.when for use in uses(key)][of_kind[0] and any(of_kind[1:]) :]
    if table and is_union(table) and name == "kind":
        kind, default = f"one of {', '.join(TABLES[table])}", show(default_kind(table))
    elif table and len(by_kind) < len(TABLES[table]):
        conditions.insert(0, f"{table}.kind is {' or '.join(by_kind)}")
    return FieldRow(
        table=table,
        name=name,
        type=kind,
        default=default,
        unit=extra(info).get("unit", ""),
        used_when="; ".join(conditions),
        description=_by_kind({kind: description(key, kind) for kind in by_kind}, " "),
        set_by=set_by,
    )


def _by_kind(texts: Mapping[str, str], separator: str) -> str:
    """Join the texts of all kinds, once where several have the same text."""
    by_text: dict[str, list[str]] = {}
    for kind, text in texts.items():
        by_text.setdefault(text, []).append(kind)
    if len(by_text) == 1:
        return next(iter(by_text))
    return separator.join(f"{' and '.join(kinds)}: {text}" for text, kinds in by_text.items())


def _default(info: FieldInfo) -> str:
    rule = extra(info).get("derived")
    return f"derived: {rule}" if rule and info.default is None else show(info.default)


def _schema(kind: str, description: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more, "description": description}


_FILE_ONLY: dict[str, Any] = {
    "extends": _schema("string", "Name or path of the recipe that this one changes."),
    "derived": _schema(
        "array",
        "In a run's recipe: the fields that were derived, which a new run derives anew.",
        items={"type": "string"},
    ),
    "lengthened": _schema(
        "array",
        "In a run's recipe: its extensions, or replanning by its pace, each with the step and "
        "the old and new number of steps.",
        items={"type": "object"},
    ),
    "plugins": _schema(
        "array",
        "In a run's recipe: the plugins whose rows it uses, each with its name and its SHA-256.",
        items={"type": "object"},
    ),
    "group": _schema(
        "string",
        "In a shipped recipe: its heading in `sublayer recipes`, also for recipes that extend it.",
    ),
    "place": _schema(
        "integer",
        "In a shipped recipe: its place in its group, the lowest first.",
    ),
}
"""Schemas of ``FILE_ONLY``."""


def find_fields(query: str) -> tuple[FieldRow, ...]:
    """Return the fields that match a table, a name or a word.

    A name may lack its table. Any other word is searched for in names, types (which list choices)
    and descriptions; matches in names come first. Raises ConfigError, with the nearest names,
    without a match.
    """
    if query in TABLES:
        return field_rows(query)
    rows = field_rows()
    name, word = current_name(query), query.casefold().strip()
    named = tuple(row for row in rows if name in (row.name, f"{row.table}.{row.name}"))
    having = [
        row
        for row in rows
        if word and word in f"{row.table}.{row.name}\n{row.type}\n{row.description}".casefold()
    ]
    if matches := named or tuple(sorted(having, key=lambda row: word not in row.name)):
        return matches
    # A table or the name of a field, whichever is nearer.
    near = nearest(query, [*TABLES, *(row.name for row in rows)])
    if near not in TABLES:
        near = nearest_key(query)
    hint = f"did you mean {near}?" if near else f"the tables are {', '.join(TABLES)}"
    raise ConfigError(f"no field's name or description has {show(query)}: {hint}")
