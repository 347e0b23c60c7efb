"""Classes of other systems, and their configs: fields by rules, defaults, representable models.

It does not import PyTorch.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from pydantic import ValidationError

from sublayer.config.model import FFNS, Entry, ModelConfig, with_cross
from sublayer.config.recipe import ResolvedModel, extra
from sublayer.config.resolve import resolve_model
from sublayer.config.stacks import entries, stacks
from sublayer.errors import CheckpointError, ConfigError
from sublayer.numbers import enumerate_names, with_article


@dataclass(frozen=True)
class Rule:
    """A condition that a field, or several together, must meet in a resolved config."""

    holds: Callable[[ResolvedModel], bool]
    value: Callable[[ResolvedModel], Any] | None = None
    """Computes the field's value in an error; None shows its own value."""


Table = Mapping[str, tuple[Any, ...] | Rule]
"""Values of a model's fields that a class can represent, or a rule for them."""


def refused_fields(config: ResolvedModel, table: Table) -> list[str]:
    """List the fields of a resolved config, with values, that a class cannot represent.

    A field without a row is refused unless it has its default or no effect. A field that has an
    effect only under certain values of another is omitted where that other is refused. Each entry
    reads like ``model.norm = rms``; an empty list means that the class can represent the model.
    """
    refused = []
    for name in type(config).model_fields:
        row = table.get(name)
        if row is None:
            is_idle = any(
                getattr(config, decider) not in values
                for decider, values in _deciders(config, name).items()
            )
            is_allowed = is_idle or getattr(config, name) == _default(config, name)
        elif isinstance(row, Rule):
            is_allowed = row.holds(config)
        else:
            is_allowed = getattr(config, name) in row
        if not is_allowed:
            refused.append(name)
    described = []
    for name in refused:
        if not set(_deciders(config, name)).isdisjoint(refused):
            continue
        row, value = table.get(name), getattr(config, name)
        if isinstance(row, Rule) and row.value is not None:
            value = row.value(config)
        if isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, tuple):
            value = list(value)
        described.append(f"model.{name} = {value}")
    return described


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


def _has_usual_decoder_block(config: ResolvedModel) -> bool:
    encoder, *beside = stacks(config)
    usual = [("attention", 1.0), ("cross", 1.0), ("ffn", 1.0)]
    # A block derived from the encoder's is reported as the encoder's.
    allowed = (usual, _steps(with_cross(encoder.block)))
    return all(_steps(decoder.block) in allowed for decoder in beside)


def networks(config: ResolvedModel) -> list[str]:
    """List the feed-forward networks of a model's blocks, each once."""
    return sorted({entry.variant for entry in entries(config) if entry.variant is not None})


def is_gelu(network: str) -> bool:
    """Return whether a network's activation is a GELU, exact or by tanh."""
    return FFNS[network].activation == "gelu"


