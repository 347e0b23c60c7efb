"""The arms of a comparison: recipes that differ in the fields that are compared."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sublayer.config.fields.catalog import HEADINGS
from sublayer.config.layering.layers import LoadedRecipe, vary
from sublayer.config.layering.overrides import override_layer
from sublayer.config.limits import MOST_ARMS
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError

_NOT_VARIED = {
    "train.seed": "every arm is trained with the same seeds; give their number with --seeds",
    **dict.fromkeys(
        HEADINGS, "it changes nothing that is computed; vary a field such as model.ffn"
    ),
}
_EXAMPLES = {"--vary": "model.ffn=gelu,swiglu", "--tune": "optimizer.lr=1e-3,2e-3"}
_OPENING = {"[": "]", "{": "}", "(": ")"}


@dataclass(frozen=True)
class Arm:
    """A recipe under the name that it has in the comparison."""

    name: str
    loaded: LoadedRecipe
    """The whole recipe, ``settings`` included."""
    settings: Mapping[str, Any]
    """What sets it apart: ``table.field`` to its value."""
    against: str | None = None
    """The arm that it is compared with, if not the first; itself: none, it is a control."""
    is_varied: bool = False
    """Whether its name is made of its settings, as those of ``--vary`` are."""


def expand(loaded: LoadedRecipe, vary_texts: Sequence[str], *, option: str = "--vary") -> list[Arm]:
    """Build the arms of ``--vary field=a,b`` texts: every combination of their values.

    The first of each value is the baseline's. ``option`` is what messages call the texts. Without
    any, the recipe is the only arm. Values are split at commas outside brackets and quotes, so that
    lists are values too. Raises ConfigError for a text without two values, a field varied twice, a
    field that the command line also sets, and arms that are equal.
    """
    if not vary_texts:
        return [Arm(loaded.name, loaded, {})]
    fields = _fields(vary_texts, option)
    for key in fields:
        if loaded.origins.get(key) == "command line":
            raise ConfigError(
                f"{key} is both set and given to {option}: "
                f"leave out one of {key}=... and {option} {key}=..."
            )
    n_arms = math.prod(map(len, fields.values()))
    if n_arms > MOST_ARMS:
        raise ConfigError(
            f"{option} asks for {n_arms:,} combinations of values: give at most {MOST_ARMS}"
        )
    labels = _labels(list(fields))
    called = "arm" if option == "--vary" else f"{option}, trial"
    arms = []
    for texts in itertools.product(*fields.values()):
        labelled = []
        settings = []
        for key, text in zip(fields, texts, strict=True):
            labelled.append(f"{labels[key]}={text}")
            settings.append(f"{key}={text}")
        layer = override_layer(settings, "vary")
        arm = make_arm(" ".join(labelled), loaded, layer.values, called=called)
        arms.append(replace(arm, is_varied=True))
    check_distinct(arms)
    return arms


def make_arm(
    name: str, loaded: LoadedRecipe, settings: Mapping[str, Any], *, called: str = "arm"
) -> Arm:
    """Apply an arm's settings to a recipe; raise ConfigError, with its name, where they fail.

    ``called`` is what the message has before the name.
    """
    if not settings:
        return Arm(name, loaded, settings)
    try:
        varied = vary(loaded, settings)
    except ConfigError as error:
        raise ConfigError(f"{called} {name}: {error}") from None
    return Arm(name, varied, settings)


def arm_notes(arms: Sequence[Arm]) -> list[str]:
    """Return what of the layers a user would not expect; what is not of all names its arms."""
    by_note: dict[str, list[str]] = {}
    for arm in arms:
        for note in arm.loaded.notes:
            by_note.setdefault(note, []).append(arm.name)
    lines = []
    for note, names in by_note.items():
        is_of_all = len(names) == len(arms)
        lines.append(note if is_of_all else f"arm {', '.join(names)}: {note}")
    return lines


def check_distinct(arms: Sequence[Arm], beside: Mapping[str, str] | None = None) -> None:
    """Raise ConfigError where two arms, the first included, have one name or equal settings.

    Settings are equal where the recipes with all that is derived from them are: ``model.d_ff`` set
    to what it is anyway sets no arm apart. ``beside`` is by name what else sets an arm apart.
    """
    beside = beside or {}
    names: set[str] = set()
    meanings: dict[str, str] = {}
    for arm in arms:
        if arm.name in names:
            raise ConfigError(f"two arms are named {arm.name}: give each value once")
        meaning = _meaning(arm) + beside.get(arm.name, "")
        other = meanings.setdefault(meaning, arm.name)
        if other != arm.name:
            what = "the baseline" if other == arms[0].name else "arm"
            raise ConfigError(
                f"arm {arm.name} is equal to {what} {other}: there is nothing to compare"
            )
        names.add(arm.name)


def split_values(text: str) -> list[str]:
    """Split at commas outside brackets and quotes; raise ConfigError where one stays open."""
    values: list[str] = []
    start = 0
    closing: list[str] = []  # the brackets that are open, as what closes them
    quote = ""  # the one that is open
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in _OPENING:
            closing.append(_OPENING[character])
        elif closing and character == closing[-1]:
            closing.pop()
        elif character == "," and not closing:
            values.append(text[start:index].strip())
            start = index + 1
    if quote or closing:
        raise ConfigError(f"{text!r}: {quote or closing[-1]} is missing")
    return [*values, text[start:].strip()]


def _fields(vary_texts: Sequence[str], option: str) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for text in vary_texts:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(
                f"{option} {text!r} is not field=a,b: write such as {option} {_EXAMPLES[option]}"
            )
        if key in fields:
            raise ConfigError(f"{option} {key} is given twice: list all its values in one")
        if key in _NOT_VARIED:
            raise ConfigError(f"{option} {key}: {_NOT_VARIED[key]}")
        choices = split_values(values)
        if "" in choices:
            raise ConfigError(
                f"{option} {text!r} has an empty value: write such as {option} {key}=a,b"
            )
        if len(choices) < 2:
            rest = "give those to choose from"
            if option == "--vary":
                rest = "give the baseline's first, then the others"
            raise ConfigError(f"{option} {text!r} has one value: {rest}: {key}=a,b")
        fields[key] = choices
    return fields


def _labels(keys: Sequence[str]) -> dict[str, str]:
    """Return what arms' names call each field: its short name where no other field has that."""
    short = [key.rpartition(".")[2] for key in keys]
    labels = {}
    for key, label in zip(keys, short, strict=True):
        is_ambiguous = short.count(label) > 1
        labels[key] = key if is_ambiguous else label
    return labels


def _meaning(arm: Arm) -> str:
    recipe = arm.loaded.recipe
    # Any vocabulary will do: it is the same for all arms, and only what is derived matters.
    model = resolve_model(
        recipe.model, vocab_size=recipe.model.vocab_size or 2, context=recipe.data.context
    )
    others = recipe.model_dump(mode="json", exclude={"model", *HEADINGS})
    return json.dumps([others, model.model_dump(mode="json")])
