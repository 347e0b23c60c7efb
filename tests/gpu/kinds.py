"""A tiny run of every kind of model and objective, and of every optimizer, on any device."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sublayer.config.load import load_recipe
from sublayer.runs.session import Place
from sublayer.training.world import World
from tests.breadth import TRIES_ALL
from tests.made import MASKED, PAIR, QUESTIONS, SPAN, TEXT, TINY, TRANSLATION, TRAVERSAL
from tests.training.runs import open_session as open_on

ALONE = World(rank=0, size=1)
KINDS = {
    "decoder": {}, "documents": {"data.boundaries": "respect", "model.positions": "rotary"},
    "alibi": {"model.positions": "alibi", "model.norm": "rms", "model.ffn": "swiglu"},
    "parallel": {"model.block": ["attention+ffn:reglu2"], "model.norm": "dyt"},
    "auxiliary": {"objective.auxiliary": "layers", "objective.targets": 2},
    "lstm": {"model.kind": "lstm"}, "masked": {**MASKED, "data.context": 64},
    "shared": {**MASKED, "data.context": 64, "model.share": "all", "model.d_embed": 12},
    "translation": TRANSLATION, "span": {**SPAN, "model.positions": "relative"}, "pair": PAIR,
    "traversal": TRAVERSAL, "questions": {**QUESTIONS, "data.context": 64},
    "questions, joint": {**QUESTIONS, "data.context": 64, "data.tasks": "squad2"}, "text": TEXT,
}  # fmt: skip
_WAITING = {"_local_scalar_dense", "nonzero", "bincount", "masked_select", "unique2", "unique_dim"}
_WAITING |= {"unique_consecutive", "equal", "repeat_interleave", "lift_fresh"}
"""What would wait for a GPU: numbers read back, results as large as their content says, and what
``torch.tensor`` makes here to be copied there."""


def chosen(table, *names):
    return list(table) if TRIES_ALL else [name for name in table if name in names]


def open_session(path, settings, device, world=ALONE):
    given = {**TINY, "data.path": str(path(settings) if callable(path) else path), **settings}
    if given.get("model.kind") == "lstm":
        del given["model.n_heads"]
    return open_on(load_recipe("gpt", given), Place(torch.device(device), world))


def gradients(session, step=0):
    train_step = session.train_step
    train_step.objective.train()
    train_step.objective.begin(step, train_step.recipe.train.steps)
    loss = train_step._accumulate(step, train_step.prepare(step)[0])
    found = {name: value.grad for name, value in train_step.parameters.items()}
    return float(loss), {name: x.detach().cpu() for name, x in found.items() if x is not None}


class NothingWaits(TorchDispatchMode):
    """Fails at an operator that would wait for another device than the CPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in _WAITING, f"{name} would wait for the device"
        return func(*args, **(kwargs or {}))
