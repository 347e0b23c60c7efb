"""Pairs of segments of documents that are given by the lengths of their sentences."""

import numpy as np

from sublayer.data.masked.segment_pairs import make_pairs
from sublayer.data.masked.segments import PairRule

P_LOW = 1e-6


def made(documents, seed=0, epoch=0, **rule):
    """Make the pairs of documents given by the lengths of their sentences."""
    sentences = np.cumsum([0, *(length for document in documents for length in document)])
    firsts = np.cumsum([0, *(len(document) for document in documents)])[:-1]
    rule = PairRule(**({"task": "sop", "max_len": 23, "p_short": 0.0} | rule))
    return make_pairs(
        sentences[:-1], sentences[firsts], int(sentences[-1]), rule, seed=seed, epoch=epoch
    )


def rows(pairs):
    return list(zip(*(column.tolist() for column in pairs), strict=True))


def document_of(documents, tokens):
    ends = np.cumsum([sum(document) for document in documents])
    return np.searchsorted(ends, tokens, side="right")
