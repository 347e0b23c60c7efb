"""Rules of effect: the fields of others that decide whether a setting counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sublayer.config.architecture import POSITIONS, networks_with, parse_block
from sublayer.config.catalog import declaration, extra
from sublayer.config.data import PairFields, TaskFields
from sublayer.config.layers import Setting, where
from sublayer.config.messages import show
from sublayer.config.objective import TextUse
from sublayer.config.recipe import OBJECTIVES, Recipe
from sublayer.config.resolve_train import batch_sequences
from sublayer.config.stacks import entries, head_activation, is_factorised
from sublayer.config.texts import (
    GPT1,
    GPT1_SUFFIXES,
    HUB,
    INTRINSIC,
    LETTERED_TOKENIZERS,
    MARKED_TOKENIZERS,
    PARALLEL_CORPORA,
    PUBLISHED_SPLITS,
    RECORD_CORPORA,
    SENTINEL_SUFFIXES,
    TOKENIZERS,
    TRAINED_TOKENIZERS,
    source_names,
)
from sublayer.config.train import BATCHES, LAST
from sublayer.errors import ConfigError


@dataclass(frozen=True)
class Use:
    """When a field has an effect."""

    when: str
    """In words that follow "it counts only where"."""
    holds: Callable[[Recipe], bool]
    deciders: tuple[str, ...]
    """The fields that decide, as ``table.field``."""


def sibling_use(key: str, values: Sequence[Any]) -> Use:
    """Return the condition that another field has one of a few values."""
    words = " or ".join(str(value) for value in values)

    def holds(recipe: Recipe) -> bool:
        return value_of(key, recipe) in values

    return Use(f"{key} is {words}", holds, (key,))


def text_use(*texts: TextUse) -> Use:
    """Return the condition that the objective's batches are made of one of these texts."""
    kinds = [kind for kind, table in OBJECTIVES.items() if table.text in texts]
    words = " or ".join(kinds)

    def holds(recipe: Recipe) -> bool:
        return recipe.objective.text in texts

    return Use(f"objective.kind is {words}", holds, ("objective.kind",))


def has_value(key: str, recipe: Recipe) -> bool:
    """Return whether a recipe's tables have a field, ``table.field`` or a heading."""
    table, dot, name = key.rpartition(".")
    return not dot or name in type(getattr(recipe, table)).model_fields


def value_of(key: str, recipe: Recipe) -> Any:
    """Return the value of ``table.field``, or of a heading, in a recipe."""
    value: Any = recipe
    for name in key.split("."):
        value = getattr(value, name)
    return value


TRANSFORMERS = ("decoder", "encoder", "encoder-decoder")
"""The kinds of model that are made of blocks, as ``model.block`` composes them."""


def _has_attention(recipe: Recipe) -> bool:
    return any(entry.kind.attends_to == "itself" for entry in entries(recipe.model))


def _has_ffn(recipe: Recipe) -> bool:
    return any(entry.ffn is not None for entry in entries(recipe.model))


def _follows_ffn_field(recipe: Recipe) -> bool:
    """Return whether an entry, or a transform head, takes its network from ``model.ffn``."""
    model = recipe.model
    if model.head == "transform" and model.head_activation == "ffn":
        return True
    for block in (model.block, model.decoder_block) if model.kind in TRANSFORMERS else ():
        # A default without a name marks the entries that name no variant.
        written = parse_block(block, default_ffn="") if block else ()
        if any(entry.variant == "" for entry in written):
            return True
    return False


def _has_activation(recipe: Recipe, activation: str) -> bool:
    model = recipe.model
    found = {entry.ffn.activation for entry in entries(model) if entry.ffn is not None}
    if model.head == "transform":
        found.add(head_activation(model))
    return activation in found


def _positions_act(recipe: Recipe) -> bool:
    scheme = POSITIONS[recipe.model.positions]
    return scheme.in_attention == "nothing" or _has_attention(recipe)


def _activation_use(activation: str) -> Use:
    names = " or ".join(networks_with(activation))
    return Use(
        f"an ffn entry is {names}, or a transform head has {activation}",
        lambda recipe: _has_activation(recipe, activation),
        ("model.ffn", "model.block", "model.head"),
    )


