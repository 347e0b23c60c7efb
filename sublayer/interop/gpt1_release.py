"""GPT-1's release: ``params_0.npy`` to ``params_9.npy`` and ``params_shapes.json``."""

import math
import re
import tokenize
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sublayer.config.table import LARGEST_VOCABULARY, MOST_LAYERS
from sublayer.counts import count
from sublayer.data.tokenizers.gpt1 import find_pair, read_pair
from sublayer.errors import CheckpointError
from sublayer.files.parsing import read_json
from sublayer.interop.certificate import certify
from sublayer.interop.folder import CONFIG, check_paths
from sublayer.interop.foreign_config import Content, format_value
from sublayer.interop.gpt import Gpt1
from sublayer.interop.huggingface import save_imported
from sublayer.interop.tokenizers import check_tokenizer
from sublayer.interop.weight_map import assemble
from sublayer.system.memory import check_memory
from sublayer.text_model import TextModel

_TITLE = "GPT-1's release"
_FAMILY = Gpt1()
N_HEADS = 12
"""Of every model of the release; its arrays do not say it."""
_AS_RELEASED = {"softmax": "all", "dropout_embedding_of": "matrix"}
"""Other defaults of transformers' class."""
_NO_TOKENIZER = "encoder_bpe_40000.json and vocab_40000.bpe are not beside the arrays"
SHAPES = "params_shapes.json"
_PIECE = re.compile(r"params_(0|[1-9][0-9]{0,3})\.npy")
_NO_ARRAY = (
    *(ValueError, EOFError, SyntaxError, TypeError, OverflowError),
    *(tokenize.TokenError, RecursionError, MemoryError),
)
"""Errors of numpy for a file that is none of its arrays."""
_TYPES = (np.float16, np.float32, np.float64)
_OF_BLOCK = [
    f"{name}.{part}"
    for name in ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
    for part in ("weight", "bias")
]
"""The arrays of a block in their order, by the names that transformers has for them."""
POSITIONS, TOKENS = "positions_embed.weight", "tokens_embed.weight"

Shape = tuple[int, ...]


def import_gpt1(path: Path, out: Path) -> dict[str, Any]:
    """Convert the folder of GPT-1's release to a new model folder; return its certificate.

    The model is as released: probabilities are over positions too, and dropout is of the embedding
    matrix. transformers' class reads the same tensors, and the logits of tokens are compared.

    Vocabulary and merges next to the arrays are imported, too.

    Raises CheckpointError where the arrays are damaged or are no GPT-1's, give other logits there,
    or have fewer tokens than the tokenizer; DataError where that is damaged; ConfigError where
    ``out`` exists, or memory is too small.
    """
    check_paths(path, out)
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a folder: name the one with {SHAPES}")
    text_model, tensors = read_gpt1(path)
    model = text_model.model
    prefixed = {_FAMILY.prefix + name: tensor.clone() for name, tensor in tensors.items()}
    fields = _FAMILY.fields.read(Content(CONFIG, _FAMILY.write_config(model.config, None))).given
    certificate = certify(model, fields, prefixed, _FAMILY.oracle(model.config))
    if text_model.tokenizer is None:
        certificate["tokenizer"] = _NO_TOKENIZER
    save_imported(text_model, out, certificate)
    return certificate


