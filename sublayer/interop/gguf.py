"""Export of decoders to GGUF, llama.cpp's files, by way of transformers' class.

Sources: llama.cpp, ``src/models`` on architectures, ``src/llama-vocab.cpp`` on tokenizers.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from itertools import islice, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sublayer.config.model import BiasedMap, factor_of
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import has_bias, key_heads, n_rotated
from sublayer.data.tokenizers.base import ByteTokenizer, Tokenizer
from sublayer.data.tokenizers.named import QWEN2
from sublayer.data.tokenizers.sentencepiece import UnigramTokenizer, parse_model
from sublayer.data.tokenizers.subword import BYTE_NAMES, SubwordTokenizer
from sublayer.errors import CheckpointError, ConfigError, extra_module
from sublayer.interop.certificate import CERTIFICATE, TEXTS, CertificateBatch
from sublayer.interop.engines import continue_greedily
from sublayer.interop.exits import Exported, new_export
from sublayer.interop.folder import CONFIG, read_json, read_tensors, write_json
from sublayer.interop.foreign_config import Rule, Table, check_fields, networks
from sublayer.interop.huggingface import export_huggingface, family_for
from sublayer.numbers import count, enumerate_names
from sublayer.tasks.task import Task
from sublayer.text_model import TextModel
from sublayer.values import show

NAME = "model.gguf"
_DTYPES = {
    "float32": ("F32", "ALL_F32", 0.0), "float16": ("F16", "MOSTLY_F16", 2**-11),
    "bfloat16": ("BF16", "MOSTLY_BF16", 2**-8), "q8_0": ("Q8_0", "MOSTLY_Q8_0", 2**-7),
}  # fmt: skip
"""GGUF's types of tensors and of files, and the largest change of a weight by rounding, as a share
of its tensor's largest."""


def _repeats(name: str, pattern: str) -> Table:
    """Return the row of a pattern over layers."""

    def over(config: ResolvedModel, repeated: str) -> str:
        return (repeated * config.n_layers)[: config.n_layers]

    return {name: Rule(lambda config: over(config, getattr(config, name)) == over(config, pattern))}


def _networks(name: str) -> Table:
    """Return the rows of a network, the same in all blocks, whose GELU is that by tanh."""
    of_all = Rule(lambda config: networks(config) == [name], lambda c: ", ".join(networks(c)))
    return {"ffn": of_all, "gelu": ("tanh",)}


def _biased(*, by: bool) -> Table:
    """Return the row of biases of all maps of blocks, or of none."""
    maps: tuple[BiasedMap, ...] = ("query", "key", "value", "output", "ffn")
    return {"bias": Rule(lambda config: all(has_bias(config, name) is by for name in maps))}


def _gemma(pattern: str, most_layers: int, *, is_capped: bool) -> Table:
    """Return the rows of a Gemma; one of ``most_layers`` divides scores as the largest does."""

    def divides_by_root(config: ResolvedModel) -> bool:
        is_largest = config.n_layers == most_layers
        width = config.d_model // config.n_heads if is_largest else config.d_head
        return math.isclose(factor_of(config.attention_scale, config.d_head) ** -2, width)

    def is_set(name: str) -> Rule:
        return Rule(lambda config: getattr(config, name) != "none")

    return {
        **_PLAIN, **_networks("geglu"), **_repeats("window_pattern", pattern),
        "attention_window": is_set("attention_window"), "attention_scale": Rule(divides_by_root),
        **{name: is_set(name) if is_capped else ("none",) for name in ("score_cap", "logit_cap")},
    }  # fmt: skip


_LLAMA: Table = {
    **_networks("swiglu"), "attention_window": ("none",), "positions": ("rotary",),
    "rotary_fraction": (1.0,),
}  # fmt: skip
_PLAIN: Table = {**_LLAMA, **_biased(by=False)}
_GPT: Table = {**_networks("gelu"), "attention_scale": ("sqrt",)}
_TIED: Table = {"tie_embeddings": (True,)}
_WINDOW = {"attention.sliding_window": "sliding_window"}


