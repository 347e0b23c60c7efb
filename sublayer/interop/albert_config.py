"""ALBERT's config.json, as transformers writes it, to and from a model's config."""

from collections.abc import Callable
from typing import Any

from sublayer.config.model import ModelConfig
from sublayer.data.vocabulary import Tokenizer
from sublayer.errors import CheckpointError
from sublayer.interop import encoder_config
from sublayer.interop.content import Content
from sublayer.interop.encoder_config import Fields, resolved, shared_fields, write_bert

# What transformers takes for a field that a config.json leaves out.
_DEFAULTS: Fields = {
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "hidden_act": "gelu_new",
    "vocab_size": 30000,
    "dropout": 0.0,
}

# (unit of blocks, number of units, number of groups) -> the unit's group. Rounding in floating point moves borders.
Grouping = Callable[[int, int, int], int]


def group_in_transformers(unit: int, n_units: int, n_groups: int) -> int:
    """Give the group of a unit as transformers computes it."""
    return int(unit / (n_units / n_groups))


def group_as_released(unit: int, n_units: int, n_groups: int) -> int:
    """Give the group of a unit as the released code computes it."""
    return int(unit / n_units * n_groups)


def read_albert(albert: Content, heads_found: Fields, *, has_projection: bool, group: Grouping) -> ModelConfig:
    """Turn ALBERT's config.json into a resolved model config, with the fields of the heads that were found.

    A group for each layer is no sharing. ``has_projection`` says that embeddings are projected also where they are as
    wide as the model. Raises CheckpointError, naming the field, where it is malformed, or asks for what a recipe
    cannot say.
    """
    fields = shared_fields(albert, _DEFAULTS)
    n_units, n_groups = albert.whole("num_hidden_layers", 12), albert.whole("num_hidden_groups", 1)
    n_inner = albert.whole("inner_group_num", 1)
    named = f"num_hidden_groups = {n_groups}", f"num_hidden_layers = {n_units}"
    if n_groups > n_units:
        raise CheckpointError(f"{albert.file}: {named[0]} is more than {named[1]}")
    if not _parts_alike(n_units, n_groups, group):
        raise CheckpointError(
            f"{albert.file}: {named[0]} does not part {named[1]} as a recipe does: the system it comes from rounds the "
            "groups' borders in floating point"
        )
    sharing: Fields = {"share": "all", "share_groups": n_groups, "share_inner": n_inner}
    if n_groups == n_units > 1 and n_inner == 1:
        sharing = {"share": "none"}
    d_embed = albert.whole("embedding_size", 128)
    is_forced = has_projection and d_embed == fields["d_model"]
    width: Fields = {
        "d_embed": d_embed,
        "embedding_projection": "sum",
        "project_embeddings": "always" if is_forced else "as-needed",
    }
    return resolved({**fields, **sharing, **width, **heads_found, "n_layers": n_units * n_inner})


def written_out(config: ModelConfig) -> Fields:
    """Name the fields, with their values, of what ALBERT always has (see ``written_out.write_out``).

    It always projects the embeddings; what shares in another way than in groups is written with a group a layer.
    """
    always = {
        **encoder_config.written_out(config),
        "embedding_projection": "sum",
        "project_embeddings": "always",
    }
    n_units = config.n_layers // config.share_inner
    if config.share == "all" and _parts_alike(n_units, config.share_groups, group_in_transformers):
        always |= {"share": "all", "share_groups": config.share_groups, "share_inner": config.share_inner}
    return always


def write_albert(config: ModelConfig, tokenizer: Tokenizer | None, *, architecture: str) -> dict[str, Any]:
    """Turn a written-out model config into ALBERT's config.json, leaving out what ``write_bert`` does."""
    return {
        **write_bert(config, tokenizer, architecture=architecture),
        "model_type": "albert",
        "embedding_size": config.d_embed,
        "inner_group_num": config.share_inner,
        "num_hidden_groups": config.share_groups if config.share == "all" else config.n_layers,
        "num_hidden_layers": config.n_layers // config.share_inner,
    }


def _parts_alike(n_units: int, n_groups: int, group: Grouping) -> bool:
    return all(group(unit, n_units, n_groups) == unit * n_groups // n_units for unit in range(n_units))
