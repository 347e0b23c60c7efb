"""GPT-2's tensors, as transformers names and lays them out, to and from a model's."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.interop.content import Content
from sublayer.interop.pairs import Pair, check_tied

HEAD = "lm_head.weight"
_TABLE = "wte.weight"
# Causal masks that older versions of transformers saved with the weights.
_IGNORED = (".attn.bias", ".attn.masked_bias")


def is_mask(name: str) -> bool:
    """Tell the tensors that hold no weights."""
    return name.endswith(_IGNORED)


def prepare(gpt2: Content, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave out an output matrix that is the token table.

    Raises CheckpointError where config.json ties the two and they differ.
    """
    found = dict(tensors)
    if gpt2.flag("tie_word_embeddings"):
        check_tied(found, HEAD, _TABLE)
        found.pop(HEAD, None)
    return found


def pairs(config: ModelConfig) -> Iterator[Pair]:
    """Pair the tensors of GPT-2, named without the prefix ``transformer.``, with a written-out model's."""
    yield Pair((_TABLE,), "embedding.weight")
    yield Pair(("wpe.weight",), "positions.tables.0.weight")
    for layer in range(config.n_layers):
        attention, ffn = f"decoder.sublayers.0.{layer}", f"decoder.sublayers.1.{layer}"
        yield from _norm(f"h.{layer}.ln_1", f"{attention}.norm")
        yield from _linear(f"h.{layer}.attn.c_attn", f"{attention}.function.projection")
        yield from _linear(f"h.{layer}.attn.c_proj", f"{attention}.function.output")
        yield from _norm(f"h.{layer}.ln_2", f"{ffn}.norm")
        yield from _linear(f"h.{layer}.mlp.c_fc", f"{ffn}.function.input")
        yield from _linear(f"h.{layer}.mlp.c_proj", f"{ffn}.function.output")
    yield from _norm("ln_f", "final_norm")
    if not config.tie_embeddings:
        yield Pair((HEAD,), "head.weight")


def _norm(gpt2: str, ours: str) -> Iterator[Pair]:
    yield Pair((f"{gpt2}.weight",), f"{ours}.weight")
    yield Pair((f"{gpt2}.bias",), f"{ours}.bias")


def _linear(gpt2: str, ours: str) -> Iterator[Pair]:
    yield Pair((f"{gpt2}.weight",), f"{ours}.weight", is_transposed=True)
    yield Pair((f"{gpt2}.bias",), f"{ours}.bias")
