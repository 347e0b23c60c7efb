"""fairseq's checkpoints: its Transformer, Macaron Net's translators and Macaron Net's BERT."""

import argparse
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor
from torch.serialization import safe_globals

from sublayer.config.data import is_codes_file
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import stacks
from sublayer.config.table import MOST_LABELS
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.languages import BilingualTokenizer, LanguageRules, MosesTokenizer
from sublayer.data.tokenizers.word_bpe import WordBpeTokenizer, find_dictionary, read_codes
from sublayer.errors import CheckpointError
from sublayer.files.parsing import MAX_BYTES, read_bytes
from sublayer.files.storage import check_paths
from sublayer.interop.certificate import certify, save_imported
from sublayer.interop.family import default_words, task_of
from sublayer.interop.folder import CONFIG
from sublayer.interop.foreign_config import (
    ACTIVATIONS,
    ClassConfig,
    ClassFields,
    Content,
    Field,
    flag,
    harmless,
    linked,
    network,
    optional,
    pairs_of,
    refused_fields,
    rule_of,
    share,
    switch,
    switched_off,
    whole,
)
from sublayer.interop.seq2seq import BLOCK, M2M100, UNIT, IfGiven
from sublayer.interop.tokenizers import UNKNOWN_LANGUAGE
from sublayer.interop.weight_map import Pair, pair_blocks, pair_linear, read_pairs
from sublayer.loading import with_weights
from sublayer.model.model_folder import check_finite, check_float
from sublayer.numbers import count
from sublayer.text_model import TextModel
from sublayer.values import show

_MOST_VALUES, _MOST_BITS = 10_000, 128
"""The most values in a setting, and the most bits of a number."""
# Files up to 0.8 contain training meters, of fairseq classes.
_METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter")
# Errors of reading a truncated or changed file.
_DAMAGES = (
    *(RuntimeError, EOFError, OSError, ValueError, LookupError, TypeError, AttributeError),
    *(AssertionError, OverflowError, MemoryError, struct.error, zlib.error, zipfile.BadZipFile),
)


class _Meter:
    """A placeholder for fairseq's training meters: it keeps the file's values and does nothing."""


def find_checkpoint(path: Path) -> Path:
    """Find the checkpoint, the file or a folder's only ``*.pt``; else raise CheckpointError."""
    checkpoints = [path] if path.is_file() else sorted(path.glob("*.pt"))
    if not checkpoints:
        raise CheckpointError(
            f"{path} is neither a fairseq checkpoint nor a folder with one (*.pt)"
        )
    if len(checkpoints) > 1:
        others = f"{len(checkpoints) - 1} more: name one of them"
        raise CheckpointError(f"{path} has {checkpoints[0].name} and {others}")
    return checkpoints[0]


def read_checkpoint(path: Path) -> tuple[Content, dict[str, Tensor], int]:
    """Read a checkpoint of fairseq 0.6 or later; its tensors are on the CPU.

    Returns the model's settings, nested ones prefixed by ``encoder_`` and the like; its tensors;
    and the number of optimizer tensors, which are dropped. Only tensors, plain values and
    ``argparse.Namespace`` are built; a training meter becomes an inert placeholder. Raises
    CheckpointError where the file is damaged, names another class, or holds no model.
    """
    content = _load(path)
    if not isinstance(content, Mapping) or not isinstance(content.get("model"), Mapping):
        raise CheckpointError(f"{path} holds no model: it is not a fairseq checkpoint")
    tensors = {}
    for name, tensor in content["model"].items():
        is_plain = (
            isinstance(tensor, Tensor)
            and tensor.layout == torch.strided
            and not tensor.is_meta
            and not tensor.is_quantized
            # A tensor with repeated elements needs more memory than the file has bytes.
            and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
        )
        if not isinstance(name, str) or not is_plain:
            raise CheckpointError(
                f"{path}: model holds {name!r}, which is not the name of a plain tensor"
            )
        tensors[name] = tensor.detach()
    fields, config = content.get("args"), content.get("cfg")
    if fields is None and isinstance(config, Mapping):
        fields = config.get("model")
    fields = vars(fields) if isinstance(fields, argparse.Namespace) else fields
    if not isinstance(fields, Mapping):
        raise CheckpointError(
            f"{path} has no settings of its model: it has neither args nor cfg with model"
        )
    settings = {name: value for name, value in fields.items() if not isinstance(value, Mapping)}
    for side in ("encoder", "decoder", "quant_noise"):
        if isinstance(inner := fields.get(side), Mapping):
            settings |= {f"{side}_{name}": value for name, value in inner.items()}
    for name, value in settings.items():
        if not isinstance(name, str) or not _is_setting(value):
            kind = type(value).__name__
            raise CheckpointError(
                f"{path}: the setting {name!s:.60} holds a {kind}, not a plain value"
            )
    waiting, seen, n_optimizer = [content.get("last_optimizer_state")], set[int](), 0
    while waiting:
        node = waiting.pop()
        n_optimizer += isinstance(node, Tensor)
        # A pickled list may contain itself, or the same list many times.
        if isinstance(node, Mapping | list | tuple) and id(node) not in seen:
            seen.add(id(node))
            waiting += node.values() if isinstance(node, Mapping) else node
    return Content(path.name, settings), tensors, n_optimizer


