"""Checks that this machine can hold the training of a recipe, before its model is built."""

import math

from sublayer.config.resolved import ResolvedRecipe
from sublayer.estimate.capacity import check_memory
from sublayer.estimate.cluster.group import Group
from sublayer.estimate.cluster.memory import process_memory
from sublayer.estimate.cost import count_parameters
from sublayer.estimate.frozen import n_frozen_parameters
from sublayer.estimate.memory import training_memory
from sublayer.estimate.micro_batch import FLOAT32_BYTES, DeviceKind, MicroBatch
from sublayer.estimate.optimizer_states import n_states

_REMEDY = "make model.d_model, model.n_layers or the vocabulary smaller"
_ID_BYTES = 8
_COPIES_OF_IDS = 4
"""A batch's ids while it is made: their positions, what is read there, tokens and targets."""


def check_training(
    recipe: ResolvedRecipe, *, device: DeviceKind = "cpu", n_processes: int = 1
) -> None:
    """Raise ConfigError where the training of a recipe cannot fit into this machine's memory.

    Counted is what is certain: weights, gradients and the optimizer's states, the ids of a batch
    where they are as long as its windows, and what a pass keeps where every window is full. Of
    training on a GPU only the weights count, which are made beside it first, unless they are made
    in parts. A batch is divided among ``n_processes``, each of which is taken to have all of the
    memory, and so are weights and states as ``train.shard`` says.
    """
    group = Group(n_processes, recipe.train.shard, recipe.train.exact)
    weights = FLOAT32_BYTES * count_parameters(recipe.model, recipe.objective).training
    if device == "cuda":
        # On the GPU are gradients, states and what a pass keeps; the model is built beside it.
        if not group.is_divided:
            check_memory(weights, "the model", _REMEDY)
        return
    frozen = recipe.init.frozen
    states = FLOAT32_BYTES * n_states(recipe.model, recipe.objective, recipe.optimizer, frozen)
    if group.is_divided:
        # All weights are gathered for an evaluation.
        state = weights + (weights + states) // n_processes
        check_memory(state, "the model with this process's part of the optimizer's states", _REMEDY)
    else:
        fewer = FLOAT32_BYTES * n_frozen_parameters(recipe.model, frozen)
        state = 2 * weights + states - fewer
        check_memory(state, "the model with its gradients and the optimizer's states", _REMEDY)
    sequences = math.ceil(recipe.train.batch_sequences / n_processes)
    n_ids = sequences * recipe.objective.n_ids(recipe.data.context)
    id_bytes = n_ids * _COPIES_OF_IDS * _ID_BYTES
    check_memory(state + id_bytes, "a batch", "make train.batch_sequences smaller")
    if recipe.objective.text == "windows":
        _check_pass(recipe, sequences, group)


def _check_pass(recipe: ResolvedRecipe, sequences: int, group: Group) -> None:
    micro = min(sequences, recipe.train.micro_batch_sequences)
    step = MicroBatch(
        recipe.model,
        sequences=micro,
        context=recipe.data.context,
        precision="float32" if recipe.train.precision == "float32" else "bfloat16",
        objective=recipe.objective,
        recomputes=recipe.train.recompute == "blocks",
        keeps_documents_apart=recipe.data.boundaries == "respect",
        frozen=recipe.init.frozen,
    )
    n_passes = math.ceil(sequences / micro)
    # What is certain: the holes between tensors are not.
    if group.is_divided:
        divided = process_memory(step, recipe.optimizer, n_passes=n_passes, group=group)
        needed = divided.step
    else:
        needed = training_memory(step, recipe.optimizer, n_passes=n_passes).tensors
    check_memory(
        needed,
        f"a training step of {micro:,} windows of {recipe.data.context:,} tokens at a time",
        "make train.micro_batch_sequences, data.context or the model smaller",
    )
