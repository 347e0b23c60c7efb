"""Translation objectives: their row, and their evaluation by ``sublayer evaluate``."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from sublayer.config.objective import BleuTokenizer, TranslationObjective, bleu_tokenizer_of
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import batch_sequences
from sublayer.counts import count
from sublayer.data.parallel import PairText
from sublayer.data.store import Split
from sublayer.data.tokenizers.languages import LanguageRules
from sublayer.data.translation_batches import TranslationBatches
from sublayer.decode.beam import BeamSettings
from sublayer.decode.translate import TranslatedLine, tokenizer_of
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.bleu import (
    COMPOUNDS,
    MEASURES,
    LineCounts,
    Lines,
    check_bleu_tokenizer,
    compare_translations,
    count_lines,
    count_translations,
    reference_lines,
    translated_lines,
    word_rule_of,
)
from sublayer.evaluation.split_work import Processes
from sublayer.files.lines import text_lines
from sublayer.loading import CHECKPOINTS_NAME, load
from sublayer.model.transformer import EncoderDecoder, Transformer, evaluating
from sublayer.numbers import interval_ends
from sublayer.objective.evaluation import Evaluation, own_objective
from sublayer.objective.family import Effort, Family, Scored
from sublayer.objective.metric import Metric
from sublayer.objective.targets import SyntheticTargets
from sublayer.objective.translation.loss import (
    LOSS_OF_ITEMS,
    Translation,
    batch_tokens,
    nats_of_pairs,
    score_of_items,
    scoring_batches,
    translate_ids,
    translate_ids_exactly,
    translate_pairs,
    translation_items,
    translation_nats,
)
from sublayer.system.memory import keep_freed_memory
from sublayer.system.stages import note
from sublayer.system.terminal import terminal_width
from sublayer.tables import table
from sublayer.tasks.registry import TaskSpec
from sublayer.text_model import TextModel

BEAM_OPTIONS = {
    "beam": "beam",
    "length_rule": "rule",
    "length_penalty": "penalty",
    "max_length_ratio": "max_length_ratio",
    "max_length_offset": "max_length_offset",
}
"""Options of commands that translate, and the settings of the beam that they give."""
_DEFAULT_SENTENCES = 32
_FEWEST_WORDS = 3
"""Words of a reference, in the mean, below which BLEU says little."""
_LABELS = {
    "bleu": "BLEU of words",
    "sacrebleu": "BLEU of text",
    "chrf": "chrF of text",
    COMPOUNDS: "BLEU, compounds split",
}


def beam_settings(recipe: Recipe | None, options: Mapping[str, Any]) -> BeamSettings:
    """Return the beam settings of options, by default the run's.

    ``options`` are keyed by ``BEAM_OPTIONS``. Outside a translation run, other settings have
    defaults.

    Raises ConfigError for values without meaning.
    """
    objective = None if recipe is None else recipe.objective
    settings = BeamSettings()
    if isinstance(objective, TranslationObjective):
        settings = BeamSettings.of(objective)
    given = {}
    for option, name in BEAM_OPTIONS.items():
        if option in options:
            given[name] = options[option]
    return replace(settings, **given)


def _translate(
    text_model: TextModel,
    asked: Evaluation,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    label: str,
) -> list[TranslatedLine]:
    shown = asked.progress(label, "lines")
    sentences = asked.batch or _DEFAULT_SENTENCES

    def progress(n_done: int) -> None:
        shown(n_done, len(pairs))

    return translate_pairs(text_model, pairs, settings, sentences=sentences, progress=progress)


def _other(
    against: Path,
    asked: Evaluation,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    tokens: BleuTokenizer,
) -> tuple[Lines, bool]:
    """Return the other system's translations, and whether its words are divided as ours."""
    if against.is_file():
        return Lines(_read_translations(against, len(pairs)), (), ""), False
    # A single checkpoint or imported folder has nothing to average.
    average = asked.average if (against / CHECKPOINTS_NAME).is_dir() else None
    other = load(against, device=asked.model.embedding.weight.device, average=average)
    if not isinstance(other.model, EncoderDecoder):
        raise ConfigError(
            f"{against} is a {other.model.config.kind}, which translates nothing: "
            "name a translator, or a file"
        )
    theirs, mine = tokenizer_of(other), tokenizer_of(asked.text_model)
    if theirs.source.content() != mine.source.content():
        # The other was not trained on words divided by the run's rules.
        pairs = [p._replace(source_words=" ".join(theirs.source.words(p.source))) for p in pairs]
    translations = _translate(other, asked, pairs, settings, f"translated by {against}")
    lines = translated_lines([hypothesis.ids for hypothesis in translations], theirs, tokens)
    return lines, theirs.target.content() == mine.target.content()


