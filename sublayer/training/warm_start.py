"""Warm start: weights copied from another model, and frozen weights."""

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from sublayer.config.stacks import HEADS, check_first_blocks
from sublayer.config.train import Frozen, InitConfig
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.loading import find_model, load_model_tokenizer, load_task, load_untokenized
from sublayer.model.transformer import Body, EncoderDecoder, Transformer
from sublayer.numbers import count
from sublayer.objective.base import Objective
from sublayer.tasks.registry import TaskSpec
from sublayer.text_model import TextModel
from sublayer.training.checkpoints import load_into

TOKEN_TABLES = ("embedding.weight", "head.weight", "head.bias")
"""Tensors with a row for each id of a vocabulary."""
_POSITION_TABLE = "positions.tables."
"""Part of the names of tables with a row for each position."""
OUTPUT_BIAS = "head.bias"
"""Tensor of the vocabulary head that may be missing on either side, while the others are copied."""


def fit_rows(
    tensors: Mapping[str, Tensor],
    targets: Mapping[str, Tensor],
    new_ids: range,
    where: Path,
) -> dict[str, Tensor]:
    """Resize the token and position rows of a model's ``tensors`` to match ``targets``.

    Rows keep their ids. Missing rows, and those of ``new_ids``, are taken from the target;
    positions beyond the target's are dropped. Other tensors are unchanged.

    Raises CheckpointError where the target has more positions than were learned.
    """
    fitted = dict(tensors)
    for name in tensors.keys() & targets.keys():
        value, target = tensors[name], targets[name]
        if name in TOKEN_TABLES:
            # Another width, or ids without rows, are errors when tensors are loaded.
            if value.shape[1:] == target.shape[1:] and len(value) <= len(target):
                rows = target.detach().clone()
                rows[: len(value)] = value
                fresh = slice(new_ids.start, new_ids.stop)
                rows[fresh] = target.detach()[fresh]
                fitted[name] = rows
        elif _POSITION_TABLE in name:
            if len(target) > len(value):
                raise CheckpointError(
                    f"{where} has {len(value):,} learned positions, but {len(target):,} are "
                    f"needed: give data.context={len(value)}"
                )
            fitted[name] = value[: len(target)]
    return fitted


def added_ids(tokenizer: Tokenizer | None, original: Tokenizer | None) -> range:
    """Return a tokenizer's ids beyond those of the model's original tokenizer."""
    if tokenizer is None or original is None:
        return range(0)
    return range(original.vocab_size, max(original.vocab_size, tokenizer.vocab_size))


def fresh_heads(
    text_model: TextModel, source: Transformer, answered: TaskSpec | None, run: str
) -> dict[str, str]:
    """Return the names of heads that are newly initialized, with reasons.

    ``answered`` is the task of the initial model ``run``; its label head is kept if both tasks have
    the same labels.
    """
    model, task = text_model.model, text_model.task
    # Whether one head can answer both tasks, which is assumed for a model without a task.
    answers_alike = True
    if answered is not None and task is not None:
        there, here = answered.tasks[0], task.tasks[0]
        answers_alike = (there.kind, there.labels) == (here.kind, here.labels)
        answers_alike &= there.kind != "number" or there.numbers == here.numbers
    reasons = {}
    for name in model.heads:
        if name not in source.heads:
            reasons[name] = f"{run} has none"
        elif name == "label" and not answers_alike:
            titles = ", ".join(task.title for task in answered.tasks) if answered else "another"
            reasons[name] = f"the head of {run} answers {titles}"
        elif _shapes(model, name) != _shapes(source, name):
            reasons[name] = f"the head of {run} has another shape"
    return reasons


def _shapes(model: Transformer, head: str) -> dict[str, tuple[int, ...]]:
    """Collect the shapes of a head's tensors, without the number of token rows."""
    prefix = f"{HEADS[head].attribute}."
    return {
        name: tuple(value.shape[1:] if name in TOKEN_TABLES else value.shape)
        for name, value in model.state_dict().items()
        if name.startswith(prefix) and name != OUTPUT_BIAS
    }


