"""SentencePiece for two languages: stored and read back, with any model that ends a text."""

import gzip
import io
import unicodedata
from pathlib import Path

import pytest
from sentencepiece import SentencePieceTrainer

from sublayer.config.data import DataConfig
from sublayer.data.prepare import prepare, prepare_tokenizer
from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError

EN = ["A man's hat.", "Two dogs, running!", "The café (on the left) is open.", "A hat costs £5."]
DE = [
    "Der Hut eines Mannes.",
    "Zwei Hunde rennen!",
    "Das Café (links) ist geöffnet.",
    "Ein Hut kostet 5 £.",
]
SIDES = (LanguageRules("en"), LanguageRules("de"))


def sentencepiece(kind: str, **ids: int) -> UnigramTokenizer:
    """Train a model as its own trainer does by default, but for some ids."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([*EN, *DE] * 9),
        model_writer=model,
        model_type=kind,
        vocab_size=90,
        hard_vocab_limit=False,
        minloglevel=2,
        **ids,
    )
    return UnigramTokenizer(model.getvalue())


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    for name, lines in (("a.en", EN), ("a.de", DE)):
        (tmp_path / name).write_text(
            "".join(f"{line} {number}\n" for number in range(9) for line in lines)
        )
    return tmp_path


def config_of(pairs: Path, tokenizer: str) -> DataConfig:
    return DataConfig(
        source_path=str(pairs / "a.en"),
        target_path=str(pairs / "a.de"),
        source_language="en",
        target_language="de",
        tokenizer=tokenizer,
        vocab_size=90 if tokenizer == "unigram" else None,
    )


def test_a_vocabulary_that_is_trained_writes_what_it_reads(pairs: Path) -> None:
    tokenizer = prepare_tokenizer(config_of(pairs, "unigram"), cache=pairs / "cache")
    assert isinstance(tokenizer, BilingualTokenizer) and tokenizer.vocabulary.kind == "unigram"
    for line, ids in zip(DE, tokenizer.encode_target(DE), strict=True):
        assert tokenizer.write(ids) == line
    for line, ids in zip(EN, tokenizer.encode_source(EN), strict=True):
        assert " ".join(tokenizer.words(ids)) == line


def test_captions_are_written_as_they_are_read(real_data: Path) -> None:
    lines = (
        gzip.decompress((real_data / "multi30k" / "train.de.gz").read_bytes())
        .decode()
        .splitlines()[:3000]
    )
    text = "\n".join(lines).encode()
    tokenizer = BilingualTokenizer(
        train_tokenizer("unigram", [text], vocab_size=2000, keeps_text=True), *SIDES
    )
    found = [
        (line, ids)
        for line, ids in zip(lines, tokenizer.encode_target(lines), strict=True)
        if 1 not in ids
    ]
    assert len(found) > 2950  # the others have a character that is too rare for the vocabulary
    for line, ids in found:
        assert tokenizer.write(ids) == " ".join(unicodedata.normalize("NFKC", line).split())


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_model_without_padding_is_padded_with_its_beginning(pairs: Path, kind: str) -> None:
    vocabulary = sentencepiece(kind)
    assert vocabulary.pad_id is None
    (pairs / "joint.model").write_bytes(vocabulary.model)
    tokenizer = prepare_tokenizer(config_of(pairs, str(pairs / "joint.model")))
    assert isinstance(tokenizer, BilingualTokenizer)
    assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id) == (1, 1, 2)
    for line, ids in zip(DE, tokenizer.encode_target(DE), strict=True):
        assert tokenizer.write(ids) == line and not {0, 1, 2} & set(ids.tolist())


def test_a_model_s_own_padding_pads() -> None:
    tokenizer = BilingualTokenizer(
        sentencepiece("unigram", pad_id=0, unk_id=1, bos_id=2, eos_id=3), *SIDES
    )
    assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id) == (0, 2, 3)


def test_a_vocabulary_that_comes_with_a_model_gets_the_rules_of_the_recipe(pairs: Path) -> None:
    tokenizer = BilingualTokenizer(
        sentencepiece("unigram"), LanguageRules("und"), LanguageRules("und")
    )
    data = prepare(config_of(pairs, "unigram"), tokenizer=tokenizer, cache=pairs / "cache")
    assert isinstance(data.tokenizer, BilingualTokenizer)
    assert data.tokenizer.vocabulary is tokenizer.vocabulary
    assert (data.tokenizer.source, data.tokenizer.target) == SIDES


@pytest.mark.parametrize("ids", [{"eos_id": -1}, {"bos_id": -1}])
def test_a_model_that_ends_no_text_or_pads_none_is_refused(ids: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="a file whose vocabulary has </s> and <pad> or <s>"):
        BilingualTokenizer(sentencepiece("unigram", **ids), *SIDES)
