"""``[data]``: texts, tasks and pairs; tokenizers and windows; the names in it."""

import math
import re
from collections.abc import Collection
from fractions import Fraction
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import model_validator

from sublayer.config.table import (
    LARGEST_FACTOR,
    LARGEST_TRAINED_VOCABULARY,
    LONGEST_WINDOW,
    MOST_SENTINELS,
    MOST_WINDOWS,
    List,
    Table,
    WindowTokens,
    checked_by,
    field,
)
from sublayer.errors import LONGEST_WORD, ConfigError, nearest_hint
from sublayer.tasks.own_table import METRICS, NAME, OwnTable, table_of
from sublayer.tasks.registry import TASKS
from sublayer.tasks.task import Task

Sources = str | List | dict[str, float]
"""One text, several, or several with their weights."""

INTRINSIC = "albert-intrinsic"


CORPORA = (
    "python",
    "enwik8",
    "text8",
    "lm1b",
    "wikipedia",
    "bookcorpus",
    "c4",
    INTRINSIC,
)
"""How each is read is in ``CORPORA`` of ``sublayer/data/corpora.py``, by its name."""
PUBLISHED_SPLITS = ("enwik8", "text8", "lm1b", "c4")
"""Corpora with a split fixed by their publishers or by papers."""
RECORD_CORPORA = ("wikipedia", "bookcorpus", "c4")
"""Corpora that are read as ``data.documents`` says."""
PARALLEL_CORPORA = ("iwslt14", "wmt14")
"""Corpora of translations, with published splits."""
VOCABULARY_CORPORA = ("wikipedia", "bookcorpus", "c4")
"""English corpora that ALBERT's, BERT's, Macaron BERT's and T5's vocabularies were trained on."""
HUB = "hub:"
"""Prefix of a data set of the Hugging Face hub, in place of a path."""


def source_names(sources: Sources | None) -> tuple[str, ...]:
    """Return the names in ``data.path`` or ``data.corpus``, in any of their forms."""
    if sources is None:
        return ()
    if isinstance(sources, str):
        return (sources,)
    return tuple(sources)


def check_weights(sources: Sources | None, field: str = "data.path or data.corpus") -> None:
    """Raise ConfigError for an empty list of sources or a wrong weight; ``field`` has them."""
    if sources is not None and not sources:
        raise ConfigError(f"{field}: the list of texts or tasks is empty: name at least one")
    if "" in source_names(sources):
        raise ConfigError(f"{field} has an empty name: leave it out")
    for name, weight in sources.items() if isinstance(sources, dict) else ():
        if not (math.isfinite(weight) and 0 < weight <= LARGEST_FACTOR):
            raise ConfigError(
                f"{field}: the weight {weight:g} of {name[:LONGEST_WORD]!r} must be more than 0 "
                f"and at most {LARGEST_FACTOR:,.0f}"
            )


def _check_known(key: str, name: str, names: Collection[str], more: str = "") -> None:
    if name not in names:
        raise ConfigError(
            f"{key} = {name[:LONGEST_WORD]!r} is not one of {', '.join(names)}{more}"
            f"{nearest_hint(name, names)}"
        )


def check_corpora(corpus: Sources | None) -> None:
    """Raise ConfigError for the first unknown name in ``data.corpus``."""
    for name in source_names(corpus):
        _check_known("data.corpus", name, (*CORPORA, *PARALLEL_CORPORA))


DEFAULT_SPLIT = "90/5/5"
_N_SHARES = 3
_SHARE = re.compile(r"[0-9]{1,3}(\.[0-9]{0,12})?|\.[0-9]{1,12}")
"""Plain decimals only: a Fraction writes out the power of ten of a share such as 1e999999999."""


def parse_split(split: str) -> tuple[Fraction, Fraction, Fraction]:
    """Read ``train/valid/test`` in percent as exact shares that sum to 1.

    The shares of validation and test may be 0: nothing is held out for them. Raises ConfigError
    where they do not sum to 1, where training has none, and where a share is no plain decimal.
    """
    parts = [part.strip() for part in split.split("/")]
    shares = [Fraction(part) / 100 for part in parts if _SHARE.fullmatch(part)]
    if len(shares) != _N_SHARES or len(parts) != _N_SHARES or sum(shares) != 1 or not shares[0]:
        raise ConfigError(
            f"data.split = {split[:80]!r} must be three shares that add up to 100, the first above "
            f"0, such as {DEFAULT_SPLIT}; 100/0/0 holds nothing out"
        )
    train, valid, test = shares
    return train, valid, test