def _load(path: Path) -> Any:
    safe: list[Any] = [(_Meter, f"fairseq.meters.{name}") for name in _METERS]
    try:
        _check_sums(path)
        with safe_globals([argparse.Namespace, *safe]), warnings.catch_warnings(action="ignore"):
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        if named := re.search(r"GLOBAL (\S+)", str(error)):
            raise CheckpointError(
                f"{path} names {named[1]}, and code that a file names is never run: "
                "open it where fairseq is installed and save its 'model', "
                "and its 'args' or 'cfg' as plain values, with torch.save"
            ) from None
        raise CheckpointError(
            f"{path} is damaged, or not a fairseq checkpoint: it holds no tensors"
        ) from None
    except _DAMAGES as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(
            f"{path} is damaged or truncated, or not a file that torch.save wrote: {reason}"
        ) from None


def _check_sums(path: Path) -> None:
    # torch.save writes a zip archive since 1.6; torch.load does not verify its checksums.
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            # torch never compresses; a small compressed file could expand to a huge one.
            is_stored = member.compress_type == zipfile.ZIP_STORED
            if not is_stored or member.file_size != member.compress_size:
                problem = "is compressed, but torch.save never compresses"
                raise zipfile.BadZipFile(f"{member.filename!r} {problem}")
        if (name := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"the checksum of {name!r} does not match its bytes")


def _is_setting(value: Any) -> bool:
    """Check whether a value fits a command line: no tensor, no huge number or list."""
    values = [value]
    for node in values:  # nested ones are appended
        if isinstance(node, list | tuple | Mapping):
            values += [*node, *node.values()] if isinstance(node, Mapping) else node
            if len(values) > _MOST_VALUES:
                return False
        elif type(node) is int:
            if node.bit_length() > _MOST_BITS:
                return False
        elif node is not None and type(node) not in (bool, float, str):
            return False
    return True


