"""fairseq's checkpoints: its Transformer, Macaron Net's translators and Macaron Net's BERT."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sublayer.config.data import is_codes_file
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import stacks
from sublayer.config.table import MOST_LABELS
from sublayer.counts import count
from sublayer.data.subwords.word_bpe import WordBpeTokenizer, find_dictionary, read_codes
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.languages import BilingualTokenizer, LanguageRules, MosesTokenizer
from sublayer.errors import CheckpointError
from sublayer.files.parsing import MAX_BYTES, read_bytes
from sublayer.interop.answers import default_words, task_of
from sublayer.interop.certificate import certify
from sublayer.interop.fairseq_file import find_checkpoint, read_checkpoint
from sublayer.interop.folder import CONFIG, check_paths
from sublayer.interop.foreign_config import (
    REQUIRED,
    ClassConfig,
    ClassFields,
    Content,
    Field,
    Link,
    flag,
    format_value,
    names,
    network,
    optional,
    rule_of,
    same,
    share,
    switch,
    switched_off,
    whole,
)
from sublayer.interop.huggingface import save_imported
from sublayer.interop.representable import refused_fields
from sublayer.interop.seq2seq import BLOCK, M2M100, UNIT
from sublayer.interop.tokenizers import check_tokenizer
from sublayer.interop.translator_tokenizers import UNKNOWN_LANGUAGE
from sublayer.interop.weight_map import Pair, assemble, pair_blocks, pair_linear
from sublayer.model.model_folder import check_finite, check_float
from sublayer.model.transformer import Transformer
from sublayer.tasks.spec import TaskSpec
from sublayer.text_model import TextModel

_PAD_ID = 1
"""The padding of every dictionary of fairseq.

