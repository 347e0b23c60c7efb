"""The budgets of arms: matched in parameters, operations or time, and in excess of each other's."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from sublayer.config.load import LoadedRecipe, vary
from sublayer.config.recipe import Recipe, ResolvedModel, ResolvedRecipe
from sublayer.config.resolve_train import EVALUATIONS, run_steps
from sublayer.config.run_recipe import absolute_paths
from sublayer.config.sources import override_layer
from sublayer.config.stacks import entries
from sublayer.config.task_heads import expected_model
from sublayer.config.train import LENGTHS, TrainConfig
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.study.arms import Arm
from sublayer.study.budget.expected import tokens_per_step
from sublayer.system.memory import cores

Rule = Literal["parameters", "flops", "time", "none"]
RULES: tuple[Rule, ...] = ("parameters", "flops", "time", "none")
TOLERANCE = 0.005
"""The largest mismatch, as a share, that is not marked."""


@dataclass(frozen=True)
class Match:
    """The settings that matching changes in an arm, and the mismatch that is left.

    ``overrides`` are settings as on the command line. ``mismatch`` is the arm's excess over that
    other arm, as a share of the other's costs, in the quantity that the rule matches (in parameters
    where the rule is none).
    """

    overrides: tuple[str, ...]
    mismatch: float

    @property
    def is_unequal(self) -> bool:
        """True where the arm differs by more than 0.5 % and is marked."""
        return abs(self.mismatch) > TOLERANCE


def match_arms(
    arms: Sequence[Arm],
    models: Sequence[ResolvedModel],
    rule: Rule,
    *,
    steps: int | None = None,
    step_seconds: Sequence[float] | None = None,
) -> list[Match | None]:
    """Match every arm to the first, which keeps its settings; without a rule, only compare.

    The mismatch that is left is from the arm that each is compared with; of a control there is
    none. ``models`` are the arms' resolved configs. ``steps`` is the length of the baseline's run,
    ``step_seconds`` the measured time of each arm's step; a quantity that the rule needs and that
    is not known makes a match None. Raises ConfigError for an arm that cannot be matched, or sets
    a field that the rule would solve.
    """
    matches: list[Match | None]
    if rule == "none":
        by_name = {arm.name: model for arm, model in zip(arms, models, strict=True)}
        matches = [
            leave_unmatched(by_name[arm.name], by_name[arm.against or arms[0].name]) for arm in arms
        ]
    elif rule == "parameters":
        matches = [
            match_parameters(arm.name, model, models[0])
            for arm, model in zip(arms, models, strict=True)
        ]
    else:
        costs = step_seconds
        if rule == "flops":
            costs = [step_flops(arm, model) for arm, model in zip(arms, models, strict=True)]
        if steps is None or costs is None:
            return [None] * len(arms)
        baseline, *rest = costs
        matches = [Match((), 0.0)]
        matches += [match_steps(steps, cost=cost, baseline_cost=baseline) for cost in rest]
    for arm, match in zip(arms, matches, strict=True):
        _check_free(arm, match, rule)
    return matches


def step_flops(arm: Arm, model: ResolvedModel) -> float:
    """Count the floating-point operations of one optimizer step of an arm, on its whole batch."""
    recipe = arm.loaded.recipe
    per_token = flops_per_token(model, recipe.data.context, recipe.objective)
    return float(per_token * tokens_per_step(recipe))


def apply_match(arm: Arm, match: Match | None) -> LoadedRecipe:
    """Apply what matching changes to an arm's recipe; None, not matched yet, changes nothing."""
    if match and match.overrides:
        return vary(arm.loaded, match.overrides, origin="match")
    return arm.loaded


def match_parameters(name: str, arm: ResolvedModel, baseline: ResolvedModel) -> Match:
    """Solve ``model.d_ff`` of an arm so that its parameters come nearest to the baseline's.

    Parameters are the unique ones of the inference model, embeddings included. The width is the
    nearest integer, never rounded to a multiple. Both configs are resolved; ``name`` is the arm's
    in errors.

    Raises ConfigError where no width can match: no ffn entry, too much outside them, or weights
    that blocks share.
    """
    target = count_parameters(baseline).total
    if count_parameters(arm).total == target:
        return Match((), 0.0)
    width = _solve_width(name, arm, target)
    if arm.share != "none" or baseline.share != "none":
        sharing = arm if arm.share != "none" else baseline
        raise ConfigError(
            f"{name}: model.share = {sharing.share} is not matched by parameters, "
            f"which would take model.d_ff = {width}"
            f" instead of {arm.d_ff}; use --match flops or --match time"
        )
    overrides = () if width == arm.d_ff else (f"model.d_ff={width}",)
    n_matched = _total(arm, width)
    return Match(overrides, _excess(n_matched, target))


