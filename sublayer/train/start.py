"""Start training from another model's weights, all of them or its first blocks."""

from pathlib import Path

import torch

from sublayer.config.train import InitConfig
from sublayer.errors import CheckpointError, ConfigError
from sublayer.load import load
from sublayer.model.transformer import Transformer
from sublayer.train.snapshot import load_into


@torch.no_grad()
def start_from(model: Transformer, init: InitConfig) -> None:
    """Copy the weights that ``[init]`` names into a model, in place; nothing where it names none.

    With ``init.layers`` = n the first n blocks are taken, with everything that stands outside the blocks; the other
    blocks keep their initial weights. Raises ConfigError if either model has fewer blocks than asked for,
    CheckpointError where shapes differ.
    """
    if init.run is None:
        return
    source = load(init.run)
    if init.layers is None:
        load_into(model.state_dict(), source.state_dict(), Path(init.run))
        return
    if len(model.stacks) > 1:
        raise ConfigError(
            f"init.layers = {init.layers} takes the first blocks of a stack, and model.kind = {model.config.kind} has "
            "two: leave it out, which takes all of the model"
        )
    for name, blocks in ((f"the model of {init.run}", source.config.n_layers), ("the recipe", model.config.n_layers)):
        if init.layers > blocks:
            raise ConfigError(f"init.layers = {init.layers} is more than the {blocks} blocks of {name}")
    _copy_outside_blocks(model, source, init)
    for layer in range(init.layers):
        ours, theirs = model.stack.block(layer), source.stack.block(layer)
        if len(ours) != len(theirs):
            raise CheckpointError(f"the blocks of {init.run} have {len(theirs)} sub-layers, the recipe's {len(ours)}")
        for target, sublayer in zip(ours, theirs, strict=True):
            load_into(target.state_dict(), sublayer.state_dict(), Path(init.run))


def _copy_outside_blocks(model: Transformer, source: Transformer, init: InitConfig) -> None:
    assert init.run is not None and init.layers is not None, "there is a model to start from"
    targets, tensors = (
        {name: value for name, value in each.state_dict().items() if not name.startswith(f"{each.config.kind}.")}
        for each in (model, source)
    )
    if model.config.positions == "learned-per-layer":
        # Each block's position table goes with its block.
        kept = {f"positions.tables.{layer}.weight" for layer in range(init.layers, model.config.n_layers)}
        dropped = {f"positions.tables.{layer}.weight" for layer in range(init.layers, source.config.n_layers)}
        targets = {name: value for name, value in targets.items() if name not in kept}
        tensors = {name: value for name, value in tensors.items() if name not in dropped}
    load_into(targets, tensors, Path(init.run))