def _with_targets(pairs: Sequence[PairText], path: Path, rules: LanguageRules) -> list[PairText]:
    """Return pairs with the lines of a file as their references."""
    texts = _read_translations(path, len(pairs))
    return [
        pair._replace(target=text, target_words=" ".join(rules.words(text)))
        for pair, text in zip(pairs, texts, strict=True)
    ]


def _read_translations(path: Path, n_lines: int) -> list[str]:
    texts = text_lines(path, n_lines + 1)
    if len(texts) != n_lines:
        amount = count(len(texts), "line") if len(texts) < n_lines else "more lines"
        raise DataError(f"{path} has {amount}, the split has {n_lines:,}: give one for each line")
    return texts


def _compare(
    ours: Mapping[str, LineCounts], other: Lines, references: Lines, *, lowercase: bool, words: bool
) -> dict[str, dict[str, Any]]:
    """Compare the other's translations by text, and by ``words`` where divided alike."""
    if not words:
        other = replace(other, words=other.texts)
    theirs = count_translations(other, references, lowercase=lowercase)
    names = [name for name in MEASURES if words or name != "bleu"]
    return {name: asdict(compare_translations(ours[name], theirs[name])) for name in names}


def _caveats(result: Mapping[str, Any]) -> list[str]:
    n_words, n_lines = result["reference_words"], result["lines"]
    lines = {
        "with compounds split BLEU is inflated: comparable only with what is scored in the same "
        "way": COMPOUNDS in result,
        f"{count(result['too_long'], 'line')} longer than the model reads, scored as empty": result[
            "too_long"
        ],
        f"BLEU finds {count(n_words, 'word')} in {count(n_lines, 'reference')}, too few for its "
        "4-grams: of text without spaces give --bleu-tokenizer char, or the language's own; chrF "
        "reads characters": n_words < _FEWEST_WORDS * n_lines,
        f"empty sources: {result['empty_sources']:,}": result["empty_sources"],
        f"empty references: {result['empty_references']:,}": result["empty_references"],
        f"{count(result['unknown_tokens'], 'token')} of what was translated unknown to the "
        "vocabulary": result["unknown_tokens"],
    }
    return [line for line, is_one in lines.items() if is_one]


