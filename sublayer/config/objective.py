"""``[objective]``: the base of all kinds; next and masked tokens, translation, tasks, spans.

Source of the noise of spans: Raffel et al. 2020 (1910.10683), sec. 3.1.4 and 3.3, as released
(text-to-text-transfer-transformer, ``t5/data/preprocessors.py``).
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

from sublayer.config.data import DataConfig, task_of
from sublayer.config.table import (
    LARGEST_PENALTY,
    LARGEST_VOCABULARY,
    LONGEST_WINDOW,
    WIDEST_BEAM,
    Dropout,
    Probability,
    Scale,
    Table,
    Tokens,
    Weight,
    WindowTokens,
    field,
)
from sublayer.errors import ConfigError
from sublayer.numbers import count
from sublayer.tasks.task import Task


@dataclass(frozen=True)
class Loss:
    """A loss: its target, and the head that predicts it."""

    title: str
    """Target, such as ``next token``."""
    head: str | None = "vocabulary"
    """The head that predicts it, by its name in ``HEADS``; None: a separate training-only
    classifier."""
    notes: tuple[str, ...] = ()
    """Weights and similar details, a short line each."""
    is_of_each_layer: bool = False
    """True where every block below the last has it, with its own classifier."""


@dataclass(frozen=True)
class EvaluatedMetric:
    """A metric of evaluations: its direction, and the item columns of its quotient of sums."""

    is_lower_better: bool = False
    table: str = ""
    """The table of a test's items; empty: the metric is not a quotient of sums."""
    columns: tuple[str, str] = ("", "")
    """The dividend and the divisor."""
    unit: float = 1.0
    """Unit of the quotient, such as the nats of a bit."""


ModelKind = Literal["decoder", "encoder", "encoder-decoder", "lstm"]
TextUse = Literal["windows", "sentences", "pairs", "tasks"]
"""Content of a row of a batch: a window of the text, its sentences, a text in two languages, or an
example of a task."""


class Lengths(NamedTuple):
    """Tokens of an example: of the encoder input of an encoder-decoder, and of the prediction."""

    read: int
    written: int


class ObjectiveTable(Table):
    """A table ``[objective]``: its fields, their checks, and what counts and estimates read."""

    kind: str
    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("decoder", "lstm")
    text: ClassVar[TextUse] = "windows"
    gathers_positions: ClassVar[bool] = True
    """True where states are read only at positions that a batch lists."""
    masks_keys: ClassVar[bool] = True
    """True where batches may hide keys beyond causality, such as padding."""
    is_scored_in_windows: ClassVar[bool] = False
    """True where a text is scored in windows, with a stride that sets the tokens' context."""
    is_probed: ClassVar[bool] = False
    """True where its models predict text, and so can answer zero-shot probes."""
    evaluated: ClassVar[Mapping[str, EvaluatedMetric]] = {
        "loss": EvaluatedMetric(is_lower_better=True)
    }
    """The metrics of an evaluation during training, where the objective alone determines them."""
    scores_whole_split: ClassVar[bool] = False
    """True where every evaluation scores a whole split, not ``train.evaluate_tokens`` of it."""

    def evaluations(self, data: DataConfig) -> tuple[str, ...]:
        """Return the metrics of an evaluation during training; the loss is the first."""
        return tuple(self.evaluated)

    def trains_kind(self, kind: str) -> bool:
        """Return whether models of a kind can be trained at all."""
        return kind in self.model_kinds

    def resolve(self, context: int) -> Self:
        """Return the table with the values derived from ``data.context`` filled in."""
        return self

    def lengths(self, context: int) -> Lengths:
        """Return the greatest lengths of an example where ``data.context`` is ``context``.

        They differ where an encoder-decoder reads more, or less, than it writes; a single stack has
        equal lengths.
        """
        return Lengths(context, context)

    def n_sentinels(self, context: int) -> int:
        """Count the sentinels for gaps that a window of the text uses."""
        return 0

    def n_predictions(self, context: int) -> int:
        """Count the positions of a window of ``context`` tokens that predict a token."""
        return context

    def reads_texts_alone(self) -> bool:
        """Return whether only the state that represents a text is read, by heads that need no
        more."""
        return False

    def n_classifiers(self) -> tuple[int, int]:
        """Count the training-only classifiers of each block below the last, and of the last."""
        return 0, 0

    def mean_classifiers(self, n_layers: int) -> float:
        """Compute the mean number of training-only classifiers of a step, over the whole run.

        ``n_layers`` counts the blocks of the model.
        """
        return 0.0

    def n_ids(self, context: int) -> int:
        """Count the ids that a row of a batch is certain to have, its targets included."""
        return context

    def trains(self, head: str) -> bool:
        """Return whether a head that the model has, by its name in ``HEADS``, has a loss."""
        return True

    def reads(self) -> str:
        """Name the input of a model's first stack."""
        return "tokens"

    def losses(self) -> tuple[Loss, ...]:
        """Return the losses of training; the first is of the model's own next output."""
        return (Loss(self.kind),)


