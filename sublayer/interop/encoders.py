"""RoBERTa, DistilBERT, ELECTRA and ModernBERT, as transformers has them, to and from ours."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import attention_forms, head_activation, stacks
from sublayer.config.table import LONGEST_WINDOW, MOST_LAYERS
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError
from sublayer.interop.bert import Albert, Bert, encoder_fields
from sublayer.interop.decoders import (
    GATED_OF,
    GLOBAL,
    LAYER_TYPES,
    LOCAL,
    check_count,
    pattern,
    rope_by_type,
    rope_table,
)
from sublayer.interop.family import Answering, Answers, Family, Fields, Oracle, Tensors
from sublayer.interop.foreign_config import (
    ACTIVATIONS,
    ALWAYS_IGNORED,
    ANY,
    NEVER,
    ClassConfig,
    ClassFields,
    Field,
    Link,
    Rule,
    Table,
    absent,
    flag,
    harmless,
    is_gelu,
    names,
    network,
    optional,
    rule_of,
    same,
    token_id,
    whole,
)
from sublayer.interop.weight_map import Pair

ROBERTA_FIELDS = ClassFields(
    title="RobertaConfig",
    fields={
        **encoder_fields(50265, 768, 12, 3072),
        "max_position_embeddings": Field(512, rule_of("max_len")),
        "pad_token_id": Field(1, token_id),
        "type_vocab_size": Field(2, harmless(2, 1).rule, Link("segments", {2: "both", 1: "none"})),
    },
    ignored=ALWAYS_IGNORED,
)
DISTILBERT_FIELDS = ClassFields(
    title="DistilBertConfig",
    fields={
        "vocab_size": same(30522, "vocab_size"),
        "max_position_embeddings": same(512, "max_len"),
        "n_layers": same(6, "n_layers"),
        "n_heads": same(12, "n_heads"),
        "dim": same(768, "d_model"),
        "hidden_dim": same(3072, "d_ff"),
        "activation": network("gelu", ACTIVATIONS),
        "dropout": same(0.1, "dropout"),
        "attention_dropout": same(0.1, "dropout_attention"),
        "initializer_range": same(0.02, "init_std"),
        "pad_token_id": Field(0, optional(token_id)),
        "tie_word_embeddings": same(True, "tie_embeddings"),
        "is_encoder_decoder": harmless(False),
        **NEVER,
    },
    aliases={
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    },
    # The positions are initialised with sinusoids, and stored.
    ignored=ALWAYS_IGNORED | names("qa_dropout seq_classif_dropout sinusoidal_pos_embds"),
)
_SUMMARY = {
    "summary_type": harmless("first"),
    "summary_use_proj": harmless(True),
    "summary_activation": harmless("gelu"),
    "summary_proj_to_labels": harmless(None, False),
}
ELECTRA_FIELDS = ClassFields(
    title="ElectraConfig",
    fields={
        **encoder_fields(30522, 256, 4, 1024),
        "embedding_size": same(128, "d_embed"),
    },
    ignored=ALWAYS_IGNORED | _SUMMARY.keys() | names("summary_first_dropout summary_last_dropout"),
)
MODERNBERT_FIELDS = ClassFields(
    title="ModernBertConfig",
    fields={
        "vocab_size": same(50368, "vocab_size"),
        "hidden_size": same(768, "d_model"),
        "intermediate_size": same(1152, "d_ff"),
        "num_hidden_layers": same(22, "n_layers"),
        "num_attention_heads": same(12, "n_heads"),
        "hidden_activation": network(
            "gelu", {name: (GATED_OF[ffn], form) for name, (ffn, form) in ACTIVATIONS.items()}
        ),
        "max_position_embeddings": same(8192, "max_len"),
        "initializer_range": same(0.02, "init_std"),
        "norm_eps": same(1e-5, "norm_eps"),
        "norm_bias": same(False, "norm_bias"),
        "pad_token_id": Field(50283, optional(token_id)),
        "attention_bias": harmless(False),
        "mlp_bias": harmless(False),
        "classifier_bias": harmless(False),
        "decoder_bias": Field(True, flag),
        "classifier_activation": harmless("gelu"),
        "attention_dropout": same(0.0, "dropout_attention"),
        "embedding_dropout": same(0.0, "dropout_embedding"),
        "mlp_dropout": same(0.0, "dropout_ffn"),
        "layer_types": LAYER_TYPES,
        "global_attn_every_n_layers": Field(3, whole(MOST_LAYERS)),
        "local_attention": Field(128, whole(LONGEST_WINDOW)),
        "rope_parameters": Field(None, rope_by_type),
        "rope_scaling": Field(None, absent(), is_computed=False),
        "global_rope_theta": Field(160_000.0, rule_of("rotary_base")),
        "local_rope_theta": Field(10_000.0, rule_of("rotary_base")),
        "tie_word_embeddings": same(True, "tie_embeddings"),
        "is_encoder_decoder": harmless(False),
        **NEVER,
    },
    ignored=ALWAYS_IGNORED
    | names(
        """
    classifier_pooling cls_token_id deterministic_flash_attn initializer_cutoff_factor
    reference_compile repad_logits_with_grad sparse_pred_ignore_index sparse_prediction
    """
    ),
)


def _is_exact(config: ResolvedModel) -> bool:
    has_gelu = config.head == "transform" or config.pooler in ("gelu", "transform")
    return config.gelu == "exact" or not has_gelu


_OF_TABLES = ("none", "attention", "ffn")
_EXACT_HEADS: Table = {
    "head": ("transform", "none"),
    "head_activation": Rule(
        lambda config: config.head == "none" or head_activation(config) == "gelu", head_activation
    ),
    "gelu": Rule(_is_exact),
    "share": _OF_TABLES,
}
"""Rows of classes whose heads have the exact GELU, whatever the networks have."""


def _exact(content: ClassConfig, fields: Fields) -> Fields:
    """Return fields with those of heads with the exact GELU.

    Raises CheckpointError where the networks have the other form.
    """
    if is_gelu(content.ours["ffn"]) and content.ours["gelu"] != "exact":
        name = "hidden_act" if "hidden_act" in content.fields else "hidden_activation"
        raise CheckpointError(
            f"{content.file} cannot be expressed as a recipe: {name} = "
            f"{content.fields[name]!r}, but heads have the exact GELU"
        )
    of_head = {"head_activation": "gelu"} if fields.get("head") == "transform" else {}
    return {**fields, "gelu": "exact", **of_head}


_POSITIONS = "embeddings.position_embeddings.weight"
_SEGMENTS = "embeddings.token_type_embeddings.weight"
_OURS = "positions.tables.0.weight"
_WORDS = "embeddings.word_embeddings.weight"
_WITHOUT_SEGMENTS = {name: value for name, value in Bert.always.items() if name != "segments"}
_CHOICES, _SPANS = Bert.answering["choices"], Bert.answering["spans"]
_LABELS = replace(
    Bert.answering["labels"],
    heads=("classifier.out_proj.", "classifier.dense."),
    parts={"pooler.linear": "classifier.dense", "label_head": "classifier.out_proj"},
)
_OF_TEXTS: tuple[Answers, ...] = ("labels", "choices")


class Roberta(Bert):
    """RoBERTa's classes: positions are numbered from the padding id plus 1, without segments."""

    model_type, name, title = "roberta", "Roberta", "RoBERTa"
    fields = ROBERTA_FIELDS
    constants: Fields = {}
    always: Fields = _WITHOUT_SEGMENTS
    # Models with segments are BERT's: published ones of this class have a single one.
    exceptions: Table = {
        **_EXACT_HEADS,
        "max_len": ANY,
        "pooler": ("none", "tanh"),
        "segments": ("none",),
    }
    answering: Mapping[Answers, Answering] = {
        "labels": _LABELS,
        "choices": replace(_CHOICES, heads=("classifier.weight", "classifier.bias")),
        "spans": _SPANS,
    }
    prefix, heads = "roberta.", ("lm_head.",)
    parts = (
        *Bert.parts[:4],
        ("head.projection", "lm_head.dense"),
        ("head.norm", "lm_head.layer_norm"),
        ("pooler.linear", "pooler.dense"),
        *Bert.parts[-2:],
    )
    predictions = "lm_head"
    ties = {"lm_head.decoder.weight": _WORDS, "lm_head.decoder.bias": "lm_head.bias"}
    reads_segments = False

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Drop the rows before the first position, and add a single segment to all positions.

        Raises CheckpointError as BERT does, and where that segment is missing.
        """
        weights, fields = super().prepare(content, tensors), content.fields
        table, n_rows = weights.get(_POSITIONS), fields["max_position_embeddings"]
        if fields["type_vocab_size"] == 1:
            if _SEGMENTS not in weights:
                raise CheckpointError(f"the weights lack {_SEGMENTS}")
            segment = weights[_SEGMENTS]
            if table is not None and segment.shape == (1, *table.shape[1:]):
                wide = torch.promote_types(table.dtype, torch.float32)
                table = table.to(wide) + weights.pop(_SEGMENTS)
        if table is not None and table.dim() == 2 and len(table) == n_rows:
            weights[_POSITIONS] = table[fields["pad_token_id"] + 1 :]
        return weights

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the length, and the fields of the existing heads.

        Raises CheckpointError where no position is left.
        """
        fields = super().particular(content, weights)
        given = content.fields
        n_rows, pad_id = given["max_position_embeddings"], given["pad_token_id"]
        if n_rows <= pad_id + 1:
            raise CheckpointError(
                f"{content.file}: max_position_embeddings = {n_rows} leaves no position after "
                f"pad_token_id = {pad_id}"
            )
        if fields.get("head") == "transform":
            fields = _exact(content, fields)
        return {**fields, "max_len": n_rows - pad_id - 1}

    def settle(
        self, config: ResolvedModel, weights: Tensors, tokenizer: Tokenizer | None = None
    ) -> dict[str, Tensor]:
        """Add rows before the first position, and a segment of zeros."""
        table = weights[_OURS]
        before = table.new_zeros(_pad_id(config, tokenizer) + 1, table.shape[1])
        return {
            **weights,
            _OURS: torch.cat([before, table]),
            "segment_table.weight": table.new_zeros(1, table.shape[1]),
        }

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids, and the rows of positions."""
        pad_id = _pad_id(config, tokenizer)
        rows = {"pad_token_id": pad_id, "max_position_embeddings": config.max_len + pad_id + 1}
        return {**super().written(config, tokenizer), **rows}

    def oracle(self, config: ResolvedModel) -> Oracle:
        """Return the class by its heads; it numbers only tokens that are no padding."""
        return replace(super().oracle(config), skips_padding=True)


def _pad_id(config: ResolvedModel, tokenizer: Tokenizer | None) -> int:
    pad_id = None if tokenizer is None else tokenizer.pad_id
    return min(1, config.vocab_size - 1) if pad_id is None else pad_id


class Encoder(Bert):
    """Classes whose output matrix and bias are one map, without a vector of a text of their own."""

    constants: Fields = {}
    always: Fields = _WITHOUT_SEGMENTS
    reads_segments = False
    is_exact = True
    """Whether heads have the exact GELU."""

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Settle ties as every family does."""
        return Family.prepare(self, content, tensors)

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors as every family does."""
        return Family.pairs(self, config)

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the fields of the head of tokens, if any, and of its GELU."""
        fields = super().particular(content, weights)
        fields = {name: fields[name] for name in ("head", "head_bias") if name in fields}
        has_gelu = self.answers in _OF_TEXTS or fields.get("head") == "transform"
        return _exact(content, fields) if has_gelu and self.is_exact else fields