def read_gpt1(folder: Path) -> tuple[TextModel, dict[str, Tensor]]:
    """Read the model of a release, in evaluation mode, and its tensors by transformers' names.

    Includes a tokenizer next to the arrays. Raises as ``import_gpt1`` does on reading.
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
    content = _FAMILY.fields.read(Content(SHAPES, fields))
    config = _FAMILY.read_config(content, tensors).model_copy(update=_AS_RELEASED)
    names = _FAMILY.pairs(config)
    model = assemble(tensors, names, config, title=_TITLE, file=SHAPES)
    files = find_pair(folder)
    tokenizer = None
    if files is not None:
        tokenizer = check_tokenizer(read_pair(files), folder, config.vocab_size)
    return TextModel(model, tokenizer), tensors


def read_arrays(folder: Path) -> dict[str, Tensor]:
    """Read the tensors of a release, by the names that transformers has for them.

    Source: Radford et al. 2018, as released: positions stand first, then tokens, then 12 arrays of
    each block, whose maps are ``[1, d_in, d_out]``. They share one memory.

    Raises CheckpointError, naming the file, where one is missing, is no array of plain numbers, or
    where shapes and numbers do not belong together; ConfigError where memory is too small.
    """
    named = _read_shapes(folder)
    numbers = torch.from_numpy(_read_numbers(folder))
    sizes = [math.prod(shape) for shape in named.values()]
    if len(numbers) != sum(sizes):
        raise CheckpointError(
            f"{folder}: its arrays hold {count(len(numbers), 'number')}, and {SHAPES} says "
            f"{sum(sizes):,}: they do not belong together, or a piece is missing"
        )
    parts = zip(named.items(), torch.split(numbers, sizes), strict=True)
    return {name: part.view(shape[-2:]) for (name, shape), part in parts}


def _read_shapes(folder: Path) -> dict[str, Shape]:
    """Read the shape of each array, by the name of its tensor."""
    path = folder / SHAPES
    if not path.is_file():
        raise CheckpointError(
            f"{folder} has no {SHAPES}, which says what its arrays are: put the release's there"
        )
    content = read_json(path, CheckpointError)
    if not isinstance(content, list) or not content:
        raise CheckpointError(f"{path} is no list of shapes")
    n_blocks, n_left = divmod(len(content) - 2, len(_OF_BLOCK))
    if not 1 <= n_blocks <= MOST_LAYERS or n_left:
        raise CheckpointError(
            f"{path} has {count(len(content), 'shape')}: GPT-1 has one of positions, one of tokens "
            f"and {len(_OF_BLOCK)} of each block"
        )
    names = [f"h.{block}.{name}" for block in range(n_blocks) for name in _OF_BLOCK]
    named = dict(zip((POSITIONS, TOKENS, *names), content, strict=True))
    for number, (name, shape) in enumerate(named.items()):
        # A map has a leading axis of length 1.
        is_map = ".c_" in name and name.endswith("weight")
        n_axes = 2 if number < 2 else 3 if is_map else 1
        is_shape = isinstance(shape, list) and all(
            type(n) is int and 0 < n <= LARGEST_VOCABULARY for n in shape
        )
        if not is_shape or len(shape) != n_axes or (is_map and shape[0] != 1):
            raise CheckpointError(
                f"{path}: array {number} has a shape of {format_value(shape)}, and {name} is of "
                f"rank {n_axes}, the first axis of a map one"
            )
    return named


def _read_numbers(folder: Path) -> NDArray[np.floating[Any]]:
    matches = [(_PIECE.fullmatch(path.name), path) for path in folder.iterdir()]
    numbered = {int(match[1]): path for match, path in matches if match is not None}
    for number in range(max(numbered, default=0) + 1):
        if number not in numbered:
            raise CheckpointError(
                f"{folder} has no params_{number}.npy: put all of the release's arrays there, "
                "params_0.npy to params_9.npy"
            )
    paths = [numbered[number] for number in sorted(numbered)]
    n_bytes = sum(path.stat().st_size for path in paths)
    check_memory(2 * n_bytes, f"to read {folder}", "import it on a larger machine")
    pieces = [read_piece(path) for path in paths]
    if len({piece.dtype for piece in pieces}) > 1:
        raise CheckpointError(f"{folder}: its arrays are of different types of numbers")
    return np.concatenate(pieces)


def read_piece(path: Path) -> NDArray[np.floating[Any]]:
    """Open a piece, whose numbers are read as they are needed: its claimed size takes no memory.

    Raises CheckpointError where it is no row of floating-point numbers.
    """
    try:
        with warnings.catch_warnings():
            # Of a header that Python 2 wrote, which is read all the same.
            warnings.simplefilter("ignore")
            array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except OSError as problem:
        raise CheckpointError(f"cannot read {path}: {problem.strerror or problem}") from None
    except _NO_ARRAY:
        raise CheckpointError(
            f"{path} is damaged or no array of numbers: objects and pickles are never read; get "
            "the release's own file"
        ) from None
    if array.dtype not in _TYPES or array.ndim != 1:
        raise CheckpointError(
            f"{path} is of {array.dtype} and a shape of {list(array.shape)}, and pieces are one "
            "row of floating-point numbers"
        )
    return array
