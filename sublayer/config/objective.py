"""``[objective]``: what the model is trained to do; a union by ``kind``."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sublayer.config.limits import LARGEST_FACTOR, LARGEST_PENALTY, LARGEST_VOCABULARY, LONGEST_WINDOW, WIDEST_BEAM
from sublayer.config.table import Table, field
from sublayer.errors import ConfigError

_KINDS = (
    "causal: the next token at every position; masked: tokens that were hidden, and whether a pair of texts belongs "
    "together."
)


class CausalObjective(Table):
    """Predict the next token at every position."""

    kind: Literal["causal"] = field("causal", _KINDS, selects=True)
    positions: Literal["all", "last"] = field(
        "all", "Positions of a window that predict: all, or only the last, which sees the whole context."
    )
    targets: int = field(
        1,
        "Tokens ahead that each position predicts; those beyond the next by training-only classifiers.",
        unit="tokens",
        ge=1,
        le=1000,
    )
    target_weight: float = field(0.5, "Weight of the loss of each token beyond the next.", gt=0.0, le=LARGEST_FACTOR)
    auxiliary: Literal["none", "layers"] = field(
        "none",
        "layers: every block below the last predicts too, by training-only classifiers of its own.",
        selects=True,
    )
    auxiliary_stop: float = field(
        0.5,
        "Share of the run over which the blocks' losses stop, the lowest first: block l of n's after l / n of it.",
        unit="share",
        needs={"auxiliary": ("layers",)},
        gt=0.0,
        le=1.0,
    )
    auxiliary_reduction: Literal["sum", "mean"] = field(
        "sum",
        "How the losses of the blocks that still have one and of the model's end add up.",
        needs={"auxiliary": ("layers",)},
    )


class MaskedObjective(Table):
    """Predict hidden tokens from both sides, and tell pairs of texts that belong together from others."""

    kind: Literal["masked"] = field("masked", _KINDS, selects=True)
    masking: Literal["token", "word", "ngram"] = field(
        "token", "What is hidden at a time: tokens, whole words, or runs of words (n-grams)."
    )
    mask_share: float = field(
        0.15, "Share of a text's tokens that are predicted.", unit="share of tokens", gt=0.0, lt=1.0
    )
    mask_base: Literal["all", "maskable"] = field(
        "all", "What mask_share is a share of: all tokens of an example, or those that may be hidden."
    )
    mask_most: int | None = field(
        None,
        "Largest number of predictions in an example; ALBERT's released data has 20.",
        unit="tokens",
        ge=1,
        le=LONGEST_WINDOW,
    )
    ngram_longest: int = field(
        3, "Words of the longest n-gram.", unit="words", needs={"masking": ("ngram",)}, ge=1, le=100
    )
    ngram_favours: Literal["short", "long"] = field(
        "short", "Probability of a length n: in proportion to 1/n, or the reverse.", needs={"masking": ("ngram",)}
    )
    p_mask: float = field(
        0.8, "Predicted tokens that are replaced by the mask token.", unit="probability", ge=0.0, le=1.0
    )
    p_random: float = field(
        0.1,
        "Predicted tokens that are replaced by a random one; the rest stays as it is.",
        unit="probability",
        ge=0.0,
        le=1.0,
    )
    random_ids: Literal["ordinary", "all"] = field(
        "ordinary", "What a random token is drawn from: ids of text, or special ones too (ALBERT, as released)."
    )
    spared_ids: int = field(
        0,
        "Ids after the last special one that are never hidden; Macaron BERT, as released, has 1.",
        unit="ids",
        ge=0,
        le=LARGEST_VOCABULARY,
    )
    predict_first: bool = field(
        False, "Whether the first token, which begins every example, is predicted too (Macaron BERT, as released)."
    )
    static_copies: int | None = field(
        None,
        "Passes over the text after which pairs and masks repeat; unset, every pass has new ones (ALBERT's data: 40).",
        unit="passes",
        ge=1,
        le=1_000_000,
    )
    sentence: Literal["none", "nsp", "sop"] = field(
        "none",
        "What the sentence head learns: nothing, whether B is the text after A (next sentence), or whether A and B "
        "are in their order (sentence order).",
    )
    sentence_weight: float = field(
        1.0,
        "Weight of the sentence loss beside that of hidden tokens.",
        needs={"sentence": ("nsp", "sop")},
        gt=0.0,
        le=LARGEST_FACTOR,
    )
    pairs: Literal["chunks", "sentences"] = field(
        "chunks",
        "What A and B are: two parts of a chunk of sentences that fills the context, or single sentences (Macaron "
        "BERT, as released).",
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
        "Whether that length is drawn for each example, or once for a pass over a document (ALBERT, as released).",
        needs={"pairs": ("chunks",)},
    )
    alone: Literal["keep", "negative", "drop"] = field(
        "keep",
        "A chunk of one sentence: kept without B and without a sentence label; given a B from another document as a "
        "negative (ALBERT, as released); or left out.",
        needs={"pairs": ("chunks",)},
    )

    @model_validator(mode="after")
    def _replacements_are_shares(self) -> Self:
        if self.p_mask + self.p_random > 1.0:
            raise ConfigError(
                f"objective.p_mask = {self.p_mask:g} and objective.p_random = {self.p_random:g} exceed 1 together"
            )
        return self


class TranslationObjective(Table):
    """Predict a translation from its source."""

    kind: Literal["translation"] = field("translation", "Predict a translation from its source.", selects=True)
    label_smoothing: float = field(
        0.0, "Share of each target that is spread over the vocabulary.", unit="share", ge=0.0, lt=1.0
    )
    smoothing: Literal["uniform", "others"] = field(
        "uniform",
        "Over the whole vocabulary, the target included (Macaron Net, as released), or the others (fairseq today).",
    )
    beam: int = field(
        5,
        "Hypotheses kept at a time, where a command or a study translates and says no other.",
        unit="hypotheses",
        ge=1,
        le=WIDEST_BEAM,
    )
    length_rule: Literal["fairseq", "gnmt"] = field(
        "fairseq",
        "What divides a hypothesis's log probability: n^p of its n tokens (fairseq), or ((5 + n) / 6)^p (gnmt).",
    )
    length_penalty: float = field(
        1.0, "The exponent p: 0 favours short translations, more longer ones.", ge=-LARGEST_PENALTY, le=LARGEST_PENALTY
    )


ObjectiveConfig = Annotated[CausalObjective | MaskedObjective | TranslationObjective, Field(discriminator="kind")]
NEXT_TOKEN = CausalObjective()
OBJECTIVES: dict[str, type[Table]] = {
    "causal": CausalObjective,
    "masked": MaskedObjective,
    "translation": TranslationObjective,
}