class DistilBert(Encoder):
    """DistilBERT's classes: norms with an eps of 1e-12, and a ReLU before the labels."""

    model_type, name, title = "distilbert", "DistilBert", "DistilBERT"
    fields = DISTILBERT_FIELDS
    # The class has no setting for it.
    always: Fields = {**Encoder.always, "norm_eps": 1e-12}
    exceptions: Table = {
        "head": ("transform", "none"),
        "head_activation": Bert.exceptions["head_activation"],
        "segments": ("none",),
        "share": _OF_TABLES,
    }
    answering: Mapping[Answers, Answering] = {
        **{
            kind: replace(
                Bert.answering[kind],
                heads=("classifier.", "pre_classifier."),
                always={**Bert.answering[kind].always, "pooler": "relu"},
                parts={"pooler.linear": "pre_classifier"},
            )
            for kind in _OF_TEXTS
        },
        "spans": _SPANS,
    }
    prefix, is_exact = "distilbert.", False
    predictions, heads = "vocab_transform", ("vocab_",)
    parts = (
        *Bert.parts[:2],
        ("embedding_norm", "embeddings.LayerNorm"),
        ("head.projection", "vocab_transform"),
        ("head.norm", "vocab_layer_norm"),
        ("head", "vocab_projector"),
        *Bert.parts[-2:],
    )
    ties = {"vocab_projector.weight": _WORDS}
    unit = "transformer.layer.{layer}."
    block = {
        "attention": (
            "sa_layer_norm",
            ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            "attention.out_lin",
        ),
        "ffn": ("output_layer_norm", "ffn.lin1", "ffn.lin2"),
    }


