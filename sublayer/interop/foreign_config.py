"""Classes of other systems, and their configs: fields by rules, defaults, representable models.

It does not import PyTorch.
"""

from ast import literal_eval
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError

from sublayer.config.model import FFNS, Entry, ModelConfig, with_cross
from sublayer.config.recipe import ResolvedModel, extra
from sublayer.config.resolve import resolve_model
from sublayer.config.stacks import entries, stacks
from sublayer.errors import CheckpointError, ConfigError
from sublayer.numbers import enumerate_names, with_article
from sublayer.values import show


@dataclass(frozen=True)
class Rule:
    """A condition that a field, or several together, must meet in a resolved config."""

    holds: Callable[[ResolvedModel], bool]
    value: Callable[[ResolvedModel], Any] | None = None
    """Computes the field's value in an error; None shows its own value."""


Table = Mapping[str, tuple[Any, ...] | Rule]
"""Values of a model's fields that a class can represent, or a rule for them."""


def refused_fields(config: ResolvedModel, table: Table) -> list[str]:
    """List the fields of a config that a class cannot represent, as ``model.norm = rms``.

    A field without a row is refused unless it has its default or no effect. A field that has an
    effect only under certain values of another is omitted where that other is refused.
    """
    refused: dict[str, Any] = {}
    for name in type(config).model_fields:
        row, value = table.get(name), getattr(config, name)
        if row is None:
            deciders = _deciders(config, name).items()
            is_idle = any(getattr(config, decider) not in values for decider, values in deciders)
            is_allowed = is_idle or value == _default(config, name)
        else:
            is_allowed = row.holds(config) if isinstance(row, Rule) else value in row
        if not is_allowed:
            worded = row.value if isinstance(row, Rule) else None
            refused[name] = worded(config) if worded else value
        if "kind" in refused:
            break  # no other field counts
    return [
        f"model.{name} = {value if isinstance(value, str) else show(value)}"
        for name, value in refused.items()
        if refused.keys().isdisjoint(_deciders(config, name))
    ]


def check_fields(config: ResolvedModel, table: Table, system: str, hint: str = "") -> None:
    """Raise ConfigError, naming every field, for a model that a system cannot represent."""
    if refused := refused_fields(config, table):
        raise ConfigError(
            f"{system} cannot represent {', '.join(refused)}: the model cannot be exported{hint}"
        )


def _deciders(config: ResolvedModel, name: str) -> Mapping[str, tuple[Any, ...]]:
    """Return the fields, and their values, under which a field has an effect."""
    if name == "final_norm":
        return {"norm": ("layer", "rms", "dyt")}
    needs: Mapping[str, tuple[Any, ...]] = extra(type(config).model_fields[name]).get("needs") or {}
    return needs


def _default(config: ResolvedModel, name: str) -> Any:
    """Return a field's default value."""
    default = type(config).model_fields[name].default
    if default is not None:
        return default
    model = ModelConfig.model_construct(**{**dict(config), name: None})
    try:
        derived = resolve_model(model, vocab_size=config.vocab_size, context=1)
    except ConfigError:
        return None
    return getattr(derived, name)


def _steps(block: tuple[Entry, ...]) -> list[tuple[str, float]]:
    return [(f"{'+' if entry.is_joined else ''}{entry.name}", entry.step) for entry in block]


_USUAL = [("attention", 1.0), ("ffn", 1.0)]


def _has_usual_decoder_block(config: ResolvedModel) -> bool:
    encoder, *beside = stacks(config)
    # A block derived from the encoder's is reported as the encoder's.
    allowed = ([_USUAL[0], ("cross", 1.0), _USUAL[1]], _steps(with_cross(encoder.block)))
    return all(_steps(decoder.block) in allowed for decoder in beside)


def networks(config: ResolvedModel) -> list[str]:
    """List the feed-forward networks of a model's blocks, each once."""
    return sorted({entry.variant for entry in entries(config) if entry.variant is not None})


def activated_by(activations: Collection[str]) -> Rule:
    """Build the rule of networks with one of the activations."""

    def others(config: ResolvedModel) -> str:
        every = networks(config)
        return ", ".join(name for name in every if FFNS[name].activation not in activations)

    return Rule(lambda config: not others(config), others)


