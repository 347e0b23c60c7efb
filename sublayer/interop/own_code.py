"""Models that no class of transformers represents: folders with a modelling file of their own."""

import ast
import copy
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from textwrap import fill
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from sublayer.config.model import (
    FFNS,
    POSITIONS,
    BiasedMap,
    cap_of,
    factor_of,
    parallel_entries,
    write_block,
)
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import (
    StackShape,
    asked_heads,
    attention_forms,
    entries,
    has_bias,
    has_head_projection,
    head_activation,
    is_factorised,
    key_heads,
    n_norms,
    n_rotated,
    shares,
    stacks,
)
from sublayer.data.tokenizers.settings import CONFIG_NAME
from sublayer.decode.sample import GREEDY, generate
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.storage import check_paths, new_folder
from sublayer.interop.certificate import (
    CERTIFICATE,
    CertificateBatch,
    certify,
    certify_tokenizer,
    quiet,
)
from sublayer.interop.decoders import Gpt2
from sublayer.interop.encoders import Bert
from sublayer.interop.family import Family, Fields, Oracle, as_labels, label_fields
from sublayer.interop.folder import CONFIG, WEIGHTS, write_json
from sublayer.interop.foreign_config import ANY, Rule, Table, names, networks, refused_fields
from sublayer.interop.seq2seq import T5, special_ids
from sublayer.interop.tokenizers import describe_text
from sublayer.interop.weight_map import expand
from sublayer.model.cache import Cache
from sublayer.model.model_folder import spec_files
from sublayer.model.transformer import Decoder, EncoderDecoder, Transformer
from sublayer.tasks.task import Task
from sublayer.text_model import TextModel

FILE = "modeling_sublayer.py"
_WIDTH = 100
_AUTO = {
    "ForCausalLM": "AutoModelForCausalLM",
    "ForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "Model": "AutoModel",
}
"""Auto classes by the endings of the classes that they load."""
_PREDICTING = {
    "decoder": ("ForCausalLM", "CausalLMOutputWithPast"),
    "lstm": ("ForCausalLM", "CausalLMOutputWithPast"),
    "encoder": ("ForMaskedLM", "MaskedLMOutput"),
    "encoder-decoder": ("ForConditionalGeneration", "Seq2SeqLMOutput"),
}
"""Ending and output of the class that predicts tokens, by kind of model."""
_NAMES = {"attention": "attention", "cross": "cross_attention", "ffn": "ffn", "lstm": "lstm"}
"""Names in the file, by kind of sub-layer."""
_ACTIVATIONS = {
    "relu": "F.relu({})",
    "relu2": "F.relu({}).square()",
    "gelu": 'F.gelu({}, approximate="tanh")',
    "swish": "F.silu({})",
    "sigmoid": "torch.sigmoid({})",
    "identity": "{}",
}
_RENAMED = {
    "embedding.weight": "embed_tokens.weight", "embedding.projection": "embed_proj",
    "embedding_norm": "embed_norm", "positions.tables.0": "embed_positions",
    "positions.table": "relative_bias", "segment_table": "embed_segments", "final_norm": "norm",
    "pooler.linear": "pooler", "label_head": "classifier", "head.projection": "head_proj",
    "head.norm": "head_norm", "head.activation.beta": "head_beta", "head": "lm_head",
    "function.queries": "q_proj", "function.gate": "gate_proj", "function.query_norm": "q_norm",
    "function.key_norm": "k_norm", "function.activation.beta": "beta", "function.sinks": "sinks",
}  # fmt: skip
"""Beginnings of the names of tensors, of a model or within a sub-layer, and those in the file."""
_IN_BLOCK = re.compile(r"(?:source\.)?\w+\.sublayers\.(\d+)\.(\d+)\.(.+)")
_IMPORTS = """
torch: Tensor nn
torch.nn.utils.rnn: pack_padded_sequence pad_packed_sequence
transformers: GenerationMixin PreTrainedConfig PreTrainedModel
transformers.cache_utils: Cache DynamicCache EncoderDecoderCache
transformers.masking_utils: create_bidirectional_mask create_bidirectional_sliding_window_mask \
create_causal_mask create_sliding_window_causal_mask
transformers.modeling_layers: GradientCheckpointingLayer
transformers.modeling_outputs: BaseModelOutput BaseModelOutputWithPast \
BaseModelOutputWithPastAndCrossAttentions BaseModelOutputWithPooling CausalLMOutputWithPast \
MaskedLMOutput Seq2SeqLMOutput SequenceClassifierOutput \
SequenceClassifierOutputWithPast
transformers.modeling_utils: ALL_ATTENTION_FUNCTIONS
transformers.processing_utils: Unpack
transformers.utils: TransformersKwargs can_return_tuple
transformers.utils.output_capturing: capture_outputs
"""
"""Names that a file may import, by their modules, in its order."""
_FAMILIES: dict[str, type[Family]] = {
    "decoder": Gpt2,
    "lstm": Gpt2,
    "encoder": Bert,
    "encoder-decoder": T5,
}
"""Families whose tokenizers are written, by kind of model."""
_READ: tuple[BiasedMap, ...] = ("query", "key", "value")
_LABELS = "ForSequenceClassification"
_LEFT_OUT = "\0"
_FIELD = re.compile(r"^    (\w+): [^=\n]+ = (.+)$", re.MULTILINE)
_MOST_TOKENS, _LONGEST = 16, 70


