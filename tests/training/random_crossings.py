"""Models, objectives and optimizers drawn at random, trained by several processes in every way.

Started by torchrun with the four texts of ``Texts``, the first number to draw by and how many:
prints a line for each, with what is not as it should be, or ``alike``.
"""

import random
import sys
import tempfile
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from sublayer.errors import ConfigError
from sublayer.files.checkpoints import checkpoint_path
from sublayer.training.checkpoints.loop_state import LoopState
from sublayer.training.checkpoints.snapshots import Snapshots
from sublayer.training.processes.joining import join_world, leave_world
from tests.gpu.kinds import ALONE, KINDS, OPTIMIZERS, Texts, open_session
from tests.model.covering_axes import ROWS

OBJECTIVES = {
    "decoder": ["decoder", "documents", "auxiliary", "traversal"],
    "encoder": ["masked", "pair", "questions"],
    "encoder-decoder": ["translation", "span", "text"],
    "lstm": ["lstm"],
}
N_STEPS = 3
DEVICE = torch.device("cpu")
TOLERANCE = {"float32": 1e-3, "bfloat16": 3e-2}


def draw(number):
    """Draw the settings of a tiny run, some of which may contradict each other."""
    chooser = random.Random(number)
    row = chooser.choice(ROWS)
    name = chooser.choice(OBJECTIVES[row["kind"]])
    settings = {**KINDS[name], **OPTIMIZERS[chooser.choice(list(OPTIMIZERS))]}
    settings |= {
        "model.d_model": chooser.choice([8, 16, 24]),
        "model.d_ff": chooser.choice([6, 20, 32]),
        "model.n_layers": chooser.choice([2, 4]),
        "train.batch_sequences": chooser.choice([4, 6, 7, 12]),
        "train.micro_batch_sequences": chooser.choice([1, 2, 3]),
        "train.recompute": chooser.choice(["none", "blocks"]),
        "train.precision": chooser.choice(["float32", "float32", "bfloat16"]),
        "train.seed": number,
    }
    if name == "lstm":
        del settings["model.d_ff"], settings["train.recompute"]
    share = chooser.random()
    of_row = {
        f"model.{field}": value
        for field, value in row.items()
        if field != "kind" and value is not None and chooser.random() < share
    }
    return settings | of_row | {"model.dropout": 0.0}, list(of_row)


def without_contradictions(settings, droppable, build):
    """Leave out what is refused, field by field."""
    settings, droppable = dict(settings), [name for name in droppable if name in settings]
    while True:
        try:
            build(settings)
            return settings
        except ConfigError as error:
            if not droppable:
                raise
            named = [name for name in droppable if name in str(error)] or droppable
            droppable.remove(named[0])
            del settings[named[0]]


def train(session):
    """Return losses and gradient norms, with an evaluation between them."""
    figures = []
    for step in range(N_STEPS):
        result = session.train_step(step)
        figures += [float(result.loss), float(result.gradient_norm)]
        if step == 1:
            figures.append(session.evaluate().get("loss", 0.0))
    return figures


def weights(session):
    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()
        for name, value in session.train_step.objective.state_dict().items()
    }


def are_equal(one, other):
    return all(torch.equal(value, other[name]) for name, value in one.items())


def far_apart(ours, theirs, precision):
    worst = max(abs(a - b) / max(abs(a), 1e-3) for a, b in zip(ours, theirs, strict=True))
    return worst > TOLERANCE[precision]


def check_parts(settings, folder, build):
    """Return what is wrong of parts: beside whole copies, and once they are saved and read."""
    precision = settings["train.precision"]
    whole = train(build({**settings, "train.shard": "none"}))
    wrong = []
    for shard in ("optimizer", "full"):
        divided = build({**settings, "train.shard": shard})
        if far_apart(whole, train(divided), precision):
            wrong.append(f"{shard} is far from whole copies")
    snapshots = Snapshots(folder, divided.train_step, lambda folder: None)
    snapshots.saving.save(LoopState(N_STEPS, tokens=1, seconds=1.0, step_seconds=1.0))
    snapshots.saving.wait()
    for shard in ("none", "full"):
        read = build({**settings, "train.shard": shard})
        restored = Snapshots(folder, read.train_step, lambda folder: None)
        restored.restore(checkpoint_path(restored.root, N_STEPS))
        if not are_equal(weights(divided), weights(read)):
            wrong.append(f"what is read with shard = {shard} is not what was saved")
    divided.train_step(N_STEPS)
    read.train_step(N_STEPS)
    if not are_equal(weights(divided), weights(read)):
        wrong.append("what was read goes on otherwise")
    return wrong


def check_exact(settings, build):
    """Return what is wrong of exact training, with dropout and a micro-batch for each row."""
    settings = {**settings, "train.exact": True, "model.dropout": 0.1}
    settings["train.micro_batch_sequences"] = 1
    several, alone = build(settings), build(settings, ALONE)
    is_same = train(several) == train(alone) and are_equal(weights(alone), weights(several))
    return [] if is_same else ["exact is not what one process computes"]


def main():
    *paths, first, number = sys.argv[1:]
    torch.set_num_threads(1)
    world = join_world(DEVICE)
    texts = Texts(*map(Path, paths))

    def build(settings, world=world):
        return open_session(texts, settings, DEVICE, world)

    for seed in range(int(first), int(first) + int(number)):
        settings = without_contradictions(*draw(seed), build)
        with tempfile.TemporaryDirectory() as own:
            wrong = check_parts(settings, Path(world.share_text(own)), build)
            wrong += check_exact(settings, build)
            world.wait()
        if world.is_main:
            print(f"{seed}: {'; '.join(wrong) or 'alike'}: {settings}", flush=True)
    world.wait()
    leave_world()


if __name__ == "__main__":
    main()
