"""BLEU and its paired tests: equal to the sacrebleu command, known numbers, and error rates."""

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import binomtest

from sublayer.data.parallel import PairText
from sublayer.data.tokenizers.languages import BilingualTokenizer, LanguageRules
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError
from sublayer.evaluation import bleu
from sublayer.evaluation.bleu import compare_translations, randomisation_p
from tests.breadth import rows

REFERENCES = ["Der Hund läuft, schnell.", "Eine Katze schläft auf dem Sofa!"]
REFERENCES += ["Zwei Männer (in Hüten) reden.", ""]
TEXTS = ["Der Hund rennt, schnell.", "Eine Katze schläft auf der Couch!"]
TEXTS += ["zwei Männer in Hüten reden .", "Nichts"]
MEASURE = bleu.metric("sacrebleu", lowercase=False)


def scored_by_command(folder, words, **files):
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "sacrebleu", *words.split(), "-f", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("lowercase", rows([True, False], 1))
def test_scores_are_those_of_the_command(tmp_path, lowercase):
    lower, chrf_lower = (" -lc", " --chrf-lowercase") if lowercase else ("", "")
    for name, options in (
        ("sacrebleu", f"-m bleu -tok 13a{lower}"),
        ("bleu", f"-m bleu -tok none -s none --force{lower}"),
        ("chrf", f"-m chrf{chrf_lower}"),
    ):
        score = bleu.count_lines(name, TEXTS, REFERENCES, lowercase=lowercase)
        words = f"refs -i hyps -w 8 {options}"
        found = scored_by_command(tmp_path, words, refs=REFERENCES, hyps=TEXTS)
        assert score.value == pytest.approx(float(found["score"]), abs=1e-6)
        assert score.signature == found["signature"] or name == "chrf"


CHINESE = "今天天气很好，我们去公园。 | 今天天气真好，我们去公园吧。"
LANGUAGES = {
    "zh-CN": ("zh", CHINESE), "th": ("char", CHINESE),
    "ja": ("ja-mecab", "吾輩は猫である。名前はまだない。 | 吾輩は犬である。名前はまだ無い。"),
    "ko_KR": ("ko-mecab", "나는 학교에 갑니다. 서울은! | 나는 학교에 갔다. 서울은!"),
    "en": ("13a", "The man, 3.5 feet (tall), sits down. | The man, 3.5 feet tall, sits down."),
    "de": ("intl", "Der Mann (3,5 m) sitzt, ja, hier. | Der Mann, 3,5 m, sitzt, ja, hier."),
}  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_bleu_has_the_words_of_the_target_language(tmp_path, language):
    pytest.importorskip("MeCab")
    pytest.importorskip("mecab_ko")
    tokens, both = LANGUAGES[language]
    asked = tokens if tokens == "intl" else None
    text, reference = both.split(" | ")
    words = train_tokenizer("word-bpe", [both.encode()], vocab_size=300)
    tokenizer = BilingualTokenizer(words, LanguageRules("en"), LanguageRules(language))
    ours = bleu.translated_lines(tokenizer.encode_target([text]), tokenizer, asked)
    theirs = bleu.reference_lines([PairText("-", reference, "-", reference)], tokenizer, asked)
    found = bleu.count_translations(ours, theirs, lowercase=False)
    command = f"refs -i hyps -w 8 -m bleu -tok {tokens}"
    expected = scored_by_command(tmp_path, command, refs=[reference], hyps=[text])
    score, is_spaced = found["sacrebleu"], tokens in ("13a", "intl")
    assert score.value == pytest.approx(float(expected["score"]), abs=1e-6) and score.value > 5
    assert score.signature == expected["signature"]
    assert found["bleu"].signature.endswith("|words:spaces" if is_spaced else f"|words:{tokens}")
    assert is_spaced or found["bleu"].value > 5
    counts = bleu.count_lines("sacrebleu", [text], [reference], lowercase=False, tokens=tokens)
    paired = compare_translations(counts, counts)
    assert paired.value == pytest.approx(score.value) and paired.difference == 0


