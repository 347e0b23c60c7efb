"""Moses' rules and vocabulary, and the texts of two languages put together again."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from sentencepiece import SentencePieceTrainer

from sublayer.config.data import DataConfig
from sublayer.data.prepare import prepare, prepare_tokenizer
from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.data.tokenizers.moses import SPECIALS, MosesTokenizer, drop_unprintable
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError, DataError

pytest.importorskip("sacremoses")


PROSE = (
    "It is a truth, e.g. universally acknowledged: "
    "a single man's fortune (“or” 1,000) isn't his & hers.\n" * 5
)

TRAINED = MosesTokenizer.train([PROSE.encode()], vocab_size=120)


def pieces(tokenizer, text):
    names = (*SPECIALS, *tokenizer.content()["pieces"])
    return [names[id_] for id_ in tokenizer.encode(text.encode())]


def test_special_ids_have_fairseqs_order():
    assert SPECIALS == ("<Lua heritage>", "<pad>", "</s>", "<unk>", "<mask>", "<cls>")
    ids = (TRAINED.pad_id, TRAINED.sep_id, TRAINED.unk_id, TRAINED.mask_id, TRAINED.cls_id)
    assert ids == (1, 2, 3, 4, 5)
    assert TRAINED.special_ids == (0, 1, 2, 3, 4, 5)
    assert TRAINED.decode([5, 2, 0, 1, 3, 4]) == b""
    assert TRAINED.encode("漢".encode()).tolist() == [TRAINED.unk_id]
    assert TRAINED.vocab_size == 120


def test_text_is_moses_tokens_in_lower_case():
    # Quotes are made straight, an abbreviation keeps its stop, nothing is escaped.
    assert (
        TRAINED.decode(TRAINED.encode("Man's “fortune” & e.g. his.".encode()))
        == b'man \'s " fortune " & e.g. his . '
    )


def test_words_begin_after_an_end_of_word():
    ids = TRAINED.encode(b"universal truth")
    names = pieces(TRAINED, "universal truth")
    assert names[-1] == "truth</w>" and len(names) > 2
    starts = [True, *(name.endswith("</w>") for name in names[:-1])]
    assert TRAINED.starts_word(ids).tolist() == starts
    marked = np.array([5, ids[0], ids[1], 2, ids[0]])
    assert TRAINED.starts_word(marked).tolist() == [True, True, False, True, True]
    assert TRAINED.starts_word(ids[:0]).tolist() == []


def test_merges_are_applied_in_the_order_of_training():
    # l-o is twice in "lo lo", o-w</w> once: lo</w> is a word of its own, "low" begins with the same
    # two letters.
    tokenizer = MosesTokenizer.train([b"lo lo low low low"], n_merges=2)
    characters = ["l", "o", "w", "l</w>", "o</w>", "w</w>"]
    assert tokenizer.content()["pieces"] == [*characters, "lo", "low</w>"]
    assert tokenizer.content()["merges"] == [["l", "o"], ["lo", "w</w>"]]
    assert pieces(tokenizer, "lo low wol") == ["l", "o</w>", "low</w>", "w", "o", "l</w>"]


def test_without_sacremoses_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(ConfigError, match=r"need sacremoses: pip install 'sublayer\[translation"):
        train_tokenizer("moses-bpe", [b"a text"])
    loaded = MosesTokenizer.from_content(TRAINED.content())
    assert loaded.decode([6]) != b""
    with pytest.raises(ConfigError, match="need sacremoses"):
        loaded.encode(b"a text")


RESERVED = 'R&D | <b> "it\'s" [1]'

ESCAPED = "R &amp; D &#124; &lt; b &gt; &quot; it &apos;s &quot; &#91; 1 &#93;"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\x00c\x85d", "a b c d"),
        ("Silben\u00adtrennung", "Silben trennung"),
        ("\ufeffa", " a"),
        ("a\ue000b\uffffc", "a b c"),
        ("a\u00a0b\u2028c e\u0301 \N{SNOWMAN}漢", "a\u00a0b\u2028c e\u0301 \N{SNOWMAN}漢"),
    ],
)
def test_a_space_stands_for_what_cannot_be_printed(text: str, expected: str) -> None:
    assert drop_unprintable(text) == expected


def test_escapes_are_moses_own_and_undone_where_text_is_put_together() -> None:
    plain = LanguageRules("en", "tokenize")
    escaping = LanguageRules("en", "tokenize", escapes=True)
    assert " ".join(escaping.words(RESERVED)) == ESCAPED
    assert plain.words("R&D") == ["R", "&", "D"]
    for line in ("R & D", '"it\'s"', "x [1] < y", "&amp; is an entity", "a | b"):
        assert escaping.text(escaping.words(line)) == plain.text(plain.words(line))


def test_rules_without_escapes_are_written_as_they_always_were() -> None:
    rules = LanguageRules("de", "tokenize")
    assert rules.content() == {
        "language": "de",
        "moses": "tokenize",
        "divides_hyphens": False,
        "lowers": False,
    }
    escaping = LanguageRules("de", "tokenize", escapes=True)
    for each in (rules, escaping):
        assert LanguageRules.from_content(each.content()) == each
    for damaged in ({"escapes": 1}, {"more": True}):
        with pytest.raises(DataError, match="rules of a language are damaged"):
            LanguageRules.from_content({**rules.content(), **damaged})


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


@pytest.mark.parametrize(
    ("kind", "ids", "special"),
    [
        ("unigram", {}, (1, 1, 2)),
        ("bpe", {}, (1, 1, 2)),
        ("unigram", {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}, (0, 2, 3)),
    ],
)
def test_a_model_without_padding_is_padded_with_its_beginning(
    pairs: Path, kind: str, ids: dict[str, int], special: tuple[int, ...]
) -> None:
    vocabulary = sentencepiece(kind, **ids)
    (pairs / "joint.model").write_bytes(vocabulary.model)
    tokenizer = prepare_tokenizer(config_of(pairs, str(pairs / "joint.model")))
    assert isinstance(tokenizer, BilingualTokenizer)
    assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id) == special
    for line, row in zip(DE, tokenizer.encode_target(DE), strict=True):
        assert tokenizer.write(row) == line and not {*special} & set(row.tolist())


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
