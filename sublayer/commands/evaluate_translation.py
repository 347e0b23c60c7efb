"""What ``sublayer evaluate`` does with a translator: translate a text, and score that against its translations."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sublayer.commands.base import table
from sublayer.commands.reading import TokenProgress
from sublayer.errors import ConfigError

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.decode.beam import BeamSettings
    from sublayer.model.encoder_decoder import EncoderDecoder

_LABELS = {
    "bleu": "BLEU of words",
    "sacrebleu": "BLEU of text",
    "chrf": "chrF of text",
    "bleu_compounds": "BLEU, compounds split",
}


def evaluate_translator(
    run: Path,
    model: "EncoderDecoder",
    recipe: "Recipe | None",
    split: Literal["valid", "test"],
    settings: "BeamSettings",
    sentences: int,
    *,
    compounds: bool,
) -> dict[str, Any]:
    """Translate a split of the run's own text, every pair of it, and score the translations."""
    from sublayer.data.pair_texts import read_split
    from sublayer.decode.translate import translate_lines
    from sublayer.evaluate.bleu import compound_split_bleu, score_translations

    if recipe is None:
        raise ConfigError(f"{run} does not belong to a run, so it has no text of its own: use `sublayer translate`")
    pairs = read_split(recipe.data, split)
    shown = TokenProgress("translated", "lines")
    found = list(
        translate_lines(
            model,
            [pair.source_words for pair in pairs],
            settings,
            sentences=sentences,
            window=len(pairs),
            are_words=True,
            progress=lambda done: shown(done, len(pairs)),
        )
    )
    scores = score_translations([each.ids for each in found], pairs, model.tokenizer, lowercase=recipe.data.lowercase)
    if compounds:
        words = [" ".join(model.tokenizer.words(each.ids)) for each in found]
        scores["bleu_compounds"] = compound_split_bleu(words, [pair.target_words for pair in pairs])
    return {
        **{name: score.value for name, score in scores.items()},
        "signature": {name: score.signature for name, score in scores.items()},
        "lines": len(pairs),
        "too_long": sum(each.is_too_long for each in found),
        "beam": settings.beam,
        "length_rule": settings.rule,
        "length_penalty": settings.penalty,
        "split": split,
        "run": str(run),
        "translations": [model.tokenizer.write(each.ids) for each in found],
    }


def render_translator(result: Mapping[str, Any]) -> str:
    """Lay the scores out."""
    names = [name for name in _LABELS if name in result]
    rows = [(_LABELS[name], f"{result[name]:.2f}", result["signature"][name]) for name in names]
    lines = [
        f"translated {result['lines']:,} lines of the {result['split']} split with a beam of {result['beam']}",
        table(["measure", "value", "signature"], rows, right=[1]),
    ]
    if "bleu_compounds" in result:
        lines.append("with compounds split BLEU is inflated: comparable only with what is scored in the same way")
    if result["too_long"]:
        lines.append(f"{result['too_long']:,} lines were longer than the model reads, and were scored as empty")
    return "\n".join(lines)