Watched = List | dict[str, str]
"""Corpora by name, or the path of each name."""

WATCHED = {"squad-dev": "squad", "race-dev": "race", INTRINSIC: "intrinsic"}
"""Watchable corpora, each with the name of its scores; the last one joins the first two."""
_SPLITS = ("train", "valid", "test")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


def check_watched(watch: Watched) -> None:
    """Raise ConfigError for entries that are neither corpus nor path, or cannot name metrics."""
    for name in watch:
        if not isinstance(watch, dict):
            hint = "; a text of your own is {name = path}"
            _check_known("data.watch", name, WATCHED, hint)
        elif not _NAME.fullmatch(name) or name in _SPLITS or not watch[name]:
            raise ConfigError(
                f"data.watch: {name[:LONGEST_WORD]!r} = {watch[name][:LONGEST_WORD]!r} must be a "
                "path, with a name of at most 40 letters, digits, '.', '_' and '-' other than a "
                f"split's ({', '.join(_SPLITS)})"
            )
    if len(set(watch)) != len(watch):
        raise ConfigError("data.watch names a corpus twice: leave one out")


def watched_texts(watch: Watched) -> dict[str, str]:
    """Return watched corpora or paths, by the names that their scores have."""
    if isinstance(watch, dict):
        return dict(watch)
    return {WATCHED[name]: name for name in watch}


GPT1 = "gpt1-bpe"
TOKENIZERS = (
    "bytes",
    "characters",
    "bpe",
    "unigram",
    "wordpiece",
    "moses-bpe",
    "word-bpe",
    GPT1,
)
CODES_SUFFIXES, CODES_NAMES = (".codes", ".code", ".bpe"), ("codes", "code", "bpecodes")
"""Of a file of subword-nmt's or fastBPE's merges, which often has no suffix."""
TOKENIZER_SUFFIXES = (".json", ".model", ".txt")
"""Of a tokenizer's file: the tokenizers library's or ours, SentencePiece's, BERT's vocabulary."""
TRAINED_TOKENIZERS = tuple(name for name in TOKENIZERS if name != "bytes")
"""Tokenizers that learn their vocabulary from the training split."""

LETTERED_TOKENIZERS = ("unigram", "wordpiece", "moses-bpe")
"""Tokenizers trained with or without accents and capitals."""

Normalization = Literal["published", "transformers"]
"""The text rules of GPT-1's tokenizer."""
MARKED_TOKENIZERS = ("bpe", "unigram", "wordpiece")
"""Tokenizers trained with special tokens that a text may name."""
SpecialTokens = Literal["tokens", "text"]
"""Meaning of the marks of special tokens in a text."""
GPT1_SUFFIXES = (".json", ".bpe")
"""Of files of tokenizers that may be GPT-1's."""

SENTINEL_SUFFIXES = (".json", ".model")
"""Of files of tokenizers that may have sentinels."""
_N_SPECIAL = 3
"""Ids of T5's vocabulary beside its pieces and its sentinels: padding, end and unknown."""


def is_tokenizer_file(name: str) -> bool:
    """Return whether ``data.tokenizer`` is a file, by its name."""
    return name.endswith(TOKENIZER_SUFFIXES) or is_codes_file(name)


def is_codes_file(name: str) -> bool:
    """Return whether a file holds merges of subword-nmt or fastBPE, by its name."""
    return name.endswith(CODES_SUFFIXES) or PurePath(name).name in CODES_NAMES


def check_sentinels(vocab_size: int, sentinels: int) -> None:
    """Raise ConfigError where sentinels leave a vocabulary no room for a piece of text."""
    least = sentinels + _N_SPECIAL + 1
    if sentinels and vocab_size < least:
        raise ConfigError(
            f"data.vocab_size = {vocab_size} leaves no room beside data.sentinels = {sentinels} "
            f"and {_N_SPECIAL} special ids: give at least {least}, plus room for the text's "
            "characters"
        )


