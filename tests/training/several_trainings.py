"""Train one after the other in each of several processes: what to train, in a JSON file.

Each is words of the command line or, to break off, the name of a recipe, its settings, its folder
and the step after which all processes end at once, without saving; or a checkpoint that is restored
and saved again in another folder.
"""

import json
import sys
from pathlib import Path

import torch

from sublayer import cli
from sublayer.config.layering.layers import load_recipe
from sublayer.runs.resolution import resolve
from sublayer.runs.run import train_run
from sublayer.runs.session import Place, assemble, prepare_data
from sublayer.training.checkpoints.loop_state import LoopState
from sublayer.training.checkpoints.snapshots import Snapshots
from sublayer.training.processes import joining
from sublayer.training.processes.joining import join_world
from sublayer.training.progress import SilentProgress


class Ended(Exception):
    """A process ends here."""


class EndAfter(SilentProgress):
    def __init__(self, step):
        self.step = step

    def update(self, status):
        if status.step == self.step:
            raise Ended


def save_again(told):
    place = Place(torch.device("cpu"), join_world(torch.device("cpu")))
    loaded = load_recipe(told["recipe"], told["settings"])
    data = prepare_data(loaded.recipe)
    session = assemble(resolve(loaded.recipe, data, place), data, place)
    snapshots = Snapshots(Path(told["into"]), session.train_step, lambda folder: None)
    restored = told.get("restore")
    state = snapshots.restore(Path(restored)) if restored else LoopState()
    snapshots.saving.save(state)
    snapshots.saving.wait()


def train(words):
    if "into" in words:
        return save_again(words)
    if isinstance(words, dict):
        loaded = load_recipe(words["recipe"], words["settings"])
        try:
            train_run(loaded, Path(words["out"]), resume=True, progress=EndAfter(words["end"]))
        except Ended:
            return 0
        return f"did not get to step {words['end']}"
    return cli.main(words)


if __name__ == "__main__":
    leave_world = joining.leave_world
    # A group of processes that was left is not joined again under one launcher.
    joining.leave_world = lambda: None
    for words in json.loads(Path(sys.argv[1]).read_text()):
        code = train(words)
        if code:
            sys.exit(f"{words} ended with {code}")
    leave_world()