def _render_compared(against: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    rows = [
        (
            labels[name],
            f"{measure['value']:.2f}",
            f"{measure['other']:.2f}",
            f"{measure['difference']:+z.2f}",
            " to ".join(interval_ends(measure["interval"], 2)),
            f"{measure['p_randomisation']:.4f}",
        )
        for name, measure in against["measures"].items()
    ]
    heads = ["measure", "this", "other", "difference", "95% CI", "p, randomisation"]
    numbers = range(1, len(heads))
    measures = table(heads, rows, right=numbers, width=terminal_width())
    return ["", f"against {against['system']}:", measures]


GREEDY = BeamSettings(beam=1, max_length_ratio=2.0, max_length_offset=10.0)
"""The search while training continues: a translation not yet learned does not end by itself."""
_LARGEST_EXPONENT = 700.0


def _values(counted: Mapping[str, LineCounts]) -> dict[str, Any]:
    """Return the scores of all measures, and their signatures."""
    values = {name: lines.value for name, lines in counted.items()}
    return {**values, "signature": {name: lines.signature for name, lines in counted.items()}}


def _bleu(name: str, label: str, unit: str) -> Metric:
    return Metric(
        name,
        label,
        is_lower_better=False,
        from_items=score_of_items(name),
        unit=unit,
        decimals=2,
    )


class TranslationFamily(Family):
    """Translation, scored by BLEU and chrF."""

    metrics = (
        _bleu("bleu", "BLEU of words", "BLEU"),
        _bleu("sacrebleu", "BLEU of text", "BLEU"),
        _bleu("chrf", "chrF", "chrF"),
        replace(
            _bleu(COMPOUNDS, "BLEU, compounds split", "BLEU"),
            has_head=lambda recipe: recipe.data.moses_hyphens,
            asks="words that are divided at hyphens",
            head="data.moses_hyphens = false",
        ),
        Metric("loss", "nats per token", is_lower_better=True, from_items=LOSS_OF_ITEMS),
    )
    options = (*BEAM_OPTIONS, "lowercase", "compounds", "bleu_tokenizer", "references", "against")

    def build(
        self,
        model: Transformer,
        config: TranslationObjective,
        seed: int,
        task: TaskSpec | None = None,
    ) -> Translation:
        """Put an encoder-decoder into its objective."""
        return Translation(model, config)

    def batches(self, recipe: Recipe, split: Split) -> TranslationBatches:
        """Build batches of pairs, of ``train.batch_tokens``, else of the batch's sequences in full.

        Raises DataError where every pair is too long.
        """
        data = recipe.data
        return TranslationBatches(
            split,
            context=data.context,
            batch_tokens=batch_tokens(recipe),
            seed=recipe.train.seed,
            starts_with_pad=recipe.model.decoder_start == "pad",
            multiple=data.batch_multiple,
            order=data.batch_order,
            parts=data.batch_parts,
        )

    def synthetic(self, recipe: Recipe, vocab_size: int) -> SyntheticTargets:
        """Build pairs of random texts of context length."""
        lengths = recipe.objective.lengths(recipe.data.context)
        return SyntheticTargets(vocab_size, batch_sequences(recipe), lengths)

    def epoch_tokens(self, recipe: Recipe, split: Split) -> int:
        """Count the tokens of an epoch: the first epoch's batches, as if full."""
        n_batches = self.batches(recipe, split).n_batches(0)
        return n_batches * batch_sequences(recipe) * recipe.data.context

    def check_scoring(self, recipe: Recipe) -> None:
        """Raise ConfigError where sacreBLEU lacks the tokenizer of evaluations.

        Notes the signature of the BLEU by which the best checkpoint is selected, if it is.
        """
        chooses = recipe.train.best_by == "bleu"
        asked = own_objective(recipe, TranslationObjective).bleu_tokenizer
        tokens = asked or bleu_tokenizer_of(recipe.data.target_language or "")
        if chooses or asked:
            check_bleu_tokenizer(tokens)
        if chooses:
            signature = count_lines("bleu", ["-"], ["-"], lowercase=False).signature
            rule = word_rule_of(recipe.data.moses, tokens)
            note(f"evaluations score BLEU of words: {signature}|words:{rule}")

    def score(
        self,
        text_model: TextModel,
        split: Split,
        recipe: Recipe,
        effort: Effort,
        processes: Processes,
    ) -> Scored:
        """Score pairs: the loss in training, and translations in a test."""
        model, tokenizer = text_model.model, tokenizer_of(text_model)
        assert isinstance(model, EncoderDecoder), "translation trains encoder-decoders"
        objective = own_objective(recipe, TranslationObjective)
        if effort == "training":
            loss = translation_nats(model, scoring_batches(recipe, split), processes)
            scores = {"loss": loss, "perplexity": math.exp(min(loss, _LARGEST_EXPONENT))}
            if recipe.train.best_by == "bleu":
                translate = translate_ids_exactly if recipe.train.exact else translate_ids
                # In the weights' precision, as translations after training.
                device = model.embedding.weight.device.type
                with evaluating(model), torch.autocast(device, enabled=False):
                    written = translate(text_model, split.pairs, GREEDY, processes)
                words = translated_lines(written, tokenizer, objective.bleu_tokenizer).words
                references = reference_lines(split.pairs, tokenizer, objective.bleu_tokenizer)
                bleu = count_lines("bleu", words, references.words, lowercase=False)
                scores["bleu"] = bleu.value
            return Scored(scores, items=None)
        settings = BeamSettings.of(objective)
        counted = count_translations(
            translated_lines(
                translate_ids(text_model, split.pairs, settings, processes),
                tokenizer,
                objective.bleu_tokenizer,
            ),
            reference_lines(split.pairs, tokenizer, objective.bleu_tokenizer),
            lowercase=bool(recipe.data.lowercase),
            compounds=recipe.data.moses_hyphens,
        )
        nats = nats_of_pairs(model, scoring_batches(recipe, split), processes)
        items = translation_items(split, nats, counted)
        return Scored({"loss": LOSS_OF_ITEMS.of(items), **_values(counted)}, items)

    def evaluate(self, asked: Evaluation) -> dict[str, Any]:
        """Translate all pairs of a split of the run's text, and score the translations.

        Options: ``lowercase`` ignores case, as is always done for lower-cased models; ``against``
        is another translator, or a file of translations by line, to compare with; ``references``
        are files of further references by line; ``bleu_tokenizer`` replaces sacreBLEU's tokenizer
        of the run's objective or language; ``compounds`` adds BLEU with compounds split, as runs
        with words divided at hyphens always have; ``BEAM_OPTIONS`` change the beam.

        Raises ConfigError outside a run, for a meaningless option, or where ``against`` is not a
        translator; DataError where a file has another number of lines.
        """
        text_model, recipe = asked.text_model, asked.recipe
        options = asked.options
        if recipe is None:
            raise ConfigError(
                f"{asked.run} does not belong to a run, so it has no text of its own: "
                "use `sublayer translate`"
            )
        tokens = (
            options.get("bleu_tokenizer")
            or own_objective(recipe, TranslationObjective).bleu_tokenizer
        )
        tokenizer = tokenizer_of(text_model)
        tokens = tokens or bleu_tokenizer_of(tokenizer.target.language)
        check_bleu_tokenizer(tokens)
        keep_freed_memory()
        pairs = asked.own_text().pairs
        settings = beam_settings(recipe, options)
        against = options.get("against")
        more = [
            reference_lines(_with_targets(pairs, path, tokenizer.target), tokenizer, tokens)
            for path in options.get("references", ())
        ]
        other = None if against is None else _other(against, asked, pairs, settings, tokens)
        translations = _translate(text_model, asked, pairs, settings, "translated")
        ours = translated_lines([hypothesis.ids for hypothesis in translations], tokenizer, tokens)
        references = reference_lines(pairs, tokenizer, tokens)
        references = replace(references, more=tuple(more))
        lowercase = "lowercase" in options or bool(recipe.data.lowercase)
        compounds = "compounds" in options or recipe.data.moses_hyphens
        counted = count_translations(ours, references, lowercase=lowercase, compounds=compounds)
        n_words = int(counted["sacrebleu"].counts[:, 1].sum())
        result: dict[str, Any] = {
            **_values(counted),
            "lines": len(pairs),
            "too_long": sum(hypothesis.is_too_long for hypothesis in translations),
            "unknown_tokens": sum(hypothesis.n_unknown for hypothesis in translations),
            "empty_sources": sum(not pair.source_words for pair in pairs),
            "empty_references": sum(not pair.target_words for pair in pairs),
            "reference_words": n_words,
            "references": 1 + len(more),
            "beam": settings.beam,
            "length_rule": settings.rule,
            "length_penalty": settings.penalty,
            "split": asked.split,
            "run": str(asked.run),
        }
        if other is not None:
            theirs, divides_alike = other
            compared = _compare(
                counted, theirs, references, lowercase=lowercase, words=divides_alike
            )
            result["against"] = {"system": str(against), "measures": compared}
        return {**result, "translations": list(ours.texts)}

    def _describe(self, scores: Mapping[str, Any]) -> str:
        """Format the scores of training as one line."""
        return f"loss {scores['loss']:.4f} nats per token, perplexity {scores['perplexity']:.2f}"

    def render(self, result: Mapping[str, Any]) -> str:
        """Format the scores for the terminal."""
        labels = dict(_LABELS)
        if str(result["signature"]["bleu"]).endswith("|words:spaces"):
            labels["bleu"] = "BLEU of words between spaces"
        rows = []
        signatures = result["signature"]
        for name, label in labels.items():
            if name in result:
                value = f"{result[name]:.2f}"
                rows.append((label, value, signatures[name]))
        lines = [
            f"translated {count(result['lines'], 'line')} of the {result['split']} split "
            f"with a beam of {result['beam']}"
            + (f", {result['references']} references" if result["references"] > 1 else ""),
            table(["measure", "value", "signature"], rows, right=[1], width=terminal_width()),
            *_caveats(result),
        ]
        if "against" in result:
            lines += _render_compared(result["against"], labels)
        return "\n".join(lines)
