"""One optimizer step: micro-batches that add up to exactly the global batch."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sublayer.config.recipe import ResolvedRecipe
from sublayer.data.batches import AnyBatch, Batches
from sublayer.model.names import parameter_roles
from sublayer.objective.base import Objective
from sublayer.training.ahead import Ahead, Preparation, PreparedStep, pays
from sublayer.training.dropout_seed import seed_dropout
from sublayer.training.optimizers.build import build_optimizer, clip_gradient, set_learning_rate
from sublayer.training.optimizers.layer_decay import rate_shares
from sublayer.training.processes.parallel import parallelise
from sublayer.training.processes.world import World
from sublayer.training.schedule import learning_rate

_OTHER_GRAPHS = 8
"""Graphs of an objective beside one for each block whose loss stops: PyTorch's default."""


@dataclass(frozen=True)
class StepResult:
    """What an optimizer step returns to be logged; tensors are still on the device."""

    loss: Tensor
    """The objective's reported term, averaged over what it counts in the global batch."""
    gradient_norm: Tensor
    """The L2 norm of the whole gradient, before it is clipped."""
    n_tokens: int
    """The tokens of the global batch, without padding, of all processes."""


class TrainStep:
    """An optimizer step, as a pure function of weights, optimizer state, seed and step number.

    So that a run that is resumed repeats what it would have done: batches and dropout are drawn by
    the step's number, and PyTorch's global generators are as before after each step. Micro-batches
    and processes change how the work is divided, not, but for rounding and dropout, what comes out.
    """

    def __init__(
        self,
        recipe: ResolvedRecipe,
        objective: Objective,
        batches: Batches,
        *,
        device: torch.device,
        world: World,
    ) -> None:
        self.objective = objective
        self.batches = batches
        self.device = device
        self.world = world
        self.lr = 0.0
        self.steps = recipe.train.steps
        self.before_update: Callable[[], object] = lambda: None
        """Called once a step's gradients are there, before the weights change."""
        # The GPU whose generator dropout draws from, beside the processor's: of several each
        # process has one.
        self._generators = [device] if device.type == "cuda" else []
        self._recipe = recipe
        for stack in objective.model.stacks:
            stack.recomputes = recipe.train.recompute == "blocks"
        self.parallel = parallelise(objective, world, recipe.train, recipe.optimizer)
        if recipe.train.compile:
            allow_graphs(recipe.model.n_layers + _OTHER_GRAPHS)
            self.parallel.compile()
        self.parameters = self.parallel.parameters
        train = recipe.train
        each = Preparation(
            self.parallel, batches, train.micro_batch_sequences, recipe.data.context, device
        )
        self.prepare = Ahead(each, train.steps) if pays(device) else each
        self.optimizer = build_optimizer(
            recipe.optimizer,
            self.parameters,
            parameter_roles(objective),
            rate_shares(objective, getattr(recipe.optimizer, "layer_decay", 1.0)),
            self.parallel.division,
        )

    @property
    def recipe(self) -> ResolvedRecipe:
        """Return the resolved recipe."""
        return self._recipe

    def set_length(self, steps: int) -> None:
        """Change the run's length, to which the learning rate falls and batches are prepared."""
        self.steps = steps
        if isinstance(self.prepare, Ahead):
            self.prepare.steps = steps

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch of a step, without padding, of all processes."""
        return self.prepare.n_tokens(step)

    def __call__(self, step: int) -> StepResult:
        """Run optimizer step ``step`` (0-based); the loss is the one before the update.

        All processes enter, and all learn the same loss and norm. The objective is left in training
        mode, without gradients.
        """
        recipe = self._recipe
        self.objective.train()
        self.objective.begin(step, self.steps)
        self.lr = learning_rate(recipe.optimizer, step, self.steps)
        set_learning_rate(self.optimizer, self.lr)
        prepared = self.prepare(step)
        loss = self._accumulate(step, prepared)
        norm = clip_gradient(
            self.parameters.values(), recipe.optimizer.clip_norm, self.parallel.gradient_norm
        )
        self.before_update()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return StepResult(loss, norm, prepared.n_tokens)

    def _accumulate(self, step: int, prepared: PreparedStep) -> Tensor:
        seed = self._recipe.train.seed
        parts = prepared.parts
        losses = []
        # Casts of the weights to bfloat16 live as long as the outermost autocast: once per step,
        # not per micro-batch.
        with torch.random.fork_rng(self._generators), self._autocast(enabled=True):
            n_passes = self.parallel.begin([each.batch for each in parts])
            # Not by the copies: reading a count back from a device would wait for it.
            counts = self._global_counts([each.part.batch for each in parts])
            for number in range(n_passes):
                each = parts[min(number, len(parts) - 1)]
                seed_dropout(seed, step, each.part.index, each.part.rank)
                with self.parallel.accumulating(is_last=number == n_passes - 1):
                    loss = self._pass(each.batch, counts, is_counted=number < len(parts))
                    losses.append(loss)
        return self.parallel.sum_losses(losses)

    def _pass(self, batch: AnyBatch, counts: dict[str, float], *, is_counted: bool) -> Tensor:
        """Add a micro-batch's share to the gradients, and return its share of the reported loss.

        Nothing of its graph outlives the call: its nodes, small as they are, would stand between
        the large blocks that the next pass needs.
        """
        totals = self.parallel.totals(batch)
        weights = self.objective.weights
        shares = []
        for term, total in totals.items():
            weight = weights[term] / counts[term] if is_counted else 0.0
            shares.append(weight * total)
        share = sum(shares)
        assert isinstance(share, Tensor), "an objective has at least one term"
        with self._autocast(enabled=False):
            self.parallel.backward(share)
        reported = self.objective.reported
        loss: Tensor = totals[reported].detach()
        return loss / counts[reported] if is_counted else torch.zeros_like(loss)

    def _global_counts(self, batches: list[AnyBatch]) -> dict[str, float]:
        totals: dict[str, int] = {}
        for batch in batches:
            for term, count in self.objective.counts(batch).items():
                totals[term] = totals.get(term, 0) + count
        numbers = list(totals.values())
        if self.world.size > 1:
            # Between the processors alone, as a GPU would first end the step before.
            values = torch.tensor(numbers, dtype=torch.float64)
            numbers = self.world.sum(values).tolist()
        counts = {}
        for term, number in zip(totals, numbers, strict=True):
            # A term that nothing counts towards adds nothing: by what it is divided is no matter.
            counts[term] = float(max(number, 1))
        return counts

    def _autocast(self, *, enabled: bool) -> torch.autocast:
        is_low = self._recipe.train.precision == "bfloat16"
        return torch.autocast(
            self.device.type,
            dtype=torch.bfloat16,
            enabled=enabled and is_low,
            cache_enabled=self.parallel.caches_casts,
        )


def allow_graphs(number: int) -> None:
    """Raise the limit of graphs of a compiled function, beyond which PyTorch does not compile.

    It is the process's, and is never lowered.
    """
    import torch._dynamo

    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, number)
