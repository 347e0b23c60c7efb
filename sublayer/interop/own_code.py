"""Models that no class of transformers represents: folders with a modelling file of their own."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache, partial
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from sublayer.config import model as rows
from sublayer.config import stacks as shapes
from sublayer.config.load import MODEL_FORMAT
from sublayer.config.model import BiasedMap, parallel_entries, write_block
from sublayer.config.recipe import ResolvedModel
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.storage import check_paths
from sublayer.interop.certificate import (
    CertificateBatch,
    certify,
    computing_in,
    quiet,
    save_exported,
)
from sublayer.interop.decoders import Gpt2
from sublayer.interop.encoders import Bert
from sublayer.interop.family import NO_OTHER_HEAD, Family, Fields, Oracle, as_labels, label_fields
from sublayer.interop.folder import CONFIG
from sublayer.interop.foreign_config import (
    ANY,
    Rule,
    Table,
    activated_by,
    check_fields,
    networks,
    refused_fields,
)
from sublayer.interop.seq2seq import T5
from sublayer.interop.weight_map import Pair, expand
from sublayer.model.model_folder import VERSION, parse_config
from sublayer.model.transformer import EncoderDecoder, Transformer, shapes_of
from sublayer.tasks.task import Task
from sublayer.text_model import TextModel

FILE = "modeling_sublayer.py"
_AUTO = {
    "ForCausalLM": "AutoModelForCausalLM",
    "ForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "Model": "AutoModel",
}
"""Auto classes by the endings of the classes that they load."""
_KINDS: dict[str, tuple[str, str, type[Family]]] = {
    "decoder": ("ForCausalLM", "CausalLMOutputWithPast", Gpt2),
    "lstm": ("ForCausalLM", "CausalLMOutputWithPast", Gpt2),
    "encoder": ("ForMaskedLM", "MaskedLMOutput", Bert),
    "encoder-decoder": ("ForConditionalGeneration", "Seq2SeqLMOutput", T5),
}
"""Ending and output of the class that predicts tokens, and the tokenizer's family, by kind."""
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
    "embedding_norm": "embed_norm", "positions.tables": "embed_positions",
    "positions.table": "relative_bias", "segment_table": "embed_segments", "final_norm": "norm",
    "pooler.linear": "pooler", "label_head": "classifier", "head.projection": "head_proj",
    "head.norm": "head_norm", "head.activation.beta": "head_beta", "head": "lm_head",
    "norm": "_norm", "output_norm": "_output_norm", "query_norm": ".q_norm",
    "key_norm": ".k_norm", "activation.beta": ".beta", "sinks": ".sinks",
}  # fmt: skip
"""Beginnings of the names of tensors, of a model or within a sub-layer, and those in the file."""
_IN_BLOCK = re.compile(r"\w+\.sublayers\.(\d+)\.(\d+)\.(?:function\.)?(.+)")
_SUITE = r"(?:\n*\1 +\S.*\n)*"
_GUARDED = re.compile(
    rf"^( *)(\S.*?)  #(\?\??) (.+)\n({_SUITE}(?:\1[)\]}}].*\n{_SUITE})?)", re.MULTILINE
)
"""A statement of the template before its condition, with its body."""
_FIELD = re.compile(r"^    (\w+): [^=\n]+ = (.+)$", re.MULTILINE)
_LABELS = "ForSequenceClassification"
_TYPE = "sublayer"
"""The ``model_type``, and the field of ``config.json`` with the model's table."""
_MOST_TOKENS, _LONGEST = 16, 70


def _window(config: ResolvedModel) -> int:
    return 0 if isinstance(config.attention_window, str) else config.attention_window


def _has_known_block(config: ResolvedModel) -> bool:
    """Return whether a file can have the sub-layers, and a cache as long as the tokens."""
    last = shapes.stacks(config)[-1]
    can_cache = config.kind == "lstm" or not last.is_causal or last.attends_to_itself
    known = {"attention", "cross", "ffn", "lstm"}
    return can_cache and {entry.name for entry in shapes.entries(config)} <= known


def _forms(config: ResolvedModel) -> list[tuple[shapes.AttentionForm | None, ...]]:
    return [x for each in shapes.stacks(config) for x in shapes.attention_forms(config, each)]


def _is_uniform(config: ResolvedModel) -> bool:
    return all(len({*filter(None, block)}) <= 1 for block in _forms(config))


