"""BERT, ALBERT, RoBERTa, DistilBERT, ELECTRA and ModernBERT, as transformers has them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from sublayer.config.model import FFNS
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import attention_forms, head_activation, is_factorised, stacks
from sublayer.config.table import LONGEST_WINDOW, MOST_LAYERS
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError
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
from sublayer.interop.family import (
    LABELS,
    NO_OTHER_HEAD,
    TYPED_LABELS,
    Answering,
    Answers,
    Family,
    Fields,
    Oracle,
    Tensors,
    label_words,
)
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
    networks,
    optional,
    rule_of,
    same,
    token_id,
    whole,
)
from sublayer.interop.tokenizers import framing_files
from sublayer.interop.weight_map import Pair, pair_linear

_ENCODER: dict[str, Field] = {
    "num_hidden_layers": same(12, "n_layers"),
    "max_position_embeddings": same(512, "max_len"),
    "layer_norm_eps": same(1e-12, "norm_eps"),
    "tie_word_embeddings": same(True, "tie_embeddings"),
    "pad_token_id": Field(0, optional(token_id)),
    "initializer_range": same(0.02, "init_std"),
    "type_vocab_size": harmless(2),
    "is_encoder_decoder": harmless(False),
    **NEVER,
}


def encoder_fields(vocab_size: int, width: int, n_heads: int, d_ff: int) -> dict[str, Field]:
    """Return the fields of BERT's config, with these defaults of its sizes."""
    return {
        **_ENCODER,
        "vocab_size": same(vocab_size, "vocab_size"),
        "hidden_size": same(width, "d_model"),
        "num_attention_heads": same(n_heads, "n_heads"),
        "intermediate_size": same(d_ff, "d_ff"),
        "hidden_act": network("gelu", ACTIVATIONS),
        "hidden_dropout_prob": same(0.1, "dropout"),
        "attention_probs_dropout_prob": same(0.1, "dropout_attention"),
    }


BERT_FIELDS = ClassFields(
    title="BertConfig",
    fields=encoder_fields(30522, 768, 12, 3072),
    ignored=ALWAYS_IGNORED
    | names(
        """
    directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
    pooler_size_per_head pooler_type
    """
    ),
)
ALBERT_FIELDS = ClassFields(
    title="AlbertConfig",
    fields={
        **encoder_fields(30000, 4096, 64, 16384),
        "embedding_size": same(128, "d_embed"),
        "num_hidden_groups": Field(1, rule_of("n_layers")),
        "inner_group_num": Field(1, rule_of("n_layers")),
        "hidden_act": network("gelu_new", ACTIVATIONS),
        "hidden_dropout_prob": same(0.0, "dropout"),
        "attention_probs_dropout_prob": same(0.0, "dropout_attention"),
    },
    ignored=ALWAYS_IGNORED
    | names("down_scale_factor gap_size ln_type net_structure_type num_memory_blocks"),
)


_EXCEPTIONS: Table = {
    # Models with a sentence head have a transform head for tokens.
    "head": Rule(
        lambda config: (
            config.head == "transform" or (config.head == "none" and not config.sentence_classes)
        )
    ),
    "head_activation": Rule(
        lambda config: (
            config.head == "none"
            or head_activation(config)
            in [FFNS[name].activation for name in networks(config) if name in FFNS]
        ),
        head_activation,
    ),
    "sentence_classes": (0, 2),
    "pooler": Rule(
        lambda config: (
            config.pooler == "tanh" or (config.pooler == "none" and config.sentence_classes != 2)
        )
    ),
}
_WORDS = "embeddings.word_embeddings.weight"
PROJECTION = "encoder.embedding_hidden_mapping_in"
_LABELS, _SPANS = "classifier", "qa_outputs"
_OLD_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


