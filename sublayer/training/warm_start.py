"""Start training from another model's weights, part by part: all of them or the first blocks."""

from collections.abc import Collection
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from sublayer.config.architecture import POSITIONS
from sublayer.config.heads import HEADS
from sublayer.config.stacks import check_first_blocks
from sublayer.config.train import InitConfig
from sublayer.counts import count
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError
from sublayer.loading import find_model, load_model_tokenizer, load_task, load_untokenized
from sublayer.model.body import Body
from sublayer.model.build import EncoderDecoder
from sublayer.model.layers.stack import Stack
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective
from sublayer.tasks.spec import TaskSpec
from sublayer.training.load_into import load_into
from sublayer.training.start_heads import fresh_heads, without_output_bias
from sublayer.training.start_rows import added_ids, describe_added, describe_cut, fit_rows


class Pretrained:
    """The model that ``[init]`` names; its tokenizer and its weights are each read once.

    Each is read when it is first asked for: to prepare data takes the tokenizer alone. What is
    asked for first raises the errors of reading it, CheckpointError among them.
    """

    def __init__(self, init: InitConfig) -> None:
        self.init = init

    @cached_property
    def model(self) -> Transformer | None:
        """The model with its weights, not its tokenizer; None where training starts from none."""
        return None if self.folder is None else load_untokenized(self.folder)

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """Its tokenizer; None where it has none."""
        return None if self.folder is None else load_model_tokenizer(self.folder)

    @cached_property
    def task(self) -> TaskSpec | None:
        """What it answers; None where that is no task."""
        return None if self.folder is None else load_task(self.folder)

    @cached_property
    def folder(self) -> Path | None:
        """Its model folder; None where training starts from none."""
        if self.init.run is None:
            return None
        return find_model(Path(self.init.run))


@torch.no_grad()
def start_from(model: Transformer, pretrained: Pretrained) -> list[str]:
    """Copy the parts that ``[init]`` names into a model; return in lines which start fresh and why.

    The model has its tokenizer and its task. Tokens that the start's tokenizer lacks keep their
    initial rows, behind all others; of learned positions the first are taken. A head that only one
    of the models has is no obstacle: it keeps its initial weights, or is left out. So is one that
    has other weights, or answers otherwise. With ``init.layers`` = n the first n blocks of every
    stack are taken, with everything that stands outside the blocks, such as the table of relative
    positions that a stack's blocks share; the other blocks keep their initial weights. Without a
    model to start from nothing is done, and no line returned.

    Raises ConfigError if a stack of either model has fewer blocks than asked for, CheckpointError
    where names or shapes within a part differ.
    """
    source = pretrained.model
    init = pretrained.init
    if source is None or init.run is None:
        return []
    where = Path(init.run)
    fresh = fresh_heads(model, source, pretrained.task, init.run)
    left_out = [name for name in source.heads if name not in model.heads]
    targets = _without(model, fresh)
    new_ids = added_ids(model.tokenizer, pretrained.tokenizer)
    tensors = fit_rows(_without(source, {*fresh, *left_out}), targets, new_ids, where)
    reasons = describe_added(model, source, model.tokenizer, new_ids)
    reasons += without_output_bias(targets, tensors, init.run)
    for name, reason in fresh.items():
        reasons.append(f"{HEADS[name].title} ({reason})")
    if init.layers is None:
        load_into(targets, tensors, where)
    else:
        _check_blocks(model, source, init)
        load_into(
            _outside_blocks(model, targets, init.layers),
            _outside_blocks(source, tensors, init.layers),
            where,
        )
        _copy_first_blocks(model, source, init)
        reasons += _fresh_blocks(model, init.layers)
    notes = []
    if reasons:
        notes.append(f"starts fresh: {', '.join(reasons)}")
    if left_out:
        titles = ", ".join(HEADS[name].title for name in left_out)
        notes.append(f"left out of {init.run}: {titles} (the recipe asks for none)")
    return notes + describe_cut(model, source, init.run)


def note_training_only(objective: Objective, pretrained: Pretrained) -> list[str]:
    """Format that what training alone needs starts fresh, where all else does not.

    A line at most; none where training starts from no model, or needs nothing of its own.
    """
    values = objective.training_only().values()
    if pretrained.init.run is None or not values:
        return []
    n_parameters = sum(value.numel() for value in values)
    return [
        f"starts fresh: {count(n_parameters, 'parameter')} that training alone needs "
        "(no saved model has them)"
    ]


def _without(model: Transformer, heads: Collection[str]) -> dict[str, Tensor]:
    """Collect a model's tensors by name, but for those of some heads."""
    prefixes = tuple(f"{HEADS[name].attribute}." for name in heads)
    tensors = {}
    for name, value in model.state_dict().items():
        if not name.startswith(prefixes):
            tensors[name] = value
    return tensors


def _check_blocks(model: Transformer, source: Transformer, init: InitConfig) -> None:
    assert init.layers is not None, "the first blocks are asked for"
    check_first_blocks(init.layers, source.config, f"the model of {init.run}")
    check_first_blocks(init.layers, model.config, "the recipe")


def _bodies(model: Transformer) -> dict[str, Body]:
    """Return what stands between embeddings and heads, by what its tensors' names begin with."""
    if isinstance(model, EncoderDecoder):
        return {"source.": model.source, "": model}
    return {"": model}


def _outside_blocks(
    model: Transformer, tensors: dict[str, Tensor], n_blocks: int
) -> dict[str, Tensor]:
    """Leave out the stacks' tensors, and the position tables of the blocks that are not taken."""
    outside = dict(tensors)
    for prefix, body in _bodies(model).items():
        for name in tensors:
            if name.startswith(f"{prefix}{body.shape.name}."):
                outside.pop(name)
        if POSITIONS[model.config.positions].adds_before == "every":
            # Each block's position table goes with its block.
            for layer in range(n_blocks, body.shape.n_layers):
                outside.pop(f"{prefix}positions.tables.{layer}.weight", None)
    return outside


def _copy_first_blocks(model: Transformer, source: Transformer, init: InitConfig) -> None:
    assert init.run is not None and init.layers is not None, "there is a model to start from"
    for stack, its in zip(model.stacks, source.stacks, strict=True):
        for layer in range(init.layers):
            ours = stack.block(layer)
            theirs = its.block(layer)
            if len(ours) != len(theirs):
                raise CheckpointError(
                    f"the blocks of {init.run} have {len(theirs)} sub-layers, the recipe's "
                    f"{len(ours)}"
                )
            for target, sublayer in zip(ours, theirs, strict=True):
                load_into(target.state_dict(), sublayer.state_dict(), Path(init.run))


def _fresh_blocks(model: Transformer, n_blocks: int) -> list[str]:
    """Count, in words, the blocks whose weights none of the first shares with them."""
    counted = []
    bodies = _bodies(model).values()
    for body in bodies:
        n_fresh = _n_fresh(body.stack, n_blocks)
        of = "block" if len(bodies) == 1 else f"{body.shape.name} block"
        if n_fresh:
            counted.append(f"{n_fresh} of {count(body.shape.n_layers, of)}")
    if not counted:
        return []
    return [f"{' and '.join(counted)} (init.layers = {n_blocks})"]


def _n_fresh(stack: Stack, n_blocks: int) -> int:
    taken: set[int] = set()
    for layer in range(n_blocks):
        taken.update(map(id, stack.block(layer)))
    n_fresh = 0
    for layer in range(n_blocks, len(stack.slots)):
        own = set(map(id, stack.block(layer)))
        n_fresh += not own <= taken
    return n_fresh