def _drops_embeddings(recipe: Recipe) -> bool:
    model = recipe.model
    p = model.dropout if model.dropout_embedding is None else model.dropout_embedding
    return p > 0.0


_IN_ATTENTION = [name for name, each in POSITIONS.items() if each.in_attention != "nothing"]
_ATTENTION = Use("the block has an attention entry", _has_attention, ("model.block",))
_FFN = Use("the block has an ffn entry", _has_ffn, ("model.block",))
_PLAIN_FFN = Use(
    "an ffn entry of the block names no variant, or a transform head follows it",
    _follows_ffn_field,
    ("model.block",),
)
_POSITIONS = Use(
    f"the block has an attention entry, for {' and '.join(_IN_ATTENTION)}",
    _positions_act,
    ("model.block",),
)
_FACTORISED = Use(
    "model.d_embed differs from model.d_model, or model.project_embeddings is always",
    lambda recipe: is_factorised(recipe.model),
    ("model.d_embed", "model.d_model", "model.project_embeddings"),
)

_DROPS_EMBEDDINGS = Use(
    "model.dropout_embedding, or model.dropout where it is not given, is more than 0",
    _drops_embeddings,
    ("model.dropout_embedding", "model.dropout"),
)

_OF_BLOCKS = Use(
    "model.kind is not lstm", lambda recipe: recipe.model.kind in TRANSFORMERS, ("model.kind",)
)
_NETWORKS = Use(
    f"{_OF_BLOCKS.when}, or model.head is transform",
    lambda recipe: _OF_BLOCKS.holds(recipe) or recipe.model.head == "transform",
    ("model.kind", "model.head"),
)

KIND_USES: dict[str, Use] = {
    **dict.fromkeys(
        (
            "model.n_heads",
            "model.d_head",
            "model.d_ff",
            "model.embedding_norm",
            "model.block",
            "model.norm",
            "model.norm_order",
            "model.norm_affine",
            "model.norm_eps",
            "model.final_norm",
            "model.positions",
            "model.sinusoids",
            "model.first_position",
            "model.rotary_base",
            "model.relative_buckets",
            "model.relative_distance",
            "model.share",
            "model.share_groups",
            "model.share_inner",
            "model.attention_scale",
            "model.dropout_attention",
            "model.dropout_ffn",
            "model.dropout_final",
            "model.max_len",
        ),
        _OF_BLOCKS,
    ),
    "model.ffn": _NETWORKS,
    "model.gelu": _NETWORKS,
    "model.swish_beta": _NETWORKS,
    # PyTorch compiles no recurrent layer, nor the computation around it.
    "train.compile": _OF_BLOCKS,
}
"""Fields of blocks, which an LSTM has not; asked before all else, so that no advice misleads."""
MODEL_USES: dict[str, tuple[Use, ...]] = {
    "model.n_heads": (_ATTENTION,),
    "model.d_head": (_ATTENTION,),
    "model.attention_scale": (_ATTENTION,),
    "model.dropout_attention": (_ATTENTION,),
    "model.positions": (_POSITIONS,),
    "model.d_ff": (_FFN,),
    "model.dropout_ffn": (_FFN,),
    "model.ffn": (_PLAIN_FFN,),
    "model.gelu": (_activation_use("gelu"),),
    "model.swish_beta": (_activation_use("swish"),),
    "model.embedding_projection": (_FACTORISED,),
    "model.dropout_embedding_of": (_DROPS_EMBEDDINGS,),
}
"""By field; beyond the ``needs`` of its declaration."""


def _split_is_used(recipe: Recipe) -> bool:
    data = recipe.data
    if data.corpus in PARALLEL_CORPORA:
        return False
    has_valid = data.valid_path or data.valid_source_path
    has_test = data.test_path or data.test_source_path
    return not (has_valid and has_test)


def _has_unpublished_text(recipe: Recipe) -> bool:
    if recipe.data.path is not None:
        return True
    corpora = source_names(recipe.data.corpus)
    return not corpora or any(name not in PUBLISHED_SPLITS for name in corpora)


