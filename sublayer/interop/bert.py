"""BERT and ALBERT, as transformers has them: configs and weights, to and from ours."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from tokenizers import processors
from torch import Tensor

from sublayer.config.model import FFNS
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import head_activation, is_factorised
from sublayer.config.table import MOST_LAYERS
from sublayer.data.tokenizers.base import SPECIAL_NAMES, Tokenizer
from sublayer.data.tokenizers.sentencepiece import UnigramTokenizer
from sublayer.data.tokenizers.settings import CONFIG_NAME
from sublayer.errors import CheckpointError
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
    Rule,
    Table,
    harmless,
    names,
    network,
    networks,
    optional,
    rule_of,
    same,
    token_id,
)
from sublayer.interop.tokenizers import (
    ANY_CLASS,
    FILE,
    as_library,
    library_file,
    settings_file,
    split_marks,
)
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


def framing_files(
    tokenizer: Tokenizer | None, *, max_len: int, reads_segments: bool
) -> dict[str, bytes]:
    """Return the files of a transformers AutoTokenizer with equal ids; empty where impossible.

    Contents are by file name. The tokenizer puts ``[CLS]`` and ``[SEP]`` around a text, as
    masked models expect, and returns a pair's segments if the class reads them.

    ``tokenizer.json`` and ``tokenizer_config.json``; for WordPiece also BERT's ``vocab.txt``,
    for unigram the model itself, ``spiece.model``. Bytes, characters, moses-bpe and
    SentencePiece's BPE cannot be exported.
    """
    if tokenizer is None or (converted := as_library(tokenizer)) is None:
        return {}
    library, names, files = converted
    more: dict[str, Any] = {}
    if isinstance(tokenizer, UnigramTokenizer):
        rules = tokenizer.normalization
        more = {"do_lower_case": rules.do_lower_case, "keep_accents": rules.keep_accents}
        if not rules.divide_digit_commas:
            more["divide_digit_commas"] = False
    elif tokenizer.kind == "wordpiece":
        files["vocab.txt"] = "".join(f"{name}\n" for name in names).encode()
        normalizer = json.loads(library.to_str())["normalizer"] or {}
        if normalizer.get("type") == "BertNormalizer":
            more = {"do_lower_case": normalizer["lowercase"]}
            if normalizer["strip_accents"] is not None:
                more["strip_accents"] = normalizer["strip_accents"]
    cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
    if library.post_processor is None and cls_id is not None and sep_id is not None:
        cls, sep = names[cls_id], names[sep_id]
        library.post_processor = processors.TemplateProcessing(
            single=f"{cls}:0 $A:0 {sep}:0",
            pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
            special_tokens=[(cls, cls_id), (sep, sep_id)],
        )
    ids = {key: getattr(tokenizer, key) for key in (*SPECIAL_NAMES, "unk_id")}
    settings = {
        "tokenizer_class": ANY_CLASS,
        **{key.replace("_id", "_token"): names[id_] for key, id_ in ids.items() if id_ is not None},
        **more,
        **split_marks(tokenizer),
        "model_max_length": max_len,
        # By default, transformers' tokenizer leaves out the segments of a pair.
        "model_input_names": [
            "input_ids",
            *(["token_type_ids"] if reads_segments else []),
            "attention_mask",
        ],
    }
    return {**files, FILE: library_file(library), CONFIG_NAME: settings_file(settings)}


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
