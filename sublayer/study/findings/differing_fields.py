"""What the arms of a study differ by: the fields of their resolved recipes that are not equal."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sublayer.config.fields.catalog import HEADINGS
from sublayer.config.layering.sources import FILE_ONLY
from sublayer.config.resolve_train import MEASURED
from sublayer.errors import CheckpointError
from sublayer.files.parsing import parse_toml
from sublayer.study.results import ArmResult

Origin = Literal["own", "matched", "tuned"]
"""Where an arm has a value from: its recipe, the matching of budgets, the tuning."""
_OF_A_RUN = ("train.seed", *FILE_ONLY, *HEADINGS)
"""What differs between runs, or says nothing of what is computed."""
_OF_TOKENIZER = {"data.tokenizer", "data.vocab_size"}
"""Fields that say nothing of the tokenizer of a model that ``init.run`` brings."""
_ORDER: tuple[Origin, ...] = ("own", "matched", "tuned")


@dataclass(frozen=True)
class Setting:
    """An arm's value of a field, as a recipe writes it; None where the field does not apply."""

    value: str | None
    origin: Origin


def differing_fields(arms: Sequence[ArmResult]) -> dict[str, dict[str, Setting]]:
    """Return for each field in which arms differ the setting of each arm by name.

    Fields are those of the resolved recipes, in their order, those matched and tuned last; what
    follows from the others in all arms is left out. Arms without a recipe, of which no run was
    begun, are left out too. Raises CheckpointError where a recipe is damaged.
    """
    recipes = {}
    for arm in arms:
        if arm.recipe:
            recipes[arm.name] = dict(
                _flat(parse_toml(arm.recipe, f"the recipe of {arm.name}", CheckpointError))
            )
    derived = [set(recipe.get("derived", ())) for recipe in recipes.values()]
    following = set[str].intersection(*derived).difference(MEASURED) if derived else set()
    if any("init.run" in recipe for recipe in recipes.values()):
        following |= _OF_TOKENIZER
    fields = dict.fromkeys(field for recipe in recipes.values() for field in recipe)
    differing: dict[str, dict[str, Setting]] = {}
    for field in fields:
        texts = {name: _written(recipe.get(field)) for name, recipe in recipes.items()}
        if field in {*_OF_A_RUN, *following} or len(set(texts.values())) < 2:
            continue
        by_name = {arm.name: arm for arm in arms}
        settings = {}
        for name, text in texts.items():
            settings[name] = Setting(text, _origin(by_name[name], field))
        differing[field] = settings
    return dict(sorted(differing.items(), key=_rank))


def _rank(item: tuple[str, Mapping[str, Setting]]) -> int:
    """Put what an arm is before what was matched or tuned for it."""
    _, settings = item
    return max(_ORDER.index(setting.origin) for setting in settings.values())


def _origin(arm: ArmResult, field: str) -> Origin:
    if any(setting.startswith(f"{field}=") for setting in arm.tuned):
        return "tuned"
    if any(setting.startswith(f"{field}=") for setting in arm.matched):
        return "matched"
    return "own"


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _written(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