def check_tokenizer(tokenizer: str) -> None:
    """Raise ConfigError where ``data.tokenizer`` is neither a tokenizer's name nor its file."""
    if not is_tokenizer_file(tokenizer):
        files = ", nor a file (tokenizer.json, .model, vocab.txt, .codes)"
        _check_known("data.tokenizer", tokenizer, TOKENIZERS, files)


OwnColumns = dict[str, str | List]
"""Names of the columns, by their roles."""


def own_table(path: object, columns: OwnColumns | None) -> OwnTable:
    """Return the table that ``data.path`` and ``data.columns`` name.

    Raises ConfigError where they do not say which it is, or which column has the answers.
    """
    if not isinstance(path, str):
        raise ConfigError(
            f"data.tasks = {NAME} needs data.path: the file of the table, or a folder of them"
        )
    if columns is None:
        raise ConfigError(
            f"data.tasks = {NAME} needs data.columns, such as "
            '{ text = "review", label = "stars" }: which columns of the table are what'
        )
    return table_of(path, columns)


def check_tasks(tasks: Sources | None) -> None:
    """Raise ConfigError for an empty ``data.tasks``, an unknown name or a wrong weight."""
    check_weights(tasks, "data.tasks")
    names = source_names(tasks)
    if NAME in names and len(names) > 1:
        raise ConfigError(
            f"data.tasks = {NAME}, a table of your own, cannot be part of a mixture: give it alone"
        )
    for name in names:
        _check_known("data.tasks", name, (*TASKS, NAME))


def task_of(name: str, columns: OwnColumns | None) -> Task:
    """Return a task, of a table of one's own as far as a recipe describes it.

    Of a table of classes two labels are taken; of one of spans no metrics, which its rows decide.
    """
    if name != NAME:
        return TASKS[name]
    kind = "classes" if columns is None else table_of("", columns).kind
    labels = ("0", "1") if kind == "classes" else ()
    metrics = () if columns is None or kind == "span" else METRICS[kind]
    return Task(NAME, NAME, NAME, kind, ("text",), metrics, labels=labels)


of_pairs = partial(field, when=("pairs",))
of_tasks = partial(field, when=("tasks",))


class PairFields(Table):
    """Pairs of a text and its translation: files, languages, words, and which are left out."""

    source_path: str | None = of_pairs(None)
    """Text to translate, one piece a line (plain, .gz, .zst, .bz2, .xz); line i of target_path
    is the translation of line i. Instead, path names pairs: .tsv, .csv, JSON lines, .xlsx,
    .parquet, or a data set of the hub."""
    target_path: str | None = of_pairs(None)
    """The translations of source_path, line by line."""
    valid_source_path: str | None = of_pairs(None)
    """As source_path, of the validation split; it replaces split."""
    valid_target_path: str | None = of_pairs(None)
    """The translations of valid_source_path."""
    test_source_path: str | None = of_pairs(None)
    """As source_path, of the test split; it replaces split."""
    test_target_path: str | None = of_pairs(None)
    """The translations of test_source_path."""
    source_language: str | None = of_pairs(None)
    """Language that is translated from, by its code: de, en, ..."""
    target_language: str | None = of_pairs(None)
    """Language that is translated to, by its code."""
    source_field: str | None = of_pairs(None, derived="source_language")
    """The field of pairs that holds the text to translate."""
    target_field: str | None = of_pairs(None, derived="target_language")
    """The field of pairs that holds the translation."""
    moses: Literal["none", "tokenize", "normalize"] = of_pairs("none")
    """Moses' preprocessing before the vocabulary: none; tokenize, words split from punctuation; or
    normalize, the same after punctuation normalization and removal of unprintable characters.
    Translations are detokenized."""
    moses_hyphens: bool = of_pairs(False, needs={"moses": ("tokenize", "normalize")})
    """Splitting of words at hyphens."""
    moses_escapes: bool = of_pairs(False, needs={"moses": ("tokenize", "normalize")})
    """Escaping of & | < > ' " [ ] as entities, & as &amp;, before the vocabulary, the default of
    Moses' tokenizer. Translations are unescaped."""
    lowercase: bool | None = field(False, when=("letters",))
    """Lowercasing of pairs in both languages, or of other text by a trained unigram, wordpiece or
    moses-bpe vocabulary; default: as published, and none with sentinels (T5)."""
    max_words: int | None = of_pairs(
        None, unit="words", derived="no limit", ge=1, le=LONGEST_WINDOW
    )
    """Longest side of a training pair; longer pairs are left out."""
    max_words_ratio: float | None = of_pairs(None, derived="no limit", gt=1.0, le=LARGEST_FACTOR)
    """Largest ratio of the word counts of a training pair's sides; other pairs are left out."""
    batch_order: Literal["anew", "once"] = of_pairs("anew")
    """Order of batches of pairs: anew, rebuilt every epoch, sorted by the longer side; once, built
    before the first epoch, sorted by source length, then target length, and shuffled as batches
    every epoch (fairseq)."""

    @property
    def is_parallel(self) -> bool:
        """Return whether the text consists of translation pairs."""
        return self.source_language is not None

    def pair_fields(self) -> tuple[str, str]:
        """Return the record fields that hold a text and its translation.

        The fields have the names of the languages, unless others are named. The text is pairs.
        """
        assert self.source_language is not None, "the text is pairs"
        assert self.target_language is not None, "the text is pairs"
        source = self.source_field or self.source_language
        target = self.target_field or self.target_language
        return source, target


