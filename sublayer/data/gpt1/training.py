"""GPT-1's kind of vocabulary trained on any text, with any number of merges."""

from collections import Counter
from collections.abc import Iterable

from sublayer.config.texts import GPT1, Normalization
from sublayer.data.gpt1.text_rules import NEWLINE
from sublayer.data.gpt1.tokenizer import (
    count_published,
    transformers_library,
    with_normalization,
)
from sublayer.data.gpt1.vocabulary import UNKNOWN, Gpt1Vocabulary
from sublayer.data.subwords.bpe_encoding import END
from sublayer.data.subwords.bpe_training import Marks, alphabet_of, train_merges
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.wordpiece import count_words
from sublayer.errors import ConfigError, DataError


def train_gpt1(
    texts: Iterable[bytes],
    *,
    vocab_size: int | None = None,
    n_merges: int | None = None,
    normalization: Normalization = "published",
) -> Tokenizer:
    """Train ``n_merges``, or as many as ``vocab_size``, which counts every id, allows.

    Ids, in the published order: ``<unk>``, characters, each again where it ends a word, what the
    merges make, and, by the published rules, the end of a line. Short texts may hold fewer merges.

    Raises ConfigError where the characters of the text do not fit in; NotUtf8, a DataError, where a
    text is not UTF-8; DataError where there is no text, or ftfy or spaCy is missing.
    """
    if normalization == "published":
        words = count_published(texts)
        last = [f"{NEWLINE}{END}"]
    else:
        nothing = Gpt1Vocabulary({UNKNOWN: 0}, ())
        words = count_words(texts, transformers_library(nothing))
        last = []
    # It is whitespace, of which no piece of a word has any.
    words = Counter({word: count for word, count in words.items() if word != NEWLINE})
    alphabet = alphabet_of(words)
    if not alphabet:
        raise DataError("there is no text to train a tokenizer on: give a longer one")
    least = 1 + 2 * len(alphabet) + len(last)
    if vocab_size is not None and vocab_size < least:
        raise ConfigError(
            f"data.vocab_size = {vocab_size} is too small for {GPT1}: "
            f"{least} are the text's characters and the special ids"
        )
    if vocab_size is not None:
        n_merges = vocab_size - least
    assert n_merges is not None, "the number of merges is given, or follows from the size"
    trained = train_merges(words, alphabet, n_merges=n_merges, marks=Marks(end=END))
    pieces = (UNKNOWN, *trained.pieces, *last)
    ids = {piece: id_ for id_, piece in enumerate(pieces)}
    return with_normalization(Gpt1Vocabulary(ids, trained.merges), normalization)
