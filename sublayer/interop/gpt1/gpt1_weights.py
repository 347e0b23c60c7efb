"""GPT-1's tensors, as transformers names and lays them out, to and from a model's."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from sublayer.config.resolved import ResolvedModel
from sublayer.interop.config_reader import Content
from sublayer.interop.gpt2.gpt2_weights import HEAD, is_mask, leave_out_tied, pair_blocks
from sublayer.interop.weight_map import Pair

TABLE = "tokens_embed.weight"
# The numbers of the positions, which older versions of transformers saved with the weights.
_POSITIONS = "position_ids"


def is_constant(name: str) -> bool:
    """Return whether a tensor holds no weights."""
    return is_mask(name) or name == _POSITIONS


def prepare(gpt1: Content, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave out an output matrix that is the embedding matrix.

    Raises CheckpointError where config.json ties the two and they differ.
    """
    return leave_out_tied(gpt1, tensors, TABLE)


def pairs(config: ResolvedModel) -> Iterator[Pair]:
    """Pair GPT-1's tensors, without the prefix ``transformer.``, with an expanded model's."""
    yield Pair((TABLE,), "embedding.weight")
    yield Pair(("positions_embed.weight",), "positions.tables.0.weight")
    yield from pair_blocks(config)
    if config.head != "none" and not config.tie_embeddings:
        yield Pair((HEAD,), "head.weight")


def last_norm(config: ResolvedModel) -> str:
    """Return what names of the norm begin with that an expanded model's final states come from."""
    return f"decoder.sublayers.1.{config.n_layers - 1}.norm"
