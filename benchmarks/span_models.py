"""The contestants in span corruption: this project's own step, and transformers' T5.

The same terms: T5's shapes (v1.0: ReLU, no biases, RMSNorm before each sub-layer, tied embeddings,
unscaled attention, scaled outputs), its five places of dropout, cross-entropy alone, clipping at
norm 1, fused AdamW, threads, and the same batches.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from contestants import LEARNING_RATE, OURS, Setup, Step, adamw, autocast
from products import precisions
from stand_in import stand_in
from torch import Tensor, nn

from sublayer.config.load import load_recipe
from sublayer.config.recipe import ResolvedRecipe
from sublayer.config.resolve import resolve_model, resolve_optimizer, resolve_train
from sublayer.data.batches import PackedBatch
from sublayer.data.span import EpochPieces, RandomPieces
from sublayer.data.store import Split
from sublayer.model.transformer import EncoderDecoder, build
from sublayer.objective.base import family_of
from sublayer.objective.span import SpanFamily
from sublayer.system.machine import allocate_for_training
from sublayer.training.step import TrainStep
from sublayer.training.world import World

WITHOUT = "sublayer, no positions"
"""Ours again, by which the cost of relative positions is told."""
PEER = "transformers T5"
ALONE = World(rank=0, size=1)
N_BATCHES = 8
"""Batches that the peer has in memory: the first ones of ours, again and again."""
N_SENTINELS = 100
_STEPS = 10_000
_IGNORED = -100


@dataclass(frozen=True)
class SpanSize:
    """A model, its batch and what its encoder reads; targets are as long as the objective says."""

    d_model: int
    d_ff: int
    n_layers: int
    n_heads: int
    context: int
    sequences: int
    vocab_size: int

    def __str__(self) -> str:
        return (
            f"d {self.d_model}, {self.n_layers} + {self.n_layers} layers, {self.n_heads} heads, "
            f"d_ff {self.d_ff:,}, T {self.context}, B {self.sequences}, V {self.vocab_size:,}"
        )


SIZES = {
    "d256": SpanSize(256, 1024, 4, 4, context=128, sequences=32, vocab_size=8_000),
    # T5-small's.
    "small": SpanSize(512, 2048, 6, 8, context=512, sequences=8, vocab_size=32_128),
    # For a GPU, T5-base's, and what stands for it where that is only tried.
    "base": SpanSize(768, 3072, 12, 12, context=512, sequences=32, vocab_size=32_128),
    "dry": SpanSize(32, 64, 2, 2, context=64, sequences=4, vocab_size=400),
}
CPU_SIZES = ("d256", "small")
AS_T5: dict[str, Any] = {
    "model.kind": "encoder-decoder",
    "model.ffn": "relu",
    "model.norm": "rms",
    "model.norm_eps": 1e-6,
    "model.bias": False,
    "model.attention_scale": "none",
    "model.output_scale": "sqrt",
    "model.init": "t5",
    "model.decoder_start": "pad",
    "objective.kind": "span",
    "data.tokenizer": "unigram",
    "data.sentinels": N_SENTINELS,
    "data.windows": "shuffled",
}
DROPOUTS = ("dropout", "dropout_attention", "dropout_ffn", "dropout_embedding", "dropout_final")


def span_setups(size: str, dropout: float) -> list[Setup]:
    """List the ways in which the contestants may run a case; the best one of each counts."""
    variants = {OURS: ("",), WITHOUT: ("",), PEER: ("sdpa", "eager")}
    timed = precisions(SIZES[size].d_model)
    return [
        Setup(name, size, dropout, precision, variant)
        for name, own in variants.items()
        for precision, variant in itertools.product(timed, own)
    ]


def build_span_step(setup: Setup) -> Step:
    """Build a contestant's model, optimizer and data, and return what takes one optimizer step."""
    if setup.contestant == PEER:
        return T5Step(setup)
    recipe = span_recipe(setup)
    device = torch.device(setup.device)
    if device.type == "cpu":
        allocate_for_training(recomputes=recipe.train.recompute != "none")
    family = family_of(recipe.objective)
    batches = family.batches(recipe, text(recipe))
    model = build(recipe.model, seed=recipe.train.seed)
    objective = family.build(model, recipe.objective, 0).to(device)
    return TrainStep(recipe, objective, batches, device=device, world=ALONE)