_PAD_ID = 1
"""The padding of every dictionary of fairseq.

Its entries are <s> (once <Lua heritage>), <pad>, </s>, <unk>, then the words of a text.
"""
_ACTIVATIONS = {name: ACTIVATIONS[name] for name in ("relu", "gelu", "swish")}
_ACTIVATIONS |= dict.fromkeys(("gelu_accurate", "gelu_fast"), ACTIVATIONS["gelu_new"])
_WIDTH = Field(None, optional(rule_of("d_model")), IfGiven("d_model"))
_LENGTH = Field(None, optional(rule_of("max_len")))
_BOTH = {
    **linked("encoder_embed_dim:d_model encoder_layers:n_layers encoder_attention_heads:n_heads"),
    **linked("encoder_ffn_embed_dim:d_ff dropout=0.1 attention_dropout:dropout_attention=0.0"),
    "encoder_normalize_before": switch(False, "norm_order", "pre", "post"),
    # Older versions name it after their only activation.
    **dict.fromkeys(("activation_dropout", "relu_dropout"), Field(None, optional(share))),
    "macaron": harmless(False, True, None, "new"),
    "share_all_embeddings": Field(False, flag),
    **switched_off(("encoder_learned_pos", "no_token_positional_embeddings")),
}
_WITHOUT_EQUIVALENT = """
    decoder_learned_pos layernorm_embedding no_normalize_affine no_decoder_final_norm adaptive_input
    adaptive_softmax_cutoff no_cross_attention cross_self_attention encoder_layers_to_keep
    decoder_layers_to_keep encoder_layerdrop decoder_layerdrop quant_noise_pq quant_noise_scalar
    base_layers char_inputs scale_attn scale_fc scale_heads scale_resids use_factorized_embedding
    encoder_recurrent_stacking decoder_recurrent_stacking
"""
_TRANSLATOR = ClassFields(
    title="fairseq's Transformer",
    fields={
        **_BOTH,
        **linked("decoder_embed_dim:d_model decoder_layers:n_decoder_layers"),
        **linked("decoder_attention_heads:n_heads decoder_ffn_embed_dim:d_ff"),
        "decoder_normalize_before": switch(False, "norm_order", "pre", "post"),
        "activation_fn": network("relu", _ACTIVATIONS),
        # Macaron Net's code has no other activation.
        "act_fn": harmless(None, "relu"),
        **dict.fromkeys(("decoder_input_dim", "decoder_output_dim"), _WIDTH),
        "no_scale_embedding": switch(False, "embedding_scale", "none", "sqrt"),
        "share_decoder_input_output_embed": Field(False, flag),
        **dict.fromkeys(("max_source_positions", "max_target_positions"), _LENGTH),
        **switched_off(_WITHOUT_EQUIVALENT.split()),
    },
)
# Macaron Net's BERT. Source: Lu et al. 2019 (1906.02762), as released (zhuohan123/macaron-net,
# ``bert``). Pre-training saves an encoder with heads for masked tokens and for pairs, fine-tuning
# one with a head for labels.
_BERT = ClassFields(
    title="Macaron Net's BERT",
    fields={
        **_BOTH,
        "act_fn": network("gelu", {"relu": ("relu", "exact"), "gelu": ("gelu", "exact")}),
        "no_normalize_affine": switch(False, "norm_affine", on=False, off=True),
        # Read only for a model with a label head.
        **dict.fromkeys(("n_classes", "criterion"), Field(None, lambda value: value)),
        "max_positions": _LENGTH,
    },
)
_TIES = ("share_all_embeddings", "share_decoder_input_output_embed")
_LONGEST, _LONGEST_BERT = 1024, 384
"""The longest input, in tokens, where the settings give none."""
_SIDES = ("encoder", "decoder")
_TABLE, _OUTPUT = "encoder.embed_tokens.weight", "decoder.output_projection.weight"
_TARGET_TABLE, _OLD_OUTPUT = "decoder.embed_tokens.weight", "decoder.embed_out"
_NO_WEIGHTS = ("version", "embed_positions._float_tensor", "embed_positions.weights")
# Norms by number: in the order of fairseq's code, not of the computation.
_NUMBERED = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm", "macaron_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
_NORM = re.compile(r"(encoder|decoder)(\.layers\.\d+\.)layer_norms\.([012])\.(weight|bias)")
_FUSED = re.compile(r"(.+_attn\.)in_proj_(weight|bias)")
_BERT_OUTPUT = "embed_out"
_HEAD, _SEGMENTS, _CLASSIFIER = "mid_layer.", "encoder.embed_segment.weight", "classifier"
_BINARY, _CLASSES = "cross_entropy_classify_binary", "cross_entropy_classify"
_NUMBER = "mean_squared_error"
_READS_WORDS = (
    "it reads and writes words separated by spaces, as the text was prepared for training"
)
_READS_TEXT = "it applies Moses' rules and lower case to text, as the published code does"
_LACKS_CODES = (
    "its codes (codes, code, bpecodes, *.codes) and its dictionary (dict.de.txt) "
    "are not both next to it"
)
_ORACLE = M2M100()
# transformers ties the three embedding tables only where the output matrix is tied to them too.
_RENAMED = {
    _TABLE: tuple(
        f"model.{name}.weight"
        for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
    ),
    _OUTPUT: ("lm_head.weight",),
}