@dataclass(frozen=True)
class Architecture:
    """An architecture of llama.cpp for a class of transformers."""

    name: str
    table: Table
    """Values of a model's fields that it computes, where they are fewer than those of the class."""
    copied: Mapping[str, str] = field(default_factory=dict)
    """Names in its metadata, and the fields of config.json whose values they have."""
    turns_neighbours: bool = False
    """True where it rotates each feature with the next one, and the class the halves of a head."""
    added_gain: float = 0.0
    """Number that the class adds to the gains of norms, stored in them here."""
    has_output: bool = False
    """True where a tied output matrix is stored as a copy."""


ARCHITECTURES: Mapping[str, Architecture] = {
    "gpt2": Architecture("gpt2", _GPT),
    "llama": Architecture("llama", _LLAMA, turns_neighbours=True),
    "mistral": Architecture("llama", _LLAMA, turns_neighbours=True),
    "qwen2": Architecture("qwen2", _LLAMA),
    "qwen3": Architecture("qwen3", _PLAIN),
    "gemma2": Architecture(
        "gemma2", {**_gemma("LG", 46, is_capped=True), **_TIED},
        {**_WINDOW, "attn_logit_softcapping": "attn_logit_softcapping",
         "final_logit_softcapping": "final_logit_softcapping"}, added_gain=1.0,
    ),
    "gemma3_text": Architecture(
        "gemma3", _gemma("LLLLLG", 62, is_capped=False), _WINDOW, added_gain=1.0
    ),
    "gpt_neox": Architecture(
        "gptneox", {**_GPT, **_biased(by=True), "positions": ("rotary",)},
        {"use_parallel_residual": "use_parallel_residual"}, has_output=True,
    ),
    "olmo2": Architecture(
        "olmo2", {**_PLAIN, "d_head": Rule(lambda c: c.d_head * c.n_heads == c.d_model)},
        has_output=True,
    ),
    "smollm3": Architecture(
        "smollm3", {**_PLAIN, **_repeats("position_pattern", "PPPN")}, turns_neighbours=True
    ),
    "cohere": Architecture(
        "command-r", {**_PLAIN, **_TIED, "qk_norm": ("none",)}, {"logit_scale": "logit_scale"}
    ),
    "granite": Architecture(
        "granite", _LLAMA,
        {"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier",
         "residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"},
        turns_neighbours=True,
    ),
}  # fmt: skip
"""Architectures by transformers' ``model_type``."""


def architecture_for(config: ResolvedModel, task: Task | None = None) -> Architecture:
    """Return a model's architecture; raise ConfigError, naming fields, where there is none."""
    family = family_for(config, task)
    architecture = ARCHITECTURES.get(family.model_type)
    if architecture is None or family.answers != "tokens":
        known = enumerate_names(list(dict.fromkeys(row.name for row in ARCHITECTURES.values())))
        raise ConfigError(
            f"--to gguf has no architecture for {family.title}'s class: it takes those of {known}"
        )
    table = {**family.table, **architecture.table}
    check_fields(config, table, f"llama.cpp's {architecture.name}")
    return architecture


def _numbers(config: ResolvedModel) -> dict[str, Any]:
    """Return a model's numbers by their names in the file, after the architecture's."""
    fields: dict[str, Any] = {
        "context_length": config.max_len, "vocab_size": config.vocab_size,
        "embedding_length": config.d_model, "block_count": config.n_layers,
        "feed_forward_length": config.d_ff, "attention.head_count": config.n_heads,
        "attention.head_count_kv": key_heads(config),
        "attention.key_length": config.d_head, "attention.value_length": config.d_head,
        f"attention.layer_norm_{'rms_' if config.norm == 'rms' else ''}epsilon": config.norm_eps,
    }  # fmt: skip
    if config.positions == "rotary":
        fields["rope.dimension_count"] = n_rotated(config, config.d_head)
        fields["rope.freq_base"] = config.rotary_base
    if config.attention_window != "none":
        local = config.rotary_local_base
        fields["rope.freq_base_swa"] = config.rotary_base if local == "same" else local
    return fields