ANY = Rule(lambda config: True)
TRAINING_ONLY = (
    *("dropout", "dropout_attention", "dropout_ffn", "dropout_embedding", "dropout_embedding_of"),
    *("dropout_final", "init", "init_std", "vocab_multiple", "zero_padding"),
)
"""Fields that do not change the results of a trained model."""
EXPANDED: Mapping[tuple[str, Any], tuple[Any, ...]] = {
    **{(name, True): (False,) for name in ("bias", "norm_affine", "norm_bias", "head_bias")},
    ("qk_norm_gain", True): (False,),
    ("final_norm", "affine"): ("plain",),
    ("positions", "learned"): ("sinusoidal", "none"),
    ("segments", "both"): ("none", "second"),
    ("share", "none"): ("all", "attention", "ffn"),
    ("embedding_scale", "none"): ("sqrt",),
    ("project_embeddings", "always"): ("as-needed",),
    ("softmax", "tokens"): ("all",),
}
"""A field's values and the values that can be written as them: no biases as zeros, shared weights
once per block, sinusoids as a table (see ``expand``)."""
COMMON: Table = {
    **dict.fromkeys(TRAINING_ONLY, ANY),
    # Attention, then a feed-forward network, with step size 1; in an encoder-decoder's decoder with
    # cross-attention between them.
    "block": Rule(lambda config: _steps(stacks(config)[0].block) == _USUAL),
    "decoder_block": Rule(_has_usual_decoder_block),
    # They have an effect only where the field above is not the default, and are expanded with it.
    **dict.fromkeys(("sinusoids", "first_position", "share_groups", "share_inner"), ANY),
    # Applies where the table is as wide as the model and not projected.
    "embedding_projection": ANY,
    # Every token is in the first segment, which has no vector or a zero vector.
    "segments": ("none", "second"),
    "softmax": ("tokens",),
}
"""Rows of every class."""


def rows_of(always: Mapping[str, Any]) -> Table:
    """Return the rows of fields that a class requires, with equivalent values."""
    rows = {name: (value, *EXPANDED.get((name, value), ())) for name, value in always.items()}
    return {name: row for name, row in rows.items() if name not in TRAINING_ONLY}


ValueRule = Callable[[Any], Any]
"""Reads a value of a file. For an invalid one raises ValueError, worded to follow the value."""
REQUIRED = object()
"""The default of a field that a file must give."""


class Unsayable(ValueError):
    """A meaningful value that no recipe can express."""


def _rule(
    accepts: Callable[[Any], bool], problem: str, convert: ValueRule = lambda value: value
) -> ValueRule:
    def rule(value: Any) -> Any:
        if not accepts(value):
            raise ValueError(problem)
        return convert(value)

    return rule


def whole(most: int, least: int = 1) -> ValueRule:
    """Build the rule of whole numbers from ``least`` to ``most``."""
    problem = f"is not a whole number from {least} to {most:,}"
    return _rule(lambda value: type(value) is int and least <= value <= most, problem)


def positive(most: float) -> ValueRule:
    """Build the rule of numbers greater than 0 and at most ``most``."""
    problem = f"is not a number greater than 0, of at most {most:g}"
    return _rule(lambda value: type(value) in (int, float) and 0 < value <= most, problem, float)


def one_of(names: Collection[str]) -> ValueRule:
    """Build the rule of a choice of names."""
    problem = f"is not one of {', '.join(names)}"
    return _rule(lambda value: isinstance(value, str) and value in names, problem)


token_id = _rule(lambda value: type(value) is int and value >= 0, "is not a token id")
"""The rule of a token id, whether or not the vocabulary has it."""
share = _rule(
    lambda value: type(value) in (int, float) and 0 <= value < 1,
    "is not a number of at least 0 and less than 1",
    float,
)
"""The rule of a dropout probability."""
flag = _rule(lambda value: type(value) is bool, "is not true or false")
"""The rule of a bool; 0 and 1 are refused."""


def optional(inner: ValueRule) -> ValueRule:
    """Build the rule of a field that may also be null."""
    return lambda value: None if value is None else inner(value)


def listed(inner: ValueRule) -> ValueRule:
    """Build the rule of a list of values."""

    def rule(value: Any) -> list[Any]:
        if type(value) is not list:
            raise ValueError("is not a list")
        return [inner(each) for each in value]

    return rule