_FREE = """
    kind n_layers n_decoder_layers d_model n_heads d_head n_kv_heads d_ff d_embed project_embeddings
    embedding_norm segments decoder_block decoder_start ffn gelu swish_beta norm_order parallel_norm
    norm_affine norm_bias norm_eps final_norm sinusoids first_position rotary_base rotary_local_base
    rotary_fraction rotary_layout relative_buckets relative_distance share share_groups share_inner
    softmax head_activation head_bias sentence_classes tie_embeddings embedding_scale residual_scale
    output_scale logit_cap attention_scale score_cap sinks qk_norm qk_norm_over qk_norm_gain bias
    dropout dropout_attention dropout_ffn dropout_embedding dropout_embedding_of dropout_final init
    init_std zero_padding vocab_size vocab_multiple max_len
"""
TABLE: Table = {
    **dict.fromkeys(_FREE.split(), ANY),
    "norm": ("layer", "rms", "dyt", "none"),
    "positions": (
        *("sinusoidal", "learned", "learned-per-layer", "rotary", "alibi", "relative", "none"),
    ),
    "block": Rule(_has_known_block),
    "ffn": activated_by(_ACTIVATIONS),
    # The stacks of an encoder-decoder add their positions to one projected table.
    "embedding_projection": Rule(
        lambda c: (
            c.embedding_projection == "tokens" or not (c.decoder_block and shapes.is_factorised(c))
        )
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


def check_code(config: ResolvedModel, task: Task | None = None) -> None:
    """Raise ConfigError, naming the fields, for a model that cannot be written as code."""
    check_fields(config, TABLE, "no class of transformers represents the model, and code")
    is_both = task is not None and task.is_symmetric and config.kind == "decoder"
    if task is not None and config.label_outputs and (is_both or task.kind == "choice"):
        raise ConfigError(
            f"{task.title} is answered from several rows, and an exported classifier reads one: "
            "the model cannot be exported"
        )


class Code:
    """Variables of the template, for a config whose blocks share all sub-layers or none."""

    def __init__(self, config: ResolvedModel) -> None:
        self.config, self.stacks = config, shapes.stacks(config)
        forms = {form for block in _forms(config) for form in block if form is not None}
        windows = {form.window is not None for form in forms}
        self.is_local, self.is_mixed = True in windows, len(windows) > 1
        self.skips_positions = not all(form.has_positions for form in forms)
        counts = Counter(entry.kind.attends_to for entry in self.stacks[-1].block)
        self.n_slots = max(counts["itself"], counts["memory"], 1)
        self.n_sets = 0 if config.share == "none" else config.share_groups * config.share_inner
        self.blocks = [self.block(each) for each in self.stacks] if config.kind != "lstm" else []
        self.networks = {name: f"{name.capitalize()}FeedForward" for name in networks(config)}
        self.predicts = config.head != "none" and not config.label_outputs
        self.ending, self.output, family = _KINDS[config.kind]
        if not self.predicts:
            self.ending = _LABELS if config.label_outputs else "Model"
            self.output = f"SequenceClassifierOutput{'WithPast' * self.stacks[-1].is_causal}"
        self.family = family("labels" if self.ending == _LABELS else "tokens")
        is_pair = config.kind == "encoder-decoder"
        self.endings = [self.ending] if is_pair else [*dict.fromkeys((self.ending, "Model"))]

    def block(self, stack: shapes.StackShape) -> dict[str, Any]:
        """Return the name and the sub-layers of a stack's block."""
        config, parts = self.config, list[dict[str, Any]]()
        counts, seen = Counter(entry.name for entry in stack.block), Counter[str]()
        for group in parallel_entries(stack.block):
            normed_by, closes = "", ""
            for entry in stack.block[group.start : group.stop]:
                n, number = counts[entry.name], seen[entry.name]
                seen[entry.name] += 1
                name = f"{entry.name}_{number + 1}" if n > 1 else entry.name
                before, after = shapes.n_norms(config, entry) if config.norm != "none" else (0, 0)
                normed_by = name if before else normed_by
                closes = name if after and config.norm_order == "post" else closes
                slot = ("layer" if n == 1 else f"{n} * layer") + (f" + {number}" if number else "")
                part = {"name": name, "entry": entry, "slot": number if self.n_sets else slot}
                part |= {"before": before, "after": after, "normed_by": normed_by, "closes": ""}
                parts.append(part | {"start": "start" if len(group) > 1 else "x"})
            parts[-1]["closes"] = closes
        title = ", ".join(write_block(stack.block))
        title = title if len(title) <= _LONGEST else "those of a block"
        name = f"{stack.name.capitalize() * (config.kind == 'encoder-decoder')}Block"
        return {"name": name, "title": title, "is_fed": stack.is_fed, "parts": parts}

    def write(self, ids: Fields) -> str:
        """Return the modelling file; ``ids`` are those of special tokens."""
        autos = " or ".join(_AUTO[each] for each in self.endings)
        given = {"rows": rows, "shapes": shapes, "activations": _ACTIVATIONS, "ids": ids}
        text = _template().render(vars(self) | given, autos=autos, version=version("sublayer"))
        text = re.sub(r"\n{2,}", "\n\n", text.strip()) + "\n"
        return re.sub(r"\n\n(?=class |def )", "\n\n\n", text)

    def pairs(self) -> Iterator[Pair]:
        """Pair the tensors of the file's modules with the model's."""
        for full_name, shape in shapes_of(self.config).items():
            is_source, name = full_name.startswith("source."), full_name.removeprefix("source.")
            prefix = "" if self.ending == "Model" else "model."
            if self.config.kind == "encoder-decoder":
                is_first = is_source or name.startswith("embedding.")
                prefix = "encoder." if is_first else "decoder."
            found = _IN_BLOCK.fullmatch(name)
            if found is None:
                prefix = "" if name.startswith(("head.", "label_head.")) else prefix
                if self.config.positions != "learned-per-layer":
                    name = name.replace("tables.0", "tables")
                theirs = [_renamed(name)]
            elif self.config.kind == "lstm":
                theirs = [f"layers.{found[2]}.{found[3]}"]
            else:
                part = self.blocks[0 if is_source else -1]["parts"][int(found[1])]
                start = f"blocks.{found[2]}.{part['name']}"
                names = self.in_sublayer(part["entry"].name, found[3], len(shape))
                theirs = [start + rest for rest in names]
            yield Pair(tuple(prefix + each for each in theirs), full_name)

    def in_sublayer(self, kind: str, name: str, n_axes: int) -> list[str]:
        """Return the names in the file of a sub-layer's tensor, after that of the sub-layer."""
        map_, _, ending = name.rpartition(".")
        is_grouped = shapes.key_heads(self.config) < self.config.n_heads
        stacked: list[BiasedMap] = ["key", "value"] if is_grouped else ["query", "key", "value"]
        kept = [x for x in stacked if ending == "weight" or shapes.has_bias(self.config, x)]
        maps = {
            "output": ["down" if kind == "ffn" else "o"],
            "input": ["gate", "up"] if n_axes == (3 if ending == "weight" else 2) else ["up"],
            "projection": [x[0] for x in kept],
            "queries": ["q"],
            "gate": ["gate"],
        }
        if map_ not in maps:
            return [_renamed(name)]
        return [f".{letter}_proj.{ending}" for letter in maps[map_]]


def _renamed(name: str) -> str:
    start = next(start for start in _RENAMED if name.startswith(start))
    return _RENAMED[start] + name.removeprefix(start)


@cache
def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = resources.files("sublayer.interop") / f"{FILE}.j2"
    return environment.from_string(_expanded(source.read_text(encoding="utf-8")))


def _expanded(text: str) -> str:
    """Turn the conditions of a template's statements into blocks of Jinja."""

    def block(found: re.Match[str]) -> str:
        indent, line, mark, condition, body = found.groups()
        text = f"{{% if {condition} %}}\n{indent}{line}\n{_expanded(body)}"
        if mark == "??":
            text += "{% else %}\n" + _expanded(re.sub("^    ", "", body, flags=re.MULTILINE))
        return text + "{% endif %}\n"

    return _GUARDED.sub(block, text)


def required_fields(config: ResolvedModel) -> Fields:
    """Return the fields of a model with one head whose blocks share all or nothing."""
    required: Fields = {"span_head": "none", "sentence_classes": 0}
    if config.label_outputs or config.head == "none":
        required |= NO_OTHER_HEAD
    if config.segments == "second":
        required["segments"] = "both"
    if not all(shapes.shares(config, entry) for entry in shapes.entries(config)):
        required |= {"share": "none", "share_groups": 1, "share_inner": 1}
    return required


def read_code(folder: Path, fields: Mapping[str, Any]) -> Code | None:
    """Read the table of an export's ``config.json``, and not its code; None in other folders."""
    table, path = fields.get(_TYPE), folder / CONFIG
    if fields.get("model_type") != _TYPE or not isinstance(table, dict):
        return None
    config = parse_config(table, path)
    if refused := refused_fields(config, TABLE):
        raise CheckpointError(f"{path}: code cannot represent {', '.join(refused)}")
    return Code(config.model_copy(update=required_fields(config)))


def export_own_code(text_model: TextModel, out: Path, reason: str) -> dict[str, Any]:
    """Write a model as a new folder with a modelling file of its own; return its certificate.

    ``reason`` says why no class of transformers represents it. Raises ConfigError, naming the
    fields, for a model that cannot be written as code, and where ``out`` exists or cannot be
    written; CheckpointError where the written model gives other logits or tokens.
    """
    check_paths(out, out)
    model, tokenizer, spec = text_model.model, text_model.tokenizer, text_model.task
    task = None if spec is None else spec.tasks[0]
    check_code(model.config, task)
    expanded = expand(model.state_dict(), model.config, required_fields(model.config))
    full, weights = as_labels(*expanded, task)
    code = Code(full)
    ids = code.family.written(full, tokenizer)
    if spec is not None and spec.pad_id is not None:
        ids["pad_token_id"] = spec.pad_id
    text = code.write(ids)
    fields = _FIELD.findall(text.partition("class SublayerConfig")[2].partition("\n\n\n")[0])
    classes = {_AUTO[each]: f"Sublayer{each}" for each in code.endings}
    classes["AutoConfig"] = "SublayerConfig"
    described = {
        "architectures": [f"Sublayer{code.ending}"],
        "auto_map": {auto: f"{FILE.removesuffix('.py')}.{name}" for auto, name in classes.items()},
        "model_type": _TYPE,
        _TYPE: {"format": MODEL_FORMAT, "version": VERSION, "model": full.model_dump(mode="json")},
        **{name: ast.literal_eval(value) for name, value in fields},
        **(label_fields(full, task) if code.ending == _LABELS else {}),
        "dtype": str(model.embedding.weight.dtype).removeprefix("torch."),
    }
    files = {FILE: text.encode(), **code.family.folder_files(text_model, described, full)}
    tensors, compare = dict[str, Tensor](), partial(_certify, model, code, ids, task)
    for pair in code.pairs():
        tensors |= pair.write(weights[pair.ours])
    return save_exported(text_model, full, out, described, tensors, files, compare, code=reason)


def _certify(
    model: Transformer, code: Code, ids: Fields, task: Task | None, folder: Path
) -> dict[str, Any]:
    """Compare a model's logits and greedy tokens with those of its file, run as a fresh module."""
    outputs = {"logits": "label_logits" if model.config.label_outputs else "logits"}
    if code.ending == "Model":
        pooled = {"pooler_output": "pooled"} if model.config.pooler == "tanh" else {}
        outputs = {"last_hidden_state": "states", **pooled}
    oracle = Oracle(f"Sublayer{code.ending}", outputs)
    module, loaded = ModuleType(f"sublayer_exported_{id(code)}"), list[Any]()

    def load() -> Any:
        exec(compile((folder / FILE).read_bytes(), FILE, "exec"), module.__dict__)
        with quiet():
            loaded.append(getattr(module, oracle.name).from_pretrained(folder))
        return loaded[0]

    sys.modules[module.__name__] = module
    try:
        certificate = certify(model, ids, {}, oracle, task, load)
        if loaded and code.predicts and model.config.kind != "encoder":
            certificate["greedy_tokens"] = _compare_greedy(model, loaded[0], ids)
    finally:
        del sys.modules[module.__name__]
    return certificate


@torch.no_grad()
def _compare_greedy(model: Transformer, theirs: Any, ids: Fields) -> dict[str, Any]:
    """Check that greedy tokens behind random ones, with caches, are the model's, in float64."""
    batch = CertificateBatch.draw(model.config)
    n_rows, length = batch.tokens.shape
    n = min(_MOST_TOKENS, length // 2)
    if not n:
        return {}
    theirs.config.eos_token_id = None
    if theirs.can_generate():
        start = {"decoder_start_token_id": ids.get("decoder_start_token_id")}
        theirs.generation_config = type(theirs.generation_config)(**start)  # no other settings
    with computing_in(model, torch.float64), computing_in(theirs, torch.float64):
        if isinstance(model, EncoderDecoder):
            given = {"attention_mask": batch.mask.long(), "max_new_tokens": n}
            found = theirs.generate(batch.tokens, **given)
            logits = model(batch.tokens, batch.mask, target=found).logits
        else:
            found = theirs.generate(batch.tokens[:, : length - n], max_new_tokens=n)
            logits = model(found).logits
    likeliest = logits[:, -n - 1 : -1, : model.config.vocab_size].argmax(-1)
    if not torch.equal(found[:, -n:], likeliest):
        raise CheckpointError(
            "the written model continues random tokens otherwise: it was not written"
        )
    return {"rows": n_rows, "length": n, "equal": n_rows * n}