def match_steps(steps: int, *, cost: float, baseline_cost: float) -> Match:
    """Solve ``train.steps`` of an arm so that its whole run costs as much as the baseline's.

    ``steps`` is the baseline's number; the costs are those of one step, both in operations or both
    in seconds. The arm takes one step at least.
    """
    matched = max(1, round(steps * baseline_cost / cost))
    mismatch = _excess(matched * cost, steps * baseline_cost)
    return Match((f"train.steps={matched}",), mismatch)


def leave_unmatched(arm: ResolvedModel, baseline: ResolvedModel) -> Match:
    """Change nothing; return the excess of parameters."""
    return Match((), _excess(count_parameters(arm).total, count_parameters(baseline).total))


def _check_free(arm: Arm, match: Match | None, rule: Rule) -> None:
    if match is None or not match.overrides:
        return
    solved = {f"train.{name}" for name in LENGTHS}
    if rule == "parameters":
        solved = {"model.d_ff"}
    both = solved & arm.settings.keys()
    if both:
        raise ConfigError(
            f"arm {arm.name} sets {min(both)}, which --match {rule} solves ({match.overrides[0]}): "
            "leave it out, or use --match none"
        )


def _solve_width(name: str, arm: ResolvedModel, target: int) -> int:
    if not any(entry.ffn is not None for entry in entries(arm)):
        raise ConfigError(
            f"{name}: model.block has no ffn entry whose width could match the baseline's "
            "parameters; "
            "use --match flops, time or none"
        )
    # The count is linear in the width.
    smallest = _total(arm, 1)
    per_unit = _total(arm, 2) - smallest
    width = 1 + round((target - smallest) / per_unit)
    if width < 1:
        raise ConfigError(
            f"{name}: it has {smallest:,} parameters at model.d_ff = 1, the baseline {target:,}; "
            "make the arm smaller, or use --match flops, time or none"
        )
    return width


def _total(config: ResolvedModel, d_ff: int) -> int:
    resized = config.model_copy(update={"d_ff": d_ff})
    return count_parameters(resized).total


def _excess(value: float, baseline: float) -> float:
    return value / baseline - 1.0


ORIGIN = "study"


@dataclass(frozen=True)
class Measures:
    """The measurements of a recipe: texts are read and steps timed when these are called.

    Paths of the recipes are absolute, but for ``step_s``.
    """

    vocab_size: Callable[[Recipe], int]
    """Ids of the recipe's tokenizer."""
    train_tokens: Callable[[Recipe], int]
    """Tokens of an epoch of the train split."""
    resolve: Callable[[Recipe], ResolvedRecipe]
    """The recipe with the fields that a run of it here would fill in; minutes are measured."""
    step_s: Callable[[LoadedRecipe], float]
    """Seconds of an optimizer step; where time is matched it is asked for twice of each arm."""


def settle(arm: Arm, settings: Mapping[str, Any], matched: Sequence[str], mismatch: float) -> Arm:
    """Return an arm with all that the study settles for it; ``settings`` are laid over its recipe.

    ``matched`` are those of the settings that matching solved, ``mismatch`` is the one left.
    """
    loaded = vary(arm.loaded, settings, origin=ORIGIN) if settings else arm.loaded
    return replace(arm, loaded=loaded, settled=settings, matched=tuple(matched), mismatch=mismatch)


def match_budgets(
    arms: Sequence[Arm], rule: Rule, measures: Measures, *, threads: int | None = None
) -> list[Arm]:
    """Assign every arm the baseline's length, precision, threads and, by ``rule``, budget.

    ``threads`` are those of a run that says nothing of them; None: the machine's.

    The baseline is the first arm. Minutes become the baseline's steps, once; an arm with other
    batches gets as many tokens. Raises ConfigError where an arm cannot be matched.
    """
    baseline = arms[0]
    baseline_recipe = absolute_paths(baseline.loaded.recipe)
    resolved = measures.resolve(baseline_recipe)
    if threads is not None:
        train = resolved.train.model_copy(update={"threads": threads})
        resolved = resolved.model_copy(update={"train": train})
    shared = [_shared(arm, baseline, resolved) for arm in arms]
    # Equal lengths come first, for matching starts from them.
    even = []
    for arm, settings in zip(arms, shared, strict=True):
        loaded = vary(arm.loaded, settings, origin=ORIGIN)
        even.append(replace(arm, loaded=loaded))
    models = [arm_model(arm.loaded, measures) for arm in even]
    seconds = _step_seconds(even, measures) if rule == "time" else None
    steps = arm_steps(even[0].loaded, measures)
    matches = match_arms(even, models, rule, steps=steps, step_seconds=seconds)
    matched_arms = []
    for arm, settings, match in zip(arms, shared, matches, strict=True):
        assert match is not None, "with steps and seconds every rule has what it needs"
        solved = override_layer(match.overrides, ORIGIN).values
        settings = {**settings, **solved}
        matched_arms.append(settle(arm, settings, match.overrides, match.mismatch))
    return matched_arms


