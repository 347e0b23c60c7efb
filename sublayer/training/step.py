"""Optimizer step: the learning rate, and micro-batches that make up the global batch."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sublayer.config.optimizers import OptimizerConfig
from sublayer.config.recipe import ResolvedRecipe
from sublayer.config.train import InitConfig, TrainConfig
from sublayer.data.batches import AnyBatch, Batches
from sublayer.errors import ConfigError
from sublayer.model.blocks import FeedForward
from sublayer.model.kernels.compiled import compiled_activation, compiled_rms_norm, compiled_turn
from sublayer.model.layers import RMSNorm
from sublayer.model.positions import RotaryPositions
from sublayer.objective.base import Objective
from sublayer.training.optimizers import (
    build_optimizer,
    head_axes,
    rate_shares,
    set_learning_rate,
)
from sublayer.training.parallel import Alone, Exact, MicroBatch, Replicas, Replicated
from sublayer.training.world import World


def learning_rate(optimizer: OptimizerConfig, step: int, steps: int) -> float:
    """Compute the learning rate of update ``step`` (0-based) of a run of ``steps`` updates.

    Warm-up is linear: the rate is peak / warmup at update 0, and the peak at update warmup - 1.
    Linear, polynomial and cosine then decay from the peak, at update ``warmup``, towards
    ``final_lr_share * lr``, the rate that update ``steps`` would have; inverse-sqrt is
    ``lr * sqrt(warmup / (step + 1))`` (Vaswani et al. 2017, sec. 5.3, with an explicit peak).

    With ``warmup_init_lr`` updates count as in fairseq: update 0 has that rate, update ``warmup``
    the peak, and inverse-sqrt is ``lr * sqrt(warmup / step)``. Source: zhuohan123/macaron-net,
    ``inverse_square_root_schedule.py``.

    ALBERT's warm-up, as released, begins at rate 0, and the decay counts from update 0: at update
    ``warmup`` the rate drops from the warm-up's line to the value that the decay has reached.

    GPT-1's warm-up, as released, begins at rate 0 and reaches the peak at update ``warmup``, after
    which the decay counts from update 0, too. A linear decay acts from update 0 on, so that the
    rate never reaches the peak. Source: openai/finetune-transformer-lm, ``opt.py``.

    A constant warm-up has the peak from update 0 on, and inverse-sqrt is ``lr * sqrt(warmup /
    max(step, warmup))``: with a peak of 0.01 and 10,000 updates of warm-up ``1 / sqrt(max(step,
    10000))``. Source: Raffel et al. 2020, sec. 3.1.2.

    In addition, in the last ``cooldown_share`` of the run the rate is multiplied by the remaining
    share of the cooldown: ``(steps - step) / (cooldown_share * steps)``. Source: tensorflow/mesh,
    ``learning_rate_schedules.py``, as T5 was released.

    Raises ConfigError where the recipe's warm-up is not resolved.
    """
    warmup, peak = optimizer.warmup_steps, optimizer.lr
    if warmup is None:
        raise ConfigError("optimizer.warmup_steps is not resolved")
    first = optimizer.warmup_init_lr
    if optimizer.warmup == "constant":
        rate = peak * math.sqrt(warmup / max(step, warmup))
    elif optimizer.warmup == "albert":
        rate = peak * step / warmup if step < warmup else _fallen(optimizer, step / steps)
    elif optimizer.warmup == "gpt1":
        risen = min(1.0, step / warmup)
        has_fallen = optimizer.schedule == "linear" or step > warmup
        is_level = optimizer.schedule == "constant" or not has_fallen
        rate = (peak if is_level else _fallen(optimizer, step / steps)) * risen
    elif first is not None:
        is_rising = step < warmup
        rate = (
            first + step * (peak - first) / warmup if is_rising else peak * math.sqrt(warmup / step)
        )
    elif step < warmup:
        rate = peak * (step + 1) / warmup
    elif optimizer.schedule == "constant":
        rate = peak
    elif optimizer.schedule == "inverse-sqrt":
        rate = peak * math.sqrt(warmup / (step + 1))
    else:
        rate = _fallen(optimizer, (step - warmup) / max(1, steps - warmup))
    share = optimizer.cooldown_share
    return rate * (1.0 if share == 0.0 else min(1.0, (steps - step) / (share * steps)))


FALLS: dict[str, Callable[[OptimizerConfig, float], float]] = {
    "linear": lambda optimizer, progress: 1.0 - progress,
    "polynomial": lambda optimizer, progress: math.pow(1.0 - progress, optimizer.power),
    "cosine": lambda optimizer, progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
}
"""Remaining share of the difference between peak and floor, by the share of the decay completed."""


def _fallen(optimizer: OptimizerConfig, progress: float) -> float:
    remaining = FALLS[optimizer.schedule](optimizer, progress)
    floor = optimizer.final_lr_share
    return optimizer.lr * (floor + (1.0 - floor) * remaining)


_OTHER_GRAPHS = 8
"""Number of graphs of an objective, without one per block: PyTorch's default."""


