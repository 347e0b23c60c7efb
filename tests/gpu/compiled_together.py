"""Train in some processes, compiled and not: print how far apart both are, as JSON.

Started with a device, a text, and names of kinds or of cases of several processes.
"""

import json
import sys

import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.utils import counters
from torch.fx import GraphModule

from sublayer.training.step import allow_graphs
from sublayer.training.world import join_world, leave_world
from tests.gpu.kinds import KINDS, open_session

CASES = {
    "whole copies": {"train.shard": "none", "train.recompute": "blocks"},
    "kept for a step": {"train.shard": "optimizer"},
    "recomputed": {"train.shard": "full", "train.recompute": "blocks"},
    "auxiliary, in parts": {"train.shard": "full", **KINDS["auxiliary"]},
    "shared, in parts": {"train.shard": "full", "model.share": "all"},
}


def main():
    place, plain, *names = sys.argv[1:]
    torch.set_num_threads(1)
    device, found = torch.device(place), {}
    world = join_world(device)
    attentions = _compile_and_count("aot_eager" if place == "cpu" else "inductor")
    for name in names:
        settings = {**{**KINDS, **CASES}[name], "model.dropout": 0.0}
        sessions = [open_session(plain, settings, device, world) for _ in "ab"]
        allow_graphs(12)
        sessions[1].train_step.parallel.compile()
        # What was compiled for one case would be taken for the next.
        torch._dynamo.reset()
        for counted in (attentions, counters):
            counted.clear()
        figures = [_train(each, evaluates=world.size > 1) for each in sessions]
        worst = max(abs(ours - theirs) / abs(ours) for ours, theirs in zip(*figures, strict=True))
        n_breaks = sum(counters["graph_break"].values())
        found[name] = {"worst": worst, "attentions": len(attentions), "breaks": n_breaks}
        found[name]["graphs"] = counters["stats"]["unique_graphs"]
    if world.is_main:
        print(json.dumps(found), flush=True)
    world.wait()
    leave_world()


def _train(session, *, evaluates):
    figures = []
    for step in range(3):
        result = session.train_step(step)
        figures += [float(result.loss), float(result.gradient_norm)]
        if step == 1 and evaluates:
            figures.append(session.evaluate()["loss"])
    return figures


def _compile_and_count(name):
    """Have modules compiled by a backend, no code generated; return attentions as met."""
    backend, compile_module, attentions = lookup_backend(name), nn.Module.compile, []

    def counting(graph, inputs):
        # What is recomputed is a graph within.
        graphs = [each for each in graph.modules() if isinstance(each, GraphModule)]
        names = [str(node.target) for each in graphs for node in each.graph.nodes]
        attentions.extend(each for each in names if "scaled_dot_product_attention" in each)
        return backend(graph, inputs)

    nn.Module.compile = lambda module: compile_module(module, backend=counting)
    return attentions


if __name__ == "__main__":
    main()
