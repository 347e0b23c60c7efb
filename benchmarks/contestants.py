"""Contestants: this project's own training step and those of its peers, all on the same terms.

The same terms: sizes, tied embeddings, learned positions, dropout places (embedding, attention
weights, the output of every sub-layer), loss over all positions, clipping at norm 1, fused AdamW,
threads. For ``char-t12``: ReLU, dropout of attention weights and hidden units, SGD with momentum
and no clipping; positions in every layer and the losses of all layers are ours alone. For
``llama-2023``: rotary positions, RMSNorm, SwiGLU and no biases, dropout of attention weights alone.
"""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from products import precisions
from torch import Tensor, nn

from sublayer.config.load import LoadedRecipe, load_recipe
from sublayer.config.recipe import ResolvedModel, ResolvedRecipe
from sublayer.config.resolve import resolve_model
from sublayer.model.estimates import Precision
from sublayer.runs.session import Place, assemble, prepare_data, resolve
from sublayer.training.step import TrainStep
from sublayer.training.world import World

LEARNING_RATE = 3e-4
N_BATCHES = 8


class Step(Protocol):
    """Function that takes one optimizer step, by its number, and counts its tokens, padding not."""

    def __call__(self, step: int) -> object: ...

    def n_tokens(self, step: int) -> int: ...


@dataclass(frozen=True)
class Size:
    """A model and a global batch; ``recipe`` is ours, and ``tokenizer`` reads its text."""

    d_model: int
    n_layers: int
    n_heads: int
    context: int
    sequences: int
    vocab_size: int
    tokenizer: Literal["bpe", "bytes"] = "bpe"
    recipe: Literal["gpt", "llama-2023", "char-t12", "gpt1-small"] = "gpt"
    optimizer: Literal["adamw", "muon"] = "adamw"
    """With Muon, ours with AdamW is the only peer."""

    @property
    def is_character_model(self) -> bool:
        return self.recipe == "char-t12"

    @property
    def tokens_per_step(self) -> int:
        return self.sequences * self.context

    def __str__(self) -> str:
        return (
            f"d {self.d_model}, {self.n_layers} layers, {self.n_heads} heads, T {self.context}, "
            f"B {self.sequences}, V {self.vocab_size:,}"
        )


SIZES = {
    # The recipe gpt as it is shipped.
    "gpt": Size(
        d_model=192,
        n_layers=6,
        n_heads=4,
        context=128,
        sequences=8,
        vocab_size=256,
        tokenizer="bytes",
    ),
    "d256": Size(d_model=256, n_layers=6, n_heads=4, context=256, sequences=16, vocab_size=512),
    "d512": Size(d_model=512, n_layers=12, n_heads=8, context=512, sequences=4, vocab_size=8192),
    "muon": Size(512, 6, 8, context=512, sequences=16, vocab_size=8192, optimizer="muon"),
    # Its d_ff is that of the recipe as shipped, at d 192.
    "llama-2023": Size(
        d_model=256,
        n_layers=6,
        n_heads=4,
        context=256,
        sequences=16,
        vocab_size=512,
        recipe="llama-2023",
    ),
    "char-t12": Size(
        512, 12, 2, context=512, sequences=4, vocab_size=256, tokenizer="bytes", recipe="char-t12"
    ),
    # As shipped, beside the class of the same model; a byte-level BPE of as many ids takes as long.
    "gpt1-small": Size(
        d_model=256,
        n_layers=4,
        n_heads=4,
        context=128,
        sequences=32,
        vocab_size=8192,
        recipe="gpt1-small",
    ),
    # For a GPU. The built-in corpus is too small for a vocabulary of this size; rows of the table
    # are left unused.
    "gpt2": Size(
        d_model=768,
        n_layers=12,
        n_heads=12,
        context=1024,
        sequences=16,
        vocab_size=50257,
        tokenizer="bytes",
    ),
    # What stands for it where that is only tried.
    "dry": Size(32, 2, 2, context=64, sequences=4, vocab_size=400, tokenizer="bytes"),
}


@dataclass(frozen=True)
class Setup:
    """Setup of one contestant: everything that separates one training step from another."""

    contestant: str
    size: str
    dropout: float
    precision: Precision
    variant: str = ""
    device: str = "cpu"
    compiles: bool = False
    """Whether it runs under ``torch.compile`` on a CPU, too."""

    @property
    def is_compiled(self) -> bool:
        return self.compiles or self.device == "cuda"

    @property
    def is_compiled_on_cpu(self) -> bool:
        return self.is_compiled and self.device == "cpu"

    @property
    def name(self) -> str:
        """Name of its row in a table: compiled on a CPU, a contestant has another row."""
        return f"{self.contestant}, compiled" if self.is_compiled_on_cpu else self.contestant

    def __str__(self) -> str:
        return ", ".join(part for part in (self.precision, self.variant) if part)

    def described(self) -> dict[str, Any]:
        """Return its fields for results, without the places of files."""
        return {each.name: getattr(self, each.name) for each in fields(Setup)}