def seed_dropout(seed: int, step: int, micro_batch: int, rank: int) -> None:
    """Seed PyTorch's global generators, of all devices, for a micro-batch.

    The caller restores them. ``step`` and ``micro_batch`` count from 0; ranks draw independently.
    """
    position = f"dropout {seed} {step} {micro_batch} {rank}"
    hashed = hashlib.blake2b(position.encode(), digest_size=8)
    # The seed must be within the range of int64.
    number = int.from_bytes(hashed.digest(), "little") >> 1
    if torch.accelerator.is_available():
        torch.manual_seed(number)
    else:  # torch.manual_seed formats the stack for each missing device
        torch.default_generator.manual_seed(number)


PreparedStep = tuple[list[tuple[MicroBatch, AnyBatch]], int]
"""This process's micro-batches of a step, and the token count of all processes.

Micro-batches are as they were made, by which losses are counted, and where they are computed.
"""


@dataclass(frozen=True)
class Preparation:
    """Preparation of a step, a pure function: micro-batches are built and copied asynchronously."""

    parallel: Alone
    batches: Batches
    n_sequences: int
    context: int
    device: torch.device

    def __call__(self, step: int) -> PreparedStep:
        """Prepare a step (0-based)."""
        made = self.parallel.micro_batches(self.batches, step, self.n_sequences, self.context)
        # Copies from pinned memory are queued in the compute stream, after the previous step.
        parts = [(part, part.batch.to(self.device)) for part in made]
        return parts, self.n_tokens(step)

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a step over all processes, without padding."""
        return self.batches.n_tokens(step)


class Ahead:
    """Prefetching of the next step in a thread, while the current one computes.

    The thread reads all batches up to ``steps`` in order, since epochs are planned on the way. Its
    errors are raised when the step is taken.
    """

    def __init__(self, preparation: Preparation, steps: int) -> None:
        self.preparation = preparation
        self.steps = steps
        self._thread = ThreadPoolExecutor(1, "batches")
        self._next: tuple[int, Future[PreparedStep]] | None = None

    def __call__(self, step: int) -> PreparedStep:
        """Return a step (0-based), and start prefetching the next."""
        expected, self._next = self._next, None
        if expected is not None and expected[0] == step:
            prepared = expected[1].result()
        else:
            prepared = self._thread.submit(self.preparation, step).result()
        if step + 1 < self.steps:
            self._next = step + 1, self._thread.submit(self.preparation, step + 1)
        return prepared

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a step over all processes, without padding."""
        return self._thread.submit(self.preparation.n_tokens, step).result()


def pays(device: torch.device) -> bool:
    """Check whether to prefetch, which pays on devices that compute asynchronously.

    On a CPU it occupies cores, without a measurable gain (``benchmarks/batches_ahead.py``).
    """
    return device.type == "cuda"


def begins_divided(world: World, train: TrainConfig, init: InitConfig) -> bool:
    """Check whether an objective is built on the meta device, so that no process holds all of it.

    A warm start prevents that, since it loads the other model's weights unsharded.
    """
    return world.size > 1 and train.shard != "none" and not train.exact and init.run is None


