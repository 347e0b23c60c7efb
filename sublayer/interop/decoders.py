"""Decoders of transformers, GPT-1 to NanoChat: a family, a table a class."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sublayer.config import stacks as shapes
from sublayer.config.model import BiasedMap
from sublayer.config.recipe import ResolvedModel
from sublayer.config.table import LARGEST_FACTOR, LONGEST_WINDOW, MOST_LAYERS, WIDEST
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.interop import tokenizers
from sublayer.interop.family import NAMED, TYPED_LABELS, Answering, Answers, Family, Fields, Tensors
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
    ValueRule,
    flag,
    harmless,
    linked,
    listed,
    network,
    optional,
    pairs_of,
    positive,
    refused_fields,
    rule_of,
    same,
    switch,
    switched_off,
    table_of,
    token_id,
    whole,
)
from sublayer.interop.weight_map import Pair, fold_bias, pair_linear
from sublayer.objective.supervised.heads import BIAS, WEIGHT
from sublayer.tasks.task import Task

_PARTS = "0.norm 0.function.projection 0.function.output 1.norm 1.function.input 1.function.output"


def _layer(*theirs: str) -> dict[str, str]:
    return dict(zip(_PARTS.split(), theirs, strict=True))


LLAMA = _layer(
    *("input_layernorm", "self_attn.q_proj self_attn.k_proj self_attn.v_proj", "self_attn.o_proj"),
    *("post_attention_layernorm", "mlp.gate_proj mlp.up_proj", "mlp.down_proj"),
)
GROUPED = {
    "0.function.queries": "self_attn.q_proj",
    "0.function.projection": "self_attn.k_proj self_attn.v_proj",
}
HEAD_NORMS = {f"0.function.{each}_norm": f"self_attn.{each[0]}_norm" for each in ("query", "key")}
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
_BASE = positive(1e12)
LOCAL, GLOBAL = "sliding_attention", "full_attention"


def _forms(config: ResolvedModel) -> list[shapes.AttentionForm]:
    return [form for (form, *_) in shapes.attention_forms(config, shapes.stacks(config)[0]) if form]


def layer_types(config: ResolvedModel) -> list[str]:
    """Return the type of each layer, by whether it has a window."""
    return [LOCAL if form.window else GLOBAL for form in _forms(config)]


def local_base(config: ResolvedModel) -> float:
    """Return the rotary base of layers with a window."""
    local = config.rotary_local_base
    return config.rotary_base if isinstance(local, str) else local


def _rope_table(base: float, **more: float) -> Fields:
    """Return the table of rotary positions of a base, as transformers 5 reads it."""
    return {"rope_type": "default", "rope_theta": base, **more}


_TYPES = Field(None, optional(listed(harmless(LOCAL, GLOBAL).rule)), write=layer_types)


def _rope(share: ValueRule) -> ValueRule:
    """Build the rule of a table of plain rotary positions, of a share of features."""
    rules = dict.fromkeys(("rope_type", "type"), harmless("default").rule)
    return optional(table_of({**rules, "rope_theta": _BASE, "partial_rotary_factor": share}))


_PLAIN = _rope(harmless(1.0, 1).rule)
LAYERED = {
    "layer_types": _TYPES,
    "rope_parameters": Field(
        None,
        optional(table_of({GLOBAL: _PLAIN, LOCAL: _PLAIN})),
        write=lambda c: {GLOBAL: _rope_table(c.rotary_base), LOCAL: _rope_table(local_base(c))},
    ),
}


def _base(table: Fields | None, default: float) -> float:
    """Return the base of a table of rotary positions, which may lack it."""
    return float((table or {}).get("rope_theta", default))


def _pattern(content: ClassConfig, name: str, marks: Sequence[bool], letters: str) -> str:
    """Return the shortest pattern of layers' letters; raise CheckpointError for another length."""
    n_layers = content.ours["n_layers"]
    if len(marks) != n_layers:
        raise content.error(f"{name} has {len(marks)} entries for {n_layers} layers")
    text = "".join(letters[not mark] for mark in marks)
    patterns = (text[: end + 1] for end in range(len(text)))
    return next(each for each in patterns if (each * len(text))[: len(text)] == text)


