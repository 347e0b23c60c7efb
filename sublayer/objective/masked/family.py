"""The row of masked objectives."""

from dataclasses import replace
from functools import partial

from sublayer.config.objectives.masked import MaskedObjective
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data, prepare
from sublayer.data.split import Split
from sublayer.data.text.splitting import SPLITS
from sublayer.data.texts import Texts
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import DataError
from sublayer.evaluation.items import FromItems
from sublayer.evaluation.split_work import Processes
from sublayer.model.encoder import Encoder
from sublayer.model.transformer import Transformer
from sublayer.objective.family import TEXT_OPTIONS, Effort, Family, Scored, stored_tokens
from sublayer.objective.masked.batches import check_sentences, masked_batches, synthetic_pairs
from sublayer.objective.masked.evaluation import describe_encoder, evaluate_encoder, render_encoder
from sublayer.objective.masked.items import (
    ACCURACY_OF_ITEMS,
    LOSS_OF_ITEMS,
    EncoderItems,
    judged_of_items,
)
from sublayer.objective.masked.loss import Masked
from sublayer.objective.masked.pair_scores import has_pairs
from sublayer.objective.masked.scored_batches import Scoring
from sublayer.objective.masked.scores import encoder_scores
from sublayer.objective.metric import Metric

_BATCH_TOKENS = 4096


def _prepare(recipe: Recipe, tokenizer: Tokenizer | None) -> Data:
    return prepare(recipe.data, tokenizer=tokenizer, check=partial(_check_documents, recipe))


def _check_documents(recipe: Recipe, texts: Texts) -> None:
    """Raise DataError where a sentence's pair is of another document, and one is trained on."""
    objective = recipe.objective
    assert isinstance(objective, MaskedObjective), "the row is of masked objectives"
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


def _build(model: Transformer, config: MaskedObjective, seed: int) -> Masked:
    return Masked(model, config)


def _score(
    model: Transformer, split: Split, recipe: Recipe, effort: Effort, processes: Processes
) -> Scored:
    """Score an encoder: in a test on one pass over the text, in training on part of it."""
    assert isinstance(model, Encoder), "masked objectives train encoders"
    assert isinstance(recipe.objective, MaskedObjective), "the row is of masked objectives"
    context = recipe.data.context
    n_examples = None
    if effort == "training":
        assert recipe.train.evaluate_tokens is not None, "the recipe is resolved"
        n_examples = max(1, recipe.train.evaluate_tokens // context)
    scoring = Scoring(context, max(1, _BATCH_TOKENS // context), n_examples)
    if effort == "training":
        scores = encoder_scores(model, split, recipe.objective, scoring, processes=processes)
        return Scored(scores, items=None)
    gathered = EncoderItems(split)
    scores = encoder_scores(
        model, split, recipe.objective, scoring, processes=processes, items=gathered
    )
    items = gathered.items()
    return Scored({**scores, "loss": LOSS_OF_ITEMS.of(items)}, items)


def _accuracy(name: str, label: str, from_items: FromItems) -> Metric:
    return Metric(
        name,
        f"{label}, %",
        is_lower_better=False,
        from_items=from_items,
        unit=f"points of {label}",
        factor=100.0,
        decimals=1,
    )


def _judgement(task: str) -> Metric:
    return replace(
        _accuracy(f"{task}_accuracy", f"{task.upper()} accuracy", judged_of_items(task)),
        has_head=lambda recipe: recipe.model.sentence_classes > 0,
        head="model.sentence_classes = 0",
        has_items=has_pairs,
        items="no document of the test split has two sentences",
    )


MASKED = Family(
    build=_build,
    batches=masked_batches,
    check_text=check_sentences,
    synthetic=synthetic_pairs,
    epoch_tokens=stored_tokens,
    score=_score,
    prepare=_prepare,
    metrics=(
        _accuracy("mlm_accuracy", "MLM accuracy", ACCURACY_OF_ITEMS),
        _judgement("nsp"),
        _judgement("sop"),
        Metric("loss", "nats per masked token", is_lower_better=True, from_items=LOSS_OF_ITEMS),
    ),
    options=(*TEXT_OPTIONS, "pairs"),
    evaluation=evaluate_encoder,
    render=render_encoder,
    description=describe_encoder,
)
"""Predicts masked tokens and judges pairs, and is scored by the accuracy of both."""
