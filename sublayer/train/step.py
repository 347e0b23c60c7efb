"""One optimizer step: micro-batches that add up to exactly the global batch."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sublayer.config.recipe import Recipe
from sublayer.data.batches import AnyBatch, Batches
from sublayer.data.translation_batches import TranslationBatch, TranslationBatches
from sublayer.model.roles import parameter_roles
from sublayer.objective.terms import Objective
from sublayer.train.distributed import World
from sublayer.train.optimizer import build_optimizer, clip_gradient, set_learning_rate
from sublayer.train.schedule import learning_rate
from sublayer.train.seeding import seed_dropout

_OTHER_GRAPHS = 8
"""Graphs of an objective beside one for each block whose losses stop: what PyTorch allows by default."""


@dataclass(frozen=True)
class StepResult:
    """What an optimizer step gives to be logged, still on the device."""

    loss: Tensor
    gradient_norm: Tensor


class TrainStep:
    """The function from a step's number to new weights: a pure function of (weights, optimizer state, seed, step)."""

    def __init__(
        self, recipe: Recipe, objective: Objective, batches: Batches, *, device: torch.device, world: World
    ) -> None:
        self.objective = objective
        self.batches = batches
        self.device = device
        self.world = world
        self.parameters: dict[str, nn.Parameter] = dict(objective.named_parameters())
        self.optimizer = build_optimizer(recipe.optimizer, self.parameters, parameter_roles(objective))
        self.lr = 0.0
        self._recipe = recipe
        for stack in objective.model.stacks:
            stack.recomputes = recipe.train.recompute == "blocks"
        self._forward: nn.Module = objective
        if recipe.train.compile:
            allow_graphs(recipe.model.n_layers + _OTHER_GRAPHS)
            objective.compile()
        if world.size > 1:
            self._forward = DistributedDataParallel(
                self._forward, gradient_as_bucket_view=True, find_unused_parameters=objective.stops
            )

    @property
    def recipe(self) -> Recipe:
        """The resolved recipe."""
        return self._recipe

    @property
    def lengths_vary(self) -> bool:
        """Whether batches differ in shape by more than the last rows of an epoch."""
        return isinstance(self.batches, TranslationBatches)

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch of a step, padding not."""
        return self.batches.n_tokens(step)

    def __call__(self, step: int) -> StepResult:
        """Take optimizer step ``step`` (0-based); the loss is its reported term before the update."""
        recipe = self._recipe
        self.objective.train()
        self.objective.begin(step, resolved(recipe.train.steps))
        self.lr = learning_rate(recipe.optimizer, step, resolved(recipe.train.steps))
        set_learning_rate(self.optimizer, self.lr)
        loss = self._accumulate(step)
        norm = clip_gradient(self.parameters.values(), recipe.optimizer.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return StepResult(self.world.sum(loss), norm)

    def _accumulate(self, step: int) -> Tensor:
        micro_batches = list(self._micro_batches(step))
        # Counted before they are copied: reading a count back from a device would wait for it.
        counts = self._global_counts(micro_batches)
        loss = torch.zeros((), device=self.device)
        # Casts of the weights to bfloat16 live as long as the outermost autocast: once per step, not per micro-batch.
        with torch.random.fork_rng(), self._autocast(enabled=True):
            for index, batch in enumerate(each.to(self.device) for each in micro_batches):
                seed_dropout(self._recipe.train.seed, step, index, self.world.rank)
                with self._synchronised(is_last=index == len(micro_batches) - 1):
                    loss += self._pass(batch, counts)
        return loss

    def _pass(self, batch: AnyBatch, counts: dict[str, float]) -> Tensor:
        """Add a micro-batch's share to the gradients, and return its share of the reported loss.

        Nothing of its graph outlives the call: its nodes, small as they are, would stand between the large blocks
        that the next pass needs.
        """
        totals = self._forward(batch)
        share = sum((self.objective.weights[term] / counts[term]) * total for term, total in totals.items())
        assert isinstance(share, Tensor), "an objective has at least one term"
        with self._autocast(enabled=False):
            # Data parallelism averages gradients over processes; the loss is a sum.
            (share * self.world.size if self.world.size > 1 else share).backward()  # type: ignore[no-untyped-call]
        reported = self.objective.reported
        loss: Tensor = totals[reported].detach()
        return loss / counts[reported]

    def _micro_batches(self, step: int) -> Iterator[AnyBatch]:
        batch = self.batches.batch(step, rank=self.world.rank, world=self.world.size)
        size = resolved(self._recipe.train.micro_batch_sequences)
        if isinstance(batch, TranslationBatch):
            # As many rows as have the tokens of so many full ones.
            size = max(1, size * self._recipe.data.context // batch.width)
        for start in range(0, len(batch), size):
            yield batch[start : start + size]

    def _global_counts(self, batches: list[AnyBatch]) -> dict[str, float]:
        totals: dict[str, int] = {}
        for batch in batches:
            for term, count in self.objective.counts(batch).items():
                totals[term] = totals.get(term, 0) + count
        if self.world.size > 1:
            values = torch.tensor(list(totals.values()), dtype=torch.float64, device=self.device)
            totals = dict(zip(totals, map(int, self.world.sum(values).tolist()), strict=True))
        return {term: float(max(count, 1)) for term, count in totals.items()}

    def _autocast(self, *, enabled: bool) -> torch.autocast:
        is_low = self._recipe.train.precision == "bfloat16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled and is_low)

    def _synchronised(self, *, is_last: bool) -> AbstractContextManager[None]:
        if isinstance(self._forward, DistributedDataParallel) and not is_last:
            return self._forward.no_sync()
        return nullcontext()


def allow_graphs(number: int) -> None:
    """Let a compiled function have so many graphs; beyond its limit PyTorch goes on without compiling."""
    import torch._dynamo

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, number)


def resolved(value: int | None) -> int:
    """Give a derived setting its value; a recipe that reaches training has them all."""
    assert value is not None, "the recipe is resolved before training"
    return value
