"""The contestants in training translators without a text: this project's step, and M2M100's.

The same terms: the base Transformer of WMT14 as Macaron Net's control has it (pre-norm, ReLU, three
places of dropout, tied embeddings, label smoothing, Adam without clipping), the same random pairs
in the same batches, which are of similar lengths and differ from step to step as those of real
pairs do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from contestants import OURS, Setup, Step, autocast
from torch import Tensor, nn

from sublayer.config.load import load_recipe
from sublayer.config.objective import TranslationObjective
from sublayer.config.recipe import ResolvedRecipe
from sublayer.config.resolve import resolve_model, resolve_optimizer, resolve_train
from sublayer.data.batches import PackedBatch, pairs_in_rows
from sublayer.files.arrays import Ints
from sublayer.model.transformer import build
from sublayer.objective.base import family_of
from sublayer.training.step import TrainStep
from sublayer.training.world import World

PEER = "transformers M2M100"
N_BATCHES = 16
"""Batches of different lengths, again and again."""
_STEPS = 10_000
_N_SPECIAL = 4


@dataclass(frozen=True)
class TranslatorSize:
    """A model and its batch; pairs have ``shortest`` to ``context`` tokens on either side."""

    d_model: int
    d_ff: int
    n_layers: int
    n_heads: int
    vocab_size: int
    shortest: int
    context: int
    batch_tokens: int

    def __str__(self) -> str:
        return (
            f"d {self.d_model}, {self.n_layers} + {self.n_layers} layers, {self.n_heads} heads, "
            f"pairs of {self.shortest} to {self.context} tokens, {self.batch_tokens:,} tokens a "
            f"side, V {self.vocab_size:,}"
        )


SIZES = {
    "base": TranslatorSize(512, 2048, 6, 8, 37_000, shortest=8, context=64, batch_tokens=32_768),
    "dry": TranslatorSize(32, 64, 2, 2, 400, shortest=4, context=16, batch_tokens=256),
}


@dataclass(frozen=True)
class RandomPairs:
    """Batches of random pairs, those of a batch of nearly one length; pure in the step."""

    lengths_vary: ClassVar[bool] = True

    size: TranslatorSize

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        sources, targets = _draw(self.size, step % N_BATCHES)
        return pairs_in_rows(sources[rank::world], targets[rank::world], pad_id=0, first_id=1)

    def n_tokens(self, step: int) -> int:
        return sum(map(len, _draw(self.size, step % N_BATCHES)[1]))

    def n_pairs(self, step: int) -> int:
        return len(_draw(self.size, step % N_BATCHES)[1])

    def notes(self) -> list[str]:
        return []


@lru_cache(maxsize=2 * N_BATCHES)
def _draw(size: TranslatorSize, number: int) -> tuple[list[Ints], list[Ints]]:
    """Draw sources and targets once, as a text lies ready: sources a little shorter."""
    generator = np.random.Generator(np.random.Philox(number))
    longest = int(generator.integers(size.shortest + 2, size.context, endpoint=True))
    n_pairs = size.batch_tokens // longest
    n_written = generator.integers(longest - 1, longest, size=n_pairs, endpoint=True)
    n_read = n_written - generator.integers(0, 2, size=n_pairs)

    def draw(lengths: Ints) -> list[Ints]:
        return [generator.integers(_N_SPECIAL, size.vocab_size, size=n) for n in lengths]

    return draw(n_read), draw(n_written)


def translator_recipe(setup: Setup) -> ResolvedRecipe:
    """Return the recipe that this project runs, resolved."""
    size = SIZES[setup.size]
    dropouts = ("dropout", "dropout_attention", "dropout_ffn")
    recipe = load_recipe(
        "wmt14-base-transformer",
        {
            "model.d_model": size.d_model,
            "model.d_ff": size.d_ff,
            "model.n_layers": size.n_layers,
            "model.n_heads": size.n_heads,
            "data.context": size.context,
            "train.steps": _STEPS,
            "train.batch_tokens": size.batch_tokens,
            "train.precision": setup.precision,
            "train.threads": torch.get_num_threads(),
            **{f"model.{place}": setup.dropout for place in dropouts},
        },
    ).recipe
    model = resolve_model(recipe.model, vocab_size=size.vocab_size, context=size.context)
    train = resolve_train(
        recipe,
        steps=_STEPS,
        valid_tokens=None,
        is_gpu=setup.device == "cuda",
        threads=torch.get_num_threads(),
    )
    return recipe.resolved(model, train, resolve_optimizer(recipe.optimizer, steps=_STEPS))


def build_translator_step(setup: Setup) -> Step:
    """Build a contestant's model, optimizer and data, and return what takes one optimizer step."""
    recipe = translator_recipe(setup)
    batches = RandomPairs(SIZES[setup.size])
    if setup.contestant == PEER:
        return M2M100Step(setup, recipe, batches)
    assert setup.contestant == OURS, "there are two"
    device = torch.device(setup.device)
    model = build(recipe.model, seed=recipe.train.seed)
    objective = family_of(recipe.objective).build(model, recipe.objective, 0).to(device)
    return TrainStep(recipe, objective, batches, device=device, world=World(rank=0, size=1))


class M2M100Step:
    """A plain training step on our batches, in memory."""

    def __init__(self, setup: Setup, recipe: ResolvedRecipe, batches: RandomPairs) -> None:
        assert isinstance(recipe.objective, TranslationObjective), "a recipe of translation"
        self.setup = setup
        self.smoothing = recipe.objective.label_smoothing
        torch.manual_seed(0)
        self.model = m2m100(SIZES[setup.size], recipe, setup).to(setup.device).train()
        self.forward: Callable[..., Any] = self.model
        if setup.is_compiled:
            self.forward = torch.compile(self.model)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        made = [batches.batch(step) for step in range(N_BATCHES)]
        self.batches = [batch.to(torch.device(setup.device)) for batch in made]
        self.n_targets = [batches.n_tokens(step) for step in range(N_BATCHES)]

    def __call__(self, step: int) -> Tensor:
        """Take one step and return its loss."""
        batch = self.batches[step % N_BATCHES]
        assert batch.written is not None and batch.targets is not None, "a decoder writes"
        with autocast(self.setup):
            mask = None if batch.read.mask is None else batch.read.mask.long()
            logits = self.forward(
                batch.read.tokens,
                attention_mask=mask,
                decoder_input_ids=batch.written.tokens,
                use_cache=False,
            ).logits
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1),
                batch.targets.flatten(),
                ignore_index=-1,
                label_smoothing=self.smoothing,
            )
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def n_tokens(self, step: int) -> int:
        return self.n_targets[step % N_BATCHES]


def m2m100(size: TranslatorSize, recipe: ResolvedRecipe, setup: Setup) -> nn.Module:
    """Build transformers' model of the same shapes."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    terms: dict[str, Any] = {
        "vocab_size": recipe.model.vocab_size,
        "d_model": size.d_model,
        "encoder_layers": size.n_layers,
        "decoder_layers": size.n_layers,
        "encoder_attention_heads": size.n_heads,
        "decoder_attention_heads": size.n_heads,
        "encoder_ffn_dim": size.d_ff,
        "decoder_ffn_dim": size.d_ff,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "dropout": setup.dropout,
        "attention_dropout": setup.dropout,
        "activation_dropout": setup.dropout,
        "activation_function": "relu",
        "scale_embedding": True,
        "max_position_embeddings": size.context + 2,
        "pad_token_id": 0,
    }
    config = M2M100Config(**terms)
    config._attn_implementation = "sdpa"
    return M2M100ForConditionalGeneration(config)