def import_fairseq(path: Path, out: Path) -> dict[str, Any]:
    """Convert a checkpoint of fairseq, or a folder with one; return the certificate.

    Its tokenizer, of codes and a dictionary next to it, is imported too. Where transformers has an
    equivalent class (M2M100's, for pre-norm models except Macaron Net's), the logits are compared.

    Raises CheckpointError where the checkpoint is damaged, cannot be represented, or gives other
    logits in transformers; ConfigError where ``out`` exists.
    """
    check_paths(path, out)
    text_model, weights, left_out = read_fairseq(path)
    config, lacking = text_model.model.config, ""
    if config.kind == "encoder":
        lacking = f"for {_BERT.title}"
    elif config.norm_order == "post":
        lacking = "with post-norm with fairseq's sinusoids"
    elif refused := refused_fields(config, _ORACLE.table):
        lacking = f"with {', '.join(refused)}"
    compared = {"checked": False, "reason": f"it has no class {lacking}"}
    if not lacking:
        tensors = {
            new: tensor
            for name, tensor in weights.items()
            for new in _RENAMED.get(name, (_ORACLE.prefix + name,))
        }
        described = _ORACLE.fields.read(Content(CONFIG, _ORACLE.write_config(config, None)))
        compared = certify(text_model.model, described.computed, tensors, _ORACLE.oracle(config))
    note = _READS_TEXT if config.kind == "encoder" else _READS_WORDS
    note = _LACKS_CODES if text_model.tokenizer is None else note
    certificate = {**compared, "left_out": left_out, "tokenizer": note}
    save_imported(text_model, out, certificate)
    return certificate


