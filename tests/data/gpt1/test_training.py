"""GPT-1's kind of vocabulary trained: against a slow reference, by both text rules."""

from collections import Counter

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.data.gpt1.tokenizer import Gpt1Tokenizer, vocabulary_of
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.base import NotUtf8
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import ConfigError, DataError
from tests.data.gpt1 import released

pytest.importorskip("ftfy")
pytest.importorskip("spacy")

TEXT = (
    "It's the end of the road, the boat isn't here… the “others” don't\n"
    "see it; they're at sea (or so they say).\n\nCafé, thé, 1,000 others!\n"
) * 3


def counted(normalization: str) -> Counter:
    if normalization == "published":
        return Counter(word for word in released.words(TEXT) if word.strip())
    from transformers import OpenAIGPTTokenizer

    library = OpenAIGPTTokenizer()._tokenizer
    normal = library.normalizer.normalize_str(TEXT)
    return Counter(word for word, _ in library.pre_tokenizer.pre_tokenize_str(normal))


@pytest.mark.parametrize("normalization", ["published", "transformers"])
@pytest.mark.parametrize("n_merges", [0, 1, 20, 10_000])
def test_a_trained_vocabulary_is_that_of_a_slow_reference(normalization, n_merges):
    trained = train_tokenizer(
        "gpt1-bpe", [TEXT.encode()], merges=n_merges, normalization=normalization
    )
    found = vocabulary_of(trained)
    pieces, merges = released.train(counted(normalization), n_merges)
    last = ["\n</w>"] if normalization == "published" else []
    assert sorted(found.ids, key=found.ids.get) == ["<unk>", *pieces, *last]
    assert list(found.merges) == merges
    n_characters = len({character for word in counted(normalization) for character in word})
    assert trained.vocab_size == 1 + 2 * n_characters + len(merges) + len(last)
    assert len(merges) == n_merges or n_merges == 10_000
    if normalization == "published":
        expected = released.encode(TEXT, found.ids, merges)
        assert trained.encode(TEXT.encode()).tolist() == expected
        assert 0 not in expected and found.ids["\n</w>"] in expected


@pytest.mark.parametrize(
    ("normalization", "kind"),
    [(None, Gpt1Tokenizer), ("published", Gpt1Tokenizer), ("transformers", SubwordTokenizer)],
)
def test_a_vocabulary_of_a_size_is_trained_saved_and_loaded(tmp_path, normalization, kind):
    tokenizer = train_tokenizer(
        "gpt1-bpe", [TEXT.encode()], vocab_size=80, normalization=normalization
    )
    assert isinstance(tokenizer, kind)
    assert (tokenizer.vocab_size, tokenizer.kind) == (80, "gpt1-bpe")
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path)
    assert type(loaded) is kind and loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode(TEXT.encode()).tolist() == tokenizer.encode(TEXT.encode()).tolist()


@pytest.mark.parametrize("normalization", ["published", "transformers"])
@pytest.mark.parametrize(
    ("text", "size", "error", "message"),
    [
        (b"abc", 6, ConfigError, "data.vocab_size = 6 is too small for gpt1-bpe: [78] are"),
        (b" \n\n", 100, DataError, "there is no text to train a tokenizer on"),
        (b"a\n\xff", 100, NotUtf8, "line 2: byte 0xff"),
    ],
)
def test_what_cannot_be_trained_is_refused(normalization, text, size, error, message):
    with pytest.raises(error, match=message):
        train_tokenizer("gpt1-bpe", [text], vocab_size=size, normalization=normalization)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["data.normalization=transformers"], "data.tokenizer is gpt1-bpe or a file of GPT-1's"),
        (
            ["data.tokenizer=moses-bpe", "data.normalization=published"],
            "data.tokenizer is gpt1-bpe or a file",
        ),
        (
            ["data.tokenizer=gpt1-bpe", "data.merges=3", "data.vocab_size=300"],
            "data.vocab_size",
        ),
        (
            ["data.tokenizer=gpt1-bpe", "data.normalization=spacy"],
            "is not one of published, transformers",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        load_recipe("gpt", settings)
