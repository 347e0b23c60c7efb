"""GPT-2 and GPT-1, as transformers has them, and GPT-1's release as arrays."""

import json
import math
import re
import tokenize
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer as Library
from tokenizers import processors
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.table import LARGEST_VOCABULARY, MOST_LAYERS
from sublayer.data.tasks.encoded import CLASSIFY, DELIMITER, START, TRAVERSAL_NAMES
from sublayer.data.tokenizers.base import ExtendedTokenizer, Tokenizer
from sublayer.data.tokenizers.gpt1 import find_pair, read_pair
from sublayer.data.tokenizers.settings import CONFIG_NAME
from sublayer.data.tokenizers.subword import SubwordTokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import read_json
from sublayer.files.storage import check_paths
from sublayer.interop.certificate import certify, save_imported
from sublayer.interop.family import TYPED_LABELS, Answering, Answers, Family, Fields, Tensors
from sublayer.interop.folder import CONFIG
from sublayer.interop.foreign_config import (
    ACTIVATIONS,
    ALWAYS_IGNORED,
    NEVER,
    ClassFields,
    Content,
    Field,
    format_value,
    harmless,
    names,
    network,
    optional,
    same,
    switch,
    token_id,
)
from sublayer.interop.tokenizers import (
    FILE,
    check_tokenizer,
    decoder_files,
    library_file,
    read_tokenizer,
    settings_file,
)
from sublayer.interop.weight_map import Pair, Zeros, assemble, pair_linear
from sublayer.numbers import count
from sublayer.system.machine import check_memory
from sublayer.tasks.task import Task
from sublayer.text_model import TextModel

_SHARED = {
    "n_embd": same(768, "d_model"),
    "n_layer": same(12, "n_layers"),
    "n_head": same(12, "n_heads"),
    "layer_norm_epsilon": same(1e-5, "norm_eps"),
    "tie_word_embeddings": same(True, "tie_embeddings"),
    "resid_pdrop": same(0.1, "dropout"),
    "embd_pdrop": same(0.1, "dropout_embedding"),
    "attn_pdrop": same(0.1, "dropout_attention"),
    "initializer_range": same(0.02, "init_std"),
    "is_encoder_decoder": harmless(False),
    **NEVER,
}
ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
_IGNORED = ALWAYS_IGNORED | names(
    """
    n_ctx summary_activation summary_first_dropout summary_proj_to_labels summary_type
    summary_use_proj
    """
)
GPT2_FIELDS = ClassFields(
    title="GPT2Config",
    fields={
        **_SHARED,
        "vocab_size": same(50257, "vocab_size"),
        "n_positions": same(1024, "max_len"),
        "n_inner": same(None, "d_ff"),
        "activation_function": network("gelu_new", ACTIVATIONS),
        "scale_attn_weights": switch(True, "attention_scale", "sqrt", "none"),
        "scale_attn_by_inverse_layer_idx": harmless(False),
        "reorder_and_upcast_attn": harmless(False),
    },
    aliases=ALIASES,
    ignored=_IGNORED,
)
# Every name of a GELU means the tanh form here.
_GPT1_ACTIVATIONS = {
    "gelu": ("gelu", "tanh"),
    "relu": ("relu", "tanh"),
    "silu": ("swish", "tanh"),
    "swish": ("swish", "tanh"),
}
GPT1_FIELDS = ClassFields(
    title="OpenAIGPTConfig",
    fields={
        **_SHARED,
        "vocab_size": same(40478, "vocab_size"),
        "n_positions": same(512, "max_len"),
        "afn": network("gelu", _GPT1_ACTIVATIONS),
    },
    aliases=ALIASES,
    ignored=_IGNORED | names("n_special predict_special_tokens"),
)
# Any other summary would read other states, or apply more than a linear map.
_SUMMARY = {
    "summary_type": harmless("cls_index"),
    "summary_use_proj": harmless(True),
    "summary_proj_to_labels": harmless(True),
    "summary_activation": harmless(None, ""),
}
_OUTPUT, _SCORE, _CHOOSES = "lm_head.weight", "score.weight", "multiple_choice_head."
_LABELS = Answering(
    "ForSequenceClassification",
    heads=(_SCORE,),
    outputs={"logits": "label_logits"},
    always={"pooler": "none"},
    fields={**TYPED_LABELS, "pad_token_id": Field(None, optional(token_id))},
)
# The class always has the head that predicts tokens too.
_CHOICES = Answering(
    "DoubleHeadsModel",
    heads=(_CHOOSES, _OUTPUT),
    outputs={"logits": "logits", "mc_logits": "choice_logits"},
    always={"pooler": "none", "label_outputs": 1},
    left_out={},
    fields=_SUMMARY,
)