class Bert(Family):
    """BERT's classes: for pre-training, or for labels, choices or spans."""

    model_type, name, title = "bert", "Bert", "BERT"
    fields = BERT_FIELDS
    constants: Fields = {"type_vocab_size": 2}
    # Departure: what would be initialised anew is cut at two standard deviations, as BERT was
    # released; transformers does not cut.
    always: Fields = {
        "kind": "encoder",
        "norm_order": "post",
        "norm_affine": True,
        "final_norm": "none",
        "bias": True,
        "positions": "learned",
        "segments": "both",
        "embedding_norm": "affine",
        "embedding_scale": "none",
        "share": "none",
        "head_bias": True,
        "init": "truncated",
    }
    exceptions: Table = {
        **_EXCEPTIONS,
        "head": ("transform", "none"),
        "share": ("none", "attention", "ffn"),
    }
    answering: Mapping[Answers, Answering] = {
        "labels": Answering(
            "ForSequenceClassification",
            heads=(f"{_LABELS}.",),
            outputs={"logits": "label_logits"},
            always={"pooler": "tanh"},
            fields=TYPED_LABELS,
        ),
        # The class has one output, whatever its labels.
        "choices": Answering(
            "ForMultipleChoice",
            heads=(f"{_LABELS}.",),
            outputs={"logits": "choice_logits"},
            always={"pooler": "tanh", "label_outputs": 1},
        ),
        "spans": Answering(
            "ForQuestionAnswering",
            heads=(f"{_SPANS}.",),
            outputs={"start_logits": "start_logits", "end_logits": "end_logits"},
            always={"span_head": "independent"},
            left_out={**NO_OTHER_HEAD, "pooler": "none"},
            fields=LABELS,
        ),
    }
    prefix = "bert."
    heads: tuple[str, ...] = ("cls.",)
    parts: tuple[tuple[str, str], ...] = (
        ("embedding", "embeddings.word_embeddings"),
        ("positions.tables.0", "embeddings.position_embeddings"),
        ("segment_table", "embeddings.token_type_embeddings"),
        ("embedding_norm", "embeddings.LayerNorm"),
        ("embedding.projection", PROJECTION),
        ("head.projection", "cls.predictions.transform.dense"),
        ("head.norm", "cls.predictions.transform.LayerNorm"),
        ("pooler.linear", "pooler.dense"),
        ("sentence_head", "cls.seq_relationship"),
        ("label_head", _LABELS),
        ("span_head", _SPANS),
    )
    predictions, pooler, sentence = "cls.predictions", "pooler.dense", "cls.seq_relationship"
    """Beginnings of the names of heads."""
    ties = {
        "cls.predictions.decoder.weight": _WORDS,
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    unit = "encoder.layer.{layer}."
    block = {
        "attention": (
            "attention.output.LayerNorm",
            ("attention.self.query", "attention.self.key", "attention.self.value"),
            "attention.output.dense",
        ),
        "ffn": ("output.LayerNorm", "intermediate.dense", "output.dense"),
    }
    reads_segments = True
    """Whether the class reads the segments of a pair."""
    sentence_logits = "seq_relationship_logits"
    judging = ("ForNextSentencePrediction", "logits")
    """The class that judges pairs alone, and its logits."""

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor is a constant, or a pooler that the task's head does not read.

        Former versions of transformers wrote both.
        """
        is_constant = name in ("embeddings.position_ids", "embeddings.token_type_ids")
        pooler = "" if self.answers == "spans" else dict(self.parts).get("pooler.linear", "pooler")
        is_unread = name.startswith("pooler.") and not pooler.startswith("pooler")
        return is_constant or is_unread or super().is_ignored(name)

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Drop tied copies, and rename norms to transformers' current names.

        An untied output matrix has a separate bias: the file's, or the head's.

        Raises CheckpointError where config.json ties tensors that differ, and where a norm has both
        names.
        """
        weights = {}
        for name in sorted(tensors):
            modern = name
            for old, new in _OLD_ENDINGS.items():
                if name.endswith(old):
                    modern = name.removesuffix(old) + new
            if name != modern and modern in tensors:
                raise CheckpointError(
                    f"the weights hold {name} and {modern}: leave one of them out"
                )
            weights[modern] = tensors[name]
        weights = super().prepare(content, weights)
        biases = [f"{self.predictions}.{name}" for name in ("decoder.bias", "bias")]
        if not content.fields["tie_word_embeddings"]:
            # Where both differ, the matrix's counts.
            used = [weights[name] for name in biases if name in weights]
            weights |= dict.fromkeys(biases, used[0]) if used else {}
        return weights

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the fields of the existing heads.

        A head with any tensor is required in full: missing tensors are reported by name.
        """
        if self.answers == "spans" and (n_outputs := len(label_words(content))) != 2:
            raise CheckpointError(
                f"{content.file}: num_labels = {n_outputs}, but spans have 2 outputs, start and "
                "end: leave num_labels and id2label out"
            )
        if self.answers != "tokens":
            return {}
        has_sentence = f"{self.sentence}.weight" in weights
        # A sentence head is never without a pooler.
        has_pooler = has_sentence or f"{self.pooler}.weight" in weights
        has_head = any(name.startswith(f"{self.predictions}.") for name in weights)
        return {
            "sentence_classes": 2 if has_sentence else 0,
            "pooler": "tanh" if has_pooler else "none",
            "head": "transform" if has_head else "none",
            "head_bias": has_head,
        }

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids."""
        roles = {"bos_token_id": "cls_id", "eos_token_id": "sep_id", "pad_token_id": "pad_id"}
        return {name: getattr(tokenizer, role, None) for name, role in roles.items()}

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors; weights shared in groups occur once."""
        yield from super().pairs(config)
        yield Pair((f"{self.predictions}.bias",), "head.bias")
        if not config.tie_embeddings:
            yield from pair_linear(f"{self.predictions}.decoder", "head")

    def oracle(self, config: ResolvedModel) -> Oracle:
        """Return the class by its heads."""
        if self.answers != "tokens":
            return super().oracle(config)
        if config.head == "none" and config.sentence_classes:
            ending, logits = self.judging
            return Oracle(self.name + ending, {logits: "sentence_logits"})
        if config.head == "none":
            pooled = {"pooler_output": "pooled"} if config.pooler == "tanh" else {}
            return Oracle(f"{self.name}Model", {"last_hidden_state": "states", **pooled})
        if config.sentence_classes:
            both = {"prediction_logits": "logits", self.sentence_logits: "sentence_logits"}
            return Oracle(f"{self.name}ForPreTraining", both)
        return Oracle(f"{self.name}ForMaskedLM", {"logits": "logits"})

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the files of a tokenizer with marks around a text: see ``framing_files``."""
        return framing_files(tokenizer, max_len=max_len, reads_segments=self.reads_segments)


class Albert(Bert):
    """ALBERT's classes: factorised embeddings, weights shared in groups."""

    model_type, name, title = "albert", "Albert", "ALBERT"
    fields = ALBERT_FIELDS
    always: Fields = {
        **Bert.always,
        "embedding_projection": "sum",
        "project_embeddings": "always",
    }
    exceptions: Table = {
        **_EXCEPTIONS,
        "embedding_projection": Rule(
            lambda config: config.embedding_projection == "sum" or not is_factorised(config)
        ),
        "share": ANY,
    }
    prefix = "albert."
    heads = ("predictions.", "sop_classifier.")
    parts = (
        *Bert.parts[:5],
        ("head.projection", "predictions.dense"),
        ("head.norm", "predictions.LayerNorm"),
        ("pooler.linear", "pooler"),
        ("sentence_head", "sop_classifier.classifier"),
        *Bert.parts[-2:],
    )
    predictions, pooler, sentence = "predictions", "pooler", "sop_classifier.classifier"
    ties = {"predictions.decoder.weight": _WORDS, "predictions.decoder.bias": "predictions.bias"}
    unit = "encoder.albert_layer_groups.{group}.albert_layers.{inner}."
    block = {
        "attention": (
            "attention.LayerNorm",
            ("attention.query", "attention.key", "attention.value"),
            "attention.dense",
        ),
        "ffn": ("full_layer_layer_norm", "ffn", "ffn_output"),
    }
    sentence_logits = "sop_logits"
    # No ALBERT class has this head alone.
    judging = ("ForPreTraining", "sop_logits")

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Convert as BERT does, and drop an identity projection.

        Raises CheckpointError as BERT does, and where there is no projection.
        """
        weights = super().prepare(content, tensors)
        if f"{PROJECTION}.weight" not in weights:
            raise CheckpointError(f"the weights lack {PROJECTION}.weight")
        leave_out_identity(weights)
        return weights

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the fields of sharing and embeddings; one group per layer means no sharing.

        Raises CheckpointError where a recipe cannot express the groups.
        """
        fields = content.fields
        n_units, n_groups = fields["num_hidden_layers"], fields["num_hidden_groups"]
        n_inner = fields["inner_group_num"]
        groups, units = f"num_hidden_groups = {n_groups}", f"num_hidden_layers = {n_units}"
        if n_groups > n_units:
            raise CheckpointError(f"{content.file}: {groups} is more than {units}")
        if not _parts_alike(n_units, n_groups):
            raise CheckpointError(
                f"{content.file}: {groups} does not divide {units} as a recipe does: "
                "transformers rounds the groups' borders in floating point"
            )
        if n_units * n_inner > MOST_LAYERS:
            raise CheckpointError(
                f"{content.file}: {units} times inner_group_num = {n_inner} is more than "
                f"{MOST_LAYERS:,}"
            )
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
        """Return the fields required by ALBERT.

        Sharing other than in groups is written as a group per layer.
        """
        always = super().required_fields(config)
        n_units = config.n_layers // config.share_inner
        if config.share == "all" and _parts_alike(n_units, config.share_groups):
            names = ("share", "share_groups", "share_inner")
            always |= {name: getattr(config, name) for name in names}
        return always

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids, and the groups."""
        return {
            **super().written(config, tokenizer),
            "inner_group_num": config.share_inner,
            "num_hidden_groups": config.share_groups if config.share == "all" else config.n_layers,
            "num_hidden_layers": config.n_layers // config.share_inner,
        }


def leave_out_identity(weights: dict[str, Tensor]) -> None:
    """Drop an identity projection, which an export writes for a model without a projection.

    ``weights`` change in place.
    """
    weight, bias = (weights.get(f"{PROJECTION}.{part}") for part in ("weight", "bias"))
    if weight is None or bias is None or weight.dim() != 2 or bias.any():
        return
    if torch.equal(weight, torch.eye(len(weight), dtype=weight.dtype)):
        del weights[f"{PROJECTION}.weight"], weights[f"{PROJECTION}.bias"]


def _parts_alike(n_units: int, n_groups: int) -> bool:
    """Check whether transformers' floating-point rounding gives a recipe's groups."""
    return all(
        int(unit / (n_units / n_groups)) == unit * n_groups // n_units for unit in range(n_units)
    )


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
_WITHOUT_SEGMENTS = {name: value for name, value in Bert.always.items() if name != "segments"}
_CHOICES, _SPANS_OF_BERT = Bert.answering["choices"], Bert.answering["spans"]
_DENSE_LABELS = replace(
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
        "labels": _DENSE_LABELS,
        "choices": replace(_CHOICES, heads=("classifier.weight", "classifier.bias")),
        "spans": _SPANS_OF_BERT,
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
        "spans": _SPANS_OF_BERT,
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
        "labels": replace(_DENSE_LABELS, always={"pooler": "gelu"}),
        "choices": replace(
            _CHOICES,
            heads=("classifier.weight", "classifier.bias", "sequence_summary."),
            always={**_CHOICES.always, "pooler": "gelu"},
            fields=_SUMMARY,
            parts={"pooler.linear": "sequence_summary.summary"},
        ),
        "spans": _SPANS_OF_BERT,
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