def _has_record_corpus(recipe: Recipe) -> bool:
    return any(name in RECORD_CORPORA for name in source_names(recipe.data.corpus))


def _is_read_by_rule(recipe: Recipe) -> bool:
    data = recipe.data
    # The passages of that corpus are read from ``path`` in their own way.
    path_is_text = data.path and INTRINSIC not in source_names(data.corpus)
    has_path = bool(path_is_text or data.valid_path or data.test_path)
    return has_path or _has_record_corpus(recipe)


def _is_record_path(path: str) -> bool:
    return path.startswith(HUB) or path.lower().endswith(".parquet")


def _has_fields(recipe: Recipe) -> bool:
    data = recipe.data
    if data.documents is not None:
        return data.documents in ("json", "csv")
    paths = (*source_names(data.path), data.valid_path, data.test_path)
    has_records = any(_is_record_path(path) for path in paths if path)
    return has_records or _has_record_corpus(recipe)


def _has_trained_tokenizer(recipe: Recipe) -> bool:
    return recipe.data.tokenizer in TRAINED_TOKENIZERS


def _has_letters(recipe: Recipe) -> bool:
    if recipe.objective.text == "pairs" or not recipe.data.lowercase:
        return True
    return recipe.data.tokenizer in LETTERED_TOKENIZERS and recipe.init.run is None


def _may_have_sentinels(recipe: Recipe) -> bool:
    tokenizer = recipe.data.tokenizer
    return tokenizer == "unigram" or tokenizer.endswith(SENTINEL_SUFFIXES)


def _may_be_gpt1(recipe: Recipe) -> bool:
    tokenizer = recipe.data.tokenizer
    return tokenizer == GPT1 or tokenizer.endswith(GPT1_SUFFIXES)


def fills_steps(recipe: Recipe) -> bool:
    """Return whether steps are filled with pairs of similar length, by their tokens."""
    if recipe.objective.text == "pairs":
        return True
    unit = getattr(recipe.objective, "pairs", None)
    return unit == "sentences" and recipe.train.batch_tokens is not None


_WINDOWS = text_use("windows")
_PAIRS = text_use("pairs")
_FILLED = Use(
    f"{_PAIRS.when}, or objective.pairs is sentences and train.batch_tokens is given",
    fills_steps,
    (*_PAIRS.deciders, "objective.pairs", "train.batch_tokens"),
)
_LETTERS = Use(
    f"{_PAIRS.when}, or data.tokenizer is {' or '.join(LETTERED_TOKENIZERS)} and is trained",
    _has_letters,
    (*_PAIRS.deciders, "data.tokenizer", "init.run"),
)
_TEXT = text_use("windows", "sentences")
_TASKS = text_use("tasks")
_TABLE = Use(
    "data.tasks is table", lambda recipe: recipe.data.task_names == ("table",), ("data.tasks",)
)
_NOT_TASKS = text_use("windows", "sentences", "pairs")
_NOT_BOTH_PATHS = Use(
    "valid_path and test_path are not both given",
    _split_is_used,
    ("data.valid_path", "data.test_path"),
)
_UNPUBLISHED = Use(
    "a text has no published split", _has_unpublished_text, ("data.corpus", "data.path")
)
_READ_BY_RULE = Use(
    f"a path names text, or a corpus is {', '.join(RECORD_CORPORA)}",
    _is_read_by_rule,
    ("data.path", "data.corpus"),
)
_FIELDS = Use(
    "documents is json or csv, or unset with a path to .parquet or hub:, or a corpus of records",
    _has_fields,
    ("data.documents", "data.path", "data.corpus"),
)
_OWN_TOKENIZER = Use(
    "no init.run brings its tokenizer", lambda recipe: recipe.init.run is None, ("init.run",)
)
_TRAINED = Use(
    f"data.tokenizer is {', '.join(TRAINED_TOKENIZERS[:-1])} or {TRAINED_TOKENIZERS[-1]}",
    _has_trained_tokenizer,
    ("data.tokenizer",),
)
_WITH_SENTINELS = Use(
    f"data.tokenizer is unigram or a file ({', '.join(SENTINEL_SUFFIXES)})",
    _may_have_sentinels,
    ("data.tokenizer",),
)
_WITH_NORMALIZATION = Use(
    f"data.tokenizer is {GPT1} or a file of GPT-1's ({', '.join(GPT1_SUFFIXES)})",
    _may_be_gpt1,
    ("data.tokenizer",),
)
_WITH_MARKS = Use(
    f"data.tokenizer is a file, {', '.join(MARKED_TOKENIZERS)}, or init.run brings one",
    lambda recipe: (
        recipe.init.run is not None
        or recipe.data.tokenizer in MARKED_TOKENIZERS
        or recipe.data.tokenizer not in TOKENIZERS
    ),
    ("data.tokenizer", "init.run"),
)

