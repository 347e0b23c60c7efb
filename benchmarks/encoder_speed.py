"""Measure how fast encoders train here and in transformers, and in how much memory.

The contestants are interleaved; see README.md.

# BERT and ALBERT, both sizes, dropout 0.1 and 0, as they are and compiled: about forty minutes
python benchmarks/encoder_speed.py
python benchmarks/encoder_speed.py --no-compiled --minutes 19
python benchmarks/encoder_speed.py --quick      # a first impression: few rounds, few steps
python benchmarks/encoder_speed.py --families albert --sizes d256 --dropout 0.1 --out /tmp/albert
"""

import argparse
import itertools
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import compiled
import torch
from contestants import OURS
from encoders import (
    CPU_SIZES,
    FAMILIES,
    SIZES,
    EncoderSetup,
    Family,
    as_encoder,
    build_encoder_step,
    encoder_recipe,
    encoder_setups,
    peer,
)
from options import add_shared_options, note
from padded import padding_shares
from products import Products
from report import RESULTS, best_setups, compare, describe_conditions, keep, markdown, result_name
from rounds import Budget, run_rounds
from worker import serve

from sublayer.system.machine import cores

SCRIPT = Path(__file__).resolve()
PEAK_STEPS = 10


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(options.threads or cores())
    if options.serve is not None:
        serve(build_encoder_step(EncoderSetup(**json.loads(options.serve))), "cpu")
        return
    rounds, peak_steps = (2, 5) if options.quick else (options.rounds, PEAK_STEPS)
    not_compiled = compiled.why_not("cpu", is_asked=options.compiled)
    # The small ones first, so that the large ones have the time which those leave.
    chosen = list(itertools.product(options.sizes, options.families, options.dropout))
    budget = Budget(options.minutes, len(chosen))
    cases = [
        _measure(candidates, rounds, peak_steps, budget.next_case())
        for candidates in (
            compiled.with_compiled(_candidates(*case), not_compiled) for case in chosen
        )
    ]
    result = {
        "conditions": describe_conditions("cpu"),
        "rounds": rounds,
        "not_compiled": not_compiled,
        "cases": cases,
    }
    table = markdown(result, verdict)
    if not options.quick or options.out is not None:
        keep(result, table, options.out or RESULTS / result_name("cpu", "encoders"))
    print(json.dumps(result) if options.json else table)


def _candidates(size: str, family: Family, dropout: float) -> list[EncoderSetup]:
    return [
        setup
        for name in (OURS, peer(family))
        for setup in encoder_setups(name, size, dropout, family)
    ]


def _measure(
    candidates: Sequence[EncoderSetup], rounds: int, peak_steps: int, ends: float
) -> dict[str, Any]:
    size, family, dropout = candidates[0].size, candidates[0].family, candidates[0].dropout
    description = f"{FAMILIES[family]}, {SIZES[size]}, dropout {dropout:g}"
    note(f"== {description}")
    found = run_rounds(
        candidates,
        script=SCRIPT,
        rounds=rounds,
        peak_steps=peak_steps,
        ends=ends,
        products=lambda setup: Products(encoder_recipe(as_encoder(setup)), setup.precision),
        note=note,
    )
    ours = best_setups(found.timings)[OURS]
    our_share, their_share = padding_shares(encoder_recipe(candidates[0]))
    return {
        "family": family,
        "size": size,
        "description": description,
        "dropout": dropout,
        **compare(found, encoder_recipe(as_encoder(ours.setup))),
        "our_padding_share": our_share,
        "their_padding_share": their_share,
        "loading_share_of_a_step": (ours.loading_s or 0.0) / ours.step_s,
    }


def verdict(case: Mapping[str, Any]) -> str:
    """Say how a case of encoders compares with its target."""
    return (
        f"{case['speed_over_fastest_peer']:.2f} times transformers (aim 1.5), "
        f"{case['memory_over_fastest_peer']:.2f} of its memory (aim 0.6); "
        f"of what is computed {case['our_padding_share']:.1%} is padding here, "
        f"{case['their_padding_share']:.1%} there; "
        f"a batch takes {case['loading_share_of_a_step']:.2%} of a step "
        f"(aim below 2 %)."
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure how fast encoders train against transformers, in how much memory.",
        epilog="example: python benchmarks/encoder_speed.py --families bert --sizes d512",
    )
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=CPU_SIZES)
    compiled.add_option(parser)
    add_shared_options(parser, quick_rounds=2, minutes=compiled.MINUTES)
    return parser.parse_args()


if __name__ == "__main__":
    main()
