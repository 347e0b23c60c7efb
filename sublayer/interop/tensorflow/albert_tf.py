"""ALBERT's release: TensorFlow's checkpoint, ``albert_config.json`` and a SentencePiece model."""

from pathlib import Path
from typing import Any

from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import CheckpointError
from sublayer.files.paths import resolved
from sublayer.interop.bert.albert_config import group_as_released, read_albert
from sublayer.interop.bert.encoder_fields import ALBERT_FIELDS
from sublayer.interop.bert.encoder_names import ALBERT_TF
from sublayer.interop.bert.encoder_weights import find_heads, pairs
from sublayer.interop.config_reader import Content
from sublayer.interop.huggingface.class_fields import ClassConfig
from sublayer.interop.huggingface.exchange import save_imported
from sublayer.interop.huggingface.folder import check_new, check_path, read_content
from sublayer.interop.huggingface.folder_tokenizer import check_tokenizer
from sublayer.interop.tensorflow.bundle_index import find_index
from sublayer.interop.tensorflow.tensor_bundle import read_bundle
from sublayer.interop.weight_map import assemble, strip_prefix
from sublayer.model.transformer import Transformer

CONFIG = "albert_config.json"
_TITLE = "ALBERT's release"
# Where the parts of a release stand: beside the checkpoint, or as TensorFlow Hub packs a module.
_FOLDERS = (".", "assets", "../assets")
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
    """Convert a checkpoint of ALBERT's release to a new model folder and return its certificate.

    ``path`` is the folder of the release, or the checkpoint's prefix in it. The certificate tells
    how many tensors of an optimizer were left out, and that nothing was compared.

    Raises CheckpointError where the checkpoint is damaged or cannot be represented, ConfigError
    where ``out`` exists.
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
    """Read the model of a release, and count the tensors that are no weights.

    The model is in evaluation mode and has the release's tokenizer, if there is one. Where
    embeddings are as wide as the model they are not projected, as released. ``path`` is as for
    ``import_albert_tf``.

    Raises CheckpointError where the checkpoint or its config is missing, damaged or cannot be
    represented, or where there are two tokenizers.
    """
    folder = find_index(path).parent
    content = _read_config(_find(folder, CONFIG))
    tensors = read_bundle(path)
    weights = {}
    for name, tensor in tensors.items():
        last_part = name.rpartition("/")[2]
        if last_part not in _OPTIMIZER:
            weights[name] = tensor
    n_left_out = len(tensors) - len(weights)
    # TensorFlow Hub's names begin with the module, whose names begin with BERT's own.
    weights = strip_prefix(weights, "module/")
    weights = strip_prefix(weights, "bert/")
    has_projection = ALBERT_TF.projection + ALBERT_TF.linear[0] in weights
    heads = find_heads(weights, ALBERT_TF)
    config = read_albert(content, heads, has_projection=has_projection, group=group_as_released)
    model = assemble(weights, pairs(config, ALBERT_TF), config, title=_TITLE, file=CONFIG)
    sentence_piece = _find_tokenizer(folder)
    if sentence_piece is not None:
        tokenizer = load_tokenizer(sentence_piece)
        model.tokenizer = check_tokenizer(tokenizer, sentence_piece, config.vocab_size)
    return model, n_left_out


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
    for subfolder in _FOLDERS:
        path = folder / subfolder / name
        if path.is_file():
            return path
    raise CheckpointError(
        f"{folder} has no {name}, which says how large the model is: put the release's there"
    )


def _find_tokenizer(folder: Path) -> Path | None:
    tokenizers: set[Path] = set()
    for subfolder in _FOLDERS:
        paths = (folder / subfolder).glob("*.model")
        # "assets" and "../assets" may be one folder.
        tokenizers.update(resolved(path) for path in paths)
    if len(tokenizers) > 1:
        first, second, *_ = sorted(tokenizers)
        raise CheckpointError(
            f"{folder} has {first.name} and {second.name}: leave the model's own tokenizer there"
        )
    return tokenizers.pop() if tokenizers else None
