"""The contestants in training encoders: this project's own step, and transformers' classes.

The same terms: sizes, tied embeddings, segments, a transform head over the vocabulary, a pooler and
a head for pairs, post-norm, tanh-approximated GELU, dropout places (embedding, attention weights,
the output of every sub-layer), clipping at norm 1, fused AdamW, threads, and the same examples in
each step, which peers get padded to the longest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from contestants import LEARNING_RATE, OURS, Setup, Size, Step, adamw, autocast, compiling
from padded import N_BATCHES, first_examples, padded
from products import precisions
from stand_in import stand_in
from torch import Tensor, nn

from sublayer.config.load import load_recipe
from sublayer.config.recipe import ResolvedRecipe
from sublayer.config.resolve import resolve_model, resolve_optimizer, resolve_train
from sublayer.model.transformer import build
from sublayer.objective.base import family_of
from sublayer.system.machine import allocate_for_training
from sublayer.training.step import TrainStep
from sublayer.training.world import World

Family = Literal["bert", "albert"]
FAMILIES: dict[Family, str] = {"bert": "BERT", "albert": "ALBERT"}
SIZES = {
    "d256": Size(256, 6, 4, context=128, sequences=32, vocab_size=8_000),
    "d512": Size(512, 12, 8, context=512, sequences=8, vocab_size=30_000),
    # For a GPU, and what stands for it where that is only tried.
    "base": Size(768, 12, 12, context=512, sequences=32, vocab_size=30_000),
    "dry": Size(32, 2, 2, context=64, sequences=4, vocab_size=400),
}
CPU_SIZES = ("d256", "d512")
D_EMBED = 128
"""Width of ALBERT's embedding matrix; that of the recipe, too."""
ALONE = World(rank=0, size=1)
CPU = torch.device("cpu")
_AS_BERT = {"share": "none", "d_embed": None, "embedding_projection": "tokens"}
_AS_BERT_IS_TRAINED = {"masking": "token", "sentence": "nsp"}
_STEPS = 10_000
_IGNORED = -100


@dataclass(frozen=True)
class EncoderSetup(Setup):
    """Training step of one contestant."""

    family: Family = "bert"


def encoder_setups(
    contestant: str, size: str, dropout: float, family: Family
) -> list[EncoderSetup]:
    """List the ways in which a contestant may run a case; its best one counts."""
    variant = "" if contestant == OURS else "sdpa"
    timed = precisions(SIZES[size].d_model)
    return [
        EncoderSetup(contestant, size, dropout, precision, variant, family=family)
        for precision in timed
    ]


def as_encoder(setup: Setup) -> EncoderSetup:
    """Return the setup of an encoder."""
    assert isinstance(setup, EncoderSetup), "a case of encoders"
    return setup


def peer(family: Family) -> str:
    """Name the class of transformers that a family is measured against."""
    return f"transformers {FAMILIES[family]}"


def build_encoder_step(setup: EncoderSetup) -> Step:
    """Build a contestant's model, optimizer and data, and give what takes one optimizer step."""
    if setup.contestant == OURS:
        recipe = compiling(encoder_recipe(setup), setup)
        return train_step(recipe, device=torch.device(setup.device))
    torch.manual_seed(0)
    return EncoderPeerStep(_PEERS[setup.family](SIZES[setup.size], setup.dropout), setup)


def encoder_recipe(setup: EncoderSetup) -> ResolvedRecipe:
    """Give the recipe that this project runs, resolved."""
    size = SIZES[setup.size]
    settings = {
        "optimizer.lr": LEARNING_RATE,
        "model.dropout": setup.dropout,
        "train.precision": setup.precision,
        "train.threads": torch.get_num_threads(),
    }
    return sized_recipe(setup.family, size, settings, is_gpu=setup.device == "cuda")


