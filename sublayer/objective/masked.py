"""Loss and scores of masked tokens and text pairs.

Source: Devlin et al. 2019 (1810.04805), sec. 3.1; sentence order: Lan et al. 2020 (1909.11942),
sec. 3.1.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from sublayer.config.objective import MaskedObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import batch_sequences
from sublayer.config.rules import fills_steps
from sublayer.config.stacks import HEADS
from sublayer.data.batches import PackedBatch
from sublayer.data.masked import (
    Example,
    MaskRule,
    MaskVocabulary,
    PairBatches,
    PairSettings,
    count_single_sentences,
    pack,
)
from sublayer.data.prepare import Data, DividedTexts, prepare
from sublayer.data.sentence_pairs import PairRule, make_pairs
from sublayer.data.store import Split
from sublayer.data.text.ranges import SPLITS
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.translation_batches import BatchRule
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.items import (
    ALONE,
    Digest,
    Items,
    ItemTable,
    Metric,
    Numbers,
    Processes,
    Progress,
    add_up,
    compute_each,
    quotient_of,
    silent,
)
from sublayer.model.context import Layout
from sublayer.model.kernels.products import Smoothing, nats_of_targets, product
from sublayer.model.transformer import Encoder, Transformer, evaluating
from sublayer.numbers import count
from sublayer.objective.base import (
    TEXT_OPTIONS,
    Effort,
    Evaluation,
    Family,
    Objective,
    Scored,
    Synthetic,
    context_of,
    describe_sources,
    own_objective,
    scored_sequences,
)
from sublayer.tables import table
from sublayer.tasks.registry import TaskSpec
from sublayer.text_model import TextModel


class Masked(Objective):
    """Cross-entropy of masked tokens, term ``mlm``, and of text pairs, term ``sentence``.

    Logits are computed only at predicted tokens. Terms are means over the global batch. The model
    is an encoder.

    With z-loss the trained term of masked tokens is ``trained``; ``mlm``, without weight then, is
    reported.
    """

    reported = "mlm"

    def __init__(self, model: Transformer, config: MaskedObjective) -> None:
        super().__init__(model)
        assert isinstance(model, Encoder), "masked objectives train encoders"
        self._encoder = model
        self._z_loss = config.z_loss
        self._is_probed = config.sentence_trains == "head"
        self.weights = {"mlm": 1.0}
        if self._z_loss:
            self.weights = {"trained": 1.0, "mlm": 0.0}
        if config.sentence != "none":
            self.weights["sentence"] = config.sentence_weight

    @property
    def has_unused_parameters(self) -> bool:
        """True where a sentence head is not trained, and has no gradient."""
        if "sentence" in self.weights:
            return False
        return any(HEADS[name].reads != "positions" for name in self.model.heads)

    def counts(self, batch: PackedBatch) -> dict[str, int]:
        """Count the predicted tokens and the pairs with a label."""
        n_targets = batch.n_predicted
        counts = {"mlm": n_targets}
        if self._z_loss:
            counts["trained"] = n_targets
        if "sentence" in self.weights:
            is_labelled = batch.labels >= 0
            counts["sentence"] = int(is_labelled.sum())
        return counts

    def forward(self, batch: PackedBatch) -> dict[str, Tensor]:
        """Sum the nats of masked tokens, and of pairs."""
        masked, cls, auxiliary = states_at(self._encoder, batch)
        smoothing = Smoothing(1.0, 0.0, self._z_loss) if self._z_loss else None
        embedded = self._encoder.to_embedding(masked)
        totals = self.token_totals(embedded, batch.predicted_ids, smoothing)
        if "sentence" in self.weights:
            # A probe does not change the states.
            logits = self._encoder.sentence_logits(cls.detach() if self._is_probed else cls)
            totals["sentence"] = sentence_nats(logits, batch.labels.long())
        return totals | self.auxiliary_totals(auxiliary, batch.weights)


def states_at(
    encoder: Encoder, batch: PackedBatch
) -> tuple[Float[Tensor, "P D"], Float[Tensor, "N D"], Float[Tensor, ""] | None]:
    """Compute hidden states, without attention across examples, and select those needed.

    States of the predicted positions and of the first position of every example, in row order, and
    the auxiliary losses of ``Hidden``.
    """
    assert batch.predicted is not None, "tokens are predicted"
    side = batch.read
    layout = Layout.bidirectional(side.tokens, side.mask, side.document_ids, side.starts)
    hidden = encoder.hidden(side.tokens, layout, segments=batch.segments)
    flat = hidden.final.flatten(0, 1)  # [R * T, D]
    masked, cls = (flat.index_select(0, places) for places in (batch.predicted, batch.places))
    return masked, cls, hidden.auxiliary


def sentence_nats(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Float[Tensor, ""]:
    """Sum the nats of labels under two logits, or a logistic one; a label of -1 does not count.

    At least in float32. A single logit is label 1's.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    logits = logits.to(dtype)
    n_logits = logits.shape[1]
    if n_logits == 2:
        return F.cross_entropy(logits, labels, ignore_index=-1, reduction="sum")
    is_counted = labels >= 0
    # Ignored pairs are computed as label 0, and excluded from the sum.
    targets = labels.clamp_min(0).to(logits.dtype)
    nats = F.binary_cross_entropy_with_logits(logits[:, 0], targets, reduction="none")
    return torch.where(is_counted, nats, 0.0).sum()