def table_of(rules: Mapping[str, ValueRule]) -> ValueRule:
    """Build the rule of a table, by its fields' rules."""

    def rule(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise ValueError("is not a table")
        read = {}
        for name, each in value.items():
            if name not in rules:
                raise Unsayable(f"{name:.40} changes the model")
            try:
                read[name] = rules[name](each)
            except ValueError as problem:
                raise Unsayable(f"{name} {problem}") from None
        return read

    return rule


def rule_of(name: str) -> ValueRule:
    """Build the rule of a model field's value, by type and bound."""
    info = ModelConfig.model_fields[name]
    types = get_args(info.annotation) or (info.annotation,)
    if bool in types:
        return flag
    most = next((bound.le for bound in info.metadata if hasattr(bound, "le")), None)
    if most is None:
        return share
    return whole(most) if int in types else positive(most)


@dataclass(frozen=True)
class Content:
    """The fields of a file."""

    file: str
    """The file's name in messages."""
    fields: Mapping[str, Any]

    def error(self, problem: str) -> CheckpointError:
        """Return the error of a problem of the file."""
        return CheckpointError(f"{self.file}: {problem}")

    def read(self, name: str, rule: ValueRule) -> Any:
        """Read a field by its rule; raise CheckpointError, with the field, for a refused value."""
        stated = f"{name} = {show(self.fields[name])}"
        try:
            return rule(self.fields[name])
        except Unsayable as problem:
            reason = f" ({problem})" if str(problem) else ""
            stated = f"cannot be expressed as a recipe: {stated}{reason}"
        except ValueError as problem:
            stated = f"{stated} {problem}"
        raise self.error(stated)

    def resolve(self, fields: Mapping[str, Any]) -> ResolvedModel:
        """Resolve a model's fields; raise CheckpointError where a recipe cannot express them."""
        try:
            config = ModelConfig.model_validate(fields)
            return resolve_model(config, vocab_size=fields["vocab_size"], context=1)
        except ValidationError as problem:
            first = problem.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            reason = f"model.{name} = {show(first['input'])}: {first['msg']}"
        except ConfigError as problem:
            reason = str(problem)
        raise self.error(f"cannot be expressed as a recipe: {reason}")


@dataclass(frozen=True)
class Link:
    """Two-way mapping between a model's field and a field of config.json."""

    ours: str
    values: Mapping[Any, Any] = field(default_factory=dict)
    """Our values by the file's; beside a single one, others are the same."""

    def read(self, value: Any) -> dict[str, Any]:
        """Convert the file's value to fields of a model."""
        return {self.ours: self.values.get(value, value) if self.values else value}

    def write(self, config: ResolvedModel) -> Any:
        """Convert the fields of a model, with values that ``rows`` allow, to the file's value."""
        value = getattr(config, self.ours)
        return next((theirs for theirs, ours in self.values.items() if ours == value), value)

    def rows(self) -> Table:
        """Return the fields' values that the file can express."""
        return {self.ours: tuple(self.values.values()) if len(self.values) > 1 else ANY}


class Networks(Link):
    """Network and form of its GELU under one name; of several names, the first is written."""

    def read(self, value: Any) -> dict[str, Any]:
        """Return the fields ``ffn`` and ``gelu``."""
        return dict(zip(("ffn", "gelu"), self.values[value], strict=True))

    def write(self, config: ResolvedModel) -> Any:
        """Return the name of the common network of all blocks."""
        (ffn,) = networks(config)
        gelus = (config.gelu,) if FFNS[ffn].activation == "gelu" else ("exact", "tanh")
        return next(name for name, (n, gelu) in self.values.items() if n == ffn and gelu in gelus)

    def rows(self) -> Table:
        """Return rules for ``ffn`` and ``gelu``: one network, with a name in the file."""
        pairs = set(self.values.values())
        known = {name for name, _ in pairs}

        def has_gelu(config: ResolvedModel) -> bool:
            of_known = [name for name in networks(config) if name in known]
            gelus = [name for name in of_known if FFNS[name].activation == "gelu"]
            return all((name, config.gelu) in pairs for name in gelus)

        def in_the_way(config: ResolvedModel) -> str:
            unknown = [name for name in networks(config) if name not in known]
            return ", ".join(unknown or networks(config))

        is_one = Rule(lambda c: len(networks(c)) <= 1 and known >= {*networks(c)}, in_the_way)
        return {"ffn": is_one, "gelu": Rule(has_gelu)}


@dataclass(frozen=True)
class Field:
    """A field of a class's config: its default and its allowed values."""

    default: Any
    rule: ValueRule
    link: Link | None = None
    """The equivalent field of a model; None without one."""
    is_computed: bool = True
    """True where the field changes the results of a trained model."""
    write: Callable[[ResolvedModel], Any] | None = None
    """Computes its value for a model; None: that of the link, or the field is not written."""


def same(default: Any, ours: str) -> Field:
    """Build a field with the values of a model's field; null only if it is the default."""
    rule = rule_of(ours)
    rule = optional(rule) if default is None else rule
    return Field(default, rule, Link(ours), is_computed=ours not in TRAINING_ONLY)


def linked(text: str) -> dict[str, Field]:
    """Build fields by ``same`` from theirs, ours and default: ``dim:d_model=768 dropout ...``.

    A single name is both theirs and ours; a field without a default is required.
    """
    fields = {}
    for row in text.split():
        both, _, default = row.partition("=")
        theirs, _, ours = both.partition(":")
        fields[theirs] = same(literal_eval(default) if default else REQUIRED, ours or theirs)
    return fields


def switch(default: bool, ours: str, on: Any, off: Any) -> Field:
    """Build a field that selects one of two values of a model's field."""
    return Field(default, flag, Link(ours, {True: on, False: off}))


def network(default: str, networks_by_name: Mapping[str, tuple[str, str]]) -> Field:
    """Build a field that names the feed-forward network; ``networks_by_name``: see ``Networks``."""
    return Field(default, one_of(networks_by_name), Networks("ffn", networks_by_name))


def training_only(default: Any, rule: ValueRule, link: Link | None = None) -> Field:
    """Build a field that affects only training."""
    return Field(default, rule, link, is_computed=False)


def harmless(*allowed: Any) -> Field:
    """Build a field restricted to values without effect, the first its default; 0 is not false."""

    def rule(value: Any) -> Any:
        for choice in allowed:
            if type(value) is type(choice) and value == choice:
                return value
        raise Unsayable(f"only {' or '.join(map(repr, allowed))}")

    return Field(allowed[0], rule, is_computed=False)


def switched_off(names: Collection[str], reason: str = "") -> dict[str, Field]:
    """Build fields for which only null, false and 0 are accepted; ``reason`` is in the error."""

    def rule(value: Any) -> None:
        if value:
            raise Unsayable(reason)

    return dict.fromkeys(names, Field(None, rule, is_computed=False))


def pairs_of(text: str) -> tuple[tuple[str, str], ...]:
    """Split whitespace-separated pairs of names, as in ``ours:theirs``."""
    return tuple((one, other) for one, _, other in (pair.partition(":") for pair in text.split()))


@dataclass(frozen=True)
class ClassConfig(Content):
    """A config with a value for every field of its class."""

    computed: Mapping[str, Any]
    """The file's fields that change the class's results, by the file's names."""
    ours: Mapping[str, Any]
    """The equivalent fields of a model."""


@dataclass(frozen=True)
class ClassFields:
    """The fields of a class that matter, with its defaults; any others are not read."""

    title: str
    """The class's own name."""
    fields: Mapping[str, Field]
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Alternative names of fields, and the fields."""

    def read(self, content: Content) -> ClassConfig:
        """Read a file's fields by their rules, with the class's defaults for those left out.

        Raises CheckpointError, naming the field, for invalid or inexpressible values, synonyms that
        differ, and ids beyond the vocabulary.
        """
        read: dict[str, Any] = {}
        stated: dict[str, str] = {}
        computed: dict[str, Any] = {}
        for name in content.fields:
            field = self.aliases.get(name, name)
            if field not in self.fields:
                continue
            value = content.read(name, self.fields[field].rule)
            words = f"{name} = {show(value)}"
            if read.setdefault(field, value) != value:
                raise content.error(f"{stated[field]} and {words} are the same: leave one out")
            stated.setdefault(field, words)
            if self.fields[field].is_computed:
                computed[name] = value
        complete = {name: field.default for name, field in self.fields.items()} | read
        for name, value in complete.items():
            if value is REQUIRED:
                raise content.error(f"it has no {name}")
            is_id = name.endswith("_token_id") and value is not None
            if is_id and value >= complete["vocab_size"]:
                whose = "" if name in read else f" (the default of {self.title})"
                vocabulary = f"vocab_size = {complete['vocab_size']}"
                raise content.error(f"{name} = {value}{whose} is not within {vocabulary}")
        # Two fields that map to one of ours must agree, and heads must divide the width.
        ours: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for name, link in self.links().items():
            words = f"{name} = {show(complete[name])}"
            for key, value in link.read(complete[name]).items():
                if ours.setdefault(key, value) != value:
                    raise content.error(f"{sources[key]} but {words}: both stacks share one value")
                sources.setdefault(key, words)
        if "d_head" not in ours and ours["d_model"] % ours["n_heads"]:
            raise content.error(f"{sources['n_heads']} does not divide {sources['d_model']}")
        return ClassConfig(content.file, complete, computed, ours)

    def links(self) -> dict[str, Link]:
        """Return the fields linked to a model's, by name."""
        return {name: row.link for name, row in self.fields.items() if row.link is not None}

    def write(self, config: ResolvedModel) -> dict[str, Any]:
        """Convert a model's fields to the class's."""
        links = {name: link.write(config) for name, link in self.links().items()}
        rows = self.fields.items()
        return links | {name: row.write(config) for name, row in rows if row.write is not None}

    def rows(self) -> Table:
        """Return the values of a model's fields that the class can express."""
        return {name: row for link in self.links().values() for name, row in link.rows().items()}


QUANTISED = "quantised weights: import the model that they were quantised from"
NEVER = {
    **dict.fromkeys(("add_cross_attention", "is_decoder", "tie_encoder_decoder"), harmless(False)),
    "per_layer_config": harmless(None, {}),
    "position_embedding_type": harmless("absolute", None),
    "pruned_heads": harmless({}, None),
    **switched_off(("auto_map",), "code of the folder's own, which is never run"),
    **switched_off(("quantization_config",), QUANTISED),
    **switched_off(("transformers_weights",), "another file of weights: call it model.safetensors"),
}
"""Fields that every class accepts, or once did, and that would change the model."""
ACTIVATIONS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh"), ("gelu", "tanh")),
    **dict.fromkeys(("gelu", "gelu_python"), ("gelu", "exact")),
    "relu": ("relu", "tanh"),
    **dict.fromkeys(("silu", "swish"), ("swish", "tanh")),
}
"""Ungated networks and the forms of their GELUs, by transformers' names of activations; several
names mean the same formula."""


