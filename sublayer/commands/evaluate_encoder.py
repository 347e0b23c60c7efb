"""What ``sublayer evaluate`` does with an encoder: hidden tokens predicted, and pairs of texts judged."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.commands.base import table
from sublayer.commands.reading import TokenProgress, batch_sequences, context_of
from sublayer.config.objective import MaskedObjective

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.data.split import Split
    from sublayer.model.encoder import Encoder

DEFAULT_PAIRS = 2000
_TASKS = {"nsp": "next sentence", "sop": "sentence order"}


@dataclass(frozen=True)
class Amount:
    """How much is scored: so many examples at least, so many of them in a batch (None: what the device is quick at)."""

    pairs: int
    batch: int | None


def evaluate_encoder(
    run: Path, encoder: "Encoder", recipe: "Recipe | None", text: "Split", amount: Amount
) -> dict[str, Any]:
    """Score an encoder on a text: whole passes over it, as many as give the pairs that are asked for.

    A later pass cuts other pairs out of the same text, and hides other tokens.
    """
    from sublayer.evaluate.masked import Scoring, encoder_scores
    from sublayer.model.cost import need

    objective = recipe.objective if recipe is not None else None
    if not isinstance(objective, MaskedObjective):
        objective = MaskedObjective(masking="ngram" if text.tokenizer.has_words else "token")
    context = min(context_of(encoder, recipe), need(encoder.config.max_len))
    scoring = Scoring(context, amount.batch or batch_sequences(encoder, context), n_pairs=amount.pairs)
    shown: dict[str, TokenProgress] = {}

    def progress(what: str, done: int, total: int) -> None:
        shown.setdefault(what, TokenProgress(f"scored {what}:", "examples"))(done, total)

    scores = encoder_scores(encoder, text, objective, scoring, progress)
    return {
        **scores,
        "masking": objective.masking,
        "documents": len(text.document_starts),
        "nsp_negatives": "other documents" if len(text.document_starts) > 1 else "elsewhere in the one document",
        "context": context,
        "run": str(run),
    }


def render_encoder(result: Mapping[str, Any]) -> str:
    """Lay the scores of an encoder out for the terminal."""
    rows = [
        ("loss", f"{result['loss']:.4f}", f"nats per hidden token, of {result['mlm_tokens']:,}"),
        (
            "MLM accuracy",
            f"{result['mlm_accuracy']:.1%}",
            f"always the most frequent: {result['majority_accuracy']:.1%}",
        ),
    ]
    for task, label in _TASKS.items():
        if f"{task}_accuracy" in result:
            low, high = result[f"{task}_interval"]
            pairs = f"{result[f'{task}_pairs']:,} pairs, 95 % interval {low:.1%} to {high:.1%}"
            rows.append((f"{label}, accuracy", f"{result[f'{task}_accuracy']:.1%}", pairs))
    what = "" if result["split"] is None else f"the {result['split']} split of "
    lines = [
        f"scored {what}{', '.join(result['sources'])}, in examples of up to {result['context']} tokens",
        table(["measure", "value", "of"], rows, right=[1]),
    ]
    if "nsp_accuracy" in result and result["documents"] == 1:
        lines.append("the text is one document: what does not come next is from elsewhere in it, not from another")
    return "\n".join(lines)