class CausalObjective(ObjectiveTable):
    """Predict the next token at every position."""

    gathers_positions: ClassVar[bool] = False
    evaluated: ClassVar[Mapping[str, EvaluatedMetric]] = {
        "loss": EvaluatedMetric(is_lower_better=True, table="windows", columns=("nats", "tokens")),
        "bits_per_byte": EvaluatedMetric(
            is_lower_better=True, table="windows", columns=("nats", "bytes"), unit=math.log(2)
        ),
    }
    is_scored_in_windows: ClassVar[bool] = True
    is_probed: ClassVar[bool] = True
    masks_keys: ClassVar[bool] = False

    kind: Literal["causal"] = "causal"
    """Predict the next token at every position."""
    positions: Literal["all", "last"] = "all"
    """Predicting positions of a window: all, or only the last, with the whole context."""
    position_reduction: Literal["mean", "sum"] = field("mean", needs={"positions": ("all",)})
    """Reduction of the training loss over a window's positions: their mean, or their sum, averaged
    over the windows of a batch. Losses are logged as means."""
    targets: int = field(1, unit="tokens", ge=1, le=1000)
    """Tokens ahead that each position predicts; those beyond the next by training-only
    classifiers."""
    target_weight: Scale[float] = field(0.5, when=("targets",))
    """Weight of the loss of each token beyond the next."""
    z_loss: Weight[float] = 0.0
    """Weight, in training alone, of (log Z)^2 of each prediction by the model's own head: Z is
    the denominator of its softmax (T5: 1e-4)."""
    auxiliary: Literal["none", "layers"] = field("none", when=("lower-blocks",))
    """layers: every block below the last predicts too, by training-only classifiers of its own."""
    auxiliary_stop: float = field(
        0.5, unit="share", needs={"auxiliary": ("layers",)}, gt=0.0, le=1.0
    )
    """Share of the run over which the blocks' losses stop, lowest first: block l of n stops after l
    / n of it."""
    auxiliary_reduction: Literal["sum", "mean"] = field("sum", needs={"auxiliary": ("layers",)})
    """Reduction of the losses of the blocks that still have one and of the final loss."""

    def n_predictions(self, context: int) -> int:
        """Count the positions of a window of ``context`` tokens that predict a token."""
        return context if self.positions == "all" else 1

    def n_classifiers(self) -> tuple[int, int]:
        """Count the training-only classifiers of each block below the last, and of the last."""
        below = self.targets if self.auxiliary == "layers" else 0
        # The first target of the last block is the model's own head.
        return below, self.targets - 1

    def mean_classifiers(self, n_layers: int) -> float:
        """Compute the mean number of training-only classifiers of a step, over the whole run.

        ``n_layers`` counts the blocks of the model.
        """
        below, last = self.n_classifiers()
        # Block l of n has its loss for a share l / n of the run up to the stop: over the blocks
        # below the last, these shares add up to (n - 1) / 2.
        return last + below * self.auxiliary_stop * (n_layers - 1) / 2

    def n_ids(self, context: int) -> int:
        """Count the ids that a row of a batch is certain to have, its targets included."""
        return context + self.targets

    def losses(self) -> tuple[Loss, ...]:
        """Return the losses: of next tokens, by the last block and by those below it."""
        notes = [] if self.positions == "all" else ["at the last position"]
        if self.z_loss:
            notes.append(f"and z-loss × {self.z_loss:g}")
        losses = [Loss("next token", notes=tuple(notes))]
        further = _ahead(self.targets)
        weight = f"weight {self.target_weight:g}"
        if further:
            note = f"{weight} each" if self.targets > 2 else weight
            losses.append(Loss(further, None, (note,)))
        if self.auxiliary == "layers":
            layer_notes = [f"and {further} × {self.target_weight:g}"] if further else []
            layer_notes += [
                "by classifiers of its own",
                "layer l of n has one",
                f"for the first {self.auxiliary_stop:g} l/n of the run",
            ]
            if self.auxiliary_reduction == "mean":
                layer_notes.append("the mean of the layers counts")
            losses.append(Loss("next token", None, tuple(layer_notes), is_of_each_layer=True))
        return tuple(losses)