class StartModel:
    """Initial model of ``[init]``, whose tokenizer and weights are read once.

    They are read lazily, since the preparation of data needs only the tokenizer. The first access
    raises errors of reading, such as CheckpointError.
    """

    def __init__(self, init: InitConfig) -> None:
        self.init = init

    @cached_property
    def model(self) -> Transformer | None:
        """Model with its weights; None without an initial model."""
        return None if self.folder is None else load_untokenized(self.folder)

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the model, if any."""
        return None if self.folder is None else load_model_tokenizer(self.folder)

    @cached_property
    def task(self) -> TaskSpec | None:
        """Task of the model, if any."""
        return None if self.folder is None else load_task(self.folder)

    @cached_property
    def folder(self) -> Path | None:
        """Folder of the model; None without an initial model."""
        if self.init.run is None:
            return None
        return find_model(Path(self.init.run))

    @torch.no_grad()
    def copy_into(self, text_model: TextModel) -> list[str]:
        """Copy the parts that ``[init]`` names into a model; return lines on the parts not copied.

        The lines say what starts fresh, and why, and which heads and positions of the start are
        unused.

        Tokens that the start's tokenizer lacks keep their initial rows, after all others; the first
        learned positions are copied. A head in only one of the models, or with other shapes or
        answers, keeps its initial weights or is skipped. ``init.layers`` = n copies the first n
        blocks of every stack and everything outside blocks, such as a stack's shared table of
        relative positions; other blocks keep their initial weights. Without a start nothing is
        done, and no line returned.

        Raises ConfigError where a stack of either model has too few blocks, CheckpointError where
        names or shapes within a part differ.
        """
        model, source = text_model.model, self.model
        init = self.init
        if source is None or init.run is None:
            return []
        where = Path(init.run)
        fresh = fresh_heads(text_model, source, self.task, init.run)
        left_out = [name for name in source.heads if name not in model.heads]
        targets = _without(model, fresh)
        new_ids = added_ids(text_model.tokenizer, self.tokenizer)
        tensors = fit_rows(_without(source, {*fresh, *left_out}), targets, new_ids, where)
        reasons = []
        n_added = model.config.vocab_size - source.config.vocab_size
        if new_ids:
            assert text_model.tokenizer is not None, "new ids belong to a tokenizer"
            ids = text_model.tokenizer.added_ids
            names = ", ".join(name for name, number in ids.items() if number in new_ids)
            reasons.append(f"{count(len(new_ids), 'token')} added to the vocabulary ({names})")
        elif n_added > 0:
            reasons.append(f"{count(n_added, 'row')} of the embedding matrix")
        if (OUTPUT_BIAS in tensors) != (OUTPUT_BIAS in targets):
            if OUTPUT_BIAS in targets:
                reasons.append(f"output bias ({init.run} has none)")
            tensors.pop(OUTPUT_BIAS, None)
            targets.pop(OUTPUT_BIAS, None)
        reasons += [f"{HEADS[name].title} ({reason})" for name, reason in fresh.items()]
        if init.layers is None:
            load_into(targets, tensors, where)
        else:
            check_first_blocks(init.layers, source.config, f"the model of {init.run}")
            check_first_blocks(init.layers, model.config, "the recipe")
            load_into(
                _outside_blocks(model, targets, init.layers),
                _outside_blocks(source, tensors, init.layers),
                where,
            )
            reasons += _start_blocks(model, source, init.layers, init.run)
        notes = []
        if reasons:
            notes.append(f"starts fresh: {', '.join(reasons)}")
        if left_out:
            titles = ", ".join(HEADS[name].title for name in left_out)
            notes.append(f"left out of {init.run}: {titles} (the recipe asks for none)")
        n_positions, n_learned = model.config.max_len, source.config.max_len
        if model.positions.table_before(0) is not None and n_positions < n_learned:
            notes.append(
                f"keeps the first {n_positions:,} of the {n_learned:,} learned positions of "
                f"{init.run}"
            )
        return notes

    def note_training_only(self, objective: Objective) -> list[str]:
        """Report training-only parameters, which are newly initialized even in a warm start.

        At most one line is returned; none without an initial model or training-only parameters.
        """
        n_parameters = sum(value.numel() for value in objective.training_only().values())
        if self.init.run is None or not n_parameters:
            return []
        return [
            f"starts fresh: {count(n_parameters, 'parameter')} needed only in training "
            "(no saved model has them)"
        ]


def _without(model: Transformer, heads: Collection[str]) -> dict[str, Tensor]:
    """Collect a model's tensors by name, without some heads."""
    prefixes = tuple(f"{HEADS[name].attribute}." for name in heads)
    state = model.state_dict()
    return {name: value for name, value in state.items() if not name.startswith(prefixes)}


