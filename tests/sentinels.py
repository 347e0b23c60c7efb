"""Ids of a text with gaps, as transformers' T5 tokenizers make them."""

import numpy as np

from sublayer.data.tokenizers.base import split_at_gaps


def encode_with_sentinels(tokenizer, text):
    """Encode a text with sentinels ``<extra_id_k>``, each part alone, as transformers does."""
    parts, names = split_at_gaps(text)
    ids = [tokenizer.encode(parts[0])]
    for name, part in zip(names, parts[1:], strict=True):
        number = int(name.removeprefix("<extra_id_").removesuffix(">"))
        ids.append(np.array([tokenizer.sentinel_ids[number]], dtype=np.int32))
        ids.append(tokenizer.encode(part))
    return np.concatenate(ids)
