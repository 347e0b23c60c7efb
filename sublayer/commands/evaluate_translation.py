"""What ``sublayer evaluate`` does with a translator: translate a text, and score that against its translations."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sublayer.commands.base import table
from sublayer.commands.reading import TokenProgress, own_split
from sublayer.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from sublayer.config.recipe import Recipe
    from sublayer.data.pair_texts import PairText
    from sublayer.decode.beam import BeamSettings
    from sublayer.decode.translate import Translation
    from sublayer.evaluate.bleu import Lines
    from sublayer.model.encoder_decoder import EncoderDecoder

_LABELS = {
    "bleu": "BLEU of words",
    "sacrebleu": "BLEU of text",
    "chrf": "chrF of text",
    "bleu_compounds": "BLEU, compounds split",
}


@dataclass(frozen=True)
class Search:
    """How translations are found: by what beam, how many lines at a time, of how many checkpoints' mean, and where."""

    settings: "BeamSettings"
    sentences: int
    average: int | None
    device: "torch.device"


def evaluate_translator(
    run: Path,
    model: "EncoderDecoder",
    recipe: "Recipe | None",
    split: Literal["valid", "test"],
    search: Search,
    *,
    lowercase: bool,
    compounds: bool,
    against: Path | None,
) -> dict[str, Any]:
    """Translate a split of the run's own text, every pair of it, and score the translations.

    ``lowercase``: capitals do not count; of a model that knows none they never do. ``against`` is another translator,
    or a file with a translation on each line, to compare with.
    """
    from sublayer.data.pair_texts import read_split
    from sublayer.evaluate.bleu import compound_split_bleu, reference_lines, score_translations, translated_lines
    from sublayer.train.allocator import keep_freed_memory

    if recipe is None:
        raise ConfigError(f"{run} does not belong to a run, so it has no text of its own: use `sublayer translate`")
    keep_freed_memory()
    own_split(run, recipe, model, split)
    pairs = read_split(recipe.data, split)
    other = None if against is None else _other(against, model, pairs, search)
    found = _translate(model, pairs, search, "translated")
    ours = translated_lines([each.ids for each in found], model.tokenizer)
    references = reference_lines(pairs, model.tokenizer)
    lowercase = lowercase or recipe.data.lowercase
    scores = score_translations(ours, references, lowercase=lowercase)
    if compounds:
        scores["bleu_compounds"] = compound_split_bleu(ours.words, references.words, lowercase=lowercase)
    result: dict[str, Any] = {
        **{name: score.value for name, score in scores.items()},
        "signature": {name: score.signature for name, score in scores.items()},
        "lines": len(pairs),
        "too_long": sum(each.is_too_long for each in found),
        "unknown_tokens": sum(each.n_unknown for each in found),
        "empty_sources": sum(not pair.source_words for pair in pairs),
        "empty_references": sum(not pair.target_words for pair in pairs),
        "beam": search.settings.beam,
        "length_rule": search.settings.rule,
        "length_penalty": search.settings.penalty,
        "split": split,
        "run": str(run),
    }
    if other is not None:
        compared = _compare(ours, *other, references, lowercase=lowercase)
        result["against"] = {"system": str(against), "measures": compared}
    return {**result, "translations": list(ours.texts)}


def _translate(model: "EncoderDecoder", pairs: "Sequence[PairText]", search: Search, label: str) -> "list[Translation]":
    from sublayer.evaluate.translation import translate_pairs

    shown = TokenProgress(label, "lines")
    return translate_pairs(
        model, pairs, search.settings, sentences=search.sentences, progress=lambda done: shown(done, len(pairs))
    )


