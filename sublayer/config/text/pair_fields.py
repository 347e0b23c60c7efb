"""The fields of ``[data]`` that say which texts are translations, and how they are read."""

from typing import Literal

from sublayer.config.limits import LARGEST_FACTOR, LONGEST_WINDOW
from sublayer.config.table import Table, field


class PairFields(Table):
    """Pairs of a text and its translation: files, languages, words, and which are left out."""

    source_path: str | None = field(
        None,
        "Text to translate, one piece a line (plain, .gz, .zst, .bz2, .xz); line i of target_path "
        "is the translation of line i. Instead, path names pairs: .tsv, .csv, JSON lines, .xlsx, "
        ".parquet, or a data set of the hub.",
    )
    target_path: str | None = field(None, "The translations of source_path, line by line.")
    valid_source_path: str | None = field(
        None, "As source_path, of the validation split; it replaces split."
    )
    valid_target_path: str | None = field(None, "The translations of valid_source_path.")
    test_source_path: str | None = field(
        None, "As source_path, of the test split; it replaces split."
    )
    test_target_path: str | None = field(None, "The translations of test_source_path.")
    source_language: str | None = field(
        None, "Language that is translated from, by its code: de, en, ..."
    )
    target_language: str | None = field(None, "Language that is translated to, by its code.")
    source_field: str | None = field(
        None, "The field of pairs that holds the text to translate.", derived="source_language"
    )
    target_field: str | None = field(
        None, "The field of pairs that holds the translation.", derived="target_language"
    )
    moses: Literal["none", "tokenize", "normalize"] = field(
        "none",
        "Moses' rules before the vocabulary sees a text: none; words divided from punctuation; "
        "after punctuation was made plain and what cannot be printed dropped. Translations are put "
        "together again.",
    )
    moses_hyphens: bool = field(
        False,
        "Whether words with hyphens are divided too.",
        needs={"moses": ("tokenize", "normalize")},
    )
    moses_escapes: bool = field(
        False,
        "Whether & | < > ' \" [ ] are written as entities, & as &amp;, before the vocabulary sees "
        "them, as Moses' tokenizer does unless told otherwise. Translations are text again.",
        needs={"moses": ("tokenize", "normalize")},
    )
    lowercase: bool | None = field(
        False,
        "Whether capitals are lowered: of pairs in both languages, of any other text by the "
        "vocabulary of unigram, wordpiece or moses-bpe that is trained, which does so as published "
        "unless told, but for one with sentinels (T5's).",
    )
    max_words: int | None = field(
        None,
        "Pairs with a longer side are left out of training.",
        unit="words",
        derived="no limit",
        ge=1,
        le=LONGEST_WINDOW,
    )
    max_words_ratio: float | None = field(
        None,
        "Pairs of which one side has more than so many times the other's words are left out of "
        "training.",
        derived="no limit",
        gt=1.0,
        le=LARGEST_FACTOR,
    )
    batch_order: Literal["anew", "once"] = field(
        "anew",
        "anew: batches of pairs are made in every epoch, sorted by the longer side; once: made "
        "before the first, sorted by the source's length and then the target's, and their order "
        "shuffled in every epoch (fairseq).",
    )

    @property
    def is_parallel(self) -> bool:
        """Return whether the text is pairs of a text and its translation."""
        return self.source_language is not None


def pair_fields(data: PairFields) -> tuple[str, str]:
    """Return the fields of records that hold a text and its translation.

    They are named as the languages are, unless ``data`` says otherwise. The text is pairs.
    """
    assert data.source_language is not None, "the text is pairs"
    assert data.target_language is not None, "the text is pairs"
    source = data.source_field or data.source_language
    target = data.target_field or data.target_language
    return source, target
