import numpy as np
import pytest
import tokenizers

from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.base import check_masking
from sublayer.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer
from sublayer.data.tokenizers.moses import MosesTokenizer
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError

TEXT = b"a text of some words, and some more words to learn from\n" * 3


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "moses-bpe"])
def test_vocabularies_for_masks_have_what_masks_need(kind):
    tokenizer = train_tokenizer(kind, [TEXT], vocab_size=80)
    check_masking(tokenizer, "data.tokenizer")
    needed = (
        tokenizer.pad_id,
        tokenizer.cls_id,
        tokenizer.sep_id,
        tokenizer.mask_id,
        tokenizer.unk_id,
    )
    assert len(set(needed)) == 5
    assert set(needed) <= set(tokenizer.special_ids)
    assert sorted(tokenizer.special_ids) == list(tokenizer.special_ids)
    assert not set(tokenizer.special_ids) & set(tokenizer.encode(TEXT).tolist())
    assert tokenizer.token_bytes[list(tokenizer.special_ids)].sum() == 0
    assert tokenizer.has_words
    starts = tokenizer.starts_word(tokenizer.encode(b"a text of some words\n"))
    assert starts.dtype == np.bool_ and starts.sum() == 5


@pytest.mark.parametrize(
    "tokenizer",
    [ByteTokenizer(), CharacterTokenizer("ab"), SubwordTokenizer.train([TEXT], vocab_size=270)],
)
def test_other_vocabularies_are_refused_by_what_they_lack(tokenizer):
    with pytest.raises(
        ConfigError,
        match=r"^data.tokenizer = it has no \[PAD\], no \[CLS\], no \[SEP\], no \[MASK\], which",
    ):
        check_masking(tokenizer, "data.tokenizer = it")
    assert not tokenizer.has_words
    with pytest.raises(
        ConfigError, match=f"of kind {tokenizer.kind} does not show where words begin"
    ):
        tokenizer.starts_word(np.array([1]))


def test_a_vocabulary_that_lacks_the_mask_alone_is_told_so():
    library = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]")
    )
    library.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    with pytest.raises(
        ConfigError, match=r"vocab.txt has no \[MASK\], which masked objectives need: give"
    ):
        check_masking(SubwordTokenizer(library), "vocab.txt")


def test_byte_level_bpe_with_robertas_names_can_be_masked():
    library = tokenizers.Tokenizer.from_str(
        SubwordTokenizer.train([TEXT], vocab_size=270).serialize().decode()
    )
    library.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer = SubwordTokenizer(library)
    check_masking(tokenizer, "tokenizer.json")
    assert (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.mask_id) == (
        270,
        271,
        272,
        274,
    )
    assert tokenizer.special_ids == (0, 270, 271, 272, 273, 274)
    assert tokenizer.is_lossless
    assert not set(tokenizer.special_ids) & set(tokenizer.encode(b"<s> <mask></s>").tolist())


def test_bytes_have_no_special_ids():
    assert ByteTokenizer().special_ids == ()
    assert CharacterTokenizer("ab").special_ids == (0,)


def test_words_of_moses_are_those_of_the_text():
    tokenizer = MosesTokenizer.train([TEXT], n_merges=5)
    assert tokenizer.starts_word(tokenizer.encode(b"some more words")).sum() == 3
