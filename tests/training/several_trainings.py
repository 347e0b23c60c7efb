"""Do one thing after the other in each of several processes: a list of tasks, in a JSON file.

Each is a list, words of the command line, or an object:

``end``: train ``recipe`` with ``settings`` in ``out`` up to this step, after which all processes
    end at once, without saving;
``into``: save what ``recipe`` begins with, or the checkpoint ``restore``, in this folder;
``differing``: words of the command line, to which each process adds its number as the seed;
``found``: the folder that gets the answers of ``shared_work``, asked with ``paths``.
"""

import json
import sys
from pathlib import Path

import torch

from sublayer import cli
from sublayer.config.layering.layers import load_recipe
from sublayer.runs.run import train_run
from sublayer.runs.session import Place
from sublayer.training.checkpoints.loop_state import LoopState
from sublayer.training.checkpoints.snapshots import Snapshots
from sublayer.training.processes import joining
from sublayer.training.processes.joining import join_world
from sublayer.training.progress import SilentProgress
from tests.training import shared_work
from tests.training.runs import open_session

CPU = torch.device("cpu")


class EndAfter(SilentProgress):
    def __init__(self, step):
        self.step = step

    def update(self, status):
        if status.step == self.step:
            raise EOFError


def save_again(told):
    loaded = load_recipe(told["recipe"], told["settings"])
    session = open_session(loaded, Place(CPU, join_world(CPU)))
    snapshots = Snapshots(Path(told["into"]), session.train_step, lambda folder: None)
    restored = told.get("restore")
    state = snapshots.restore(Path(restored)) if restored else LoopState()
    snapshots.saving.save(state)
    snapshots.saving.wait()


def break_off(told):
    loaded = load_recipe(told["recipe"], told["settings"])
    try:
        train_run(loaded, Path(told["out"]), resume=True, progress=EndAfter(told["end"]))
    except EOFError:
        return None
    return f"did not get to step {told['end']}"


def answer(told):
    world = join_world(CPU)
    found = {"scores": shared_work.scores(world, told["paths"])}
    found["agreement"] = shared_work.agreement(world)
    (Path(told["found"]) / f"{world.rank}.json").write_text(json.dumps(found))


def differ(told):
    words = [*told["differing"], f"train.seed={join_world(CPU).rank}"]
    return None if cli.main(words) == 2 else "was not refused"


def do(told):
    kinds = {"into": save_again, "end": break_off, "found": answer, "differing": differ}
    if isinstance(told, list):
        return cli.main(told)
    return next(work for kind, work in kinds.items() if kind in told)(told)


if __name__ == "__main__":
    torch.set_num_threads(1)
    leave_world = joining.leave_world
    # A group of processes that was left is not joined again under one launcher.
    joining.leave_world = lambda: None
    for told in json.loads(Path(sys.argv[1]).read_text()):
        code = do(told)
        if code:
            sys.exit(f"{told} ended with {code}")
    leave_world()
