"""``[data]``: texts, tasks and pairs, whose fields stand in ``text``; tokenizers and windows."""

from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from sublayer.config.limits import (
    LARGEST_TRAINED_VOCABULARY,
    LONGEST_WINDOW,
    MOST_SENTINELS,
    MOST_WINDOWS,
)
from sublayer.config.table import field
from sublayer.config.text.corpora import VOCABULARY_CORPORA, source_names
from sublayer.config.text.pair_fields import PairFields
from sublayer.config.text.task_fields import TaskFields
from sublayer.config.text.text_fields import TextFields
from sublayer.config.text.tokenizers import (
    GPT1,
    LETTERED_TOKENIZERS,
    Normalization,
    SpecialTokens,
    check_sentinels,
    check_tokenizer,
)
from sublayer.errors import ConfigError


class DataConfig(PairFields, TaskFields, TextFields):
    """The text, its split, its tokenizer and how it is cut into training windows."""

    batch_multiple: int = field(
        1,
        "Batches have a multiple of so many pairs, where they have as many (fairseq: 8).",
        unit="pairs",
        ge=1,
        le=MOST_WINDOWS,
    )
    batch_parts: int = field(
        1,
        "Batches, of a length each, that share train.batch_tokens and make a step: GPUs times "
        "update-freq of fairseq.",
        unit="batches",
        ge=1,
        le=MOST_WINDOWS,
    )
    tokenizer: str = field(
        "bytes",
        (
            "bytes; characters, bpe (GPT-2's), unigram (ALBERT's), wordpiece (BERT's), moses-bpe "
            "(Macaron BERT's), word-bpe (of words that spaces divide: translation's) or gpt1-bpe "
            "(GPT-1's), trained on the training split; or a file: tokenizer.json, a SentencePiece "
            ".model, a vocab.txt, subword-nmt's or fastBPE's .codes, GPT-1's "
            "encoder_bpe_40000.json beside its merges."
        ),
    )
    vocab_size: int | None = field(
        None,
        "Size of the vocabulary that is trained; for characters, how many of the most frequent are "
        "kept.",
        unit="tokens",
        derived=(
            "8192 for bpe, 10000 for word-bpe, 30000 for unigram and wordpiece, 32640 merges for "
            "moses-bpe, 40000 for gpt1-bpe, all for characters"
        ),
        ge=2,
        le=LARGEST_TRAINED_VOCABULARY,
    )
    merges: int | None = field(
        None,
        "Merges that are trained; the text's characters and the special ids are ids beside what "
        "they make. Excludes vocab_size.",
        unit="merges",
        derived="what vocab_size leaves room for; 32640 for moses-bpe, 40000 for gpt1-bpe",
        needs={"tokenizer": ("word-bpe", "moses-bpe", GPT1)},
        ge=0,
        le=LARGEST_TRAINED_VOCABULARY,
    )
    normalization: Normalization | None = field(
        None,
        "The text rules of GPT-1's tokenizer. published: ftfy, then its own rules, then spaCy's "
        "words (pip install 'sublayer[spacy]'); transformers: BERT's words instead, as its class "
        "of GPT-1 has them: faster, and other ids.",
        derived="published; a tokenizer.json's own",
    )
    keep_accents: bool | None = field(
        None,
        "Whether the vocabulary that is trained keeps the characters of a text as they are "
        "written; false, as ALBERT and BERT were published, makes é e, ば は and １ 1: marks are "
        "stripped, and unigram reads by SentencePiece's NFKC; moses-bpe, as Macaron BERT's, "
        "makes punctuation plain.",
        derived="true; published rules of wikipedia, bookcorpus and c4, where no path and no task "
        "is named",
        needs={"tokenizer": LETTERED_TOKENIZERS},
    )
    special_tokens: SpecialTokens | None = field(
        None,
        "The marks of special tokens in a text, such as <|endoftext|>. tokens: each is its token, "
        "as in transformers; text: letters, as all else.",
        derived="as the files of data.tokenizer say, else tokens; text where it is trained",
    )
    sentinels: int = field(
        0,
        "Ids that stand for the gaps of a text, <extra_id_0> to the last, behind all others and "
        "counted down from the last id; T5 has 100. unigram is trained with T5's other ids then, "
        "and a SentencePiece .model has them added; a file that has its own keeps them.",
        unit="tokens",
        ge=0,
        le=MOST_SENTINELS,
    )
    context: int = field(
        256, "Length of a training window.", unit="tokens", ge=2, le=LONGEST_WINDOW
    )
    windows: Literal["random", "shuffled"] = field(
        "random",
        "random: windows at uniform offsets; shuffled: consecutive windows, each once per epoch, "
        "in random order.",
    )
    boundaries: Literal["ignore", "respect"] = field(
        "ignore",
        "Whether attention and positions cross from one document into the next within a window.",
    )

    @model_validator(mode="before")
    @classmethod
    def _vocabularies_lower_as_published(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "lowercase" in values:
            return values
        is_lettered = values.get("tokenizer") in LETTERED_TOKENIZERS
        is_pairs = values.get("source_language") is not None
        return {**values, "lowercase": None} if is_lettered and not is_pairs else values

    def letter_rules(self) -> dict[str, bool | None]:
        """Return ``keep_accents`` and ``lowercase`` of a vocabulary that is trained on this text.

        Both are None where the vocabulary is trained as published, on the corpora of the papers.
        """
        corpora = source_names(self.corpus)
        is_of_papers = bool(corpora) and all(name in VOCABULARY_CORPORA for name in corpora)
        has_others = self.path is not None or self.tasks is not None or self.is_parallel
        keeps, lowers = self.keep_accents, self.lowercase
        if self.is_parallel:
            lowers = False  # what is lowered is lowered before
        if is_of_papers and not has_others and keeps is None and lowers is None:
            return {"keep_accents": None, "lowercase": None}
        is_published_alike = is_of_papers and not has_others and not self.sentinels
        return {
            "keep_accents": not is_published_alike if keeps is None else keeps,
            "lowercase": not self.sentinels if lowers is None else lowers,
        }

    @field_validator("tokenizer")
    @classmethod
    def _tokenizer_is_known(cls, tokenizer: str) -> str:
        check_tokenizer(tokenizer)
        return tokenizer

    @model_validator(mode="after")
    def _sentinels_leave_room(self) -> Self:
        if self.tokenizer == "unigram" and self.vocab_size is not None:
            check_sentinels(self.vocab_size, self.sentinels)
        return self

    @model_validator(mode="after")
    def _mixtures_are_consistent(self) -> Self:
        given = [sources for sources in (self.path, self.corpus) if sources is not None]
        is_weighted = [isinstance(sources, dict) for sources in given]
        if any(is_weighted) and not all(is_weighted):
            raise ConfigError(
                "data.path and data.corpus are mixed: give weights to both, {name = weight}, or to "
                "none"
            )
        if any(is_weighted) and self.windows == "shuffled":
            raise ConfigError(
                "data.windows = shuffled contradicts the weights of data.path or data.corpus; use "
                "random"
            )
        return self