def sized_recipe(
    family: Family, size: Size, settings: Mapping[str, Any], *, is_gpu: bool = False
) -> ResolvedRecipe:
    """Resolve ``albert-small``, or a BERT made of it, at a size and with settings."""
    sized = {
        "model.d_model": size.d_model,
        "model.n_layers": size.n_layers,
        "model.n_heads": size.n_heads,
        "data.vocab_size": size.vocab_size,
        "data.context": size.context,
        "train.steps": _STEPS,
        "train.batch_sequences": size.sequences,
    }
    recipe = load_recipe("albert-small", {**sized, **settings}).recipe
    model, objective = recipe.model, recipe.objective
    if family == "bert":
        model, objective = (
            model.model_copy(update=_AS_BERT),
            objective.model_copy(update=_AS_BERT_IS_TRAINED),
        )
    resolved = resolve_model(model, vocab_size=size.vocab_size, context=size.context)
    train = resolve_train(
        recipe, steps=_STEPS, valid_tokens=None, is_gpu=is_gpu, threads=torch.get_num_threads()
    )
    optimizer = resolve_optimizer(recipe.optimizer, steps=_STEPS)
    given = recipe.model_copy(update={"objective": objective})
    return given.resolved(resolved, train, optimizer)


def train_step(
    recipe: ResolvedRecipe, world: World = ALONE, device: torch.device = CPU
) -> TrainStep:
    """Build this project's real training step: pairs, masks, packing, micro-batches and all."""
    if device.type == "cpu":
        allocate_for_training(recomputes=recipe.train.recompute != "none")
    family = family_of(recipe.objective)
    batches = family.batches(recipe, stand_in(recipe.model.vocab_size))
    model = build(recipe.model, seed=recipe.train.seed)
    objective = family.build(model, recipe.objective, 0).to(device)
    return TrainStep(recipe, objective, batches, device=device, world=world)


class EncoderPeerStep:
    """A plain training step on padded batches in memory; transformers' class adds the losses."""

    def __init__(self, model: nn.Module, setup: EncoderSetup) -> None:
        self.setup, self.model = setup, model.to(setup.device).train()
        self.forward: Callable[..., Any] = self.model
        if setup.is_compiled:
            self.forward = torch.compile(self.model)
        self.optimizer = adamw(model)
        label = "next_sentence_label" if setup.family == "bert" else "sentence_order_label"
        examples = first_examples(encoder_recipe(setup))
        self.batches = [
            {name: each.to(setup.device) for name, each in padded(batch, label).items()}
            for batch in examples
        ]
        self.n_real = [sum(len(example.ids) for example in batch) for batch in examples]

    def __call__(self, step: int) -> Tensor:
        """Take one step and give its loss."""
        with autocast(self.setup):
            loss: Tensor = self.forward(**self.batches[step % N_BATCHES]).loss
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def n_tokens(self, step: int) -> int:
        return self.n_real[step % N_BATCHES]


def _bert(size: Size, dropout: float) -> nn.Module:
    from transformers import BertConfig, BertForPreTraining

    config = BertConfig(**_terms(size, dropout))
    config._attn_implementation = "sdpa"
    return BertForPreTraining(config)


def _albert(size: Size, dropout: float) -> nn.Module:
    from transformers import AlbertConfig, AlbertForPreTraining

    # Ours has no dropout before the head of pairs; BERT has none there either.
    config = AlbertConfig(
        **_terms(size, dropout), embedding_size=D_EMBED, classifier_dropout_prob=0.0
    )
    config._attn_implementation = "sdpa"
    return AlbertForPreTraining(config)


def _terms(size: Size, dropout: float) -> dict[str, Any]:
    return {
        "vocab_size": size.vocab_size,
        "max_position_embeddings": size.context,
        "hidden_size": size.d_model,
        "num_hidden_layers": size.n_layers,
        "num_attention_heads": size.n_heads,
        "intermediate_size": 4 * size.d_model,
        # The same function as ours, in one kernel.
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }


_PEERS: dict[Family, Callable[[Size, float], nn.Module]] = {"bert": _bert, "albert": _albert}