def read_layers(
    content: ClassConfig, is_local: Callable[[int], bool], window: int | None, bases: Sequence[str]
) -> Fields:
    """Convert the types of layers, ``is_local`` by number in a file without ``layer_types``.

    ``bases`` name the fields of rotary bases of global and of local layers, in files without a
    table for each type. Raises CheckpointError where the list has not an entry for each layer, or
    local layers have no window.
    """
    fields, types = content.fields, content.fields["layer_types"]
    are_local = [each == LOCAL for each in types or ()]
    if types is None:
        are_local = [is_local(n) for n in range(content.ours["n_layers"])]
    letters = _pattern(content, "layer_types", are_local, "LG")
    if "L" in letters and window is None:
        needed = "a sliding_window, and use_sliding_window where the class has it"
        raise content.error(f"layers of {LOCAL} need {needed}")
    read: Fields = {"attention_window": "none"}
    if "L" in letters:
        read = {"attention_window": window, "window_pattern": letters}
    if bases:
        tables = fields["rope_parameters"] or {}
        by_type = zip((GLOBAL, LOCAL), bases, strict=True)
        base, local = (_base(tables.get(kind), fields[name]) for kind, name in by_type)
        read["rotary_base"] = base if "G" in letters else local
        if "L" in letters and local != read["rotary_base"]:
            read["rotary_local_base"] = local
    return read


@dataclass(frozen=True)
class _Scale(Link):
    """A scale of ours, which is a power of the file's number."""

    power: float = 1.0
    is_whole: bool = False
    """True where the file's number is whole."""

    def read(self, value: Any) -> Fields:
        scale = 1.0 / value if self.power < 0 else value**self.power
        return {self.ours: "none" if scale == 1.0 else scale}

    def write(self, config: ResolvedModel) -> Any:
        number = self._number(config)
        return round(number) if self.is_whole else number

    def rows(self) -> Table:
        def is_exact(config: ResolvedModel) -> bool:
            return math.isclose(self.write(config), self._number(config), rel_tol=1e-12)

        return {self.ours: Rule(is_exact)}

    def _number(self, config: ResolvedModel) -> float:
        scale = getattr(config, self.ours)
        width = config.d_head if self.ours == "attention_scale" else config.d_model
        number = {"none": 1.0, "sqrt": math.sqrt(width)}.get(scale, scale)
        return float(number ** (1.0 / self.power))


def _scale(default: float, ours: str, power: float = 1.0) -> Field:
    return Field(default, _BASE, _Scale(ours, power=power))


def _cap(default: float | None, ours: str) -> Field:
    return Field(default, optional(positive(LARGEST_FACTOR)), Link(ours, {None: "none"}))


_UNREAD = Field(None, lambda value: value, is_computed=False)
_NAMES = """
    alibi attention_bias attn_logit_softcapping clip_qkv final_logit_softcapping layer_types
    mlp_bias n_routed_experts no_rope_layers num_experts num_local_experts qk_layernorm
    sliding_window use_qk_norm use_sliding_window
"""
_OTHERS = switched_off(_NAMES.split())
"""Fields that change models, of those classes that have them."""
_OURS = "vocab_size d_model d_ff n_layers n_heads max_len n_kv_heads"
_SIZES = (
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
    "max_position_embeddings num_key_value_heads"
)
_GPT_SIZES = "vocab_size n_embd n_inner n_layer n_head n_positions"
_ID = optional(token_id)
# In older files -1 is no padding.
_PADDING = Field(None, lambda value: None if value == -1 else _ID(value))
_SHARED = {
    **NEVER, **_OTHERS, "is_causal": harmless(True), "is_encoder_decoder": harmless(False),
    **linked("initializer_range:init_std=0.02 tie_word_embeddings:tie_embeddings=False"),
}  # fmt: skip
_COMMON = {
    **_SHARED, "pad_token_id": _PADDING, "attention_dropout": same(0.0, "dropout_attention"),
    "hidden_act": network("silu", _GATED), "rms_norm_eps": same(1e-6, "norm_eps"),
    # Read also by classes that do not declare it.
    "head_dim": Field(None, rule_of("d_head"), Link("d_head")),
    "rope_theta": Field(10_000.0, _BASE, write=lambda c: c.rotary_base),
    "rope_parameters": Field(None, _PLAIN, write=lambda c: _rope_table(c.rotary_base)),
    "rope_scaling": Field(None, _PLAIN), "partial_rotary_factor": harmless(None, 1.0, 1),
}  # fmt: skip
_GPT = {
    **_SHARED, **linked("layer_norm_epsilon:norm_eps=1e-5 resid_pdrop:dropout=0.1"),
    **linked("embd_pdrop:dropout_embedding=0.1 attn_pdrop:dropout_attention=0.1"),
}  # fmt: skip
_ALIASES = {"hidden_size": "n_embd", "max_position_embeddings": "n_positions"}
_ALIASES |= {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}