def _window(config: ResolvedModel) -> int:
    return 0 if isinstance(config.attention_window, str) else config.attention_window


def _has_known_entries(config: ResolvedModel) -> bool:
    return {entry.name for entry in entries(config)} <= {*_NAMES}


def _unknown_networks(config: ResolvedModel) -> list[str]:
    return [name for name in networks(config) if FFNS[name].activation not in _ACTIVATIONS]


def _can_cache(config: ResolvedModel) -> bool:
    last = stacks(config)[-1]
    return config.kind == "lstm" or not last.is_causal or last.attends_to_itself


def _is_uniform(config: ResolvedModel) -> bool:
    """Return whether the self-attentions of a block are alike."""
    blocks = [block for stack in stacks(config) for block in attention_forms(config, stack)]
    return all(len({*filter(None, block)}) <= 1 for block in blocks)


_FREE = names(
    """
    kind n_layers n_decoder_layers d_model n_heads d_head n_kv_heads d_ff d_embed project_embeddings
    embedding_norm segments decoder_block decoder_start ffn gelu swish_beta norm_order parallel_norm
    norm_affine norm_bias norm_eps final_norm sinusoids first_position rotary_base rotary_local_base
    rotary_fraction rotary_layout relative_buckets relative_distance share share_groups share_inner
    softmax head_activation head_bias sentence_classes tie_embeddings embedding_scale
    residual_scale output_scale logit_cap attention_scale score_cap sinks qk_norm qk_norm_over
    qk_norm_gain bias dropout dropout_attention dropout_ffn
    dropout_embedding dropout_embedding_of dropout_final init init_std zero_padding vocab_size
    vocab_multiple max_len
    """
)
TABLE: Table = {
    **dict.fromkeys(_FREE, ANY),
    "norm": ("layer", "rms", "dyt", "none"),
    "positions": (
        *("sinusoidal", "learned", "learned-per-layer", "rotary", "alibi", "relative", "none"),
    ),
    "block": Rule(lambda config: _has_known_entries(config) and _can_cache(config)),
    "ffn": Rule(lambda c: not _unknown_networks(c), lambda c: ", ".join(_unknown_networks(c))),
    # The stacks of an encoder-decoder add their positions to one projected table.
    "embedding_projection": Rule(
        lambda c: c.embedding_projection == "tokens" or not (c.decoder_block and is_factorised(c))
    ),
    # A cache of transformers keeps all tokens of a window of one, and of a memory only a window.
    "attention_window": Rule(lambda c: _window(c) != 1 and not (_window(c) and c.decoder_block)),
    "window_pattern": Rule(_is_uniform),
    "attention_gate": Rule(lambda c: c.attention_gate == "none" or not c.decoder_block),
    "qk_norm_place": Rule(lambda c: c.qk_norm_place == "before" or c.qk_norm_over == "head"),
    "position_pattern": Rule(
        lambda c: _is_uniform(c) and (c.position_pattern == "P" or c.positions == "rotary")
    ),
    "head": Rule(lambda c: c.head != "none" or c.kind == "encoder" or c.label_outputs > 0),
    "pooler": ("none", "tanh"),
    "label_outputs": Rule(lambda c: not c.label_outputs or c.kind in ("decoder", "encoder")),
}
"""Models that can be written as code."""


