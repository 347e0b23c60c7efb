"""BERT and ALBERT, as transformers has them: configs and weights, to and from ours."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import entries, head_activation, is_factorised
from sublayer.config.table import MOST_LAYERS
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError
from sublayer.interop.answers import Answers, label_words, with_labels
from sublayer.interop.family import ENDINGS, NO_OTHER_HEAD, OUTPUTS, Family, Fields, Oracle, Tensors
from sublayer.interop.foreign_config import (
    ACTIVATIONS,
    ALWAYS_IGNORED,
    EPS,
    FACTOR,
    FFN_WIDTH,
    HEADS,
    LAYERS,
    NEVER,
    VOCABULARY,
    WIDTH,
    WINDOW,
    ClassConfig,
    ClassFields,
    Field,
    activation_fields,
    activation_name,
    flag,
    harmless,
    names,
    network_activation,
    one_of,
    optional,
    share,
    token_id,
    training_only,
)
from sublayer.interop.representable import (
    ALL,
    ANSWERS,
    ANY,
    EITHER,
    ONE_STACK,
    TABLE_AS_WIDE_AS_MODEL,
    Rule,
    Table,
    final_norms,
    networks,
)
from sublayer.interop.tokenizers import encoder_files
from sublayer.interop.weight_map import Pair, check_tied, pair_linear

_ENCODER: dict[str, Field] = {
    "num_hidden_layers": Field(12, LAYERS, "n_layers"),
    "max_position_embeddings": Field(512, WINDOW, "max_len"),
    "layer_norm_eps": Field(1e-12, EPS, "norm_eps"),
    "tie_word_embeddings": Field(True, flag, "tie_embeddings"),
    "pad_token_id": Field(0, optional(token_id)),
    "initializer_range": training_only(0.02, FACTOR, "init_std"),
    "type_vocab_size": harmless(2),
    "is_encoder_decoder": harmless(False),
    **NEVER,
}
BERT_FIELDS = ClassFields(
    title="BertConfig",
    fields={
        **_ENCODER,
        "vocab_size": Field(30522, VOCABULARY, "vocab_size"),
        "hidden_size": Field(768, WIDTH, "d_model"),
        "num_attention_heads": Field(12, HEADS, "n_heads"),
        "intermediate_size": Field(3072, FFN_WIDTH, "d_ff"),
        "hidden_act": Field("gelu", one_of(ACTIVATIONS)),
        "hidden_dropout_prob": training_only(0.1, share, "dropout"),
        "attention_probs_dropout_prob": training_only(0.1, share, "dropout_attention"),
    },
    aliases={},
    ids=("pad_token_id",),
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
        **_ENCODER,
        "vocab_size": Field(30000, VOCABULARY, "vocab_size"),
        "embedding_size": Field(128, WIDTH, "d_embed"),
        "hidden_size": Field(4096, WIDTH, "d_model"),
        "num_hidden_groups": Field(1, LAYERS),
        "inner_group_num": Field(1, LAYERS),
        "num_attention_heads": Field(64, HEADS, "n_heads"),
        "intermediate_size": Field(16384, FFN_WIDTH, "d_ff"),
        "hidden_act": Field("gelu_new", one_of(ACTIVATIONS)),
        "hidden_dropout_prob": training_only(0.0, share, "dropout"),
        "attention_probs_dropout_prob": training_only(0.0, share, "dropout_attention"),
    },
    aliases={},
    ids=("pad_token_id",),
    ignored=ALWAYS_IGNORED
    | names("down_scale_factor gap_size ln_type net_structure_type num_memory_blocks"),
)


def _activates_head_alike(config: ResolvedModel) -> bool:
    activations = map(network_activation, networks(config))
    return config.head == "none" or head_activation(config) in activations


ALBERT: Table = {
    "kind": ("encoder",),
    **ALL,
    **ONE_STACK,
    "norm_order": ("post",),
    "final_norm": final_norms("none"),
    "embedding_norm": (True,),
    "d_embed": ANY,
    "embedding_projection": Rule(
        lambda config: config.embedding_projection == "sum" or not is_factorised(config)
    ),
    "project_embeddings": ("as-needed", "always"),
    "segments": ("none", "both", "second"),
    # Where sentences are judged, tokens are predicted by a transform head.
    "head": Rule(
        lambda config: (
            config.head == "transform" or (config.head == "none" and not config.sentence_classes)
        )
    ),
    "head_activation": Rule(_activates_head_alike, head_activation),
    "head_bias": EITHER,
    "sentence_classes": (0, 2),
    "pooler": Rule(lambda config: config.pooler == "tanh" or config.sentence_classes != 2),
}
BERT: Table = {
    **ALBERT,
    "d_embed": TABLE_AS_WIDE_AS_MODEL,
    "project_embeddings": ("as-needed",),
    "share": ("none", "attention", "ffn"),
    "head": ("transform", "none"),
}
_ANSWERS: dict[Answers, Table] = {
    "labels": {**ANSWERS, "pooler": ("tanh",), "label_outputs": ANY},
    "choices": {**ANSWERS, "pooler": ("tanh",), "label_outputs": (1,)},
    "spans": {**ANSWERS, "pooler": ("none", "tanh"), "span_head": ("independent",)},
}
_WORDS = "embeddings.word_embeddings.weight"
PROJECTION = "encoder.embedding_hidden_mapping_in"
_LABELS, _SPANS = "classifier", "qa_outputs"
_OLD_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


@dataclass(frozen=True)
class _Names:
    """Names of tensors that differ between the two."""

    unit: str
    """Beginning of the names of a block, of a group and a place in it."""
    block: dict[str, str | tuple[str, ...]]
    """Maps and norms of a block, by ours below ``encoder.sublayers``."""
    predictions: str
    transform: str
    """The map and the norm of the head that predicts tokens stand below this name."""
    pooler: str
    sentence: str
    """The head that judges pairs."""


_BERT_NAMES = _Names(
    unit="encoder.layer.{group}.",
    block={
        "0.{slot}.function.projection": (
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
        ),
        "0.{slot}.function.output": "attention.output.dense",
        "0.{slot}.norm": "attention.output.LayerNorm",
        "1.{slot}.function.input": "intermediate.dense",
        "1.{slot}.function.output": "output.dense",
        "1.{slot}.norm": "output.LayerNorm",
    },
    predictions="cls.predictions",
    transform="cls.predictions.transform",
    pooler="pooler.dense",
    sentence="cls.seq_relationship",
)
_ALBERT_NAMES = _Names(
    unit="encoder.albert_layer_groups.{group}.albert_layers.{inner}.",
    block={
        "0.{slot}.function.projection": ("attention.query", "attention.key", "attention.value"),
        "0.{slot}.function.output": "attention.dense",
        "0.{slot}.norm": "attention.LayerNorm",
        "1.{slot}.function.input": "ffn",
        "1.{slot}.function.output": "ffn_output",
        "1.{slot}.norm": "full_layer_layer_norm",
    },
    predictions="predictions",
    transform="predictions",
    pooler="pooler",
    sentence="sop_classifier.classifier",
)


class Bert(Family):
    """BERT's classes: for pre-training, or for labels, choices or spans."""

    model_type, name = "bert", "Bert"
    base_table, base_fields, names = BERT, BERT_FIELDS, _BERT_NAMES
    prefix = "bert."
    base_heads: tuple[str, ...] = ("cls.",)
    sentence_logits = "seq_relationship_logits"
    judging = ("ForNextSentencePrediction", "logits")
    """The class that judges pairs alone, and its logits."""

    def __init__(self, answers: Answers = "tokens") -> None:
        self.answers = answers
        self.title = f"{self.name.upper()} for pre-training"
        self.table, self.fields, self.heads = self.base_table, self.base_fields, self.base_heads
        if answers != "tokens":
            self.title = self.name + ENDINGS[answers]
            self.table = {**self.table, **_ANSWERS[answers]}
            self.heads = (f"{_SPANS if answers == 'spans' else _LABELS}.",)
        # A class of choices has one output, whatever is said of labels.
        if answers in ("labels", "spans"):
            self.fields = with_labels(self.fields, is_typed=answers == "labels")

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor is a constant, or a pooler that a head of spans does not read.

        Former versions of transformers wrote both.
        """
        is_constant = name in ("embeddings.position_ids", "embeddings.token_type_ids")
        return is_constant or (self.answers == "spans" and name.startswith("pooler."))

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Leave out tied copies, and give norms the names that transformers has today.

        An untied output matrix has a bias of its own: the file's, or that of the head.

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
        predictions = self.names.predictions
        matrix, bias = f"{predictions}.decoder.weight", f"{predictions}.decoder.bias"
        output_bias = f"{predictions}.bias"
        if content.flag("tie_word_embeddings"):
            check_tied(weights, matrix, _WORDS)
            check_tied(weights, bias, output_bias)
            weights.pop(matrix, None)
            if bias in weights:
                weights[output_bias] = weights.pop(bias)
        elif bias in weights or output_bias in weights:
            # Where the two differ, the one beside the matrix counts.
            used = weights[bias if bias in weights else output_bias]
            weights[bias] = used
            weights[output_bias] = used
        return weights

    def read_config(self, content: ClassConfig, weights: Tensors) -> ResolvedModel:
        """Convert config.json and the fields of the heads to a resolved config.

        Departure: what would be initialised anew is cut at two standard deviations, as BERT was
        released; transformers does not cut.
        """
        given = content.fields
        fields = {
            **content.ours,
            "kind": "encoder",
            "n_heads": content.heads("num_attention_heads", "hidden_size"),
            **activation_fields(*ACTIVATIONS[given["hidden_act"]]),
            "norm_order": "post",
            "embedding_norm": True,
            "segments": "both",
            "head": "transform",
            "head_bias": True,
            "init": "truncated",
            **self._class_fields(content, weights),
            **self._read_heads(content, weights),
        }
        return content.resolve(fields, context=given["max_position_embeddings"])

    def _class_fields(self, content: ClassConfig, weights: Tensors) -> Fields:
        return {}

    def _read_heads(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the fields of the heads that there are.

        A head with one tensor there is asked for whole: missing tensors are reported by name.
        """
        match self.answers:
            case "tokens":
                has_sentence = f"{self.names.sentence}.weight" in weights
                # A sentence head is never without a pooler.
                has_pooler = has_sentence or f"{self.names.pooler}.weight" in weights
                fields: Fields = {
                    "sentence_classes": 2 if has_sentence else 0,
                    "pooler": "tanh" if has_pooler else "none",
                }
                if not any(name.startswith(f"{self.names.predictions}.") for name in weights):
                    fields |= {"head": "none", "head_bias": False}
                return fields
            case "labels":
                answering = {"pooler": "tanh", "label_outputs": len(label_words(content))}
            case "choices":
                answering = {"pooler": "tanh", "label_outputs": 1}
            case "spans":
                n_outputs = len(label_words(content))
                if n_outputs != 2:
                    raise CheckpointError(
                        f"{content.file}: num_labels = {n_outputs}, and spans have 2, a start and "
                        "an end: leave num_labels and id2label out"
                    )
                answering = {"pooler": "none", "span_head": "independent"}
        return {**NO_OTHER_HEAD, **answering}

    def required_fields(self, config: ResolvedModel) -> Fields:
        """Return the fields of what BERT always has, without heads that its class has not."""
        always = {
            "bias": True,
            "norm_affine": True,
            "head_bias": True,
            "positions": "learned",
            "segments": "both",
            "tie_embeddings": config.tie_embeddings and config.embedding_scale == "none",
            "embedding_scale": "none",
            "share": "none",
            "share_groups": 1,
            "share_inner": 1,
        }
        if self.answers != "tokens":
            always |= NO_OTHER_HEAD
        if self.answers == "spans":
            always["pooler"] = "none"
        return always

    def write_config(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Convert an expanded model config to config.json.

        Dropout that training alone sees and BERT has not (of hidden ffn units, or another of the
        embeddings) is left out, as is the initialisation's cut, which transformers does not make.
        """
        return {
            "architectures": [self.oracle(config).name],
            "model_type": self.model_type,
            **self.base_fields.write(config),
            "bos_token_id": None if tokenizer is None else tokenizer.cls_id,
            "eos_token_id": None if tokenizer is None else tokenizer.sep_id,
            "pad_token_id": None if tokenizer is None else tokenizer.pad_id,
            "hidden_act": activation_name(str(entries(config)[1].variant), config.gelu),
            "dtype": "float32",
            "type_vocab_size": 2,
        }

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors; with weights that are shared in groups, each stands once."""
        names = self.names
        yield Pair((_WORDS,), "embedding.weight")
        yield Pair(("embeddings.position_embeddings.weight",), "positions.tables.0.weight")
        yield Pair(("embeddings.token_type_embeddings.weight",), "segment_table.weight")
        yield from pair_linear("embeddings.LayerNorm", "embedding_norm")
        if is_factorised(config):
            yield from pair_linear(PROJECTION, "embedding.projection")
        is_shared = config.share == "all"
        n_inner = config.share_inner if is_shared else 1
        for slot in range(config.share_groups * n_inner if is_shared else config.n_layers):
            group, inner = divmod(slot, n_inner)
            unit = names.unit.format(group=group, inner=inner)
            for part, theirs in names.block.items():
                parts = (theirs,) if isinstance(theirs, str) else theirs
                ours = f"encoder.sublayers.{part.format(slot=slot)}"
                yield from pair_linear(tuple(unit + name for name in parts), ours)
        if config.head != "none":
            yield from pair_linear(f"{names.transform}.dense", "head.projection")
            yield from pair_linear(f"{names.transform}.LayerNorm", "head.norm")
            yield Pair((f"{names.predictions}.bias",), "head.bias")
            if not config.tie_embeddings:
                yield from pair_linear(f"{names.predictions}.decoder", "head")
        if config.pooler == "tanh":
            yield from pair_linear(names.pooler, "pooler.linear")
        if config.sentence_classes:
            yield from pair_linear(names.sentence, "sentence_head")
        if config.label_outputs:
            yield from pair_linear(_LABELS, "label_head")
        if config.span_head == "independent":
            yield from pair_linear(_SPANS, "span_head")

    def oracle(self, config: ResolvedModel) -> Oracle:
        """Return the class by its heads."""
        if self.answers != "tokens":
            return Oracle(self.title, OUTPUTS[self.answers])
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
        """Return the files of a tokenizer that puts around a text what masked models have there."""
        return encoder_files(tokenizer, max_len=max_len)


class Albert(Bert):
    """ALBERT's classes: factorised embeddings, weights shared in groups."""

    model_type, name = "albert", "Albert"
    base_table, base_fields, names = ALBERT, ALBERT_FIELDS, _ALBERT_NAMES
    prefix = "albert."
    base_heads = ("predictions.", "sop_classifier.")
    sentence_logits = "sop_logits"
    # No class of ALBERT's has that head alone.
    judging = ("ForPreTraining", "sop_logits")

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Leave out a projection that changes nothing, and what BERT does."""
        weights = super().prepare(content, tensors)
        if f"{PROJECTION}.weight" not in weights:
            raise CheckpointError(f"the weights lack {PROJECTION}.weight")
        leave_out_identity(weights)
        return weights

    def _class_fields(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the fields of sharing and of the embeddings; a group a layer is no sharing.

        Raises CheckpointError where a recipe cannot say the groups.
        """
        given = content.fields
        n_units, n_groups = given["num_hidden_layers"], given["num_hidden_groups"]
        n_inner = given["inner_group_num"]
        groups, units = f"num_hidden_groups = {n_groups}", f"num_hidden_layers = {n_units}"
        if n_groups > n_units:
            raise CheckpointError(f"{content.file}: {groups} is more than {units}")
        if not _parts_alike(n_units, n_groups):
            raise CheckpointError(
                f"{content.file}: {groups} does not part {units} as a recipe does: "
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
        # Embeddings that are as wide as the model may be projected, too.
        is_square = given["embedding_size"] == given["hidden_size"]
        is_projected = is_square and f"{PROJECTION}.weight" in weights
        return {
            **sharing,
            "n_layers": n_units * n_inner,
            "embedding_projection": "sum",
            "project_embeddings": "always" if is_projected else "as-needed",
        }

    def required_fields(self, config: ResolvedModel) -> Fields:
        """Return the fields of what ALBERT always has: embeddings are projected.

        What shares in another way than in groups is written with a group a layer.
        """
        always = {
            **super().required_fields(config),
            "embedding_projection": "sum",
            "project_embeddings": "always",
        }
        n_units = config.n_layers // config.share_inner
        if config.share == "all" and _parts_alike(n_units, config.share_groups):
            names = ("share", "share_groups", "share_inner")
            always |= {name: getattr(config, name) for name in names}
        return always

    def write_config(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Convert an expanded config to ALBERT's config.json, leaving out what BERT's does."""
        return {
            **super().write_config(config, tokenizer),
            "inner_group_num": config.share_inner,
            "num_hidden_groups": config.share_groups if config.share == "all" else config.n_layers,
            "num_hidden_layers": config.n_layers // config.share_inner,
        }


def leave_out_identity(weights: dict[str, Tensor]) -> None:
    """Leave out a projection that changes nothing, which an export writes where there is none.

    ``weights`` change in place.
    """
    weight, bias = (weights.get(f"{PROJECTION}.{part}") for part in ("weight", "bias"))
    if weight is None or bias is None or weight.dim() != 2 or bias.any():
        return
    if torch.equal(weight, torch.eye(len(weight), dtype=weight.dtype)):
        del weights[f"{PROJECTION}.weight"], weights[f"{PROJECTION}.bias"]


def _parts_alike(n_units: int, n_groups: int) -> bool:
    """Return whether transformers, which rounds in floating point, has the groups of a recipe."""
    return all(
        int(unit / (n_units / n_groups)) == unit * n_groups // n_units for unit in range(n_units)
    )
