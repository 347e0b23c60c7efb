"""Sequences of words to be masked, and the positions that are."""

from itertools import groupby

import numpy as np

from sublayer.data.masked.masking import MaskRule, MaskVocabulary, mask_tokens

CLS, SEP, MASK, N_SPECIAL, VOCAB_SIZE = 2, 3, 4, 5, 50
VOCABULARY = MaskVocabulary(MASK, np.arange(VOCAB_SIZE) >= N_SPECIAL)
BY_WORD = ("word", "ngram")
# A correct sampler fails one of these tests with one seed in a million; the seeds are fixed.
P_LOW = 1e-6


def philox(seed=0):
    return np.random.Generator(np.random.Philox(seed))


def sequence(n_words, generator, middle=None):
    """[CLS] words of one to three pieces [SEP], with another [SEP] before word ``middle``."""
    ids, starts = [CLS], [True]
    for word in range(n_words):
        if word == middle:
            ids.append(SEP)
            starts.append(True)
        for piece in range(int(generator.integers(1, 4))):
            ids.append(int(generator.integers(N_SPECIAL, VOCAB_SIZE)))
            starts.append(piece == 0)
    return np.array([*ids, SEP]), np.array([*starts, True])


def positions_of(ids, starts, generator, **rule):
    return mask_tokens(
        np.array(ids), starts, MaskRule(**rule), VOCABULARY, generator
    ).positions.tolist()


def runs(positions):
    """Lengths of what is contiguous."""
    return [
        len(list(group))
        for _, group in groupby(enumerate(positions), key=lambda pair: pair[1] - pair[0])
    ]