def test_a_tokenizer_of_bleu_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(bleu, "find_spec", lambda name: None)
    installs = r"needs .*pip install 'sublayer\[translation\]'"
    for tokens, message in (
        ("flores200", "needs its .* model, .* or choose another"), ("ja-mecab", installs),
        ("ko-mecab", installs), ("mecab", "is not one of 13a, zh"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            bleu.metric("sacrebleu", lowercase=False, tokens=tokens)


def tokenised(words, reference, *, lowercase=False):
    return bleu.count_lines("bleu", [words], [reference], lowercase=lowercase).value


def test_tokenized_bleu_by_hand():
    counts = bleu.count_lines("bleu", ["a b c x"], ["a b c d e"], lowercase=False).counts
    # Lengths 4 and 5; shared a b c, ab bc, abc; of 4, 3, 2 and 1 n-grams.
    assert counts.tolist() == [[4, 5, 3, 2, 1, 0, 4, 3, 2, 1]]
    # 5 of 6 words, 3 of 5 pairs, 1 of 4 triples and none of 3 fours, not smoothed: 0.
    assert tokenised("a b c d e f", "a b c x e f") == 0.0
    # 6/6, 5/5, 4/4, 3/3, and a reference of 8 words: exp(1 - 8/6).
    assert tokenised("a b c d e f", "a b c d e f g h") == pytest.approx(71.6531, abs=1e-3)
    assert tokenised("A b c d", "a b c d", lowercase=True) == pytest.approx(100.0)


def lines(words):
    return bleu.Lines([words], [words], "spaces")


def test_compounds_are_split_as_the_released_script_does():
    # perl's s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g: what a match took begins no other.
    texts = lines("wohl-bekannt a-b-c"), lines("- x- -y z-")
    found = bleu.count_translations(*texts, lowercase=False, compounds=True)
    ours = "wohl ##AT##-##AT## bekannt a ##AT##-##AT## b-c"
    expected = bleu.count_lines("bleu", [ours], ["- x- -y z-"], lowercase=False)
    assert found["bleu_compounds"].counts.tolist() == expected.counts.tolist()
    assert expected.counts[0, :2].tolist() == [6, 4]  # words of both
    texts = lines("the well-known man of to-day ."), lines("the well-known men of to-day .")
    scores = bleu.count_translations(*texts, lowercase=False, compounds=True)
    assert scores["bleu_compounds"].value > scores["bleu"].value
    assert scores["bleu_compounds"].signature == f"{scores['bleu'].signature}|compounds:split"
    assert "bleu_compounds" not in bleu.count_translations(*texts, lowercase=False)


def test_words_that_were_divided_at_hyphens_are_scored_whole():
    pytest.importorskip("sacremoses")
    side = LanguageRules("de", "normalize", divides_hyphens=True)
    target = "Der wohl-bekannte Mann (aus Köln-Deutz) lacht, oder?"
    words = " ".join(side.words(target))
    assert "wohl @-@ bekannte" in words
    bpe = train_tokenizer("word-bpe", [words.encode()], vocab_size=90)
    tokenizer, pair = BilingualTokenizer(bpe, side, side), PairText("-", words, "-", target)
    expected = "Der wohl-bekannte Mann ( aus Köln-Deutz ) lacht , oder ?"
    assert bleu.reference_lines([pair], tokenizer).words == [expected]
    (ids,) = tokenizer.encode_target([target])
    assert bleu.translated_lines([ids], tokenizer).words == [expected]
    texts = bleu.translated_lines([ids], tokenizer), bleu.reference_lines([pair], tokenizer)
    found = bleu.count_translations(*texts, lowercase=False)["bleu"]
    assert found.value == pytest.approx(100.0) and found.signature.endswith("|words:moses")


def test_the_score_of_a_corpus_is_that_of_the_sums_over_its_lines():
    texts = [f"{line} {n}" for n, line in enumerate(TEXTS * 5)]
    references = [f"{line} {n}" for n, line in enumerate(REFERENCES * 5)]
    for name in ("bleu", "sacrebleu", "chrf"):
        lines = bleu.count_lines(name, texts, references, lowercase=False)
        measure = bleu.metric(name, lowercase=False)
        expected = measure.corpus_score(texts, [references]).score
        assert 5 < expected < 95 and lines.value == expected
        assert lines.signature == str(measure.get_signature())
        # Of several references a blank one is none.
        more = [line[:9] if n % 3 else " " for n, line in enumerate(texts)]
        found = bleu.count_lines(name, texts, references, lowercase=False, more=[more])
        streams = [references, [(line.strip() and line) or None for line in more]]
        of_both = bleu.metric(name, lowercase=False).corpus_score(texts, streams)
        assert found.value == of_both.score != lines.value and "nrefs:var" in found.signature
        alone = bleu.count_lines(name, texts[:1], references[:1], lowercase=False)
        assert alone.counts.tolist() == lines.counts[:1].tolist()


def sentences(n):
    drawn = np.random.default_rng(1)
    words = ["Hund", "Katze", "läuft", "schnell", "der", "die", "ein", "auf", ".", "dem", "Sofa"]
    return [" ".join(drawn.choice(words, drawn.integers(5, 12))) for _ in range(n)]


def damaged(share, seed):
    drawn, lines = np.random.default_rng(seed), [line.split() for line in DRAWN_REFERENCES]
    return [" ".join(w if drawn.random() > share else "nichts" for w in line) for line in lines]


DRAWN_REFERENCES = sentences(60)


def compared(name, *systems):
    counts = (bleu.count_lines(name, texts, DRAWN_REFERENCES, lowercase=False) for texts in systems)
    return compare_translations(*counts)


def test_randomisation_is_that_of_the_command(tmp_path):
    texts, others = damaged(0.2, 2), damaged(0.3, 3)
    found = compared("sacrebleu", texts, others)
    words = "refs -i other this -m bleu --paired-ar"
    files = {"refs": DRAWN_REFERENCES, "this": texts, "other": others}
    baseline, system = (row["BLEU"] for row in scored_by_command(tmp_path, words, **files))
    expected = (system["score"], baseline["score"], system["p_value"])
    assert (found.value, found.other, found.p_randomisation) == pytest.approx(expected)


def test_a_much_better_system_is_significantly_better_and_an_equal_one_is_not():
    good, bad = damaged(0.05, 2), damaged(0.5, 3)
    better = compared("chrf", good, bad)
    assert better.difference > 10 and better.p_randomisation < 0.01
    assert better.interval[0] < better.difference < better.interval[1]
    worse = compared("chrf", bad, good)
    assert worse.difference == pytest.approx(-better.difference) and worse.p_randomisation < 0.01
    same = compared("chrf", good, good)
    assert (same.difference, same.interval, same.p_randomisation) == (0, (0.0, 0.0), 1.0)


def draw_systems(rng, n=400):
    """Draw what BLEU is computed from, of two systems either of which could be the other's."""
    lengths, difficulty = rng.integers(5, 30, size=n), rng.beta(4, 3, size=n)
    systems = []
    for _ in range(2):
        n_words = np.maximum(1, lengths + rng.integers(-2, 3, size=n))
        right = np.clip(difficulty + rng.normal(0, 0.12, size=n), 0.02, 0.98)
        totals = [np.maximum(0, n_words - n) for n in range(4)]
        shared = [rng.binomial(total, right ** (1 + 0.6 * n)) for n, total in enumerate(totals)]
        systems.append(np.stack([n_words, lengths, *shared, *totals], axis=1).astype(np.float64))
    return systems


def test_few_exchanges_are_counted_by_hand():
    ours, theirs = draw_systems(np.random.default_rng(1))
    assert randomisation_p(MEASURE, ours[:1], theirs[:1], n_exchanges=7) == 1.0
    # Every line of one is empty of what is right: 20 lines, of which no exchange leaves all.
    worst = ours[:20].copy()
    worst[:, 2:6] = 0
    assert randomisation_p(MEASURE, ours[:20], worst, n_exchanges=199) == 1 / 200


@pytest.mark.all
def test_randomisation_errs_as_often_as_it_says():
    # With 199 exchanges p is a multiple of 1/200, and at most 0.05 ten times.
    rng = np.random.default_rng(7)
    found = [randomisation_p(MEASURE, *draw_systems(rng), n_exchanges=199) for _ in range(1000)]
    interval = binomtest(sum(p <= 0.05 for p in found), 1000).proportion_ci(0.99)
    assert interval.low <= 0.05 <= interval.high
