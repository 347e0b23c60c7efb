"""Budgets of arms: matched in parameters, operations or time, and their excess over each other."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from sublayer.config.layers import override_layer
from sublayer.config.load import LoadedRecipe, absolute_paths
from sublayer.config.recipe import Recipe, ResolvedModel, ResolvedRecipe
from sublayer.config.resolve import EVALUATIONS, expected_model, run_steps
from sublayer.config.stacks import entries
from sublayer.config.train import LENGTHS
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.study.arms import Arm
from sublayer.study.budget.expected import tokens_per_step
from sublayer.system.memory import cores

Rule = Literal["parameters", "flops", "time", "none"]
RULES: tuple[Rule, ...] = ("parameters", "flops", "time", "none")
TOLERANCE = 0.005
"""The largest unmarked mismatch, as a share."""


@dataclass(frozen=True)
class Match:
    """The settings that matching changes in an arm, and the remaining mismatch.

    ``overrides`` are settings as on the command line. ``mismatch`` is the arm's excess over its
    partner, as a share of the partner's costs, in the matched quantity (in parameters without a
    rule).
    """

    overrides: tuple[str, ...]
    mismatch: float


def match_arms(
    arms: Sequence[Arm],
    models: Sequence[ResolvedModel],
    rule: Rule,
    *,
    steps: int | None = None,
    step_seconds: Sequence[float] | None = None,
) -> list[Match | None]:
    """Match every arm to the first, which keeps its settings; without a rule, only compare.

    By operations or time, ``train.steps`` of an arm is solved so that its run, of at least one
    step, costs as much as the baseline's. The mismatch is relative to an arm's comparison partner;
    a control has none. ``models`` are the arms' resolved configs. ``steps`` is the length of the
    baseline's run, ``step_seconds`` the measured time of each arm's step; a match is None if the
    rule needs an unknown quantity. Raises ConfigError for an arm that cannot be matched, or sets a
    field that the rule would solve.
    """
    by_name = {arm.name: model for arm, model in zip(arms, models, strict=True)}
    solved = {"model.d_ff"} if rule == "parameters" else {f"train.{name}" for name in LENGTHS}
    costs = step_seconds
    if rule == "flops":
        costs = []
        for arm in arms:
            recipe = arm.loaded.recipe
            per_token = flops_per_token(by_name[arm.name], recipe.data.context, recipe.objective)
            costs.append(float(per_token * tokens_per_step(recipe)))
    matches: list[Match | None] = []
    for number, (arm, model) in enumerate(zip(arms, models, strict=True)):
        match: Match | None = Match((), 0.0)
        if rule == "none":
            partner = by_name[arm.against or arms[0].name]
            excess = count_parameters(model).total / count_parameters(partner).total - 1.0
            match = Match((), excess)
        elif rule == "parameters":
            match = match_parameters(arm.name, model, models[0])
        elif steps is None or costs is None:
            match = None
        elif number:
            n_matched = max(1, round(steps * costs[0] / costs[number]))
            excess = n_matched * costs[number] / (steps * costs[0]) - 1.0
            match = Match((f"train.steps={n_matched}",), excess)
        both = solved & arm.settings.keys()
        if match and match.overrides and both:
            raise ConfigError(
                f"arm {arm.name} sets {min(both)}, which --match {rule} solves "
                f"({match.overrides[0]}): leave it out, or use --match none"
            )
        matches.append(match)
    return matches


def apply_match(arm: Arm, match: Match | None) -> LoadedRecipe:
    """Apply the changes of matching to an arm's recipe; None, before matching, changes nothing."""
    if match and match.overrides:
        return arm.loaded.vary(match.overrides, origin="match")
    return arm.loaded