def _ahead(targets: int) -> str:
    if targets == 1:
        return ""
    if targets == 2:
        return "the token after it"
    return f"the {count(targets - 1, 'token')} after it"


_SENTENCE_TASKS = {"nsp": "next sentence", "sop": "sentence order"}


class MaskedObjective(ObjectiveTable):
    """
    Predict masked tokens from both sides, and tell pairs of texts that belong together from others.
    """  # fmt: skip

    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("encoder",)
    text: ClassVar[TextUse] = "sentences"
    evaluated: ClassVar[Mapping[str, EvaluatedMetric]] = {
        "loss": EvaluatedMetric(is_lower_better=True, table="examples", columns=("nats", "tokens")),
        "mlm_accuracy": EvaluatedMetric(table="examples", columns=("correct", "tokens")),
        "nsp_accuracy": EvaluatedMetric(table="nsp_pairs", columns=("correct", "pairs")),
        "sop_accuracy": EvaluatedMetric(table="sop_pairs", columns=("correct", "pairs")),
    }

    kind: Literal["masked"] = "masked"
    """Predict tokens that were hidden, and whether a pair of texts belongs together."""
    masking: Literal["token", "word", "ngram"] = "token"
    """Unit of masking: tokens, whole words, or runs of words (n-grams)."""
    mask_share: float = field(0.15, unit="share of tokens", gt=0.0, lt=1.0)
    """Share of a text's tokens that are predicted."""
    mask_base: Literal["all", "maskable"] = "all"
    """Basis of mask_share: all tokens of an example, or only maskable ones."""
    max_predictions: Tokens[int | None] = None
    """Largest number of predictions per example; ALBERT's released data has 20."""
    max_ngram: int = field(3, unit="words", needs={"masking": ("ngram",)}, ge=1, le=100)
    """Words of the longest n-gram."""
    ngram_favours: Literal["short", "long"] = field("short", needs={"masking": ("ngram",)})
    """Probability of a length n: in proportion to 1/n, or the reverse."""
    p_mask: Probability[float] = 0.8
    """Probability of replacing a predicted token by the mask token."""
    p_random: Probability[float] = 0.1
    """Probability of replacing a predicted token by a random one; the rest stay unchanged."""
    random_ids: Literal["ordinary", "all"] = "ordinary"
    """Source of random tokens: ids of text, or special ones too (ALBERT, as released)."""
    spared_ids: int = field(0, unit="ids", ge=0, le=LARGEST_VOCABULARY)
    """Number of ids after the last special one that are never masked; Macaron BERT, as released,
    has 1."""
    predict_first: bool = False
    """Prediction of the first token of every example as well (Macaron BERT, as released)."""
    static_copies: int | None = field(None, unit="passes", ge=1, le=1_000_000)
    """Passes over the text after which pairs and masks repeat; unset, every pass draws new ones
    (ALBERT's data: 40)."""
    z_loss: Weight[float] = 0.0
    """Weight, in training alone, of (log Z)^2 of each prediction of a token: Z is the
    denominator of its softmax (T5: 1e-4)."""
    sentence: Literal["none", "nsp", "sop"] = "none"
    """Target of the sentence head: none, whether B follows A (next sentence), or whether A and B
    are in order (sentence order)."""
    sentence_weight: Scale[float] = field(1.0, needs={"sentence": ("nsp", "sop")})
    """Weight of the sentence loss, added to the masked-token loss."""
    sentence_trains: Literal["model", "head"] = field("model", needs={"sentence": ("nsp", "sop")})
    """Parameters trained by the sentence loss: the whole model, or only its head, as a probe of a
    model trained without it."""
    pairs: Literal["chunks", "sentences"] = "chunks"
    """Segments A and B: two parts of a chunk of sentences that fills the context, or single
    sentences (Macaron BERT, as released)."""
    p_short: Probability[float] = field(0.1, needs={"pairs": ("chunks",)})
    """Probability that an example's length is drawn uniformly instead of filling the context."""
    short_per: Literal["example", "document"] = field("example", needs={"pairs": ("chunks",)})
    """Unit of that length draw: each example, or a pass over a document (ALBERT, as released)."""
    single_sentence: Literal["keep", "negative", "drop"] = field(
        "keep", needs={"pairs": ("chunks",)}
    )
    """A chunk of one sentence: kept without B and without a sentence label; given a B from
    another document as a negative (ALBERT, as released); or left out."""

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
        """Name the input of the encoder."""
        return "tokens, some of them masked"

    def losses(self) -> tuple[Loss, ...]:
        """Return the losses: of masked tokens, and of whether two texts belong together."""
        notes = [f"{self.mask_share:.0%} of the tokens"]
        if self.z_loss:
            notes.append(f"and z-loss × {self.z_loss:g}")
        losses = [Loss("masked tokens", notes=tuple(notes))]
        if self.sentence != "none":
            weight = "" if self.sentence_weight == 1.0 else f"weight {self.sentence_weight:g}"
            title = _SENTENCE_TASKS[self.sentence]
            losses.append(Loss(title, "sentence", tuple(filter(None, (weight,)))))
        return tuple(losses)


