"""GPT-1's release, as arrays."""

import math
import re
import tokenize
import warnings
from itertools import islice, product, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sublayer.config.table import LARGEST_VOCABULARY, MOST_LAYERS
from sublayer.data.tokenizers.gpt1 import find_pair, read_pair
from sublayer.errors import CheckpointError
from sublayer.files.parsing import read_json
from sublayer.files.storage import check_paths
from sublayer.interop.certificate import certify, save_imported
from sublayer.interop.decoders import Gpt1
from sublayer.interop.folder import CONFIG
from sublayer.interop.foreign_config import Content
from sublayer.interop.tokenizers import check_tokenizer
from sublayer.interop.weight_map import read_pairs
from sublayer.loading import with_weights
from sublayer.numbers import count
from sublayer.system.machine import check_memory
from sublayer.text_model import TextModel
from sublayer.values import show

_FAMILY = Gpt1()
N_HEADS = 12
"""The number of heads of every released model; the arrays do not give it."""
_AS_RELEASED = {"softmax": "all", "dropout_embedding_of": "matrix"}
"""Fields in which the release differs from transformers' class."""
SHAPES = "params_shapes.json"
_PIECE = re.compile(r"params_(0|[1-9][0-9]{0,3})\.npy")
_NO_ARRAY = (
    *(ValueError, EOFError, SyntaxError, TypeError, OverflowError),
    *(tokenize.TokenError, RecursionError, MemoryError),
)
_PER_BLOCK = 12  # arrays


def _shapes(n_positions: int, vocab_size: int, n: int, n_blocks: int) -> dict[str, list[int]]:
    """Return the shapes of the arrays in order, by transformers' names; maps have an axis of 1."""
    block = {
        "attn.c_attn": [1, n, 3 * n], "attn.c_proj": [1, n, n], "ln_1": [n],
        "mlp.c_fc": [1, n, 4 * n], "mlp.c_proj": [1, 4 * n, n], "ln_2": [n],
    }  # fmt: skip
    shapes = {"positions_embed.weight": [n_positions, n], "tokens_embed.weight": [vocab_size, n]}
    for number, (name, shape) in product(range(n_blocks), block.items()):
        shapes |= {f"h.{number}.{name}.weight": shape, f"h.{number}.{name}.bias": shape[-1:]}
    return shapes


def import_gpt1(path: Path, out: Path) -> dict[str, Any]:
    """Convert the folder of GPT-1's release to a new model folder; return its certificate.

    The softmax includes positions, and dropout is applied to the embedding matrix. The logits of
    tokens are compared with those of transformers' class for the same tensors.

    Raises CheckpointError where the arrays are damaged or not GPT-1's, or give other logits in
    transformers; DataError where the tokenizer is damaged; ConfigError where ``out`` exists.
    """
    check_paths(path, out)
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a folder: name the folder of {SHAPES}")
    text_model, tensors = read_gpt1(path)
    model = text_model.model
    prefixed = {_FAMILY.prefix + name: tensor.clone() for name, tensor in tensors.items()}
    fields = _FAMILY.fields.read(Content(CONFIG, _FAMILY.write_config(model.config, None))).computed
    certificate = certify(model, fields, prefixed, _FAMILY.oracle(model.config))
    if text_model.tokenizer is None:
        certificate["tokenizer"] = (
            "encoder_bpe_40000.json and vocab_40000.bpe are not next to the arrays"
        )
    save_imported(text_model, out, certificate)
    return certificate