def match_parameters(name: str, arm: ResolvedModel, baseline: ResolvedModel) -> Match:
    """Solve ``model.d_ff`` of an arm so that its parameters come nearest to the baseline's.

    Parameters are the unique ones of the inference model, embeddings included. The width is the
    nearest integer, never rounded to a multiple. Both configs are resolved; ``name`` names the arm
    in errors.

    Raises ConfigError if no width can match: no ffn entry, too many parameters elsewhere, or shared
    block weights.
    """
    target = count_parameters(baseline).total
    if count_parameters(arm).total == target:
        return Match((), 0.0)

    def total(d_ff: int) -> int:
        return count_parameters(arm.model_copy(update={"d_ff": d_ff})).total

    if not any(entry.ffn is not None for entry in entries(arm)):
        raise ConfigError(
            f"{name}: model.block has no ffn entry with a width to match to the baseline's "
            "parameters: use --match flops, time or none"
        )
    # The count is linear in the width.
    width = 1 + round((target - total(1)) / (total(2) - total(1)))
    if width < 1:
        raise ConfigError(
            f"{name}: it has {total(1):,} parameters even at model.d_ff = 1, the baseline only "
            f"{target:,}: make the arm smaller, or use --match flops, time or none"
        )
    for config in (arm, baseline):
        if config.share != "none":
            raise ConfigError(
                f"{name}: parameters cannot be matched with model.share = {config.share}, as "
                f"this would set model.d_ff = {width} instead of {arm.d_ff}: use --match flops "
                "or --match time"
            )
    overrides = () if width == arm.d_ff else (f"model.d_ff={width}",)
    return Match(overrides, total(width) / target - 1.0)


ORIGIN = "study"


class Measures(ABC):
    """Measurements of recipes with absolute paths, which read texts and time steps when asked."""

    @abstractmethod
    def vocab_size(self, recipe: Recipe) -> int:
        """Return the vocabulary size of a recipe's tokenizer."""

    @abstractmethod
    def train_tokens(self, recipe: Recipe) -> int:
        """Count the tokens per epoch of a recipe's train split."""

    @abstractmethod
    def resolve(self, recipe: Recipe, *, is_new: bool = False) -> ResolvedRecipe:
        """Fill in the fields that a run on this machine would fill in; minutes are measured.

        A study that ``is_new`` reuses no old measurement.
        """

    @abstractmethod
    def step_s(self, loaded: LoadedRecipe, n_arms: int) -> float:
        """Measure the seconds of an optimizer step, twice for each of ``n_arms`` in all."""

    def model(self, arm: Arm) -> ResolvedModel:
        """Resolve the model of an arm's recipe, with the vocabulary of its tokenizer."""
        recipe = absolute_paths(arm.loaded.recipe)
        return expected_model(recipe, self.vocab_size(recipe))

    def steps(self, arm: Arm) -> int:
        """Return the optimizer steps of an arm, measured if it has minutes."""
        recipe = absolute_paths(arm.loaded.recipe)
        steps = run_steps(recipe, train_tokens=self.train_tokens(recipe))
        return steps or self.resolve(recipe).train.steps


def settle(arm: Arm, settings: Mapping[str, Any], matched: Sequence[str], mismatch: float) -> Arm:
    """Return an arm with its settled settings; ``settings`` are laid over its recipe.

    ``matched`` are the settings solved by matching, ``mismatch`` is the remainder.
    """
    loaded = arm.loaded.vary(settings, origin=ORIGIN) if settings else arm.loaded
    return replace(arm, loaded=loaded, settled=settings, matched=tuple(matched), mismatch=mismatch)