DEFAULT_HELD_OUT = 0.1


class TaskFields(Table):
    """The tasks of a model that answers, or the columns of a custom table."""

    tasks: Annotated[Sources | None, checked_by(check_tasks)] = of_tasks(None)
    """Tasks to fine-tune on, with their files in the folder of path: one, a list, or {name =
    weight}; a mixture without weights draws each in proportion to its size. `sublayer tasks` lists
    them. Or table, for a table of your own at path."""
    size_limit: int | None = of_tasks(None, unit="examples", ge=1, le=MOST_WINDOWS)
    """Cap on a task's training examples in a mixture weighted by size (T5's artificial data set
    size limit)."""
    train_examples: int | None = of_tasks(None, unit="examples", ge=2, le=MOST_WINDOWS)
    """Number of each task's training examples to train on, the same for all seeds; a larger number
    includes the examples of a smaller one, and held-out examples never count."""
    columns: Annotated[OwnColumns, checked_by(partial(table_of, ""))] | None = field(
        None, when=("tasks", "own-table")
    )
    """Roles of the columns of a table of your own: text; text_pair, a second text, or the question
    about it; label, the class, or number, a numeric label; choices, a list of columns, with the
    right one in label; answer, a span of the text, and answer_start, its start; target, a text to
    write; group, the document or author, to keep its rows together; id."""
    select: Literal["held-out", "dev", "dev-mismatched", "parts"] = of_tasks("held-out")
    """Examples that select the checkpoint: some held out of the training set, or the published
    development set, as in the papers, which is then scored too; for MNLI the matched one, or
    dev-mismatched. parts: in a table of three files (train, dev, test), dev selects and test is
    scored, as in finetune."""
    score_on: Literal["dev", "test"] | None = of_tasks(None, derived="dev")
    """Published examples scored at the end: the development set, or the test set where it has
    labels, as for RACE, SNLI, SciTail and Story Cloze."""
    held_out: float = of_tasks(
        DEFAULT_HELD_OUT,
        unit="share of examples",
        needs={"select": ("held-out", "parts")},
        gt=0.0,
        le=0.5,
    )
    """Held-out share of the training set; at most 2,000 examples."""

    @property
    def task_names(self) -> tuple[str, ...]:
        """Return the names of the tasks."""
        return source_names(self.tasks)


DocumentRule = Literal["file", "blank-line", "json", "csv"]
SentenceRule = Literal["none", "lines", "prose", "spacy"]