def check_code(config: ResolvedModel, task: Task | None = None) -> None:
    """Raise ConfigError, naming the fields, for a model that cannot be written as code."""
    if refused := refused_fields(config, TABLE):
        raise ConfigError(
            "no class of transformers represents the model, and code cannot represent "
            f"{', '.join(refused)}: it cannot be exported"
        )
    if task is None or not config.label_outputs:
        return
    if task.kind == "choice" or (task.is_symmetric and config.kind == "decoder"):
        raise ConfigError(
            f"{task.title} is answered from several rows, and an exported classifier reads one: "
            "the model cannot be exported"
        )


def _named(stack: StackShape) -> list[tuple[str, str]]:
    """Return the names of a block's entries in the file, and the numbers of attentions.

    A number is an expression of the executed block's, ``layer``, among entries of the same kind.
    """
    named = []
    for place, entry in enumerate(stack.block):
        n = sum(each.name == entry.name for each in stack.block)
        index = sum(each.name == entry.name for each in stack.block[:place])
        number = f"_{index + 1}" if n > 1 else ""
        slot = "layer" if n == 1 else f"{n} * layer" + (f" + {index}" if index else "")
        named.append((_NAMES[entry.name] + number, slot))
    return named


class Code:
    """What the template asks of a resolved config, whose blocks share all sub-layers or none."""

    def __init__(self, config: ResolvedModel) -> None:
        last = stacks(config)[-1]
        readers = {entry.kind.attends_to for entry in entries(config)} - {"nothing"}
        blocks = [block for stack in stacks(config) for block in attention_forms(config, stack)]
        forms = {form for block in blocks for form in block if form is not None}
        windows = {form.window is not None for form in forms}
        self.config, self.kind, self.FFNS = config, config.kind, FFNS
        self.is_pair = config.kind == "encoder-decoder"
        self.is_generator = config.kind in ("decoder", "encoder-decoder")
        self.is_causal, self.attends = last.is_causal, bool(readers)
        self.gate = config.attention_gate
        self.has_cache = self.is_causal and self.attends
        self.adds = POSITIONS[config.positions].adds_before
        self.is_rotary = bool(forms) and config.positions == "rotary"
        self.is_biased = bool(forms) and config.positions in ("alibi", "relative")
        self.uses_positions = self.adds != "none" or self.is_rotary
        self.is_local, self.is_mixed = True in windows, len(windows) > 1
        local = config.rotary_local_base
        is_local_alone = self.is_local and not self.is_mixed and not isinstance(local, str)
        self.base = local if is_local_alone else config.rotary_base
        self.has_local_base = self.is_mixed and config.rotary_local_base != "same"
        self.skips_positions = self.is_rotary and not all(form.has_positions for form in forms)
        self.is_grouped = self.attends and key_heads(config) < config.n_heads
        self.is_shared = config.share != "none"
        self.has_sets = self.is_shared and config.share_groups * config.share_inner > 1
        self.has_index = not self.is_shared
        """Whether an executed attention is a module of its own, with its number."""
        self.drops_attention = self.attends and config.dropout_attention > 0
        variants = networks(config)
        self.networks = dict.fromkeys(variants, "FeedForward")
        if len(variants) > 1:
            self.networks = {name: f"{name.capitalize()}FeedForward" for name in variants}
        self.cap, self.logit_cap = cap_of(config.score_cap), cap_of(config.logit_cap)
        self.is_fusable = self.cap is None and not config.sinks
        self.is_plain = self.is_fusable and not self.is_biased and not self.is_local
        self.is_factorised = is_factorised(config)
        self.projects_sum = self.is_factorised and config.embedding_projection == "sum"
        self.table_width = f"config.{'embedding' if self.is_factorised else 'hidden'}_size"
        self.sum_width = f"config.{'embedding' if self.projects_sum else 'hidden'}_size"
        self.is_transform, self.has_head_map = (
            config.head == "transform",
            has_head_projection(config),
        )
        self.head_formula = self.activated(head_activation(config), "x", "self.head_beta")
        self.output_factor = factor_of(config.output_scale, config.d_model)
        self.predicts = config.head != "none" and not config.label_outputs
        self.is_tied = config.tie_embeddings and self.predicts
        self.ending, self.output = _PREDICTING[config.kind]
        if not self.predicts:
            self.output = f"SequenceClassifierOutput{'WithPast' * self.is_causal}"
            self.ending = _LABELS if config.label_outputs else "Model"
        self.endings = [self.ending] if self.is_pair else [*dict.fromkeys((self.ending, "Model"))]
        scale = config.embedding_scale
        self.scaled = "" if scale == "none" else f" * {scale}"
        if scale == "sqrt":
            self.scaled = f" * self.{self.table_width}**0.5"
        self.n_rotated = n_rotated(config, config.d_head)
        self.is_partial = self.n_rotated < config.d_head
        self.is_interleaved = config.rotary_layout.startswith("interleaved")
        self.is_power = config.n_heads & (config.n_heads - 1) == 0
        self.cache_type = "EncoderDecoderCache" if self.is_pair else "Cache"
        self.key_width = "key_width" if self.is_grouped else "width"
        is_by_head, kind = config.qk_norm_over == "head", config.qk_norm
        widths = ["config.head_dim"] * 2 if is_by_head else ["width", self.key_width]
        self.qk_norms = [self.norm(width, config.qk_norm_gain, kind) for width in widths]
        self.has_qk_norm = kind != "none"
        divisors = {"none": "1.0", "sqrt": "config.head_dim**-0.5"}
        self.scaling = divisors.get(str(config.attention_scale), f"1.0 / {config.attention_scale}")
        if kind == "l2":
            of_all = f"(width * {self.key_width}) ** 0.5"
            self.scaling += f" / {'config.head_dim' if is_by_head else of_all}"
        formulas = [self.activated(FFNS[name].activation, "x") for name in variants]
        self.formulas = " ".join(
            formulas + [self.head_formula] * (self.is_transform and self.predicts)
        )
        self.n_slots = _n_slots(last)
        self.window = _window(config) // (1 if last.is_causal else 2)
        self.last = last
        self.stacks = [self.stack(stack) for stack in stacks(config)]
        self.blocks = [f"{stack['prefix']}Block" for stack in self.stacks]

    def activated(self, name: str, x: str, beta: str = "self.beta") -> str:
        """Return the expression of an activation."""
        config = self.config
        if name == "gelu" and config.gelu == "exact":
            return f"F.gelu({x})"
        if name == "swish" and config.swish_beta != 1.0:
            return f"swish({x}, {beta if config.swish_beta == 'learned' else config.swish_beta})"
        return _ACTIVATIONS[name].format(x)

    def norm(self, width: str, is_affine: bool = True, kind: str = "") -> str:
        """Return the expression that builds a norm."""
        kind = kind or self.config.norm
        if kind == "dyt":
            return f"DynamicTanh({width})"
        more = "" if is_affine else ", elementwise_affine=False"
        if kind == "layer":
            more += ", bias=False" if is_affine and not self.config.norm_bias else ""
            return f"nn.LayerNorm({width}, eps=config.norm_eps{more})"
        eps = f"config.norm_eps / {width}" if kind == "l2" else "config.norm_eps"
        return f"nn.RMSNorm({width}, eps={eps}{more})"

    def linear(self, d_in: str, d_out: str, name: BiasedMap) -> str:
        """Return the expression that builds a linear map."""
        return f"nn.Linear({d_in}, {d_out}{'' if has_bias(self.config, name) else ', bias=False'})"

    def stack(self, stack: StackShape) -> dict[str, Any]:
        """Return the template's variables of a stack: the lines of its block, and its model."""
        config, is_target = self.config, stack.is_fed
        prefix = stack.name.capitalize() if self.is_pair else ""
        n_slots = _n_slots(stack) if is_target or not self.is_pair else 1
        count = "blocks" if n_slots > 1 else "layers" if is_target else "hidden_layers"
        n_blocks = f"config.{'decoder' if is_target else 'num'}_{count}"
        attends, n_self = stack.attends_to_itself, stack.n_attentions
        reads = attends or is_target
        passes_layer = reads and stack.is_causal and not self.has_index
        turn = "turns[kind]" if self.has_local_base else "turn"
        turn += " if is_placed else None" if self.skips_positions else ""
        given = {
            "x": True,
            "masks[kind]" if self.is_mixed else "mask": attends,
            turn: attends and self.is_rotary,
            "memory, memory_mask": is_target,
            "past_key_values=past_key_values": reads and stack.is_causal,
            "layer=layer": passes_layer,
            "**kwargs": True,
        }
        chooses = self.adds == "every" or self.is_mixed or self.skips_positions
        output = "BaseModelOutputWithPast" if stack.is_causal else "BaseModelOutput"
        output += "AndCrossAttentions" if is_target else ""
        whole = "create_causal_mask" if stack.is_causal else "create_bidirectional_mask"
        local = "create_bidirectional_sliding_window_mask"
        local = "create_sliding_window_causal_mask" if stack.is_causal else local
        masked = {
            "self.config, x, attention_mask": True,
            "cache" if is_target else "past_key_values": stack.is_causal,
            "position_ids": stack.is_causal and self.uses_positions and not is_target,
        }
        biased = {
            "x, self.config.num_attention_heads": config.positions == "alibi",
            "x, self.relative_bias.weight": config.positions == "relative",
            "n_past": stack.is_causal,
            "is_causal=True": is_target,
        }
        title = ", ".join(write_block(stack.block))
        members, lines = ([], []) if config.kind == "lstm" else self.block(stack)
        return {
            "prefix": prefix,
            "title": title if len(title) <= _LONGEST else "those of a block",
            "members": members,
            "lines": lines,
            "model": f"Sublayer{prefix or 'Model'}",
            "is_causal": stack.is_causal,
            "is_target": is_target,
            "attends": attends,
            "reads": reads,
            "n_blocks": n_blocks,
            "n_sets": config.share_groups * config.share_inner if self.is_shared else n_blocks,
            "set": f"set_of(layer, self.{n_blocks})" if self.has_sets else "0",
            "counts": chooses or passes_layer or self.has_sets,
            "nth": "layer" if n_self == 1 else f"{n_self} * layer",
            "given": ", ".join(line for line, is_there in given.items() if is_there),
            "mask": local if self.is_local else whole,
            "masks": (whole, local),
            "masked": ", ".join(line for line, is_there in masked.items() if is_there),
            "output": "BaseModelOutputWithPooling" if config.pooler == "tanh" else output,
            "biased": ", ".join(line for line, is_there in biased.items() if is_there),
        }

    def block(self, stack: StackShape) -> tuple[list[str], list[str]]:
        """Return the lines that build a block's parts, and those that compute its stream ``x``."""
        config, is_post = self.config, self.config.norm_order == "post"
        named, built, lines = _named(stack), list[str](), list[str]()
        for group in parallel_entries(stack.block):
            normed, summed, sums = "x", "{}", []
            for entry, (name, slot) in ((stack.block[index], named[index]) for index in group):
                before, after = n_norms(config, entry) if config.norm != "none" else (0, 0)
                if before:
                    normed = f"self.{name}_norm(x)"
                if before and len(group) > 1:
                    lines.append(f"normed = {normed}")
                    normed = "normed"
                past = ["past_key_values", *[slot] * self.is_shared] * stack.is_causal
                slot = f", {slot}" if self.has_index else ""
                causal = f", is_causal={stack.is_causal}" if self.is_pair else ""
                turn = ["turn"] * self.is_rotary
                made, given = {
                    "attention": (f"Attention(config{slot}{causal})", ["mask", *turn, *past]),
                    "cross": (f"CrossAttention(config{slot})", ["memory", "memory_mask", *past]),
                    "ffn": (f"{self.networks.get(str(entry.variant))}(config)", []),
                }[entry.name]
                built += [f"self.{name}_norm = build_norm(config)"] * (after if is_post else before)
                built += [f"self.{name} = {made}"]
                built += [f"self.{name}_output_norm = build_norm(config)"] * (after * (not is_post))
                branch = "branch" if len(group) == 1 else name
                arguments = ", ".join([normed, *given, *["**kwargs"] * bool(given)])
                lines.append(f"{branch}{', _' * bool(given)} = self.{name}({arguments})")
                if after and is_post:
                    summed = f"self.{name}_norm({{}})"
                elif after:
                    branch = f"self.{name}_output_norm({branch})"
                branch = f"self.dropout({branch})" if config.dropout else branch
                step = entry.step * config.residual_scale
                scaled = branch if abs(step) == 1.0 else f"{abs(step)!r} * {branch}"
                sums.append(f"x {'-' if step < 0 else '+'} {scaled}")
            lines += [f"x = {each}" for each in (*sums[:-1], summed.format(sums[-1]))]
        built += ["self.dropout = nn.Dropout(config.hidden_dropout)"] * (config.dropout > 0)
        return built, lines

    def tensors(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a model's weights by the names of the file's modules; other heads are left out."""
        config, by_name = self.config, dict[str, Tensor]()
        base = "" if self.ending == "Model" or self.is_pair else "model."
        parts = {stack.feeds_memory: _named(stack) for stack in stacks(config)}
        others = ["sentence_head.", "span_head.", *["head."] * (not self.predicts)]
        for name, tensor in weights.items():
            if name.startswith(tuple(others)):
                continue
            is_source = name.startswith("source.")
            side = "encoder." if is_source or name.startswith("embedding.") else "decoder."
            prefix = base + (side if self.is_pair else "")
            if found := _IN_BLOCK.fullmatch(name):
                index, place, rest = found.groups()
                if self.kind == "lstm":
                    by_name[f"{prefix}layers.{place}.{rest.removeprefix('function.')}"] = tensor
                    continue
                part, _ = parts[is_source][int(index)]
                prefix += f"blocks.{place}.{part}"
                for theirs, each in self.of_sublayer(part, rest, tensor):
                    by_name[prefix + theirs] = each
                continue
            name = name.removeprefix("source.")
            table = re.fullmatch(r"positions\.tables\.([1-9]\d*)\.(weight)", name)
            renamed = f"layer_positions.{int(table[1]) - 1}.weight" if table else _renamed(name)
            is_head = name.startswith(("head.", "label_head."))
            by_name[("" if is_head else prefix) + renamed] = tensor
        return {name: tensor.detach().clone() for name, tensor in by_name.items()}

    def of_sublayer(self, part: str, name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield a sub-layer's tensor by the names in the file, after that of the part."""
        rest, _, ending = name.rpartition(".")
        if not name.startswith("function."):
            yield f"_{name}", tensor
        elif rest == "function.output":
            yield f".{'down' if part.startswith('ffn') else 'o'}_proj.{ending}", tensor
        elif rest == "function.input":
            is_gated = tensor.dim() == (3 if ending == "weight" else 2)
            maps = [("gate", tensor[0]), ("up", tensor[1])] if is_gated else [("up", tensor)]
            yield from ((f".{map_}_proj.{ending}", each) for map_, each in maps)
        elif rest == "function.projection":
            stored: list[BiasedMap] = ["key", "value"] if self.is_grouped else [*_READ]
            if ending == "bias":
                stored = [map_ for map_ in stored if has_bias(self.config, map_)]
            for map_, each in zip(stored, tensor, strict=True):
                yield f".{map_[0]}_proj.{ending}", each
        else:
            yield f".{_renamed(name)}", tensor


def _n_slots(stack: StackShape) -> int:
    """Count the slots of a cache that a block takes."""
    counts = Counter(entry.kind.attends_to for entry in stack.block)
    return max(counts["itself"], counts["memory"], 1)


def _renamed(name: str) -> str:
    start = next(start for start in _RENAMED if name.startswith(start))
    return _RENAMED[start] + name.removeprefix(start)


def write_code(code: Code, ids: Fields) -> str:
    """Write a model's file; ``ids`` are those of special tokens."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("sublayer.interop", "")
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    context = {name: getattr(code, name) for name in dir(code) if not name.startswith("_")}
    context |= {
        "on": lambda is_there: "" if is_there else _LEFT_OUT,
        "literal": lambda value: json.dumps(value) if type(value) in (str, list) else repr(value),
        "ids": ids,
    }
    body = environment.get_template(f"{FILE}.j2").render(context)
    body = re.sub(f"^.*{_LEFT_OUT}.*\n", "", body, flags=re.MULTILINE).strip()
    first = f"{code.kind.capitalize()} of {'; '.join(stack['title'] for stack in code.stacks)}"
    auto = " or ".join(_AUTO[ending] for ending in code.endings)
    about = (
        f"Written by sublayer {version('sublayer')} for this model alone. It needs torch and "
        f"transformers 5, not sublayer, and is loaded by {auto} with trust_remote_code=True."
    )
    heading = f"{fill(first, _WIDTH - 4)}.\n\n{fill(about, _WIDTH)}\n"
    text = f'"""{heading}"""\n\n{_imports(body)}\n\n\n{body}\n'
    return "".join(f"{_broken(line)}\n" for line in text.splitlines())


def _imports(body: str) -> str:
    """Return the imports of the names that a file uses."""
    lines = ["from functools import cache\n"] * ("@cache" in body)
    lines = ["import math\n"] * ("math." in body) or lines
    lines += ["import torch"] + ["import torch.nn.functional as F"] * (" F." in body)
    for module, of_module in (row.split(":") for row in _IMPORTS.strip().splitlines()):
        if used := [name for name in of_module.split() if re.search(rf"\b{name}\b", body)]:
            line = f"from {module} import {', '.join(used)}"
            if len(line) > _WIDTH:
                line = f"from {module} import (\n" + "".join(f"    {n},\n" for n in used) + ")"
            lines.append(line)
    return "\n".join(lines)


def _broken(line: str) -> str:
    """Divide a line that is too long at the arguments of its last call, as ruff does."""
    if len(line) <= _WIDTH or not line.endswith(")"):
        return line
    depth, starts = 0, [len(line) - 1]
    for place in range(len(line) - 1, -1, -1):
        depth += (line[place] in ")]}") - (line[place] in "([{")
        if line[place] == "," and depth == 1:
            starts.insert(0, place)
        if depth == 0:
            break
    arguments = [line[a + 1 : b].strip() for a, b in zip([place, *starts], starts, strict=False)]
    indent = " " * (len(line) - len(line.lstrip()))
    is_short = len(line[place + 1 : -1]) + len(indent) + 4 <= _WIDTH
    comma = "" if is_short or " for " in arguments[-1] else ","
    inner = (", " if is_short else f",\n{indent}    ").join(arguments)
    return f"{line[: place + 1]}\n{indent}    {inner}{comma}\n{indent})"


def required_fields(config: ResolvedModel) -> Fields:
    """Return the fields, with values, of an equal model whose blocks share all or nothing."""
    required: Fields = {"segments": "both"} if config.segments == "second" else {}
    if not all(shares(config, entry) for entry in entries(config)):
        required |= {"share": "none", "share_groups": 1, "share_inner": 1}
    return required


def export_own_code(text_model: TextModel, out: Path, reason: str) -> dict[str, Any]:
    """Write a model as a new folder with a modelling file of its own; return its certificate.

    ``reason`` says why no class of transformers represents it.

    Raises ConfigError, naming the fields, for a model that cannot be written as code, and where
    ``out`` exists or cannot be written; CheckpointError where the written model gives other logits
    or tokens. Nothing is written then.
    """
    check_paths(out, out)
    model, tokenizer, spec = text_model.model, text_model.tokenizer, text_model.task
    task = None if spec is None else spec.tasks[0]
    check_code(model.config, task)
    expanded = expand(model.state_dict(), model.config, required_fields(model.config))
    full, weights = as_labels(*expanded, task)
    code = Code(full)
    family = _FAMILIES[full.kind]("labels" if code.ending == _LABELS else "tokens")
    if code.is_pair:
        ids: Fields = special_ids(full, tokenizer, {"eos_token_id": 1, "pad_token_id": 0})
    else:
        ids = family.written(full, tokenizer)
        if spec is not None and spec.pad_id is not None:
            ids["pad_token_id"] = spec.pad_id
    text = write_code(code, ids)
    fields = _FIELD.findall(text.partition("class SublayerConfig")[2].partition("\n\n\n")[0])
    classes = {_AUTO[each]: f"Sublayer{each}" for each in code.endings}
    classes["AutoConfig"] = "SublayerConfig"
    described = {
        "architectures": [f"Sublayer{code.ending}"],
        "auto_map": {auto: f"{FILE.removesuffix('.py')}.{name}" for auto, name in classes.items()},
        "model_type": "sublayer",
        **{name: ast.literal_eval(value) for name, value in fields},
        **(label_fields(full, task) if code.ending == _LABELS else {}),
        "dtype": str(model.embedding.weight.dtype).removeprefix("torch."),
    }
    kept = {_LABELS: "label", "Model": ""}.get(code.ending, "vocabulary")
    heads = asked_heads(full)
    left_out = [row.title for head, row in heads.items() if head not in (kept, "pooler")]
    if full.softmax == "all":
        left_out.append("positions as output classes: probabilities are over tokens alone")
    try:
        with new_folder(out) as partial:
            write_json(partial / CONFIG, described)
            (partial / FILE).write_text(text, encoding="utf-8")
            save_file(code.tensors(weights), partial / WEIGHTS, metadata={"format": "pt"})
            context = full.max_len if spec is None else spec.context
            files = family.tokenizer_files(tokenizer, max_len=context or int(1e30))
            for name, content in {**spec_files(spec), **files}.items():
                (partial / name).write_bytes(content)
            notes = {"tokenizer": describe_text(tokenizer), "left_out": ", ".join(left_out)}
            certificate = {
                **_certify(model, partial, code, ids, task),
                "code": reason,
                **{name: note for name, note in notes.items() if note},
                **(certify_tokenizer(tokenizer, partial) if CONFIG_NAME in files else {}),
            }
            write_json(partial / CERTIFICATE, certificate)
    except OSError as error:
        raise ConfigError(
            f"cannot write {out}: {error.strerror or error}; name another folder"
        ) from None
    return certificate


def _certify(
    model: Transformer, folder: Path, code: Code, ids: Fields, task: Task | None
) -> dict[str, Any]:
    """Compare a model's logits and greedy tokens with those of its file, run as a fresh module."""
    outputs = {"logits": "label_logits" if model.config.label_outputs else "logits"}
    if code.ending == "Model":
        pooled = {"pooler_output": "pooled"} if model.config.pooler == "tanh" else {}
        outputs = {"last_hidden_state": "states", **pooled}
    oracle = Oracle(f"Sublayer{code.ending}", outputs)
    loaded: list[Any] = []
    with ExitStack() as stack:

        def load() -> Any:
            module = stack.enter_context(_executed(folder / FILE))
            loaded.append(getattr(module, oracle.name).from_pretrained(folder))
            return loaded[0]

        certificate = certify(model, ids, {}, oracle, task, load)
        if loaded and code.is_causal and not model.config.label_outputs:
            certificate["greedy_tokens"] = _compare_greedy(model, loaded[0], ids)
    return certificate


@contextmanager
def _executed(path: Path) -> Iterator[ModuleType]:
    """Run a file that was just written, as a module that is forgotten afterwards."""
    module = ModuleType(f"sublayer_exported_{path.parent.name.replace('.', '_')}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
        with quiet():
            yield module
    finally:
        del sys.modules[module.__name__]


@torch.inference_mode()
def _compare_greedy(model: Transformer, theirs: Any, ids: Fields) -> dict[str, Any]:
    """Compare the likeliest tokens after random ones, with caches, in float64."""
    batch = CertificateBatch.draw(model.config)
    n_rows, length = batch.tokens.shape
    n = min(_MOST_TOKENS, length // 2)
    if not n:
        return {}
    ours, theirs = copy.deepcopy(model).double().eval(), theirs.double()
    theirs.config.eos_token_id = None
    prompt, given = batch.tokens[:, : length - n], dict[str, Any]()
    if isinstance(ours, EncoderDecoder):
        prompt = batch.tokens
        memory, cache = (
            ours.encode(prompt, batch.mask),
            Cache(ours.config, n_rows, n, torch.float64),
        )
        tokens = [torch.full((n_rows,), ids["decoder_start_token_id"])]
        for _ in range(n):
            tokens.append(ours.decode(tokens[-1][:, None], memory, cache)[:, 0].argmax(-1))
        tokens, given = tokens[1:], {"attention_mask": batch.mask.long()}
    else:
        assert isinstance(ours, Decoder), "other models predict no next token"
        tokens = list(generate(ours, prompt, n, GREEDY))
    if theirs.can_generate():
        theirs.generation_config.eos_token_id = None
        given |= {"do_sample": False}
    found = theirs.generate(prompt, max_new_tokens=n, **given)
    if not torch.equal(found[:, -n:], torch.stack(tokens, dim=1)):
        raise CheckpointError(
            "the written model continues random tokens otherwise: it was not written"
        )
    return {"rows": n_rows, "length": n, "equal": n_rows * n}
