"""Drop what an earlier layer set and a later one made idle, with a note; all else idle fails."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sublayer.config.fields.applicability import Idle, first_idle
from sublayer.config.fields.messages import show
from sublayer.config.fields.use import value_of
from sublayer.config.layering.settings import Layer, Setting, merge
from sublayer.config.layering.validate import build
from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError


@dataclass(frozen=True)
class Settled:
    """Merged layers in which each setting has an effect, and their recipe."""

    recipe: Recipe
    settings: Mapping[str, Setting]
    notes: tuple[str, ...]
    """What was dropped, a line each."""


def settle(layers: Sequence[Layer]) -> Settled:
    """Merge layers, without the settings that a later layer than their own made idle.

    Raises ConfigError for a setting that never had an effect: its own layer, or an earlier one,
    leaves it none; and as ``merge`` and ``build`` do.
    """
    settings = merge(layers)
    notes: list[str] = []
    while True:
        recipe = build(settings)
        idle = first_idle(recipe, settings)
        if idle is None:
            return Settled(recipe, settings, tuple(notes))
        last = _layer_of(idle.key, layers)
        if not _had_effect(idle.key, layers[: last + 1], is_last=last == len(layers) - 1):
            raise idle.error(recipe, settings)
        # What follows in the loop is a recipe with one setting less, so it ends.
        del settings[idle.key]
        notes.append(_note(idle, recipe, layers[last + 1 :]))


def _layer_of(key: str, layers: Sequence[Layer]) -> int:
    """Return the number of the last layer that set a key."""
    return max(index for index, layer in enumerate(layers) if key in layer.values)


def _had_effect(key: str, layers: Sequence[Layer], *, is_last: bool) -> bool:
    """Return whether a field had an effect where its own layer was the last."""
    if is_last:
        return False
    try:
        return key in settle(layers).settings
    except ConfigError:
        return False


def _note(idle: Idle, recipe: Recipe, later: Sequence[Layer]) -> str:
    changed = [key for key in idle.use.deciders if any(key in layer.values for layer in later)]
    deciders = changed or idle.use.deciders
    reasons = " and ".join(f"{key} = {show(value_of(key, recipe))}" for key in deciders)
    origin = idle.setting.origin
    source = "the command line" if origin == "command line" else origin
    given = f"{idle.key} = {show(idle.setting.value)} of {source}"
    return f"{given} has no effect with {reasons}: dropped"