def contestants(size: str) -> list[str]:
    """List who takes part in a case: of characters, those with its dropout and activation."""
    if SIZES[size].optimizer == "muon":
        return [OURS, WITH_ADAMW]
    return [OURS, *PEERS_OF[SIZES[size].recipe]]


def setups(contestant: str, size: str, dropout: float, device: str) -> list[Setup]:
    """List the ways in which a contestant may run a case; its best one counts."""
    timed: tuple[Precision, ...] = (
        ("bfloat16",) if device == "cuda" else precisions(SIZES[size].d_model)
    )
    return [
        Setup(contestant, size, dropout, precision, variant, device)
        for precision, variant in itertools.product(timed, VARIANTS[contestant])
    ]


def build_step(setup: Setup) -> Step:
    """Build a contestant's model, optimizer and data, and give what takes one optimizer step."""
    if setup.contestant in (OURS, WITH_ADAMW):
        return our_step(setup)
    return PeerStep(build_peer(setup), setup)


def build_peer(setup: Setup, *, seed: int = 0) -> nn.Module:
    """Build a peer's model, from tokens to logits."""
    torch.manual_seed(seed)
    return _PEERS[setup.contestant](SIZES[setup.size], setup.dropout, setup.variant)


def our_recipe(setup: Setup) -> LoadedRecipe:
    """Give the recipe that this project runs, ``gpt`` or ``llama-2023`` at the case's size."""
    size = SIZES[setup.size]
    run = {
        "train.steps": 10_000,
        "train.batch_sequences": size.sequences,
        "train.precision": setup.precision,
        "train.compile": setup.is_compiled and not setup.is_compiled_on_cpu,
        "train.threads": torch.get_num_threads(),
    }
    if size.is_character_model:
        dropout = {"model.dropout_attention": setup.dropout, "model.dropout_ffn": setup.dropout}
        return load_recipe("char-t12", {"data.corpus": "python", **dropout, **run})
    if size.recipe == "gpt1-small":
        text = {"data.tokenizer": "bpe", "data.vocab_size": size.vocab_size}
        own = {"data.corpus": "python", "model.dropout": setup.dropout, **text, **run}
        if not setup.dropout:
            own["model.dropout_embedding_of"] = "sum"
        return load_recipe("gpt1-small", own)
    vocabulary = {
        "data.vocab_size" if size.tokenizer == "bpe" else "model.vocab_size": size.vocab_size
    }
    return load_recipe(
        size.recipe,
        {
            **_shape(size, setup.dropout),
            "data.tokenizer": size.tokenizer,
            "data.context": size.context,
            "optimizer.kind": "adamw" if setup.contestant == WITH_ADAMW else size.optimizer,
            "optimizer.lr": LEARNING_RATE,
            **run,
            **vocabulary,
        },
    )


def _shape(size: Size, dropout: float) -> dict[str, Any]:
    """Give the settings of ``[model]`` of a case of ``gpt`` or ``llama-2023``."""
    # The peer of ``llama-2023`` has no other dropout.
    dropped = "model.dropout_attention" if size.recipe == "llama-2023" else "model.dropout"
    return {
        "model.d_model": size.d_model,
        "model.n_layers": size.n_layers,
        "model.n_heads": size.n_heads,
        dropped: dropout,
    }


def our_model(size: Size, dropout: float) -> ResolvedModel:
    """Resolve the model that this project trains in a case of ``gpt`` or ``llama-2023``."""
    model = load_recipe(size.recipe, _shape(size, dropout)).recipe.model
    return resolve_model(model, vocab_size=size.vocab_size, context=size.context)


def resolved_recipe(setup: Setup) -> ResolvedRecipe:
    """Give the recipe that this project runs, resolved."""
    given = our_recipe(setup).recipe
    return compiling(resolve(given, prepare_data(given), _place(setup)), setup)


def compiling(recipe: ResolvedRecipe, setup: Setup) -> ResolvedRecipe:
    """Compile the activations where a setup is compiled on a CPU, as long runs do by themselves."""
    if not setup.is_compiled_on_cpu:
        return recipe
    train = recipe.train.model_copy(update={"kernels": "compiled"})
    return recipe.model_copy(update={"train": train})


def _place(setup: Setup) -> Place:
    return Place(torch.device(setup.device), World(rank=0, size=1))


def our_step(setup: Setup) -> TrainStep:
    """Build this project's real training step: tokenised corpus, micro-batches and all."""
    place = _place(setup)
    given = our_recipe(setup).recipe
    data = prepare_data(given)
    session = assemble(compiling(resolve(given, data, place), setup), data, place)
    assert session.recipe.model.vocab_size == SIZES[setup.size].vocab_size, (
        "the vocabulary came out smaller"
    )
    return session.train_step


