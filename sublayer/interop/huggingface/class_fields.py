"""What a config.json may say to a class of transformers: fields, defaults, values, aliases.

The table of a class is data, in the folder of its family (``gpt2``, ``bert``, ``seq2seq``). A field
that has no row of its own and is not among those that change nothing is unknown to the class, which
leaves it out; so does an import, which says so. The defaults are those of transformers' classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sublayer.errors import CheckpointError
from sublayer.interop.config_reader import Content
from sublayer.interop.values import Rule, Unsayable, format_value, only


@dataclass(frozen=True)
class Field:
    """A field: what the class takes where a file leaves it out, and what it may be."""

    default: Any
    rule: Rule
    is_computed: bool = True
    """Whether it changes what a trained model computes."""


@dataclass(frozen=True)
class ClassConfig(Content):
    """A config whose every field has a value that its class knows."""

    given: Mapping[str, Any]
    """The fields of the file, by its own names, with which the class computes."""
    unknown: tuple[str, ...]
    """The names in the file that the class has not."""


@dataclass(frozen=True)
class ClassFields:
    """The fields of a class."""

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
        defaults = {name: field.default for name, field in self.fields.items()}
        complete = defaults | read
        self._check_ids(content.file, complete, read)
        return ClassConfig(content.file, complete, given, tuple(unknown))

    def _check_ids(self, file: str, complete: Mapping[str, Any], read: Mapping[str, Any]) -> None:
        for name in self.ids:
            value = complete[name]
            if value is not None and value >= complete["vocab_size"]:
                whose = "" if name in read else f" (what {self.title} has by default)"
                raise CheckpointError(
                    f"{file}: {name} = {value}{whose} is not within "
                    f"vocab_size = {complete['vocab_size']}"
                )


def names(text: str) -> frozenset[str]:
    """Read names that whitespace divides."""
    return frozenset(text.split())


def harmless(default: Any, *others: Any) -> Field:
    """Build a field of which only the values that change nothing are read."""
    return Field(default, only(default, *others), is_computed=False)


def training_only(default: Any, rule: Rule) -> Field:
    """Build a field that changes training, and nothing that a trained model computes."""
    return Field(default, rule, is_computed=False)


def _unquantized(value: Any) -> None:
    if value:
        raise Unsayable("quantised weights: import the model that they were made of")


# What every class of transformers takes, or took, that would make it another model.
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
# What every class takes, or took, that changes no number of a model that computes logits.
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
