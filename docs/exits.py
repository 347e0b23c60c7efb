"""Write the table of exits in ``exchanging.md``: how each shipped recipe's model is exported.

``python docs/exits.py``, after a change of recipes, classes or formats. No model is built: the
cells are the decisions of the exports, from the resolved fields alone.
"""

import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from sublayer.config.layers import grouped_recipes
from sublayer.config.load import load_recipe
from sublayer.config.recipe import ResolvedModel
from sublayer.config.resolve import resolve_model
from sublayer.errors import ConfigError
from sublayer.interop.exits import EXITS
from sublayer.interop.foreign_config import refused_fields
from sublayer.interop.gguf import architecture_for
from sublayer.interop.huggingface import family_for
from sublayer.interop.own_code import check_code
from sublayer.model.layers import load_class
from sublayer.study.budget import expected_vocabulary

PAGE = Path(__file__).parent / "exchanging.md"
OWN_CODE, YES, NO = "own code", "yes", "no: "
_TABLE = re.compile(r"(?<=<!-- exits -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)
_FIELD = re.compile(r"model\.(\w+) = ")
_MOST_FIELDS = 2


def _transformers(config: ResolvedModel) -> str:
    try:
        return f"`{family_for(config).oracle(config).name}`"
    except ConfigError:
        check_code(config)
        return OWN_CODE


def _gguf(config: ResolvedModel) -> str:
    return f"`{architecture_for(config).name}`"


def _by_engine(name: str, config: ResolvedModel) -> str:
    if refused := refused_fields(config, load_class(EXITS[name].engine).table):
        raise ConfigError(", ".join(refused))
    return YES


DECISIONS: dict[str, Callable[[ResolvedModel], str]] = {
    "transformers": _transformers,
    "ctranslate2": partial(_by_engine, "ctranslate2"),
    "onnx": partial(_by_engine, "onnx"),
    "gguf": _gguf,
    "safetensors": lambda _: YES,
}
"""Name a model's class or architecture, by format; raise ConfigError for a refused model."""


def exits_of(config: ResolvedModel) -> dict[str, str]:
    """Decide how a model is exported, by format: a cell of the table."""
    cells = {}
    for name in EXITS:
        try:
            cells[name] = DECISIONS[name](config)
        except ConfigError as error:
            cells[name] = NO + _reason(str(error))
    return cells


def _reason(refusal: str) -> str:
    """Return the fields that a refusal names, or else the class that it is of."""
    fields = [f"`{name}`" for name in _FIELD.findall(refusal)]
    more = ["..."] * (len(fields) > _MOST_FIELDS)
    of_class = re.sub(r"^--to \w+ has no architecture for ", "", refusal).partition(":")[0]
    return ", ".join([*fields[:_MOST_FIELDS], *more]) or of_class


def model_of(name: str) -> ResolvedModel:
    """Resolve the model of a shipped recipe."""
    recipe = load_recipe(name).recipe
    vocab_size, context = expected_vocabulary(recipe).size, recipe.data.context
    return resolve_model(recipe.model, vocab_size=vocab_size, context=context)


def exits_of_recipes() -> dict[str, dict[str, str]]:
    """Decide how the models of all shipped recipes are exported, in the order of their list."""
    listed = [recipe.name for group in grouped_recipes().values() for recipe in group]
    return {name: exits_of(model_of(name)) for name in listed}


def _joined(names: Iterable[str], every: Iterable[str]) -> str:
    """List recipes, those of one beginning as ``albert-*`` where all are among them."""
    kept, shown = set(names), dict[str, None]()
    for name in names:
        stem = f"{name.partition('-')[0]}-"
        alike = {other for other in every if other.startswith(stem)}
        is_whole = len(alike) > 1 and name in alike and alike <= kept
        shown[f"`{stem}*`" if is_whole else f"`{name}`"] = None
    return ", ".join(shown)


def table() -> str:
    """Lay out the exits of all shipped recipes, a row for those that are alike."""
    found = exits_of_recipes()
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, cells in found.items():
        rows.setdefault(tuple(cells.values()), []).append(name)
    lines = [f"| recipes | {' | '.join(f'`{name}`' for name in EXITS)} |"]
    lines += [f"| --- |{' --- |' * len(EXITS)}"]
    lines += [f"| {' | '.join([_joined(names, found), *cells])} |" for cells, names in rows.items()]
    return "\n".join(lines)


def with_table(text: str) -> str:
    """Return the page with today's table."""
    return _TABLE.sub(lambda _: table(), text)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
