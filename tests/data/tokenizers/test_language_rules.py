"""Moses' rules: what cannot be printed becomes a space, what Moses reserves is escaped and back."""

import pytest

from sublayer.data.parallel.sources import PairText
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.data.tokenizers.moses import Moses, drop_unprintable
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import DataError
from sublayer.evaluation.bleu import reference_lines, score_translations, translated_lines

pytest.importorskip("sacremoses")

RESERVED = 'R&D | <b> "it\'s" [1]'
ESCAPED = "R &amp; D &#124; &lt; b &gt; &quot; it &apos;s &quot; &#91; 1 &#93;"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        # One of each category: Cc, Cf (soft hyphen, zero width space, byte order mark), Co, Cn.
        ("a\tb\x00c\x85d", "a b c d"),
        ("Silben\u00adtrennung", "Silben trennung"),
        ("a\u200bb", "a b"),
        ("\ufeffa", " a"),
        ("a\ue000b\uffffc", "a b c"),
        # Spaces, marks that combine and whatever has a glyph stay.
        ("a\u00a0b\u2028c e\u0301 \N{SNOWMAN}漢", "a\u00a0b\u2028c e\u0301 \N{SNOWMAN}漢"),
    ],
)
def test_a_space_stands_for_what_cannot_be_printed(text: str, expected: str) -> None:
    assert drop_unprintable(text) == expected


def test_normalised_text_has_no_token_that_cannot_be_printed() -> None:
    line = "Silben\u00adtrennung \u200b und\ufeff mehr"
    normalised = LanguageRules("de", "normalize").words(line)
    assert normalised == ["Silben", "trennung", "und", "mehr"]
    assert "\u200b" in "".join(LanguageRules("de", "tokenize").words(line))
    assert Moses("en", normalizes=True).tokens("a\u200bb") == ["a", "b"]


def test_what_moses_reserves_is_escaped_as_by_its_tokenizer() -> None:
    rules = LanguageRules("en", "tokenize", escapes=True)
    assert " ".join(rules.words(RESERVED)) == ESCAPED
    assert LanguageRules("en", "tokenize").words("R&D") == ["R", "&", "D"]


@pytest.mark.parametrize("line", ["R & D", '"it\'s"', "x [1] < y", "&amp; is an entity", "a | b"])
def test_escapes_are_undone_where_text_is_put_together(line: str) -> None:
    plain = LanguageRules("en", "tokenize")
    escaping = LanguageRules("en", "tokenize", escapes=True)
    assert escaping.text(escaping.words(line)) == plain.text(plain.words(line))


def test_a_translator_writes_text_and_is_scored_alike_with_escapes_and_without() -> None:
    line = 'Sie sagt: "A & B" ist [gut].'
    found = []
    for escapes in (False, True):
        side = LanguageRules("de", "tokenize", escapes=escapes)
        words = " ".join(side.words(line))
        vocabulary = train_tokenizer("word-bpe", [words.encode()], vocab_size=120)
        tokenizer = BilingualTokenizer(vocabulary, side, side)
        (ids,) = tokenizer.encode_target([line])
        assert ("&quot;" in tokenizer.words(ids)) == escapes
        assert tokenizer.write(ids) == line
        pair = PairText("-", words, "-", line)
        translated = translated_lines([ids[:-2]], tokenizer)
        scores = score_translations(translated, reference_lines([pair], tokenizer), lowercase=False)
        found.append({name: score.value for name, score in scores.items()})
    assert found[0] == found[1]
    assert 0.0 < found[0]["bleu"] < 100.0


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