Its entries are <s> (once <Lua heritage>), <pad>, </s>, <unk>, then the words of a text.
"""
_ACTIVATIONS = {
    "relu": ("relu", "tanh"),
    "gelu": ("gelu", "exact"),
    "gelu_accurate": ("gelu", "tanh"),
    "gelu_fast": ("gelu", "tanh"),
    "swish": ("swish", "tanh"),
}
_MACARON = (None, False, True, "new")


def _macaron(value: Any) -> bool:
    if not any(type(value) is type(known) and value == known for known in _MACARON):
        raise ValueError("is not true, false or 'new'")
    return bool(value)


def _even_width(value: Any) -> int:
    width: int = rule_of("d_model")(value)
    if width % 2:
        raise ValueError("is odd: sinusoids come in pairs")
    return width


_BOTH = {
    "encoder_embed_dim": Field(REQUIRED, _even_width, Link("d_model")),
    "encoder_layers": same(REQUIRED, "n_layers"),
    "encoder_attention_heads": same(REQUIRED, "n_heads"),
    "encoder_ffn_embed_dim": same(REQUIRED, "d_ff"),
    "encoder_normalize_before": switch(False, "norm_order", "pre", "post"),
    "dropout": same(0.1, "dropout"),
    "attention_dropout": same(0.0, "dropout_attention"),
    "activation_dropout": Field(None, optional(share)),
    # Older versions name it after their only activation.
    "relu_dropout": Field(None, optional(share)),
    "macaron": Field(False, _macaron),
    "share_all_embeddings": Field(False, flag),
    **switched_off(("encoder_learned_pos", "no_token_positional_embeddings")),
}
_TRANSLATOR = ClassFields(
    title="fairseq's Transformer",
    fields={
        **_BOTH,
        "decoder_embed_dim": same(REQUIRED, "d_model"),
        "decoder_layers": same(REQUIRED, "n_decoder_layers"),
        "decoder_attention_heads": same(REQUIRED, "n_heads"),
        "decoder_ffn_embed_dim": same(REQUIRED, "d_ff"),
        "decoder_normalize_before": switch(False, "norm_order", "pre", "post"),
        "activation_fn": network("relu", _ACTIVATIONS),
        "act_fn": Field(None, lambda value: value),
        "decoder_input_dim": Field(None, optional(rule_of("d_model"))),
        "decoder_output_dim": Field(None, optional(rule_of("d_model"))),
        "no_scale_embedding": switch(False, "embedding_scale", "none", "sqrt"),
        "share_decoder_input_output_embed": Field(False, flag),
        "max_source_positions": Field(None, optional(rule_of("max_len"))),
        "max_target_positions": Field(None, optional(rule_of("max_len"))),
        **switched_off(
            names(
                """
                decoder_learned_pos layernorm_embedding no_normalize_affine no_decoder_final_norm
                adaptive_input adaptive_softmax_cutoff no_cross_attention cross_self_attention
                encoder_layers_to_keep decoder_layers_to_keep encoder_layerdrop decoder_layerdrop
                quant_noise_pq quant_noise_scalar base_layers char_inputs scale_attn scale_fc
                scale_heads scale_resids use_factorized_embedding encoder_recurrent_stacking
                decoder_recurrent_stacking
                """
            )
        ),
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
        # Read where labels are answered.
        "n_classes": Field(None, lambda value: value),
        "max_positions": Field(None, optional(rule_of("max_len"))),
        "criterion": Field(None, lambda value: value),
    },
)
_LONGEST, _LONGEST_BERT = 1024, 384
"""Tokens of an input where the settings do not say it."""
_SIDES = ("encoder", "decoder")
_TABLE, _OUTPUT = "encoder.embed_tokens.weight", "decoder.output_projection.weight"
_TARGET_TABLE, _OLD_OUTPUT = "decoder.embed_tokens.weight", "decoder.embed_out"
_NO_WEIGHTS = ("version", "embed_positions._float_tensor", "embed_positions.weights")
# Norms by number, which is the order of fairseq's code, not that of the computation.
_NUMBERED = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm", "macaron_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
_NORM = re.compile(r"(encoder|decoder)(\.layers\.\d+\.)layer_norms\.([012])\.(weight|bias)")
_FUSED = re.compile(r"(.+_attn\.)in_proj_(weight|bias)")
_BERT_OUTPUT = "embed_out"
_HEAD, _SEGMENTS, _CLASSIFIER = "mid_layer.", "encoder.embed_segment.weight", "classifier"
_BINARY, _CLASSES, _NUMBER = (
    "cross_entropy_classify_binary",
    "cross_entropy_classify",
    "mean_squared_error",
)
_READS_WORDS = (
    "it reads words that spaces divide, as the text was prepared for training, "
    "and writes such words"
)
_READS_TEXT = "it reads text by Moses' rules, in lower case, as the published code prepares it"
_LACKS_CODES = (
    "its codes (codes, code, bpecodes, *.codes) and its dictionary (dict.de.txt) "
    "are not both beside it"
)
_ORACLE = M2M100()
# transformers makes the three tables one only where the output is one with them.
_RENAMED = {
    _TABLE: tuple(
        f"model.{name}.weight"
        for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
    ),
    _OUTPUT: ("lm_head.weight",),
}


def import_fairseq(path: Path, out: Path) -> dict[str, Any]:
    """Convert a checkpoint of fairseq to a new model folder; return its certificate.

    ``path`` is the file, or a folder that holds one; with codes and a dictionary beside it the
    tokenizer comes along, which reads words as the model was trained on them. The certificate names
    every tensor that was left out. Where transformers has an equivalent class (M2M100's, for
    pre-norm models except Macaron Net's), the logits are compared.

    Raises CheckpointError where the checkpoint is damaged, cannot be represented, or gives other
    logits there, ConfigError where ``out`` exists.
    """
    check_paths(path, out)
    text_model, weights, left_out = read_fairseq(path)
    model = text_model.model
    note = _LACKS_CODES
    if text_model.tokenizer is not None:
        note = _READS_TEXT if model.config.kind == "encoder" else _READS_WORDS
    compared = _certify(model, weights)
    certificate = {**compared, "left_out": left_out, "tokenizer": note}
    save_imported(text_model, out, certificate)
    return certificate


def read_fairseq(path: Path) -> tuple[TextModel, dict[str, Tensor], dict[str, Any]]:
    """Read the model of a checkpoint, in evaluation mode.

    Also returns its tensors by their newest names, and what was omitted: number of optimizer
    tensors, names of buffers and copies of the embedding matrix. The tokenizer is read from codes
    and a dictionary next to the file.

    Raises CheckpointError where any of the files is damaged, or they do not belong together.
    """
    file = find_checkpoint(path)
    checkpoint = read_checkpoint(file)
    encodes = _is_bert(checkpoint.tensors)
    fields = _BERT if encodes else _TRANSLATOR
    weights, no_weights = _upgraded(checkpoint.tensors)
    table = weights[_TABLE]
    if table.dim() != 2 or not len(table):
        shape = list(table.shape)
        raise CheckpointError(f"{_TABLE} has shape {shape}, which is no embedding matrix's")
    settings = fields.read(checkpoint.settings)
    take_copies, read_config = _take_translator_copies, _read_translator_config
    if encodes:
        take_copies, read_config = _prepare_bert, _read_bert_config
    copies = take_copies(settings, weights)
    kind = MosesTokenizer if encodes else WordBpeTokenizer
    tokenizer = _read_vocabulary(file.parent, len(table), kind)
    final = _has_final_norm(weights, checkpoint.tensors)
    shared = _shared_fields(settings, len(table), has_final_norm=final)
    config = settings.resolve({**shared, **read_config(settings, weights)})
    pairs = _pairs(config, _BERT_OUTPUT if encodes else _OUTPUT)
    model = assemble(weights, pairs, config, title=fields.title, file=settings.file)
    if tokenizer is not None and not encodes:
        sides = [checkpoint.settings.fields.get(f"{side}_lang") for side in ("source", "target")]
        rules = [LanguageRules(str(side or UNKNOWN_LANGUAGE)) for side in sides]
        tokenizer = BilingualTokenizer(tokenizer, *rules)
    task = _bert_task(settings, config)
    left_out = {
        "optimizer_tensors": checkpoint.n_optimizer,
        "no_weights": no_weights,
        "copies": copies,
    }
    return TextModel(model, tokenizer, task), weights, left_out


def _read_vocabulary(
    folder: Path, vocab_size: int, kind: type[WordBpeTokenizer]
) -> Tokenizer | None:
    """Read codes with the dictionary beside a checkpoint; None where one of them is not there.

    Raises CheckpointError where a dictionary beside it is not of the table's size.
    """
    n_special = len(kind.specials)
    for path in sorted(folder.glob("dict*.txt")):
        content = read_bytes(path, CheckpointError, max_bytes=MAX_BYTES)
        n_entries = n_special + sum(bool(line.strip()) for line in content.split(b"\n"))
        if n_entries != vocab_size:
            raise CheckpointError(
                f"{path} has {n_entries} entries with the {n_special} special ones, "
                f"{_TABLE} has {count(vocab_size, 'row')}: they do not belong together"
            )
    dictionary = find_dictionary(folder)
    codes = sorted(p for p in folder.iterdir() if p.is_file() and is_codes_file(p.name))
    if dictionary is None or not codes:
        return None
    if len(codes) > 1:
        raise CheckpointError(
            f"{folder} has {codes[0].name} and {codes[1].name}: leave the codes of the model alone"
        )
    return check_tokenizer(read_codes(codes[0], dictionary, kind=kind), folder, vocab_size)


def _certify(model: Transformer, weights: Mapping[str, Tensor]) -> dict[str, Any]:
    config = model.config
    if config.kind == "encoder":
        return {"checked": False, "reason": f"no class of it is {_BERT.title}"}
    lacking = ", ".join(refused_fields(config, _ORACLE.table))
    if config.norm_order == "post":
        lacking = "post-norm with fairseq's sinusoids"
    if lacking:
        return {"checked": False, "reason": f"no class of it has {lacking}"}
    tensors = {}
    for name, tensor in weights.items():
        for new in _RENAMED.get(name, (_ORACLE.prefix + name,)):
            tensors[new] = tensor.clone()
    fields = _ORACLE.write_config(config, None)
    described = _ORACLE.fields.read(Content(CONFIG, fields))
    return certify(model, described.given, tensors, _ORACLE.oracle(config))


def _upgraded(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Rename and split a checkpoint's tensors; return them, and the names of buffers.

    Numbered norms are named; a joint matrix of queries, keys and values is split.

    Raises CheckpointError where a tensor stands under an old and a new name, an embedding matrix is
    missing, or numbers are not finite floats.
    """
    buffers = [f"{side}.{name}" for side in _SIDES for name in _NO_WEIGHTS]
    no_weights = sorted(name for name in buffers if name in tensors)
    weights: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in no_weights:
            continue
        for new, part in _upgrade(name, tensor).items():
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
    return weights, no_weights


def _has_final_norm(weights: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> bool:
    """Check whether a norm follows each stack, from upgraded weights and the file's tensors.

    It does after pre-norm blocks, except in checkpoints older than version 2.
    """
    version = tensors.get("encoder.version")
    if version is not None and version.numel() == 1 and float(version) >= 2:
        return True
    return any(f"{side}.layer_norm.weight" in weights for side in _SIDES)


def _upgrade(name: str, tensor: Tensor) -> dict[str, Tensor]:
    if name == _OLD_OUTPUT:
        return {_OUTPUT: tensor}
    if match := _NORM.fullmatch(name):
        side, layer, number, kind = match.groups()
        norm = _NUMBERED[side][int(number)]
        return {f"{side}{layer}{norm}.{kind}": tensor}
    if match := _FUSED.fullmatch(name):
        if tensor.dim() == 0 or tensor.shape[0] % 3:
            shape = list(tensor.shape)
            raise CheckpointError(
                f"{name} has shape {shape}: queries, keys and values are not its thirds"
            )
        attention, kind = match.groups()
        thirds = {}
        for letter, part in zip("qkv", tensor.chunk(3), strict=True):
            thirds[f"{attention}{letter}_proj.{kind}"] = part
        return thirds
    return {name: tensor}


def _take_translator_copies(settings: ClassConfig, weights: dict[str, Tensor]) -> list[str]:
    """Remove copies of the encoder's embedding matrix.

    Raises CheckpointError where there is no decoder's, or one that is said to be a copy differs.
    """
    if _TARGET_TABLE not in weights:
        raise CheckpointError(
            f"the weights lack {_TARGET_TABLE}: of fairseq's models only translators and Macaron "
            "Net's BERT can be imported"
        )
    return [
        *_drop_copy(settings, weights, _TARGET_TABLE, is_tied=True),
        *_drop_copy(settings, weights, _OUTPUT, is_tied=_is_tied(settings)),
    ]


def _is_tied(settings: ClassConfig) -> bool:
    ties = ("share_all_embeddings", "share_decoder_input_output_embed")
    return any(settings.fields.get(name) for name in ties)


def _drop_copy(
    settings: ClassConfig, weights: dict[str, Tensor], name: str, *, is_tied: bool
) -> list[str]:
    """Remove a matrix that is the embedding matrix, and return its name in a list.

    One that is absent, or that no setting ties, stays away or stays, and the list is empty. Raises
    CheckpointError where one that is tied differs.
    """
    if not is_tied or name not in weights:
        return []
    if not torch.equal(weights[name], weights[_TABLE]):
        raise CheckpointError(
            f"{name} differs from {_TABLE}, with which it is one matrix, of source and target "
            f"alike, or by {settings.file}"
        )
    del weights[name]
    return [name]


def _read_translator_config(settings: ClassConfig, weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Convert the settings of fairseq's Transformer, or of Macaron Net's, to fields of a model.

    Source and target share one maximum length, the shorter.

    Raises CheckpointError, naming the setting, where it asks for something that a recipe cannot
    say.
    """
    given = settings.fields
    for name in ("activation_fn", "act_fn"):
        other = given[name] or "relu"
        # Macaron Net's code has no other activation.
        if other != "relu" and (given["macaron"] or name == "act_fn"):
            raise CheckpointError(
                f"{settings.file}: {name} = {format_value(other)}: "
                "Macaron Net's translation models have relu"
            )
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if given[name] not in (None, given["decoder_embed_dim"]):
            raise CheckpointError(
                f"{settings.file}: {name} = {given[name]} is not decoder_embed_dim = "
                f"{given['decoder_embed_dim']}: the embedding matrix is as wide as the model"
            )
    longest = [given[f"max_{side}_positions"] or _LONGEST for side in ("source", "target")]
    return {
        "kind": "encoder-decoder",
        "block": "macaron" if given["macaron"] else "transformer",
        "decoder_start": "end",
        "tie_embeddings": _is_tied(settings),
        "init": "xavier",
        "max_len": min(longest),
    }


def _shared_fields(settings: ClassConfig, n_rows: int, *, has_final_norm: bool) -> dict[str, Any]:
    """Return the common fields of translators and Macaron Net's BERT."""
    given, ours = settings.fields, settings.ours
    final_norm = "affine" if ours.get("norm_affine", True) else "plain"
    return {
        **ours,
        "norm_eps": 1e-5,
        "final_norm": final_norm if has_final_norm and ours["norm_order"] == "pre" else "none",
        "positions": "sinusoidal",
        "sinusoids": "fairseq",
        "first_position": _PAD_ID + 1,
        "dropout_ffn": given["activation_dropout"] or given["relu_dropout"] or 0.0,
        "vocab_size": n_rows,
    }


def _is_bert(tensors: Mapping[str, Tensor]) -> bool:
    """Check whether a checkpoint's tensors belong to an encoder with segments, and no decoder."""
    return _SEGMENTS in tensors and not any(name.startswith("decoder.") for name in tensors)


def _prepare_bert(settings: ClassConfig, weights: dict[str, Tensor]) -> list[str]:
    """Turn upgraded weights, in place, into those by our conventions; return the copies left out.

    The first segment's vector, which the code pads with, is left out where it is zero; the output
    for pairs is negated: theirs is the logit of a text that follows, ours of one that does not.

    Raises CheckpointError where the output matrix is said to be the embedding matrix and differs.
    """
    table = weights.get(_SEGMENTS)
    if table is None or table.dim() != 2 or len(table) != 2:
        raise CheckpointError(f"{_SEGMENTS} is no table of two segments")
    # The code numbers them in reverse: 1 is the first text.
    weights[_SEGMENTS] = table.flip(0) if table[1].any() else table[:1]
    if not _predicts(weights):
        return []
    for name in (f"{_CLASSIFIER}.weight", f"{_CLASSIFIER}.bias"):
        if name in weights:
            weights[name] = -weights[name]
    return _drop_copy(settings, weights, _BERT_OUTPUT, is_tied=_is_tied(settings))


def _read_bert_config(settings: ClassConfig, weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Convert the settings of the fork's BERT, or of its classifier, to fields of a model.

    The code applies the configured activation only to the second network of a Macaron block: the
    first has ReLU. Norms may lack parameters, except the masked-token head's.
    """
    given = settings.fields
    ffn = f"ffn:{settings.ours['ffn']}"
    block = ["ffn:relu*0.5", "attention", f"{ffn}*0.5"] if given["macaron"] else ["attention", ffn]
    head = {
        "head": "transform",
        "sentence_classes": 1,
        "tie_embeddings": _BERT_OUTPUT not in weights,
    }
    if not _predicts(weights):
        n_classes = settings.read("n_classes", optional(whole(MOST_LABELS)))
        head = {"head": "none", "label_outputs": n_classes or 1}
    return {
        "kind": "encoder",
        "block": block,
        "embedding_scale": "sqrt",
        "segments": "second" if len(weights[_SEGMENTS]) == 1 else "both",
        **head,
        "init": "kaiming",
        "zero_padding": True,
        "max_len": given["max_positions"] or _LONGEST_BERT,
    }


def _pairs(config: ResolvedModel, output: str) -> Iterator[Pair]:
    """Pair the tensors that ``_prepare`` left with a model's; ``output`` names the output matrix.

    The first feed-forward network of a block is Macaron Net's first half.
    """
    yield Pair((_TABLE,), "embedding.weight")
    halves = {"ffn 0": ("macaron_layer_norm", "macaron_fc1", "macaron_fc2")}
    yield from pair_blocks(config, UNIT, {**BLOCK, **halves})
    *beside, last = stacks(config)
    for stack in beside:
        yield from pair_linear(f"{stack.name}.layer_norm", "source.final_norm")
    yield from pair_linear(f"{last.name}.layer_norm", "final_norm")
    yield Pair((output,), "head.weight")
    yield Pair((_SEGMENTS,), "segment_table.weight")
    yield from pair_linear(f"{_HEAD}0", "head.projection")
    yield from pair_linear(f"{_HEAD}2", "head.norm")
    for head in ("sentence_head", "label_head"):
        yield from pair_linear(_CLASSIFIER, head)


def _bert_task(settings: ClassConfig, config: ResolvedModel) -> TaskSpec | None:
    """Return the task of a fine-tuned model; None where it was not.

    Labels have no names there. A single output is the logit of the second of two labels, or a
    number on the scale of STS-B, ``(score - 3) / 2``, by its criterion.

    Raises CheckpointError for any other criterion.
    """
    n_outputs = config.label_outputs
    if not n_outputs:
        return None
    criterion = settings.fields["criterion"]
    if criterion == _NUMBER and n_outputs == 1:
        return task_of("number", (), config, numbers=(1.0, 5.0))
    if criterion == _BINARY and n_outputs == 1:
        return task_of("classes", default_words(2), config)
    if criterion == _CLASSES and n_outputs > 1:
        return task_of("classes", default_words(n_outputs), config)
    raise CheckpointError(
        f"{settings.file}: criterion = {format_value(criterion)} of n_classes = {n_outputs} does "
        f"not say what is answered: it is {_BINARY} or {_NUMBER} of one output, or {_CLASSES}"
    )


def _predicts(weights: Mapping[str, Tensor]) -> bool:
    """Check whether masked tokens are predicted; a fine-tuned model has only a label head."""
    return any(name.startswith((_HEAD, _BERT_OUTPUT)) for name in weights)