DATA_USES: dict[str, tuple[Use, ...]] = {
    **{f"data.{name}": (_PAIRS,) for name in PairFields.model_fields},
    "data.lowercase": (_LETTERS,),
    "data.keep_accents": (_OWN_TOKENIZER,),
    "data.batch_multiple": (_FILLED,),
    "data.batch_parts": (_FILLED,),
    "data.sentences": (_TEXT,),
    "data.watch": (_TEXT,),
    **{f"data.{name}": (_TASKS,) for name in TaskFields.model_fields},
    "data.columns": (_TASKS, _TABLE),
    "data.corpus": (_NOT_TASKS,),
    "data.valid_path": (_NOT_TASKS,),
    "data.test_path": (_NOT_TASKS,),
    "data.split": (_NOT_TASKS, _NOT_BOTH_PATHS, _UNPUBLISHED),
    "data.documents": (_TEXT, _READ_BY_RULE),
    "data.text_field": (_TEXT, _FIELDS),
    "data.tokenizer": (_OWN_TOKENIZER,),
    "data.vocab_size": (_OWN_TOKENIZER, _TRAINED),
    "data.merges": (_OWN_TOKENIZER,),
    "data.sentinels": (_OWN_TOKENIZER, _WITH_SENTINELS),
    "data.normalization": (_OWN_TOKENIZER, _WITH_NORMALIZATION),
    "data.special_tokens": (_WITH_MARKS,),
    "data.windows": (_WINDOWS,),
    "data.boundaries": (_WINDOWS,),
}
"""By field; beyond the ``needs`` of its declaration."""


def uses(key: str, kind: str = "") -> tuple[Use, ...]:
    """Return the conditions under which a field has an effect; all must hold.

    ``kind`` is its table's, where a field of one name is declared differently for each.
    """
    table, _, _ = key.partition(".")
    declared = extra(declaration(key, kind))
    needs = declared.get("needs", {})
    siblings = [sibling_use(f"{table}.{name}", values) for name, values in needs.items()]
    first = [KIND_USES[key]] if key in KIND_USES else []
    return (*first, *siblings, *USES.get(key, ()))


def said_uses(key: str) -> tuple[Use, ...]:
    """Return the conditions that are worth saying: none that another one's field has itself."""
    conditions = uses(key)
    table, _, _ = key.partition(".")
    needs = extra(declaration(key)).get("needs", {})
    is_implied = key in KIND_USES and any(f"{table}.{name}" in KIND_USES for name in needs)
    return conditions[1:] if is_implied else conditions


@dataclass(frozen=True)
class Idle:
    """A field that a layer set to no effect, and the condition that does not hold."""

    key: str
    setting: Setting
    use: Use

    def error(self, recipe: Recipe, settings: Mapping[str, Setting]) -> ConfigError:
        """Build the error that says what decides, and when the field would count."""
        deciders = []
        for decider in self.use.deciders:
            if not has_value(decider, recipe):
                # A field of another kind of its table.
                continue
            origin = where(settings[decider].origin) if decider in settings else ""
            deciders.append(f"{decider} = {show(value_of(decider, recipe))}{origin}")
        given = f"{self.key} = {show(self.setting.value)}{where(self.setting.origin)}"
        reasons = " and ".join(deciders)
        return ConfigError(
            f"{given} has no effect with {reasons}: it counts only where {self.use.when}"
        )


