"""Warm start: the weights that a model takes over from another, and those that are frozen."""

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from sublayer.config.architecture import POSITIONS
from sublayer.config.stacks import HEADS, check_first_blocks
from sublayer.config.train import Frozen, InitConfig
from sublayer.counts import count
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.loading import find_model, load_model_tokenizer, load_task, load_untokenized
from sublayer.model.body import Body
from sublayer.model.build import EncoderDecoder
from sublayer.model.parts import block_parameters, embedding_parameters
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective
from sublayer.tasks.spec import TaskSpec
from sublayer.text_model import TextModel
from sublayer.training.checkpoints import load_into

TOKEN_TABLES = ("embedding.weight", "head.weight", "head.bias")
"""The tensors with a row for each id of a vocabulary."""
_POSITION_TABLE = "positions.tables."
"""Part of the name of each table with a row for each position."""
OUTPUT_BIAS = "head.bias"
"""The one tensor of the vocabulary head that stands apart: with or without it, the rest fits."""


def fit_rows(
    tensors: Mapping[str, Tensor],
    targets: Mapping[str, Tensor],
    new_ids: range,
    where: Path,
) -> dict[str, Tensor]:
    """Return a model's ``tensors`` with as many rows of tokens and positions as ``targets`` have.

    Rows stay at their ids. Rows that a table lacks, and those of ``new_ids``, are the target's;
    positions beyond the target's are left out. All else is returned as it is.

    Raises CheckpointError where the target has more positions than were learned.
    """
    fitted = dict(tensors)
    for name in tensors.keys() & targets.keys():
        value, target = tensors[name], targets[name]
        if name in TOKEN_TABLES:
            fitted[name] = _with_token_rows(value, target, new_ids)
        elif _POSITION_TABLE in name:
            if len(target) > len(value):
                raise CheckpointError(
                    f"{where} has learned {len(value):,} positions, and {len(target):,} are asked "
                    f"for: give data.context={len(value)}"
                )
            fitted[name] = value[: len(target)]
    return fitted


def added_ids(tokenizer: Tokenizer | None, known: Tokenizer | None) -> range:
    """Return the ids that a tokenizer has behind those of the one that a model was trained with."""
    if tokenizer is None or known is None:
        return range(0)
    return range(known.vocab_size, max(known.vocab_size, tokenizer.vocab_size))


def describe_added(
    model: Transformer, source: Transformer, tokenizer: Tokenizer | None, new_ids: range
) -> list[str]:
    """Say which tokens of a model have rows of their own that its start has not."""
    if not new_ids:
        n_added = model.config.vocab_size - source.config.vocab_size
        return [f"{count(n_added, 'row')} of the embedding matrix"] if n_added > 0 else []
    assert tokenizer is not None, "the ids are the tokenizer's"
    names = [name for name, number in tokenizer.added_ids.items() if number in new_ids]
    return [f"{count(len(new_ids), 'token')} added to the vocabulary ({', '.join(names)})"]


def describe_cut(model: Transformer, source: Transformer, run: str) -> list[str]:
    """Say that a model has fewer learned positions than its start."""
    kept, learned = model.config.max_len, source.config.max_len
    if not POSITIONS[model.config.positions].has_rows or kept >= learned:
        return []
    return [f"keeps the first {kept:,} of the {learned:,} positions that {run} has learned"]


def _with_token_rows(value: Tensor, target: Tensor, new_ids: range) -> Tensor:
    if value.shape[1:] != target.shape[1:] or len(value) > len(target):
        return value  # another width, or ids without rows: refused where it is loaded
    rows = target.detach().clone()
    rows[: len(value)] = value
    fresh = slice(new_ids.start, new_ids.stop)
    rows[fresh] = target.detach()[fresh]
    return rows


def fresh_heads(
    text_model: TextModel, source: Transformer, answered: TaskSpec | None, run: str
) -> dict[str, str]:
    """Return the heads that start fresh, by name, each with the reason in words.

    ``answered`` is the task of the start, which ``run`` names: a label head is kept where the
    model's answers are the same.
    """
    model = text_model.model
    reasons = {}
    for name in model.heads:
        if name not in source.heads:
            reasons[name] = f"{run} has none"
        elif name == "label" and not _answers_alike(answered, text_model.task):
            titles = ", ".join(task.title for task in answered.tasks) if answered else "another"
            reasons[name] = f"that of {run} answers {titles}"
        elif _shapes(model, name) != _shapes(source, name):
            reasons[name] = f"that of {run} has other weights"
    return reasons


def without_output_bias(
    targets: dict[str, Tensor], tensors: dict[str, Tensor], run: str
) -> list[str]:
    """Drop the output bias where only one of two models has it; say in words where it is fresh."""
    is_there, is_here = OUTPUT_BIAS in tensors, OUTPUT_BIAS in targets
    if is_there != is_here:
        tensors.pop(OUTPUT_BIAS, None)
        targets.pop(OUTPUT_BIAS, None)
    return [f"output bias ({run} has none)"] if is_here and not is_there else []


