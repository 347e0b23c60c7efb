"""Scores of translations equal the sacrebleu command's, and what is known by hand."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from sublayer.data.parallel.sources import PairText
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import DataError
from sublayer.evaluation.bleu import (
    Lines,
    chrf,
    count_lines,
    count_translations,
    reference_lines,
    reference_words,
    sacre_bleu,
    score_translations,
    scored_words,
    tokenized_bleu,
    translated_lines,
)

REFERENCES = [
    "Der Hund läuft, schnell.",
    "Eine Katze schläft auf dem Sofa!",
    "Zwei Männer (in Hüten) reden.",
    "",
]
TEXTS = [
    "Der Hund rennt, schnell.",
    "Eine Katze schläft auf der Couch!",
    "zwei Männer in Hüten reden .",
    "Nichts",
]


def command(tmp_path: Path, *options: str) -> tuple[float, str]:
    (tmp_path / "refs").write_text("\n".join(REFERENCES) + "\n")
    (tmp_path / "hyps").write_text("\n".join(TEXTS) + "\n")
    words = [
        sys.executable,
        "-m",
        "sacrebleu",
        str(tmp_path / "refs"),
        "-i",
        str(tmp_path / "hyps"),
        "-w",
        "8",
        *options,
    ]
    done = subprocess.run([*words, "-f", "json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return float(found["score"]), str(found["signature"])


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_those_of_the_command(tmp_path: Path, lowercase: bool) -> None:
    lower = ["-lc"] if lowercase else []
    for score, options in (
        (sacre_bleu(TEXTS, REFERENCES, lowercase=lowercase), ["-m", "bleu", "-tok", "13a"]),
        (
            tokenized_bleu(TEXTS, REFERENCES, lowercase=lowercase),
            ["-m", "bleu", "-tok", "none", "-s", "none", "--force"],
        ),
    ):
        value, signature = command(tmp_path, *options, *lower)
        assert score.value == pytest.approx(value, abs=1e-6)
        assert score.signature == signature
    value, _ = command(tmp_path, "-m", "chrf", *(["--chrf-lowercase"] if lowercase else []))
    assert chrf(TEXTS, REFERENCES, lowercase=lowercase).value == pytest.approx(value, abs=1e-6)


def test_tokenized_bleu_by_hand() -> None:
    # 5 of 6 words, 3 of 5 pairs, 1 of 4 triples and none of 3 fours, not smoothed: 0; without the
    # last word's change:
    assert tokenized_bleu(["a b c d e f"], ["a b c x e f"]).value == 0.0
    # 6/6, 5/5, 4/4, 3/3, and a reference of 8 words: exp(1 - 8/6).
    assert tokenized_bleu(["a b c d e f"], ["a b c d e f g h"]).value == pytest.approx(
        71.6531, abs=1e-3
    )
    assert tokenized_bleu(["A b c d"], ["a b c d"], lowercase=True).value == pytest.approx(100.0)


def lines(words: str, rule: Literal["moses", "spaces"] = "spaces") -> Lines:
    return Lines([words], [words], rule)


def test_splitting_compounds_inflates() -> None:
    words, references = (
        lines("the well-known man of to-day ."),
        lines("the well-known men of to-day ."),
    )
    scores = score_translations(words, references, lowercase=False, compounds=True)
    assert scores["bleu_compounds"].value > scores["bleu"].value
    assert scores["bleu_compounds"].signature == f"{scores['bleu'].signature}|compounds:split"
    assert "bleu_compounds" not in score_translations(words, references, lowercase=False)


def test_compounds_are_split_as_the_released_script_does() -> None:
    # perl's s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g: what a match took begins no other.
    found = count_translations(
        lines("wohl-bekannt a-b-c"), lines("- x- -y z-"), lowercase=False, compounds=True
    )
    ours = "wohl ##AT##-##AT## bekannt a ##AT##-##AT## b-c"
    expected = count_lines("bleu", [ours], ["- x- -y z-"], lowercase=False)
    assert found["bleu_compounds"].counts.tolist() == expected.counts.tolist()
    assert expected.counts[0, :2].tolist() == [6, 4]  # words of both


def test_words_that_were_divided_at_hyphens_are_scored_whole() -> None:
    pytest.importorskip("sacremoses")
    side = LanguageRules("de", "normalize", divides_hyphens=True)
    target = "Der wohl-bekannte Mann (aus Köln-Deutz) lacht, oder?"
    words = " ".join(side.words(target))
    assert "wohl @-@ bekannte" in words
    tokenizer = BilingualTokenizer(
        train_tokenizer("word-bpe", [words.encode()], vocab_size=90), side, side
    )
    pair = PairText("-", words, "-", target)
    expected = "Der wohl-bekannte Mann ( aus Köln-Deutz ) lacht , oder ?"
    assert reference_words([pair], tokenizer) == [expected]
    (ids,) = tokenizer.encode_target([target])
    assert scored_words([ids], tokenizer) == [expected]
    translations, references = (
        translated_lines([ids], tokenizer),
        reference_lines([pair], tokenizer),
    )
    scores = score_translations(translations, references, lowercase=False)
    assert scores["bleu"].value == pytest.approx(100.0)
    assert scores["bleu"].signature.endswith("|words:moses")
    other = "Der wohl bekannte Mann ( aus Köln - Deutz ) lacht , oder ?"
    assert tokenized_bleu([other], [expected]).value < 100.0


def test_the_signature_says_whether_capitals_count() -> None:
    tokenizer = BilingualTokenizer(
        train_tokenizer("word-bpe", [b"Ein Hund ein hund"], vocab_size=40),
        LanguageRules("en"),
        LanguageRules("de"),
    )
    (ids,) = tokenizer.encode_target(["ein hund Ein Hund"])
    pair = PairText("-", "Ein Hund ein hund", "-", "Ein Hund ein hund")
    for lowercase, case, value in ((False, "mixed", 0.0), (True, "lc", 100.0)):
        translations, references = (
            translated_lines([ids], tokenizer),
            reference_lines([pair], tokenizer),
        )
        found = score_translations(translations, references, lowercase=lowercase)
        assert all(
            f"case:{case}|" in found[name].signature for name in ("bleu", "sacrebleu", "chrf")
        )
        assert found["bleu"].value == pytest.approx(value)


@pytest.mark.parametrize("lowercase", [False, True])
def test_the_score_of_a_corpus_is_that_of_the_sums_over_its_lines(lowercase: bool) -> None:
    texts = [f"{line} {n}" for n, line in enumerate(TEXTS * 5)]
    references = [f"{line} {n}" for n, line in enumerate(REFERENCES * 5)]
    for name, score in (("bleu", tokenized_bleu), ("sacrebleu", sacre_bleu), ("chrf", chrf)):
        lines = count_lines(name, texts, references, lowercase=lowercase)
        expected = score(texts, references, lowercase=lowercase)
        assert 5 < expected.value < 95
        assert lines.value == expected.value
        assert lines.signature == expected.signature
        # A corpus of a line is that line.
        alone = count_lines(name, texts[:1], references[:1], lowercase=lowercase)
        assert alone.counts.tolist() == lines.counts[:1].tolist()


def test_counts_of_a_line_are_those_worked_out_by_hand() -> None:
    (counts,) = count_lines("bleu", ["a b c x"], ["a b c d e"], lowercase=False).counts.tolist()
    # Lengths 4 and 5; shared a b c, ab bc, abc; of 4, 3, 2 and 1 n-grams.
    assert counts == [4, 5, 3, 2, 1, 0, 4, 3, 2, 1]


def test_unequal_numbers_are_refused_with_both() -> None:
    with pytest.raises(DataError, match="2 translations cannot be scored against 1 references"):
        sacre_bleu(["a", "b"], ["a"])
    with pytest.raises(DataError, match="nothing to score"):
        chrf([], [])