def _changed(
    fields: Mapping[str, Field], names: str, sizes: Sequence[Any], changed: Mapping[str, Any]
) -> dict[str, Field]:
    """Return fields with defaults of sizes, other defaults or fields; ... is no field."""
    sized = zip(names.split(), _OURS.split(), sizes, strict=False)
    rows = {**fields, **{name: same(size, ours) for name, ours, size in sized}}
    for name, row in changed.items():
        rows[name] = row if isinstance(row, Field) else replace(rows[name], default=row)
    return {name: row for name, row in rows.items() if row.default is not ...}


def _fields(title: str, *sizes: int | None, **changed: Any) -> ClassFields:
    return ClassFields(f"{title}Config", _changed(_COMMON, _SIZES, sizes, changed))


def _gpt_fields(title: str, *sizes: Any, **changed: Any) -> ClassFields:
    return ClassFields(f"{title}Config", _changed(_GPT, _GPT_SIZES, sizes, changed), _ALIASES)


_LLAMA, _QWEN = (32000, 4096, 11008, 32, 32, 2048, None), (151936, 4096, 22016, 32, 32, 32768, 32)
Maps = frozenset[BiasedMap]
_MAPS: tuple[BiasedMap, ...] = ("query", "key", "value", "output", "ffn")
_BIASES = {"attention_bias": frozenset(_MAPS[:4]), "mlp_bias": frozenset(_MAPS[4:])}
"""Maps with biases, by the field that asks for them."""


def _biased(config: ResolvedModel) -> Maps:
    return frozenset(name for name in _MAPS if shapes.has_bias(config, name))


def _asking(name: str) -> Field:
    """Build a field that asks for the biases of maps."""
    return Field(False, flag, write=lambda config: _BIASES[name] <= _biased(config))


def _window(config: ResolvedModel) -> int | str | None:
    return config.attention_window if any(form.window for form in _forms(config)) else None


_BIASED = {name: _asking(name) for name in _BIASES}
_ASKED = _BIASED["attention_bias"]
_IF_LOCAL = Field(False, flag, write=lambda config: _window(config) is not None)
_WINDOW = Field(
    4096, optional(whole(LONGEST_WINDOW)), Link("attention_window", {None: "none"}), write=_window
)
_WINDOWED = {"layer_types": _TYPES, "sliding_window": _WINDOW}
_OF_QWEN = {
    **_WINDOWED,
    "use_sliding_window": _IF_LOCAL,
    "max_window_layers": Field(28, whole(WIDEST, least=0)),
}


@dataclass(frozen=True)
class _ByHead(Pair):
    """Maps to queries, keys and values in one tensor, head by head."""

    n_heads: int = 1

    def read(self, parts: list[Tensor], ours: torch.Size) -> Tensor:
        by_head = parts[0].reshape(self.n_heads, 3, -1, *ours[2:])  # [H, 3, K, ...]
        return by_head.transpose(0, 1).reshape(ours)

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        by_map = tensor.detach().reshape(3, self.n_heads, -1, *tensor.shape[2:])
        return {self.theirs[0]: by_map.transpose(0, 1).flatten(0, 2).contiguous()}


def _has_window(fields: Fields) -> bool:
    return fields["sliding_window"] is not None


def _is_parallel(config: ResolvedModel) -> bool | None:
    """Return whether attention and network are parallel; None for another block."""
    steps = [(entry.name, entry.step, entry.is_joined) for entry in shapes.entries(config)]
    usual = [("attention", 1.0, False), ("ffn", 1.0, steps[-1][-1])]
    return steps[-1][-1] if steps == usual else None


_DIVIDED = Rule(lambda config: config.d_model % config.n_heads == 0)
"""Heads that divide the width, as some classes want even where heads have a width of their own."""
_LABELS: Mapping[Answers, Answering] = {
    "labels": Answering(
        {"pooler": "none"},
        heads=("score.weight",),
        fields=TYPED_LABELS,
        parts={WEIGHT: "score.weight", BIAS: ""},
    )
}
_NO_WEIGHTS = (".attn.bias", ".attention.bias", ".masked_bias", "rotary_emb.inv_freq")
"""Endings of masks and angles, as saved by older versions of transformers."""