def _other(
    against: Path, model: "EncoderDecoder", pairs: "Sequence[PairText]", search: Search
) -> tuple[Sequence[str], Sequence[str] | None]:
    """Give another's translations as texts and, where it divides words as ours does, as words."""
    if against.is_file():
        return _read_translations(against, len(pairs)), None
    from sublayer.evaluate.bleu import translated_lines
    from sublayer.load import CHECKPOINTS_NAME, load
    from sublayer.model.encoder_decoder import EncoderDecoder

    # A single checkpoint and an imported folder have none to take the mean of.
    average = search.average if (against / CHECKPOINTS_NAME).is_dir() else None
    other = load(against, device=search.device, average=average)
    if not isinstance(other, EncoderDecoder):
        raise ConfigError(f"{against} is a {other.config.kind}, which translates nothing: name a translator, or a file")
    theirs, mine = other.tokenizer, model.tokenizer
    if theirs.source.content() != mine.source.content():
        pairs = [pair._replace(source_words=" ".join(theirs.source.words(pair.source))) for pair in pairs]
    found = _translate(other, pairs, search, f"translated by {against}")
    lines = translated_lines([each.ids for each in found], theirs)
    return lines.texts, lines.words if theirs.target.content() == mine.target.content() else None


def _read_translations(path: Path, n_lines: int) -> list[str]:
    from sublayer.data.lines import decoded, read_lines
    from sublayer.errors import DataError

    texts = [decoded(path, number, line).rstrip("\r\n") for number, line in read_lines(path)]
    if len(texts) != n_lines:
        raise DataError(f"{path} has {len(texts):,} lines, the split has {n_lines:,}: give a translation of each line")
    return texts


def _compare(
    ours: "Lines", texts: Sequence[str], words: Sequence[str] | None, references: "Lines", *, lowercase: bool
) -> dict[str, dict[str, Any]]:
    from sublayer.evaluate.significance import compare_translations

    found = {}
    if words is not None:
        found["bleu"] = compare_translations("bleu", ours.words, words, references.words, lowercase=lowercase)
    for name in ("sacrebleu", "chrf"):
        found[name] = compare_translations(name, ours.texts, texts, references.texts, lowercase=lowercase)
    return {name: asdict(paired) for name, paired in found.items()}


def render_translator(result: Mapping[str, Any]) -> str:
    """Lay the scores out."""
    names = [name for name in _LABELS if name in result]
    labels = {**_LABELS, "bleu": "BLEU of words between spaces"} if _is_between_spaces(result) else _LABELS
    rows = [(labels[name], f"{result[name]:.2f}", result["signature"][name]) for name in names]
    lines = [
        f"translated {result['lines']:,} lines of the {result['split']} split with a beam of {result['beam']}",
        table(["measure", "value", "signature"], rows, right=[1]),
    ]
    if "bleu_compounds" in result:
        lines.append("with compounds split BLEU is inflated: comparable only with what is scored in the same way")
    if result["too_long"]:
        lines.append(f"{result['too_long']:,} line(s) longer than the model reads were scored as empty")
    for side in ("sources", "references"):
        if result[f"empty_{side}"]:
            lines.append(f"{result[f'empty_{side}']:,} of the {side} are empty")
    if result["unknown_tokens"]:
        lines.append(f"{result['unknown_tokens']:,} tokens of what was translated are unknown to the vocabulary")
    if "against" in result:
        lines += _render_compared(result["against"], labels)
    return "\n".join(lines)


def _render_compared(against: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    rows = [
        (
            labels[name],
            f"{each['value']:.2f}",
            f"{each['other']:.2f}",
            f"{each['difference']:+.2f}",
            "{:+.2f} to {:+.2f}".format(*each["interval"]),
            f"{each['p_bootstrap']:.4f}",
            f"{each['p_randomisation']:.4f}",
        )
        for name, each in against["measures"].items()
    ]
    heads = ["measure", "this", "other", "difference", "95 % interval", "p, bootstrap", "p, randomisation"]
    return ["", f"against {against['system']}:", table(heads, rows, right=[1, 2, 3, 4, 5, 6])]


def _is_between_spaces(result: Mapping[str, Any]) -> bool:
    return str(result["signature"]["bleu"]).endswith("|words:spaces")
