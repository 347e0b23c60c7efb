"""T5's tokenizer as the files by which transformers makes the same ids, sentinels too."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import processors

from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.normalization import AS_MODEL, AS_WRITTEN, CONFIG_NAME
from sublayer.interop.huggingface import folder_tokenizer
from sublayer.interop.huggingface.tokenizer_files import split_marks, unigram_library
from sublayer.interop.seq2seq import translator_tokenizer

_CLASS = "T5Tokenizer"
_ANY_CLASS = "PreTrainedTokenizerFast"
_UNK_ID = 2
"""What the class takes for the unknown, whatever its files say."""


def write_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of ``t5_files``, or a translator's of a tokenizer of two languages."""
    if isinstance(tokenizer, BilingualTokenizer):
        return translator_tokenizer.translator_files(tokenizer, max_len=max_len)
    return t5_files(tokenizer, max_len=max_len)


def read_tokenizer(folder: Path, *, vocab_size: int) -> Tokenizer | None:
    """Read the tokenizer of a T5 folder, of two languages where an export kept their rules.

    None where there is none. Raises DataError where a file is damaged, CheckpointError where the
    tokenizer has ids beyond the model's ``vocab_size``.
    """
    if translator_tokenizer.has_language_rules(folder):
        return translator_tokenizer.read_translators(folder, vocab_size=vocab_size)
    return folder_tokenizer.read_tokenizer(folder, vocab_size=vocab_size)


def describe_unread(folder: Path) -> str | None:
    """Return why a translator's tokenizer in a T5 folder is not read; None where it is.

    Raises DataError where its ``tokenizer.json`` is damaged.
    """
    if not translator_tokenizer.has_language_rules(folder):
        return None
    return translator_tokenizer.describe_unread(folder)


def t5_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a transformers AutoTokenizer with the same ids; none where it cannot.

    Contents are by file name. It puts the end behind a text, and takes the names of special ids in
    a text, such as ``<extra_id_0>``, for those. ``max_len`` is the longest text that it is told to
    make.

    T5's layout, of whatever size, becomes a ``T5Tokenizer``, with its ``spiece.model``. Any other
    SentencePiece unigram or ``tokenizer.json`` with an end and padding becomes a tokenizer of no
    class of its own. What has a piece by a sentinel's name cannot be given.
    """
    if tokenizer is None or tokenizer.sep_id is None or tokenizer.pad_id is None:
        return {}
    files: dict[str, bytes] = {}
    name_of_class = _ANY_CLASS
    if isinstance(tokenizer, UnigramTokenizer):
        names = tokenizer.names
        if not tokenizer.is_plain or len(set(names)) < len(names):
            return {}
        library = unigram_library(tokenizer)
        files["spiece.model"] = tokenizer.model
        if _has_t5s_layout(tokenizer):
            name_of_class = _CLASS
    elif isinstance(tokenizer, SubwordTokenizer):
        names = tokenizer.names
        library = Library.from_str(tokenizer.library_file.decode())
    else:
        return {}
    if library.post_processor is None:
        library.post_processor = _end(names[tokenizer.sep_id], tokenizer.sep_id)
    files["tokenizer.json"] = str(library.to_str(pretty=True)).encode()
    settings = _settings(tokenizer, names, name_of_class) | {"model_max_length": max_len}
    settings |= split_marks(tokenizer)
    files[CONFIG_NAME] = json.dumps(settings, indent=2).encode() + b"\n"
    return files


def _end(name: str, id_: int) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(
        single=["$A", name], pair=["$A", name, "$B", name], special_tokens=[(name, id_)]
    )


def _has_t5s_layout(tokenizer: UnigramTokenizer) -> bool:
    names = {"pad_id": "<pad>", "sep_id": "</s>", "unk_id": "<unk>"}
    for key, name in names.items():
        if tokenizer.names[getattr(tokenizer, key)] != name:
            return False
    return tokenizer.unk_id == _UNK_ID and tokenizer.normalization in (AS_WRITTEN, AS_MODEL)


def _settings(tokenizer: Tokenizer, names: list[str], name_of_class: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "tokenizer_class": name_of_class,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    if name_of_class == _CLASS:
        settings["extra_ids"] = len(tokenizer.sentinel_ids)
    ids = {"eos": tokenizer.sep_id, "pad": tokenizer.pad_id, "unk": tokenizer.unk_id}
    for name, id_ in ids.items():
        if id_ is not None:
            settings[f"{name}_token"] = names[id_]
    return settings
