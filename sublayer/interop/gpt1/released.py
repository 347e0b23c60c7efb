"""GPT-1's release: ``params_0.npy`` to ``params_9.npy`` and ``params_shapes.json``."""

from pathlib import Path
from typing import Any

from torch import Tensor

from sublayer.data.gpt1.files import find_pair, read_pair
from sublayer.errors import CheckpointError
from sublayer.interop.certificate import certify
from sublayer.interop.config_reader import Content
from sublayer.interop.gpt1.gpt1_fields import GPT1_FIELDS
from sublayer.interop.gpt1.released_arrays import POSITIONS, SHAPES, TOKENS, read_arrays
from sublayer.interop.huggingface.classes import FAMILIES
from sublayer.interop.huggingface.exchange import save_imported
from sublayer.interop.huggingface.folder import CONFIG, check_new, check_path
from sublayer.interop.huggingface.folder_tokenizer import check_tokenizer
from sublayer.interop.weight_map import assemble
from sublayer.model.transformer import Transformer

_TITLE = "GPT-1's release"
_FAMILY = FAMILIES["openai-gpt"]
N_HEADS = 12
"""Of every model of the release; its arrays do not say it."""
_AS_RELEASED = {"softmax": "all", "dropout_embedding_of": "matrix"}
"""What transformers' class has otherwise."""
_NO_TOKENIZER = "encoder_bpe_40000.json and vocab_40000.bpe are not beside the arrays"


def import_gpt1(path: Path, out: Path) -> dict[str, Any]:
    """Convert the folder of GPT-1's release to a new model folder; return its certificate.

    The model is as released: probabilities are over positions too, and dropout is of the embedding
    matrix. transformers' class reads the same tensors, and the logits of tokens are compared.

    The release's vocabulary and merges come along where they are beside the arrays.

    Raises CheckpointError where the arrays are damaged or are no GPT-1's, give other logits there,
    or have fewer tokens than the tokenizer; DataError where that is damaged; ConfigError where
    ``out`` exists, or memory is too small.
    """
    check_path(path)
    check_new(out)
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a folder: name the one with {SHAPES}")
    model, tensors = read_gpt1(path)
    prefixed = {_FAMILY.prefix + name: tensor.clone() for name, tensor in tensors.items()}
    fields = _FAMILY.fields.read(Content(CONFIG, _FAMILY.write_config(model.config, None))).given
    certificate = certify(model, fields, prefixed, _FAMILY.oracle(model.config))
    if model.tokenizer is None:
        certificate["tokenizer"] = _NO_TOKENIZER
    save_imported(model, out, certificate)
    return certificate


def read_gpt1(folder: Path) -> tuple[Transformer, dict[str, Tensor]]:
    """Read the model of a release, in evaluation mode, and its tensors by transformers' names.

    It has the tokenizer that is beside the arrays, if one is. Raises as ``import_gpt1`` does in
    reading.
    """
    tensors = read_arrays(folder)
    n_positions, width = tensors[POSITIONS].shape
    if width % N_HEADS:
        raise CheckpointError(
            f"{folder / SHAPES} says a width of {width}, which the {N_HEADS} heads of GPT-1's "
            "release do not divide"
        )
    fields = {
        "vocab_size": len(tensors[TOKENS]),
        "n_positions": n_positions,
        "n_embd": width,
        "n_layer": len({name.split(".")[1] for name in tensors if name.startswith("h.")}),
        "n_head": N_HEADS,
    }
    content = GPT1_FIELDS.read(Content(SHAPES, fields))
    config = _FAMILY.read_config(content, tensors).model_copy(update=_AS_RELEASED)
    names = _FAMILY.pairs(config)
    model = assemble(tensors, names, config, title=_TITLE, file=SHAPES)
    files = find_pair(folder)
    if files is not None:
        model.tokenizer = check_tokenizer(read_pair(files), folder, config.vocab_size)
    return model, tensors
