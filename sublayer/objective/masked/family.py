"""Masked objectives: their row, and their evaluation by ``sublayer evaluate``."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sublayer.config.objective import MaskedObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import batch_sequences as trained_sequences
from sublayer.config.rules import fills_steps
from sublayer.counts import count
from sublayer.data.masked import PairBatches, count_single_sentences
from sublayer.data.prepare import Data, DividedTexts, prepare
from sublayer.data.store import Split
from sublayer.data.text.ranges import SPLITS
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.items import Items, ItemTable, quotient_of
from sublayer.evaluation.split_work import Processes, Progress
from sublayer.model.transformer import Encoder, Transformer
from sublayer.objective.evaluation import (
    Evaluation,
    batch_sequences,
    context_of,
    describe_sources,
    own_objective,
)
from sublayer.objective.family import TEXT_OPTIONS, Effort, Family, Scored
from sublayer.objective.masked.loss import Masked, SyntheticPairs, pair_settings, step_rule
from sublayer.objective.masked.scores import (
    LOSS_OF_ITEMS,
    Scoring,
    encoder_scores,
    has_pairs,
)
from sublayer.objective.metric import Metric
from sublayer.tables import table
from sublayer.tasks.registry import TaskSpec
from sublayer.text_model import TextModel

DEFAULT_PAIRS = 2000
"""Examples that are scored at least, where the option ``pairs`` is not given."""
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
            "leaves it two (data.valid_path names a text to validate on), or "
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
            settings = replace(settings, steps=step_rule(recipe, batch_tokens))
        return PairBatches(
            split,
            settings,
            context=context,
            batch_sequences=trained_sequences(recipe),
            seed=recipe.train.seed,
        )

    def synthetic(self, recipe: Recipe, vocab_size: int) -> SyntheticPairs:
        """Build random text pairs, with the usual number of predictions of a full row."""
        context = recipe.data.context
        n_predictions = recipe.objective.n_predictions(context)
        return SyntheticPairs(vocab_size, trained_sequences(recipe), context, n_predictions)

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
                "them otherwise (data.sentences, data.documents), or train without "
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

    def evaluate(self, asked: Evaluation) -> dict[str, Any]:
        """Score an encoder on full passes over a text, enough for at least ``--pairs`` pairs.

        An encoder without a sentence head is scored on one pass. Later passes form other pairs and
        mask other tokens. Outside a run the default objective is used, with n-gram masking where
        the tokenizer has words.

        Raises ConfigError and DataError as ``encoder_scores`` does.
        """
        encoder, recipe = asked.model, asked.recipe
        assert isinstance(encoder, Encoder), "masked objectives train encoders"
        if asked.options.get("pairs") is not None and "sentence" not in encoder.heads:
            raise ConfigError(
                f"--pairs counts pairs of texts, and {asked.run} has no head that judges them "
                "(objective.sentence = none): leave it out"
            )
        text = asked.read_text(asked.sentence_rule())
        objective = recipe.objective if recipe is not None else None
        if not isinstance(objective, MaskedObjective):
            objective = MaskedObjective(masking="ngram" if text.tokenizer.has_words else "token")
        context = min(context_of(encoder, recipe), encoder.config.max_len)
        batch = asked.batch or batch_sequences(encoder, context)
        scoring = Scoring(context, batch, n_pairs=asked.options.get("pairs", DEFAULT_PAIRS))
        shown: dict[str, Progress] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in shown:
                shown[what] = asked.progress(f"scored {what}:", "examples")
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
            **asked.describe_text(text),
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
                "what does not come next is from elsewhere in it, not from another"
            )
        return "\n".join(lines)