def span_recipe(setup: Setup) -> ResolvedRecipe:
    """Return the recipe that this project runs, resolved."""
    size = SIZES[setup.size]
    settings = {
        "model.d_model": size.d_model,
        "model.n_layers": size.n_layers,
        "model.n_heads": size.n_heads,
        "model.d_ff": size.d_ff,
        "model.positions": "none" if setup.contestant == WITHOUT else "relative",
        "data.vocab_size": size.vocab_size,
        "data.context": size.context,
        "optimizer.lr": LEARNING_RATE,
        "train.steps": _STEPS,
        "train.batch_sequences": size.sequences,
        "train.precision": setup.precision,
        "train.compile": setup.is_compiled,
        "train.threads": torch.get_num_threads(),
    }
    dropouts = {f"model.{place}": setup.dropout for place in DROPOUTS}
    recipe = load_recipe("gpt", {**AS_T5, **settings, **dropouts}).recipe
    model = resolve_model(recipe.model, vocab_size=size.vocab_size, context=size.context)
    train = resolve_train(
        recipe,
        steps=_STEPS,
        valid_tokens=None,
        is_gpu=setup.device == "cuda",
        threads=torch.get_num_threads(),
    )
    return recipe.resolved(model, train, resolve_optimizer(recipe.optimizer, steps=_STEPS))


def text(recipe: ResolvedRecipe) -> Split:
    """Make the text of a recipe: random ids, none of them a sentinel."""
    return stand_in(recipe.model.vocab_size, N_SENTINELS)


def pieces(recipe: ResolvedRecipe) -> EpochPieces | RandomPieces:
    """Make the batches of a recipe."""
    return SpanFamily().batches(recipe, text(recipe))


def untrained(size: SpanSize) -> EncoderDecoder:
    """Build our model of a size as it is before training, in evaluation mode."""
    name = next(name for name, each in SIZES.items() if each == size)
    model = build(span_recipe(Setup(OURS, name, 0.0, "float32")).model, seed=0)
    assert isinstance(model, EncoderDecoder), "the kind that is asked for"
    return model.eval()


class T5Step:
    """A plain training step on our batches, in memory; transformers' class computes the loss."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        torch.manual_seed(0)
        self.model = t5(SIZES[setup.size], setup.dropout, setup.variant).to(setup.device).train()
        self.forward: Callable[..., Any] = self.model
        if setup.is_compiled:
            self.forward = torch.compile(self.model)
        self.optimizer = adamw(self.model)
        made = pieces(span_recipe(replace(setup, contestant=OURS)))
        self.batches = [
            {name: each.to(setup.device) for name, each in _as_arguments(made.batch(step)).items()}
            for step in range(N_BATCHES)
        ]
        self.n_real = [made.n_tokens(step) for step in range(N_BATCHES)]

    def __call__(self, step: int) -> Tensor:
        """Take one step and return its loss."""
        with autocast(self.setup):
            loss: Tensor = self.forward(**self.batches[step % N_BATCHES], use_cache=False).loss
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def n_tokens(self, step: int) -> int:
        return self.n_real[step % N_BATCHES]


def t5(size: SpanSize, dropout: float, variant: str) -> nn.Module:
    """Build transformers' model; ``variant`` is its attention, sdpa or eager."""
    from transformers import T5Config, T5ForConditionalGeneration

    terms: dict[str, Any] = {
        "vocab_size": size.vocab_size,
        "d_model": size.d_model,
        "d_kv": size.d_model // size.n_heads,
        "d_ff": size.d_ff,
        "num_layers": size.n_layers,
        "num_heads": size.n_heads,
        "dropout_rate": dropout,
        "feed_forward_proj": "relu",
        "tie_word_embeddings": True,
    }
    config = T5Config(**terms)
    config._attn_implementation = variant
    return T5ForConditionalGeneration(config)


def _as_arguments(batch: PackedBatch) -> dict[str, Tensor]:
    assert batch.read.mask is None, "spans in a text that is cut through leave no padding"
    assert batch.written is not None and batch.targets is not None, "a decoder writes"
    return {
        "input_ids": batch.read.tokens,
        "decoder_input_ids": batch.written.tokens,
        "labels": batch.targets.masked_fill(batch.targets < 0, _IGNORED),
    }