def _converted(
    architecture: Architecture, config: ResolvedModel, name: str, tensor: Tensor
) -> NDArray[np.float32]:
    """Return a tensor of the class as llama.cpp reads it."""
    tensor = tensor.float()
    if name.endswith("norm.weight"):
        tensor = tensor + architecture.added_gain
    if architecture.turns_neighbours and (found := re.search(r"\.([qk])_proj\.", name)):
        n_heads = config.n_heads if found[1] == "q" else key_heads(config)
        by_pair = tensor.reshape(n_heads, 2, -1, *tensor.shape[1:])
        tensor = by_pair.transpose(1, 2).reshape(tensor.shape)
    elif ".query_key_value." in name:
        # GPT-NeoX has the queries, keys and values of a head together.
        by_head = tensor.reshape(config.n_heads, 3, -1, *tensor.shape[1:])
        tensor = by_head.transpose(0, 1).reshape(tensor.shape)
    elif re.search(r"\.c_(attn|proj|fc)\.weight$", name):
        tensor = tensor.T
    return tensor.contiguous().numpy()


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_DIGIT = r"\p{N}"
PRE_TOKENIZERS: Mapping[tuple[bool, str], str] = {
    (False, _GPT2): "gpt-2",
    (False, f"{_DIGIT}, {_GPT2}"): "smollm",
    (False, QWEN2): "qwen2",
    (False, _LLAMA3): "dbrx",
    (True, _LLAMA3): "llama-bpe",
}
"""llama.cpp's pre-tokenizers, by whether words of the vocabulary are taken whole, before any merge,
and by the patterns that divide a text, one after another."""


def _pattern(step: Mapping[str, Any]) -> str:
    """Return the pattern by which a step of a pre-tokenizer divides a text; empty for none."""
    match step:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": divides}:
            return _GPT2 if divides else ""
        case {"type": "Split", "pattern": {"Regex": text}, "behavior": "Isolated", "invert": False}:
            return str(text)
        case {"type": "Digits", "individual_digits": True}:
            return _DIGIT
    return str(dict(step))


_ORIGINAL = "in its place, give the tokenizer.model that it was converted from"


def _byte_pairs(tokenizer: SubwordTokenizer) -> tuple[dict[str, Any], Mapping[str, bool]]:
    """Describe byte-level BPE, with the reasons for which llama.cpp may not have it."""
    content = tokenizer.library_content
    model, steps = content["model"], content["pre_tokenizer"] or {"type": "none"}
    listed = steps.get("pretokenizers", [steps])
    pattern = ", ".join(filter(None, map(_pattern, listed)))
    name = PRE_TOKENIZERS.get((bool(model.get("ignore_merges")), pattern))
    added = content["added_tokens"]
    reasons = {
        f"a model of the kind {model['type']}": model["type"] != "BPE",
        f"merges of characters, whose scores it lacks ({_ORIGINAL})": bool(
            model.get("byte_fallback")
        ),
        "words that are not divided into bytes": listed[-1]["type"] != "ByteLevel",
        "rules that change characters": content["normalizer"] not in (None, {"type": "NFC"}),
        "added tokens that take spaces": any(each["lstrip"] or each["rstrip"] for each in added),
        f"the pattern {pattern:.200}": name is None,
    }
    types = ["NORMAL"] * tokenizer.vocab_size
    for token in added:
        types[token["id"]] = "CONTROL" if token["special"] else "USER_DEFINED"
    merges = [m if isinstance(m, str) else " ".join(m) for m in model.get("merges", ())]
    fields = {"model": "gpt2", "pre": name, "merges": merges}
    return {**fields, "tokens": tokenizer.names, "token_type": types}, reasons


def _pieces(tokenizer: UnigramTokenizer) -> tuple[dict[str, Any], Mapping[str, bool]]:
    """Describe SentencePiece's BPE, with the reasons for which llama.cpp may not have it."""
    model = parse_model(tokenizer.model)
    trainer, rules = model.trainer_spec, model.normalizer_spec
    changes = bool(rules.precompiled_charsmap) or rules.remove_extra_whitespaces
    reasons = {
        "a unigram model": trainer.model_type != trainer.BPE,
        "no pieces of bytes": not trainer.byte_fallback,
        "rules that change characters": changes or not tokenizer.normalization.is_models,
        "spaces at the end of words": trainer.treat_whitespace_as_suffix,
        "tokens beyond its pieces": len(tokenizer.names) != len(model.pieces),
    }
    types = {number: name for name, number in model.SentencePiece.Type.items()}
    return {
        "model": "llama",
        "tokens": tokenizer.names,
        "scores": [float(piece.score) for piece in model.pieces],
        "token_type": [types[piece.type] for piece in model.pieces],
        "add_space_prefix": bool(rules.add_dummy_prefix),
        "unknown_token_id": tokenizer.unk_id,
    }, reasons