ANY = Rule(lambda config: True)
"""All values of a field."""
TRAINING_ONLY = (
    *("dropout", "dropout_attention", "dropout_ffn", "dropout_embedding", "dropout_embedding_of"),
    *("dropout_final", "init", "init_std", "vocab_multiple", "zero_padding"),
)
"""Fields that do not change the results of a trained model."""
EXPANDED: Mapping[tuple[str, Any], tuple[Any, ...]] = {
    ("bias", True): (False,),
    ("norm_affine", True): (False,),
    ("norm_bias", True): (False,),
    ("qk_norm_gain", True): (False,),
    ("head_bias", True): (False,),
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
    "block": Rule(
        lambda config: _steps(stacks(config)[0].block) == [("attention", 1.0), ("ffn", 1.0)]
    ),
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
_SHOWN_CHARACTERS, _MOST_BITS = 60, 128
"""The most characters of a value in an error, and the most bits of a number written out in one."""
REQUIRED = object()
"""The default of a field that a file must give."""


class Unsayable(ValueError):
    """A meaningful value that no recipe can express."""


def whole(most: int) -> ValueRule:
    """Build the rule of whole numbers from 1 to ``most``."""

    def rule(value: Any) -> int:
        if type(value) is not int or value < 1:
            raise ValueError("is not a whole number of at least 1")
        if value > most:
            raise ValueError(f"is more than {most:,}")
        return value

    return rule


def token_id(value: Any) -> int:
    """Return a token id, an integer from 0, whether or not the vocabulary has it."""
    if type(value) is not int or value < 0:
        raise ValueError("is not a token id")
    return value


def share(value: Any) -> float:
    """Return a dropout probability, from 0 to less than 1."""
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise ValueError("is not a number of at least 0 and less than 1")
    return float(value)


def positive(most: float) -> ValueRule:
    """Build the rule of numbers greater than 0 and at most ``most``."""

    def rule(value: Any) -> float:
        if type(value) not in (int, float) or not 0 < value < float("inf"):
            raise ValueError("is not a number greater than 0")
        if value > most:
            raise ValueError(f"is more than {most:g}")
        return float(value)

    return rule


def flag(value: Any) -> bool:
    """Return a bool; 0 and 1 are refused."""
    if type(value) is not bool:
        raise ValueError("is not true or false")
    return value


def one_of(names: Collection[str]) -> ValueRule:
    """Build the rule of a choice of names."""

    def rule(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"is not one of {', '.join(names)}")
        return value

    return rule


def optional(inner: ValueRule) -> ValueRule:
    """Build the rule of a field that may also be null."""
    return lambda value: None if value is None else inner(value)


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


def format_value(value: Any) -> str:
    """Format a value for an error message, cut where it is long."""
    # Python refuses to format integers with thousands of digits.
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of {value.bit_length():,} bits"
    text = repr(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[: _SHOWN_CHARACTERS - 4]} ..."


@dataclass(frozen=True)
class Content:
    """The fields of a file."""

    file: str
    """The file's name in messages."""
    fields: Mapping[str, Any]

    def read(self, name: str, rule: ValueRule) -> Any:
        """Read a field by its rule.

        Raises CheckpointError, with file and field, for an invalid value, or one that a recipe
        cannot express.
        """
        value = self.fields[name]
        try:
            return rule(value)
        except Unsayable as problem:
            reason = f" ({problem})" if str(problem) else ""
            raise CheckpointError(
                f"{self.file} cannot be expressed as a recipe: "
                f"{name} = {format_value(value)}{reason}"
            ) from None
        except ValueError as problem:
            raise CheckpointError(
                f"{self.file}: {name} = {format_value(value)} {problem}"
            ) from None

    def resolve(self, fields: Mapping[str, Any], *, context: int = 1) -> ResolvedModel:
        """Build a resolved model config from the model's fields.

        ``context`` is the default of ``max_len``.

        Raises CheckpointError where a recipe cannot express the model.
        """
        try:
            config = ModelConfig.model_validate(fields)
            return resolve_model(config, vocab_size=fields["vocab_size"], context=context)
        except ValidationError as problem:
            first = problem.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            reason = f"model.{name} = {format_value(first['input'])}: {first['msg']}"
        except ConfigError as problem:
            reason = str(problem)
        raise CheckpointError(f"{self.file} cannot be expressed as a recipe: {reason}")


@dataclass(frozen=True)
class Link:
    """Two-way mapping between a model's field and a field of config.json."""

    ours: str
    values: Mapping[Any, Any] = field(default_factory=dict)
    """Our values by the file's; empty where they are the same."""

    def read(self, value: Any) -> dict[str, Any]:
        """Convert the file's value to fields of a model."""
        return {self.ours: self.values[value] if self.values else value}

    def write(self, config: ResolvedModel) -> Any:
        """Convert the fields of a model, with values that ``rows`` allow, to the file's value."""
        value = getattr(config, self.ours)
        if not self.values:
            return value
        return next(theirs for theirs, ours in self.values.items() if ours == value)

    def rows(self) -> Table:
        """Return the fields' values that the file can express."""
        return {self.ours: tuple(self.values.values()) if self.values else ANY}


class Networks(Link):
    """Feed-forward network and form of its GELU, under one name in the file.

    ``values`` maps names to both; of several names for the same, the first is written.
    """

    def read(self, value: Any) -> dict[str, Any]:
        """Return the fields ``ffn`` and ``gelu``."""
        return dict(zip(("ffn", "gelu"), super().read(value)["ffn"], strict=True))

    def write(self, config: ResolvedModel) -> Any:
        """Return the name of the common network of all blocks."""
        (ffn,) = networks(config)
        gelus = (config.gelu,) if is_gelu(ffn) else ("exact", "tanh")
        return next(name for name, (n, gelu) in self.values.items() if n == ffn and gelu in gelus)

    def rows(self) -> Table:
        """Return rules for ``ffn`` and ``gelu``: one network, with a name in the file."""
        pairs = set(self.values.values())
        names = {name for name, _ in pairs}

        def has_gelu(config: ResolvedModel) -> bool:
            gelus = [name for name in networks(config) if name in names and is_gelu(name)]
            return all((name, config.gelu) in pairs for name in gelus)

        def in_the_way(config: ResolvedModel) -> str:
            unknown = [name for name in networks(config) if name not in names]
            return ", ".join(unknown or networks(config))

        def is_one(config: ResolvedModel) -> bool:
            return len(networks(config)) <= 1 and names.issuperset(networks(config))

        return {"ffn": Rule(is_one, in_the_way), "gelu": Rule(has_gelu)}


@dataclass(frozen=True)
class Field:
    """A field of a class's config: its default and its allowed values."""

    default: Any
    rule: ValueRule
    link: Link | None = None
    """The equivalent field of a model; None without one."""
    is_computed: bool = True
    """True where the field changes the results of a trained model."""


def same(default: Any, ours: str) -> Field:
    """Build a field with the values of a model's field; null only if it is the default."""
    rule = rule_of(ours)
    rule = optional(rule) if default is None else rule
    return Field(default, rule, Link(ours), is_computed=ours not in TRAINING_ONLY)


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
    """Build a field restricted to values without effect; the first is the default.

    Numbers are not bools.
    """

    def rule(value: Any) -> Any:
        for choice in allowed:
            if type(value) is type(choice) and value == choice:
                return value
        raise Unsayable(f"only {' or '.join(map(repr, allowed))}")

    return Field(allowed[0], rule, is_computed=False)


def absent(reason: str = "") -> ValueRule:
    """Build the rule of a field that no recipe can express: only null, false and 0 are allowed.

    ``reason`` says why, in the error.
    """

    def rule(value: Any) -> None:
        if value:
            raise Unsayable(reason)

    return rule


def switched_off(names: Collection[str]) -> dict[str, Field]:
    """Build fields without an equivalent in a recipe: only null, false and 0 are accepted."""
    return dict.fromkeys(names, Field(None, absent(), is_computed=False))


def names(text: str) -> frozenset[str]:
    """Split whitespace-separated names."""
    return frozenset(text.split())


@dataclass(frozen=True)
class ClassConfig(Content):
    """A config with a value for every field of its class."""

    computed: Mapping[str, Any]
    """The file's fields that change the class's results, by the file's names."""
    unknown: tuple[str, ...]
    """The file's names that the class lacks."""
    ours: Mapping[str, Any]
    """The equivalent fields of a model."""


@dataclass(frozen=True)
class ClassFields:
    """The fields of a class of transformers, with its defaults.

    Fields that are neither listed nor ignored are unknown to the class: it drops them, and so does
    an import, with a note.
    """

    title: str
    """The class's own name."""
    fields: Mapping[str, Field]
    ignored: frozenset[str] = frozenset()
    """Names that the class knows and that do not change logits."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Alternative names of fields, and the fields."""

    def read(self, content: Content) -> ClassConfig:
        """Read a file's fields by their rules, with the class's defaults for those left out.

        Raises CheckpointError, naming the field, for values that are invalid or that a recipe
        cannot express, for synonyms with different values, and for ids beyond the vocabulary.
        """
        read: dict[str, Any] = {}
        computed: dict[str, Any] = {}
        names_in_file: dict[str, str] = {}
        unknown = []
        for name in content.fields:
            field = self.aliases.get(name, name)
            if field not in self.fields:
                if name not in self.ignored:
                    unknown.append(name)
                continue
            value = content.read(name, self.fields[field].rule)
            if field in read and read[field] != value:
                first = f"{names_in_file[field]} = {format_value(read[field])}"
                both = f"{first} and {name} = {format_value(value)}"
                raise CheckpointError(
                    f"{content.file}: {both} are the same field: leave one of them out"
                )
            read[field] = value
            names_in_file[field] = name
            if self.fields[field].is_computed:
                computed[name] = value
        complete = {name: field.default for name, field in self.fields.items()} | read
        for name, value in complete.items():
            if value is REQUIRED:
                raise CheckpointError(f"{content.file} has no {name}")
            is_id = name.endswith("_token_id") and value is not None
            if is_id and value >= complete["vocab_size"]:
                whose = "" if name in read else f" (the default of {self.title})"
                raise CheckpointError(
                    f"{content.file}: {name} = {value}{whose} is not within "
                    f"vocab_size = {complete['vocab_size']}"
                )
        # Two fields that map to one of ours must agree, and heads must divide the width.
        ours: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for name, link in self.links().items():
            for key, value in link.read(complete[name]).items():
                words = f"{name} = {format_value(complete[name])}"
                if ours.setdefault(key, value) != value:
                    raise CheckpointError(
                        f"{content.file}: {sources[key]} but {words}: both stacks share one value"
                    )
                sources.setdefault(key, words)
        if "d_head" not in ours and ours["d_model"] % ours["n_heads"]:
            raise CheckpointError(
                f"{content.file}: {sources['n_heads']} does not divide {sources['d_model']}"
            )
        return ClassConfig(content.file, complete, computed, tuple(unknown), ours)

    def links(self) -> dict[str, Link]:
        """Return the fields linked to a model's, by name."""
        return {name: row.link for name, row in self.fields.items() if row.link is not None}

    def write(self, config: ResolvedModel) -> dict[str, Any]:
        """Convert a model's fields to the class's."""
        return {name: link.write(config) for name, link in self.links().items()}

    def rows(self) -> Table:
        """Return the values of a model's fields that the class can express."""
        rows: dict[str, Any] = {}
        for link in self.links().values():
            rows |= link.rows()
        return rows

    def extended(self, others: Mapping[str, Field]) -> "ClassFields":
        """Return these fields and others, which are then no longer ignored."""
        ignored = self.ignored - others.keys()
        return replace(self, fields={**self.fields, **others}, ignored=ignored)


NEVER = {
    "add_cross_attention": harmless(False),
    "auto_map": Field(
        None, absent("code of the folder's own, which is never run"), is_computed=False
    ),
    "is_decoder": harmless(False),
    "per_layer_config": harmless(None, {}),
    "position_embedding_type": harmless("absolute", None),
    "pruned_heads": harmless({}, None),
    "quantization_config": Field(
        None,
        absent("quantised weights: import the model that they were quantised from"),
        is_computed=False,
    ),
    "tie_encoder_decoder": harmless(False),
}
"""Fields that every class accepts, or once did, and that would change the model."""
ALWAYS_IGNORED = names(
    """
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal _commit_hash
    _experts_implementation _experts_implementation_internal _name_or_path _num_labels
    _output_attentions architectures attn_implementation bos_token_id chunk_size_feed_forward
    classifier_dropout classifier_dropout_prob cross_attention_hidden_size decoder_start_token_id
    dtype eos_token_id experts_implementation finetuning_task forced_bos_token_id
    forced_eos_token_id gradient_checkpointing id2label keys_to_ignore_at_inference label2id
    language model_type name_or_path num_labels output_attentions output_hidden_states output_past
    pad_token_id prefix problem_type return_dict sep_token_id task_specific_params tf_legacy_loss
    tie_last_hidden_states tokenizer_class torch_dtype torchscript transformers_version
    transformers_weights use_bfloat16 use_cache xla_device assistant_confidence_threshold
    assistant_lookbehind bad_words_ids begin_suppress_tokens diversity_penalty do_sample
    early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff
    exponential_decay_length_penalty force_bos_token_to_be_generated length_penalty max_length
    min_length no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule
    num_beam_groups num_beams num_return_sequences output_scores remove_invalid_values
    repetition_penalty return_dict_in_generate suppress_tokens target_lookbehind temperature top_k
    top_p typical_p
    """
)
"""Fields that every class accepts, or once did, and that do not change a model's logits."""

ACTIVATIONS: dict[str, tuple[str, str]] = {
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "gelu": ("gelu", "exact"),
    "gelu_python": ("gelu", "exact"),
    "relu": ("relu", "tanh"),
    "silu": ("swish", "tanh"),
    "swish": ("swish", "tanh"),
}
"""Ungated networks and the forms of their GELUs, by transformers' names of activations; several
names mean the same formula."""


@dataclass(frozen=True)
class ForeignClass:
    """A class of transformers for models of one kind."""

    title: str
    """The model's name, as its family has it."""
    kind: str
    """``model.kind`` of its models."""
    family: str
    """The subclass of ``Family`` that converts it, as ``module:class``."""


CLASSES: tuple[ForeignClass, ...] = (
    ForeignClass("GPT-2", "decoder", "sublayer.interop.gpt:Gpt2"),
    ForeignClass("GPT-1", "decoder", "sublayer.interop.gpt:Gpt1"),
    ForeignClass("Llama", "decoder", "sublayer.interop.decoders:Llama"),
    ForeignClass("Mistral", "decoder", "sublayer.interop.decoders:Mistral"),
    ForeignClass("SmolLM3", "decoder", "sublayer.interop.decoders:SmolLM3"),
    ForeignClass("Qwen2", "decoder", "sublayer.interop.decoders:Qwen2"),
    ForeignClass("Qwen3", "decoder", "sublayer.interop.decoders:Qwen3"),
    ForeignClass("Olmo2", "decoder", "sublayer.interop.decoders:Olmo2"),
    ForeignClass("Gemma2", "decoder", "sublayer.interop.decoders:Gemma2"),
    ForeignClass("Gemma3", "decoder", "sublayer.interop.decoders:Gemma3"),
    ForeignClass("Granite", "decoder", "sublayer.interop.decoders:Granite"),
    ForeignClass("GPT-NeoX", "decoder", "sublayer.interop.decoders:GptNeoX"),
    ForeignClass("GPT-J", "decoder", "sublayer.interop.decoders:GptJ"),
    ForeignClass("Cohere", "decoder", "sublayer.interop.decoders:Cohere"),
    ForeignClass("NanoChat", "decoder", "sublayer.interop.decoders:NanoChat"),
    ForeignClass("DistilBERT", "encoder", "sublayer.interop.encoders:DistilBert"),
    ForeignClass("RoBERTa", "encoder", "sublayer.interop.encoders:Roberta"),
    ForeignClass("BERT", "encoder", "sublayer.interop.bert:Bert"),
    ForeignClass("ELECTRA", "encoder", "sublayer.interop.encoders:Electra"),
    ForeignClass("ALBERT", "encoder", "sublayer.interop.bert:Albert"),
    ForeignClass("ModernBERT", "encoder", "sublayer.interop.encoders:ModernBert"),
    ForeignClass("M2M100", "encoder-decoder", "sublayer.interop.seq2seq:M2M100"),
    ForeignClass("Marian", "encoder-decoder", "sublayer.interop.seq2seq:Marian"),
    ForeignClass("BART", "encoder-decoder", "sublayer.interop.seq2seq:Bart"),
    ForeignClass("T5", "encoder-decoder", "sublayer.interop.seq2seq:T5"),
)
"""If several can represent a model, an export uses the first."""


def describe_classes() -> str:
    """List the classes by the kind of their models, as in ``a decoder as GPT-2 or GPT-1``."""
    parts = []
    for kind in dict.fromkeys(row.kind for row in CLASSES):
        titles = [row.title for row in CLASSES if row.kind == kind]
        parts.append(f"{with_article(kind)} as {enumerate_names(titles, 'or')}")
    return ", ".join(parts)
