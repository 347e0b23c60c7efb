"""GPT-2's tensors, as transformers names and lays them out, to and from a model's."""

from collections.abc import Iterator, Mapping
from functools import partial

from torch import Tensor

from sublayer.config.resolved import ResolvedModel
from sublayer.interop.config_reader import Content
from sublayer.interop.weight_map import Pair, check_tied, pair_linear

HEAD = "lm_head.weight"
_TABLE = "wte.weight"
# Its maps are [d_in, d_out].
_pair_map = partial(pair_linear, is_transposed=True)
# Causal masks that older versions of transformers saved with the weights.
_IGNORED = (".attn.bias", ".attn.masked_bias")


def is_mask(name: str) -> bool:
    """Return whether a tensor holds no weights."""
    return name.endswith(_IGNORED)


def prepare(gpt2: Content, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave out an output matrix that is the embedding matrix.

    Raises CheckpointError where config.json ties the two and they differ.
    """
    return leave_out_tied(gpt2, tensors, _TABLE)


def leave_out_tied(
    content: Content, tensors: Mapping[str, Tensor], table: str
) -> dict[str, Tensor]:
    """Leave out an output matrix that is the embedding matrix, which ``table`` names.

    Raises CheckpointError where config.json ties the two and they differ.
    """
    weights = dict(tensors)
    if content.flag("tie_word_embeddings"):
        check_tied(weights, HEAD, table)
        weights.pop(HEAD, None)
    return weights


def pairs(config: ResolvedModel) -> Iterator[Pair]:
    """Pair GPT-2's tensors, without the prefix ``transformer.``, with an expanded model's."""
    yield Pair((_TABLE,), "embedding.weight")
    yield Pair(("wpe.weight",), "positions.tables.0.weight")
    yield from pair_blocks(config)
    yield from pair_linear("ln_f", "final_norm")
    if config.head != "none" and not config.tie_embeddings:
        yield Pair((HEAD,), "head.weight")


def last_norm(config: ResolvedModel) -> str:
    """Return what names of the norm begin with that an expanded model's final states come from."""
    return "final_norm"


def pair_blocks(config: ResolvedModel) -> Iterator[Pair]:
    """Pair the tensors of blocks, whose norms stand before a sub-layer or after it."""
    for layer in range(config.n_layers):
        attention = f"decoder.sublayers.0.{layer}"
        ffn = f"decoder.sublayers.1.{layer}"
        yield from pair_linear(f"h.{layer}.ln_1", f"{attention}.norm")
        yield from _pair_map(f"h.{layer}.attn.c_attn", f"{attention}.function.projection")
        yield from _pair_map(f"h.{layer}.attn.c_proj", f"{attention}.function.output")
        yield from pair_linear(f"h.{layer}.ln_2", f"{ffn}.norm")
        yield from _pair_map(f"h.{layer}.mlp.c_fc", f"{ffn}.function.input")
        yield from _pair_map(f"h.{layer}.mlp.c_proj", f"{ffn}.function.output")
