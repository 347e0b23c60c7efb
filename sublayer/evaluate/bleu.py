"""Scores of translations against references, each with the signature that tells what was computed. All by sacreBLEU."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sublayer.data.bilingual import BilingualTokenizer
from sublayer.data.pair_texts import PairText
from sublayer.data.sides import Side
from sublayer.data.vocabulary import Ids
from sublayer.errors import ConfigError, DataError

_HYPHEN = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True)
class Score:
    """A score from 0 to 100, and its signature."""

    value: float
    signature: str


@dataclass(frozen=True)
class Lines:
    """Lines as they are scored: as text as it is written, and as words that spaces divide, after what rule."""

    texts: Sequence[str]
    words: Sequence[str]
    rule: Literal["moses", "spaces"]


def translated_lines(translations: Sequence[Ids], tokenizer: BilingualTokenizer) -> Lines:
    """Give translations, ids without their end, as they are scored."""
    texts = [tokenizer.write(ids) for ids in translations]
    return Lines(texts, scored_words(translations, tokenizer), _word_rule(tokenizer))


def reference_lines(pairs: Sequence[PairText], tokenizer: BilingualTokenizer) -> Lines:
    """Give the translations of a text as they are scored against."""
    return Lines([pair.target for pair in pairs], reference_words(pairs, tokenizer), _word_rule(tokenizer))


def score_translations(translations: Lines, references: Lines, *, lowercase: bool) -> dict[str, Score]:
    """Score translations by all that is reported.

    bleu: of words after the rules of the target's language, or between spaces where it has none, as its signature says
    beside sacreBLEU's own. sacrebleu and chrf: of text as it is written. ``lowercase``: both sides in lower case.
    """
    of_words = tokenized_bleu(translations.words, references.words, lowercase=lowercase)
    return {
        "bleu": replace(of_words, signature=f"{of_words.signature}|words:{references.rule}"),
        "sacrebleu": sacre_bleu(translations.texts, references.texts, lowercase=lowercase),
        "chrf": chrf(translations.texts, references.texts, lowercase=lowercase),
    }


def scored_words(translations: Sequence[Ids], tokenizer: BilingualTokenizer) -> list[str]:
    """Give the words of translations that papers score, divided by spaces.

    They are the vocabulary's, but where that divides words at hyphens (WMT14): there text as it is written is divided
    again without. Source: zhuohan123/macaron-net, ``test-wmt14-en2de-base.sh``.
    """
    again = _divided_again(tokenizer.target)
    if again is None:
        return [" ".join(tokenizer.words(ids)) for ids in translations]
    return [" ".join(again.words(tokenizer.write(ids))) for ids in translations]


def reference_words(pairs: Sequence[PairText], tokenizer: BilingualTokenizer) -> list[str]:
    """Give the words of references that translations' words are scored against."""
    again = _divided_again(tokenizer.target)
    return [pair.target_words if again is None else " ".join(again.words(pair.target)) for pair in pairs]


def _word_rule(tokenizer: BilingualTokenizer) -> Literal["moses", "spaces"]:
    return "spaces" if tokenizer.target.moses == "none" else "moses"


def _divided_again(side: Side) -> Side | None:
    return replace(side, moses="tokenize", divides_hyphens=False) if side.divides_hyphens else None


def metric(name: str, *, lowercase: bool) -> Any:
    """Give sacreBLEU's object for a measure of ``score_translations``, without what it caches of references.

    Raises ConfigError where sacrebleu is not installed.
    """
    library = _library()
    if name == "chrf":
        return library.CHRF(lowercase=lowercase)
    if name == "bleu":
        return library.BLEU(tokenize="none", force=True, smooth_method="none", lowercase=lowercase)
    assert name == "sacrebleu", "these are the measures"
    return library.BLEU(tokenize="13a", lowercase=lowercase)


def tokenized_bleu(words: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Score:
    """Score words that spaces divide as multi-bleu.perl does: 4-grams of the corpus, not smoothed.

    What papers of machine translation call tokenised BLEU; comparable only between equal tokens.
    """
    return _score(metric("bleu", lowercase=lowercase), words, references)


def sacre_bleu(texts: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Score:
    """Score texts as they are written, with sacreBLEU's own tokens, 13a."""
    return _score(metric("sacrebleu", lowercase=lowercase), texts, references)


def chrf(texts: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Score:
    """Score texts as they are written by the F2 of their character 6-grams. Source: Popovic 2015."""
    return _score(metric("chrf", lowercase=lowercase), texts, references)


def compound_split_bleu(words: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Score:
    """Score words after each hyphen within a word was made one of its own, on both sides; not smoothed.

    Vaswani et al. 2017 and after them fairseq report this for WMT14 English to German. It inflates: fairseq's own
    system has 29.29 so, and 28.6 by sacreBLEU.
    """
    split = [[_HYPHEN.sub(r"\1 ##AT##-##AT## \2", line) for line in lines] for lines in (words, references)]
    found = tokenized_bleu(*split, lowercase=lowercase)
    return Score(found.value, f"{found.signature}|compounds:split")


def check_lines(texts: Sequence[str], references: Sequence[str]) -> None:
    """Raise DataError, with both counts, unless there is a reference for each of some translations."""
    if len(texts) != len(references):
        raise DataError(f"{len(texts):,} translations cannot be scored against {len(references):,} references")
    if not texts:
        raise DataError("there is nothing to score: give at least one translation with its reference")


def _score(measure: Any, texts: Sequence[str], references: Sequence[str]) -> Score:
    check_lines(texts, references)
    value = float(measure.corpus_score(list(texts), [list(references)]).score)
    return Score(value, str(measure.get_signature()))


def _library() -> Any:
    try:
        from sacrebleu import metrics
    except ModuleNotFoundError as error:
        raise ConfigError("scoring translations needs sacrebleu: pip install 'sublayer[translation]'") from error
    return metrics