def match_budgets(
    arms: Sequence[Arm], rule: Rule, measures: Measures, *, threads: int | None = None
) -> list[Arm]:
    """Assign every arm the baseline's length, precision, threads and, by ``rule``, budget.

    ``threads`` is the default of a run; None: the machine's.

    The baseline is the first arm. Minutes become the baseline's steps, once; an arm with other
    batches gets as many tokens. Raises ConfigError if an arm cannot be matched.
    """
    resolved = measures.resolve(absolute_paths(arms[0].loaded.recipe), is_new=True)
    if threads is not None:
        train = resolved.train.model_copy(update={"threads": threads})
        resolved = resolved.model_copy(update={"train": train})
    # Equal lengths come first: matching starts from them.
    shared = [_shared(arm.loaded.recipe, arms[0].loaded.recipe, resolved) for arm in arms]
    even = [
        replace(arm, loaded=arm.loaded.vary(settings, origin=ORIGIN))
        for arm, settings in zip(arms, shared, strict=True)
    ]
    models = list(map(measures.model, even))
    seconds = None
    if rule == "time":
        # Each arm in turn, then in reverse order: a steady drift of the machine's speed affects all
        # arms equally.
        there = [measures.step_s(arm.loaded, len(even)) for arm in even]
        back = [measures.step_s(arm.loaded, len(even)) for arm in reversed(even)]
        seconds = [(one + other) / 2 for one, other in zip(there, reversed(back), strict=True)]
    matches = match_arms(even, models, rule, steps=measures.steps(even[0]), step_seconds=seconds)
    matched_arms = []
    for arm, settings, match in zip(arms, shared, matches, strict=True):
        assert match is not None, "with steps and seconds every rule can match"
        settings |= override_layer(match.overrides, ORIGIN).values
        matched_arms.append(settle(arm, settings, match.overrides, match.mismatch))
    return matched_arms


def _shared(recipe: Recipe, baseline: Recipe, resolved: ResolvedRecipe) -> dict[str, Any]:
    """Return the settings that an arm leaves to the machine, as the baseline resolved them.

    With minutes, the arm's evaluations are as few and short as the baseline's.
    """
    train, settled = recipe.train, resolved.train
    settings: dict[str, Any] = {}
    if train.precision == "auto":
        settings["train.precision"] = settled.precision
    if train.threads is None:
        settings["train.threads"] = settled.threads
    if train.minutes is None or _length(recipe) != _length(baseline):
        return settings
    steps = max(1, round(settled.steps * tokens_per_step(resolved) / tokens_per_step(recipe)))
    settings["train.steps"] = steps
    usual_steps = math.ceil(settled.steps / EVALUATIONS)
    if train.evaluate_steps is None and settled.evaluate_steps > usual_steps:
        n_evaluations = math.ceil(settled.steps / settled.evaluate_steps)
        settings["train.evaluate_steps"] = math.ceil(steps / n_evaluations)
        if train.evaluate_tokens is None:
            settings["train.evaluate_tokens"] = settled.evaluate_tokens
    return settings


def _length(recipe: Recipe) -> list[Any]:
    return [getattr(recipe.train, name) for name in LENGTHS]