def read_gpt1(folder: Path) -> tuple[TextModel, dict[str, Tensor]]:
    """Read a release's model and tokenizer; also its tensors, by transformers' names."""
    tensors = _read_arrays(folder)
    (n_positions, width), (vocab_size, _) = (each.shape for each in islice(tensors.values(), 2))
    if width % N_HEADS:
        heads = f"not a multiple of the {N_HEADS} heads of GPT-1's release"
        raise CheckpointError(f"{folder / SHAPES} gives a width of {width}, {heads}")
    fields = {"vocab_size": vocab_size, "n_positions": n_positions, "n_embd": width}
    fields |= {"n_layer": len(tensors) // _PER_BLOCK, "n_head": N_HEADS}
    content = _FAMILY.fields.read(Content(SHAPES, fields))
    config = _FAMILY.read_config(content, tensors).model_copy(update=_AS_RELEASED)
    pairs = _FAMILY.pairs(config)
    weights = read_pairs(tensors, pairs, config, title="GPT-1's release", file=SHAPES)
    tokenizer, files = None, find_pair(folder)
    if files is not None:
        tokenizer = check_tokenizer(read_pair(files), folder, config.vocab_size)
    return TextModel(with_weights(config, weights), tokenizer), tensors


def _read_arrays(folder: Path) -> dict[str, Tensor]:
    """Read the tensors of a release by transformers' names: views. Source: Radford et al. 2018."""
    path = folder / SHAPES
    if not path.is_file():
        raise CheckpointError(f"{folder} has no {SHAPES}: copy the release's")
    match content := read_json(path, CheckpointError):
        case [[int(n_positions), int(width)], [int(vocab_size), _], *of_blocks] if all(
            0 < size <= LARGEST_VOCABULARY for size in (n_positions, width, vocab_size)
        ):
            n_blocks = min(max(1, len(of_blocks) // _PER_BLOCK), MOST_LAYERS)
            expected = _shapes(n_positions, vocab_size, width, n_blocks)
        case _:
            raise CheckpointError(f"{path} is not a list of shapes, of positions and tokens first")
    for number, (shape, due) in enumerate(zip_longest(content, expected.values())):
        if shape != due:
            due = f"but of a width of {width} GPT-1 has {show(due)}"
            raise CheckpointError(f"{path}: array {number} has shape {show(shape)}, {due}")
    by_number = {int(m[1]): path for path in folder.iterdir() if (m := _PIECE.fullmatch(path.name))}
    missing = set(range(max(by_number, default=0) + 1)) - by_number.keys()
    if missing:
        piece = f"params_{min(missing)}.npy"
        raise CheckpointError(f"{folder} has no {piece}: copy all of the release's arrays there")
    paths = [by_number[number] for number in sorted(by_number)]
    n_bytes = sum(path.stat().st_size for path in paths)
    check_memory(2 * n_bytes, f"to read {folder}", "import it on a larger machine")
    pieces = [read_piece(path) for path in paths]
    if len({piece.dtype for piece in pieces}) > 1:
        raise CheckpointError(f"{folder}: its arrays have different dtypes")
    numbers = torch.from_numpy(np.concatenate(pieces))
    sizes = [math.prod(shape) for shape in expected.values()]
    if len(numbers) != sum(sizes):
        held = f"its arrays hold {count(len(numbers), 'number')}, but {SHAPES} {sum(sizes):,}"
        raise CheckpointError(f"{folder}: {held}: a piece is missing, or another model's")
    parts = zip(expected.items(), torch.split(numbers, sizes), strict=True)
    return {name: part.view(shape[-2:]) for (name, shape), part in parts}


def read_piece(path: Path) -> NDArray[np.floating[Any]]:
    """Memory-map a piece, so that its claimed size takes no memory."""
    try:
        with warnings.catch_warnings():
            # numpy warns of a header written by Python 2, and reads it all the same.
            warnings.simplefilter("ignore")
            array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except OSError as problem:
        raise CheckpointError(f"cannot read {path}: {problem.strerror or problem}") from None
    except _NO_ARRAY:
        reason = "damaged or not an array of numbers (objects and pickles are never read)"
        raise CheckpointError(f"{path} is {reason}: get the release's own file") from None
    if array.dtype not in (np.float16, np.float32, np.float64) or array.ndim != 1:
        found = f"dtype {array.dtype} and shape {list(array.shape)}"
        raise CheckpointError(f"{path} has {found}, not a row of floating-point numbers")
    return array
