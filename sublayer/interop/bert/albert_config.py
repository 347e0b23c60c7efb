"""ALBERT's config.json, as transformers writes it, to and from a model's config."""

from typing import Any

from sublayer.config.limits import MOST_LAYERS
from sublayer.config.resolved import ResolvedModel
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError
from sublayer.interop.bert import encoder_config
from sublayer.interop.bert.encoder_config import Fields, shared_fields, write_bert
from sublayer.interop.huggingface.class_fields import ClassConfig


def read_albert(albert: ClassConfig, heads_found: Fields, *, has_projection: bool) -> ResolvedModel:
    """Convert ALBERT's config.json and the fields of its heads to a resolved config.

    A group for each layer is no sharing. ``has_projection`` says that embeddings are projected also
    where they are as wide as the model, ``heads_found`` what ``find_heads`` returns.

    Raises CheckpointError, naming the field, where it asks for what a recipe cannot say.
    """
    given = albert.fields
    n_units = given["num_hidden_layers"]
    n_groups = given["num_hidden_groups"]
    n_inner = given["inner_group_num"]
    groups = f"num_hidden_groups = {n_groups}"
    units = f"num_hidden_layers = {n_units}"
    if n_groups > n_units:
        raise CheckpointError(f"{albert.file}: {groups} is more than {units}")
    if not _parts_alike(n_units, n_groups):
        raise CheckpointError(
            f"{albert.file}: {groups} does not part {units} as a recipe does: "
            "transformers rounds the groups' borders in floating point"
        )
    if n_units * n_inner > MOST_LAYERS:
        raise CheckpointError(
            f"{albert.file}: {units} times inner_group_num = {n_inner} is more than {MOST_LAYERS:,}"
        )
    sharing: Fields = {"share": "all", "share_groups": n_groups, "share_inner": n_inner}
    if n_groups == n_units > 1 and n_inner == 1:
        sharing = {"share": "none"}
    d_embed = given["embedding_size"]
    is_square = has_projection and d_embed == given["hidden_size"]
    width: Fields = {
        "d_embed": d_embed,
        "embedding_projection": "sum",
        "project_embeddings": "always" if is_square else "as-needed",
    }
    fields = {
        **shared_fields(albert),
        **sharing,
        **width,
        **heads_found,
        "n_layers": n_units * n_inner,
    }
    return albert.resolve(fields, context=given["max_position_embeddings"])


def required_fields(config: ResolvedModel) -> Fields:
    """Return the fields, with their values, of what ALBERT always has (see ``expand``).

    It always projects the embeddings; what shares in another way than in groups is written with a
    group a layer.
    """
    always = {
        **encoder_config.required_fields(config),
        "embedding_projection": "sum",
        "project_embeddings": "always",
    }
    n_units = config.n_layers // config.share_inner
    if config.share == "all" and _parts_alike(n_units, config.share_groups):
        always |= {
            "share": "all",
            "share_groups": config.share_groups,
            "share_inner": config.share_inner,
        }
    return always


def write_albert(
    config: ResolvedModel, tokenizer: Tokenizer | None, *, architecture: str
) -> dict[str, Any]:
    """Convert an expanded config to ALBERT's config.json, leaving out what ``write_bert`` does."""
    return {
        **write_bert(config, tokenizer, architecture=architecture),
        "model_type": "albert",
        "embedding_size": config.d_embed,
        "inner_group_num": config.share_inner,
        "num_hidden_groups": config.share_groups if config.share == "all" else config.n_layers,
        "num_hidden_layers": config.n_layers // config.share_inner,
    }


def _parts_alike(n_units: int, n_groups: int) -> bool:
    """Return whether transformers, which rounds in floating point, has the groups of a recipe."""
    for unit in range(n_units):
        if int(unit / (n_units / n_groups)) != unit * n_groups // n_units:
            return False
    return True