class ForeignClass(NamedTuple):
    """A class of transformers for models of one kind."""

    title: str
    kind: str
    family: str
    """The subclass of ``Family`` that converts it, as ``module:class``."""


_DECODERS = (
    "GPT-2:Gpt2 GPT-1:Gpt1 Llama Mistral SmolLM3 Qwen2 Qwen3 Olmo2 Gemma2 Gemma3 Granite "
    "GPT-NeoX:GptNeoX GPT-J:GptJ Cohere NanoChat"
)
_ENCODERS = (
    "DistilBERT:DistilBert RoBERTa:Roberta BERT:Bert ELECTRA:Electra ALBERT:Albert "
    "ModernBERT:ModernBert"
)
CLASSES: tuple[ForeignClass, ...] = tuple(
    ForeignClass(each.partition(":")[0], kind, f"sublayer.interop.{module}:{each.split(':')[-1]}")
    for kind, module, classes in (
        ("decoder", "decoders", _DECODERS),
        ("encoder", "encoders", _ENCODERS),
        ("encoder-decoder", "seq2seq", "M2M100 Marian BART:Bart T5"),
    )
    for each in classes.split()
)
"""If several can represent a model, an export uses the first."""


def describe_classes() -> str:
    """List the classes by the kind of their models, as in ``a decoder as GPT-2 or GPT-1``."""
    titles: dict[str, list[str]] = {}
    for row in CLASSES:
        titles.setdefault(with_article(row.kind), []).append(row.title)
    return ", ".join(f"{kind} as {enumerate_names(of, 'or')}" for kind, of in titles.items())
