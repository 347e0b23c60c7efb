"""Masked objectives: their row, and their evaluation by ``sublayer evaluate``."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sublayer.config.objective import MaskedObjective
from sublayer.config.recipe import Recipe
from sublayer.counts import count
from sublayer.data.prepare import Data, prepare
from sublayer.data.split import Split
from sublayer.data.text.splitting import SPLITS
from sublayer.data.texts import Texts
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.items import FromItems
from sublayer.evaluation.split_work import Processes
from sublayer.model.build import Encoder
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import (
    Evaluation,
    Progress,
    batch_sequences,
    context_of,
    describe_sources,
)
from sublayer.objective.family import TEXT_OPTIONS, Effort, Family, Scored, stored_tokens
from sublayer.objective.masked.loss import Masked, check_sentences, masked_batches, synthetic_pairs
from sublayer.objective.masked.scores import (
    ACCURACY_OF_ITEMS,
    LOSS_OF_ITEMS,
    EncoderItems,
    Scoring,
    encoder_scores,
    has_pairs,
    judged_of_items,
)
from sublayer.objective.metric import Metric
from sublayer.tables import table

DEFAULT_PAIRS = 2000
"""Examples that are scored at least, where the option ``pairs`` is not given."""
_SHORT_LABELS = {
    "mlm_accuracy": "MLM",
    "nsp_accuracy": "NSP",
    "sop_accuracy": "SOP",
}
_TASKS = {"nsp": "next sentence", "sop": "sentence order"}


def evaluate_encoder(asked: Evaluation) -> dict[str, Any]:
    """Score an encoder on whole passes over a text, as many as give the pairs that are asked for.

    One without a head for pairs is scored on one pass. A later pass cuts other pairs out of the
    same text, and hides other tokens. Outside a run the objective is the default one, with n-grams
    hidden where the tokenizer has words.

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


def describe_encoder(scores: Mapping[str, Any]) -> str:
    """Format the scores of training as one line."""
    accuracies = []
    for name, label in _SHORT_LABELS.items():
        if name in scores:
            accuracies.append(f"{label} {scores[name]:.1%}")
    return f"loss {scores['loss']:.4f} nats per masked token; accuracy: {', '.join(accuracies)}"


def render_encoder(result: Mapping[str, Any]) -> str:
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
