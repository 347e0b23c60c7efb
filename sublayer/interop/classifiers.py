"""Decoders that answer tasks: the label head's bias folded, tokenizers of traversals."""

import json
from collections.abc import Mapping
from typing import Any

import torch
from tokenizers import Tokenizer as Library
from tokenizers import processors
from torch import Tensor

from sublayer.data.tasks.encoded import CLASSIFY, DELIMITER, START, TRAVERSAL_NAMES
from sublayer.data.tokenizers.base import ExtendedTokenizer, Tokenizer
from sublayer.data.tokenizers.settings import CONFIG_NAME
from sublayer.data.tokenizers.subword import SubwordTokenizer
from sublayer.errors import ConfigError
from sublayer.interop.tokenizers import FILE, decoder_files, library_file, settings_file
from sublayer.objective.supervised.heads import BIAS, WEIGHT

_LEAST_SHARE = 1e-2
"""The least sum, over the root of the width: a smaller one is lost in the features' rounding."""


def fold_bias(weights: Mapping[str, Tensor], norm: str) -> dict[str, Tensor]:
    """Fold the label head's bias into its weights, by the offsets of the norm that it reads.

    A layer norm's features, before gains and offsets, sum to zero. So its outputs, each divided by
    its gain, sum to a constant for every text: the sum of the offsets, each divided by its gain. A
    multiple of that constant acts as a bias. Only where it is too small do the offsets change: each
    grows by its gain, and the head's weights compensate; no other head reads this norm.

    Raises ConfigError for a bias where the norm has no offsets, or a gain of zero.
    """
    if not weights[BIAS].any():
        return dict(weights)
    gain, offset = f"{norm}.weight", f"{norm}.bias"
    gains = weights[gain].double()
    if offset not in weights or not gains.all():
        raise ConfigError(
            f"transformers' classifier has no bias, and {norm} no offsets or a gain of zero, so "
            f"that {BIAS} cannot be folded into it: the model cannot be exported"
        )
    offsets, matrix, bias = (weights[name].double() for name in (offset, WEIGHT, BIAS))
    shares = 1.0 / gains
    total, width = (offsets * shares).sum(), len(gains)
    if total.abs() < _LEAST_SHARE * width**0.5:
        offsets, bias, total = offsets + gains, bias - matrix @ gains, total + width
    dtype = weights[WEIGHT].dtype
    return {
        **weights,
        offset: offsets.to(dtype),
        WEIGHT: (matrix + torch.outer(bias, shares) / total).to(dtype),
        BIAS: torch.zeros_like(weights[BIAS]),
    }


def padding_id(tokenizer: Tokenizer | None) -> int | None:
    """Return the padding id of a classifier's rows, in which no row ends; None if it is unknown."""
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


def traversal_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a tokenizer of traversals: a start, a delimiter between texts, an end.

    Departure: it reads the names of these marks in a text as the marks. A tokenizer without them is
    written like a decoder's.
    """
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
    settings = json.loads(files[CONFIG_NAME])
    settings["model_input_names"] = ["input_ids", "attention_mask"]
    if (pad_id := padding_id(tokenizer)) is not None:
        settings["pad_token"] = library.id_to_token(pad_id)
    return {FILE: library_file(library), CONFIG_NAME: settings_file(settings)}


def with_added_marks(tokenizer: Tokenizer | None) -> Tokenizer | None:
    """Return a tokenizer with added ids in place of marks after its vocabulary, if it has them."""
    if not isinstance(tokenizer, SubwordTokenizer):
        return tokenizer
    n_before, content = tokenizer.vocab_size - len(TRAVERSAL_NAMES), tokenizer.library_content
    if tuple(tokenizer.names[n_before:]) != TRAVERSAL_NAMES:
        return tokenizer
    plain = {
        "added_tokens": [token for token in content["added_tokens"] if token["id"] < n_before],
        "post_processor": _without_marks(content["post_processor"]),
    }
    vocabulary = tokenizer.replaced({**content, **plain}, reads_marks=tokenizer.reads_marks)
    # Otherwise the names are already pieces of the vocabulary.
    is_added = vocabulary.vocab_size == n_before
    return ExtendedTokenizer(vocabulary, TRAVERSAL_NAMES) if is_added else tokenizer