def shared_threads(jobs: int) -> int:
    """Return the threads of a run when ``jobs`` runs share the cores: at least one."""
    return max(1, cores() // jobs)


def share_threads(arms: Sequence[Arm], jobs: int) -> tuple[Arm, ...]:
    """Set the shared threads in arms that leave them open."""
    shared = []
    for arm in arms:
        train = arm.loaded.recipe.train
        if train.threads is None and not train.exact:
            settings = {"train.threads": shared_threads(jobs)}
            arm = replace(arm, loaded=arm.loaded.vary(settings, origin=ORIGIN))
        shared.append(arm)
    return tuple(shared)


Currency = Literal["parameters", "operations", "time"]

TIME_TOLERANCE = 0.03
"""The largest unreported excess of measured time, as a share.

Successive runs of one recipe on a quiet machine have a standard deviation of 0.8 to 1.6 % (five
seeds per arm, records/t5-optimizer), hence the difference between two medians of five 0.6 to 1.3 %:
an excess of two to five times as much is hardly timing noise.
"""
TOLERANCES: dict[Currency, float] = {
    "parameters": TOLERANCE,
    "operations": TOLERANCE,
    "time": TIME_TOLERANCE,
}


@dataclass(frozen=True)
class Budget:
    """The cost of a run of an arm, realised or planned; None if unknown."""

    parameters: int
    """The unique parameters of the inference model."""
    operations: float | None = None
    """Floating-point operations of training."""
    time: float | None = None
    """Seconds of training; None unless time was matched."""

    def excess_over(self, other: "Budget") -> "Excess":
        """Compute the excess of a budget over another."""
        shares: dict[str, float | None] = {}
        for currency in TOLERANCES:
            value, base = getattr(self, currency), getattr(other, currency)
            shares[currency] = None if value is None or not base else value / base - 1.0
        return Excess(**shares)


@dataclass(frozen=True)
class Excess:
    """The excess cost of an arm over its comparison partner, as shares of the partner's costs.

    Negative if the arm takes less, None if unknown for one of the two.
    """

    parameters: float | None
    operations: float | None
    time: float | None = None

    @property
    def shares(self) -> dict[Currency, float]:
        """The known shares, by currency."""
        shares = {currency: getattr(self, currency) for currency in TOLERANCES}
        return {currency: share for currency, share in shares.items() if share is not None}

    @property
    def beyond(self) -> dict[Currency, float]:
        """Shares beyond their tolerance: 0.5 %, and 3 % of time, which is measured."""
        return {name: share for name, share in self.shares.items() if abs(share) > TOLERANCES[name]}


NOTHING = Excess(None, None)
"""The excess of an arm with unknown costs."""


@dataclass(frozen=True)
class ArmBudget:
    """An arm's excess over its comparison partner, planned and realised."""

    arm: str
    against: str | None
    """The comparison partner; None without one."""
    planned: Excess = NOTHING
    """Planned: from the settings, before training."""
    realised: Excess = NOTHING
    """Realised: from the trained runs."""

    def to_json(self) -> dict[str, Any]:
        """Write an arm's excess as plain values, without the arm's name."""
        content = asdict(self)
        del content["arm"]
        return content


def read_budget(arm: str, content: Mapping[str, Any]) -> ArmBudget:
    """Read what ``ArmBudget.to_json`` wrote."""
    planned, realised = Excess(**content["planned"]), Excess(**content["realised"])
    return ArmBudget(arm, content["against"], planned, realised)


def plan_budgets(
    arms: Sequence[Arm],
    models: Sequence[ResolvedModel],
    steps: Sequence[int | None],
    rule: Rule,
    *,
    seconds: Sequence[float | None] = (),
) -> list[ArmBudget]:
    """Compute the planned excess of each arm over its comparison partner, in order.

    ``arms`` are matched, ``models`` are their models; ``steps`` are per run of each, ``seconds``
    its time if time is matched: None if unknown. Unknown lengths that will be the same for all
    count as equal.
    """
    first = arms[0].loaded.recipe
    recipes = [arm.loaded.recipe for arm in arms]
    # Minutes become the baseline's tokens. The tokens of an epoch depend on the text and on the
    # context that divides it.
    has_one_length = rule not in ("flops", "time") and all(
        _length(recipe) == _length(first)
        and (first.train.epochs is None or recipe.data == first.data)
        for recipe in recipes
    )
    is_known, budgets = set(steps) != {None}, {}
    for number, (arm, recipe) in enumerate(zip(arms, recipes, strict=True)):
        n_steps, model, tokens = steps[number], models[number], None
        if n_steps is not None:
            tokens = n_steps * tokens_per_step(recipe)
        elif has_one_length and not is_known:
            tokens = 1
        per_token = flops_per_token(model, recipe.data.context, recipe.objective)
        budgets[arm.name] = Budget(
            count_parameters(model).total,
            None if tokens is None else tokens * per_token,
            seconds[number] if seconds else None,
        )
    planned = []
    for arm in arms:
        other = arm.against or arms[0].name
        is_alone = other == arm.name
        excess = NOTHING if is_alone else budgets[arm.name].excess_over(budgets[other])
        planned.append(ArmBudget(arm.name, None if is_alone else other, excess))
    return planned
