"""The table of translation: predict a translation from its source."""

from typing import ClassVar, Literal

from sublayer.config.limits import LARGEST_PENALTY, WIDEST_BEAM
from sublayer.config.objective import Loss, ModelKind, ObjectiveTable, TextUse
from sublayer.config.table import Weight, field

BleuTokenizer = Literal["13a", "zh", "ja-mecab", "ko-mecab", "intl", "char", "flores200"]
"""sacreBLEU's tokenizers, by its names."""
BLEU_LANGUAGES: dict[BleuTokenizer, tuple[str, ...]] = {
    "zh": ("zh", "zho", "chi", "cmn", "yue", "wuu", "lzh", "cn"),
    "ja-mecab": ("ja", "jpn", "jp"),
    "ko-mecab": ("ko", "kor", "kr"),
    # Written without spaces between words: Thai, Lao, Khmer, Burmese, Tibetan, Dzongkha.
    "char": ("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "bo", "bod", "tib", "dz"),
}
"""The languages, by their codes, that are not scored with 13a."""


def bleu_tokenizer_of(language: str) -> BleuTokenizer:
    """Return sacreBLEU's tokenizer for a target language, by its code, such as zh or zh-CN."""
    code = language.lower().replace("_", "-").split("-")[0]
    return next((name for name, codes in BLEU_LANGUAGES.items() if code in codes), "13a")


class TranslationObjective(ObjectiveTable):
    """Predict a translation from its source."""

    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("encoder-decoder",)
    text: ClassVar[TextUse] = "pairs"
    evaluated: ClassVar[tuple[str, ...]] = ("loss", "perplexity", "bleu")
    scores_whole_split: ClassVar[bool] = True

    kind: Literal["translation"] = field("translation", "Predict a translation from its source.")
    label_smoothing: float = field(
        0.0,
        "Share of each target that is spread over the vocabulary.",
        unit="share",
        ge=0.0,
        lt=1.0,
    )
    smoothing: Literal["uniform", "others"] = field(
        "uniform",
        "Over the whole vocabulary, the target included (Macaron Net, as released), or the others "
        "(fairseq today).",
    )
    z_loss: Weight[float] = field(
        0.0,
        "Weight, in training alone, of (log Z)^2 of each prediction: Z is the "
        "denominator of its softmax (T5: 1e-4).",
    )
    bleu_tokenizer: BleuTokenizer | None = field(
        None,
        "sacreBLEU's tokenizer of BLEU: 13a and intl divide punctuation from words between spaces; "
        "zh, ja-mecab and ko-mecab find the words of Chinese, Japanese and Korean; char takes each "
        "character as one. flores200 needs its model in sacreBLEU's folder.",
        derived="zh, ja-mecab and ko-mecab by data.target_language; char of Thai, Lao, Khmer, "
        "Burmese and Tibetan; 13a of others",
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
        "What divides a hypothesis's log probability: n^p of its n tokens (fairseq), or ((5 + n) / "
        "6)^p (gnmt).",
    )
    length_penalty: float = field(
        1.0,
        "The exponent p: 0 favours short translations, more longer ones.",
        ge=-LARGEST_PENALTY,
        le=LARGEST_PENALTY,
    )

    def n_ids(self, context: int) -> int:
        """Count the ids that every row of a batch has: none, as a batch is at most all pairs."""
        return 0

    def reads(self) -> str:
        """Name the input of the encoder."""
        return "tokens of the source"

    def losses(self) -> tuple[Loss, ...]:
        """Return the loss: of the next token of the translation."""
        notes = []
        if self.label_smoothing:
            notes.append(f"labels smoothed by {self.label_smoothing:g}")
        if self.z_loss:
            notes.append(f"and z-loss × {self.z_loss:g}")
        return (Loss("next token of the target", notes=tuple(notes)),)
