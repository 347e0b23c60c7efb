"""Tokenizers as a HuggingFace folder holds them."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.subwords.library_content import BYTE_NAMES
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.data.tokenizers.normalization import CONFIG_NAME
from sublayer.errors import CheckpointError
from sublayer.interop.huggingface.tokenizer_files import export_files, split_marks, unigram_library

_FILES = ("tokenizer.json", "spiece.model", "vocab.txt", "vocab.json")

# What an encoder is called with: without being told, transformers' tokenizer leaves out the
# segments of a pair.
_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]


def read_tokenizer(folder: Path, *, vocab_size: int) -> Tokenizer | None:
    """Read a HuggingFace folder's tokenizer: the library's, or GPT-2's, BERT's or ALBERT's own.

    None where it has none of their files. Raises DataError where they are damaged, CheckpointError
    where the tokenizer has ids beyond the model's ``vocab_size``.
    """
    if not any((folder / name).is_file() for name in _FILES) and not any(folder.glob("*.model")):
        return None
    return check_tokenizer(load_tokenizer(folder, special_tokens="file"), folder, vocab_size)


def check_tokenizer(tokenizer: Tokenizer, path: Path, vocab_size: int) -> Tokenizer:
    """Check that a tokenizer has no ids beyond the model's ``vocab_size``, and return it.

    Raises CheckpointError where it has.
    """
    if tokenizer.vocab_size > vocab_size:
        raise CheckpointError(
            f"the tokenizer in {path} has {tokenizer.vocab_size} ids, "
            f"the model's vocab_size is {vocab_size}: they do not belong together"
        )
    return tokenizer


def decoder_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a transformers AutoTokenizer with the same ids; none where it cannot.

    Contents are by file name. It puts nothing around a text. Characters and moses-bpe cannot be
    given, nor SentencePiece's BPE. ``max_len`` is the longest text that it is told to make.
    """
    if isinstance(tokenizer, SubwordTokenizer):
        content = tokenizer.library_file
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
    library = Library.from_str(content.decode())
    if tokenizer.end_id is not None:
        end = library.id_to_token(tokenizer.end_id)
        settings |= {"bos_token": end, "eos_token": end}
    if tokenizer.reads_marks and tokenizer.pad_id is not None:
        settings["pad_token"] = library.id_to_token(tokenizer.pad_id)
    settings |= split_marks(tokenizer, by_default=True)
    settings_json = json.dumps(settings, indent=2) + "\n"
    return {"tokenizer.json": content, CONFIG_NAME: settings_json.encode()}


def encoder_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a transformers AutoTokenizer with the same ids; none where it cannot.

    Contents are by file name. It puts around a text what masked models have there. Bytes,
    characters and moses-bpe cannot be given, nor SentencePiece's BPE.
    """
    files = {} if tokenizer is None else export_files(tokenizer)
    if CONFIG_NAME in files:
        settings = {
            **json.loads(files[CONFIG_NAME]),
            "model_max_length": max_len,
            "model_input_names": _INPUTS,
        }
        files[CONFIG_NAME] = json.dumps(settings, indent=2).encode() + b"\n"
    return files


def _bytes_as_bpe() -> bytes:
    # Each byte's name, numbered by the byte, and no merges.
    library = Library(models.BPE(BYTE_NAMES, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    return str(library.to_str(pretty=True)).encode()