def _shapes(model: Transformer, head: str) -> dict[str, tuple[int, ...]]:
    """Collect the shapes of a head's tensors, without the rows of tokens."""
    prefix = f"{HEADS[head].attribute}."
    return {
        name: tuple(value.shape[1:] if name in TOKEN_TABLES else value.shape)
        for name, value in model.state_dict().items()
        if name.startswith(prefix) and name != OUTPUT_BIAS
    }


def _answers_alike(there: TaskSpec | None, here: TaskSpec | None) -> bool:
    """Return whether one head can answer both; of a model that says nothing it is taken."""
    if there is None or here is None:
        return True
    a, b = there.tasks[0], here.tasks[0]
    is_alike = (a.kind, a.labels) == (b.kind, b.labels)
    return is_alike and (a.kind != "number" or a.numbers == b.numbers)


class StartModel:
    """The model that ``[init]`` names; its tokenizer and its weights are each read once.

    Each is read when it is first asked for: to prepare data takes the tokenizer alone. The first
    access raises the errors of reading, CheckpointError among them.
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
        """The task that it answers; None where it answers none."""
        return None if self.folder is None else load_task(self.folder)

    @cached_property
    def folder(self) -> Path | None:
        """Its model folder; None where training starts from none."""
        if self.init.run is None:
            return None
        return find_model(Path(self.init.run))


@torch.no_grad()
def start_from(text_model: TextModel, pretrained: StartModel) -> list[str]:
    """Copy the parts that ``[init]`` names into a model; return in lines which start fresh and why.

    Tokens that the start's tokenizer lacks keep their
    initial rows, behind all others; of learned positions the first are taken. A head that only one
    of the models has is no obstacle: it keeps its initial weights, or is left out. So is one that
    has other weights, or answers otherwise. With ``init.layers`` = n the first n blocks of every
    stack are taken, with everything that stands outside the blocks, such as the table of relative
    positions that a stack's blocks share; the other blocks keep their initial weights. Without a
    model to start from nothing is done, and no line returned.

    Raises ConfigError if a stack of either model has fewer blocks than asked for, CheckpointError
    where names or shapes within a part differ.
    """
    model, source = text_model.model, pretrained.model
    init = pretrained.init
    if source is None or init.run is None:
        return []
    where = Path(init.run)
    fresh = fresh_heads(text_model, source, pretrained.task, init.run)
    left_out = [name for name in source.heads if name not in model.heads]
    targets = _without(model, fresh)
    new_ids = added_ids(text_model.tokenizer, pretrained.tokenizer)
    tensors = fit_rows(_without(source, {*fresh, *left_out}), targets, new_ids, where)
    reasons = describe_added(model, source, text_model.tokenizer, new_ids)
    reasons += without_output_bias(targets, tensors, init.run)
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
        _copy_first_blocks(model, source, init)
        reasons += _fresh_blocks(model, init.layers)
    notes = []
    if reasons:
        notes.append(f"starts fresh: {', '.join(reasons)}")
    if left_out:
        titles = ", ".join(HEADS[name].title for name in left_out)
        notes.append(f"left out of {init.run}: {titles} (the recipe asks for none)")
    return notes + describe_cut(model, source, init.run)


def note_training_only(objective: Objective, pretrained: StartModel) -> list[str]:
    """Format that what training alone needs starts fresh, where all else does not.

    A line at most; none where training starts from no model, or needs nothing of its own.
    """
    n_parameters = sum(value.numel() for value in objective.training_only().values())
    if pretrained.init.run is None or not n_parameters:
        return []
    return [
        f"starts fresh: {count(n_parameters, 'parameter')} that training alone needs "
        "(no saved model has them)"
    ]


def _without(model: Transformer, heads: Collection[str]) -> dict[str, Tensor]:
    """Collect a model's tensors by name, but for those of some heads."""
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
    """Freeze what ``init.freeze`` names of an objective's model; return a line that says so.

    A tied output matrix stays with the embedding matrix. Raises ConfigError where nothing is left
    to train.
    """
    frozen = init.frozen
    if not frozen:
        return []
    parameters = {id(weight): weight for weight in frozen_parameters(objective.model, frozen)}
    for parameter in parameters.values():
        parameter.requires_grad = False
    if not any(weight.requires_grad for weight in objective.parameters()):
        raise ConfigError(f"init.freeze leaves nothing to train beside {frozen}: name less")
    n_frozen = sum(weight.numel() for weight in parameters.values())
    n_all = sum(weight.numel() for weight in objective.model.parameters())
    line = f"stays as it is: {count(n_frozen, 'parameter')} of {n_all:,} ({frozen}"
    head = objective.model.head
    if frozen.embeddings and head is not None and head.weight is None:
        line += ", and so the output matrix, which is the same"
    return [f"{line})"]


def frozen_parameters(model: Transformer, frozen: Frozen) -> Iterator[nn.Parameter]:
    """Generate the parameters of parts of a model; one that is shared may come twice."""
    if frozen.embeddings:
        yield from embedding_parameters(model)
    for layer in range(frozen.n_layers):
        yield from block_parameters(model, layer)