class Electra(Encoder):
    """ELECTRA's classes: the discriminator without its own head, the generator, and for tasks."""

    model_type, name, title = "electra", "Electra", "ELECTRA"
    fields = ELECTRA_FIELDS
    constants: Fields = {"type_vocab_size": 2}
    always: Fields = {**Bert.always, "embedding_projection": "sum"}
    exceptions: Table = {
        **_EXACT_HEADS,
        "embedding_projection": Albert.exceptions["embedding_projection"],
    }
    answering: Mapping[Answers, Answering] = {
        "labels": replace(_LABELS, always={"pooler": "gelu"}),
        "choices": replace(
            _CHOICES,
            heads=("classifier.weight", "classifier.bias", "sequence_summary."),
            always={**_CHOICES.always, "pooler": "gelu"},
            fields=_SUMMARY,
            parts={"pooler.linear": "sequence_summary.summary"},
        ),
        "spans": _SPANS,
    }
    prefix = "electra."
    predictions, heads = "generator_predictions", ("generator_",)
    unread = {"discriminator_predictions.": "finds replaced tokens"}
    parts = (
        *Bert.parts[:4],
        ("embedding.projection", "embeddings_project"),
        ("head.projection", "generator_predictions.dense"),
        ("head.norm", "generator_predictions.LayerNorm"),
        ("head", "generator_lm_head"),
        *Bert.parts[-2:],
    )
    ties = {"generator_lm_head.weight": _WORDS}
    reads_segments = True


