"""Configs of other systems' models: fields by rules, a class's defaults, activations by name."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from sublayer.config.architecture import FFNS
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import ResolvedModel
from sublayer.config.resolve import resolve_model
from sublayer.config.table import (
    LARGEST_FACTOR,
    LARGEST_VOCABULARY,
    LONGEST_WINDOW,
    MOST_HEADS,
    MOST_LAYERS,
    WIDEST,
    WIDEST_FFN,
)
from sublayer.errors import CheckpointError, ConfigError

_LARGEST_EPS = 1.0
"""The most that a norm may add to the variance."""
ValueRule = Callable[[Any], Any]
"""Reads a value of a file. Raises ValueError, in words that follow the value, where it is none."""
_SHOWN_CHARACTERS, _MOST_BITS = 60, 128
"""Of a value in a line of error, and of a number that is written out in one."""
_MISSING = object()


class Unsayable(ValueError):
    """A value that has a meaning, which no recipe can say."""


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
    """Return the id of a token, a whole number from 0, whether or not a vocabulary has it."""
    if type(value) is not int or value < 0:
        raise ValueError("is not the id of a token")
    return value


def share(value: Any) -> float:
    """Return a probability of dropping, from 0 to less than 1."""
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
    """Return a truth value; 0 and 1 are none."""
    if type(value) is not bool:
        raise ValueError("is not true or false")
    return value


def one_of(names: Collection[str]) -> ValueRule:
    """Build the rule of a name among some."""

    def rule(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"is not one of {', '.join(names)}")
        return value

    return rule


def optional(inner: ValueRule) -> ValueRule:
    """Build the rule of a field that may also be null."""
    return lambda value: None if value is None else inner(value)


VOCABULARY, WINDOW = whole(LARGEST_VOCABULARY), whole(LONGEST_WINDOW)
WIDTH, FFN_WIDTH = whole(WIDEST), whole(WIDEST_FFN)
LAYERS, HEADS = whole(MOST_LAYERS), whole(MOST_HEADS)
EPS, FACTOR = positive(_LARGEST_EPS), positive(LARGEST_FACTOR)


def format_value(value: Any) -> str:
    """Format a value for a line of error, cut where it is long."""
    # Python refuses to write out numbers of very many digits.
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of {value.bit_length():,} bits"
    text = repr(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[: _SHOWN_CHARACTERS - 4]} ..."


@dataclass(frozen=True)
class Content:
    """The fields of a file.

    Its readers raise CheckpointError, with the file and the field, where one is missing that has no
    default, is none of its kind, or asks for something that a recipe cannot say.
    """

    file: str
    """The name that messages have for it."""
    fields: Mapping[str, Any]

    def read(self, name: str, rule: ValueRule, default: Any = _MISSING) -> Any:
        """Read a field by its rule; a missing one is ``default``, without which it is refused.

        The rule holds for the default as well.
        """
        value = self.fields.get(name, default)
        if value is _MISSING:
            raise CheckpointError(f"{self.file} does not say {name}")
        try:
            return rule(value)
        except Unsayable as problem:
            raise CheckpointError(
                f"{self.file} asks for what a recipe cannot say: "
                f"{name} = {format_value(value)} ({problem})"
            ) from None
        except ValueError as problem:
            raise CheckpointError(
                f"{self.file}: {name} = {format_value(value)} {problem}"
            ) from None

    def activation(
        self, name: str, default: str, known: Mapping[str, tuple[str, str]]
    ) -> dict[str, str]:
        """Read an activation, of those ``known`` by name, as the model's fields ffn and gelu.

        ``known`` maps each name to an activation and the form of a GELU.
        """
        return activation_fields(*known[self.read(name, one_of(known), default)])

    def refuse(self, names: Sequence[str]) -> None:
        """Raise CheckpointError where fields that a recipe has no equal for are switched on.

        Missing, null, false and 0 are off.
        """
        named = []
        for name in names:
            value = self.fields.get(name)
            if value:
                named.append(f"{name} = {format_value(value)}")
        if named:
            raise CheckpointError(
                f"{self.file} asks for what a recipe cannot say: {', '.join(named)}"
            )

    def whole(self, name: str, default: int | None = None, most: int = LONGEST_WINDOW) -> int:
        """Read a whole number from 1 to ``most``; without a default it must be there.

        With one, null is the default too.
        """
        if default is not None and self.fields.get(name) is None:
            return default
        return int(self.read(name, whole(most)))

    def share(self, name: str, default: float) -> float:
        """Read a probability of dropping, from 0 to less than 1."""
        return float(self.read(name, share, default))

    def flag(self, name: str, default: bool = True) -> bool:
        """Read true or false; a field that is not there is ``default``."""
        return bool(self.read(name, flag, default))

    def heads(self, name: str, width_name: str) -> int:
        """Read a number of heads, which must divide the model's width, ``width_name``."""
        n_heads, width = self.whole(name, most=MOST_HEADS), self.fields[width_name]
        if width % n_heads:
            raise CheckpointError(
                f"{self.file}: {name} = {n_heads} does not divide {width_name} = {width}"
            )
        return n_heads

    def both_sides(self, name: str) -> None:
        """Raise CheckpointError where ``encoder_NAME`` and ``decoder_NAME`` differ.

        What is false, 0 or not there is the same.
        """
        encoder, decoder = (self.fields.get(f"{side}_{name}") for side in ("encoder", "decoder"))
        if (encoder or decoder) and encoder != decoder:
            raise CheckpointError(
                f"{self.file}: encoder_{name} = {format_value(encoder)} and decoder_{name} = "
                f"{format_value(decoder)}: both stacks have one"
            )

    def resolve(self, fields: Mapping[str, Any], *, context: int = 1) -> ResolvedModel:
        """Build a resolved model config of the model's fields that were read.

        ``context`` settles a ``max_len`` that ``fields`` leave open.

        Raises CheckpointError where they are no model that a recipe can say.
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
        raise CheckpointError(f"{self.file} asks for what a recipe cannot say: {reason}")


@dataclass(frozen=True)
class Field:
    """A field of a class's config: its default there, and the values that it may have."""

    default: Any
    rule: ValueRule
    ours: str = ""
    """The field of a model that has the same values; empty where there is none."""
    is_computed: bool = True
    """True where it changes the results of a trained model."""