BleuTokenizer = Literal["13a", "zh", "ja-mecab", "ko-mecab", "intl", "char", "flores200"]
"""sacreBLEU's tokenizers, by its names."""
BLEU_LANGUAGES: dict[BleuTokenizer, tuple[str, ...]] = {
    "zh": ("zh", "zho", "chi", "cmn", "yue", "wuu", "lzh", "cn"),
    "ja-mecab": ("ja", "jpn", "jp"),
    "ko-mecab": ("ko", "kor", "kr"),
    # Written without spaces between words: Thai, Lao, Khmer, Burmese, Tibetan, Dzongkha.
    "char": ("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "bo", "bod", "tib", "dz"),
}
"""Languages not scored with 13a, by code."""


def bleu_tokenizer_of(language: str) -> BleuTokenizer:
    """Return sacreBLEU's tokenizer for a target language, by its code, such as zh or zh-CN."""
    code = language.lower().replace("_", "-").split("-")[0]
    return next((name for name, codes in BLEU_LANGUAGES.items() if code in codes), "13a")


class TranslationObjective(ObjectiveTable):
    """Predict a translation from its source."""

    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("encoder-decoder",)
    text: ClassVar[TextUse] = "pairs"
    evaluated: ClassVar[Mapping[str, EvaluatedMetric]] = {
        "loss": EvaluatedMetric(is_lower_better=True, table="pairs", columns=("nats", "tokens")),
        "perplexity": EvaluatedMetric(is_lower_better=True),
        "bleu": EvaluatedMetric(),
    }
    scores_whole_split: ClassVar[bool] = True
    masks_keys: ClassVar[bool] = False

    kind: Literal["translation"] = "translation"
    """Predict a translation from its source."""
    label_smoothing: float = field(0.0, unit="share", ge=0.0, lt=1.0)
    """Share of each target spread over the vocabulary."""
    smoothing: Literal["uniform", "others"] = "uniform"
    """Support of label smoothing: the whole vocabulary, target included (Macaron Net, as released),
    or the other tokens (fairseq today)."""
    z_loss: Weight[float] = 0.0
    """Weight, in training alone, of (log Z)^2 of each prediction: Z is the denominator of its
    softmax (T5: 1e-4)."""
    bleu_tokenizer: BleuTokenizer | None = field(
        None,
        derived="zh, ja-mecab and ko-mecab by data.target_language; char for Thai, Lao, Khmer, "
        "Burmese and Tibetan; 13a for others",
    )
    """sacreBLEU's tokenizer for BLEU: 13a and intl split punctuation from space-separated words;
    zh, ja-mecab and ko-mecab find the words of Chinese, Japanese and Korean; char splits into
    characters. flores200 needs its model in sacreBLEU's folder."""
    beam: int = field(5, unit="hypotheses", ge=1, le=WIDEST_BEAM)
    """Beam size of translation, unless a command or a study gives another."""
    length_rule: Literal["fairseq", "gnmt"] = "fairseq"
    """Divisor of a hypothesis's log probability: n^p of its n tokens (fairseq), or ((5 + n) / 6)^p
    (gnmt)."""
    length_penalty: float = field(1.0, ge=-LARGEST_PENALTY, le=LARGEST_PENALTY)
    """Exponent p of the length rule: 0 favours short translations, larger values longer ones."""

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


Format = Literal["pair", "traversal", "text"]
KINDS: dict[str, tuple[ModelKind, ...]] = {
    "pair": ("encoder",),
    "traversal": ("decoder", "lstm"),
    "text": ("encoder-decoder", "decoder", "lstm"),
}
"""The kinds of model that can read each format."""

MARKS = 4
"""Special tokens of a row of three texts, the most that a task has."""


class SupervisedObjective(ObjectiveTable):
    """Answer tasks: fine-tuning on examples with labels, choices, numbers or spans."""

    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("encoder",)
    text: ClassVar[TextUse] = "tasks"
    scores_whole_split: ClassVar[bool] = True

    kind: Literal["supervised"] = "supervised"
    """Answer tasks: fine-tuning on examples with labels, choices or spans."""
    format: Format = "pair"
    """Format of an example: pair, [CLS] A [SEP] B [SEP], for encoders; traversal, texts between
    start, delimiter and end tokens, for decoders and LSTMs (GPT-1); text, text to text, answers
    included (T5)."""
    dropout: Dropout[float] = field(0.1, needs={"format": ("pair", "traversal")})
    """Dropout of the vector that the task's head reads; for spans, of the input of the no-answer
    score."""
    zero_head: bool = field(False, needs={"format": ("pair", "traversal")})
    """Zero initialization of the answering head (Macaron Net), whatever the start has."""
    logistic: bool = field(False, needs={"format": ("pair", "traversal")})
    """Single output for a task of two labels, the logit of the second (Macaron Net), instead of one
    per label."""
    orders: Literal["given", "random", "both"] = field("given", needs={"format": ("pair",)})
    """Order of two exchangeable texts in training: as given, either at random, or both. A traversal
    always has both."""
    language_weight: Weight[float] = field(0.0, needs={"format": ("traversal",)})
    """Weight of the language-modelling loss on the texts, a mean over rows of each row's mean
    (GPT-1: 0.5)."""
    answer: Literal["greedy", "rank"] = field("greedy", needs={"format": ("text",)})
    """Decoding of an answer: greedy, token by token, or the label with the likeliest text."""
    target_length: WindowTokens[int] = field(64, needs={"format": ("text",)})
    """Tokens of the longest target, its end included; longer targets are truncated."""
    doc_stride: Tokens[int] = field(128, needs={"format": ("pair",)})
    """Stride in tokens of the windows of a long passage with a span to find."""
    max_answer: Tokens[int] = field(30, needs={"format": ("pair",)})
    """Tokens of the longest span given as an answer."""

    def check_head(self, task: Task) -> None:
        """Raise ConfigError where a head has one output but the task not two labels.

        The labels of a custom table are unknown before it is read.
        """
        if self.logistic and not (task.kind == "classes" and len(task.labels) == 2):
            raise ConfigError(
                "objective.logistic = true needs a task with two labels, and data.tasks = "
                f"{task.name} is none: leave it out"
            )

    def trains_kind(self, kind: str) -> bool:
        """Return whether models of a kind can be trained at all."""
        return kind in KINDS[self.format]

    def evaluations(self, data: DataConfig) -> tuple[str, ...]:
        """Return the loss, the score, and each task's metrics, prefixed by its name if there are
        several."""
        metrics = {name: task_of(name, data.columns).metrics for name in data.task_names}
        if len(metrics) == 1:
            [task_metrics] = metrics.values()
            return ("loss", "score", *task_metrics)
        names = []
        for task, task_metrics in metrics.items():
            names += [f"{task}/{metric}" for metric in ("score", *task_metrics)]
        return ("loss", "score", *names)

    def lengths(self, context: int) -> Lengths:
        """Return the greatest lengths of an input and of a target.

        A decoder alone has the target in the row that it reads.
        """
        if self.format == "text":
            return Lengths(context, self.target_length)
        return Lengths(context, context)

    def n_predictions(self, context: int) -> int:
        """Count the positions of a row that predict a token."""
        if self.format == "text" or self.language_weight > 0:
            return context
        return 0

    def reads_texts_alone(self) -> bool:
        """Return whether only the answer is learned, from the state that represents the text."""
        return self.format != "text" and self.language_weight == 0

    def n_ids(self, context: int) -> int:
        """Count the ids that a row of a batch is certain to have, its targets included."""
        return 1

    def trains(self, head: str) -> bool:
        """Return whether a head that the model has, by its name in ``HEADS``, has a loss."""
        return head != "sentence"

    def reads(self) -> str:
        """Name the input of a model's first stack."""
        return "tokens of an example"

    def losses(self) -> tuple[Loss, ...]:
        """Return the losses: of the answer, and with a traversal of the text itself."""
        if self.format == "text":
            return (Loss("next token of the answer"),)
        # A model has one of the three.
        losses = [Loss("answer", head) for head in ("label", "span", "joint_span")]
        if self.language_weight:
            losses.append(Loss("next token", notes=(f"weight {self.language_weight:g}",)))
        return tuple(losses)


_SPREAD = 4.0
"""Standard deviations above the mean that room is kept for: 3 in 100,000 pieces have more."""


class Noise(ABC):
    """A kind of noise; the masks themselves are drawn by ``sublayer.data.span``."""

    cuts_targets = False
    """True where targets may be longer, and are then cut."""

    @abstractmethod
    def raw(self, settings: "SpanObjective", context: int) -> int:
        """Count the tokens of a piece whose input fits a context; may raise ConfigError."""

    @abstractmethod
    def target(self, settings: "SpanObjective", raw: int) -> int:
        """Count the tokens of the longest target of a piece of raw tokens, its end included."""

    @abstractmethod
    def n_sentinels(self, settings: "SpanObjective", raw: int) -> int:
        """Count the sentinels that a piece takes. 0: inputs and targets have none at all."""


class _SpanNoise(Noise):
    def raw(self, settings: "SpanObjective", context: int) -> int:
        """Return the longest piece whose input, sentinels and end included, fits the context.

        Raises ConfigError where it has no span, or more spans than tokens.
        """

        def input_length(length: int) -> int:
            n_noise, n_spans = settings.reserved(length)
            return length - n_noise + n_spans + 1

        # An input is at least as long as the rest of a piece without its noise, and grows with the
        # piece.
        longest = math.ceil((context + 2) / (1.0 - settings.noise_density))
        raw = bisect_right(range(longest + 1), context, key=input_length) - 1
        n_noise, n_spans = settings.reserved(max(raw, 0))
        if raw < 2 or n_spans < 1:
            raise ConfigError(
                f"data.context = {context} is too short for a span: of {max(raw, 0)} tokens, "
                f"objective.noise_density = {settings.noise_density:g} makes {n_noise} "
                f"noise tokens, at most half of objective.mean_span = {settings.mean_span:g}; "
                "give a longer context, a greater density or a shorter span"
            )
        n_kept = raw - n_noise
        if n_spans > min(n_noise, n_kept):
            raise ConfigError(
                f"objective.mean_span = {settings.mean_span:g} divides {n_noise} noise "
                f"tokens into {n_spans} spans, with {n_kept} tokens between them: give "
                "longer spans or a lower objective.noise_density"
            )
        if settings.noise_density == 0.5 and self.target(settings, raw) > context:
            # As released: half noise would give targets of one more than the input.
            return raw - 1
        return raw

    def target(self, settings: "SpanObjective", raw: int) -> int:
        return sum(settings.spans(raw)) + 1

    def n_sentinels(self, settings: "SpanObjective", raw: int) -> int:
        return settings.spans(raw)[1]


class _ChanceNoise(Noise):
    cuts_targets = True

    def raw(self, settings: "SpanObjective", context: int) -> int:
        # A piece without noise stays as long as it is, and its end follows.
        return max(2, context - 1)

    def target(self, settings: "SpanObjective", raw: int) -> int:
        return min(raw, sum(settings.runs_by_chance(raw))) + 1

    def n_sentinels(self, settings: "SpanObjective", raw: int) -> int:
        return settings.runs_by_chance(raw)[1] + 1


class _PrefixNoise(Noise):
    def raw(self, settings: "SpanObjective", context: int) -> int:
        # The longest prefix leaves one token, in whose place stands its end.
        return context

    def target(self, settings: "SpanObjective", raw: int) -> int:
        return raw

    def n_sentinels(self, settings: "SpanObjective", raw: int) -> int:
        return 0


NOISES: dict[str, Noise] = {"spans": _SpanNoise(), "iid": _ChanceNoise(), "prefix": _PrefixNoise()}


if TYPE_CHECKING:
    NoiseName = str
else:
    NoiseName = Literal[tuple(NOISES)]


MOST_USED = 100
"""Number of T5's sentinels, suggested where there are none."""


class SpanObjective(ObjectiveTable):
    """Predict the parts of a text that were cut out of it, each behind its sentinel (T5)."""

    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("encoder-decoder",)
    is_probed: ClassVar[bool] = True
    evaluated: ClassVar[Mapping[str, EvaluatedMetric]] = {
        "loss": EvaluatedMetric(is_lower_better=True, table="pieces", columns=("nats", "tokens"))
    }

    kind: Literal["span"] = "span"
    """Predict the parts of a text that were cut out of it, each behind its sentinel (T5)."""
    noise: NoiseName = "spans"
    """Kind of noise: spans, a fixed number of spans of random lengths; iid, each token
    independently; prefix, everything after a random prefix, without sentinels (prefix language
    model)."""
    noise_density: float = field(
        0.15, unit="share of tokens", needs={"noise": ("spans", "iid")}, gt=0.0, lt=1.0
    )
    """Share of the tokens that is cut out."""
    mean_span: float = field(
        3.0, unit="tokens", needs={"noise": ("spans",)}, ge=1.0, le=LONGEST_WINDOW
    )
    """Mean length of a span."""
    raw_length: WindowTokens[int | None] = field(
        None, derived="the longest whose input, sentinels and end included, fits data.context"
    )
    """Length of a piece of text before its spans are cut out."""
    target_length: WindowTokens[int | None] = field(
        None,
        derived="the target length of a piece; for iid, four standard deviations above its mean",
    )
    """Length of the longest target, sentinels and end included; longer targets of iid noise are
    truncated."""
    chunk_tokens: WindowTokens[int] = field(65_536, when=("shuffled",))
    """Tokens of the chunk that each epoch takes from a longer document, at a random multiple of
    this length, with data.windows = shuffled."""
    z_loss: Weight[float] = 0.0
    """Weight of the squared log of the softmax's denominator, in training alone; T5: 1e-4."""

    @property
    def row(self) -> Noise:
        """Return the row of the kind of noise."""
        return NOISES[self.noise]

    def resolve(self, context: int) -> Self:
        """Return the table with its lengths filled in; raise ConfigError where there is no room."""
        raw = self.raw_length or self.row.raw(self, context)
        target = self.target_length or self.row.target(self, raw)
        return self.model_copy(update={"raw_length": raw, "target_length": target})

    def lengths(self, context: int) -> Lengths:
        """Return the greatest lengths of an input and of a target."""
        target = self.resolve(context).target_length
        assert target is not None, "it was resolved"
        return Lengths(context, target)

    def n_sentinels(self, context: int) -> int:
        """Count the sentinels that a piece takes at most; none where what follows is cut out."""
        raw = self.resolve(context).raw_length
        assert raw is not None, "it was resolved"
        return self.row.n_sentinels(self, raw)

    def n_ids(self, context: int) -> int:
        """Count the ids that a row of a batch has at least: the token left of a piece of 2."""
        return 1

    def reads(self) -> str:
        """Name the input of the encoder."""
        if self.noise == "prefix":
            return "tokens of a text's beginning"
        return "tokens, sentinels for the gaps"

    def losses(self) -> tuple[Loss, ...]:
        """Return the loss: of the next token of the spans that were cut out."""
        if self.noise == "prefix":
            title, notes = "next token of the rest", []
        else:
            title = "next token of the gaps"
            notes = [f"{self.noise_density:.0%} of the tokens cut out"]
        if self.z_loss:
            notes.append(f"and z-loss × {self.z_loss:g}")
        return (Loss(title, notes=tuple(notes)),)

    def spans(self, length: int) -> tuple[int, int]:
        """Count the noise tokens and the spans of a piece of ``length`` tokens, 2 or more.

        There is at least one each. Halves are rounded to even. Pieces that are shorter than the
        spans ask for have fewer spans.
        """
        n_noise = round(length * self.noise_density)
        n_noise = min(max(n_noise, 1), length - 1)
        n_spans = max(1, round(n_noise / self.mean_span))
        return n_noise, min(n_spans, n_noise, length - n_noise)

    def reserved(self, length: int) -> tuple[int, int]:
        """Count the noise tokens and the spans that a piece of ``length`` tokens asks for."""
        n_noise = round(length * self.noise_density)
        return n_noise, round(n_noise / self.mean_span)

    def runs_by_chance(self, raw: int) -> tuple[int, int]:
        """Compute the most noise by chance of nearly every piece: tokens, and runs of them."""
        density = self.noise_density
        variance = density * (1.0 - density)
        n_noise = raw * density + _SPREAD * math.sqrt(raw * variance)
        # A run begins at a token that is noise after one that is not.
        mean_runs = density + (raw - 1) * variance
        n_runs = mean_runs + _SPREAD * math.sqrt(mean_runs * (1.0 - 3.0 * variance))
        return min(raw, math.ceil(n_noise)), min(raw, math.ceil(n_runs))