def read_fairseq(path: Path) -> tuple[TextModel, dict[str, Tensor], dict[str, Any]]:
    """Read the model of a checkpoint, in evaluation mode, with its tokenizer.

    Also returns its tensors by fairseq's newest names, and the omitted parts: the number of
    optimizer tensors, the names of buffers and of copies of the embedding matrix. Raises
    CheckpointError where any of the files is damaged, or they do not belong together.
    """
    file = find_checkpoint(path)
    content, tensors, n_optimizer = read_checkpoint(file)
    # Macaron Net's BERT is an encoder with segments, and no decoder.
    encodes = _SEGMENTS in tensors and not any(name.startswith("decoder.") for name in tensors)
    weights, no_weights = _upgraded(tensors)
    n_rows = len(weights[_TABLE])
    fields, output = (_BERT, _BERT_OUTPUT) if encodes else (_TRANSLATOR, _OUTPUT)
    settings = fields.read(content)
    if not encodes and _TARGET_TABLE not in weights:
        raise CheckpointError(
            f"the weights lack {_TARGET_TABLE}: only fairseq's translators and Macaron Net's BERT "
            "can be imported"
        )
    is_tied = any(settings.fields.get(name) for name in _TIES)
    copies = [name for name in (_TARGET_TABLE, *(output,) * is_tied) if name in weights]
    for name in copies:
        if not torch.equal(weights.pop(name), weights[_TABLE]):
            raise CheckpointError(
                f"{name} differs from {_TABLE}, but must equal it: source and target share one "
                f"embedding matrix, or {settings.file} ties them"
            )
    kind = MosesTokenizer if encodes else WordBpeTokenizer
    n_special = len(kind.specials)
    folder = file.parent
    for path in sorted(folder.glob("dict*.txt")):
        lines = read_bytes(path, CheckpointError, max_bytes=MAX_BYTES).split(b"\n")
        n_entries = n_special + sum(bool(line.strip()) for line in lines)
        if n_entries != n_rows:
            raise CheckpointError(
                f"{path} has {n_entries} entries, the {n_special} special ones included, but "
                f"{_TABLE} has {count(n_rows, 'row')}: they do not belong together"
            )
    dictionary = find_dictionary(folder)
    codes = sorted(p for p in folder.iterdir() if p.is_file() and is_codes_file(p.name))
    tokenizer: Tokenizer | None = None
    if dictionary is not None and codes:
        if len(codes) > 1:
            both = f"{codes[0].name} and {codes[1].name}"
            raise CheckpointError(f"{folder} has {both}: keep only the codes of the model")
        tokenizer = read_codes(codes[0], dictionary, kind=kind)
        if not encodes:
            sides = [content.fields.get(f"{side}_lang") for side in ("source", "target")]
            rules = [LanguageRules(str(side or UNKNOWN_LANGUAGE)) for side in sides]
            tokenizer = BilingualTokenizer(tokenizer, *rules)
    # A norm follows each stack of pre-norm blocks, except in checkpoints older than version 2.
    version = tensors.get("encoder.version")
    is_new = version is not None and version.numel() == 1 and float(version) >= 2
    has_final_norm = is_new or any(f"{side}.layer_norm.weight" in weights for side in _SIDES)
    has_final_norm = has_final_norm and settings.ours["norm_order"] == "pre"
    final_norm = "affine" if settings.ours.get("norm_affine", True) else "plain"
    values = settings.fields
    config = settings.resolve(
        {
            **settings.ours,
            "norm_eps": 1e-5,
            "final_norm": final_norm if has_final_norm else "none",
            "positions": "sinusoidal",
            "sinusoids": "fairseq",
            "first_position": _PAD_ID + 1,
            "dropout_ffn": values["activation_dropout"] or values["relu_dropout"] or 0.0,
            "vocab_size": n_rows,
            "tie_embeddings": is_tied or (encodes and output not in weights),
            **(_bert_fields(settings, weights) if encodes else _translator_fields(settings)),
        }
    )
    pairs = _pairs(config, output)
    ours = read_pairs(weights, pairs, config, title=fields.title, file=settings.file)
    task = None
    if n_outputs := config.label_outputs:
        # By the criterion, a single output is the logit of the second of two labels, or a number
        # on the scale of STS-B, (score - 3) / 2.
        criterion = values["criterion"]
        if criterion == _NUMBER and n_outputs == 1:
            task = task_of("number", (), config, numbers=(1.0, 5.0))
        elif criterion == (_BINARY if n_outputs == 1 else _CLASSES):
            task = task_of("classes", default_words(max(2, n_outputs)), config)
        else:
            raise settings.error(
                f"criterion = {show(criterion)} with n_classes = {n_outputs} does not "
                f"determine the task: it must be {_BINARY} or {_NUMBER} with one output, or "
                f"{_CLASSES}"
            )
    left_out = {"optimizer_tensors": n_optimizer, "no_weights": no_weights, "copies": copies}
    return TextModel(with_weights(config, ours), tokenizer, task), weights, left_out