def describe_vocabulary(tokenizer: Tokenizer | None, n_rows: int) -> dict[str, Any]:
    """Return a tokenizer's fields by name, with ``n_rows`` tokens; raise ConfigError, with why."""
    fields: dict[str, Any] = {}
    reasons: Mapping[str, bool] = {"ids of its own": True}
    if tokenizer is None:
        return {"tokenizer.ggml.model": "none"}
    if isinstance(tokenizer, ByteTokenizer):
        names = sorted(BYTE_NAMES, key=BYTE_NAMES.__getitem__)
        # No list may be empty: the sides of this merge never occur.
        fields = {"model": "gpt2", "pre": "gpt-2", "merges": [f"{names[0] * 2} {names[0] * 2}"]}
        fields |= {"tokens": names, "token_type": ["NORMAL"] * len(names)}
        reasons = {}
    elif isinstance(tokenizer, SubwordTokenizer):
        fields, reasons = _byte_pairs(tokenizer)
    elif isinstance(tokenizer, UnigramTokenizer):
        fields, reasons = _pieces(tokenizer)
    for reason, is_so in reasons.items():
        if is_so:
            raise ConfigError(
                f"llama.cpp has no tokenizer ({tokenizer.kind}) with {reason}: it has bytes, "
                "SentencePiece's BPE, and byte-level BPE with the patterns of "
                f"{enumerate_names(list(PRE_TOKENIZERS.values()))}; --to onnx takes any tokenizer"
            )
    n_more = n_rows - len(fields["tokens"])
    padded = [*fields["tokens"], *[""] * n_more]
    fields["tokens"] = [name or f"[PAD{id_}]" for id_, name in enumerate(padded)]
    fields["token_type"] += ["UNUSED"] * n_more
    ids = {"bos": tokenizer.first_id, "eos": tokenizer.end_id, "padding": tokenizer.pad_id}
    fields |= {f"{name}_token_id": id_ for name, id_ in ids.items() if id_ is not None}
    # Nothing is put around a text but its start.
    fields |= {"add_bos_token": tokenizer.start_id is not None, "add_eos_token": False}
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items()}


_ADDERS = {bool: "bool", int: "uint32", float: "float32", str: "string", list: "array"}
"""Methods of the file's writer by the type of a field's value."""
_PROMPT, _GREEDY, _LINES = 8, 32, 1000


@torch.inference_mode()
def compare_with_llama(path: Path, text_model: TextModel) -> dict[str, Any]:
    """Compare greedy tokens, and the ids of lines, with those of llama.cpp for a file."""
    if find_spec("llama_cpp") is None:
        return {"checked": False, "reason": "llama-cpp-python is not installed"}
    library: Any = import_module("llama_cpp")
    tokenizer, tokens = text_model.tokenizer, CertificateBatch.draw(text_model.model.config).tokens
    prompts, n_greedy = tokens[:, :_PROMPT], min(_GREEDY, tokens.shape[1] - _PROMPT)
    # Keys and values in float32, as here.
    kept = {"type_k": 0, "type_v": 0}
    llama = library.Llama(str(path), n_ctx=tokens.shape[1], verbose=False, **kept)
    n_equal, continued = 0, continue_greedily(text_model, prompts, n_greedy)
    for prompt, ours in zip(prompts.tolist(), continued, strict=True):
        llama.reset()
        theirs = islice(llama.generate(prompt, temp=0.0), n_greedy)
        n_equal += sum(one == other for one, other in zip(ours, theirs, strict=True))
    found = {"checked": True, "against": f"llama_cpp {library.__version__}"}
    found["greedy_tokens"] = f"{n_equal} of {len(prompts) * n_greedy}"
    if tokenizer is not None:
        lines = ["".join(parts).encode() for parts in product(TEXTS, (" ", "\n"), TEXTS)][:_LINES]
        special = bool(tokenizer.reads_marks)
        ids = [llama.tokenize(line, add_bos=False, special=special) for line in lines]
        n_equal = sum(tokenizer.encode(x).tolist() == y for x, y in zip(lines, ids, strict=True))
        found["lines"] = f"{n_equal} of {len(lines)}"
    return found