def _bodies(model: Transformer) -> dict[str, Body]:
    """Return the stacks between embeddings and heads, by the prefix of their tensors' names."""
    if isinstance(model, EncoderDecoder):
        return {"source.": model.source, "": model}
    return {"": model}


def _outside_blocks(
    model: Transformer, tensors: dict[str, Tensor], n_blocks: int
) -> dict[str, Tensor]:
    """Drop the stacks' tensors, and the position tables of blocks that are not copied."""
    outside = dict(tensors)
    for prefix, body in _bodies(model).items():
        for name in tensors:
            if name.startswith(f"{prefix}{body.shape.name}."):
                outside.pop(name)
        if body.positions.is_per_block:
            # A block's position table belongs to its block.
            for layer in range(n_blocks, body.shape.n_layers):
                outside.pop(f"{prefix}positions.tables.{layer}.weight", None)
    return outside


def _start_blocks(model: Transformer, source: Transformer, n_blocks: int, run: str) -> list[str]:
    """Copy the first blocks of each stack; describe the number of other blocks with new weights."""
    for stack, its in zip(model.stacks, source.stacks, strict=True):
        for layer in range(n_blocks):
            ours, theirs = stack.block(layer), its.block(layer)
            if len(ours) != len(theirs):
                raise CheckpointError(
                    f"the blocks of {run} have {len(theirs)} sub-layers, but those of the recipe "
                    f"have {len(ours)}"
                )
            for target, sublayer in zip(ours, theirs, strict=True):
                load_into(target.state_dict(), sublayer.state_dict(), Path(run))
    counted = []
    bodies = _bodies(model).values()
    for body in bodies:
        blocks = [set(map(id, body.stack.block(layer))) for layer in range(len(body.stack.slots))]
        taken = set().union(*blocks[:n_blocks])
        n_fresh = sum(not block <= taken for block in blocks[n_blocks:])
        of = "block" if len(bodies) == 1 else f"{body.shape.name} block"
        if n_fresh:
            counted.append(f"{n_fresh} of {count(body.shape.n_layers, of)}")
    if not counted:
        return []
    return [f"{' and '.join(counted)} (init.layers = {n_blocks})"]


def freeze(objective: Objective, init: InitConfig) -> list[str]:
    """Freeze the parts of a model that ``init.freeze`` names; return a line about them, if any.

    A tied output matrix belongs to the embeddings. Raises ConfigError where nothing is left to
    train.
    """
    frozen = init.frozen
    if not frozen:
        return []
    parameters = {id(weight): weight for weight in frozen_parameters(objective.model, frozen)}
    for parameter in parameters.values():
        parameter.requires_grad = False
    if not any(weight.requires_grad for weight in objective.parameters()):
        raise ConfigError(f"init.freeze = {frozen} leaves nothing to train: name fewer parts")
    n_frozen = sum(weight.numel() for weight in parameters.values())
    n_all = sum(weight.numel() for weight in objective.model.parameters())
    line = f"frozen: {count(n_frozen, 'parameter')} of {n_all:,} ({frozen}"
    head = objective.model.head
    if frozen.embeddings and head is not None and head.weight is None:
        line += ", and thus the output matrix, which is tied to them"
    return [f"{line})"]


def frozen_parameters(model: Transformer, frozen: Frozen) -> Iterator[nn.Parameter]:
    """Generate the parameters of parts of a model; shared ones may repeat."""
    if frozen.embeddings:
        yield from model.embedding_parameters()
    for layer in range(frozen.n_layers):
        yield from model.block_parameters(layer)
