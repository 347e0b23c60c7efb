"""Check that fields are set only where the values of others let them have an effect."""

from collections.abc import Mapping
from dataclasses import dataclass

from sublayer.config.fields.catalog import declaration, extra
from sublayer.config.fields.data_uses import DATA_USES
from sublayer.config.fields.messages import show
from sublayer.config.fields.model_uses import KIND_USES, MODEL_USES
from sublayer.config.fields.use import Use, has_value, sibling_use, value_of
from sublayer.config.layering.settings import Setting, where
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import batch_sequences
from sublayer.config.selection import LAST
from sublayer.config.train import BATCHES
from sublayer.errors import ConfigError


def uses(key: str, kind: str = "") -> tuple[Use, ...]:
    """Return the conditions under which a field has an effect; all must hold.

    ``kind`` is its table's, where a field of one name is declared differently for each.
    """
    table, _, _ = key.partition(".")
    declared = extra(declaration(key, kind))
    needs = declared.get("needs", {})
    siblings = [sibling_use(f"{table}.{name}", values) for name, values in needs.items()]
    first = [KIND_USES[key]] if key in KIND_USES else []
    return (*first, *siblings, *USES.get(key, ()))


def said_uses(key: str) -> tuple[Use, ...]:
    """Return the conditions that are worth saying: none that another one's field has itself."""
    conditions = uses(key)
    table, _, _ = key.partition(".")
    needs = extra(declaration(key)).get("needs", {})
    is_implied = key in KIND_USES and any(f"{table}.{name}" in KIND_USES for name in needs)
    return conditions[1:] if is_implied else conditions


@dataclass(frozen=True)
class Idle:
    """A field that a layer set to no effect, and the condition that does not hold."""

    key: str
    setting: Setting
    use: Use

    def error(self, recipe: Recipe, settings: Mapping[str, Setting]) -> ConfigError:
        """Build the error that says what decides, and when the field would count."""
        deciders = []
        for decider in self.use.deciders:
            if not has_value(decider, recipe):
                # A field of another kind of its table.
                continue
            origin = where(settings[decider].origin) if decider in settings else ""
            deciders.append(f"{decider} = {show(value_of(decider, recipe))}{origin}")
        given = f"{self.key} = {show(self.setting.value)}{where(self.setting.origin)}"
        reasons = " and ".join(deciders)
        return ConfigError(
            f"{given} has no effect with {reasons}: it counts only where {self.use.when}"
        )


def first_idle(recipe: Recipe, settings: Mapping[str, Setting]) -> Idle | None:
    """Return the first field that a layer set to no effect; None where all have one.

    A layer that takes a field back to its default has an effect on what an earlier one had set.
    """
    for key, setting in settings.items():
        if setting.restores:
            continue
        for use in uses(key, _kind(key, recipe)):
            if not use.holds(recipe):
                return Idle(key, setting, use)
    return None


def is_idle(key: str, recipe: Recipe) -> bool:
    """Return whether a field, ``table.field`` or a heading, has no effect in a recipe."""
    conditions = uses(key, _kind(key, recipe))
    return not all(use.holds(recipe) for use in conditions)


def _kind(key: str, recipe: Recipe) -> str:
    table, _, _ = key.partition(".")
    content = getattr(recipe, table)
    return getattr(content, "kind", "")


def _has_several_targets(recipe: Recipe) -> bool:
    _, of_last_block = recipe.objective.n_classifiers()
    return of_last_block > 0


def _has_blocks_below(recipe: Recipe) -> bool:
    of_each_below, _ = recipe.objective.n_classifiers()
    return of_each_below == 0 or recipe.model.n_layers > 1


_TARGETS = Use("objective.targets is more than 1", _has_several_targets, ("objective.targets",))
_BLOCKS_BELOW = Use("there are blocks below the last", _has_blocks_below, ("model.n_layers",))
_DECAY = Use(
    "optimizer.weight_decay is more than 0",
    lambda recipe: getattr(recipe.optimizer, "weight_decay", 0.0) > 0,
    ("optimizer.weight_decay",),
)
_WARMUPS: dict[str, tuple[str, ...]] = {
    "ordinary": ("constant", "linear", "polynomial", "cosine", "inverse-sqrt"),
    "albert": ("linear", "polynomial"),
    "gpt1": ("constant", "linear", "cosine"),
    "constant": ("inverse-sqrt",),
}
"""The schedules beside which each value changes anything."""
_WARMUP = Use(
    "optimizer.schedule is linear or polynomial for albert, constant, linear or cosine for gpt1, "
    "inverse-sqrt for constant",
    lambda recipe: recipe.optimizer.schedule in _WARMUPS[recipe.optimizer.warmup],
    ("optimizer.schedule",),
)
_WINDOWS = Use(
    "objective.kind is causal",
    lambda recipe: recipe.objective.is_scored_in_windows,
    ("objective.kind",),
)
_PREDICTS = Use(
    "objective.kind is causal or span",
    lambda recipe: recipe.objective.is_probed,
    ("objective.kind",),
)
_INIT_RUN = Use("init.run is given", lambda recipe: recipe.init.run is not None, ("init.run",))
_BEST_BY = Use(
    "the objective's evaluations have it",
    lambda recipe: recipe.train.best_by in (LAST, *recipe.objective.evaluations(recipe.data)),
    ("objective.kind", "data.tasks"),
)
_MICRO_BATCH = Use(
    "a step has as many sequences",
    lambda recipe: (recipe.train.micro_batch_sequences or 0) <= batch_sequences(recipe),
    (*(f"train.{name}" for name in BATCHES), "data.context"),
)
_ONE_STACK = sibling_use("model.kind", ("decoder", "encoder", "lstm"))
_EPOCHS = sibling_use("data.windows", ("shuffled",))

USES: dict[str, tuple[Use, ...]] = {
    **MODEL_USES,
    **DATA_USES,
    "objective.target_weight": (_TARGETS,),
    "objective.auxiliary": (_BLOCKS_BELOW,),
    "objective.chunk_tokens": (_EPOCHS,),
    "optimizer.decay_vectors": (_DECAY,),
    "optimizer.layer_decay": (_ONE_STACK,),
    "optimizer.warmup": (_WARMUP,),
    "train.best_by": (_BEST_BY,),
    "train.evaluate_stride": (_WINDOWS,),
    "train.micro_batch_sequences": (_MICRO_BATCH,),
    "train.probes": (_PREDICTS,),
    "init.layers": (_INIT_RUN,),
    "init.freeze": (_INIT_RUN,),
}
"""Conditions beyond ``needs`` of a declaration, which more than one sibling's value decides."""
