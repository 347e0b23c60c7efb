"""The fields of ``[data]`` that say where a text is, what its documents are, and its splits."""

from typing import Literal, Self

from pydantic import field_validator, model_validator

from sublayer.config.table import Table, field
from sublayer.config.text.corpora import (
    INTRINSIC,
    Sources,
    check_corpora,
    check_weights,
    source_names,
)
from sublayer.config.text.split import parse_split
from sublayer.config.text.watched import Watched, check_watched
from sublayer.errors import ConfigError

DocumentRule = Literal["file", "blank-line", "json", "csv"]
SentenceRule = Literal["none", "lines", "prose", "spacy"]


class TextFields(Table):
    """A text by its paths or its name, how it is read and divided."""

    path: Sources | None = field(
        None,
        (
            "Local text: a file (plain, .gz, .zst, .bz2, .xz, .parquet), a folder or a glob; a "
            "list; or {path = weight}. The files of a folder or a glob are documents; each entry "
            "of a list is split on its own. hub:owner/name, with :config and @split, is a data "
            "set of the Hugging Face hub."
        ),
    )
    corpus: Sources | None = field(
        None,
        (
            "Named text: python (the prose of the running Python installation), enwik8, text8, "
            "lm1b, wikipedia, bookcorpus, c4; a list; or {name = weight}. Given together with path "
            "they are mixed. albert-intrinsic is the passages of the files of SQuAD and RACE that "
            "path names. Of translations: iwslt14, wmt14."
        ),
    )
    documents: DocumentRule | None = field(
        None,
        (
            "What a document is: each file; what stands between blank lines; each line of JSON or "
            "member of a list, and each row of a Parquet file; or each row of CSV or TSV."
        ),
        derived=(
            "each file; each row of what is Parquet by its suffix, or on the hub; "
            "a corpus has its own"
        ),
    )
    text_field: str = field(
        "text",
        "The field of JSON, or the column of CSV, Parquet or the hub, that holds the text.",
    )
    sentences: SentenceRule = field(
        "none",
        (
            "none: the text as it is. Else it is cut into sentences, and Project Gutenberg's "
            "header and licence are dropped: lines: one a line; prose: hard-wrapped paragraphs, by "
            "rules; spacy: by spaCy's sentencizer."
        ),
    )
    valid_path: str | None = field(
        None, "File, folder or glob of the validation split; it replaces split."
    )
    test_path: str | None = field(
        None,
        "File, folder or glob of the test split; it replaces split. Or a corpus of watch, such as "
        "albert-intrinsic; valid_path takes one too.",
    )
    split: str | None = field(
        None,
        "Shares of train/valid/test: contiguous bytes of one file, whole documents of several. "
        "100/0/0 holds nothing out, as those do who train on all text: train.best_by is last then.",
        unit="percent",
        derived="90/5/5; corpora with a published split keep it",
    )
    watch: Watched = field(
        (),
        "Texts that are scored at each evaluation and choose nothing: squad-dev and race-dev, the "
        "passages of their development sets, fetched from their publishers, or albert-intrinsic, "
        "those of both; or {name = path}, a file, a folder or a glob, read as path is, or as "
        "passages where it is of SQuAD or RACE. A text's scores are name/mlm_accuracy and so on.",
    )

    @field_validator("split")
    @classmethod
    def _split_has_shares(cls, split: str | None) -> str | None:
        if split is not None:
            parse_split(split)
        return split

    @field_validator("path", "corpus")
    @classmethod
    def _sources_have_weights(cls, sources: Sources | None) -> Sources | None:
        check_weights(sources)
        return sources

    @field_validator("corpus")
    @classmethod
    def _corpora_are_known(cls, corpus: Sources | None) -> Sources | None:
        check_corpora(corpus)
        return corpus

    @field_validator("watch")
    @classmethod
    def _watched_are_known(cls, watch: Watched) -> Watched:
        check_watched(watch)
        return watch

    @model_validator(mode="after")
    def _passages_are_of_a_path(self) -> Self:
        if INTRINSIC in source_names(self.corpus):
            _check_intrinsic(self)
        return self


def _check_intrinsic(data: TextFields) -> None:
    if data.path is None:
        raise ConfigError(
            f"data.corpus = {INTRINSIC} needs data.path: the files of SQuAD and RACE that it reads"
        )
    is_mixed = source_names(data.corpus) != (INTRINSIC,)
    is_weighted = isinstance(data.corpus, dict) or isinstance(data.path, dict)
    if is_mixed or is_weighted:
        raise ConfigError(
            f"data.corpus = {INTRINSIC} reads data.path, so it is not mixed with others, nor "
            "weighted"
        )