class Decoder(Family):
    """The base of these classes: RMS norms before sub-layers, a gated network, rotary positions."""

    predicts = "ForCausalLM"
    constants: Fields = {"use_cache": True}
    always: Fields = {
        "kind": "decoder", "positions": "rotary", "share": "none", "embedding_scale": "none",
        "norm": "rms", "norm_order": "pre", "norm_affine": True, "final_norm": "affine",
    }  # fmt: skip
    answering = _LABELS
    roles = {"bos_token_id": "first_id", "eos_token_id": "end_id", "pad_token_id": "pad_id"}
    prefix, heads = "model.", ("lm_head.",)
    parts = pairs_of("embedding:embed_tokens final_norm:norm head:lm_head")
    unit = "layers.{layer}."
    layer: Mapping[str, str] = LLAMA
    is_transposed = False
    """True where the maps of blocks are ``[d_in, d_out]``."""
    always_biased: Maps = frozenset()
    is_local: Callable[[int, Fields], bool] = staticmethod(lambda n, fields: _has_window(fields))
    """Check for the window of a layer, in a file without ``layer_types``."""
    bases: Sequence[str] = ()
    """Fields of the rotary bases of global and of local layers, where they have bases of their own.
    """

    def __init__(self, answers: Answers = "tokens") -> None:
        own = {name for name, row in self.fields.fields.items() if row is not _OTHERS.get(name)}
        self._biases = {name: maps for name, maps in _BIASES.items() if name in own}
        is_local = Rule(lambda config: "G" not in config.window_pattern)
        biased = self.always_biased.union(*self._biases.values())
        rows: dict[str, Any] = {"rotary_base": ANY, "bias": Rule(lambda c: _biased(c) <= biased)}
        if "sliding_window" in own:
            rows["window_pattern"] = ANY if "layer_types" in own else is_local
        if "block" in self.always:
            rows["block"] = Rule(lambda config: _is_parallel(config) is True)
        self.exceptions = {**rows, **self.exceptions}
        self.ties = {"lm_head.weight": f"{dict(self.parts)['embedding']}.weight"}
        super().__init__(answers)

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor is a mask, angles or positions, as saved by older versions."""
        return name.endswith(_NO_WEIGHTS) or name == "position_ids"

    def _bias(self, asks: Callable[[str], bool]) -> bool | dict[BiasedMap, bool]:
        """Return ``model.bias`` for the maps that always have one, and those of fields that ask."""
        biased = self.always_biased.union(
            *(self._biases[name] for name in self._biases if asks(name))
        )
        if len(biased) in (0, len(_MAPS)):
            return bool(biased)
        return {name: True for name in _MAPS if name in biased}

    def read_config(self, content: ClassConfig, weights: Tensors) -> ResolvedModel:
        """Convert a config.json; raise CheckpointError also for fields the class cannot have."""
        config = super().read_config(content, weights)
        if refused := refused_fields(config, self.table):
            raise content.error(f"{self.name}'s class has no {refused[0]}")
        scale = config.attention_scale
        if not isinstance(scale, str) and math.isclose(scale**2, config.d_head, rel_tol=1e-12):
            return config.model_copy(update={"attention_scale": "sqrt"})
        return config

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Convert biases, the order of sub-layers, rotary positions and windows."""
        read: Fields = {"bias": self._bias(lambda name: content.fields[name])}
        if content.fields.get("use_parallel_residual"):
            read |= {"block": "parallel", "parallel_norm": "separate"}
        fields = dict(content.fields)
        if fields["use_sliding_window"] is False:
            fields["sliding_window"] = None
        # At most the longest input.
        window = fields["sliding_window"] and min(fields["sliding_window"], content.ours["max_len"])
        layers = read_layers(content, lambda n: self.is_local(n, fields), window, self.bases)
        return {**read, **self._rotation(content), **layers}

    def _rotation(self, content: ClassConfig) -> Fields:
        """Convert rotary positions, in the table of transformers 5 or the fields of 4."""
        fields = content.fields
        table = fields["rope_scaling"] or fields["rope_parameters"]
        return {"rotary_base": _base(table, fields["rope_theta"])}

    def required_fields(self, config: ResolvedModel) -> Fields:
        """Return the fields required by the class, with biases of maps that share a field."""
        bias = self._bias(lambda name: not _BIASES[name].isdisjoint(_biased(config)))
        return {**super().required_fields(config), "bias": bias}

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids: without a start, the end id also marks the beginning."""
        ids = super().written(config, tokenizer)
        return ids | (
            {"pad_token_id": tokenizers.padding_id(tokenizer)} if self.answers == "labels" else {}
        )

    def pairs_of_blocks(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors of layers, with queries of their own where there are fewer keys."""
        is_grouped = config.n_kv_heads != config.n_heads
        layer = {**self.layer, **(GROUPED if is_grouped else {})}
        for index in range(config.n_layers):
            unit = self.unit.format(layer=index)
            for ours, theirs in layer.items():
                entry, _, path = ours.partition(".")
                modules = tuple(unit + module for module in theirs.split())
                name = f"decoder.sublayers.{entry}.{index}.{path}"
                is_transposed = self.is_transposed and "function" in path
                yield from pair_linear(modules, name, is_transposed=is_transposed)

    def describe_unanswered(self, task: Task) -> str | None:
        """Describe a task's rows where the class reads only one; None where it can answer."""
        if task.kind == "choice":
            return None if "choices" in self.answering else "a row for each choice"
        return "the summed states of both orders of its texts" if task.is_symmetric else None

    def settle(
        self, config: ResolvedModel, weights: Tensors, tokenizer: Tokenizer | None = None
    ) -> dict[str, Tensor]:
        """Fold the label head's bias, which the classifiers lack, into its weights."""
        if self.answers != "labels":
            return dict(weights)
        last = f"decoder.sublayers.1.{config.n_layers - 1}.norm"
        return fold_bias(weights, last if config.norm_order == "post" else "final_norm")

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the files of a tokenizer, of a classifier of traversals where it answers tasks."""
        if self.answers == "tokens":
            return tokenizers.decoder_files(tokenizer, max_len=max_len)
        return tokenizers.traversal_files(tokenizer, max_len=max_len)

    def read_tokenizer(self, folder: Path, *, vocab_size: int) -> Tokenizer | None:
        """Read the tokenizer with its start; for tasks, marks at its end become added ids."""
        tokenizer = super().read_tokenizer(folder, vocab_size=vocab_size)
        if self.answers == "tokens":
            return tokenizers.with_start(tokenizer, folder)
        return tokenizers.with_added_marks(tokenizer)


class Gpt2(Decoder):
    """GPT-2's classes: learned positions, layer norms, and biases everywhere."""

    model_type, name, title, predicts = "gpt2", "GPT2", "GPT-2", "LMHeadModel"
    fields = _gpt_fields(
        "GPT2", 50257, 768, None, 12, 12, 1024, tie_word_embeddings=True,
        activation_function=network("gelu_new", ACTIVATIONS),
        scale_attn_weights=switch(True, "attention_scale", "sqrt", "none"),
        scale_attn_by_inverse_layer_idx=harmless(False), reorder_and_upcast_attn=harmless(False),
    )  # fmt: skip
    always: Fields = {**Decoder.always, "norm": "layer", "norm_bias": True, "positions": "learned"}
    answering: Mapping[Answers, Answering] = {
        "labels": replace(_LABELS["labels"], fields={**TYPED_LABELS, "pad_token_id": _PADDING})
    }
    prefix, unit, is_transposed = "transformer.", "h.{layer}.", True
    parts = pairs_of("embedding:wte final_norm:ln_f head:lm_head positions.tables.0:wpe")
    layer = _layer("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
    always_biased: Maps = frozenset(_MAPS)

    def _rotation(self, content: ClassConfig) -> Fields:
        return {}


class Gpt1(Gpt2):
    """GPT-1's classes, with norms after sub-layers: for tokens, for labels, or with choices."""

    model_type, name, title = "openai-gpt", "OpenAIGPT", "GPT-1"
    # Every name of a GELU means the tanh form here.
    _networks = {name: ACTIVATIONS[name] for name in ("relu", "silu", "swish")}
    _afn = network("gelu", {**_networks, "gelu": ACTIVATIONS["gelu_new"]})
    _sizes = (40478, 768, ..., 12, 12, 512)
    fields = _gpt_fields("OpenAIGPT", *_sizes, tie_word_embeddings=True, afn=_afn)
    constants: Fields = {}
    # Positions as output classes are omitted, and the certificate says so.
    always: Fields = {**Gpt2.always, "norm_order": "post", "final_norm": "none"}
    always |= {"softmax": "tokens", "init": "normal"}
    answering: Mapping[Answers, Answering] = {
        **Gpt2.answering,
        # The class always has the head that predicts tokens too.
        "choices": Answering(
            {"pooler": "none", "label_outputs": 1},
            named=("DoubleHeadsModel", {"logits": "logits", "mc_logits": "choice_logits"}),
            heads=("multiple_choice_head.", "lm_head."),
            left_out={},
            # Any other summary would read other states, or apply more than a linear map.
            fields={
                "summary_type": harmless("cls_index"),
                "summary_use_proj": harmless(True),
                "summary_proj_to_labels": harmless(True),
                "summary_activation": harmless(None, ""),
            },
            parts={"label_head": "multiple_choice_head.summary"},
        ),
    }
    parts = pairs_of("embedding:tokens_embed head:lm_head positions.tables.0:positions_embed")

    def copies(self, config: ResolvedModel) -> Mapping[str, str]:
        """Return the tied output matrix of a two-headed class, which some versions expect."""
        return self.ties if self.answers == "choices" and config.tie_embeddings else {}


class Llama(Decoder):
    """Llama's classes."""

    model_type, name, title = "llama", "Llama", "Llama"
    fields = _fields("Llama", *_LLAMA, **_BIASED, head_dim=same(None, "d_head"))
    exceptions: Table = {"n_heads": _DIVIDED}


class Mistral(Decoder):
    """Mistral's classes: no biases, and the same window in all layers, or none."""

    model_type, name, title = "mistral", "Mistral", "Mistral"
    _sizes = (32000, 4096, 14336, 32, 32, 131072, 8)
    fields = _fields("Mistral", *_sizes, sliding_window=_WINDOW, head_dim=same(None, "d_head"))


class Qwen2(Decoder):
    """Qwen2's classes: biases of queries, keys and values; windows from some layer on."""

    model_type, name, title = "qwen2", "Qwen2", "Qwen2"
    fields = _fields("Qwen2", *_QWEN, **_OF_QWEN)
    always_biased: Maps = frozenset(_MAPS[:3])
    is_local = staticmethod(lambda n, f: _has_window(f) and n >= f["max_window_layers"])


class Qwen3(Qwen2):
    """Qwen3's classes: norms of each head's queries and keys in place of Qwen2's biases."""

    model_type, name, title = "qwen3", "Qwen3", "Qwen3"
    fields = _fields(
        "Qwen3", *_QWEN, **_OF_QWEN, attention_bias=_ASKED, head_dim=same(128, "d_head")
    )
    always: Fields = {**Qwen2.always, "qk_norm": "rms", "qk_norm_gain": True}
    layer = {**Qwen2.layer, **HEAD_NORMS}
    always_biased = frozenset()


def _has_positions(fields: Mapping[str, Any]) -> list[bool]:
    """Return whether each layer has positions: by default all but every fourth."""
    marks, layers = fields["no_rope_layers"], range(fields["num_hidden_layers"])
    every = fields["no_rope_layer_interval"]
    return [bool((n + 1) % every) for n in layers] if marks is None else [*map(bool, marks)]


class SmolLM3(Decoder):
    """SmolLM3's classes: layers without positions, which may have windows."""

    model_type, name, title = "smollm3", "SmolLM3", "SmolLM3"
    fields = _fields(
        "SmolLM3", 128256, 2048, 11008, 36, 16, 32768, 4, **_BIASED,
        pad_token_id=128004, tie_word_embeddings=True, rope_theta=2_000_000.0,
        layer_types=_TYPES, sliding_window=replace(_WINDOW, default=None),
        use_sliding_window=_IF_LOCAL, no_rope_layer_interval=Field(4, whole(MOST_LAYERS)),
        no_rope_layers=Field(
            None, optional(listed(harmless(0, 1).rule)),
            write=lambda c: [int(c.positions == "rotary" and f.has_positions) for f in _forms(c)],
        ),
    )  # fmt: skip
    exceptions: Table = {"positions": ("rotary", "none"), "position_pattern": ANY}
    is_local = staticmethod(lambda n, f: _has_window(f) and not _has_positions(f)[n])

    def required_fields(self, config: ResolvedModel) -> Fields:
        """Return the fields that the class requires, with positions or without."""
        return {**super().required_fields(config), "positions": config.positions}

    def _rotation(self, content: ClassConfig) -> Fields:
        marks = _has_positions(content.fields)
        letters = _pattern(content, "no_rope_layers", marks, "PN")
        if "P" not in letters:
            return {"positions": "none"}
        return {**super()._rotation(content), "position_pattern": letters}


class Olmo2(Decoder):
    """Olmo2's classes: norms of outputs alone, and of all queries and keys together."""

    model_type, name, title = "olmo2", "Olmo2", "Olmo2"
    fields = _fields(
        "Olmo2", 50304, *_LLAMA[1:], pad_token_id=1, rms_norm_eps=1e-5, attention_bias=_ASKED
    )
    always: Fields = {**Qwen3.always, "norm_order": "after", "qk_norm_over": "all"}
    layer = {**Decoder.layer, **AROUND, **HEAD_NORMS}


class Gemma2(Decoder):
    """Gemma2's classes: norms around sub-layers, soft caps, windows in every other layer."""

    model_type, name, title = "gemma2", "Gemma2", "Gemma2"
    _scalar = _Scale("attention_scale", power=0.5, is_whole=True)
    _more = {
        **_WINDOWED, "pad_token_id": 0, "tie_word_embeddings": True, "attention_bias": _ASKED,
        "head_dim": same(256, "d_head"), "hidden_act": _UNREAD,
        "hidden_activation": network("gelu_pytorch_tanh", _GATED),
        "query_pre_attn_scalar": Field(256, whole(WIDEST * WIDEST), _scalar),
        "final_logit_softcapping": _cap(30.0, "logit_cap"),
        "attn_logit_softcapping": _cap(50.0, "score_cap"),
        "use_bidirectional_attention": harmless(None, False),
        # The class needs a number.
        "sliding_window": replace(_WINDOW, write=lambda config: _window(config) or config.max_len),
    }  # fmt: skip
    fields = _fields("Gemma2", 256000, 2304, 9216, 26, 8, 8192, 4, **_more)
    always: Fields = {**Decoder.always, "norm_order": "around", "embedding_scale": "sqrt"}
    exceptions: Table = {"n_heads": _DIVIDED}
    layer = {**Decoder.layer, **AROUND}
    is_local = staticmethod(lambda n, fields: n % 2 == 0)

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors; the class adds 1 to its gains."""
        for pair in super().pairs(config):
            yield replace(pair, added=1.0) if pair.ours.endswith("norm.weight") else pair


class Gemma3(Gemma2):
    """Gemma3's classes of text: norms of queries and keys, two rotary bases, no cap of scores."""

    model_type, name, title = "gemma3_text", "Gemma3", "Gemma3"
    _more = {
        **Gemma2._more, **LAYERED, "use_bidirectional_attention": harmless(False, None),
        "final_logit_softcapping": _cap(None, "logit_cap"),
        "attn_logit_softcapping": harmless(None), "_sliding_window_pattern": _UNREAD,
        "sliding_window_pattern": Field(6, whole(MOST_LAYERS)),
        "rope_scaling": harmless(None), "rope_theta": 1_000_000.0,
        "rope_local_base_freq": Field(10_000.0, _BASE, write=local_base),
    }  # fmt: skip
    fields = _fields("Gemma3Text", 262208, 2304, 9216, 26, 8, 131072, 4, **_more)
    always: Fields = {**Gemma2.always, "qk_norm": "rms", "qk_norm_gain": True}
    exceptions: Table = {**Gemma2.exceptions, "rotary_local_base": ANY}
    _named = ("TextForSequenceClassification", NAMED["labels"][1])
    answering: Mapping[Answers, Answering] = {"labels": replace(_LABELS["labels"], named=_named)}
    layer = {**Gemma2.layer, **HEAD_NORMS}
    is_local = staticmethod(lambda n, fields: (n + 1) % fields["sliding_window_pattern"] > 0)
    bases = ("rope_theta", "rope_local_base_freq")


class Granite(Decoder):
    """Granite's class: factors of embeddings, residual steps, scores and logits."""

    model_type, name, title = "granite", "Granite", "Granite"
    fields = _fields(
        "Granite",
        *_LLAMA,
        **_BIASED,
        embedding_multiplier=_scale(1.0, "embedding_scale"),
        logits_scaling=_scale(1.0, "output_scale"),
        attention_multiplier=_scale(1.0, "attention_scale", -1.0),
        residual_multiplier=same(1.0, "residual_scale"),
    )
    always = {name: value for name, value in Decoder.always.items() if name != "embedding_scale"}
    answering: Mapping[Answers, Answering] = {}


class NanoChat(Decoder):
    """NanoChat's class: norms without gains, of embeddings too, and clockwise rotations."""

    model_type, name, title = "nanochat", "NanoChat", "NanoChat"
    fields = _fields(
        "NanoChat", 50304, 768, 8192, 12, 6, 2048, None, pad_token_id=1, attention_bias=_ASKED,
        hidden_act=network("relu2", _UNGATED), final_logit_softcapping=_cap(15.0, "logit_cap"),
    )  # fmt: skip
    always: Fields = {**Decoder.always, "norm_affine": False, "final_norm": "plain"}
    always |= {"embedding_norm": "plain", "qk_norm": "rms", "qk_norm_gain": False}
    always |= {"rotary_layout": "halves-clockwise"}
    # A norm without gains commutes with a rotation.
    exceptions: Table = {"qk_norm_place": ("before", "after")}
    answering: Mapping[Answers, Answering] = {}
    layer = {**LLAMA, "1.function.input": "mlp.fc1", "1.function.output": "mlp.fc2"}


class Cohere(Decoder):
    """Cohere's class: parallel sub-layers, layer norms without offsets, interleaved rotations."""

    model_type, name, title = "cohere", "Cohere", "Cohere"
    fields = _fields(
        "Cohere", 256000, 8192, 22528, 40, 64, 8192, None, pad_token_id=0, attention_bias=_ASKED,
        tie_word_embeddings=True, rope_theta=500_000.0, use_qk_norm=harmless(False, None),
        rms_norm_eps=..., layer_norm_eps=same(1e-5, "norm_eps"),
        logit_scale=_scale(0.0625, "output_scale", -1.0),
    )  # fmt: skip
    always: Fields = {**Decoder.always, "norm": "layer", "norm_bias": False}
    always |= {"rotary_layout": "interleaved", "block": "parallel"}
    answering: Mapping[Answers, Answering] = {}


def _share(config: ResolvedModel) -> float:
    """Return the share of rotated features, of which the class rounds the number down."""
    n_turned = shapes.n_rotated(config, config.d_head)
    share = n_turned / config.d_head
    return math.nextafter(share, 1.0) if int(config.d_head * share) < n_turned else share


class GptNeoX(Decoder):
    """GPT-NeoX's classes: layer norms with offsets, a share of each head rotated, fused maps."""

    model_type, name, title = "gpt_neox", "GPTNeoX", "GPT-NeoX"
    fields = _fields(
        "GPTNeoX", 50432, 6144, 24576, 44, 64, 2048, attention_bias=replace(_ASKED, default=True),
        use_parallel_residual=Field(True, flag, write=_is_parallel), head_dim=harmless(None),
        hidden_act=network("gelu", _UNGATED), hidden_dropout=same(0.0, "dropout"),
        rms_norm_eps=..., layer_norm_eps=same(1e-5, "norm_eps"),
        rotary_emb_base=Field(10_000.0, _BASE, write=lambda c: c.rotary_base),
        rotary_pct=Field(0.25, positive(1.0), write=_share),
        # The class does not read these, which are in its table by other names.
        rope_theta=replace(_UNREAD, write=lambda c: c.rotary_base), partial_rotary_factor=_UNREAD,
        rope_parameters=Field(
            None, _rope(positive(1.0)),
            write=lambda c: _rope_table(c.rotary_base, partial_rotary_factor=_share(c)),
        ),
        rope_scaling=Field(None, _rope(positive(1.0))),
    )  # fmt: skip
    always: Fields = {**Decoder.always, "norm": "layer", "norm_bias": True}
    exceptions: Table = {
        "rotary_fraction": ANY,
        "block": Rule(lambda config: _is_parallel(config) is not None),
        "parallel_norm": Rule(lambda c: not _is_parallel(c) or c.parallel_norm == "separate"),
    }
    prefix = "gpt_neox."
    parts = pairs_of("embedding:embed_in final_norm:final_layer_norm head:lm_head")
    layer = _layer(
        *("input_layernorm", "attention.query_key_value", "attention.dense"),
        *("post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    )
    always_biased: Maps = _BIASES["mlp_bias"]

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Settle ties, with the output matrix by the name of older versions too."""
        renamed = {"embed_out.weight": "lm_head.weight"}
        named = {renamed.get(name, name): tensor for name, tensor in tensors.items()}
        return super().prepare(content, named)

    def _rotation(self, content: ClassConfig) -> Fields:
        fields, width = content.fields, content.ours["d_model"] // content.ours["n_heads"]
        table = fields["rope_scaling"] or fields["rope_parameters"] or {}
        share = table.get("partial_rotary_factor", fields["rotary_pct"])
        base = _base(table, fields["rotary_emb_base"])
        # The class rounds down.
        return {"rotary_base": base, "rotary_fraction": int(width * share) / width or share}

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors, with fused maps as the class stores them."""
        for pair in super().pairs(config):
            is_fused = ".projection." in pair.ours
            yield _ByHead(pair.theirs, pair.ours, n_heads=config.n_heads) if is_fused else pair


class GptJ(Decoder):
    """GPT-J's classes: parallel sub-layers, layer norms, interleaved rotation of some features."""

    model_type, name, title = "gptj", "GPTJ", "GPT-J"
    fields = _gpt_fields(
        "GPTJ", 50400, 4096, None, 28, 16, 2048,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        rotary_dim=Field(64, whole(WIDEST), write=lambda c: shapes.n_rotated(c, c.d_head)),
        activation_function=network("gelu_new", _UNGATED),
    )  # fmt: skip
    always: Fields = {**Cohere.always, "norm_bias": True, "head_bias": True}
    exceptions: Table = {"rotary_base": (10_000.0,), "rotary_fraction": ANY}
    answering = Gpt2.answering
    prefix, unit, parts = "transformer.", "h.{layer}.", Gpt2.parts[:3]
    layer = _layer(
        *("ln_1", "attn.q_proj attn.k_proj attn.v_proj", "attn.out_proj"),
        *("", "mlp.fc_in", "mlp.fc_out"),
    )
    always_biased: Maps = _BIASES["mlp_bias"]

    def _rotation(self, content: ClassConfig) -> Fields:
        width = content.ours["d_model"] // content.ours["n_heads"]
        return {"rotary_fraction": content.fields["rotary_dim"] / width}