class TextFields(Table):
    """A text by paths or name, its reading and its split."""

    path: Annotated[Sources | None, checked_by(check_weights)] = None
    """Local text: a file (plain, .gz, .zst, .bz2, .xz, .parquet), a folder or a glob; a list; or
    {path = weight}. The files of a folder or a glob are documents; each entry of a list is split
    separately. hub:owner/name, with :config and @split, is a data set of the Hugging Face hub."""
    corpus: Annotated[Sources | None, checked_by(check_weights), checked_by(check_corpora)] = field(
        None, when=("all-text",)
    )
    """Named text: python (the prose of the running Python installation), enwik8, text8, lm1b,
    wikipedia, bookcorpus, c4; a list; or {name = weight}. Given together with path they are mixed.
    albert-intrinsic is the passages of the SQuAD and RACE files of path. Translations: iwslt14,
    wmt14."""
    documents: DocumentRule | None = field(
        None,
        derived=("each file; each row of .parquet files and of the hub; a corpus has its own"),
        when=("text", "documents"),
    )
    """Unit of a document: each file; each block between blank lines; each JSON line, list member or
    Parquet row; or each row of CSV or TSV."""
    text_field: str = field("text", when=("text", "text-field"))
    """The field of JSON, or the column of CSV, Parquet or the hub, that holds the text."""
    sentences: SentenceRule = field("none", when=("text",))
    """Sentence splitting: none; lines, one sentence per line; prose, by rules for hard-wrapped
    paragraphs; spacy, by spaCy's sentencizer. All but none drop Project Gutenberg's header and
    licence."""
    valid_path: str | None = field(None, when=("all-text",))
    """File, folder or glob of the validation split; it replaces split."""
    test_path: str | None = field(None, when=("all-text",))
    """File, folder or glob of the test split; it replaces split. Or a corpus of watch, such as
    albert-intrinsic; valid_path takes one too."""
    split: Annotated[str, checked_by(parse_split)] | None = field(
        None,
        unit="percent",
        derived="90/5/5; corpora with a published split keep it",
        when=("all-text", "held-out", "unpublished"),
    )
    """Shares of train/valid/test: contiguous bytes of one file, whole documents of several. 100/0/0
    holds nothing out, to train on all text: train.best_by is last then."""
    watch: Annotated[Watched, checked_by(check_watched)] = field((), when=("text",))
    """Texts scored at each evaluation without selecting the checkpoint: squad-dev and race-dev, the
    passages of their development sets, fetched from their publishers; albert-intrinsic, both of
    these; or {name = path}, a file, a folder or a glob, read as path is, or as passages if it is a
    file of SQuAD or RACE. A text's scores are name/mlm_accuracy and so on."""


