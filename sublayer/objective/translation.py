"""Translation: its loss, its batches, its scores and their items.

Source: Vaswani et al. 2017 (1706.03762); label smoothing: Szegedy et al. 2016 (1512.00567), sec. 7.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sublayer.config.objective import BleuTokenizer, TranslationObjective, bleu_tokenizer_of
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import batch_sequences
from sublayer.data.parallel import PairText
from sublayer.data.store import Split
from sublayer.data.tokenizers.base import Ids
from sublayer.data.translation_batches import TranslationBatches, side_lengths
from sublayer.decode.beam import BeamSettings, TranslatedLine, tokenizer_of, translate_lines
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
    score_of_counts,
    translated_lines,
    word_rule_of,
)
from sublayer.evaluation.items import (
    ALONE,
    Digest,
    FromItems,
    Items,
    ItemTable,
    Metric,
    Processes,
    add_up,
    compute_each,
    quotient_of,
)
from sublayer.files.lines import text_lines
from sublayer.loading import CHECKPOINTS_NAME, load
from sublayer.model.kernels.products import Smoothing
from sublayer.model.transformer import EncoderDecoder, Transformer, evaluating
from sublayer.numbers import count, interval_ends, with_article
from sublayer.objective.base import (
    Effort,
    Evaluation,
    Family,
    Scored,
    SyntheticTargets,
    TargetLoss,
    TargetNats,
    nats_of_rows,
    own_objective,
)
from sublayer.system.machine import keep_freed_memory
from sublayer.system.terminal import note, terminal_width
from sublayer.tables import table
from sublayer.tasks.registry import TaskSpec
from sublayer.text_model import TextModel


class Translation(TargetLoss):
    """Loss of translations, with a recipe's label smoothing.

    uniform: a share ``e`` is spread over the vocabulary, target included (fairseq of 2019, with
    which Macaron Net was trained; Szegedy et al.). others: ``e`` is spread over the other entries
    (fairseq since).
    """

    def __init__(self, model: Transformer, config: TranslationObjective) -> None:
        vocab_size = model.config.vocab_size
        share, z = config.label_smoothing, config.z_loss
        smoothing = None
        if share or z:
            per_other = share / (vocab_size if config.smoothing == "uniform" else vocab_size - 1)
            trained = 1.0 - share if config.smoothing == "uniform" else 1.0 - share - per_other
            smoothing = Smoothing(trained, per_other, z)
        super().__init__(model, smoothing)


def scoring_batches(recipe: Recipe, split: Split) -> TranslationBatches:
    """Build batches to score a split, of the size of a training micro-batch, with little padding.

    Raises DataError where every pair is too long.
    """
    return TranslationBatches(
        split,
        context=recipe.data.context,
        batch_tokens=batch_tokens(recipe) // recipe.data.batch_parts,
        seed=recipe.train.seed,
        starts_with_pad=recipe.model.decoder_start == "pad",
    )


def batch_tokens(recipe: Recipe) -> int:
    """Count the tokens of a batch, padding included."""
    return recipe.train.batch_tokens or batch_sequences(recipe) * recipe.data.context


_GROUP = 256
"""Pairs translated together where results must not depend on the number of processes."""


def translation_nats(
    model: EncoderDecoder, batches: TranslationBatches, processes: Processes = ALONE
) -> float:
    """Compute the mean nats per target token, ends included, of pairs that are not too long.

    Without label smoothing. The work is divided among ``processes``, and all return the same.
    """
    objective = Translation(model, TranslationObjective())

    def score_batch(step: int) -> tuple[float, int]:
        batch = batches.batch(step).to(model.embedding.weight.device)
        return float(objective(batch)["nll"]), batch.n_predicted

    with evaluating(model), torch.inference_mode():
        rows = compute_each(score_batch, batches.n_batches(0), processes)
    return add_up(nats for nats, _ in rows) / sum(n for _, n in rows)


def nats_of_pairs(
    model: EncoderDecoder, batches: TranslationBatches, processes: Processes = ALONE
) -> TargetNats:
    """Compute the nats of every pair's target, end included, in the split's order.

    A pair that is too long has 0 nats and 0 tokens.
    """

    def score_batch(step: int) -> TargetNats:
        return nats_of_rows(model, batches.batch(step).to(model.embedding.weight.device))

    with evaluating(model), torch.inference_mode():
        rows = compute_each(score_batch, batches.n_batches(0), processes)
    n_pairs = len(side_lengths(batches.split))
    by_pair = TargetNats(np.zeros(n_pairs), np.zeros(n_pairs, dtype=np.int64))
    for step, row in enumerate(rows):
        indices = batches.places(step)
        by_pair.nats[indices], by_pair.tokens[indices] = row
    return by_pair


def translate_pairs(
    text_model: TextModel,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    *,
    sentences: int = 32,
    progress: Callable[[int], None] | None = None,
) -> list[TranslatedLine]:
    """Translate the source words of every pair; return translations in order.

    ``sentences`` of similar lengths are translated at a time: all pairs are sorted. ``progress``
    receives the number done.
    """
    translations = translate_lines(
        text_model,
        (pair.source_words for pair in pairs),
        settings,
        sentences=sentences,
        window=max(1, len(pairs)),
        are_words=True,
        progress=progress,
    )
    return list(translations)


def translate_ids(
    text_model: TextModel,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    processes: Processes = ALONE,
) -> list[Ids]:
    """Translate the source words of every pair, split among processes; return ids in order.

    Batches then differ, so that rounding may decide between equally good translations.
    """
    local_pairs = [pairs[index] for index in processes.own(len(pairs))]
    translations = translate_pairs(text_model, local_pairs, settings)
    return processes.gather([translation.ids for translation in translations], len(pairs))


def translate_ids_exactly(
    text_model: TextModel,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    processes: Processes = ALONE,
) -> list[Ids]:
    """Translate as ``translate_ids`` does, with ids independent of the number of processes.

    Pairs of similar lengths are translated in groups that depend only on them.
    """
    order = sorted(range(len(pairs)), key=lambda number: len(pairs[number].source_words))
    groups = [order[start : start + _GROUP] for start in range(0, len(order), _GROUP)]

    def work(index: int) -> list[Ids]:
        chosen = [pairs[number] for number in groups[index]]
        return [translation.ids for translation in translate_pairs(text_model, chosen, settings)]

    translated = chain.from_iterable(compute_each(work, len(groups), processes))
    return [ids for _, ids in sorted(zip(order, translated, strict=True), key=itemgetter(0))]


LOSS_OF_ITEMS = quotient_of(TranslationObjective.evaluated["loss"])
PAIRS, LINES, COMPOUND_LINES = LOSS_OF_ITEMS.table, "lines", "compound_lines"
"""Names of the tables; the last holds BLEU with compounds split, if scored."""


def translation_items(split: Split, nats: TargetNats, counted: Mapping[str, LineCounts]) -> Items:
    """Return nats of stored pairs' targets, and counts of translated lines.

    Pairs with an empty side are lines, but not stored; pairs that are too long have 0 nats and 0
    tokens.
    """
    assert split.sentence_starts is not None, "the text was stored as pairs"
    digest = Digest(PAIRS, split.store.sha256)
    digest.add(split.sentence_starts)
    digest.add(split.ids)
    unit = "a pair of texts: the tokens of its target, its end included"
    tables = {PAIRS: ItemTable(unit, digest.hexdigest(), nats._asdict(), None)}
    for name, measures in ((LINES, MEASURES), (COMPOUND_LINES, (COMPOUNDS,))):
        if measures[0] not in counted:
            continue
        sha256 = hashlib.sha256(f"{name}\n".encode())
        for pair in split.pairs:
            # No text of a pair contains a line break.
            sha256.update(f"{pair.source}\n{pair.target}\n".encode())
        tables[name] = ItemTable(
            "a line: its translation's n-grams, and those that it shares with the reference",
            sha256.hexdigest(),
            {measure: counted[measure].counts for measure in measures},
            None,
        )
    return Items(split.name, split.store.sha256, tables)


BEAM_OPTIONS = {
    "beam": "beam",
    "length_rule": "rule",
    "length_penalty": "penalty",
    "max_length_ratio": "max_length_ratio",
    "max_length_offset": "max_length_offset",
}
"""Options of translating commands, with their beam settings."""
_DEFAULT_SENTENCES = 32
_FEWEST_WORDS = 3
"""Mean words of a reference below which BLEU says little."""
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
    request: Evaluation,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    label: str,
) -> list[TranslatedLine]:
    shown = request.progress(label, "lines")
    sentences = request.batch or _DEFAULT_SENTENCES

    def progress(n_done: int) -> None:
        shown(n_done, len(pairs))

    return translate_pairs(text_model, pairs, settings, sentences=sentences, progress=progress)


def _other(
    against: Path,
    request: Evaluation,
    pairs: Sequence[PairText],
    settings: BeamSettings,
    tokens: BleuTokenizer,
) -> tuple[Lines, bool]:
    """Return the other system's translations, and whether both divide words alike."""
    if against.is_file():
        return Lines(_read_translations(against, len(pairs)), (), ""), False
    # A single checkpoint or imported folder has nothing to average.
    average = request.average if (against / CHECKPOINTS_NAME).is_dir() else None
    other = load(against, device=request.model.embedding.weight.device, average=average)
    if not isinstance(other.model, EncoderDecoder):
        raise ConfigError(
            f"{against} is {with_article(other.model.config.kind)}, which does not translate: "
            "name a translator, or a file"
        )
    theirs, mine = tokenizer_of(other), tokenizer_of(request.text_model)
    if theirs.source.content() != mine.source.content():
        # The other was not trained on words divided by the run's rules.
        pairs = [p._replace(source_words=" ".join(theirs.source.words(p.source))) for p in pairs]
    translations = _translate(other, request, pairs, settings, f"translated by {against}")
    lines = translated_lines([hypothesis.ids for hypothesis in translations], theirs, tokens)
    return lines, theirs.target.content() == mine.target.content()