def export_gguf(text_model: TextModel, out: Path, dtype: str = "float32") -> Exported:
    """Write a decoder as ``model.gguf`` in a new folder, with its tokenizer and its certificate.

    The certificate compares the model with transformers' class, the file's tensors with those of
    the class, and, where llama-cpp-python is installed, greedy tokens and ids of lines.
    Norms and biases stay in float32; in q8_0, rows of no multiple of 32 are in float16.

    Raises ConfigError, naming the field, for a model or a tokenizer that llama.cpp has not, and
    CheckpointError for weights that the ``dtype`` cannot hold.
    """
    gguf = extra_module("gguf", "GGUF files", "gguf")
    if dtype not in _DTYPES:
        known = enumerate_names(list(_DTYPES), "or")
        raise ConfigError(f"--dtype {show(dtype)} is not a type of --to gguf: give {known}")
    config, tokenizer, spec = text_model.model.config, text_model.tokenizer, text_model.task
    architecture = architecture_for(config, None if spec is None else spec.tasks[0])
    fields = describe_vocabulary(tokenizer, config.vocab_size)
    key = "tokenizer.ggml.token_type"
    fields[key] = [int(gguf.TokenType[name]) for name in fields.get(key, ())]
    if (template := text_model.generation.chat_templates.get("default")) is not None:
        fields["tokenizer.chat_template"] = template
    narrow, file_type, share = _DTYPES[dtype]
    fields |= {"general.name": out.name, "general.quantization_version": 2}
    fields["general.file_type"] = int(gguf.LlamaFileType[file_type])
    kind = next(k for k, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture.name)
    names = gguf.get_tensor_name_map(kind, config.n_layers)
    arrays, changes = dict[str, NDArray[np.float32]](), [0.0]
    with TemporaryDirectory() as scratch, new_export(out) as partial:
        source = Path(scratch) / "class"
        certificate = export_huggingface(text_model, source)
        described, numbers = read_json(source / CONFIG), _numbers(config)
        numbers |= {name: described[theirs] for name, theirs in architecture.copied.items()}
        fields |= {f"{architecture.name}.{name}": value for name, value in numbers.items()}
        for theirs, tensor in read_tensors(source).items():
            name = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
            arrays[name] = _converted(architecture, config, theirs, tensor)
        if architecture.has_output:
            arrays.setdefault("output.weight", arrays["token_embd.weight"])
        writer = gguf.GGUFWriter(partial / NAME, architecture.name)
        for key, value in fields.items():
            getattr(writer, f"add_{_ADDERS[type(value)]}")(key, value)
        for name, array in arrays.items():
            is_vector = array.ndim == 1 or name == "position_embd.weight"
            kept = "F16" if narrow == "Q8_0" and array.shape[-1] % 32 else narrow
            stored = gguf.GGMLQuantizationType["F32" if is_vector else kept]
            with np.errstate(over="ignore"):
                writer.add_tensor(name, gguf.quants.quantize(array, stored), raw_dtype=stored)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        for tensor in gguf.GGUFReader(partial / NAME).tensors:
            array = arrays[tensor.name]
            read = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(array.shape)
            change, most = (float(np.abs(each).max()) for each in (read - array, array))
            if not change <= share * max(most, 1e-4):
                raise CheckpointError(
                    f"{tensor.name}, with weights up to {most:.3g}, does not fit its type, which "
                    f"changes one by {change:.3g}: give --dtype bfloat16 or float32"
                )
            changes.append(change)
        run = compare_with_llama(partial / NAME, text_model)
        file = {"tensors": len(arrays), "dtype": dtype, "largest_difference": max(changes)}
        certificate |= {"file": file, "llama.cpp": run}
        write_json(partial / CERTIFICATE, certificate)
    n_tensors, change = count(len(arrays), "tensor"), max(changes)
    lines = [f"{n_tensors} in {dtype}, read back with changes up to {change:.1e}"]
    if run["checked"]:
        of_lines = f" and ids of {run['lines']} lines" if tokenizer is not None else ""
        lines.append(f"{run['against']}: {run['greedy_tokens']} greedy tokens{of_lines} are equal")
    else:
        lines.append(f"not compared with llama.cpp: {run['reason']}")
    if tokenizer is not None and tokenizer.end_id is None:
        lines.append("the tokenizer has no end of a text: llama.cpp takes the token 11 as it")
    title, following = f"llama.cpp's {architecture.name}", f"llama-cli -m {out / NAME}"
    return Exported(title, certificate, tokenizer is not None, following, lines)