_PARTS = (("final_norm", "ln_f"), ("head.weight", _OUTPUT))


def padding_id(tokenizer: Tokenizer | None) -> int | None:
    """Return the padding id of a classifier's rows; None without a tokenizer.

    No row ends in this id: the class reads a row's last token that is not padding.
    """
    if tokenizer is None:
        return None
    ids = (tokenizer.pad_id, tokenizer.end_id, tokenizer.added_ids.get(START))
    return next((id_ for id_ in ids if id_ is not None), None)


def _with_marks(processor: Any, ids: Mapping[str, int]) -> Any:
    template = processors.TemplateProcessing(
        single=[START, "$A", CLASSIFY],
        pair=[START, "$A", DELIMITER, "$B", CLASSIFY],
        special_tokens=list(ids.items()),
    )
    return template if processor is None else processors.Sequence([processor, template])


def _without_marks(processor: Any) -> Any:
    if processor is None or processor["type"] == "TemplateProcessing":
        return None
    if processor["type"] != "Sequence":
        return processor
    others = [part for part in processor["processors"] if part["type"] != "TemplateProcessing"]
    return others[0] if len(others) == 1 else {**processor, "processors": others}


_WEIGHT, _BIAS = "label_head.weight", "label_head.bias"
_LEAST_SHARE = 1e-2
"""The least sum, over the root of the width: a smaller one is lost in the features' rounding."""