def _read_translations(path: Path, n_lines: int) -> list[str]:
    texts = text_lines(path, n_lines + 1)
    if len(texts) != n_lines:
        amount = count(len(texts), "line") if len(texts) < n_lines else "more lines"
        raise DataError(
            f"{path} has {amount}, but the split has {n_lines:,}: give one for each line"
        )
    return texts


GREEDY = BeamSettings(beam=1, max_length_ratio=2.0, max_length_offset=10.0)
"""Search during training: an early model may not end its translations."""
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
        from_items=FromItems(
            COMPOUND_LINES if name == COMPOUNDS else LINES,
            lambda sums: score_of_counts(name, np.asarray(sums[name])),
        ),
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

        Notes the signature of the BLEU that selects the best checkpoint, if it does.
        """
        chooses = recipe.train.best_by == "bleu"
        named = own_objective(recipe, TranslationObjective).bleu_tokenizer
        tokens = named or bleu_tokenizer_of(recipe.data.target_language or "")
        if chooses or named:
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

    def evaluate(self, request: Evaluation) -> dict[str, Any]:
        """Translate all pairs of a split of the run's text, and score the translations.

        Options: ``lowercase`` ignores case, as is always done for lower-cased models; ``against``
        is another translator, or a file of translations by line, to compare with; ``references``
        are files of further references by line; ``bleu_tokenizer`` replaces sacreBLEU's tokenizer
        of the run's objective or language; ``compounds`` adds BLEU with compounds split, as runs
        with words divided at hyphens always have; ``BEAM_OPTIONS`` change the beam.

        Raises ConfigError outside a run, for a meaningless option, or where ``against`` is not a
        translator; DataError where a file has another number of lines.
        """
        text_model, recipe = request.text_model, request.recipe
        options = request.options
        if recipe is None:
            raise ConfigError(
                f"{request.run} does not belong to a run, and so has no text: "
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
        pairs = request.own_text().pairs
        settings = beam_settings(recipe, options)
        against = options.get("against")
        more = []
        for path in options.get("references", ()):
            further = [
                pair._replace(target=text, target_words=" ".join(tokenizer.target.words(text)))
                for pair, text in zip(pairs, _read_translations(path, len(pairs)), strict=True)
            ]
            more.append(reference_lines(further, tokenizer, tokens))
        other = None if against is None else _other(against, request, pairs, settings, tokens)
        translations = _translate(text_model, request, pairs, settings, "translated")
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
            "split": request.split,
            "run": str(request.run),
        }
        if other is not None:
            theirs, divides_alike = other
            if not divides_alike:
                theirs = replace(theirs, words=theirs.texts)
            others = count_translations(theirs, references, lowercase=lowercase)
            # Words are comparable only where both divide them alike.
            names = [name for name in MEASURES if divides_alike or name != "bleu"]
            compared = {
                name: asdict(compare_translations(counted[name], others[name])) for name in names
            }
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
        ]
        n_words, n_lines = result["reference_words"], result["lines"]
        caveats = {
            "BLEU with compounds split is inflated: compare it only with scores computed in the "
            "same way": COMPOUNDS in result,
            f"{count(result['too_long'], 'line')} longer than the model reads, scored as empty": (
                result["too_long"]
            ),
            f"BLEU finds {count(n_words, 'word')} in {count(n_lines, 'reference')}, too few for "
            "its 4-grams: for text without spaces give --bleu-tokenizer char, or the language's "
            "own; chrF reads characters": n_words < _FEWEST_WORDS * n_lines,
            f"empty sources: {result['empty_sources']:,}": result["empty_sources"],
            f"empty references: {result['empty_references']:,}": result["empty_references"],
            f"{count(result['unknown_tokens'], 'token')} of the sources unknown to the "
            "vocabulary": result["unknown_tokens"],
        }
        lines += [line for line, holds in caveats.items() if holds]
        if "against" in result:
            compared = [
                (
                    labels[name],
                    f"{measure['value']:.2f}",
                    f"{measure['other']:.2f}",
                    f"{measure['difference']:+z.2f}",
                    " to ".join(interval_ends(measure["interval"], 2)),
                    f"{measure['p_randomisation']:.4f}",
                )
                for name, measure in result["against"]["measures"].items()
            ]
            heads = ["measure", "this", "other", "difference", "95% CI", "p, randomisation"]
            numbers = range(1, len(heads))
            lines += ["", f"against {result['against']['system']}:"]
            lines.append(table(heads, compared, right=numbers, width=terminal_width()))
        return "\n".join(lines)
