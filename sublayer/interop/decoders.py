"""Decoders of transformers with rotary positions, Llama to NanoChat: a family, a table a class."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sublayer.config.model import BiasedMap
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import attention_forms, entries, has_bias, n_rotated, stacks
from sublayer.config.table import LARGEST_FACTOR, LONGEST_WINDOW, MOST_LAYERS, WIDEST
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.family import TYPED_LABELS, Answering, Answers, Fields, Tensors
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
    Unsayable,
    ValueRule,
    flag,
    harmless,
    names,
    network,
    optional,
    positive,
    refused_fields,
    rule_of,
    same,
    switched_off,
    token_id,
    whole,
)
from sublayer.interop.gpt import ALIASES, Gpt2
from sublayer.interop.weight_map import Pair, pair_linear
from sublayer.objective.supervised.heads import BIAS

ATTENTION = {
    "0.norm": "input_layernorm",
    "0.function.projection": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
    "0.function.output": "self_attn.o_proj",
}
GROUPED = {
    **ATTENTION,
    "0.function.queries": "self_attn.q_proj",
    "0.function.projection": "self_attn.k_proj self_attn.v_proj",
}
HEAD_NORMS = {
    "0.function.query_norm": "self_attn.q_norm",
    "0.function.key_norm": "self_attn.k_norm",
}
NETWORK = {
    "1.norm": "post_attention_layernorm",
    "1.function.input": "mlp.gate_proj mlp.up_proj",
    "1.function.output": "mlp.down_proj",
}
AROUND = {
    "0.output_norm": "post_attention_layernorm",
    "1.norm": "pre_feedforward_layernorm",
    "1.output_norm": "post_feedforward_layernorm",
}
"""Modules of a layer of a class by ours, ``entry.path``: several are stacked in this order."""

_UNGATED = {**ACTIVATIONS, "relu2": ("relu2", "tanh")}
GATED_OF = {"gelu": "geglu", "relu": "reglu", "relu2": "reglu2", "swish": "swiglu"}
_GATED = {
    # The first of several names of a network is written.
    "gelu_pytorch_tanh": ("geglu", "tanh"),
    **{name: (GATED_OF[ffn], gelu) for name, (ffn, gelu) in _UNGATED.items()},
    "sigmoid": ("glu", "tanh"),
    "linear": ("bilinear", "tanh"),
}
WIDEST_BASE = 1e12
LOCAL, GLOBAL = "sliding_attention", "full_attention"


def _rope(*shares: str) -> ValueRule:
    """Build the rule of a table of plain rotary positions, which may have ``shares``."""

    def rule(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise ValueError("is not a table")
        read: Fields = {}
        for name, each in sorted(value.items(), key=lambda item: "type" not in item[0]):
            if name in ("rope_type", "type"):
                if each != "default":
                    raise Unsayable(f"only {name} = 'default'")
                read[name] = each
            elif name in ("rope_theta", *shares):
                read[name] = positive(WIDEST_BASE if name == "rope_theta" else 1.0)(each)
            elif name != "partial_rotary_factor" or each != 1.0:
                raise Unsayable(f"{name:.40} changes the rotation")
        return read

    return rule


def rope_by_type(value: Any) -> Any:
    """Read a table of rotary positions for each type of layers."""
    if value is None or (type(value) is dict and value.keys() <= {GLOBAL, LOCAL}):
        return value and {kind: _rope()(each) for kind, each in value.items()}
    raise Unsayable(f"only tables of {GLOBAL} and {LOCAL}")


def _each_of(*values: Any) -> ValueRule:
    """Build the rule of a list of these values, or null."""

    def rule(value: Any) -> Any:
        if type(value) is not list:
            raise ValueError("is not a list")
        if any(type(each) is not type(values[0]) or each not in values for each in value):
            raise Unsayable(f"only {' and '.join(map(repr, values))}")
        return value

    return optional(rule)


class _Cap(Link):
    """A soft cap, which is null in the file for none."""

    def read(self, value: Any) -> dict[str, Any]:
        return {self.ours: "none" if value is None else value}

    def write(self, config: ResolvedModel) -> Any:
        cap = super().write(config)
        return None if cap == "none" else cap


def _cap(default: float | None, ours: str) -> Field:
    return Field(default, optional(positive(LARGEST_FACTOR)), _Cap(ours))


def _number(default: float | None) -> Field:
    return Field(default, positive(WIDEST_BASE))


_UNREAD = Field(None, lambda value: value, is_computed=False)
_OFF = Field(False, flag)
_OTHERS = switched_off(
    names(
        """
        alibi attention_bias attn_logit_softcapping clip_qkv final_logit_softcapping layer_types
        mlp_bias n_routed_experts no_rope_layers num_experts num_local_experts qk_layernorm
        sliding_window use_qk_norm use_sliding_window
        """
    )
)
"""Fields that change models, of those classes that have them."""


_IGNORED = {"pretraining_tp", "cache_implementation"}
_PADDING = optional(token_id)
_OURS = ("vocab_size", "d_model", "d_ff", "n_layers", "n_heads", "max_len", "n_kv_heads")
_THEIRS = """
    vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads
    max_position_embeddings num_key_value_heads
