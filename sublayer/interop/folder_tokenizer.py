"""Tokenizers as a HuggingFace folder holds them."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from sublayer.data.characters import ByteTokenizer
from sublayer.data.normalize import CONFIG_NAME
from sublayer.data.subword import BYTE_NAMES, SubwordTokenizer
from sublayer.data.tokenizer import load_tokenizer
from sublayer.data.unigram import UnigramTokenizer
from sublayer.data.vocabulary import Tokenizer
from sublayer.errors import CheckpointError
from sublayer.interop.tokenizer_files import export_files, unigram_library

_FILES = ("tokenizer.json", "spiece.model", "vocab.txt", "vocab.json")

# What an encoder is called with: without being told, transformers' tokenizer leaves out the segments of a pair.
_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]


def read_tokenizer(folder: Path, *, vocab_size: int) -> Tokenizer | None:
    """Read the tokenizer of a HuggingFace folder: the library's, or GPT-2's, BERT's or ALBERT's original.

    None where it has none of their files. Raises DataError where they are damaged, CheckpointError where the tokenizer
    has ids beyond the model's ``vocab_size``.
    """
    if not any((folder / name).is_file() for name in _FILES):
        return None
    return check_tokenizer(load_tokenizer(folder), folder, vocab_size)


def check_tokenizer(tokenizer: Tokenizer, path: Path, vocab_size: int) -> Tokenizer:
    """Give a tokenizer back. Raises CheckpointError where it has ids beyond the model's ``vocab_size``."""
    if tokenizer.vocab_size > vocab_size:
        raise CheckpointError(
            f"the tokenizer in {path} has {tokenizer.vocab_size} ids, the model's vocab_size is {vocab_size}: "
            "they do not belong together"
        )
    return tokenizer


def decoder_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Give the files by which transformers' AutoTokenizer makes the same ids; none where it cannot.

    It puts nothing around a text. Characters and moses-bpe cannot be given, nor SentencePiece's BPE.
    """
    if isinstance(tokenizer, SubwordTokenizer):
        content = tokenizer.serialize()
    elif isinstance(tokenizer, UnigramTokenizer) and tokenizer.is_plain:
        content = str(unigram_library(tokenizer).to_str(pretty=True)).encode()
    elif isinstance(tokenizer, ByteTokenizer):
        content = _bytes_as_bpe()
    else:
        return {}
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_len,
        "clean_up_tokenization_spaces": False,
    }
    if tokenizer.end_id is not None:
        end = Library.from_str(content.decode()).id_to_token(tokenizer.end_id)
        settings |= {"bos_token": end, "eos_token": end}
    return {"tokenizer.json": content, CONFIG_NAME: json.dumps(settings, indent=2).encode() + b"\n"}


def encoder_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Give the files by which transformers' AutoTokenizer makes the same ids; none where it cannot.

    It puts around a text what masked models have there. Bytes, characters and moses-bpe cannot be given.
    """
    files = {} if tokenizer is None else export_files(tokenizer)
    if CONFIG_NAME in files:
        settings = {**json.loads(files[CONFIG_NAME]), "model_max_length": max_len, "model_input_names": _INPUTS}
        files[CONFIG_NAME] = json.dumps(settings, indent=2).encode() + b"\n"
    return files


def _bytes_as_bpe() -> bytes:
    # Each byte's name, numbered by the byte, and no merges.
    library = Library(models.BPE(BYTE_NAMES, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    return str(library.to_str(pretty=True)).encode()
