"""Which fields have an effect only where others have certain values: setting one elsewhere is an error."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sublayer.config.block import Entry, parse_block
from sublayer.config.catalog import declarations, extra
from sublayer.config.data import HUB, INTRINSIC, PARALLEL_CORPORA, PUBLISHED_SPLITS, TOKENIZERS, source_names
from sublayer.config.objective import CausalObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import entries, head_activation, is_factorised
from sublayer.config.settings import Setting, where
from sublayer.config.wording import show
from sublayer.errors import ConfigError

RECORD_CORPORA = ("wikipedia", "bookcorpus", "c4")
"""Corpora that are read as ``data.documents`` says."""


@dataclass(frozen=True)
class Use:
    """When a field has an effect: in words, as a test of the recipe, and the fields that decide it."""

    when: str
    holds: Callable[[Recipe], bool]
    deciders: tuple[str, ...]


def uses(key: str, kind: str = "") -> tuple[Use, ...]:
    """List the conditions under which a field has an effect; all must hold."""
    found = declarations(key)
    needs = extra(found[kind] if kind in found else next(iter(found.values()))).get("needs") or {}
    table = key.partition(".")[0]
    return (*(_sibling(f"{table}.{name}", values) for name, values in needs.items()), *USES.get(key, ()))


def check_idle(recipe: Recipe, settings: Mapping[str, Setting]) -> None:
    """Raise ConfigError for the first field that a layer set and that has no effect, with the reason.

    A layer that takes a field back to its default has an effect on what an earlier one had set.
    """
    for key, setting in settings.items():
        if setting.restores:
            continue
        table = key.partition(".")[0]
        for use in uses(key, getattr(getattr(recipe, table), "kind", "")):
            if not use.holds(recipe):
                raise ConfigError(_idle(key, setting, use, recipe, settings))


def is_idle(key: str, recipe: Recipe) -> bool:
    """Tell whether a field has no effect in a recipe."""
    kind = getattr(getattr(recipe, key.partition(".")[0]), "kind", "")
    return not all(use.holds(recipe) for use in uses(key, kind))


def _idle(key: str, setting: Setting, use: Use, recipe: Recipe, settings: Mapping[str, Setting]) -> str:
    deciders = []
    for decider in use.deciders:
        origin = where(settings[decider].origin) if decider in settings else ""
        deciders.append(f"{decider} = {show(value_of(decider, recipe))}{origin}")
    given = f"{key} = {show(setting.value)}{where(setting.origin)}"
    return f"{given} has no effect with {' and '.join(deciders)}: it counts only where {use.when}"


def value_of(key: str, recipe: Recipe) -> Any:
    """Return the value of ``table.field``, or of a heading, in a recipe."""
    value: Any = recipe
    for name in key.split("."):
        value = getattr(value, name)
    return value


def _sibling(key: str, values: Sequence[Any]) -> Use:
    words = " or ".join(str(value) for value in values)
    return Use(f"{key} is {words}", lambda recipe: value_of(key, recipe) in values, (key,))


def _has(test: Callable[[Entry], bool]) -> Callable[[Recipe], bool]:
    return lambda recipe: any(test(entry) for entry in entries(recipe.model))


def _has_plain_ffn(recipe: Recipe) -> bool:
    blocks = (recipe.model.block, recipe.model.decoder_block or ())
    return any(entry.variant == "" for block in blocks if block for entry in parse_block(block, default_ffn=""))


def _head_follows_ffn(recipe: Recipe) -> bool:
    return recipe.model.head == "transform" and recipe.model.head_activation == "ffn"


def _split_is_used(recipe: Recipe) -> bool:
    data = recipe.data
    if data.corpus in PARALLEL_CORPORA:
        return False
    return not ((data.valid_path or data.valid_source_path) and (data.test_path or data.test_source_path))


def _has_unpublished_text(recipe: Recipe) -> bool:
    corpora = source_names(recipe.data.corpus)
    return recipe.data.path is not None or not corpora or any(name not in PUBLISHED_SPLITS for name in corpora)


def _has_gelu_entry(recipe: Recipe) -> bool:
    return any(entry.variant in ("gelu", "geglu") for entry in entries(recipe.model))


def _has_gelu_head(recipe: Recipe) -> bool:
    return recipe.model.head == "transform" and head_activation(recipe.model) == "gelu"


def _has_several_targets(recipe: Recipe) -> bool:
    return isinstance(recipe.objective, CausalObjective) and recipe.objective.targets > 1


def _has_blocks_below(recipe: Recipe) -> bool:
    is_none = isinstance(recipe.objective, CausalObjective) and recipe.objective.auxiliary == "none"
    return is_none or recipe.model.n_layers > 1


def _is_read_by_rule(recipe: Recipe) -> bool:
    data = recipe.data
    corpora = source_names(data.corpus)
    has_path = bool(data.path and INTRINSIC not in corpora) or bool(data.valid_path or data.test_path)
    return has_path or any(name in RECORD_CORPORA for name in corpora)


def _has_fields(recipe: Recipe) -> bool:
    data = recipe.data
    paths = [path for path in (*source_names(data.path), data.valid_path, data.test_path) if path]
    has_named = any(path.startswith(HUB) or path.lower().endswith(".parquet") for path in paths)
    has_records = has_named or any(name in RECORD_CORPORA for name in source_names(data.corpus))
    return data.documents == "json" or (data.documents is None and has_records)


def _rotary_turns(recipe: Recipe) -> bool:
    return recipe.model.positions != "rotary" or _ATTENTION.holds(recipe)


_ATTENTION = Use("the block has an attention entry", _has(lambda entry: entry.name == "attention"), ("model.block",))
_FACTORISED = Use(
    "model.d_embed differs from model.d_model, or model.project_embeddings is always",
    lambda recipe: is_factorised(recipe.model),
    ("model.d_embed", "model.project_embeddings"),
)
_FFN = Use("the block has an ffn entry", _has(lambda entry: entry.name == "ffn"), ("model.block",))
_PLAIN_FFN = Use(
    "an ffn entry of the block names no variant, or a transform head follows it",
    lambda recipe: _has_plain_ffn(recipe) or _head_follows_ffn(recipe),
    ("model.block",),
)
_GELU = Use(
    "an ffn entry is gelu or geglu, or a transform head has gelu",
    lambda recipe: _has_gelu_entry(recipe) or _has_gelu_head(recipe),
    ("model.ffn", "model.block", "model.head"),
)
_TRAINED = Use(
    "data.tokenizer is characters, bpe, unigram, wordpiece, moses-bpe or word-bpe",
    lambda recipe: recipe.data.tokenizer in TOKENIZERS and recipe.data.tokenizer != "bytes",
    ("data.tokenizer",),
)
_OWN_TOKENIZER = Use("no init.run brings its tokenizer", lambda recipe: recipe.init.run is None, ("init.run",))
_CAUSAL = Use("objective.kind is causal", lambda recipe: recipe.objective.kind == "causal", ("objective.kind",))
_PAIRS = Use(
    "objective.kind is translation", lambda recipe: recipe.objective.kind == "translation", ("objective.kind",)
)
_TEXT = Use("objective.kind is causal or masked", lambda recipe: not _PAIRS.holds(recipe), ("objective.kind",))
_TRANSLATIONS = (
    *(f"{split}{side}_path" for split in ("", "valid_", "test_") for side in ("source", "target")),
    *("source_language", "target_language", "source_field", "target_field"),
    *("moses", "moses_hyphens", "lowercase", "longest_words", "words_ratio"),
)

USES: dict[str, tuple[Use, ...]] = {
    **{f"data.{name}": (_PAIRS,) for name in _TRANSLATIONS},
    "data.sentences": (_TEXT,),
    "model.n_heads": (_ATTENTION,),
    "model.d_head": (_ATTENTION,),
    "model.attention_scale": (_ATTENTION,),
    "model.dropout_attention": (_ATTENTION,),
    "model.positions": (Use("the block has an attention entry, which rotary turns", _rotary_turns, ("model.block",)),),
    "model.d_ff": (_FFN,),
    "model.dropout_ffn": (_FFN,),
    "model.ffn": (_PLAIN_FFN,),
    "model.gelu": (_GELU,),
    "model.embedding_projection": (_FACTORISED,),
    "data.split": (
        Use(
            "valid_path and test_path are not both given",
            _split_is_used,
            ("data.valid_path", "data.test_path"),
        ),
        Use("a text has no published split", _has_unpublished_text, ("data.corpus", "data.path")),
    ),
    "data.documents": (
        _TEXT,
        Use(
            f"a path names text, or a corpus is {', '.join(RECORD_CORPORA)}",
            _is_read_by_rule,
            ("data.path", "data.corpus"),
        ),
    ),
    "data.text_field": (
        _TEXT,
        Use(
            "documents is json, or unset with a path to .parquet or hub:, or a corpus of records",
            _has_fields,
            ("data.documents", "data.path", "data.corpus"),
        ),
    ),
    "train.best_by": (_PAIRS,),
    "data.tokenizer": (_OWN_TOKENIZER,),
    "data.vocab_size": (_OWN_TOKENIZER, _TRAINED),
    "objective.target_weight": (Use("objective.targets is more than 1", _has_several_targets, ("objective.targets",)),),
    "objective.auxiliary": (
        Use(
            "there are blocks below the last",
            _has_blocks_below,
            ("model.n_layers",),
        ),
    ),
    "optimizer.decay_vectors": (
        Use(
            "optimizer.weight_decay is more than 0",
            lambda recipe: recipe.optimizer.weight_decay > 0,
            ("optimizer.weight_decay",),
        ),
    ),
    "data.windows": (_CAUSAL,),
    "data.boundaries": (_CAUSAL,),
    "init.layers": (Use("init.run is given", lambda recipe: recipe.init.run is not None, ("init.run",)),),
}
"""Beyond ``needs`` of a field's declaration: conditions that more than one sibling's value decides."""
