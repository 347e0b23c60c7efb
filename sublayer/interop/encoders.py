"""Encoders of transformers, BERT to ModernBERT: a family, a table a class."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from sublayer.config.model import FFNS
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import head_activation, is_factorised
from sublayer.config.table import LONGEST_WINDOW
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError
from sublayer.interop import decoders
from sublayer.interop.family import (
    NO_OTHER_HEAD,
    TYPED_LABELS,
    Answering,
    Answers,
    Family,
    Fields,
    Oracle,
    Tensors,
)
from sublayer.interop.foreign_config import (
    ACTIVATIONS,
    ANY,
    NEVER,
    ClassConfig,
    ClassFields,
    Field,
    Link,
    Rule,
    Table,
    flag,
    harmless,
    linked,
    network,
    networks,
    optional,
    pairs_of,
    rule_of,
    switched_off,
    token_id,
    whole,
)
from sublayer.interop.tokenizers import framing_files
from sublayer.interop.weight_map import BlockNames

_FIELDS: dict[str, Field] = {
    **NEVER,
    **linked("max_position_embeddings:max_len=512 initializer_range:init_std=0.02"),
    **linked("tie_word_embeddings:tie_embeddings=True"),
    "pad_token_id": Field(0, optional(token_id)),
    "is_encoder_decoder": harmless(False),
    "is_causal": harmless(False),
}
_BY_BERT: dict[str, Field] = {
    **_FIELDS,
    **linked(
        """
        hidden_size:d_model=768 num_hidden_layers:n_layers=12 num_attention_heads:n_heads=12
        intermediate_size:d_ff=3072 layer_norm_eps:norm_eps=1e-12 hidden_dropout_prob:dropout=0.1
        attention_probs_dropout_prob:dropout_attention=0.1
        """
    ),
    "hidden_act": network("gelu", ACTIVATIONS),
    "type_vocab_size": harmless(2),
}


def _fields(
    title: str, base: Mapping[str, Field], sizes: str, aliases: str = "", /, **more: Field
) -> ClassFields:
    """Build the fields of a class: those of a base, with sizes of its own, and more."""
    fields = {**base, **linked(sizes), **more}
    return ClassFields(f"{title}Config", fields, dict(pairs_of(aliases)))


_ALWAYS: Fields = {
    "kind": "encoder", "norm_order": "post", "norm_affine": True, "bias": True,
    "final_norm": "none", "positions": "learned", "embedding_norm": "affine",
    "embedding_scale": "none", "share": "none", "head_bias": True,
    # Departure: what would be initialised anew is cut at two standard deviations, as BERT was
    # released; transformers does not cut.
    "init": "truncated",
}  # fmt: skip


def _follows_networks(config: ResolvedModel) -> bool:
    of_networks = [FFNS[name].activation for name in networks(config) if name in FFNS]
    return config.head == "none" or head_activation(config) in of_networks


_HEADS: Table = {
    "head": ("transform", "none"),
    "head_activation": Rule(_follows_networks, head_activation),
    "share": ("none", "attention", "ffn"),
}
"""Rows of classes whose head of tokens has the activation of the networks."""
_EXACT_HEADS: Table = {
    **_HEADS,
    "head_activation": Rule(
        lambda c: c.head == "none" or head_activation(c) == "gelu", head_activation
    ),
    "gelu": Rule(lambda c: c.gelu == "exact" or not _has_gelu(c.head, c.pooler)),
}
"""Rows of classes whose heads have the exact GELU, whatever the networks have."""


def _has_gelu(head: str, pooler: str) -> bool:
    return head == "transform" or pooler in ("gelu", "transform")


def _answering(
    pooler: str,
    labels: str,
    choices: str = "",
    fields: Mapping[str, Field] = {},
    of_choices: Mapping[str, Field] = {},
) -> dict[Answers, Answering]:
    """Return the classes that answer tasks; ``fields`` are of those for labels and choices.

    ``labels`` and ``choices``, by default the same, name the label head, then the pooler's map and
    norm where the model without this head has none.
    """
    ours = ("label_head", "pooler.linear", "pooler.norm")
    of_labels, of_choice = (
        dict(zip(ours, names.split(), strict=False)) for names in (labels, choices or labels)
    )
    return {
        "labels": Answering({"pooler": pooler}, fields={**TYPED_LABELS, **fields}, parts=of_labels),
        # The class has one output, whatever its labels.
        "choices": Answering(
            {"pooler": pooler, "label_outputs": 1}, fields={**fields, **of_choices}, parts=of_choice
        ),
        "spans": Answering(
            {"span_head": "independent"},
            left_out={**NO_OTHER_HEAD, "pooler": "none"},
            fields={"num_labels": harmless(2)},
            parts={"span_head": "qa_outputs"},
        ),
    }


def _block(attention: str, ffn: str) -> Mapping[str, BlockNames]:
    """Split the names of a norm, the first maps and the last map, of each sub-layer."""
    rows = {"attention": attention.split(), "ffn": ffn.split()}
    return {name: (norm, tuple(into), out) for name, (norm, *into, out) in rows.items()}


_WORDS = "embeddings.word_embeddings.weight"
_POSITIONS = "embeddings.position_embeddings.weight"
_SEGMENTS = "embeddings.token_type_embeddings.weight"
PROJECTION = "encoder.embedding_hidden_mapping_in"


def _parts(head: str, more: str = "") -> tuple[tuple[str, str], ...]:
    """Return the parts of a class: embeddings, those of its head of tokens, and more."""
    ours = ("head.projection", "head.norm", "head.weight", "head.bias")
    embeddings = pairs_of(
        """
        embedding:embeddings.word_embeddings positions.tables.0:embeddings.position_embeddings
        segment_table:embeddings.token_type_embeddings embedding_norm:embeddings.LayerNorm
        """
    )
    return (*embeddings, *zip(ours, head.split(), strict=True), *pairs_of(more))


class Bert(Family):
    """BERT's classes: for pre-training, or for labels, choices or spans."""

    model_type, name, title, predicts = "bert", "Bert", "BERT", "ForMaskedLM"
    fields = _fields("Bert", _BY_BERT, "vocab_size=30522")
    constants: Fields = {"type_vocab_size": 2}
    always: Fields = {**_ALWAYS, "segments": "both"}
    exceptions: Table = {
        **_HEADS,
        "sentence_classes": (0, 2),
        "pooler": Rule(
            lambda c: c.pooler == "tanh" or (c.pooler == "none" and c.sentence_classes != 2)
        ),
    }
    answering: Mapping[Answers, Answering] = _answering("tanh", "classifier")
    prefix = "bert."
    heads: tuple[str, ...] = ("cls.",)
    parts = _parts(
        "cls.predictions.transform.dense cls.predictions.transform.LayerNorm "
        "cls.predictions.decoder.weight cls.predictions.bias",
        "pooler.linear:pooler.dense sentence_head:cls.seq_relationship",
    )
    ties = {
        "cls.predictions.decoder.weight": _WORDS,
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    unit = "encoder.layer.{layer}."
    block = _block(
        "attention.output.LayerNorm attention.self.query attention.self.key attention.self.value "
        "attention.output.dense",
        "output.LayerNorm intermediate.dense output.dense",
    )
    judging = ("seq_relationship_logits", "ForNextSentencePrediction", "logits")
    """The logits of pairs beside those of tokens; the class of pairs alone, and its logits."""

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor is a constant or an unread pooler, in files of old versions."""
        is_constant = name in ("embeddings.position_ids", "embeddings.token_type_ids")
        pooler = "" if self.answers == "spans" else dict(self.parts).get("pooler.linear", "pooler")
        is_unread = name.startswith("pooler.") and not pooler.startswith("pooler")
        return is_constant or is_unread or super().is_ignored(name)

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Drop tied copies, and rename norms; raise CheckpointError where one has both names."""
        weights = {}
        for name in sorted(tensors):
            modern = name.replace("Norm.gamma", "Norm.weight").replace("Norm.beta", "Norm.bias")
            if name != modern and modern in tensors:
                raise CheckpointError(
                    f"the weights hold {name} and {modern}: leave one of them out"
                )
            weights[modern] = tensors[name]
        weights = super().prepare(content, weights)
        for copy, bias in self.ties.items():
            # Where the biases of an untied matrix and of the head differ, the matrix's counts.
            if copy.endswith(".bias") and copy in weights:
                weights[bias] = weights.pop(copy)
        return weights

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the fields of heads: one with any tensor is required in full.

        Raises CheckpointError where heads have the exact GELU, and the networks the other form.
        """
        fields: Fields = {}
        if self.answers == "tokens":
            held = {ours for ours, theirs in self.parts if f"{theirs}.weight" in weights}
            of_head = tuple(theirs for ours, theirs in self.parts if ours.startswith("head."))
            has_head = any(name.startswith(of_head) for name in weights)
            fields = {
                "sentence_classes": 2 if "sentence_head" in held else 0,
                # A sentence head is never without a pooler.
                "pooler": "tanh" if held & {"sentence_head", "pooler.linear"} else "none",
                "head": "transform" if has_head else "none",
                "head_bias": has_head,
            }
        head, pooler = ((self.always | fields)[name] for name in ("head", "pooler"))
        if "gelu" in self.exceptions and _has_gelu(head, pooler):
            ffn, gelu = content.ours["ffn"], content.ours["gelu"]
            if FFNS[ffn].activation == "gelu" and gelu != "exact":
                name = "hidden_act" if "hidden_act" in content.fields else "hidden_activation"
                network = f"{name} = {content.fields[name]!r}"
                raise content.error(f"{network}, but the class's heads have the exact GELU")
            fields |= {"gelu": "exact"} | ({"head_activation": "gelu"} if head != "none" else {})
        return fields

    def copies(self, config: ResolvedModel) -> Mapping[str, str]:
        """Return the second name of the output's bias, which a file without ties holds too."""
        if config.tie_embeddings or config.head == "none":
            return {}
        return {copy: bias for copy, bias in self.ties.items() if copy.endswith(".bias")}

    def oracle(self, config: ResolvedModel) -> Oracle:
        """Return the class by its heads."""
        is_of_pairs, (beside, ending, alone) = config.sentence_classes > 0, self.judging
        if self.answers != "tokens" or (config.head != "none" and not is_of_pairs):
            return super().oracle(config)
        if config.head != "none":
            both = {"prediction_logits": "logits", beside: "sentence_logits"}
            return Oracle(f"{self.name}ForPreTraining", both)
        if is_of_pairs:
            return Oracle(self.name + ending, {alone: "sentence_logits"})
        pooled = {"pooler_output": "pooled"} if config.pooler == "tanh" else {}
        return Oracle(f"{self.name}Model", {"last_hidden_state": "states", **pooled})

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the files of a tokenizer with marks around a text: see ``framing_files``."""
        reads_segments = "segments" in self.always
        return framing_files(tokenizer, max_len=max_len, reads_segments=reads_segments)


class Albert(Bert):
    """ALBERT's classes: factorised embeddings, weights shared in groups."""

    model_type, name, title = "albert", "Albert", "ALBERT"
    fields = _fields(
        "Albert",
        _BY_BERT,
        """
        vocab_size=30000 embedding_size:d_embed=128 hidden_size:d_model=4096
        num_attention_heads:n_heads=64 intermediate_size:d_ff=16384 hidden_dropout_prob:dropout=0.0
        attention_probs_dropout_prob:dropout_attention=0.0
        """,
        num_hidden_layers=Field(
            *(12, rule_of("n_layers"), Link("n_layers")),
            write=lambda c: c.n_layers // c.share_inner,
        ),
        num_hidden_groups=Field(
            *(1, rule_of("n_layers")),
            write=lambda c: c.share_groups if c.share == "all" else c.n_layers,
        ),
        inner_group_num=Field(1, rule_of("n_layers"), write=lambda c: c.share_inner),
        hidden_act=network("gelu_new", ACTIVATIONS),
    )
    always: Fields = {**Bert.always, "embedding_projection": "sum", "project_embeddings": "always"}
    exceptions: Table = {
        **Bert.exceptions,
        # No class has the head of sentences without that of tokens.
        "head": Rule(
            lambda c: c.head == "transform" or (c.head == "none" and not c.sentence_classes)
        ),
        "embedding_projection": Rule(
            lambda c: c.embedding_projection == "sum" or not is_factorised(c)
        ),
        "share": ANY,
    }
    prefix, heads = "albert.", ("predictions.", "sop_classifier.")
    parts = _parts(
        "predictions.dense predictions.LayerNorm predictions.decoder.weight predictions.bias",
        f"embedding.projection:{PROJECTION} pooler.linear:pooler "
        "sentence_head:sop_classifier.classifier",
    )
    ties = {"predictions.decoder.weight": _WORDS, "predictions.decoder.bias": "predictions.bias"}
    unit = "encoder.albert_layer_groups.{group}.albert_layers.{inner}."
    block = _block(
        "attention.LayerNorm attention.query attention.key attention.value attention.dense",
        "full_layer_layer_norm ffn ffn_output",
    )
    judging = ("sop_logits", "ForPreTraining", "sop_logits")

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Convert as BERT does, and drop an identity projection; a projection is required."""
        weights = super().prepare(content, tensors)
        if f"{PROJECTION}.weight" not in weights:
            raise CheckpointError(f"the weights lack {PROJECTION}.weight")
        leave_out_identity(weights)
        return weights

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the fields of sharing and embeddings; one group per layer means no sharing."""
        fields = content.fields
        n_units, n_groups = fields["num_hidden_layers"], fields["num_hidden_groups"]
        n_inner = fields["inner_group_num"]
        if n_units % n_groups:
            groups = f"num_hidden_groups = {n_groups}"
            raise content.error(f"{groups} does not divide num_hidden_layers = {n_units}")
        sharing: Fields = {"share": "all", "share_groups": n_groups, "share_inner": n_inner}
        if n_groups == n_units > 1 and n_inner == 1:
            sharing = {"share": "none"}
        # Embeddings of the model's width may be projected, too.
        is_square = fields["embedding_size"] == fields["hidden_size"]
        is_projected = is_square and f"{PROJECTION}.weight" in weights
        return {
            **super().particular(content, weights),
            **sharing,
            "n_layers": n_units * n_inner,
            "project_embeddings": "always" if is_projected else "as-needed",
        }

    def required_fields(self, config: ResolvedModel) -> Fields:
        """Return the fields required; sharing other than in groups becomes a group per layer."""
        always = super().required_fields(config)
        n_units = config.n_layers // config.share_inner
        if config.share == "all" and n_units % config.share_groups == 0:
            names = ("share", "share_groups", "share_inner")
            always |= {name: getattr(config, name) for name in names}
        return always


def leave_out_identity(weights: dict[str, Tensor]) -> None:
    """Drop, in place, the identity that an export writes for a model without a projection."""
    weight, bias = (weights.get(f"{PROJECTION}.{part}") for part in ("weight", "bias"))
    if weight is None or bias is None or weight.dim() != 2 or bias.any():
        return
    if torch.equal(weight, torch.eye(len(weight), dtype=weight.dtype)):
        del weights[f"{PROJECTION}.weight"], weights[f"{PROJECTION}.bias"]


class Roberta(Bert):
    """RoBERTa's classes: positions are numbered from the padding id plus 1, without segments."""

    model_type, name, title = "roberta", "Roberta", "RoBERTa"
    fields = _fields(
        *("Roberta", _BY_BERT, "vocab_size=50265"),
        max_position_embeddings=Field(512, rule_of("max_len")),
        pad_token_id=Field(1, token_id),
        type_vocab_size=Field(2, harmless(2, 1).rule, Link("segments", {2: "both", 1: "none"})),
    )
    constants: Fields = {}
    always = _ALWAYS
    # Models with segments are BERT's: published ones of this class have a single one.
    exceptions: Table = {
        **_EXACT_HEADS,
        "max_len": ANY,
        "pooler": ("none", "tanh"),
        "segments": ("none",),
    }
    answering = _answering("tanh", "classifier.out_proj classifier.dense", "classifier")
    prefix, heads = "roberta.", ("lm_head.",)
    parts = _parts(
        "lm_head.dense lm_head.layer_norm lm_head.decoder.weight lm_head.bias",
        "pooler.linear:pooler.dense",
    )
    ties = {"lm_head.decoder.weight": _WORDS, "lm_head.decoder.bias": "lm_head.bias"}

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Drop the rows before the first position, and add a single segment to all positions."""
        weights, fields = super().prepare(content, tensors), content.fields
        table, segment = weights.get(_POSITIONS), weights.get(_SEGMENTS)
        if segment is None:
            raise CheckpointError(f"the weights lack {_SEGMENTS}")
        if table is None or table.dim() != 2 or len(table) != fields["max_position_embeddings"]:
            return weights
        if fields["type_vocab_size"] == 1 and segment.shape == (1, table.shape[1]):
            table = table.to(torch.promote_types(table.dtype, torch.float32)) + segment
            del weights[_SEGMENTS]
        return {**weights, _POSITIONS: table[fields["pad_token_id"] + 1 :]}

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the fields of the existing heads, and the length."""
        given = content.fields
        max_len = given["max_position_embeddings"] - given["pad_token_id"] - 1
        return {**super().particular(content, weights), "max_len": max_len}

    def settle(
        self, config: ResolvedModel, weights: Tensors, tokenizer: Tokenizer | None = None
    ) -> dict[str, Tensor]:
        """Add rows before the first position, and a segment of zeros."""
        table = weights["positions.tables.0.weight"]
        before = table.new_zeros(_pad_id(config, tokenizer) + 1, table.shape[1])
        return {
            **weights,
            "positions.tables.0.weight": torch.cat([before, table]),
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


class DistilBert(Bert):
    """DistilBERT's classes: norms with an eps of 1e-12, and a ReLU before the labels."""

    model_type, name, title = "distilbert", "DistilBert", "DistilBERT"
    fields = _fields(
        "DistilBert",
        _FIELDS,
        """
        vocab_size=30522 dim:d_model=768 n_layers=6 n_heads=12 hidden_dim:d_ff=3072 dropout=0.1
        attention_dropout:dropout_attention=0.1
        """,
        "hidden_size:dim num_attention_heads:n_heads num_hidden_layers:n_layers",
        activation=network("gelu", ACTIVATIONS),
    )
    constants: Fields = {}
    # The class has no setting for the eps.
    always: Fields = {**_ALWAYS, "norm_eps": 1e-12}
    exceptions: Table = {**_HEADS, "segments": ("none",)}
    answering = _answering("relu", "classifier pre_classifier")
    prefix, heads = "distilbert.", ("vocab_",)
    parts = _parts("vocab_transform vocab_layer_norm vocab_projector.weight vocab_projector.bias")
    ties = {"vocab_projector.weight": _WORDS}
    unit = "transformer.layer.{layer}."
    block = _block(
        "sa_layer_norm attention.q_lin attention.k_lin attention.v_lin attention.out_lin",
        "output_layer_norm ffn.lin1 ffn.lin2",
    )


class Electra(Bert):
    """ELECTRA's classes: the discriminator without its own head, the generator, and for tasks."""

    model_type, name, title = "electra", "Electra", "ELECTRA"
    fields = _fields(
        "Electra",
        _BY_BERT,
        """
        vocab_size=30522 embedding_size:d_embed=128 hidden_size:d_model=256
        num_attention_heads:n_heads=4 intermediate_size:d_ff=1024
        """,
    )
    always: Fields = {**Bert.always, "embedding_projection": "sum"}
    exceptions: Table = {
        **_EXACT_HEADS,
        "embedding_projection": Albert.exceptions["embedding_projection"],
    }
    answering = _answering(
        "gelu",
        "classifier.out_proj classifier.dense",
        "classifier sequence_summary.summary",
        of_choices={
            "summary_type": harmless("first"),
            "summary_use_proj": harmless(True),
            "summary_activation": harmless("gelu"),
            "summary_proj_to_labels": harmless(None, False),
        },
    )
    prefix, heads = "electra.", ("generator_",)
    unread = {"discriminator_predictions.": "finds replaced tokens"}
    parts = _parts(
        "generator_predictions.dense generator_predictions.LayerNorm generator_lm_head.weight "
        "generator_lm_head.bias",
        "embedding.projection:embeddings_project",
    )
    ties = {"generator_lm_head.weight": _WORDS}


_BASE = rule_of("rotary_base")


def _period(config: ResolvedModel) -> int:
    """Return the n of a model of which every n-th layer is global; 3 for others."""
    are_local = [each == decoders.LOCAL for each in decoders.layer_types(config)]
    layers = range(len(are_local))
    return next((n + 1 for n in layers if are_local == [k % (n + 1) > 0 for k in layers]), 3)


class ModernBert(Bert):
    """ModernBERT's classes: pre-norm but before the first attention, rotary, local and global."""

    model_type, name, title = "modernbert", "ModernBert", "ModernBERT"
    fields = _fields(
        "ModernBert",
        _FIELDS,
        """
        vocab_size=50368 hidden_size:d_model=768 num_hidden_layers:n_layers=22
        num_attention_heads:n_heads=12 intermediate_size:d_ff=1152 norm_eps=1e-5 norm_bias=False
        max_position_embeddings:max_len=8192 attention_dropout:dropout_attention=0.0
        mlp_dropout:dropout_ffn=0.0 embedding_dropout:dropout_embedding=0.0
        """,
        **dict.fromkeys(("attention_bias", "mlp_bias", "classifier_bias"), harmless(False)),
        pad_token_id=Field(50283, optional(token_id)),
        hidden_activation=network(
            "gelu",
            {name: (decoders.GATED_OF[ffn], form) for name, (ffn, form) in ACTIVATIONS.items()},
        ),
        decoder_bias=Field(True, flag, write=lambda config: config.head_bias),
        classifier_activation=harmless("gelu"),
        **decoders.LAYERED,
        # Transformers 4 reads these three in place of ``layer_types`` and ``rope_parameters``.
        global_attn_every_n_layers=Field(3, rule_of("n_layers"), write=_period),
        local_attention=Field(
            128,
            whole(LONGEST_WINDOW),
            write=lambda c: 128 if c.attention_window == "none" else c.attention_window,
        ),
        sliding_window=Field(None, optional(whole(LONGEST_WINDOW, least=0))),
        **switched_off(("rope_scaling",)),
        global_rope_theta=Field(160_000.0, _BASE, write=lambda c: c.rotary_base),
        local_rope_theta=Field(10_000.0, _BASE, write=decoders.local_base),
    )
    constants: Fields = {}
    always = {name: value for name, value in _ALWAYS.items() if name != "head_bias"}
    always |= {"norm_order": "pre", "first_norm": False, "final_norm": "affine", "bias": False}
    always |= {"positions": "rotary"}
    exceptions: Table = {
        **_EXACT_HEADS,
        "share": ("none",),
        "segments": ("none",),
        **dict.fromkeys(
            ("head_bias", "attention_window", "window_pattern", "rotary_base", "rotary_local_base"),
            ANY,
        ),
    }
    _pooling = {"classifier_pooling": harmless("cls")}
    answering = _answering("transform", "classifier head.dense head.norm", fields=_pooling)
    # A head of spans reads a layer on every state, which ours does not have.
    del answering["spans"]
    roles = {**Bert.roles, "cls_token_id": "cls_id", "sep_token_id": "sep_id"}
    prefix, heads = "model.", ("head.", "decoder.")
    parts = pairs_of(
        """
        embedding:embeddings.tok_embeddings embedding_norm:embeddings.norm final_norm:final_norm
        head.projection:head.dense head.norm:head.norm head.weight:decoder.weight
        head.bias:decoder.bias
        """
    )
    ties = {"decoder.weight": "embeddings.tok_embeddings.weight"}
    unit = "layers.{layer}."
    block = _block("attn_norm attn.Wqkv attn.Wo", "mlp_norm mlp.Wi mlp.Wo")

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the fields of heads, local and global attentions, and their angles."""
        fields, given = super().particular(content, weights), content.fields
        if fields.get("head_bias"):
            fields["head_bias"] = given["decoder_bias"]
        every, window = given["global_attn_every_n_layers"], given["local_attention"]
        half = given["sliding_window"]
        if half not in (None, window // 2):
            raise content.error(f"sliding_window = {half} contradicts local_attention = {window}")
        bases = ("global_rope_theta", "local_rope_theta")
        layers = decoders.read_layers(content, lambda layer: layer % every > 0, window, bases)
        return fields | layers