def arm_model(loaded: LoadedRecipe, measures: Measures) -> ResolvedModel:
    """Resolve the model of an arm's recipe, with the vocabulary of its tokenizer."""
    recipe = absolute_paths(loaded.recipe)
    vocab_size = measures.vocab_size(recipe)
    return expected_model(recipe, vocab_size)


def arm_steps(loaded: LoadedRecipe, measures: Measures) -> int:
    """Return the optimizer steps of an arm's recipe, measured where it has minutes of its own."""
    recipe = absolute_paths(loaded.recipe)
    train_tokens = measures.train_tokens(recipe)
    steps = run_steps(recipe, train_tokens=train_tokens)
    if steps:
        return steps
    resolved = measures.resolve(recipe)
    return resolved.train.steps


def _shared(arm: Arm, baseline: Arm, resolved: ResolvedRecipe) -> dict[str, Any]:
    """Return the settings that an arm leaves to the machine, as the baseline resolved them.

    Where minutes count, the arm's evaluations are as few and short as the baseline's.
    """
    recipe = arm.loaded.recipe
    train = recipe.train
    settings: dict[str, Any] = {}
    if train.precision == "auto":
        settings["train.precision"] = resolved.train.precision
    if train.threads is None:
        settings["train.threads"] = resolved.train.threads
    if train.minutes is None or _length(train) != _length(baseline.loaded.recipe.train):
        return settings
    tokens = resolved.train.steps * tokens_per_step(resolved)
    steps = max(1, round(tokens / tokens_per_step(recipe)))
    settings["train.steps"] = steps
    usual_steps = math.ceil(resolved.train.steps / EVALUATIONS)
    if train.evaluate_steps is None and resolved.train.evaluate_steps > usual_steps:
        n_evaluations = math.ceil(resolved.train.steps / resolved.train.evaluate_steps)
        settings["train.evaluate_steps"] = math.ceil(steps / n_evaluations)
        if train.evaluate_tokens is None:
            settings["train.evaluate_tokens"] = resolved.train.evaluate_tokens
    return settings


def _step_seconds(arms: Sequence[Arm], measures: Measures) -> list[float]:
    """Time a step of each arm in turn, and once more in reverse order.

    A machine that slows down or speeds up steadily is as slow for one arm as for another so.
    """
    there = [measures.step_s(arm.loaded) for arm in arms]
    back = [measures.step_s(arm.loaded) for arm in reversed(arms)]
    return [(first + second) / 2 for first, second in zip(there, reversed(back), strict=True)]


def _length(train: TrainConfig) -> dict[str, Any]:
    return {name: getattr(train, name) for name in LENGTHS}