"""


def _fields(
    title: str, padding: int | None, /, *sizes: int | None, **more: Field | None
) -> ClassFields:
    """Build the fields of a class: its padding and sizes by default, and more; None is none."""
    by_name = zip(_THEIRS.split(), _OURS, sizes, strict=False)
    fields: dict[str, Field | None] = {
        **NEVER,
        **_OTHERS,
        **{name: same(size, ours) for name, ours, size in by_name},
        "attention_dropout": same(0.0, "dropout_attention"),
        "hidden_act": network("silu", _GATED),
        # Read also by classes that do not declare it.
        "head_dim": Field(None, rule_of("d_head"), Link("d_head")),
        "initializer_range": same(0.02, "init_std"),
        "is_encoder_decoder": harmless(False),
        # In older files -1 is no padding.
        "pad_token_id": Field(padding, lambda value: None if value == -1 else _PADDING(value)),
        "rms_norm_eps": same(1e-6, "norm_eps"),
        "rope_parameters": Field(None, _rope()),
        "rope_scaling": Field(None, _rope()),
        "rope_theta": _number(None),
        "partial_rotary_factor": harmless(None, 1.0, 1),
        "tie_word_embeddings": same(False, "tie_embeddings"),
    }
    own = {name: row for name, row in (fields | more).items() if row is not None}
    return ClassFields(title, own, ignored=ALWAYS_IGNORED | _IGNORED)


@dataclass(frozen=True)
class _Gain(Pair):
    """Gains, to which the class adds 1."""

    def read(self, parts: list[Tensor], ours: torch.Size) -> Tensor:
        return super().read(parts, ours) + 1.0

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        return super().write(tensor - 1.0)


@dataclass(frozen=True)
class _ByHead(Pair):
    """Maps to queries, keys and values in one tensor, head by head."""

    n_heads: int = 1

    def shape(self, ours: torch.Size) -> list[int]:
        return [ours[0] * ours[1], *ours[2:]]

    def read(self, parts: list[Tensor], ours: torch.Size) -> Tensor:
        by_head = parts[0].reshape(self.n_heads, 3, -1, *ours[2:])  # [H, 3, K, ...]
        return by_head.transpose(0, 1).reshape(ours)

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        by_map = tensor.detach().reshape(3, self.n_heads, -1, *tensor.shape[2:])
        return {self.theirs[0]: by_map.transpose(0, 1).flatten(0, 2).contiguous()}


Maps = frozenset[BiasedMap]
_MAPS: tuple[BiasedMap, ...] = ("query", "key", "value", "output", "ffn")
_INPUTS: Maps = frozenset(_MAPS[:3])
_BIASES = {"attention_bias": frozenset(_MAPS[:4]), "mlp_bias": frozenset(_MAPS[4:])}
"""Maps with biases, by the field that asks for them."""


def _biased(config: ResolvedModel) -> Maps:
    return frozenset(name for name in _MAPS if has_bias(config, name))


def _as_bias(biased: Maps) -> bool | dict[BiasedMap, bool]:
    """Return the value of ``model.bias`` for these maps."""
    if len(biased) in (0, len(_MAPS)):
        return bool(biased)
    return {name: True for name in _MAPS if name in biased}


def pattern(marks: Sequence[bool], letters: str) -> str:
    """Return the shortest pattern that repeats to a letter for each mark, the first where true."""
    text = "".join(letters[not mark] for mark in marks)
    patterns = (text[: end + 1] for end in range(len(text)))
    return next(each for each in patterns if (each * len(text))[: len(text)] == text)


def _is_parallel(config: ResolvedModel) -> bool | None:
    """Return whether attention and network are parallel; None for another block."""
    steps = [(entry.name, entry.step, entry.is_joined) for entry in entries(config)]
    usual = [("attention", 1.0, False), ("ffn", 1.0, steps[-1][-1])]
    return steps[-1][-1] if steps == usual else None


def rope_table(base: float, **more: float) -> Fields:
    """Return the table of rotary positions of a base, as transformers 5 reads it."""
    return {"rope_type": "default", "rope_theta": base, **more}


_WIDTHS = {"attention_scale": "d_head", "embedding_scale": "d_model", "output_scale": "d_model"}
_DIVIDED = Rule(lambda config: config.d_model % config.n_heads == 0)
"""Heads that divide the width, as some classes want even where heads have a width of their own."""
_LABELS: Mapping[Answers, Answering] = {
    "labels": replace(Gpt2.answering["labels"], fields=TYPED_LABELS)
}
_NONE: Mapping[Answers, Answering] = {}


class Decoder(Gpt2):
    """The base of these classes: RMS norms before sub-layers, a gated network, rotary positions."""

    predicts = "ForCausalLM"
    always: Fields = {"kind": "decoder", "positions": "rotary", "share": "none"}
    always |= {"norm": "rms", "norm_order": "pre", "norm_affine": True, "final_norm": "affine"}
    always |= {"embedding_scale": "none"}
    answering = _LABELS
    prefix, heads = "model.", ("lm_head.",)
    parts = (("embedding", "embed_tokens"), ("final_norm", "norm"), ("head", "lm_head"))
    ties: Mapping[str, str] = {"lm_head.weight": "embed_tokens.weight"}
    unit, is_transposed = "layers.{layer}.", False
    layer: Mapping[str, str] = ATTENTION | NETWORK
    base = 10_000.0
    """Default of the rotary base."""
    is_parallel = False
    """True where sub-layers are in parallel."""
    parallel: Fields = {"block": "parallel"}
    """Fields of sub-layers in parallel."""
    always_biased: Maps = frozenset()
    """Maps that always have a bias."""
    scales: Mapping[str, tuple[str, float]] = {}
    """Our scale by the field of its number, and the power of this."""

    def __init__(self, answers: Answers = "tokens") -> None:
        fields = self.fields.fields.items()
        own = {name for name, row in fields if row is not _OTHERS.get(name)}
        rows: dict[str, Any] = {"rotary_base": ANY, "bias": Rule(self._has_its_biases)}
        rows |= {ours: ANY for ours, _ in self.scales.values()}
        if "sliding_window" in own:
            is_local = Rule(lambda config: "G" not in config.window_pattern)
            rows |= {"attention_window": ANY}
            rows |= {"window_pattern": ANY if "layer_types" in own else is_local}
        if self.is_parallel:
            rows["block"] = Rule(lambda config: _is_parallel(config) is True)
        self.exceptions = {**rows, **self.exceptions}
        self._own = own
        """Names of the class's own fields."""
        self._biases = {name: maps for name, maps in _BIASES.items() if name in own}
        super().__init__(answers)

    def _has_its_biases(self, config: ResolvedModel) -> bool:
        """Return whether the class has a model's biases; those it always has may be missing."""
        biased = _biased(config)
        by_flags = self.always_biased.union(*(m for m in self._biases.values() if m <= biased))
        return biased | self.always_biased == by_flags and len(biased & _INPUTS) in (0, 3)

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor holds no weights: masks and angles of older versions."""
        masks = ("attn.bias", "attn.masked_bias", "attention.bias", "attention.masked_bias")
        return name.endswith(("rotary_emb.inv_freq", *masks))

    def read_config(self, content: ClassConfig, weights: Tensors) -> ResolvedModel:
        """Convert a config.json; raise CheckpointError also for fields the class cannot have."""
        config = super().read_config(content, weights)
        if refused := refused_fields(config, self.table):
            raise CheckpointError(f"{content.file}: {self.name}'s class has no {refused[0]}")
        return config

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Convert biases, scales, the order of sub-layers, rotary positions and windows."""
        fields, ours = content.fields, content.ours
        biased = (maps for name, maps in self._biases.items() if fields[name])
        read: Fields = {"bias": _as_bias(self.always_biased.union(*biased))}
        for name, (scale, power) in self.scales.items():
            number = 1.0 / fields[name] if power < 0 else fields[name] ** power
            read[scale] = "none" if number == 1.0 else number
            width = ours.get("d_head") or ours["d_model"] // ours["n_heads"]
            is_root = math.isclose(number, math.sqrt(width), rel_tol=1e-12)
            if scale == "attention_scale" and is_root:
                read[scale] = "sqrt"
        if fields.get("use_parallel_residual", self.is_parallel):
            read |= self.parallel
        return {**read, **self._rotation(content), **self._windows(content)}

    def _rotation(self, content: ClassConfig) -> Fields:
        """Convert rotary positions, in the table of transformers 5 or the fields of 4."""
        table = content.fields["rope_scaling"] or content.fields["rope_parameters"] or {}
        return {"rotary_base": table.get("rope_theta", content.fields["rope_theta"] or self.base)}

    def _is_local(self, index: int, fields: Fields) -> bool:
        """Return whether a layer has a window, in a file without ``layer_types``."""
        return fields["sliding_window"] is not None

    def _windows(self, content: ClassConfig) -> Fields:
        """Convert the window, at most the longest input, and the types of layers."""
        fields, n_layers = dict(content.fields), content.ours["n_layers"]
        if fields["use_sliding_window"] is False:
            fields["sliding_window"] = None
        are_local = [each == LOCAL for each in fields["layer_types"] or ()]
        if fields["layer_types"] is None:
            are_local = [self._is_local(index, fields) for index in range(n_layers)]
        check_count(content, "layer_types", are_local)
        if not any(are_local):
            return {}
        if fields["sliding_window"] is None:
            raise CheckpointError(
                f"{content.file}: layers of {LOCAL} need a sliding_window, and "
                "use_sliding_window where the class has it"
            )
        window = min(fields["sliding_window"], content.ours["max_len"])
        return {"attention_window": window, "window_pattern": pattern(are_local, "LG")}

    def required_fields(self, config: ResolvedModel) -> Fields:
        """Return the fields that the class requires, with the biases that it always has."""
        bias = _as_bias(_biased(config) | self.always_biased)
        return {**super().required_fields(config), "bias": bias, "positions": config.positions}

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids, biases, scales, rotary positions and windows."""
        fields: Fields = {"pad_token_id": None, **super().written(config, tokenizer)}
        fields |= {name: maps <= _biased(config) for name, maps in self._biases.items()}
        for name, (scale, power) in self.scales.items():
            number = getattr(config, scale)
            root = math.sqrt(getattr(config, _WIDTHS[scale]))
            number = {"none": 1.0, "sqrt": root}.get(number, number) ** (1.0 / power)
            is_whole = isinstance(self.fields.fields[name].default, int)
            fields[name] = round(number) if is_whole else number
        forms = [form for (form, *_) in attention_forms(config, stacks(config)[0]) if form]
        are_local = [form.window is not None for form in forms]
        window = config.attention_window if any(are_local) else None
        if "layer_types" in self._own and "use_sliding_window" not in self._own:
            window = window or config.max_len  # the class needs a number
        is_rotary = config.positions == "rotary"
        of_layers = {
            "use_parallel_residual": _is_parallel(config),
            "use_sliding_window": any(are_local),
            "sliding_window": window,
            "layer_types": [LOCAL if each else GLOBAL for each in are_local],
            "no_rope_layers": [int(is_rotary and form.has_positions) for form in forms],
        }
        fields |= {name: value for name, value in of_layers.items() if name in self._own}
        return fields | self._written_rotation(config)

    def _written_rotation(self, config: ResolvedModel) -> Fields:
        """Return rotary positions, as both transformers 5 and 4 read them."""
        return {"rope_parameters": rope_table(config.rotary_base), "rope_theta": config.rotary_base}

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors; those of layers by ``layer``."""
        yield from (self._paired(pair, config) for pair in super().pairs(config))

    def pairs_of_blocks(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors of layers, with queries of their own where there are fewer keys."""
        is_grouped = config.n_kv_heads != config.n_heads
        layer = {**self.layer, **(GROUPED if is_grouped else {})}
        for index in range(config.n_layers):
            unit = self.unit.format(layer=index)
            for ours, theirs in layer.items():
                entry, _, path = ours.partition(".")
                modules = tuple(unit + module for module in theirs.split())
                yield from pair_linear(modules, f"decoder.sublayers.{entry}.{index}.{path}")

    def _paired(self, pair: Pair, config: ResolvedModel) -> Pair:
        """Return a pair as the class stores its tensors."""
        return pair

    def settle(
        self, config: ResolvedModel, weights: Tensors, tokenizer: Tokenizer | None = None
    ) -> dict[str, Tensor]:
        """Fold the label head's bias into its weights, as GPT-2 does, by the last norm's offsets.

        Raises ConfigError for a bias where that norm has no offsets.
        """
        if self.answers == "labels" and config.norm == "rms" and weights[BIAS].any():
            raise ConfigError(
                f"{self.title} has a classifier without bias after an RMS norm, which has no "
                f"offsets that {BIAS} could be folded into: the model cannot be exported"
            )
        return super().settle(config, weights, tokenizer)


def check_count(content: ClassConfig, name: str, marks: Sequence[bool]) -> None:
    """Raise CheckpointError where a list has not an entry for each layer."""
    n_layers = content.ours["n_layers"]
    if len(marks) != n_layers:
        raise CheckpointError(
            f"{content.file}: {name} has {len(marks)} entries for {n_layers} layers"
        )


_BIASED = {"attention_bias": _OFF, "mlp_bias": _OFF}
_TIED = {"tie_word_embeddings": same(True, "tie_embeddings")}
LAYER_TYPES = Field(None, _each_of(LOCAL, GLOBAL))
_LAYERED = {
    "layer_types": LAYER_TYPES,
    "sliding_window": Field(4096, optional(whole(LONGEST_WINDOW))),
}
_OF_QWEN = {
    **_LAYERED,
    "use_sliding_window": _OFF,
    "max_window_layers": Field(28, lambda value: 0 if value == 0 else whole(WIDEST)(value)),
}
_LLAMA, _QWEN = (32000, 4096, 11008, 32, 32, 2048, None), (151936, 4096, 22016, 32, 32, 32768, 32)


class Llama(Decoder):
    """Llama's classes."""

    model_type, name, title = "llama", "Llama", "Llama"
    fields = _fields("LlamaConfig", None, *_LLAMA, **_BIASED, head_dim=same(None, "d_head"))
    exceptions: Table = {"n_heads": _DIVIDED}


class Mistral(Decoder):
    """Mistral's classes: no biases, and the same window in all layers, or none."""

    model_type, name, title = "mistral", "Mistral", "Mistral"
    fields = _fields(
        *("MistralConfig", None, 32000, 4096, 14336, 32, 32, 131072, 8),
        sliding_window=_LAYERED["sliding_window"],
        head_dim=same(None, "d_head"),
    )


class Qwen2(Decoder):
    """Qwen2's classes: biases of queries, keys and values; windows from some layer on."""

    model_type, name, title = "qwen2", "Qwen2", "Qwen2"
    fields = _fields("Qwen2Config", None, *_QWEN, **_OF_QWEN)
    always_biased = _INPUTS

    def _is_local(self, index: int, fields: Fields) -> bool:
        return super()._is_local(index, fields) and index >= int(fields["max_window_layers"])


class Qwen3(Qwen2):
    """Qwen3's classes: norms of each head's queries and keys in place of Qwen2's biases."""

    model_type, name, title = "qwen3", "Qwen3", "Qwen3"
    _more = {"attention_bias": _OFF, "head_dim": same(128, "d_head")}
    fields = _fields("Qwen3Config", None, *_QWEN, **_OF_QWEN, **_more)
    always: Fields = {**Qwen2.always, "qk_norm": "rms", "qk_norm_gain": True}
    layer = {**Qwen2.layer, **HEAD_NORMS}
    always_biased: Maps = frozenset()


class SmolLM3(Decoder):
    """SmolLM3's classes: layers without positions, which may have windows."""

    model_type, name, title = "smollm3", "SmolLM3", "SmolLM3"
    fields = _fields(
        *("SmolLM3Config", 128004, 128256, 2048, 11008, 36, 16, 32768, 4),
        **{**_TIED, **_BIASED, **_LAYERED},
        use_sliding_window=_OFF,
        no_rope_layers=Field(None, _each_of(0, 1)),
        no_rope_layer_interval=Field(4, whole(MOST_LAYERS)),
    ).extended({"sliding_window": replace(_LAYERED["sliding_window"], default=None)})
    exceptions: Table = {"positions": ("rotary", "none"), "position_pattern": ANY}
    base = 2_000_000.0

    def _is_local(self, index: int, fields: Fields) -> bool:
        return super()._is_local(index, fields) and not self._marks(fields)[index]

    def _marks(self, fields: Mapping[str, Any]) -> list[bool]:
        """Return whether each layer has positions."""
        marks, n_layers = fields["no_rope_layers"], fields["num_hidden_layers"]
        if marks is None:
            marks = [(index + 1) % fields["no_rope_layer_interval"] for index in range(n_layers)]
        return [bool(mark) for mark in marks]

    def _rotation(self, content: ClassConfig) -> Fields:
        marks = self._marks(content.fields)
        check_count(content, "no_rope_layers", marks)
        if not any(marks):
            return {"positions": "none"}
        return {**super()._rotation(content), "position_pattern": pattern(marks, "PN")}


class Olmo2(Decoder):
    """Olmo2's classes: norms of outputs alone, and of all queries and keys together."""

    model_type, name, title = "olmo2", "Olmo2", "Olmo2"
    _more = {"rms_norm_eps": same(1e-5, "norm_eps"), "attention_bias": _OFF}
    fields = _fields("Olmo2Config", 1, 50304, *_LLAMA[1:], **_more)
    always: Fields = {**Qwen3.always, "norm_order": "after", "qk_norm_over": "all"}
    layer = {**Decoder.layer, **AROUND, **HEAD_NORMS}


class Gemma2(Decoder):
    """Gemma2's classes: norms around sub-layers, soft caps, windows in every other layer."""

    model_type, name, title = "gemma2", "Gemma2", "Gemma2"
    fields = _fields(
        *("Gemma2Config", 0, 256000, 2304, 9216, 26, 8, 8192, 4),
        **{**_TIED, **_LAYERED},
        head_dim=same(256, "d_head"),
        hidden_act=_UNREAD,
        hidden_activation=network("gelu_pytorch_tanh", _GATED),
        attention_bias=_OFF,
        query_pre_attn_scalar=Field(256, whole(WIDEST * WIDEST)),
        final_logit_softcapping=_cap(30.0, "logit_cap"),
        attn_logit_softcapping=_cap(50.0, "score_cap"),
        use_bidirectional_attention=harmless(None, False),
    )
    always: Fields = {**Decoder.always, "norm_order": "around", "embedding_scale": "sqrt"}
    exceptions: Table = {
        "n_heads": _DIVIDED,
        "attention_scale": Rule(
            lambda config: (
                isinstance(scale := config.attention_scale, str)
                or math.isclose(round(scale * scale), scale * scale, rel_tol=1e-12)
            )
        ),
    }
    layer = {**Decoder.layer, **AROUND}
    scales = {"query_pre_attn_scalar": ("attention_scale", 0.5)}

    def _is_local(self, index: int, fields: Fields) -> bool:
        return index % 2 == 0

    def _paired(self, pair: Pair, config: ResolvedModel) -> Pair:
        return _Gain(pair.theirs, pair.ours) if pair.ours.endswith("norm.weight") else pair


class Gemma3(Gemma2):
    """Gemma3's classes of text: norms of queries and keys, two rotary bases, no cap of scores."""

    model_type, name, title = "gemma3_text", "Gemma3", "Gemma3"
    _more = {
        "vocab_size": same(262208, "vocab_size"),
        "max_position_embeddings": same(131072, "max_len"),
        "final_logit_softcapping": _cap(None, "logit_cap"),
        "attn_logit_softcapping": harmless(None),
        "use_bidirectional_attention": harmless(False, None),
        "sliding_window_pattern": Field(6, whole(MOST_LAYERS)),
        "rope_parameters": Field(None, rope_by_type),
        "rope_scaling": harmless(None),
        "rope_local_base_freq": _number(None),
        "_sliding_window_pattern": _UNREAD,
    }
    fields = replace(Gemma2.fields.extended(_more), title="Gemma3TextConfig")
    always: Fields = {**Gemma2.always, "qk_norm": "rms", "qk_norm_gain": True}
    exceptions: Table = {**Gemma2.exceptions, "rotary_local_base": ANY}
    answering: Mapping[Answers, Answering] = {
        "labels": replace(_LABELS["labels"], ending="TextForSequenceClassification")
    }
    layer = {**Gemma2.layer, **HEAD_NORMS}

    def _is_local(self, index: int, fields: Fields) -> bool:
        return (index + 1) % int(fields["sliding_window_pattern"]) != 0

    def _rotation(self, content: ClassConfig) -> Fields:
        fields, tables = content.fields, content.fields["rope_parameters"] or {}
        base, local = (
            (tables.get(kind) or {}).get("rope_theta", fields[name] or default)
            for kind, name, default in (
                (GLOBAL, "rope_theta", 1_000_000.0),
                (LOCAL, "rope_local_base_freq", 10_000.0),
            )
        )
        windows = self._windows(content).get("window_pattern", "G")
        if windows == "L":
            return {"rotary_base": local}
        has_both = "L" in windows and base != local
        return {"rotary_base": base, "rotary_local_base": local if has_both else "same"}

    def _written_rotation(self, config: ResolvedModel) -> Fields:
        base, local = config.rotary_base, config.rotary_local_base
        local = base if isinstance(local, str) else local
        tables = {GLOBAL: rope_table(base), LOCAL: rope_table(local)}
        return {"rope_parameters": tables, "rope_theta": base, "rope_local_base_freq": local}


class Granite(Decoder):
    """Granite's class: factors of embeddings, residual steps, scores and logits."""

    model_type, name, title = "granite", "Granite", "Granite"
    _numbers = dict.fromkeys(
        ("embedding_multiplier", "logits_scaling", "attention_multiplier"), _number(1.0)
    )
    _more = {"residual_multiplier": same(1.0, "residual_scale")}
    fields = _fields("GraniteConfig", None, *_LLAMA, **_BIASED, **_numbers, **_more)
    always = {name: value for name, value in Decoder.always.items() if name != "embedding_scale"}
    answering = _NONE
    scales = {
        "embedding_multiplier": ("embedding_scale", 1.0),
        "logits_scaling": ("output_scale", 1.0),
        "attention_multiplier": ("attention_scale", -1.0),
    }


class NanoChat(Decoder):
    """NanoChat's class: norms without gains, of embeddings too, and clockwise rotations."""

    model_type, name, title = "nanochat", "NanoChat", "NanoChat"
    fields = _fields(
        *("NanoChatConfig", 1, 50304, 768, 8192, 12, 6, 2048, None),
        hidden_act=network("relu2", _UNGATED),
        attention_bias=_OFF,
        final_logit_softcapping=_cap(15.0, "logit_cap"),
    )
    always: Fields = {**Decoder.always, "norm_affine": False, "final_norm": "plain"}
    always |= {"embedding_norm": "plain", "qk_norm": "rms", "qk_norm_gain": False}
    always |= {"rotary_layout": "halves-clockwise"}
    # A norm without gains commutes with a rotation.
    exceptions: Table = {"qk_norm_place": ("before", "after")}
    answering = _NONE
    layer = {**ATTENTION, "1.function.input": "mlp.fc1", "1.function.output": "mlp.fc2"}


class Cohere(Decoder):
    """Cohere's class: parallel sub-layers, layer norms without offsets, interleaved rotations."""

    model_type, name, title = "cohere", "Cohere", "Cohere"
    fields = _fields(
        *("CohereConfig", 0, 256000, 8192, 22528, 40, 64, 8192, None),
        **_TIED,
        rms_norm_eps=None,
        layer_norm_eps=same(1e-5, "norm_eps"),
        attention_bias=_OFF,
        logit_scale=_number(0.0625),
        use_qk_norm=harmless(False, None),
    )
    always: Fields = {**Decoder.always, "norm": "layer", "norm_bias": False}
    always |= {"rotary_layout": "interleaved"}
    answering = _NONE
    scales = {"logit_scale": ("output_scale", -1.0)}
    base = 500_000.0
    is_parallel = True


class GptNeoX(Decoder):
    """GPT-NeoX's classes: layer norms with offsets, a share of each head rotated, fused maps."""

    model_type, name, title = "gpt_neox", "GPTNeoX", "GPT-NeoX"
    fields = _fields(
        *("GPTNeoXConfig", None, 50432, 6144, 24576, 44, 64, 2048),
        # The class reads other names.
        **dict.fromkeys(("rope_theta", "partial_rotary_factor"), _UNREAD),
        **dict.fromkeys(
            ("rope_parameters", "rope_scaling"), Field(None, _rope("partial_rotary_factor"))
        ),
        rotary_emb_base=_number(None),
        rotary_pct=Field(None, positive(1.0)),
        rms_norm_eps=None,
        layer_norm_eps=same(1e-5, "norm_eps"),
        hidden_act=network("gelu", _UNGATED),
        hidden_dropout=same(0.0, "dropout"),
        head_dim=harmless(None),
        attention_bias=Field(True, flag),
        use_parallel_residual=Field(True, flag),
    )
    always: Fields = {**Decoder.always, "norm": "layer", "norm_bias": True}
    exceptions: Table = {
        "rotary_fraction": ANY,
        "block": Rule(lambda config: _is_parallel(config) is not None),
        "parallel_norm": Rule(
            lambda config: not _is_parallel(config) or config.parallel_norm == "separate"
        ),
    }
    parallel: Fields = {"block": "parallel", "parallel_norm": "separate"}
    prefix = "gpt_neox."
    parts = (("embedding", "embed_in"), ("final_norm", "final_layer_norm"), ("head", "lm_head"))
    ties: Mapping[str, str] = {"lm_head.weight": "embed_in.weight"}
    layer: Mapping[str, str] = {
        "0.norm": "input_layernorm",
        "0.function.projection": "attention.query_key_value",
        "0.function.output": "attention.dense",
        "1.norm": "post_attention_layernorm",
        "1.function.input": "mlp.dense_h_to_4h",
        "1.function.output": "mlp.dense_4h_to_h",
    }
    always_biased: Maps = _BIASES["mlp_bias"]

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Settle ties, with the output matrix by the name of older versions too."""
        old, name = "embed_out.weight", "lm_head.weight"
        named = {name if each == old else each: tensor for each, tensor in tensors.items()}
        return super().prepare(content, named)

    def _rotation(self, content: ClassConfig) -> Fields:
        fields, width = content.fields, content.ours["d_model"] // content.ours["n_heads"]
        table = fields["rope_scaling"] or fields["rope_parameters"] or {}
        base = table.get("rope_theta", fields["rotary_emb_base"] or self.base)
        share = table.get("partial_rotary_factor", fields["rotary_pct"] or 0.25)
        # The class rounds down.
        return {"rotary_base": base, "rotary_fraction": int(width * share) / width or share}

    def _written_rotation(self, config: ResolvedModel) -> Fields:
        base, n_turned = config.rotary_base, n_rotated(config, config.d_head)
        share = n_turned / config.d_head
        if int(config.d_head * share) < n_turned:
            share = math.nextafter(share, 1.0)
        table = rope_table(base, partial_rotary_factor=share)
        return {"rope_parameters": table, "rotary_emb_base": base, "rotary_pct": share}

    def _paired(self, pair: Pair, config: ResolvedModel) -> Pair:
        is_fused = ".projection." in pair.ours
        return _ByHead(pair.theirs, pair.ours, n_heads=config.n_heads) if is_fused else pair


class GptJ(Decoder):
    """GPT-J's classes: parallel sub-layers, layer norms, interleaved rotation of some features."""

    model_type, name, title = "gptj", "GPTJ", "GPT-J"
    _none = ("attention_dropout", "hidden_act", "head_dim", "rms_norm_eps")
    fields = _fields(
        *("GPTJConfig", None, 50400),
        **dict.fromkeys((*_none, "rope_parameters", "rope_scaling", "rope_theta"), None),
        n_positions=same(2048, "max_len"),
        n_embd=same(4096, "d_model"),
        n_layer=same(28, "n_layers"),
        n_head=same(16, "n_heads"),
        n_inner=same(None, "d_ff"),
        rotary_dim=Field(64, whole(WIDEST)),
        activation_function=network("gelu_new", _UNGATED),
        layer_norm_epsilon=same(1e-5, "norm_eps"),
        resid_pdrop=same(0.0, "dropout"),
        embd_pdrop=same(0.0, "dropout_embedding"),
        attn_pdrop=same(0.0, "dropout_attention"),
    )
    fields = replace(fields, aliases=ALIASES)
    always: Fields = {**GptNeoX.always, "rotary_layout": "interleaved", "head_bias": True}
    exceptions: Table = {"rotary_base": (Decoder.base,), "rotary_fraction": ANY}
    prefix = "transformer."
    parts = (("embedding", "wte"), ("final_norm", "ln_f"), ("head", "lm_head"))
    ties: Mapping[str, str] = {"lm_head.weight": "wte.weight"}
    unit, is_parallel = "h.{layer}.", True
    layer: Mapping[str, str] = {
        "0.norm": "ln_1",
        "0.function.projection": "attn.q_proj attn.k_proj attn.v_proj",
        "0.function.output": "attn.out_proj",
        "1.function.input": "mlp.fc_in",
        "1.function.output": "mlp.fc_out",
    }
    always_biased: Maps = _BIASES["mlp_bias"]

    def _rotation(self, content: ClassConfig) -> Fields:
        width = content.ours["d_model"] // content.ours["n_heads"]
        return {"rotary_fraction": content.fields["rotary_dim"] / width}

    def _written_rotation(self, config: ResolvedModel) -> Fields:
        return {"rotary_dim": n_rotated(config, config.d_head)}
