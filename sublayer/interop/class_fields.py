"""What a config.json may say to a class of transformers: every field's default there, its values, its other names.

The tables are data: a field that has no row of its own and is not among those that change nothing is unknown to the
class, which leaves it out; so does an import, which says so. The defaults are those of transformers' own classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sublayer.config.limits import LARGEST_FACTOR, LARGEST_VOCABULARY, LONGEST_WINDOW, MOST_HEADS, WIDEST, WIDEST_FFN
from sublayer.errors import CheckpointError
from sublayer.interop.content import ACTIVATIONS, Content
from sublayer.interop.values import (
    LARGEST_EPS,
    MOST_LAYERS,
    Rule,
    flag,
    one_of,
    only,
    optional,
    positive,
    share,
    shown,
    token_id,
    whole,
)


@dataclass(frozen=True)
class Field:
    """A field: what the class takes where a file leaves it out, and what it may be.

    ``is_computed`` tells those that change what a trained model computes.
    """

    default: Any
    rule: Rule
    is_computed: bool = True


@dataclass(frozen=True)
class ClassConfig(Content):
    """A config whose every field has a value that its class knows.

    ``given`` are the fields of the file, by its own names, with which the class computes; ``unknown`` are the names
    that the class has not.
    """

    given: Mapping[str, Any]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class ClassFields:
    """The fields of a class. ``aliases`` are other names of some, ``ids`` those that must be within the vocabulary."""

    title: str
    fields: Mapping[str, Field]
    aliases: Mapping[str, str]
    ignored: frozenset[str]
    ids: tuple[str, ...] = ()

    def read(self, content: Content) -> ClassConfig:
        """Read a file's fields by their rules, with the class's defaults for those that it leaves out.

        Raises CheckpointError, naming the field, for a value that is none, or that a recipe cannot say.
        """
        found: dict[str, Any] = {}
        given: dict[str, Any] = {}
        named: dict[str, str] = {}
        unknown = []
        for name in content.fields:
            field = self.aliases.get(name, name)
            if field not in self.fields:
                if name not in self.ignored:
                    unknown.append(name)
                continue
            value = content.read(name, self.fields[field].rule)
            if field in found and found[field] != value:
                both = f"{named[field]} = {shown(found[field])} and {name} = {shown(value)}"
                raise CheckpointError(f"{content.file}: {both} are one field: leave one of them out")
            found[field], named[field] = value, name
            if self.fields[field].is_computed:
                given[name] = value
        complete = {name: field.default for name, field in self.fields.items()} | found
        self._check_ids(content.file, complete, found)
        return ClassConfig(content.file, complete, given, tuple(unknown))

    def _check_ids(self, file: str, complete: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        for name in self.ids:
            value = complete[name]
            if value is not None and value >= complete["vocab_size"]:
                whose = "" if name in found else f" (what {self.title} has by default)"
                raise CheckpointError(
                    f"{file}: {name} = {value}{whose} is not within vocab_size = {complete['vocab_size']}"
                )


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _only(default: Any, *others: Any) -> Field:
    return Field(default, only(default, *others), is_computed=False)


def _trained(default: Any, rule: Rule) -> Field:
    return Field(default, rule, is_computed=False)


# What every class of transformers takes, or took, that would make it another model.
_NEVER = {
    "add_cross_attention": _only(False),
    "auto_map": _only(None, {}),
    "is_decoder": _only(False),
    "per_layer_config": _only(None, {}),
    "position_embedding_type": _only("absolute", None),
    "pruned_heads": _only({}, None),
    "quantization_config": _only(None),
    "tie_encoder_decoder": _only(False),
}
# What every class takes, or took, that changes no number of a model that computes logits.
_ALWAYS_IGNORED = _names(
    """
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal _commit_hash
    _experts_implementation _experts_implementation_internal _name_or_path _num_labels _output_attentions
    architectures attn_implementation bos_token_id chunk_size_feed_forward classifier_dropout
    classifier_dropout_prob cross_attention_hidden_size decoder_start_token_id dtype eos_token_id
    experts_implementation finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing
    id2label keys_to_ignore_at_inference label2id language model_type name_or_path num_labels
    output_attentions output_hidden_states output_past pad_token_id prefix problem_type return_dict
    sep_token_id task_specific_params tf_legacy_loss tie_last_hidden_states tokenizer_class torch_dtype
    torchscript transformers_version transformers_weights use_bfloat16 use_cache xla_device
    assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens diversity_penalty
    do_sample early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff
    exponential_decay_length_penalty force_bos_token_to_be_generated length_penalty max_length min_length
    no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups num_beams
    num_return_sequences output_scores remove_invalid_values repetition_penalty return_dict_in_generate
    suppress_tokens target_lookbehind temperature top_k top_p typical_p
    """
)

GPT2_FIELDS = ClassFields(
    title="GPT2Config",
    fields={
        "vocab_size": Field(50257, whole(LARGEST_VOCABULARY)),
        "n_positions": Field(1024, whole(LONGEST_WINDOW)),
        "n_embd": Field(768, whole(WIDEST)),
        "n_layer": Field(12, whole(MOST_LAYERS)),
        "n_head": Field(12, whole(MOST_HEADS)),
        "n_inner": Field(None, optional(whole(WIDEST_FFN))),
        "activation_function": Field("gelu_new", one_of(ACTIVATIONS)),
        "layer_norm_epsilon": Field(1e-5, positive(LARGEST_EPS)),
        "scale_attn_weights": Field(True, flag),
        "tie_word_embeddings": Field(True, flag),
        "resid_pdrop": _trained(0.1, share),
        "embd_pdrop": _trained(0.1, share),
        "attn_pdrop": _trained(0.1, share),
        "initializer_range": _trained(0.02, positive(LARGEST_FACTOR)),
        "scale_attn_by_inverse_layer_idx": _only(False),
        "reorder_and_upcast_attn": _only(False),
        "is_encoder_decoder": _only(False),
        **_NEVER,
    },
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    ignored=_ALWAYS_IGNORED
    | _names(
        """
    n_ctx summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
    """
    ),
)

_ENCODER: dict[str, Field] = {
    "hidden_size": Field(768, whole(WIDEST)),
    "num_hidden_layers": Field(12, whole(MOST_LAYERS)),
    "max_position_embeddings": Field(512, whole(LONGEST_WINDOW)),
    "layer_norm_eps": Field(1e-12, positive(LARGEST_EPS)),
    "tie_word_embeddings": Field(True, flag),
    "pad_token_id": Field(0, optional(token_id)),
    "initializer_range": _trained(0.02, positive(LARGEST_FACTOR)),
    "type_vocab_size": _only(2),
    "is_encoder_decoder": _only(False),
    **_NEVER,
}
BERT_FIELDS = ClassFields(
    title="BertConfig",
    fields={
        **_ENCODER,
        "vocab_size": Field(30522, whole(LARGEST_VOCABULARY)),
        "num_attention_heads": Field(12, whole(MOST_HEADS)),
        "intermediate_size": Field(3072, whole(WIDEST_FFN)),
        "hidden_act": Field("gelu", one_of(ACTIVATIONS)),
        "hidden_dropout_prob": _trained(0.1, share),
        "attention_probs_dropout_prob": _trained(0.1, share),
    },
    aliases={},
    ids=("pad_token_id",),
    ignored=_ALWAYS_IGNORED
    | _names(
        """
    directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
    pooler_type
    """
    ),
)
ALBERT_FIELDS = ClassFields(
    title="AlbertConfig",
    fields={
        **_ENCODER,
        "vocab_size": Field(30000, whole(LARGEST_VOCABULARY)),
        "embedding_size": Field(128, whole(WIDEST)),
        "hidden_size": Field(4096, whole(WIDEST)),
        "num_hidden_groups": Field(1, whole(MOST_LAYERS)),
        "inner_group_num": Field(1, whole(MOST_LAYERS)),
        "num_attention_heads": Field(64, whole(MOST_HEADS)),
        "intermediate_size": Field(16384, whole(WIDEST_FFN)),
        "hidden_act": Field("gelu_new", one_of(ACTIVATIONS)),
        "hidden_dropout_prob": _trained(0.0, share),
        "attention_probs_dropout_prob": _trained(0.0, share),
    },
    aliases={},
    ids=("pad_token_id",),
    ignored=_ALWAYS_IGNORED
    | _names(
        """
    down_scale_factor gap_size ln_type net_structure_type num_memory_blocks
    """
    ),
)

_TRANSLATOR: dict[str, Field] = {
    "max_position_embeddings": Field(1024, whole(LONGEST_WINDOW)),
    "encoder_layers": Field(12, whole(MOST_LAYERS)),
    "encoder_ffn_dim": Field(4096, whole(WIDEST_FFN)),
    "encoder_attention_heads": Field(16, whole(MOST_HEADS)),
    "decoder_layers": Field(12, whole(MOST_LAYERS)),
    "decoder_ffn_dim": Field(4096, whole(WIDEST_FFN)),
    "decoder_attention_heads": Field(16, whole(MOST_HEADS)),
    "d_model": Field(1024, whole(WIDEST)),
    "tie_word_embeddings": Field(True, flag),
    "dropout": _trained(0.1, share),
    "activation_dropout": _trained(0.0, share),
    "init_std": _trained(0.02, positive(LARGEST_FACTOR)),
    "is_encoder_decoder": _only(True),
    **_NEVER,
}
_TRANSLATOR_ALIASES = {
    "num_attention_heads": "encoder_attention_heads",
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
}
# Layers that training drops are not dropped here; what Marian's class once took for other models it takes no more.
_TRANSLATOR_IGNORED = _ALWAYS_IGNORED | _names(
    """
    add_bias_logits add_final_layer_norm classif_dropout decoder_layerdrop encoder_layerdrop
    extra_pos_embeddings normalize_before normalize_embedding save_step static_position_embeddings
    """
)
_TRANSLATOR_IDS = ("pad_token_id", "decoder_start_token_id", "eos_token_id")
M2M100_FIELDS = ClassFields(
    title="M2M100Config",
    fields={
        **_TRANSLATOR,
        "vocab_size": Field(128112, whole(LARGEST_VOCABULARY)),
        "activation_function": Field("relu", one_of(ACTIVATIONS)),
        "attention_dropout": _trained(0.1, share),
        "scale_embedding": Field(True, flag),
        "pad_token_id": Field(1, token_id),
        "decoder_start_token_id": _trained(2, token_id),
        "eos_token_id": _trained(2, token_id),
    },
    aliases=_TRANSLATOR_ALIASES,
    ids=_TRANSLATOR_IDS,
    ignored=_TRANSLATOR_IGNORED,
)
MARIAN_FIELDS = ClassFields(
    title="MarianConfig",
    fields={
        **_TRANSLATOR,
        "vocab_size": Field(58101, whole(LARGEST_VOCABULARY)),
        "decoder_vocab_size": Field(None, optional(whole(LARGEST_VOCABULARY))),
        "activation_function": Field("gelu", one_of(ACTIVATIONS)),
        "attention_dropout": _trained(0.0, share),
        "scale_embedding": Field(False, flag),
        "pad_token_id": Field(58100, token_id),
        "decoder_start_token_id": _trained(58100, token_id),
        "eos_token_id": _trained(0, token_id),
        "share_encoder_decoder_embeddings": _only(True),
    },
    aliases=_TRANSLATOR_ALIASES,
    ids=_TRANSLATOR_IDS,
    ignored=_TRANSLATOR_IGNORED,
)
