"""The table of masked language modelling, with or without the judgement of pairs of texts."""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from sublayer.config.data import DataConfig
from sublayer.config.limits import LARGEST_FACTOR, LARGEST_VOCABULARY, LONGEST_WINDOW
from sublayer.config.model import ModelConfig
from sublayer.config.objectives.base import ModelKind, ObjectiveTable, OtherTables, TextUse
from sublayer.config.objectives.losses import Loss
from sublayer.config.table import field
from sublayer.config.text.tokenizers import GPT1
from sublayer.config.train import TrainConfig
from sublayer.errors import ConfigError

_WITHOUT_MASK = ("bytes", "characters", "bpe", GPT1)
_SENTENCE_TASKS = {"nsp": "next sentence", "sop": "sentence order"}
_FEWEST_PAIR_TOKENS = 5
"""A pair's three special tokens, and a token of each text."""


class MaskedObjective(ObjectiveTable):
    """
    Predict masked tokens from both sides, and tell pairs of texts that belong together from others.
    """  # fmt: skip

    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("encoder",)
    text: ClassVar[TextUse] = "sentences"
    evaluated: ClassVar[tuple[str, ...]] = ("loss", "mlm_accuracy", "nsp_accuracy", "sop_accuracy")

    kind: Literal["masked"] = field(
        "masked",
        "Predict tokens that were hidden, and whether a pair of texts belongs together.",
    )
    masking: Literal["token", "word", "ngram"] = field(
        "token", "What is hidden at a time: tokens, whole words, or runs of words (n-grams)."
    )
    mask_share: float = field(
        0.15, "Share of a text's tokens that are predicted.", unit="share of tokens", gt=0.0, lt=1.0
    )
    mask_base: Literal["all", "maskable"] = field(
        "all",
        "What mask_share is a share of: all tokens of an example, or those that may be hidden.",
    )
    max_predictions: int | None = field(
        None,
        "Largest number of predictions in an example; ALBERT's released data has 20.",
        unit="tokens",
        ge=1,
        le=LONGEST_WINDOW,
    )
    max_ngram: int = field(
        3, "Words of the longest n-gram.", unit="words", needs={"masking": ("ngram",)}, ge=1, le=100
    )
    ngram_favours: Literal["short", "long"] = field(
        "short",
        "Probability of a length n: in proportion to 1/n, or the reverse.",
        needs={"masking": ("ngram",)},
    )
    p_mask: float = field(
        0.8,
        "Predicted tokens that are replaced by the mask token.",
        unit="probability",
        ge=0.0,
        le=1.0,
    )
    p_random: float = field(
        0.1,
        "Predicted tokens that are replaced by a random one; the rest stays as it is.",
        unit="probability",
        ge=0.0,
        le=1.0,
    )
    random_ids: Literal["ordinary", "all"] = field(
        "ordinary",
        "What a random token is drawn from: ids of text, or special ones too "
        "(ALBERT, as released).",
    )
    spared_ids: int = field(
        0,
        "Ids after the last special one that are never hidden; Macaron BERT, as released, has 1.",
        unit="ids",
        ge=0,
        le=LARGEST_VOCABULARY,
    )
    predict_first: bool = field(
        False,
        "Whether the first token, which begins every example, is predicted too (Macaron BERT, as "
        "released).",
    )
    static_copies: int | None = field(
        None,
        "Passes over the text after which pairs and masks repeat; unset, every pass has new ones "
        "(ALBERT's data: 40).",
        unit="passes",
        ge=1,
        le=1_000_000,
    )
    z_loss: float = field(
        0.0,
        "Weight, in training alone, of (log Z)^2 of each prediction of a token: Z is the "
        "denominator of its softmax (T5: 1e-4).",
        ge=0.0,
        le=LARGEST_FACTOR,
    )
    sentence: Literal["none", "nsp", "sop"] = field(
        "none",
        "What the sentence head learns: nothing, whether B is the text after A (next sentence), or "
        "whether A and B are in their order (sentence order).",
    )
    sentence_weight: float = field(
        1.0,
        "Weight of the sentence loss beside that of masked tokens.",
        needs={"sentence": ("nsp", "sop")},
        gt=0.0,
        le=LARGEST_FACTOR,
    )
    sentence_trains: Literal["model", "head"] = field(
        "model",
        "What the sentence loss trains: all of the model, or its head alone, a probe of what the "
        "model learns without that loss.",
        needs={"sentence": ("nsp", "sop")},
    )
    pairs: Literal["chunks", "sentences"] = field(
        "chunks",
        "What A and B are: two parts of a chunk of sentences that fills the context, or single "
        "sentences (Macaron BERT, as released).",
    )
    p_short: float = field(
        0.1,
        "Examples whose length is drawn uniformly instead of filling the context.",
        unit="probability",
        needs={"pairs": ("chunks",)},
        ge=0.0,
        le=1.0,
    )
    short_per: Literal["example", "document"] = field(
        "example",
        "Whether that length is drawn for each example, or once for a pass over a document "
        "(ALBERT, as released).",
        needs={"pairs": ("chunks",)},
    )
    single_sentence: Literal["keep", "negative", "drop"] = field(
        "keep",
        "A chunk of one sentence: kept without B and without a sentence label; given a B from "
        "another document as a negative (ALBERT, as released); or left out.",
        needs={"pairs": ("chunks",)},
    )

    @model_validator(mode="after")
    def _replacements_are_shares(self) -> Self:
        if self.p_mask + self.p_random > 1.0:
            raise ConfigError(
                f"objective.p_mask = {self.p_mask:g} and objective.p_random = {self.p_random:g} "
                "exceed 1 together"
            )
        return self

    def check(self, recipe: OtherTables) -> None:
        """Raise ConfigError, naming both fields, where the objective contradicts the recipe."""
        super().check(recipe)
        self._check_batches(recipe.data, recipe.train)
        self._check_sentences(recipe)
        self._check_labels(recipe.model)
        self._check_vocabulary(recipe)

    def _check_vocabulary(self, recipe: OtherTables) -> None:
        data = recipe.data
        if data.sentinels and data.tokenizer == "unigram":
            raise ConfigError(
                f"data.sentinels = {data.sentinels} gives data.tokenizer = unigram T5's ids, "
                "without [CLS] and [MASK], which objective.kind = masked needs: leave it out"
            )

    def _check_batches(self, data: DataConfig, train: TrainConfig) -> None:
        if train.compile:
            raise ConfigError(
                "train.compile = true would compile anew for every number of masked tokens, "
                "which objective.kind = masked changes from batch to batch: leave it out"
            )
        if self.pairs == "chunks":
            return
        if train.tokens or train.epochs:
            raise ConfigError(
                "objective.pairs = sentences makes examples far shorter than data.context, by "
                "which train.tokens and train.epochs are counted: give train.steps"
            )
        is_weighted = isinstance(data.path, dict) or isinstance(data.corpus, dict)
        if train.batch_tokens and is_weighted:
            raise ConfigError(
                "train.batch_tokens fills steps with pairs of one length, which the weights of "
                "data.path or data.corpus contradict with objective.pairs = sentences: give "
                "train.batch_sequences"
            )

    def _check_sentences(self, recipe: OtherTables) -> None:
        data = recipe.data
        if data.sentences == "none":
            raise ConfigError(
                "objective.kind = masked reads sentences, and data.sentences = none: give lines, "
                "prose or spacy"
            )
        if recipe.init.run is None and data.tokenizer in _WITHOUT_MASK:
            raise ConfigError(
                f"data.tokenizer = {data.tokenizer} has no [MASK], which objective.kind = "
                "masked needs: give unigram, wordpiece or moses-bpe, or a file whose vocabulary "
                "has it"
            )
        if data.context < _FEWEST_PAIR_TOKENS:
            raise ConfigError(
                f"data.context = {data.context} has no room for a pair of texts, which "
                f"objective.kind = masked reads: give {_FEWEST_PAIR_TOKENS} or more"
            )

    def _check_labels(self, model: ModelConfig) -> None:
        if self.sentence != "none" and model.sentence_classes == 0:
            raise ConfigError(
                f"objective.sentence = {self.sentence} needs a head: model.sentence_classes = 0 "
                "has none, give 2"
            )
        if self.pairs == "sentences" and self.sentence == "sop":
            raise ConfigError(
                "objective.pairs = sentences pairs what follows and what does not, not "
                "objective.sentence = sop"
            )
        if self.sentence == "none" and self.single_sentence == "negative":
            raise ConfigError(
                "objective.single_sentence = negative makes labels, which objective.sentence = "
                "none has no use for"
            )

    def n_predictions(self, context: int) -> int:
        """Count the positions of a window of ``context`` tokens that predict a token."""
        n_hidden = max(1, round(self.mask_share * context))
        if self.max_predictions:
            n_hidden = min(n_hidden, self.max_predictions)
        return n_hidden + self.predict_first

    def n_ids(self, context: int) -> int:
        """Count the ids that a row of a batch is certain to have, its targets included."""
        return 1

    def trains(self, head: str) -> bool:
        """Return whether a head that the model has, by its name in ``HEADS``, has a loss."""
        return head != "sentence" or self.sentence != "none"

    def reads(self) -> str:
        """Say what the encoder reads."""
        return "tokens, some of them masked"

    def losses(self) -> tuple[Loss, ...]:
        """Return what is learned: masked tokens, and whether two texts belong together."""
        notes = [f"{self.mask_share:.0%} of the tokens"]
        if self.z_loss:
            notes.append(f"and z-loss × {self.z_loss:g}")
        found = [Loss("masked tokens", notes=tuple(notes))]
        if self.sentence != "none":
            weight = "" if self.sentence_weight == 1.0 else f"weight {self.sentence_weight:g}"
            title = _SENTENCE_TASKS[self.sentence]
            found.append(Loss(title, "sentence", tuple(filter(None, (weight,)))))
        return tuple(found)