def training_only(default: Any, rule: ValueRule, ours: str = "") -> Field:
    """Build a field that changes training, and nothing that a trained model computes."""
    return Field(default, rule, ours, is_computed=False)


def harmless(*allowed: Any) -> Field:
    """Build a field of which only values that change nothing are read; the first is the default.

    A number is no truth value.
    """

    def rule(value: Any) -> Any:
        for known in allowed:
            if type(value) is type(known) and value == known:
                return value
        raise Unsayable(f"only {' or '.join(map(repr, allowed))}")

    return Field(allowed[0], rule, is_computed=False)


def names(text: str) -> frozenset[str]:
    """Read names that whitespace divides."""
    return frozenset(text.split())


@dataclass(frozen=True)
class ClassConfig(Content):
    """A config with a value for every field of its class."""

    given: Mapping[str, Any]
    """The fields of the file, by its own names, with which the class computes."""
    unknown: tuple[str, ...]
    """The names in the file that the class has not."""
    ours: Mapping[str, Any]
    """The fields of a model that have the same values."""


@dataclass(frozen=True)
class ClassFields:
    """The fields of a class of transformers, with its defaults.

    A field that has no row and is not ignored is unknown to the class, which leaves it out; so does
    an import, and says so.
    """

    title: str
    """The class's own name."""
    fields: Mapping[str, Field]
    aliases: Mapping[str, str]
    """Other names of some fields, and the fields that they mean."""
    ignored: frozenset[str]
    """Names that the class knows, and that change no logits."""
    ids: tuple[str, ...] = ()
    """The fields that must be within the vocabulary, unless they are null."""

    def read(self, content: Content) -> ClassConfig:
        """Read a file's fields by their rules, with the class's defaults for those left out.

        Raises CheckpointError, naming the field, for a value that is none, or that a recipe cannot
        say, for two names of one field with different values, and for ids beyond the vocabulary.
        """
        read: dict[str, Any] = {}
        given: dict[str, Any] = {}
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
                    f"{content.file}: {both} are one field: leave one of them out"
                )
            read[field] = value
            names_in_file[field] = name
            if self.fields[field].is_computed:
                given[name] = value
        complete = {name: field.default for name, field in self.fields.items()} | read
        for name in self.ids:
            value = complete[name]
            if value is not None and value >= complete["vocab_size"]:
                whose = "" if name in read else f" (what {self.title} has by default)"
                raise CheckpointError(
                    f"{content.file}: {name} = {value}{whose} is not within "
                    f"vocab_size = {complete['vocab_size']}"
                )
        ours = {row.ours: complete[name] for name, row in self.fields.items() if row.ours}
        return ClassConfig(content.file, complete, given, tuple(unknown), ours)

    def write(self, config: ResolvedModel) -> dict[str, Any]:
        """Return the fields that have the values of a model's fields."""
        rows = self.fields.items()
        return {name: getattr(config, field.ours) for name, field in rows if field.ours}


def _unquantized(value: Any) -> None:
    if value:
        raise Unsayable("quantised weights: import the model that they were made of")


NEVER = {
    "add_cross_attention": harmless(False),
    "auto_map": harmless(None, {}),
    "is_decoder": harmless(False),
    "per_layer_config": harmless(None, {}),
    "position_embedding_type": harmless("absolute", None),
    "pruned_heads": harmless({}, None),
    "quantization_config": Field(None, _unquantized, is_computed=False),
    "tie_encoder_decoder": harmless(False),
}
"""Fields that every class takes, or took, and that would make it another model."""
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
"""Fields that every class takes, or took, and that change no number of a model's logits."""

ACTIVATIONS: dict[str, tuple[str, str]] = {
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "gelu": ("gelu", "exact"),
    "gelu_python": ("gelu", "exact"),
    "relu": ("relu", "tanh"),
    "silu": ("swish", "tanh"),
    "swish": ("swish", "tanh"),
}
"""transformers' names of activations: ours (see ``FFNS``) and the form of a GELU, whose two tanh
forms are one formula. The first name of several is written."""


def network_activation(ffn: str) -> str | None:
    """Return the activation of a network without a gate; None for a gated or unknown one."""
    row = FFNS.get(ffn)
    if row is None or row.is_gated:
        return None
    return row.activation


def has_activation_name(ffn: str) -> bool:
    """Return whether transformers names the activation of a network; it names none with a gate."""
    return network_activation(ffn) in [activation for activation, _ in ACTIVATIONS.values()]


def activation_name(ffn: str, gelu: str) -> str:
    """Return transformers' name of the activation of a network that ``has_activation_name``.

    ``gelu`` counts only where the activation is one.
    """
    activation = network_activation(ffn)
    wanted = (activation, gelu if activation == "gelu" else "tanh")
    return next(name for name, meaning in ACTIVATIONS.items() if meaning == wanted)


def activation_fields(activation: str, gelu: str) -> dict[str, str]:
    """Return the fields ``ffn`` and ``gelu`` of the plain network that has an activation."""
    return {"ffn": next(n for n in FFNS if network_activation(n) == activation), "gelu": gelu}