def predicts_negative(logits: Float[Tensor, "N C"]) -> Tensor:
    """Predict which text pairs are negative, ``[N]``: label 1 is likelier."""
    n_logits = logits.shape[1]
    if n_logits == 1:
        return logits[:, 0] > 0
    return logits[:, 1] > logits[:, 0]


@dataclass(frozen=True)
class SyntheticPairs(Synthetic):
    """Batches of random text pairs, of context length."""

    context: int
    n_predictions: int
    """Masked tokens in each row."""

    def draw(self, generator: np.random.Generator, n_rows: int) -> PackedBatch:
        """Draw a batch of ``n_rows`` rows."""
        predicted = np.arange(self.n_predictions)
        examples = [
            Example(
                ids=generator.integers(self.vocab_size, size=self.context),
                segments=generator.integers(2, size=self.context),
                positions=predicted,
                targets=generator.integers(self.vocab_size, size=len(predicted)),
                label=int(generator.integers(2)),
            )
            for _ in range(n_rows)
        ]
        return pack(examples, width=self.context, pad_id=0)

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a batch."""
        return self.n_rows * self.context


def pair_settings(
    objective: MaskedObjective, tokenizer: Tokenizer, *, context: int
) -> PairSettings:
    """Return the example settings of a masked objective.

    Raises ConfigError where the tokenizer lacks a required id.
    """
    if objective.masking != "token" and not tokenizer.has_words:
        raise ConfigError(
            f"objective.masking = {objective.masking} needs a tokenizer with word boundaries, "
            f"and data.tokenizer = {tokenizer.kind} has none: "
            "use token, or data.tokenizer = unigram or wordpiece"
        )
    tokenizer.check_masking(f"the tokenizer, of kind {tokenizer.kind},")
    pairs = PairRule(
        task=objective.sentence,
        max_len=context,
        p_short=objective.p_short,
        target_per=objective.short_per,
        alone=objective.single_sentence,
    )
    masks = MaskRule(
        unit=objective.masking,
        share=objective.mask_share,
        most=objective.max_predictions,
        longest=objective.max_ngram,
        favours=objective.ngram_favours,
        p_mask=objective.p_mask,
        p_random=objective.p_random,
        counts=objective.mask_base,
        predicts_first=objective.predict_first,
    )
    is_maskable = np.ones(tokenizer.vocab_size, dtype=np.bool_)
    is_maskable[list(tokenizer.special_ids)] = False
    # Special ids come first in a vocabulary, except those added later.
    first = int(np.flatnonzero(is_maskable)[0])
    is_maskable[first : first + objective.spared_ids] = False
    assert tokenizer.mask_id is not None, "the vocabulary was checked"
    low = 0 if objective.random_ids == "all" else first
    vocabulary = MaskVocabulary(tokenizer.mask_id, is_maskable, random_low=low)
    return PairSettings(
        pairs, masks, vocabulary, unit=objective.pairs, static_copies=objective.static_copies
    )


_T = TypeVar("_T")
LOSS_OF_ITEMS = quotient_of(MaskedObjective.evaluated["loss"])
HIDDEN = LOSS_OF_ITEMS.table
"""Name of the table of masked tokens; pairs have ``nsp_pairs`` and ``sop_pairs``."""
SEED = 0
"""Seed of scored pairs and masks, the same for every model."""


@dataclass(frozen=True)
class Scoring:
    """Scored amount of text, and batch size."""

    context: int
    """Tokens of a row, and of the longest example."""
    batch_sequences: int
    """Examples computed at a time; affects speed and memory only."""
    n_examples: int | None = None
    """Most examples, of one pass over a text; None: whole passes."""
    n_pairs: int = 1
    """Fewest examples of whole passes, where ``n_examples`` is None."""


class _ScoredBatches:
    """Scored batches of a text: ranges of the examples of its passes."""

    def __init__(self, split: Split, settings: PairSettings, scoring: Scoring) -> None:
        # The text may be a single document, unlike the training text.
        pairs = replace(settings.pairs, negatives="anywhere")
        # Scored tokens are masked, and differ between passes.
        masks = replace(settings.masks, predicts_first=False)
        settings = replace(settings, pairs=pairs, masks=masks, static_copies=None)
        size = scoring.batch_sequences
        self._batches = PairBatches(
            split, settings, context=scoring.context, batch_sequences=size, seed=SEED
        )
        n_examples = self._batches.n_in_passes(scoring.n_pairs)
        if scoring.n_examples is not None:
            n_examples = min(scoring.n_examples, self._batches.n_in_passes(1))
        self._ranges = [
            range(start, min(start + size, n_examples)) for start in range(0, n_examples, size)
        ]

    def rows(
        self,
        encoder: Encoder,
        work: Callable[[PackedBatch, Sequence[Example], NDArray[np.int64]], _T],
        progress: Progress,
        processes: Processes,
    ) -> list[_T]:
        """Compute ``work`` of each batch, in order, without dropout or gradients.

        Arguments of ``work``: batch, examples, and their indices in batch order, ``[N]``.
        ``progress`` receives the examples done and the total.
        """
        device = encoder.embedding.weight.device

        def score_one(index: int) -> _T:
            positions = self._ranges[index]
            made = self._batches.make(positions)
            batch = self._batches.packed(made)
            result = work(batch.to(device), made, np.array(batch.numbers, dtype=np.int64))
            progress(positions.stop, self._ranges[-1].stop)
            return result

        with evaluating(encoder), torch.inference_mode():
            return compute_each(score_one, len(self._ranges), processes)

    def table(self, name: str, unit: str, columns: Sequence[dict[str, Numbers]]) -> ItemTable:
        """Return the columns of all batches as a table, with the examples' digest."""
        split = self._batches.split
        digest = Digest(name, split.store.sha256)
        documents: list[int] = []
        for positions in self._ranges:
            documents += self._batches.documents(positions)
            for example in self._batches.make(positions):
                for ids in (example.ids, example.segments, example.positions, example.targets):
                    digest.add(ids)
                digest.add([example.label])
        joined = {key: np.concatenate([part[key] for part in columns]) for key in columns[0]}
        return ItemTable(unit, digest.hexdigest(), joined, np.array(documents))


