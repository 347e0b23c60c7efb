"""The released tokenizer of GPT-1, slowly: merges all at once, the whole text at a time.

As openai/finetune-transformer-lm has it in ``text_utils.py``, rule by rule.
"""

import re
from collections import Counter
from functools import cache
from itertools import pairwise

END = "</w>"


def standardise(text):
    for old, new in (("—", "-"), ("–", "-"), ("―", "-"), ("…", "..."), ("´", "'")):
        text = text.replace(old, new)
    # Not raw: of the two backslashes before the last plus of the first line one is left.
    marks = '(-+|~+|!+|"+|;+|\\?+|\\++|,+|\\)+|\\(+|\\+|\\/+|\\*+|\\[+|\\]+|}+|{+|\\|+|_+)'
    text = re.sub(marks, r" \1 ", text)
    text = re.sub(r"\s*\n\s*", " \n ", text)
    text = re.sub(r"[^\S\n]+", " ", text)
    return text.strip()


def words(text):
    import ftfy

    tokens = english()(standardise(ftfy.fix_text(text)))
    return [token.text.lower() for token in tokens]


@cache
def english():
    import spacy

    return spacy.blank("en").tokenizer


def merged(word, ranks):
    """All of a pair's occurrences, from the left, for the pair that was merged first."""
    symbols = [*word[:-1], word[-1] + END]
    while True:
        ranked = [(ranks[pair], pair) for pair in pairwise(symbols) if pair in ranks]
        if not ranked:
            break
        _, pair = min(ranked)
        symbols = join(symbols, pair)
    # The special case: an end of line with the space behind it.
    return ["\n" + END] if symbols == ["\n", " " + END] else symbols


def join(symbols, pair):
    joined = []
    at = 0
    while at < len(symbols):
        if tuple(symbols[at : at + 2]) == pair:
            joined.append("".join(pair))
            at += 2
        else:
            joined.append(symbols[at])
            at += 1
    return joined


def encode(text, ids, merges):
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    return [ids.get(symbol, 0) for word in words(text) for symbol in merged(word, ranks)]


def train(counts, n_merges):
    """Train merges: the most frequent pair first; of several that of the lowest ids."""
    characters = sorted({character for word in counts for character in word})
    pieces = [*characters, *(character + END for character in characters)]
    segmented = {word: [*word[:-1], word[-1] + END] for word in counts}
    merges = []
    while len(merges) < n_merges:
        pairs = Counter()
        for word, symbols in segmented.items():
            for pair in pairwise(symbols):
                pairs[pair] += counts[word]
        if not pairs:
            break
        numbers = {piece: number for number, piece in enumerate(pieces)}
        best = min(pairs, key=lambda pair: (-pairs[pair], numbers[pair[0]], numbers[pair[1]]))
        merges.append(best)
        pieces.append("".join(best))
        segmented = {word: join(symbols, best) for word, symbols in segmented.items()}
    return pieces, merges