_POOLING = {"classifier_pooling": harmless("cls")}


class ModernBert(Encoder):
    """ModernBERT's classes: pre-norm but before the first attention, rotary, local and global."""

    model_type, name, title = "modernbert", "ModernBert", "ModernBERT"
    fields = MODERNBERT_FIELDS
    always: Fields = {
        "kind": "encoder",
        "norm_order": "pre",
        "norm_affine": True,
        "first_norm": False,
        "final_norm": "affine",
        "bias": False,
        "positions": "rotary",
        "embedding_norm": "affine",
        "embedding_scale": "none",
        "share": "none",
        "init": "truncated",
    }
    exceptions: Table = {
        **_EXACT_HEADS,
        "share": ("none",),
        "segments": ("none",),
        "head_bias": ANY,
        **dict.fromkeys(
            ("attention_window", "window_pattern", "rotary_base", "rotary_local_base"), ANY
        ),
    }
    # A head of spans reads a layer on every state, which ours does not have.
    answering: Mapping[Answers, Answering] = {
        kind: replace(
            Bert.answering[kind],
            heads=("classifier.", "head."),
            always={**Bert.answering[kind].always, "pooler": "transform"},
            fields={**Bert.answering[kind].fields, **_POOLING},
            parts={"pooler.linear": "head.dense", "pooler.norm": "head.norm"},
        )
        for kind in _OF_TEXTS
    }
    prefix = "model."
    predictions, heads = "head", ("head.", "decoder.")
    parts = (
        ("embedding", "embeddings.tok_embeddings"),
        ("embedding_norm", "embeddings.norm"),
        ("final_norm", "final_norm"),
        ("head.projection", "head.dense"),
        ("head.norm", "head.norm"),
        ("head", "decoder"),
        ("label_head", "classifier"),
    )
    ties = {"decoder.weight": "embeddings.tok_embeddings.weight"}
    unit = "layers.{layer}."
    block = {
        "attention": ("attn_norm", "attn.Wqkv", "attn.Wo"),
        "ffn": ("mlp_norm", "mlp.Wi", "mlp.Wo"),
    }

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the fields of heads, local and global attentions, and their angles.

        Raises CheckpointError where ``layer_types`` has another length than the model.
        """
        fields, given = super().particular(content, weights), content.fields
        if fields.get("head_bias"):
            fields["head_bias"] = given["decoder_bias"]
        n_layers, types = given["num_hidden_layers"], given["layer_types"]
        every = given["global_attn_every_n_layers"]
        if types is None:
            types = [LOCAL if layer % every else GLOBAL for layer in range(n_layers)]
        are_local = [each == LOCAL for each in types]
        check_count(content, "layer_types", are_local)
        ropes = given["rope_parameters"] or {}
        bases = {
            kind: float((ropes.get(kind) or {}).get("rope_theta", given[default]))
            for kind, default in ((GLOBAL, "global_rope_theta"), (LOCAL, "local_rope_theta"))
        }
        fields["rotary_base"] = bases[LOCAL if all(are_local) else GLOBAL]
        if any(are_local):
            window = given["local_attention"]
            fields |= {"attention_window": window, "window_pattern": pattern(are_local, "LG")}
            if bases[LOCAL] != fields["rotary_base"]:
                fields["rotary_local_base"] = bases[LOCAL]
        return fields

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids, and the fields of attentions and their angles."""
        (stack,) = stacks(config)
        forms = [form for of_block in attention_forms(config, stack) for form in of_block if form]
        local = config.rotary_local_base
        base, window = config.rotary_base, config.attention_window
        bases = {GLOBAL: base, LOCAL: base if isinstance(local, str) else local}
        ids = super().written(config, tokenizer)
        return {
            **ids,
            "cls_token_id": ids["bos_token_id"],
            "sep_token_id": ids["eos_token_id"],
            "decoder_bias": config.head_bias,
            "layer_types": [GLOBAL if form.window is None else LOCAL for form in forms],
            "local_attention": 128 if isinstance(window, str) else window,
            "rope_parameters": {kind: rope_table(base) for kind, base in bases.items()},
        }