class DataConfig(PairFields, TaskFields, TextFields):
    """The text, its split, its tokenizer and its training windows."""

    batch_multiple: int = field(1, unit="pairs", ge=1, le=MOST_WINDOWS, when=("filled-steps",))
    """Divisor of the number of pairs in each batch that has at least as many (fairseq: 8)."""
    batch_parts: int = field(1, unit="batches", ge=1, le=MOST_WINDOWS, when=("filled-steps",))
    """Batches per step, each of its own length, that share train.batch_tokens (fairseq's GPUs times
    update-freq)."""
    tokenizer: Annotated[str, checked_by(check_tokenizer)] = field(
        "bytes", when=("fresh-tokenizer",)
    )
    """Tokenizer: bytes; characters, bpe (GPT-2), unigram (ALBERT), wordpiece (BERT), moses-bpe
    (Macaron BERT), word-bpe (space-separated words, for translation) or gpt1-bpe (GPT-1), trained
    on the training split; or a file: tokenizer.json, a SentencePiece .model, a vocab.txt, .codes of
    subword-nmt or fastBPE, or GPT-1's encoder_bpe_40000.json next to its merges."""
    vocab_size: int | None = field(
        None,
        unit="tokens",
        derived=(
            "8192 for bpe, 10000 for word-bpe, 30000 for unigram and wordpiece, 32640 merges for "
            "moses-bpe, 40000 for gpt1-bpe, all for characters"
        ),
        ge=2,
        le=LARGEST_TRAINED_VOCABULARY,
        when=("fresh-tokenizer", "trained-vocabulary"),
    )
    """Size of the trained vocabulary; for characters, the number of most frequent ones kept."""
    merges: int | None = field(
        None,
        unit="merges",
        derived="what vocab_size leaves room for; 32640 for moses-bpe, 40000 for gpt1-bpe",
        needs={"tokenizer": ("word-bpe", "moses-bpe", GPT1)},
        ge=0,
        le=LARGEST_TRAINED_VOCABULARY,
        when=("fresh-tokenizer",),
    )
    """Number of trained merges; the vocabulary adds the text's characters and the special ids.
    Excludes vocab_size."""
    normalization: Normalization | None = field(
        None, derived="published; a tokenizer.json's own", when=("fresh-tokenizer", "gpt1-rules")
    )
    """The text rules of GPT-1's tokenizer. published: ftfy, then its own rules, then spaCy's words
    (pip install 'sublayer[spacy]'); transformers: BERT's words instead, as in its GPT-1 class:
    faster, with other ids."""
    keep_accents: bool | None = field(
        None,
        derived="true; published rules of wikipedia, bookcorpus and c4, where no path and no task "
        "is named",
        needs={"tokenizer": LETTERED_TOKENIZERS},
        when=("fresh-tokenizer",),
    )
    """Accents in a trained vocabulary: true keeps the characters of a text as written; false, as
    published with ALBERT and BERT, strips marks and turns é into e, ば into は and １ into 1, in
    unigram by SentencePiece's NFKC; moses-bpe, as in Macaron BERT, also makes punctuation plain."""
    special_tokens: SpecialTokens | None = field(
        None,
        derived="as the files of data.tokenizer say, else tokens; text where it is trained",
        when=("marks",),
    )
    """Marks of special tokens in a text, such as <|endoftext|>: tokens, each read as its token, as
    in transformers; text, read as ordinary letters."""
    sentinels: int = field(
        0, unit="tokens", ge=0, le=MOST_SENTINELS, when=("fresh-tokenizer", "sentinels")
    )
    """Ids for the gaps of a text, <extra_id_0> and so on, after all others and counted down from
    the last id; T5 has 100. unigram is then trained with T5's other special ids, a SentencePiece
    .model gets sentinels added, and a file with its own keeps them."""
    context: WindowTokens[int] = 256
    """Length of a training window."""
    windows: Literal["random", "shuffled"] = field("random", when=("windows",))
    """Training windows: random, at uniform offsets; shuffled, consecutive windows, each once per
    epoch, in random order."""
    boundaries: Literal["ignore", "respect"] = field("ignore", when=("windows",))
    """Attention and positions across the documents of a window, or within each document."""

    @model_validator(mode="before")
    @classmethod
    def _vocabularies_lower_as_published(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "lowercase" in values:
            return values
        is_lettered = values.get("tokenizer") in LETTERED_TOKENIZERS
        is_pairs = values.get("source_language") is not None
        return {**values, "lowercase": None} if is_lettered and not is_pairs else values

    def letter_rules(self) -> dict[str, bool | None]:
        """Return ``keep_accents`` and ``lowercase`` of a vocabulary trained on this text.

        Both are None where the vocabulary is trained as published, on the corpora of the papers.
        """
        corpora = source_names(self.corpus)
        is_of_papers = bool(corpora) and all(name in VOCABULARY_CORPORA for name in corpora)
        has_others = self.path is not None or self.tasks is not None or self.is_parallel
        keeps, lowers = self.keep_accents, self.lowercase
        if self.is_parallel:
            lowers = False  # words of pairs are lowered before
        if is_of_papers and not has_others and keeps is None and lowers is None:
            return {"keep_accents": None, "lowercase": None}
        is_published_alike = is_of_papers and not has_others and not self.sentinels
        return {
            "keep_accents": not is_published_alike if keeps is None else keeps,
            "lowercase": not self.sentinels if lowers is None else lowers,
        }

    def holds_out(self, split: Literal["valid", "test"]) -> bool:
        """Return whether a text may have a validation or a test split.

        Pairs always have; where ``data.split`` gives it nothing, only a path or a publisher does.
        """
        if self.is_parallel or self.split is None:
            return True
        own_path = self.valid_path if split == "valid" else self.test_path
        if own_path is not None:
            return True
        _, valid, test = parse_split(self.split)
        share = valid if split == "valid" else test
        return share > 0 or any(name in PUBLISHED_SPLITS for name in source_names(self.corpus))


NO_TEST = (
    "holds out no test split for the comparison to score: give data.split = 98/1/1, or "
    "data.test_path"
)