def first_idle(recipe: Recipe, settings: Mapping[str, Setting]) -> Idle | None:
    """Return the first field that a layer set to no effect; None where all have one.

    A layer that takes a field back to its default has an effect on an earlier one's setting.
    """
    for key, setting in settings.items():
        if setting.restores:
            continue
        for use in uses(key, _kind(key, recipe)):
            if not use.holds(recipe):
                return Idle(key, setting, use)
    return None


def is_idle(key: str, recipe: Recipe) -> bool:
    """Return whether a field, ``table.field`` or a heading, has no effect in a recipe."""
    conditions = uses(key, _kind(key, recipe))
    return not all(use.holds(recipe) for use in conditions)


def _kind(key: str, recipe: Recipe) -> str:
    table, _, _ = key.partition(".")
    content = getattr(recipe, table)
    return getattr(content, "kind", "")


def _has_several_targets(recipe: Recipe) -> bool:
    _, of_last_block = recipe.objective.n_classifiers()
    return of_last_block > 0


def _has_blocks_below(recipe: Recipe) -> bool:
    of_each_below, _ = recipe.objective.n_classifiers()
    return of_each_below == 0 or recipe.model.n_layers > 1


_TARGETS = Use("objective.targets is more than 1", _has_several_targets, ("objective.targets",))
_BLOCKS_BELOW = Use("there are blocks below the last", _has_blocks_below, ("model.n_layers",))
_DECAY = Use(
    "optimizer.weight_decay is more than 0",
    lambda recipe: getattr(recipe.optimizer, "weight_decay", 0.0) > 0,
    ("optimizer.weight_decay",),
)
_WARMUPS: dict[str, tuple[str, ...]] = {
    "ordinary": ("constant", "linear", "polynomial", "cosine", "inverse-sqrt"),
    "albert": ("linear", "polynomial"),
    "gpt1": ("constant", "linear", "cosine"),
    "constant": ("inverse-sqrt",),
}
"""The schedules beside which each value changes anything."""
_WARMUP = Use(
    "optimizer.schedule is linear or polynomial for albert, constant, linear or cosine for gpt1, "
    "inverse-sqrt for constant",
    lambda recipe: recipe.optimizer.schedule in _WARMUPS[recipe.optimizer.warmup],
    ("optimizer.schedule",),
)
_APPLICABILITY_WINDOWS = Use(
    "objective.kind is causal",
    lambda recipe: recipe.objective.is_scored_in_windows,
    ("objective.kind",),
)
_PREDICTS = Use(
    "objective.kind is causal or span",
    lambda recipe: recipe.objective.is_probed,
    ("objective.kind",),
)
_INIT_RUN = Use("init.run is given", lambda recipe: recipe.init.run is not None, ("init.run",))
_BEST_BY = Use(
    "the objective's evaluations have it",
    lambda recipe: recipe.train.best_by in (LAST, *recipe.objective.evaluations(recipe.data)),
    ("objective.kind", "data.tasks"),
)
_MICRO_BATCH = Use(
    "a step has as many sequences",
    lambda recipe: (recipe.train.micro_batch_sequences or 0) <= batch_sequences(recipe),
    (*(f"train.{name}" for name in BATCHES), "data.context"),
)
_ONE_STACK = sibling_use("model.kind", ("decoder", "encoder", "lstm"))
_EPOCHS = sibling_use("data.windows", ("shuffled",))

USES: dict[str, tuple[Use, ...]] = {
    **MODEL_USES,
    **DATA_USES,
    "objective.target_weight": (_TARGETS,),
    "objective.auxiliary": (_BLOCKS_BELOW,),
    "objective.chunk_tokens": (_EPOCHS,),
    "optimizer.decay_vectors": (_DECAY,),
    "optimizer.layer_decay": (_ONE_STACK,),
    "optimizer.warmup": (_WARMUP,),
    "train.best_by": (_BEST_BY,),
    "train.evaluate_stride": (_APPLICABILITY_WINDOWS,),
    "train.micro_batch_sequences": (_MICRO_BATCH,),
    "train.probes": (_PREDICTS,),
    "init.layers": (_INIT_RUN,),
    "init.freeze": (_INIT_RUN,),
}
"""Conditions beyond ``needs`` of a declaration, which more than one sibling's value decides."""
