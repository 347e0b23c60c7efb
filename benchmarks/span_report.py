"""Measurements of span corruption, as JSON and as tables."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from contestants import OURS
from products import share_of_products
from report import best_setups, compare, heading, products_verdict, training_table
from rounds import Rounds, Timing
from span_models import PEER, WITHOUT
from turns import Contestant

from sublayer.config.recipe import ResolvedRecipe

TRAINING_AIM, MEMORY_AIM, DECODING_AIM = 1.5, 0.7, 2.0
POSITIONS_AIM, BATCH_AIM, CORRUPTION_AIM_S = 0.05, 0.01, 0.3


def describe_training(rounds: Rounds, recipe: ResolvedRecipe, raw_length: int) -> dict[str, Any]:
    """Describe a case of training: ours against transformers, and against ours without positions.

    ``recipe`` is ours; ``raw_length`` counts the tokens of a piece, which are those counted a
    second, and of which the input keeps ``data.context``.
    """
    rivals = [timing for timing in rounds.timings if timing.setup.contestant != WITHOUT]
    ours = best_setups(rivals)[OURS]
    case = compare(replace(rounds, timings=rivals), recipe)
    # Operations are counted for a token of the context.
    context_tokens_per_s = ours.median * recipe.data.context / raw_length
    product_speed = statistics.median(rounds.product_flops_per_s)
    return {
        **case,
        "share_of_products": share_of_products(recipe, context_tokens_per_s, product_speed),
        "positions_cost": _cost_of_positions(ours, rounds.timings),
        "batch_share_of_a_step": (ours.loading_s or 0.0) / ours.step_s,
    }


def _cost_of_positions(ours: Timing, timings: Sequence[Timing]) -> dict[str, float] | None:
    """Compute by how much a step with positions is longer than one without, as a share of that.

    Of medians, and the median of the rounds' own shares; None where there was no such setup.
    """
    for timing in timings:
        is_alike = timing.setup.precision == ours.setup.precision
        if timing.setup.contestant == WITHOUT and is_alike:
            pairs = zip(ours.s_per_step, timing.s_per_step, strict=True)
            of_rounds = [with_ / without - 1 for with_, without in pairs]
            return {
                "of_medians": ours.step_s / timing.step_s - 1,
                "median_of_rounds": statistics.median(of_rounds),
                "least": min(of_rounds),
                "most": max(of_rounds),
            }
    return None


def describe_decoding(best: Sequence[Contestant]) -> dict[str, Any]:
    """Describe a case of decoding by each contestant's best setup, fastest first."""
    medians = {each.name: each.median for each in best}
    rows = [
        {"name": each.name, "setup": each.setup, "per_s": each.median, "rounds": each.per_s}
        for each in best
    ]
    return {"contestants": rows, "speed_over_transformers": medians[OURS] / medians[PEER]}


def markdown(result: Mapping[str, Any]) -> str:
    """Write the tables, with a sentence on each case."""
    lines = [f"{heading(result)}; up to {result['rounds']} interleaved rounds, medians.", ""]
    for case in result["training"]:
        lines += [f"**{case['description']}**; {case['rounds']} rounds", ""]
        lines += [*training_table(case), "", _training_verdict(case), products_verdict(case), ""]
    if result["decoding"]:
        lines += [*_decoding_table(result["decoding"]), ""]
    for case in result["corruption"]:
        seconds = statistics.median(case["s_per_million_tokens"])
        lines.append(
            f"Corrupting 1 M tokens takes {seconds:.3f} s of one core (aim {CORRUPTION_AIM_S:g}): "
            f"{case['description']}."
        )
    return "\n".join(lines).rstrip() + "\n"


def _training_verdict(case: Mapping[str, Any]) -> str:
    cost = case["positions_cost"]
    positions = "were not compared with none"
    if cost is not None:
        positions = (
            f"cost {cost['of_medians']:.1%} of a step without "
            f"({cost['median_of_rounds']:.1%} in the median round, aim {POSITIONS_AIM:.0%})"
        )
    return (
        f"{case['speed_over_fastest_peer']:.2f} times transformers (aim {TRAINING_AIM:g}), "
        f"{case['memory_over_fastest_peer']:.2f} of its memory (aim {MEMORY_AIM:g}); "
        f"relative positions {positions}; "
        f"a batch takes {case['batch_share_of_a_step']:.2%} of a step "
        f"(aim below {BATCH_AIM:.0%})."
    )


def _decoding_table(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "| greedy decoding | | setup | tokens/s | slowest to fastest round "
        f"| ours / it (aim {DECODING_AIM:g}) |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    for case in cases:
        ours = next(row["per_s"] for row in case["contestants"] if row["name"] == OURS)
        for row in case["contestants"]:
            cells = [
                case["description"],
                row["name"],
                row["setup"],
                f"{row['per_s']:,.0f}",
                f"{min(row['rounds']):,.0f} to {max(row['rounds']):,.0f}",
                f"{ours / row['per_s']:.2f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines
