"""Rules of effect: conditions on other settings under which a setting has an effect."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sublayer.config.data import (
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
from sublayer.config.layers import Setting, where
from sublayer.config.model import FFNS, NORMS, POSITIONS, parse_block
from sublayer.config.objective import TextUse
from sublayer.config.recipe import OBJECTIVES, TABLES, Recipe, declaration, extra
from sublayer.config.resolve import batch_sequences, may_have_replicas
from sublayer.config.stacks import (
    attention_forms,
    entries,
    has_rotary_kernel,
    head_activation,
    is_factorised,
    stacks,
)
from sublayer.config.train import LAST
from sublayer.values import show

_FIELD = re.compile(rf"\b(?:{'|'.join(TABLES)})\.[a-z_]+")


@dataclass(frozen=True)
class Use:
    """Condition under which fields have an effect."""

    when: str
    """Condition in words, after "it counts only where", with the names of the deciding fields."""
    holds: Callable[[Recipe], bool]

    @property
    def deciders(self) -> tuple[str, ...]:
        """Return the deciding fields, as ``table.field``."""
        return tuple(dict.fromkeys(_FIELD.findall(self.when)))

    def without_effect(self, key: str, recipe: Recipe, settings: Mapping[str, Setting]) -> str:
        """Format the error of a setting without effect: the deciding fields, and the condition."""
        deciders = []
        # Deciding fields that are missing belong to another kind of their table.
        for decider in (name for name in self.deciders if has_value(name, recipe)):
            origin = where(settings[decider].origin) if decider in settings else ""
            deciders.append(f"{decider} = {show(value_of(decider, recipe))}{origin}")
        return (
            f"{key} = {show(settings[key].value)}{where(settings[key].origin)} has no effect with "
            f"{' and '.join(deciders)}: it counts only where {self.when}"
        )


def _values_use(key: str, values: tuple[Any, ...]) -> Use:
    """Return the condition that another field has one of a few values."""
    words = " or ".join(map(str, values))
    # Also a plugin's.
    if key == "model.norm" and {"layer", "rms"} <= {*values}:
        values += tuple(name for name, row in NORMS.items() if row is not None)
    if key == "model.positions" and {"rotary", "alibi", "relative"} <= {*values}:
        values += tuple(n for n, row in POSITIONS.items() if row.in_attention != "nothing")
    return Use(f"{key} is {words}", lambda recipe: value_of(key, recipe) in values)


def _text_use(*texts: TextUse) -> Use:
    """Return the condition that batches are made from one of these kinds of text."""
    kinds = tuple(kind for kind, table in OBJECTIVES.items() if table.text in texts)
    return _values_use("objective.kind", kinds)


def has_value(key: str, recipe: Recipe) -> bool:
    """Return whether a recipe has a field, ``table.field`` or a heading."""
    table, dot, name = key.rpartition(".")
    return not dot or name in type(getattr(recipe, table)).model_fields


def value_of(key: str, recipe: Recipe) -> Any:
    """Return the value of ``table.field``, or of a heading, in a recipe."""
    value: Any = recipe
    for name in key.split("."):
        value = getattr(value, name)
    return value


def _has_blocks(recipe: Recipe) -> bool:
    return recipe.model.kind != "lstm"


def _has_attention(recipe: Recipe) -> bool:
    return any(entry.kind.attends_to != "nothing" for entry in entries(recipe.model))


def _has_self_attention(recipe: Recipe) -> bool:
    return any(entry.kind.attends_to == "itself" for entry in entries(recipe.model))


def _rotates_both(recipe: Recipe) -> bool:
    """Return whether local and global attentions both have rotary positions."""
    model = recipe.model
    if model.positions != "rotary":
        return False
    forms = {
        form
        for stack in stacks(model)
        for forms in attention_forms(model, stack)
        for form in forms
        if form is not None and form.has_positions
    }
    return len({form.window for form in forms}) > 1


def _has_several_attentions(recipe: Recipe) -> bool:
    # A plugin's attention mixes in no values of another.
    return any(
        stack.n_layers * sum(entry.name == "attention" for entry in stack.block) > 1
        for stack in stacks(recipe.model)
    )


def _follows_ffn_field(recipe: Recipe) -> bool:
    """Return whether an entry, or a transform head, uses the variant of ``model.ffn``."""
    model = recipe.model
    if model.head == "transform" and model.head_activation == "ffn":
        return True
    # With an empty default, the entries without a variant can be told.
    blocks = [block for block in (model.block, model.decoder_block) if block]
    return _has_blocks(recipe) and any(
        entry.variant == "" for block in blocks for entry in parse_block(block, default_ffn="")
    )


def _activation_use(activation: str) -> Use:
    def holds(recipe: Recipe) -> bool:
        model = recipe.model
        has_head = model.head == "transform" and head_activation(model) == activation
        networks = [entry.ffn for entry in entries(model) if entry.ffn is not None]
        in_head = has_head or model.pooler in poolers
        return in_head or any(ffn.activation == activation for ffn in networks)

    poolers = ("gelu", "transform") if activation == "gelu" else ()
    names = " or ".join(name for name, ffn in FFNS.items() if ffn.activation == activation)
    when = f"model.ffn or an ffn entry of model.block is {names}, or a transform model.head has"
    or_pooler = f", or model.pooler is {' or '.join(poolers)}" if poolers else ""
    return Use(f"{when} {activation}{or_pooler}", holds)


def _has_affine_norm(recipe: Recipe) -> bool:
    model = recipe.model
    is_affine = model.final_norm == "affine" or model.embedding_norm == "affine"
    ends_affine = model.final_norm is None and model.norm_order != "post"
    has_own = model.head == "transform" or model.span_head == "joint"
    has_own = has_own or model.pooler == "transform"
    return model.norm_affine or is_affine or ends_affine or has_own


def _has_compiled_kernel(recipe: Recipe) -> bool:
    model = recipe.model
    ffns = {entry.variant for entry in entries(model)}
    has_gelu = model.gelu == "tanh" and not ffns.isdisjoint(("gelu", "geglu"))
    has_activation = has_gelu or (model.swish_beta == 1.0 and "swiglu" in ffns)
    has_norm = model.norm == "rms" and model.norm_affine
    has_norm = has_norm or (model.qk_norm in ("rms", "l2") and model.qk_norm_gain)
    return has_activation or has_norm or has_rotary_kernel(model)


def _drops_embeddings(recipe: Recipe) -> bool:
    model = recipe.model
    return (model.dropout if model.dropout_embedding is None else model.dropout_embedding) > 0.0


def _split_is_used(recipe: Recipe) -> bool:
    data = recipe.data
    has_valid = data.valid_path or data.valid_source_path
    has_test = data.test_path or data.test_source_path
    return data.corpus not in PARALLEL_CORPORA and not (has_valid and has_test)


def _has_unpublished_text(recipe: Recipe) -> bool:
    corpora = source_names(recipe.data.corpus)
    is_published = corpora and all(name in PUBLISHED_SPLITS for name in corpora)
    return recipe.data.path is not None or not is_published


def _has_record_corpus(recipe: Recipe) -> bool:
    return any(name in RECORD_CORPORA for name in source_names(recipe.data.corpus))


def _is_read_by_rule(recipe: Recipe) -> bool:
    data = recipe.data
    # The passages of that corpus are read from ``path`` by another rule.
    path_is_text = data.path and INTRINSIC not in source_names(data.corpus)
    has_path = bool(path_is_text or data.valid_path or data.test_path)
    return has_path or _has_record_corpus(recipe)


def _has_fields(recipe: Recipe) -> bool:
    data = recipe.data
    if data.documents is not None:
        return data.documents in ("json", "csv")
    paths = filter(None, (*source_names(data.path), data.valid_path, data.test_path))
    are_records = [path.startswith(HUB) or path.lower().endswith(".parquet") for path in paths]
    return any(are_records) or _has_record_corpus(recipe)


def _has_letters(recipe: Recipe) -> bool:
    if recipe.objective.text == "pairs" or not recipe.data.lowercase:
        return True
    return recipe.data.tokenizer in LETTERED_TOKENIZERS and recipe.init.run is None


def _may_have_marks(recipe: Recipe) -> bool:
    tokenizer = recipe.data.tokenizer
    has_own = tokenizer in MARKED_TOKENIZERS or tokenizer not in TOKENIZERS
    return has_own or recipe.init.run is not None


def fills_steps(recipe: Recipe) -> bool:
    """Return whether steps are filled by tokens, with pairs of similar length."""
    if recipe.objective.text == "pairs":
        return True
    unit = getattr(recipe.objective, "pairs", None)
    return unit == "sentences" and recipe.train.batch_tokens is not None


def _has_blocks_below(recipe: Recipe) -> bool:
    of_each_below, _ = recipe.objective.n_classifiers()
    return of_each_below == 0 or recipe.model.n_layers > 1


_WARMUPS: dict[str, tuple[str, ...]] = {
    "ordinary": ("constant", "linear", "polynomial", "cosine", "inverse-sqrt"),
    "albert": ("linear", "polynomial"),
    "gpt1": ("constant", "linear", "cosine"),
    "constant": ("inverse-sqrt",),
}
"""Schedules with which each kind of warm-up has an effect."""
_IN_ATTENTION = [name for name, row in POSITIONS.items() if row.in_attention != "nothing"]


CONDITIONS: dict[str, Use] = {
    "blocks": Use("model.kind is not lstm", _has_blocks),
    "networks": Use(
        "model.kind is not lstm, or model.head is transform",
        lambda recipe: _has_blocks(recipe) or recipe.model.head == "transform",
    ),
    "attention": Use("model.block has an attention entry", _has_attention),
    "self-attention": Use("model.block has an attention entry", _has_self_attention),
    "local": Use(
        "model.attention_window is given",
        lambda recipe: recipe.model.attention_window != "none",
    ),
    "local-and-global": Use(
        "model.positions is rotary, model.attention_window is given and model.window_pattern has "
        "both L and G, where model.position_pattern has P",
        _rotates_both,
    ),
    "several-attentions": Use(
        "a stack of model.n_layers times model.block executes several attention entries",
        _has_several_attentions,
    ),
    "scored-positions": Use(
        f"model.block has an attention entry, for {' and '.join(_IN_ATTENTION)}",
        lambda recipe: (
            POSITIONS[recipe.model.positions].in_attention == "nothing"
            or _has_self_attention(recipe)
        ),
    ),
    "affine-norms": Use(
        "model.norm_affine is true, model.final_norm or model.embedding_norm is affine, or "
        "model.head, model.pooler or model.span_head has a norm",
        _has_affine_norm,
    ),
    "parallel": Use(
        "model.block joins entries by +",
        lambda recipe: any(entry.is_joined for entry in entries(recipe.model)),
    ),
    "turned-norms": Use(
        "model.qk_norm_gain is true or model.qk_norm is layer (other norms commute with rotations)",
        lambda recipe: recipe.model.qk_norm_gain or recipe.model.qk_norm == "layer",
    ),
    "ffn": Use(
        "model.block has an ffn entry",
        lambda recipe: any(entry.ffn is not None for entry in entries(recipe.model)),
    ),
    "named-ffn": Use(
        "an ffn entry of model.block names no variant, or a transform head follows it",
        _follows_ffn_field,
    ),
    "gelu": _activation_use("gelu"),
    "swish": _activation_use("swish"),
    "compiled-kernels": Use(
        "model.ffn or an ffn entry of model.block is gelu or geglu with model.gelu tanh, or "
        "swiglu with model.swish_beta 1; model.norm is rms with model.norm_affine, or "
        "model.qk_norm rms or l2 with model.qk_norm_gain; or "
        "model.positions is rotary with model.rotary_fraction 1 and model.rotary_layout in halves",
        _has_compiled_kernel,
    ),
    "replicas": Use(
        "train.exact and train.compile are false, and model.dropout and all other dropouts are 0",
        may_have_replicas,
    ),
    "factorised": Use(
        "model.d_embed differs from model.d_model, or model.project_embeddings is always",
        lambda recipe: is_factorised(recipe.model),
    ),
    "embedding-dropout": Use(
        "model.dropout_embedding, or model.dropout where it is not given, is more than 0",
        _drops_embeddings,
    ),
    "pairs": _text_use("pairs"),
    "tasks": _text_use("tasks"),
    "windows": _text_use("windows"),
    "text": _text_use("windows", "sentences"),
    "all-text": _text_use("windows", "sentences", "pairs"),
    "letters": Use(
        "objective.kind is translation, or data.tokenizer is "
        f"{' or '.join(LETTERED_TOKENIZERS)}, trained without init.run",
        _has_letters,
    ),
    "fresh-tokenizer": Use(
        "no init.run brings its tokenizer", lambda recipe: recipe.init.run is None
    ),
    "filled-steps": Use(
        "objective.kind is translation, or objective.pairs is sentences and train.batch_tokens is "
        "given",
        fills_steps,
    ),
    "own-table": Use("data.tasks is table", lambda recipe: recipe.data.task_names == ("table",)),
    "held-out": Use("data.valid_path and data.test_path are not both given", _split_is_used),
    "unpublished": Use(
        "a text of data.corpus or data.path has no published split", _has_unpublished_text
    ),
    "documents": Use(
        f"data.path or another path names text, or data.corpus is {', '.join(RECORD_CORPORA)}",
        _is_read_by_rule,
    ),
    "text-field": Use(
        "data.documents is json or csv, or unset with a data.path to .parquet or hub:, or a "
        "data.corpus of records",
        _has_fields,
    ),
    "trained-vocabulary": Use(
        f"data.tokenizer is {', '.join(TRAINED_TOKENIZERS[:-1])} or {TRAINED_TOKENIZERS[-1]}",
        lambda recipe: recipe.data.tokenizer in TRAINED_TOKENIZERS,
    ),
    "sentinels": Use(
        f"data.tokenizer is unigram or a file ({', '.join(SENTINEL_SUFFIXES)})",
        lambda recipe: recipe.data.tokenizer.endswith(("unigram", *SENTINEL_SUFFIXES)),
    ),
    "gpt1-rules": Use(
        f"data.tokenizer is {GPT1} or a file of GPT-1's ({', '.join(GPT1_SUFFIXES)})",
        lambda recipe: recipe.data.tokenizer.endswith((GPT1, *GPT1_SUFFIXES)),
    ),
    "marks": Use(
        f"data.tokenizer is a file, {', '.join(MARKED_TOKENIZERS)}, or init.run brings one",
        _may_have_marks,
    ),
    "targets": Use(
        "objective.targets is more than 1", lambda recipe: recipe.objective.n_classifiers()[1] > 0
    ),
    "lower-blocks": Use("model.n_layers leaves blocks below the last", _has_blocks_below),
    "shuffled": _values_use("data.windows", ("shuffled",)),
    "decay": Use(
        "optimizer.weight_decay is more than 0",
        lambda recipe: getattr(recipe.optimizer, "weight_decay", 0.0) > 0,
    ),
    "one-stack": _values_use("model.kind", ("decoder", "encoder", "lstm")),
    "scheduled": Use(
        "optimizer.kind is not schedule-free",
        lambda recipe: recipe.optimizer.kind != "schedule-free",
    ),
    "warmup": Use(
        "optimizer.schedule is linear or polynomial for albert, constant, linear or cosine for "
        "gpt1, inverse-sqrt for constant",
        lambda recipe: recipe.optimizer.schedule in _WARMUPS[recipe.optimizer.warmup],
    ),
    "selector": Use(
        "evaluations of objective.kind and data.tasks have it",
        lambda recipe: recipe.train.best_by in (LAST, *recipe.objective.evaluations(recipe.data)),
    ),
    "strides": Use(
        "objective.kind is causal", lambda recipe: recipe.objective.is_scored_in_windows
    ),
    "micro-batches": Use(
        "a step has as many sequences, by train.batch_tokens or train.batch_sequences and "
        "data.context",
        lambda recipe: (recipe.train.micro_batch_sequences or 0) <= batch_sequences(recipe),
    ),
    "probes": Use("objective.kind is causal or span", lambda recipe: recipe.objective.is_probed),
    "start": Use("init.run is given", lambda recipe: recipe.init.run is not None),
}
"""Conditions that fields name in ``when``.

``compile`` excludes LSTMs, since PyTorch compiles neither recurrent layers nor the code around
them.
"""
OF_KIND = ("blocks", "networks")
"""Conditions to check before all others, so that advice about an LSTM is not misleading."""


def uses(key: str, kind: str = "") -> tuple[Use, ...]:
    """Return the conditions under which a field has an effect; all must hold.

    ``kind`` is the table's kind, if fields of the same name are declared differently by kind.
    """
    table, _, _ = key.partition(".")
    declared = extra(declaration(key, kind))
    needs, names = declared.get("needs", {}), declared.get("when", ())
    siblings = [_values_use(f"{table}.{name}", tuple(values)) for name, values in needs.items()]
    of_kind = [CONDITIONS[name] for name in names if name in OF_KIND]
    return (*of_kind, *siblings, *(CONDITIONS[name] for name in names if name not in OF_KIND))


def broken_use(key: str, recipe: Recipe) -> Use | None:
    """Return the first condition of a field that does not hold; None if all hold."""
    kind = getattr(getattr(recipe, key.partition(".")[0]), "kind", "")
    return next((use for use in uses(key, kind) if not use.holds(recipe)), None)


def is_idle(key: str, recipe: Recipe) -> bool:
    """Return whether a field, ``table.field`` or a heading, has no effect in a recipe."""
    return broken_use(key, recipe) is not None
