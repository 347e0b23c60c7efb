"""Recipes and studies: listed, resolved, drawn."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from sublayer.api.arguments import Overrides, as_path, as_text
from sublayer.api.results import Found, check_new, figure, html_table, page, write_plot
from sublayer.config.layers import grouped_recipes, read_toml, shipped_recipe, shipped_recipes
from sublayer.config.load import LoadedRecipe, load_recipe
from sublayer.config.messages import show
from sublayer.config.recipe import declaration, extra
from sublayer.config.resolve import resolve_model
from sublayer.config.rules import is_idle, value_of
from sublayer.errors import ConfigError
from sublayer.files.storage import resolved
from sublayer.options import Option, PathText, checked
from sublayer.system.terminal import entries, noted, paragraph, terminal_width
from sublayer.tables import table

_NEXT = (
    "A recipe is for train, plan and compare, a study for plan and compare. A recipe's "
    "settings: `sublayer recipes NAME --changed`; a study's runs and costs: `sublayer plan NAME`."
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
) -> Found:
    """Resolve a recipe: the value of each field and its origin.

    ``changed`` leaves out defaults and derived values. Raises ConfigError for settings without
    meaning or effect.
    """
    loaded = _loaded(source, overrides)
    given = loaded.recipe
    # The vocabulary size is the tokenizer's, unknown before the text is read.
    vocab_size, context = given.model.vocab_size or 1, given.data.context
    derived = dict(resolve_model(given.model, vocab_size=vocab_size, context=context))
    fields, rows = {}, []
    for key, origin in loaded.origins.items():
        heading, _, name = key.partition(".")
        if not name:
            continue
        value = value_of(key, given)
        kind = str(getattr(getattr(given, heading), "kind", ""))
        rule = extra(declaration(key, kind)).get("derived")
        if value is None and rule:
            if heading == "model" and name != "vocab_size":
                value = derived.get(name)
            origin = f"derived: {rule}"
        if changed and (origin == "default" or origin.startswith("derived: ")):
            continue
        is_used = not is_idle(key, given)
        fields[key] = {"value": value, "origin": origin, "is_used": is_used}
        if value is not None or origin != "default":
            shown = "?" if value is None else show(value)
            rows.append((key, shown, origin if is_used else f"{origin} (no effect)"))
    about = {"title": given.title, "source": given.source, "cost": given.cost}
    lines = [
        *(paragraph(heading) for heading in about.values() if heading),
        "",
        table(["field", "value", "origin"], rows, width=terminal_width()),
        *map(noted, loaded.notes),
    ]
    content = {"name": loaded.name, **about, "fields": fields, "notes": list(loaded.notes)}
    return Found(content, "\n".join(lines))


def _loaded(source: PathText, overrides: Overrides | None) -> LoadedRecipe:
    """Load a recipe; raise ConfigError for a study, which has several."""
    from sublayer.study.definition import shipped_studies

    name = as_text(source, "a recipe")
    if name in shipped_studies():
        raise ConfigError(f"{name} is a study: `sublayer plan {name}` shows its arms")
    return load_recipe(name, overrides or {})


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
) -> Diagram:
    """Draw the architecture of a recipe; ``out`` is a new SVG file.

    Its ``repr`` is the drawing in text, its ``svg`` the picture. Raises ConfigError.
    """
    from sublayer.diagram.figure import describe
    from sublayer.diagram.svg import draw_svg
    from sublayer.diagram.text import draw_text

    file = None if out is None else as_path(out)
    if file is not None:
        check_new(file)
    shown = describe(_loaded(source, overrides))
    svg = draw_svg(shown)
    if file is not None:
        write_plot(file, svg)
    content = {**asdict(shown), "file": None if file is None else str(resolved(file))}
    return Diagram(content, draw_text(shown), figure(svg), svg=svg)
