"""The operations of an arm of a chain: of a pre-training and one run of every stage after it."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sublayer.study.budget.excess import Budget, excess_over
from sublayer.study.budget.plan import ArmPlan, Plan
from sublayer.study.chain.gathering import StageRuns
from sublayer.study.chain.plan import StagePlan
from sublayer.study.chain.stages import PRETRAINING, Chain


def trained_operations(chain: Chain, runs: Mapping[str, StageRuns]) -> float | None:
    """Add up the operations of an arm's stages, by the tokens that their runs were trained on.

    ``runs`` are an arm's by stage; of each stage it is the median over its runs. None where a stage
    has no run that has ended. Ensembles train nothing.
    """
    total = 0.0
    for name, own in runs.items():
        if name != PRETRAINING and chain.stage(name).ensemble:
            continue
        spent = []
        for outcomes in own.outcomes.values():
            for outcome in outcomes:
                record = outcome.record or {}
                if record.get("flops_per_token") is not None:
                    spent.append(float(record["tokens"] * record["flops_per_token"]))
        if not spent:
            return None
        total += statistics.median(spent)
    return total


def with_stages(plan: Plan, stages: Sequence[StagePlan], chain: Chain) -> Plan:
    """Return the plan of a chain's arms, whose budgets are those of all stages.

    Of two arms that are both pre-trained a stage whose length is not known is left out: it is the
    smallest part. Where that is the pre-training, they differ by what they take for a token.
    """
    parameters = {arm.name: arm.parameters.total for arm in plan.arms}
    spent = {arm.name: _planned(arm, stages, chain) for arm in plan.arms}
    arms = []
    for arm in plan.arms:
        other = arm.budget.against
        if other is None:
            arms.append(arm)
            continue
        operations = arm.budget.planned.operations
        own, others = spent[arm.name], spent[other]
        are_pretrained = chain.of(arm.name).pretrains and chain.of(other).pretrains
        known = _known(own) & _known(others)
        if known == own.keys() | others.keys() or (are_pretrained and PRETRAINING in known):
            mine = Budget(parameters[arm.name], sum(own[stage] or 0.0 for stage in known))
            theirs = Budget(parameters[other], sum(others[stage] or 0.0 for stage in known))
            operations = excess_over(mine, theirs).operations
        elif not are_pretrained:
            operations = None
        planned = replace(arm.budget.planned, operations=operations)
        arms.append(replace(arm, budget=replace(arm.budget, planned=planned)))
    return replace(plan, arms=tuple(arms))


def _known(spent: Mapping[str, float | None]) -> set[str]:
    return {stage for stage, operations in spent.items() if operations is not None}


def _planned(arm: ArmPlan, stages: Sequence[StagePlan], chain: Chain) -> dict[str, float | None]:
    """Return the operations of each stage of an arm, None where its length is not known."""
    found: dict[str, float | None] = {}
    if not chain.of(arm.name).pretrains:
        found[PRETRAINING] = 0.0
    for stage in stages:
        if arm.name in stage.arms:
            tokens, per_token = stage.each.tokens, stage.each.flops_per_token
            found[stage.stage] = None if tokens is None else float(tokens * per_token)
    return found
