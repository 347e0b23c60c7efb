"""ALBERT in from its release: TensorFlow's checkpoint, ``albert_config.json`` and a SentencePiece model."""

from pathlib import Path
from typing import Any

from sublayer.config.texts import resolved
from sublayer.data.tokenizer import load_tokenizer
from sublayer.errors import CheckpointError
from sublayer.interop.albert_config import group_as_released, read_albert
from sublayer.interop.bundle_index import find_index
from sublayer.interop.class_fields import ALBERT_FIELDS, ClassConfig
from sublayer.interop.content import Content
from sublayer.interop.encoder_names import ALBERT_TF
from sublayer.interop.encoder_weights import find_heads, pairs
from sublayer.interop.folder import check_new, check_path, read_content
from sublayer.interop.folder_tokenizer import check_tokenizer
from sublayer.interop.huggingface import save_imported
from sublayer.interop.pairs import assemble, strip_prefix
from sublayer.interop.tensor_bundle import read_bundle
from sublayer.model.cost import need
from sublayer.model.transformer import Transformer

CONFIG = "albert_config.json"
_TITLE = "ALBERT's release"
# Where the parts of a release stand: beside the checkpoint, or as TensorFlow Hub packs a module.
_PLACES = (".", "assets", "../assets")
_REQUIRED = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
# The released code knows one GELU, the tanh form.
_ACTIVATIONS = {"gelu": ("gelu", "tanh"), "relu": ("relu", "tanh")}
_OPTIMIZER = ("adam_m", "adam_v", "lamb_m", "lamb_v", "global_step")


def import_albert_tf(path: Path, out: Path) -> dict[str, Any]:
    """Turn a checkpoint of ALBERT's release into a new model folder and return its certificate.

    ``path`` is the folder of the release, or the checkpoint's prefix in it. The certificate tells how many tensors of
    an optimizer were left out, and that nothing was compared. Raises CheckpointError where the checkpoint is damaged or
    cannot be represented, ConfigError where ``out`` exists.
    """
    check_path(path)
    check_new(out)
    model, n_left_out = read_albert_tf(path)
    certificate = {
        "checked": False,
        "reason": "it reads no checkpoints of TensorFlow",
        "left_out": {"optimizer_tensors": n_left_out},
    }
    save_imported(model, out, certificate)
    return certificate


def read_albert_tf(path: Path) -> tuple[Transformer, int]:
    """Read the model of a release, in evaluation mode, with its tokenizer if there is one, and count what is no weight.

    Where embeddings are as wide as the model they are not projected, as released.
    """
    folder = find_index(path).parent
    content = _read_config(_find(folder, CONFIG))
    tensors = read_bundle(path)
    weights = {name: tensor for name, tensor in tensors.items() if name.rpartition("/")[2] not in _OPTIMIZER}
    found = strip_prefix(strip_prefix(weights, "module/"), "bert/")
    has_projection = ALBERT_TF.projection + ALBERT_TF.linear[0] in found
    heads = find_heads(found, ALBERT_TF)
    config = read_albert(content, heads, has_projection=has_projection, group=group_as_released)
    model = assemble(found, pairs(config, ALBERT_TF), config, title=_TITLE, file=CONFIG)
    if (sentence_piece := _find_tokenizer(folder)) is not None:
        model.tokenizer = check_tokenizer(load_tokenizer(sentence_piece), sentence_piece, need(config.vocab_size))
    return model, len(tensors) - len(weights)


def _read_config(path: Path) -> ClassConfig:
    """Read the release's config as the one that transformers would have."""
    released = read_content(path)
    for name in _REQUIRED:
        released.whole(name)
    named = {("gelu", "tanh"): "gelu_new", ("relu", "tanh"): "relu"}
    activation = released.activation("hidden_act", "gelu", _ACTIVATIONS)
    as_today = Content(
        path.name,
        {
            **released.fields,
            "hidden_act": named[activation["ffn"], activation["gelu"]],
            "layer_norm_eps": 1e-12,
            "tie_word_embeddings": True,
        },
    )
    return ALBERT_FIELDS.read(as_today)


def _find(folder: Path, name: str) -> Path:
    for place in _PLACES:
        if (folder / place / name).is_file():
            return folder / place / name
    raise CheckpointError(f"{folder} has no {name}, which says how large the model is: put the release's there")


def _find_tokenizer(folder: Path) -> Path | None:
    found = sorted({resolved(path) for place in _PLACES for path in (folder / place).glob("*.model")})
    if len(found) > 1:
        raise CheckpointError(
            f"{folder} has {found[0].name} and {found[1].name}: leave the model's own tokenizer there"
        )
    return found[0] if found else None