class Gpt2(Family):
    """GPT-2's classes: for tokens, or for labels, read at a row's last token before padding."""

    model_type, name, title, predicts = "gpt2", "GPT2", "GPT-2", "LMHeadModel"
    fields = GPT2_FIELDS
    constants: Fields = {"use_cache": True}
    always: Fields = {
        "kind": "decoder",
        "norm_order": "pre",
        "norm_affine": True,
        "final_norm": "affine",
        "bias": True,
        "positions": "learned",
        "share": "none",
        "embedding_scale": "none",
    }
    answering: Mapping[Answers, Answering] = {"labels": _LABELS}
    prefix, heads = "transformer.", (_OUTPUT,)
    parts: tuple[tuple[str, str], ...] = (
        ("embedding", "wte"),
        ("positions.tables.0", "wpe"),
        *_PARTS,
    )
    ties: Mapping[str, str] = {_OUTPUT: "wte.weight"}
    unit, is_transposed = "h.{layer}.", True
    block = {
        "attention": ("ln_1", "attn.c_attn", "attn.c_proj"),
        "ffn": ("ln_2", "mlp.c_fc", "mlp.c_proj"),
    }

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor is a causal mask, as saved by older versions of transformers."""
        return name.endswith((".attn.bias", ".attn.masked_bias"))

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids: without a start, the end id also marks the beginning."""
        end_id = None if tokenizer is None else tokenizer.end_id
        first_id = None if tokenizer is None else tokenizer.first_id
        ids: Fields = {"bos_token_id": first_id, "eos_token_id": end_id}
        if self.answers == "labels":
            ids["pad_token_id"] = padding_id(tokenizer)
        elif tokenizer is not None and tokenizer.pad_id is not None:
            ids["pad_token_id"] = tokenizer.pad_id
        return ids

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors; GPT-1's norms follow their sub-layers."""
        yield from super().pairs(config)
        if self.answers == "labels":
            yield Pair((_SCORE,), _WEIGHT)
            yield Zeros((), _BIAS)
        elif self.answers == "choices":
            yield from pair_linear(f"{_CHOOSES}summary", "label_head")

    def describe_unanswered(self, task: Task) -> str | None:
        """Describe a task's rows where the class reads only one; None where it can answer."""
        if task.kind == "choice":
            return None if "choices" in self.answering else "a row for each choice"
        return "the summed states of both orders of its texts" if task.is_symmetric else None

    def settle(
        self, config: ResolvedModel, weights: Tensors, tokenizer: Tokenizer | None = None
    ) -> dict[str, Tensor]:
        """Fold the label head's bias into its weights: the classifiers have no bias.

        A layer norm's features, before gains and offsets, sum to zero. So the last norm's outputs,
        each divided by its gain, sum to a constant for every text: the sum of the offsets, each
        divided by its gain. A multiple of that constant acts as a bias. No other head reads this
        norm. Only where the constant is too small do the offsets change: each grows by its gain,
        and the head's weights compensate. Without a bias, nothing changes.

        Raises ConfigError where a gain is zero.
        """
        if self.answers != "labels":
            return dict(weights)
        is_pre_norm = config.norm_order == "pre"
        norm = "final_norm" if is_pre_norm else f"decoder.sublayers.1.{config.n_layers - 1}.norm"
        bias = weights[_BIAS].double()
        if not bias.any():
            return dict(weights)
        gain, offset = f"{norm}.weight", f"{norm}.bias"
        gains, offsets, matrix = (weights[name].double() for name in (gain, offset, _WEIGHT))
        shares = 1.0 / gains
        if not shares.isfinite().all():
            raise ConfigError(
                f"{norm} has a gain of zero, so this model's label_head.bias cannot be folded into "
                f"{self.name}'s classifier, which has no bias: the model cannot be exported"
            )
        total = (offsets * shares).sum()
        width = len(gains)
        if total.abs() < _LEAST_SHARE * width**0.5:
            offsets = offsets + gains
            bias = bias - matrix @ gains
            total = total + width
        dtype = weights[_WEIGHT].dtype
        return {
            **weights,
            offset: offsets.to(dtype),
            _WEIGHT: (matrix + torch.outer(bias, shares) / total).to(dtype),
            _BIAS: torch.zeros_like(weights[_BIAS]),
        }

    def copies(self, config: ResolvedModel) -> Mapping[str, str]:
        """Return the tied output matrix of a two-headed class, which some versions expect."""
        return self.ties if self.answers == "choices" and config.tie_embeddings else {}

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the tokenizer files of a decoder, or of a classifier of traversals.

        A classifier's files, by name, give a transformers AutoTokenizer with equal ids; empty where
        impossible. It puts the start before a text, the delimiter between two texts and the end
        after them. Departure: it reads the names of these marks in a text as the marks. A tokenizer
        without them is written like a decoder's.
        """
        if self.answers == "tokens":
            return decoder_files(tokenizer, max_len=max_len)
        plain = tokenizer
        if isinstance(tokenizer, ExtendedTokenizer) and tokenizer.names == TRAVERSAL_NAMES:
            plain = tokenizer.vocabulary
        files = decoder_files(plain, max_len=max_len)
        if not files:
            return {}
        library = Library.from_str(files[FILE].decode())
        if isinstance(tokenizer, ExtendedTokenizer):
            library.add_special_tokens(list(TRAVERSAL_NAMES))
            marks = tokenizer.added_ids
            if any(library.token_to_id(name) != id_ for name, id_ in marks.items()):
                # The vocabulary has unused ids, or one of these names already.
                return {}
            library.post_processor = _with_marks(library.post_processor, marks)
        settings = {
            **json.loads(files[CONFIG_NAME]),
            "model_input_names": ["input_ids", "attention_mask"],
        }
        pad_id = padding_id(tokenizer)
        if pad_id is not None:
            settings["pad_token"] = library.id_to_token(pad_id)
        return {FILE: library_file(library), CONFIG_NAME: settings_file(settings)}

    def read_tokenizer(self, folder: Path, *, vocab_size: int) -> Tokenizer | None:
        """Read the tokenizer; for traversals, marks after the vocabulary become added ids."""
        tokenizer = read_tokenizer(folder, vocab_size=vocab_size)
        if self.answers == "tokens" or not isinstance(tokenizer, SubwordTokenizer):
            return tokenizer
        if tuple(tokenizer.names[-len(TRAVERSAL_NAMES) :]) != TRAVERSAL_NAMES:
            return tokenizer
        n_before = tokenizer.vocab_size - len(TRAVERSAL_NAMES)
        content = tokenizer.library_content
        content = {
            **content,
            "added_tokens": [token for token in content["added_tokens"] if token["id"] < n_before],
            "post_processor": _without_marks(content["post_processor"]),
        }
        vocabulary = tokenizer.replaced(content, reads_marks=tokenizer.reads_marks)
        if vocabulary.vocab_size != n_before:
            # The names are already pieces of the vocabulary.
            return tokenizer
        return ExtendedTokenizer(vocabulary, TRAVERSAL_NAMES)


class Gpt1(Gpt2):
    """GPT-1's classes: for tokens, for labels, or for tokens and choices."""

    model_type, name, title = "openai-gpt", "OpenAIGPT", "GPT-1"
    fields = GPT1_FIELDS
    constants: Fields = {}
    always: Fields = {
        **Gpt2.always,
        "norm_order": "post",
        "final_norm": "none",
        # Positions as output classes are omitted, and the certificate says so.
        "softmax": "tokens",
        "init": "normal",
    }
    answering = {"labels": _LABELS, "choices": _CHOICES}
    parts = (("embedding", "tokens_embed"), ("positions.tables.0", "positions_embed"), *_PARTS)
    ties = {_OUTPUT: "tokens_embed.weight"}

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor is a saved mask or the saved position ids."""
        return super().is_ignored(name) or name == "position_ids"


_TITLE = "GPT-1's release"
_FAMILY = Gpt1()
N_HEADS = 12
"""The number of heads of every released model; the arrays do not give it."""
_AS_RELEASED = {"softmax": "all", "dropout_embedding_of": "matrix"}
"""Fields in which the release differs from transformers' class."""
_NO_TOKENIZER = "encoder_bpe_40000.json and vocab_40000.bpe are not next to the arrays"
SHAPES = "params_shapes.json"
_PIECE = re.compile(r"params_(0|[1-9][0-9]{0,3})\.npy")
_NO_ARRAY = (
    *(ValueError, EOFError, SyntaxError, TypeError, OverflowError),
    *(tokenize.TokenError, RecursionError, MemoryError),
)
"""Errors that numpy raises for a file that is not an array."""
_TYPES = (np.float16, np.float32, np.float64)
_OF_BLOCK = [
    f"{name}.{part}"
    for name in ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
    for part in ("weight", "bias")
]
"""A block's arrays in order, by transformers' names."""
POSITIONS, TOKENS = "positions_embed.weight", "tokens_embed.weight"