def shared_threads(jobs: int) -> int:
    """Return the threads of a run where ``jobs`` runs share the cores: one at least."""
    return max(1, cores() // jobs)


def share_threads(arms: Sequence[Arm], jobs: int) -> tuple[Arm, ...]:
    """Lay their share of the threads over arms that say nothing of threads."""
    shared = []
    for arm in arms:
        train = arm.loaded.recipe.train
        if train.threads is None and not train.exact:
            settings = {"train.threads": shared_threads(jobs)}
            arm = replace(arm, loaded=vary(arm.loaded, settings, origin=ORIGIN))
        shared.append(arm)
    return tuple(shared)


Currency = Literal["parameters", "operations", "time"]

TIME_TOLERANCE = 0.03
"""The largest excess of measured time, as a share, that is not told.

Runs of one recipe, one after another on a quiet machine, spread by 0.8 to 1.6 % (standard deviation
over five seeds of each arm, records/t5-optimizer), and so the difference between two medians of
five by 0.6 to 1.3 %: an excess of two to five times that is hardly the clock's noise.
"""
TOLERANCES: dict[Currency, float] = {
    "parameters": TOLERANCE,
    "operations": TOLERANCE,
    "time": TIME_TOLERANCE,
}


@dataclass(frozen=True)
class Budget:
    """The cost of a run of an arm, realised or planned; None where it is not known."""

    parameters: int
    """The unique ones of the inference model."""
    operations: float | None = None
    """Floating-point operations of the whole training."""
    seconds: float | None = None
    """Of training; None where time was not made equal."""


@dataclass(frozen=True)
class Excess:
    """The excess cost of an arm over the arm that it is compared with, as shares of its costs.

    Each is below 0 where the arm takes less, and None where it is not known of one of the two.
    """

    parameters: float | None
    operations: float | None
    time: float | None = None

    @property
    def shares(self) -> dict[Currency, float]:
        """Those that are known, by their currencies."""
        shares = {currency: getattr(self, currency) for currency in TOLERANCES}
        return {currency: share for currency, share in shares.items() if share is not None}

    @property
    def beyond(self) -> dict[Currency, float]:
        """Those that are beyond their tolerance: 0.5 %, and 3 % of time, which is measured."""
        return {
            currency: share
            for currency, share in self.shares.items()
            if abs(share) > TOLERANCES[currency]
        }


NOTHING = Excess(None, None)
"""The excess of an arm of whose costs nothing is known."""


@dataclass(frozen=True)
class ArmBudget:
    """An arm's excess over the arm that it is compared with, as it was planned and as it came."""

    arm: str
    against: str | None
    """None for an arm that is compared with none."""
    planned: Excess = NOTHING
    """By the settings, before anything is trained."""
    realised: Excess = NOTHING
    """By the runs, as they were trained."""


def budget_to_json(budget: ArmBudget) -> dict[str, Any]:
    """Write an arm's excess as plain values; the arm's name stands elsewhere."""
    content = asdict(budget)
    del content["arm"]
    return content


def read_budget(arm: str, content: Mapping[str, Any]) -> ArmBudget:
    """Read what ``budget_to_json`` wrote."""
    planned, realised = Excess(**content["planned"]), Excess(**content["realised"])
    return ArmBudget(arm, content["against"], planned, realised)


def excess_over(budget: Budget, other: Budget) -> Excess:
    """Compute the excess of a budget over another."""
    return Excess(
        parameters=_share(budget.parameters, other.parameters),
        operations=_share(budget.operations, other.operations),
        time=_share(budget.seconds, other.seconds),
    )


def _share(value: float | None, other: float | None) -> float | None:
    if value is None or not other:
        return None
    return value / other - 1.0


def plan_budgets(
    arms: Sequence[Arm],
    recipes: Sequence[Recipe],
    models: Sequence[ResolvedModel],
    tokens: Sequence[float | None],
    rule: Rule,
    *,
    seconds: Sequence[float | None] = (),
) -> list[ArmBudget]:
    """Compute the planned excess of each arm over the arm that it is compared with, in order.

    ``recipes`` and ``models`` are those of the arms as they are matched; ``tokens`` are those that
    a run of each is trained on, ``seconds`` its time where time is matched: None where that is
    not known yet. Lengths that are not known and will be the same for all are taken as equal.
    """
    if _have_one_length(recipes, tokens, rule):
        tokens = [1.0 for _ in arms]
    seconds = seconds or [None for _ in arms]
    budgets = {}
    for arm, recipe, model, n_tokens, time in zip(
        arms, recipes, models, tokens, seconds, strict=True
    ):
        operations = None
        if n_tokens is not None:
            operations = n_tokens * flops_per_token(model, recipe.data.context, recipe.objective)
        budgets[arm.name] = Budget(count_parameters(model).total, operations, time)
    planned = []
    for arm in arms:
        other = arm.against or arms[0].name
        if other == arm.name:
            planned.append(ArmBudget(arm.name, None))
        else:
            excess = excess_over(budgets[arm.name], budgets[other])
            planned.append(ArmBudget(arm.name, other, excess))
    return planned


def _have_one_length(recipes: Sequence[Recipe], tokens: Sequence[float | None], rule: Rule) -> bool:
    """Return whether no length is known, and all arms will be trained on as many tokens."""
    is_known = any(n_tokens is not None for n_tokens in tokens)
    if is_known or rule in ("flops", "time"):
        return False
    first = recipes[0]
    if any(_length(recipe.train) != _length(first.train) for recipe in recipes):
        return False
    # Minutes become the baseline's tokens. An epoch has as many as the text has, and the context
    # divides it into.
    return first.train.epochs is None or all(recipe.data == first.data for recipe in recipes)
