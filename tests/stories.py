"""Generated sentences in many documents, and a tokenizer whose every token is another one."""

import numpy as np

from sublayer.data.store import Split, TokenStore
from sublayer.data.tokenizers.base import Tokenizer

N_DOCUMENTS = 40
_SYLLABLES = (
    "ba", "den", "fi", "gor", "ka", "lu", "mer", "no", "pe", "ri", "sto", "tan", "ul", "wex", "zy",
)  # fmt: skip


def write_stories(folder):
    rng = np.random.Generator(np.random.PCG64(5))
    lexicon = ["".join(rng.choice(_SYLLABLES, rng.integers(1, 4))) for _ in range(200)]
    shares = 1 / np.arange(2, 202)

    def sentence():
        words = rng.choice(lexicon, rng.integers(3, 13), p=shares / shares.sum())
        return f"{' '.join(words)}."

    documents = [[sentence() for _ in range(rng.integers(4, 30))] for _ in range(N_DOCUMENTS)]
    for number, sentences in enumerate(documents):
        (folder / f"story{number:02}.txt").write_text("\n".join(sentences) + "\n")
    return documents


def split_of(documents, tokenizer, *, source_starts=(0,), weights=None):
    encoded = [[tokenizer.encode(line.encode()) for line in document] for document in documents]
    lengths = [[len(ids) for ids in document] for document in encoded]
    ids = np.concatenate([ids for document in encoded for ids in document])
    return _split(ids, lengths, tokenizer, source_starts, weights)


def numbered(lengths, *, source_starts=(0,), weights=None):
    """Make documents of sentences of so many tokens: token n of the text has the id 5 + n."""
    tokenizer = Numbers(sum(map(sum, lengths)))
    ids = Numbers.first + np.arange(tokenizer.vocab_size - Numbers.first)
    return _split(ids, lengths, tokenizer, source_starts, weights)


def _split(ids, lengths, tokenizer, source_starts, weights):
    sentences = np.cumsum([0, *(length for document in lengths for length in document)])[:-1]
    documents = np.cumsum([0, *(sum(document) for document in lengths)])[:-1]
    given = {"n_bytes": len(ids), "sha256": "", "is_lossless": True, "sentence_starts": sentences}
    sources = documents[list(source_starts)]
    store = TokenStore(ids.astype(np.uint16), documents, sources, **given)
    names = tuple(f"source {n}" for n in range(len(source_starts)))
    return Split("train", store, tokenizer, names, weights)


class Numbers(Tokenizer):
    """Ids that are their own text; words begin at every third."""

    kind = "numbers"
    first = 5
    pad_id, unk_id, cls_id, sep_id, mask_id = range(5)
    special_ids = (0, 1, 2, 3, 4)
    has_words = True

    def __init__(self, n_tokens):
        self.vocab_size = self.first + n_tokens
        is_text = np.arange(self.vocab_size) >= self.first
        self.token_bytes = np.array([len(str(id_)) for id_ in range(self.vocab_size)]) * is_text
        self.token_characters = self.token_bytes

    def encode(self, text):
        return np.array(text.split(), dtype=np.int32)

    def _decode(self, ids):
        return " ".join(map(str, ids)).encode()

    def cut(self, text, near):
        return text.rfind(b" ", 0, near) + 1

    def content(self):
        return {"kind": self.kind, "vocab_size": self.vocab_size}

    def starts_word(self, ids):
        return np.asarray((ids < self.first) | (ids % 3 == 0))