Task = Literal["nsp", "sop"]
_NORMAL_QUANTILE = 1.959963984540054
"""Quantile of the normal distribution at 97.5 %."""


class PairScore(NamedTuple):
    """Counts of text pairs that an encoder classifies correctly."""

    n_pairs: int
    n_correct: int
    n_independent: int
    """Pairs of a single pass over the text: no two share a sentence."""

    @property
    def accuracy(self) -> float:
        """Share of correct pairs, from 0 to 1; NaN without pairs."""
        return self.n_correct / self.n_pairs if self.n_pairs else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95% CI of the accuracy (Wilson 1927); NaN without pairs.

        Pairs are assumed independent, so only one pass over the text counts: other pairs of the
        same sentences add little.
        """
        if not self.n_pairs:
            return math.nan, math.nan
        z = _NORMAL_QUANTILE
        n = min(self.n_pairs, self.n_independent)
        p = self.accuracy
        z_squared = z * z
        shrinkage = 1 + z_squared / n
        centre = (p + z_squared / (2 * n)) / shrinkage
        variance = p * (1 - p) / n + z_squared / (4 * n * n)
        half = z / shrinkage * math.sqrt(variance)
        return centre - half, centre + half


def score_pairs(
    encoder: Encoder,
    split: Split,
    settings: PairSettings,
    scoring: Scoring,
    task: Task,
    progress: Progress = silent,
    processes: Processes = ALONE,
    tables: dict[str, ItemTable] | None = None,
) -> PairScore:
    """Score an encoder on text pairs: next sentence (nsp) or sentence order (sop).

    The task may differ from the training's. Tokens are masked as in training. A sentence without a
    partner gives no pair; a text without pairs scores 0 of 0. In a single document, negatives come
    from elsewhere in it.

    ``progress`` receives the examples done and the total; ``tables`` gets the pairs' items. The
    work is divided among ``processes``, and all return the same.
    """
    rule = replace(settings.pairs, task=task, alone="drop", negatives="anywhere")
    n_independent = 0
    if has_pairs(split):
        assert split.sentence_starts is not None, "the text was stored as sentences"
        starts, documents = split.sentence_starts, split.document_starts
        with_singles = replace(rule, alone="keep")
        pairs = make_pairs(starts, documents, len(split.ids), with_singles, seed=SEED, epoch=0)
        # Long sentences may fill an example, which leaves no pair.
        n_independent = int((pairs.b_stop > pairs.b_start).sum())
    if not n_independent:
        return PairScore(0, 0, 0)

    def judge(
        batch: PackedBatch, made: Sequence[Example], order: NDArray[np.int64]
    ) -> dict[str, Numbers]:
        _, cls, _ = states_at(encoder, batch)
        logits = encoder.sentence_logits(cls)
        is_labelled = batch.labels >= 0
        is_correct = (predicts_negative(logits) == batch.labels.bool()) & is_labelled
        return {
            name: np.bincount(order[chosen.cpu().numpy()], minlength=len(made))
            for name, chosen in (("pairs", is_labelled), ("correct", is_correct))
        }

    batches = _ScoredBatches(split, replace(settings, pairs=rule, unit="chunks"), scoring)
    columns = batches.rows(encoder, judge, progress, processes)
    if tables is not None:
        name = f"{task}_pairs"
        tables[name] = batches.table(name, "a pair of texts that is judged", columns)
    n_pairs, n_correct = (int(sum(c[name].sum() for c in columns)) for name in ("pairs", "correct"))
    return PairScore(n_pairs, n_correct, n_independent)


def has_pairs(split: Split) -> bool:
    """Check whether a document has two sentences, as a pair requires."""
    assert split.sentence_starts is not None, "the text was stored as sentences"
    return len(split.sentence_starts) > len(split.document_starts)


_CHUNK = 4096


def score_masked(
    encoder: Encoder,
    split: Split,
    settings: PairSettings,
    scoring: Scoring,
    progress: Progress = silent,
    processes: Processes = ALONE,
    tables: dict[str, ItemTable] | None = None,
) -> dict[str, Any]:
    """Score an encoder on the masked tokens of a text: its loss and accuracy, and their counts.

    Masks and pairs are the same for all models of a tokenizer. ``progress`` receives the examples
    done and the total; ``tables`` gets the examples' items. The work is divided among
    ``processes``, and all return the same. Raises DataError where no token is masked.
    """

    def score_batch(
        batch: PackedBatch, made: Sequence[Example], order: NDArray[np.int64]
    ) -> tuple[float, list[int], dict[str, Numbers]]:
        masked, _, _ = states_at(encoder, batch)
        hidden = encoder.to_embedding(masked)
        matrix, bias, cap = encoder.output_projection()
        targets = batch.predicted_ids
        nats = nats_of_targets(hidden, matrix, bias, targets, cap=cap)
        # Logits have the size of the vocabulary: a few tokens at a time. A cap leaves their order.
        parts = [product(part, matrix, bias).argmax(-1) for part in torch.split(hidden, _CHUNK)]
        is_correct = (torch.cat(parts) == targets).cpu().numpy()
        # Summed per example: items are examples, not tokens.
        owners, n = np.repeat(order, [len(made[index].positions) for index in order]), len(made)
        columns: dict[str, Numbers] = {
            "nats": np.bincount(owners, nats.each.double().cpu().numpy(), n),
            "tokens": np.bincount(owners, minlength=n),
            "correct": np.bincount(owners[is_correct], minlength=n),
        }
        return float(nats.total), targets.tolist(), columns

    batches = _ScoredBatches(split, settings, scoring)
    rows = batches.rows(encoder, score_batch, progress, processes)
    if tables is not None and rows:
        unit = "an example: the tokens that are hidden in it"
        tables[HIDDEN] = batches.table(HIDDEN, unit, [columns for _, _, columns in rows])
    frequencies = Counter(target for _, targets, _ in rows for target in targets)
    n_correct = int(sum(columns["correct"].sum() for _, _, columns in rows))
    n_tokens = frequencies.total()
    if not n_tokens:
        sources = " and ".join(split.sources)
        raise DataError(
            f"{sources} gives no token to mask: give a longer text, or fewer objective.spared_ids"
        )
    return {
        "loss": add_up(total for total, _, _ in rows) / n_tokens,
        "mlm_accuracy": n_correct / n_tokens,
        "majority_accuracy": max(frequencies.values()) / n_tokens,
        "mlm_tokens": n_tokens,
    }


def encoder_scores(
    encoder: Encoder,
    split: Split,
    objective: MaskedObjective,
    scoring: Scoring,
    progress: Callable[[str, int, int], None] = lambda what, n_done, n_all: None,
    processes: Processes = ALONE,
    tables: dict[str, ItemTable] | None = None,
) -> dict[str, Any]:
    """Score an encoder on a text by every measure with a head and enough pairs.

    ``loss`` is in nats per masked token; ``majority_accuracy`` is the baseline of ``mlm_accuracy``
    that always predicts the most frequent masked token; ``nsp_`` and ``sop_`` include the number of
    pairs and the 95% CI. Accuracies are shares, from 0 to 1. ``progress`` receives the measure
    before the amount; ``tables`` gets the items of a test.

    Raises ConfigError where the tokenizer lacks an id of the objective, DataError where the text
    has no maskable token.
    """
    settings = pair_settings(objective, split.tokenizer, context=scoring.context)
    judges = "sentence" in encoder.heads
    if not judges:
        # Later passes serve only pairs.
        scoring = replace(scoring, n_pairs=1)
    shown = partial(progress, "masked tokens")
    scores = score_masked(encoder, split, settings, scoring, shown, processes, tables)
    tasks: tuple[Task, ...] = ("nsp", "sop") if judges else ()
    for task in tasks:
        shown = partial(progress, f"{task} pairs")
        judged = score_pairs(encoder, split, settings, scoring, task, shown, processes, tables)
        if judged.n_pairs:
            scores[f"{task}_accuracy"] = judged.accuracy
            scores[f"{task}_pairs"] = judged.n_pairs
            scores[f"{task}_interval"] = list(judged.interval)
    return scores


DEFAULT_PAIRS = 2000
"""Fewest scored examples without the option ``pairs``."""
_SHORT_LABELS = {
    "mlm_accuracy": "MLM",
    "nsp_accuracy": "NSP",
    "sop_accuracy": "SOP",
}
_TASKS = {"nsp": "next sentence", "sop": "sentence order"}


_BATCH_TOKENS = 4096


def _check_documents(recipe: Recipe, texts: DividedTexts) -> None:
    """Raise DataError where negative pairs need a second training document."""
    objective = own_objective(recipe, MaskedObjective)
    is_alone = objective.sentence == "sop" and objective.single_sentence == "negative"
    if objective.sentence != "nsp" and not is_alone:
        return
    n_documents = {
        split: sum(map(len, texts.ranges(split))) for split in SPLITS if texts.has(split)
    }
    if n_documents["train"] == 1:
        needing = "single_sentence = negative" if is_alone else "sentence = nsp"
        raise DataError(
            f"objective.{needing} pairs sentences of two documents, and the training split has 1 "
            f"of the text's {sum(n_documents.values())}: give more documents, a data.split that "
            "leaves it two (data.valid_path names a validation text), or "
            "objective.sentence=none"
        )


def _accuracy(name: str, label: str) -> Metric:
    return Metric(
        name,
        f"{label}, %",
        is_lower_better=False,
        from_items=quotient_of(MaskedObjective.evaluated[name]),
        unit=f"points of {label}",
        factor=100.0,
        decimals=1,
    )


def _judgement(task: str) -> Metric:
    return replace(
        _accuracy(f"{task}_accuracy", f"{task.upper()} accuracy"),
        has_head=lambda recipe: recipe.model.sentence_classes > 0,
        head="model.sentence_classes = 0",
        has_items=has_pairs,
        items="no document of the test split has two sentences",
    )


class MaskedFamily(Family):
    """Masked tokens and text pairs, scored by accuracy."""

    metrics = (
        _accuracy("mlm_accuracy", "MLM accuracy"),
        _judgement("nsp"),
        _judgement("sop"),
        Metric("loss", "nats per masked token", is_lower_better=True, from_items=LOSS_OF_ITEMS),
    )
    options = (*TEXT_OPTIONS, "pairs")

    def build(
        self, model: Transformer, config: MaskedObjective, seed: int, task: TaskSpec | None = None
    ) -> Masked:
        """Build the objective of an encoder."""
        return Masked(model, config)

    def prepare(self, recipe: Recipe, tokenizer: Tokenizer | None) -> Data:
        """Prepare a text; pairs of sentences need a second document."""
        return prepare(recipe.data, tokenizer=tokenizer, check=partial(_check_documents, recipe))

    def batches(self, recipe: Recipe, split: Split) -> PairBatches:
        """Build the examples of a recipe.

        Raises ConfigError where the tokenizer lacks a required id. Without examples in the split,
        the first batch raises DataError.
        """
        objective, context = own_objective(recipe, MaskedObjective), recipe.data.context
        settings = pair_settings(objective, split.tokenizer, context=context)
        batch_tokens = recipe.train.batch_tokens
        if batch_tokens is not None and fills_steps(recipe):
            data = recipe.data
            part_tokens = max(batch_tokens // data.batch_parts, data.context)
            rule = BatchRule(part_tokens, multiple=data.batch_multiple, parts=data.batch_parts)
            settings = replace(settings, steps=rule)
        return PairBatches(
            split,
            settings,
            context=context,
            batch_sequences=batch_sequences(recipe),
            seed=recipe.train.seed,
        )

    def synthetic(self, recipe: Recipe, vocab_size: int) -> SyntheticPairs:
        """Build random text pairs, with the usual number of predictions of a full row."""
        context = recipe.data.context
        n_predictions = recipe.objective.n_predictions(context)
        return SyntheticPairs(vocab_size, batch_sequences(recipe), context, n_predictions)

    def check_text(self, recipe: Recipe, split: Split) -> None:
        """Raise DataError where sentence pairs are required, and no document has two sentences.

        Not for pairs of single sentences (``objective.pairs``), which may cross documents.
        """
        objective = own_objective(recipe, MaskedObjective)
        if objective.sentence == "none" or objective.pairs == "sentences":
            return
        n_single, n_documents = count_single_sentences(split)
        if n_single == n_documents:
            raise DataError(
                f"objective.sentence = {objective.sentence} needs documents of two sentences or "
                f"more, and {'all ' if n_documents > 1 else ''}{count(n_documents, 'document')} of "
                f"the train split have one by data.sentences = {recipe.data.sentences}: divide "
                "them differently (data.sentences, data.documents), or train without "
                "(objective.sentence=none)"
            )

    def score(
        self,
        text_model: TextModel,
        split: Split,
        recipe: Recipe,
        effort: Effort,
        processes: Processes,
    ) -> Scored:
        """Score an encoder: in a test on one pass over the text, in training on a part."""
        model = text_model.model
        assert isinstance(model, Encoder), "masked objectives train encoders"
        context = recipe.data.context
        n_examples = None
        if effort == "training":
            assert recipe.train.evaluate_tokens is not None, "the recipe is resolved"
            n_examples = max(1, recipe.train.evaluate_tokens // context)
        scoring = Scoring(context, max(1, _BATCH_TOKENS // context), n_examples)
        tables: dict[str, ItemTable] | None = None if effort == "training" else {}
        scores = encoder_scores(
            model,
            split,
            own_objective(recipe, MaskedObjective),
            scoring,
            processes=processes,
            tables=tables,
        )
        if tables is None:
            return Scored(scores, items=None)
        items = Items(split.name, split.store.sha256, tables)
        return Scored({**scores, "loss": LOSS_OF_ITEMS.of(items)}, items)

    def evaluate(self, request: Evaluation) -> dict[str, Any]:
        """Score an encoder on full passes over a text, enough for at least ``--pairs`` pairs.

        An encoder without a sentence head is scored on one pass. Later passes form other pairs and
        mask other tokens. Outside a run the default objective is used, with n-gram masking where
        the tokenizer has words.

        Raises ConfigError and DataError as ``encoder_scores`` does.
        """
        encoder, recipe = request.model, request.recipe
        assert isinstance(encoder, Encoder), "masked objectives train encoders"
        if request.options.get("pairs") is not None and "sentence" not in encoder.heads:
            raise ConfigError(
                f"--pairs counts pairs of texts, but {request.run} has no head to classify them "
                "(objective.sentence = none): leave it out"
            )
        text = request.read_text(request.sentence_rule())
        objective = recipe.objective if recipe is not None else None
        if not isinstance(objective, MaskedObjective):
            objective = MaskedObjective(masking="ngram" if text.tokenizer.has_words else "token")
        context = min(context_of(encoder, recipe), encoder.config.max_len)
        batch = request.batch or scored_sequences(encoder, context)
        scoring = Scoring(context, batch, n_pairs=request.options.get("pairs", DEFAULT_PAIRS))
        shown: dict[str, Progress] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in shown:
                shown[what] = request.progress(f"scored {what}:", "examples")
            shown[what](done, total)

        scores = encoder_scores(encoder, text, objective, scoring, progress)
        n_documents = len(text.document_starts)
        negatives = "elsewhere in the one document" if n_documents == 1 else "other documents"
        return {
            **scores,
            "masking": objective.masking,
            "documents": n_documents,
            "nsp_negatives": negatives,
            "context": context,
            **request.describe_text(text),
        }

    def _describe(self, scores: Mapping[str, Any]) -> str:
        """Format the scores of training as one line."""
        accuracies = []
        for name, label in _SHORT_LABELS.items():
            if name in scores:
                accuracies.append(f"{label} {scores[name]:.1%}")
        return f"loss {scores['loss']:.4f} nats per masked token; accuracy: {', '.join(accuracies)}"

    def render(self, result: Mapping[str, Any]) -> str:
        """Format the scores of an encoder for the terminal."""
        n_hidden = f"nats per masked token, of {result['mlm_tokens']:,}"
        majority = f"always the most frequent: {result['majority_accuracy']:.1%}"
        rows = [
            ("loss", f"{result['loss']:.4f}", n_hidden),
            ("MLM accuracy", f"{result['mlm_accuracy']:.1%}", majority),
        ]
        for task, label in _TASKS.items():
            accuracy = result.get(f"{task}_accuracy")
            if accuracy is not None:
                low, high = result[f"{task}_interval"]
                n_pairs = result[f"{task}_pairs"]
                pairs = f"{count(n_pairs, 'pair')}, 95% CI {low:.1%} to {high:.1%}"
                rows.append((f"{label}, accuracy", f"{accuracy:.1%}", pairs))
        lines = [
            f"scored {describe_sources(result)}, in examples of up to {result['context']} tokens",
            table(["measure", "value", "of"], rows, right=[1]),
        ]
        if "nsp_accuracy" in result and result["documents"] == 1:
            lines.append(
                "the text is one document: "
                "negative next sentences come from elsewhere in it, not from another"
            )
        return "\n".join(lines)