def _upgraded(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Rename numbered norms and split joint maps; return all tensors, and the names of buffers."""
    buffers = [f"{side}.{name}" for side in _SIDES for name in _NO_WEIGHTS]
    no_weights = sorted(name for name in buffers if name in tensors)
    weights: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in no_weights:
            continue
        renamed = {name: tensor}
        if name == _OLD_OUTPUT:
            renamed = {_OUTPUT: tensor}
        elif match := _NORM.fullmatch(name):
            side, layer, number, kind = match.groups()
            renamed = {f"{side}{layer}{_NUMBERED[side][int(number)]}.{kind}": tensor}
        elif match := _FUSED.fullmatch(name):
            if tensor.dim() == 0 or tensor.shape[0] % 3:
                shape = list(tensor.shape)
                raise CheckpointError(
                    f"{name} has shape {shape}, which does not divide into queries, keys and values"
                )
            attention, kind = match.groups()
            thirds = zip("qkv", tensor.chunk(3), strict=True)
            renamed = {f"{attention}{letter}_proj.{kind}": part for letter, part in thirds}
        for new, part in renamed.items():
            if new in weights or (new != name and new in tensors):
                raise CheckpointError(
                    f"the weights hold {new} twice, once as {name}: leave one of them out"
                )
            weights[new] = part
    for name, tensor in weights.items():
        check_float(name, tensor)
        check_finite(name, tensor)
    if _TABLE not in weights:
        raise CheckpointError(f"the weights lack {_TABLE}")
    shape = list(weights[_TABLE].shape)
    if len(shape) != 2 or not shape[0]:
        raise CheckpointError(f"{_TABLE} has shape {shape}, not that of an embedding matrix")
    return weights, no_weights


def _translator_fields(settings: ClassConfig) -> dict[str, Any]:
    """Convert settings of a Transformer, or of Macaron Net's; source and target share a length."""
    fields = settings.fields
    if fields["macaron"] and fields["activation_fn"] != "relu":
        stated = f"activation_fn = {show(fields['activation_fn'])}"
        raise settings.error(f"{stated}: Macaron Net's translation models use relu")
    longest = [fields[f"max_{side}_positions"] or _LONGEST for side in ("source", "target")]
    return {
        "kind": "encoder-decoder",
        "block": "macaron" if fields["macaron"] else "transformer",
        "decoder_start": "end",
        "init": "xavier",
        "max_len": min(longest),
    }


def _bert_fields(settings: ClassConfig, weights: dict[str, Tensor]) -> dict[str, Any]:
    """Convert the settings of the fork's BERT, or of its classifier, and in place its weights.

    The first segment's vector, the code's padding row, is omitted where it is zero. The output for
    pairs is negated: their logit is that the text follows, ours that it does not. The code applies
    the configured activation only to the second network of a Macaron block: the first has ReLU.
    """
    table = weights.get(_SEGMENTS)
    if table is None or table.dim() != 2 or len(table) != 2:
        raise CheckpointError(f"{_SEGMENTS} is missing or not a table of two segments")
    # The code numbers them in reverse: 1 is the first text.
    weights[_SEGMENTS] = table.flip(0) if table[1].any() else table[:1]
    # A pre-trained model predicts masked tokens; a fine-tuned one has only a label head.
    if any(name.startswith((_HEAD, _BERT_OUTPUT)) for name in weights):
        for name in (f"{_CLASSIFIER}.weight", f"{_CLASSIFIER}.bias"):
            if name in weights:
                weights[name] = -weights[name]
        head = {"head": "transform", "sentence_classes": 1}
    else:
        n_classes = settings.read("n_classes", optional(whole(MOST_LABELS)))
        head = {"head": "none", "label_outputs": n_classes or 1}
    fields, ffn = settings.fields, f"ffn:{settings.ours['ffn']}"
    block = ["ffn:relu*0.5", "attention", f"{ffn}*0.5"] if fields["macaron"] else ["attention", ffn]
    return {
        "kind": "encoder",
        "block": block,
        "embedding_scale": "sqrt",
        "segments": "second" if len(weights[_SEGMENTS]) == 1 else "both",
        **head,
        "init": "kaiming",
        "zero_padding": True,
        "max_len": fields["max_positions"] or _LONGEST_BERT,
    }


def _pairs(config: ResolvedModel, output: str) -> Iterator[Pair]:
    """Pair upgraded tensors with a model's; a block's first network is Macaron Net's first half."""
    halves = {"ffn 0": ("macaron_layer_norm", "macaron_fc1", "macaron_fc2")}
    yield from pair_blocks(config, UNIT, {**BLOCK, **halves})
    yield Pair((output,), "head.weight")
    modules = pairs_of(
        f"""
        embedding:encoder.embed_tokens segment_table:encoder.embed_segment
        source.final_norm:encoder.layer_norm final_norm:{stacks(config)[-1].name}.layer_norm
        head.projection:{_HEAD}0 head.norm:{_HEAD}2
        sentence_head:{_CLASSIFIER} label_head:{_CLASSIFIER}
        """
    )
    for ours, theirs in modules:
        yield from pair_linear(theirs, ours)