def clip_gradient(
    parameters: Iterable[nn.Parameter],
    clip_norm: float,
    norm_of: Callable[[list[Tensor]], Tensor] = torch.nn.utils.get_total_norm,
) -> Tensor:
    """Scale the gradient to a global L2 norm of at most ``clip_norm``; return the norm before it.

    A ``clip_norm`` of 0 disables clipping. ``norm_of`` computes the norm of all gradients, sharded
    or not. Gradients change in place; parameters without a gradient are skipped. There is no
    synchronization with the device.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = norm_of(gradients)
    if clip_norm > 0:
        scale = torch.clamp(clip_norm / (norm + 1e-6), max=1.0)
        # Read only on a CPU, where it saves a pass; elsewhere it would synchronize the device.
        if scale.device.type != "cpu" or scale != 1.0:
            torch._foreach_mul_(gradients, scale)
    return norm


@dataclass(frozen=True)
class StepResult:
    """Result of an optimizer step for the log; tensors are still on the device."""

    loss: Tensor
    """Training loss: mean of the objective's reported term over the global batch."""
    gradient_norm: Tensor
    """L2 norm of the whole gradient, before clipping."""
    n_tokens: int
    """Number of tokens in the global batch of all processes, without padding."""


class TrainStep:
    """Optimizer step, as a pure function of weights, optimizer state, seed and step number.

    A resumed run takes the same steps, since batches and dropout are drawn by step number, and
    PyTorch's global generators are restored. The division into micro-batches and processes affects
    the result only by rounding and dropout.
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
        self.recipe = recipe
        self.objective = objective
        self.batches = batches
        self.device = device
        self.world = world
        self.lr = 0.0
        self.steps = recipe.train.steps
        self.before_update: Callable[[], object] = lambda: None
        """Function called once a step's gradients are computed, before the weights change."""
        # Besides the CPU's generator, dropout uses the generator of the process's only GPU.
        self._generators = [device] if device.type == "cuda" else []
        for stack in objective.model.stacks:
            stack.recomputes = recipe.train.recompute == "blocks"
        train = recipe.train
        if train.kernels == "compiled":
            dtype = getattr(torch, train.precision)
            for part in objective.modules():
                if isinstance(part, FeedForward):
                    part.compiled = compiled_activation(part.activation, dtype, part.is_gated)
                elif isinstance(part, RMSNorm):
                    part.compiled = compiled_rms_norm(part.eps)
                elif isinstance(part, RotaryPositions) and part.has_kernel:
                    part.compiled = compiled_turn(dtype, part.d_head)
        self.parallel: Alone
        if train.exact:
            self.parallel = Exact(objective, world, n_parts=train.n_micro_batches)
        elif train.replicas > 1:
            self.parallel = Replicas(objective, world, train.replicas)
        elif world.size == 1:
            self.parallel = Alone(objective, world)
        elif train.shard != "none":
            # PyTorch's FSDP is slow to import, and few runs need it.
            from sublayer.training.sharded import Sharded

            self.parallel = Sharded(objective, world, train.shard, recipe.optimizer, train.seed)
        else:
            self.parallel = Replicated(objective, world)
        if train.compile:
            allow_graphs(recipe.model.n_layers + _OTHER_GRAPHS)
            self.parallel.compile()
        self.parameters = self.parallel.parameters
        preparation = Preparation(
            self.parallel, batches, train.micro_batch_sequences, recipe.data.context, device
        )
        self.prepare = Ahead(preparation, train.steps) if pays(device) else preparation
        self.optimizer = build_optimizer(
            recipe.optimizer,
            self.parameters,
            self.parallel.roles,
            rate_shares(objective, getattr(recipe.optimizer, "layer_decay", 1.0)),
            self.parallel.division,
            head_axes(objective),
        )
        self._clipped: list[nn.Parameter] = []
        self._unclipped: list[nn.Parameter] = []
        for name, parameter in self.parameters.items():
            shape, role = self.parallel.division.shape(parameter), self.parallel.roles[name]
            is_map = recipe.optimizer.is_orthogonalised(shape, role)
            (self._unclipped if is_map else self._clipped).append(parameter)

    def set_length(self, steps: int) -> None:
        """Change the length of the run, for the learning rate and prefetching."""
        self.steps = steps
        if isinstance(self.prepare, Ahead):
            self.prepare.steps = steps

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a step's global batch, without padding."""
        return self.prepare.n_tokens(step)

    def __call__(self, step: int) -> StepResult:
        """Run optimizer step ``step`` (0-based); the loss precedes the update.

        Collective; all processes get the same loss and norm. The objective is left in training
        mode, without gradients.
        """
        recipe = self.recipe
        self.parallel.prepare(step, self.steps)
        self.lr = learning_rate(recipe.optimizer, step, self.steps)
        set_learning_rate(self.optimizer, self.lr)
        parts, n_tokens = self.prepare(step)
        if self.optimizer.moves_before_gradient:
            self.before_update()
            self.optimizer.begin()
        loss = self._accumulate(step, parts)
        gradient_norm = self.parallel.gradient_norm
        norm = clip_gradient(self._clipped, recipe.optimizer.clip_norm, gradient_norm)
        if self._unclipped:
            others = [each.grad for each in self._unclipped if each.grad is not None]
            norm = torch.hypot(norm, gradient_norm(others))
        self.before_update()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return StepResult(loss, norm, n_tokens)

    def _accumulate(self, step: int, parts: Sequence[tuple[MicroBatch, AnyBatch]]) -> Tensor:
        seed = self.recipe.train.seed
        with torch.random.fork_rng(self._generators):
            n_passes = self.parallel.begin([batch for _, batch in parts])
            totals: Counter[str] = Counter()
            for part, _ in parts:
                # Not from the copies, since reading a count back would synchronize.
                totals.update(self.objective.all_counts(part.batch))
            numbers = list(totals.values())
            if self.world.size > 1:
                # On the CPU, since a GPU would first finish the previous step.
                values = torch.tensor(numbers, dtype=torch.float64)
                numbers = self.world.sum(values).tolist()
            # A term with count 0 has total 0, so that its divisor does not matter.
            counts = {term: float(max(n, 1)) for term, n in zip(totals, numbers, strict=True)}

            def run(numbers: Iterable[int], forward: nn.Module) -> list[Tensor]:
                losses = []
                # Casts of weights to bfloat16 live as long as the outermost autocast, which is one
                # per step instead of one per micro-batch.
                with self._autocast(enabled=True):
                    for number in numbers:
                        part, batch = parts[min(number, len(parts) - 1)]
                        seed_dropout(seed, step, part.index, part.rank)
                        with self.parallel.accumulating(is_last=number == n_passes - 1):
                            is_counted = number < len(parts)
                            loss = self._pass(forward, batch, counts, is_counted=is_counted)
                            losses.append(loss)
                return losses

            losses = self.parallel.run(n_passes, run)
        return self.parallel.sum_losses(losses)

    def _pass(
        self, forward: nn.Module, batch: AnyBatch, counts: dict[str, float], *, is_counted: bool
    ) -> Tensor:
        """Add a micro-batch's gradients; return its share of the reported loss.

        The autograd graph does not outlive the call, since its small nodes would fragment the
        memory of the next pass.
        """
        totals: dict[str, Tensor] = forward(batch)
        weights = self.objective.all_weights() if is_counted else dict.fromkeys(totals, 0.0)
        share = sum(weights[term] / counts[term] * total for term, total in totals.items())
        assert isinstance(share, Tensor), "an objective must have a term"
        with self._autocast(enabled=False):
            self.parallel.backward(share)
        reported = self.objective.reported
        loss: Tensor = totals[reported].detach()
        return loss / counts[reported] if is_counted else torch.zeros_like(loss)

    def _autocast(self, *, enabled: bool) -> torch.autocast:
        return torch.autocast(
            self.device.type,
            dtype=torch.bfloat16,
            enabled=enabled and self.recipe.train.precision == "bfloat16",
            cache_enabled=self.parallel.caches_casts,
        )


def allow_graphs(number: int) -> None:
    """Raise PyTorch's limit of graphs per compiled function.

    The limit is process-wide, and never lowered.
    """
    import torch._dynamo

    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, number)
