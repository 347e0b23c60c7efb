"""Evaluation of an encoder by ``sublayer evaluate``: masked tokens, and pairs of texts."""

from collections.abc import Mapping
from typing import Any

from sublayer.config.objectives.masked import MaskedObjective
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.model.encoder import Encoder
from sublayer.objective.evaluation import (
    Evaluation,
    Progress,
    batch_sequences,
    context_of,
    describe_sources,
)
from sublayer.objective.masked.scored_batches import Scoring
from sublayer.objective.masked.scores import encoder_scores
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