class PeerStep:
    """A plain training step of a model from tokens to logits, on batches in memory."""

    def __init__(self, model: nn.Module, setup: Setup) -> None:
        self.setup = setup
        self.model = model.to(setup.device).train()
        self.forward: Callable[[Tensor], Any] = self.model
        if setup.is_compiled:
            self.forward = torch.compile(self.model)
        size, generator = SIZES[setup.size], torch.Generator().manual_seed(0)
        self.optimizer = _optimizer(model, size)
        shape = (N_BATCHES, size.sequences, size.context + 1)
        self.windows = torch.randint(size.vocab_size, shape, generator=generator).to(setup.device)

    def __call__(self, step: int) -> Tensor:
        """Take one step and give its loss."""
        window = self.windows[step % N_BATCHES]
        with autocast(self.setup):
            logits = self.forward(window[:, :-1])
            logits = getattr(logits, "logits", logits)  # [B, T, V]
            loss = F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        torch.autograd.backward(loss)
        if not SIZES[self.setup.size].is_character_model:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def n_tokens(self, step: int) -> int:
        return SIZES[self.setup.size].tokens_per_step


def autocast(setup: Setup) -> AbstractContextManager[Any]:
    """Compute in a setup's precision."""
    if setup.precision == "float32":
        return nullcontext()
    return torch.autocast(setup.device, dtype=torch.bfloat16)


def _optimizer(model: nn.Module, size: Size) -> torch.optim.Optimizer:
    if size.is_character_model:
        return torch.optim.SGD(model.parameters(), 3e-3, momentum=0.99, fused=True)
    return adamw(model)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Build the peers' AdamW."""
    return torch.optim.AdamW(
        model.parameters(), LEARNING_RATE, (0.9, 0.95), weight_decay=0.1, fused=True
    )


def _gpt2(size: Size, dropout: float, variant: str) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=size.vocab_size,
        n_positions=size.context,
        n_embd=size.d_model,
        n_layer=size.n_layers,
        n_head=size.n_heads,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        # The same function as the default, in one kernel.
        activation_function="gelu_pytorch_tanh",
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    config._attn_implementation = variant
    return GPT2LMHeadModel(config)


def _llama(size: Size, dropout: float, variant: str) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    ours = our_model(size, dropout)
    config = LlamaConfig(
        vocab_size=size.vocab_size,
        hidden_size=size.d_model,
        intermediate_size=ours.d_ff,
        num_hidden_layers=size.n_layers,
        num_attention_heads=size.n_heads,
        max_position_embeddings=size.context,
        rms_norm_eps=ours.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": ours.rotary_base},
        tie_word_embeddings=ours.tie_embeddings,
        attention_dropout=dropout,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    config._attn_implementation = variant
    return LlamaForCausalLM(config)


def _openai_gpt(size: Size, dropout: float, variant: str) -> nn.Module:
    from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

    config = OpenAIGPTConfig(
        vocab_size=size.vocab_size,
        n_positions=size.context,
        n_embd=size.d_model,
        n_layer=size.n_layers,
        n_head=size.n_heads,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
    )
    return OpenAIGPTLMHeadModel(config)


def _x_transformers(size: Size, dropout: float, variant: str) -> nn.Module:
    from x_transformers import Decoder, TransformerWrapper

    is_tied = not size.is_character_model
    own: dict[str, Any] = {"attn_sublayer_dropout": dropout, "ff_sublayer_dropout": dropout}
    if size.is_character_model:
        own = {"ff_dropout": dropout, "ff_custom_activation": nn.ReLU()}
    layers = Decoder(
        dim=size.d_model,
        depth=size.n_layers,
        heads=size.n_heads,
        attn_dim_head=size.d_model // size.n_heads,
        attn_flash=variant == "flash",
        attn_dropout=dropout,
        **own,
    )
    model: nn.Module = TransformerWrapper(
        num_tokens=size.vocab_size,
        max_seq_len=size.context,
        attn_layers=layers,
        emb_dropout=dropout if is_tied else 0.0,
        tie_embedding=is_tied,
    )
    return model


OURS = "sublayer"
WITH_ADAMW = "sublayer, AdamW"
GPT2 = "transformers GPT-2"
LLAMA = "transformers Llama"
OPENAI_GPT = "transformers OpenAI-GPT"
X_TRANSFORMERS = "x-transformers"
VARIANTS = {
    OURS: ("",),
    WITH_ADAMW: ("",),
    GPT2: ("sdpa", "eager"),
    LLAMA: ("sdpa", "eager"),
    OPENAI_GPT: ("",),
    X_TRANSFORMERS: ("flash", "no flash"),
}
PEERS_OF: dict[str, list[str]] = {
    "gpt": [GPT2, OPENAI_GPT, X_TRANSFORMERS],
    "llama-2023": [LLAMA],
    "char-t12": [X_TRANSFORMERS],
    "gpt1-small": [OPENAI_GPT],
}
"""Peers by our recipe."""
_PEERS: dict[str, Callable[[Size, float, str], nn.Module]] = {
    GPT2: _gpt2,
    LLAMA: _llama,
    OPENAI_GPT: _openai_gpt,
    X_TRANSFORMERS: _x_transformers,
}
