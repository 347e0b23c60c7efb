"""Which models, objectives and texts go together."""

from sublayer.config.data import PARALLEL_CORPORA, source_names
from sublayer.config.objective import CausalObjective, MaskedObjective, TranslationObjective
from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError

_MODELS = {"causal": "decoder", "masked": "encoder", "translation": "encoder-decoder"}
_WITHOUT_MASK = ("bytes", "characters", "bpe")
_WITHOUT_END = ("bytes", "characters", "bpe")
_FEWEST_PAIR_TOKENS = 5
"""A pair's three special tokens, and a token of each text."""


def check_objective(recipe: Recipe) -> None:
    """Raise ConfigError, naming both fields, where the objective contradicts the model or the data."""
    objective, model = recipe.objective, recipe.model
    if model.kind != _MODELS[objective.kind]:
        raise ConfigError(
            f"objective.kind = {objective.kind} trains a model.kind = {_MODELS[objective.kind]}, not {model.kind}"
        )
    if isinstance(objective, TranslationObjective):
        _check_translation(recipe)
        return
    if recipe.data.is_parallel:
        raise ConfigError(
            f"data.source_language = {recipe.data.source_language} makes the text pairs, which objective.kind = "
            f"{objective.kind} does not read: leave it out"
        )
    for name in source_names(recipe.data.corpus):
        if name in PARALLEL_CORPORA:
            raise ConfigError(
                f"data.corpus = {name} is translations, which objective.kind = {objective.kind} does not read"
            )
    if isinstance(objective, MaskedObjective):
        _check_masked(objective, recipe)
    else:
        _check_causal(objective, recipe)


def _check_translation(recipe: Recipe) -> None:
    data = recipe.data
    for name in ("source_language", "target_language"):
        if getattr(data, name) is None:
            raise ConfigError(f"objective.kind = translation needs data.{name}: give its code, such as de")
    if data.corpus is not None and data.corpus not in PARALLEL_CORPORA:
        raise ConfigError(
            f"data.corpus = {', '.join(source_names(data.corpus))} has no translations: give one of "
            f"{', '.join(PARALLEL_CORPORA)}, or files of pairs"
        )
    if data.corpus is not None and (data.path or data.source_path or data.target_path):
        raise ConfigError(f"data.corpus = {data.corpus} and a path both name pairs: leave one out")
    if recipe.train.compile:
        raise ConfigError(
            "train.compile = true would compile anew for every pair of lengths, which objective.kind = translation "
            "changes from batch to batch: leave it out"
        )
    if recipe.init.run is None and data.tokenizer in _WITHOUT_END:
        raise ConfigError(
            f"data.tokenizer = {data.tokenizer} has no end of a text or no padding, which objective.kind = translation "
            "needs: give word-bpe or unigram, or a file whose vocabulary has them"
        )


def _check_causal(objective: CausalObjective, recipe: Recipe) -> None:
    context = recipe.data.context
    if objective.targets > context:
        raise ConfigError(
            f"objective.targets = {objective.targets} is more than data.context = {context}: "
            "give fewer targets or a longer context"
        )
    if recipe.data.sentences != "none":
        raise ConfigError(
            f"data.sentences = {recipe.data.sentences} contradicts objective.kind = causal, which reads the text as it "
            "is: leave it out"
        )


def _check_masked(objective: MaskedObjective, recipe: Recipe) -> None:
    if recipe.train.compile:
        raise ConfigError(
            "train.compile = true would compile anew for every number of hidden tokens, which objective.kind = masked "
            "changes from batch to batch: leave it out"
        )
    if objective.pairs == "sentences" and (recipe.train.batch_tokens or recipe.train.tokens or recipe.train.epochs):
        raise ConfigError(
            "objective.pairs = sentences makes examples far shorter than data.context, by which train.batch_tokens, "
            "train.tokens and train.epochs are counted: give train.batch_sequences and train.steps"
        )
    if recipe.data.sentences == "none":
        raise ConfigError(
            "objective.kind = masked reads sentences, and data.sentences = none: give lines, prose or spacy"
        )
    if recipe.init.run is None and recipe.data.tokenizer in _WITHOUT_MASK:
        raise ConfigError(
            f"data.tokenizer = {recipe.data.tokenizer} has no [MASK], which objective.kind = masked needs: give "
            "unigram, wordpiece or moses-bpe, or a file whose vocabulary has it"
        )
    if recipe.data.context < _FEWEST_PAIR_TOKENS:
        raise ConfigError(
            f"data.context = {recipe.data.context} has no room for a pair of texts, which objective.kind = masked "
            f"reads: give {_FEWEST_PAIR_TOKENS} or more"
        )
    if objective.sentence != "none" and recipe.model.sentence_classes == 0:
        raise ConfigError(
            f"objective.sentence = {objective.sentence} needs a head: model.sentence_classes = 0 has none, give 2"
        )
    if objective.pairs == "sentences" and objective.sentence == "sop":
        raise ConfigError(
            "objective.pairs = sentences pairs what follows and what does not, not objective.sentence = sop"
        )
    if objective.sentence == "none" and objective.alone == "negative":
        raise ConfigError("objective.alone = negative makes labels, which objective.sentence = none has no use for")