Shape = tuple[int, ...]


def import_gpt1(path: Path, out: Path) -> dict[str, Any]:
    """Convert the folder of GPT-1's release to a new model folder; return its certificate.

    The model is as released: the softmax includes positions, and dropout is applied to the
    embedding matrix. The logits of tokens are compared with those of transformers' class for the
    same tensors.

    A vocabulary and merges next to the arrays are imported too.

    Raises CheckpointError where the arrays are damaged or not GPT-1's, give other logits in
    transformers, or have fewer tokens than the tokenizer; DataError where the tokenizer is damaged;
    ConfigError where ``out`` exists, or memory is too small.
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
            f"{folder / SHAPES} gives a width of {width}, not a multiple of the {N_HEADS} heads of "
            "GPT-1's release"
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
    """Read the tensors of a release, by transformers' names.

    Source: Radford et al. 2018, as released: first positions, then tokens, then 12 arrays per
    block, with maps of shape ``[1, d_in, d_out]``. The tensors are views of one array.

    Raises CheckpointError, naming the file, where one is missing or not an array of plain numbers,
    or where shapes and numbers do not match; ConfigError where memory is too small.
    """
    path = folder / SHAPES
    if not path.is_file():
        raise CheckpointError(
            f"{folder} has no {SHAPES}, which gives the shapes of its arrays: copy the release's"
        )
    content = read_json(path, CheckpointError)
    if not isinstance(content, list) or not content:
        raise CheckpointError(f"{path} is not a list of shapes")
    n_blocks, n_left = divmod(len(content) - 2, len(_OF_BLOCK))
    if not 1 <= n_blocks <= MOST_LAYERS or n_left:
        raise CheckpointError(
            f"{path} has {count(len(content), 'shape')}: GPT-1 has one for positions, one for "
            f"tokens and {len(_OF_BLOCK)} per block"
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
                f"{path}: array {number} has shape {format_value(shape)}, but {name} has "
                f"{n_axes} axes, the first of size 1 if it is a map"
            )
    matches = [(_PIECE.fullmatch(path.name), path) for path in folder.iterdir()]
    by_number = {int(match[1]): path for match, path in matches if match is not None}
    for number in range(max(by_number, default=0) + 1):
        if number not in by_number:
            raise CheckpointError(
                f"{folder} has no params_{number}.npy: copy all of the release's arrays there, "
                "params_0.npy to params_9.npy"
            )
    paths = [by_number[number] for number in sorted(by_number)]
    n_bytes = sum(path.stat().st_size for path in paths)
    check_memory(2 * n_bytes, f"to read {folder}", "import it on a larger machine")
    pieces = [read_piece(path) for path in paths]
    if len({piece.dtype for piece in pieces}) > 1:
        raise CheckpointError(f"{folder}: its arrays have different dtypes")
    numbers = torch.from_numpy(np.concatenate(pieces))
    sizes = [math.prod(shape) for shape in named.values()]
    if len(numbers) != sum(sizes):
        raise CheckpointError(
            f"{folder}: its arrays hold {count(len(numbers), 'number')}, but the shapes in "
            f"{SHAPES} need {sum(sizes):,}: they do not belong together, or a piece is missing"
        )
    parts = zip(named.items(), torch.split(numbers, sizes), strict=True)
    return {name: part.view(shape[-2:]) for (name, shape), part in parts}


def read_piece(path: Path) -> NDArray[np.floating[Any]]:
    """Memory-map a piece, so that its claimed size takes no memory.

    Raises CheckpointError where it is not a one-dimensional array of floating-point numbers.
    """
    try:
        with warnings.catch_warnings():
            # numpy warns of a header written by Python 2, and reads it all the same.
            warnings.simplefilter("ignore")
            array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except OSError as problem:
        raise CheckpointError(f"cannot read {path}: {problem.strerror or problem}") from None
    except _NO_ARRAY:
        raise CheckpointError(
            f"{path} is damaged or not an array of numbers (objects and pickles are never read): "
            "get the release's own file"
        ) from None
    if array.dtype not in _TYPES or array.ndim != 1:
        raise CheckpointError(
            f"{path} has dtype {array.dtype} and shape {list(array.shape)}, but a piece is a "
            "one-dimensional array of floating-point numbers"
        )
    return array
