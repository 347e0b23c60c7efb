"""A process that takes training steps on random tokens until its standard input ends."""

import itertools
import json
import os
import signal
import sys

from sublayer.study.execution.process import read_lines


def main() -> int:
    """Take steps of the recipe that standard input names; say so by a line before the first."""
    # Whoever started it ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = read_lines(at_end=_end).get()
    if line is None:
        return 0
    asked = json.loads(line)

    import torch

    from sublayer.config.recipe import Recipe
    from sublayer.study.budget.measure import train_step, with_precision

    device = torch.device(asked["device"])
    recipe = Recipe.model_validate_json(asked["recipe"])
    recipe = with_precision(recipe, device, asked["d_model"])
    take_step = train_step(recipe, asked["vocab_size"], device)
    sys.stdout.write("\n")
    sys.stdout.flush()
    for number in itertools.count():
        take_step(number)
    return 0


def _end() -> None:
    # Nothing is to be saved.
    os._exit(0)
