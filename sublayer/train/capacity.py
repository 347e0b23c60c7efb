"""Whether this machine can hold the training that a recipe asks for, asked before its model is built."""

import math

from sublayer.config.objective import CausalObjective, MaskedObjective
from sublayer.config.recipe import Recipe
from sublayer.model.capacity import check_memory
from sublayer.model.cost import count_parameters
from sublayer.model.memory import optimizer_states, training_memory
from sublayer.model.passes import FLOAT32_BYTES, DeviceKind, Pass

_ID_BYTES = 8
_COPIES_OF_IDS = 4
"""A batch's ids while it is made: their positions, what is read there, tokens and targets."""


def check_training(recipe: Recipe, *, device: DeviceKind = "cpu", n_processes: int = 1) -> None:
    """Raise ConfigError where the training of a resolved recipe cannot fit into this machine's memory.

    Counted is what is certain: weights, gradients and the optimizer's states, the ids of a batch where they are as long
    as its windows, and what a pass keeps where every window is full.
    """
    weights = FLOAT32_BYTES * count_parameters(recipe.model, recipe.objective).training
    if device == "cuda":
        # On the GPU are gradients, states and what a pass keeps; the model is built beside it.
        check_memory(weights, "the model", "make model.d_model, model.n_layers or the vocabulary smaller")
        return
    state = (2 + optimizer_states(recipe.optimizer)) * weights
    check_memory(
        state,
        "the model with its gradients and the optimizer's states",
        "make model.d_model, model.n_layers or the vocabulary smaller",
    )
    sequences = math.ceil((recipe.train.batch_sequences or 1) / n_processes)
    check_memory(state + _batch_bytes(recipe, sequences), "a batch", "make train.batch_sequences smaller")
    if isinstance(recipe.objective, CausalObjective):
        _check_pass(recipe, sequences)


def _batch_bytes(recipe: Recipe, sequences: int) -> int:
    context, objective = recipe.data.context, recipe.objective
    if isinstance(objective, CausalObjective):
        return sequences * (context + objective.targets) * _COPIES_OF_IDS * _ID_BYTES
    if isinstance(objective, MaskedObjective):
        return sequences * _COPIES_OF_IDS * _ID_BYTES
    return 0  # a batch of pairs is at most all pairs


def _check_pass(recipe: Recipe, sequences: int) -> None:
    micro = min(sequences, recipe.train.micro_batch_sequences or sequences)
    step = Pass(
        recipe.model,
        sequences=micro,
        context=recipe.data.context,
        precision="float32" if recipe.train.precision == "float32" else "bfloat16",
        objective=recipe.objective,
        recomputes=recipe.train.recompute == "blocks",
    )
    memory = training_memory(step, recipe.optimizer, n_passes=math.ceil(sequences / micro))
    check_memory(
        memory.tensors,
        f"a training step of {micro:,} windows of {recipe.data.context:,} tokens at a time",
        "make train.micro_batch_sequences, data.context or the model smaller",
    )
