"""The tokenizer of a classifier that reads traversals, as transformers' files and back."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import processors

from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tasks.marks import CLASSIFY, DELIMITER, START, TRAVERSAL_NAMES
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.extended import ExtendedTokenizer
from sublayer.data.tokenizers.normalization import CONFIG_NAME
from sublayer.interop.huggingface import folder_tokenizer

_FILE = "tokenizer.json"
_TEMPLATE = "TemplateProcessing"


def traversal_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a transformers AutoTokenizer with the same ids; none where it cannot.

    Contents are by file name. It puts the start before a text, the delimiter between two and the
    end behind them. Departure: in a text it takes the names of these marks for them. A tokenizer
    without them is written as that of a decoder.
    """
    plain = tokenizer
    if isinstance(tokenizer, ExtendedTokenizer) and tokenizer.names == TRAVERSAL_NAMES:
        plain = tokenizer.vocabulary
    files = folder_tokenizer.decoder_files(plain, max_len=max_len)
    if not files:
        return {}
    library = Library.from_str(files[_FILE].decode())
    if isinstance(tokenizer, ExtendedTokenizer):
        library.add_special_tokens(list(TRAVERSAL_NAMES))
        marks = tokenizer.added_ids
        if any(library.token_to_id(name) != id_ for name, id_ in marks.items()):
            # Some ids of the vocabulary stand for nothing, or it has one of these names already.
            return {}
        library.post_processor = _with_marks(library.post_processor, marks)
    settings = {
        **json.loads(files[CONFIG_NAME]),
        "model_input_names": ["input_ids", "attention_mask"],
    }
    pad_id = padding_id(tokenizer)
    if pad_id is not None:
        settings["pad_token"] = library.id_to_token(pad_id)
    return {
        _FILE: str(library.to_str(pretty=True)).encode(),
        CONFIG_NAME: json.dumps(settings, indent=2).encode() + b"\n",
    }


def padding_id(tokenizer: Tokenizer | None) -> int | None:
    """Return what a classifier's rows are filled up with; None without a tokenizer.

    It is never the last token of a row, of which the class reads the last that is none of it.
    """
    if tokenizer is None:
        return None
    for id_ in (tokenizer.pad_id, tokenizer.end_id, tokenizer.added_ids.get(START)):
        if id_ is not None:
            return id_
    return None


def read_tokenizer(folder: Path, *, vocab_size: int) -> Tokenizer | None:
    """Read a HuggingFace folder's tokenizer; marks of a traversal at its end are ids of their own.

    Raises as ``folder_tokenizer.read_tokenizer`` does.
    """
    tokenizer = folder_tokenizer.read_tokenizer(folder, vocab_size=vocab_size)
    if not isinstance(tokenizer, SubwordTokenizer):
        return tokenizer
    names = tokenizer.names[-len(TRAVERSAL_NAMES) :]
    if tuple(names) != TRAVERSAL_NAMES:
        return tokenizer
    n_before = tokenizer.vocab_size - len(TRAVERSAL_NAMES)
    content = tokenizer.library_content
    content = {
        **content,
        "added_tokens": [each for each in content["added_tokens"] if each["id"] < n_before],
        "post_processor": _without_marks(content["post_processor"]),
    }
    vocabulary = tokenizer.replaced(content, reads_marks=tokenizer.reads_marks)
    if vocabulary.vocab_size != n_before:
        # The names are pieces of the vocabulary.
        return tokenizer
    return ExtendedTokenizer(vocabulary, TRAVERSAL_NAMES)


def _with_marks(own: Any, ids: Mapping[str, int]) -> Any:
    template = processors.TemplateProcessing(
        single=[START, "$A", CLASSIFY],
        pair=[START, "$A", DELIMITER, "$B", CLASSIFY],
        special_tokens=list(ids.items()),
    )
    return template if own is None else processors.Sequence([own, template])


def _without_marks(own: Any) -> Any:
    if own is None or own["type"] == _TEMPLATE:
        return None
    if own["type"] != "Sequence":
        return own
    others = [each for each in own["processors"] if each["type"] != _TEMPLATE]
    return others[0] if len(others) == 1 else {**own, "processors": others}
