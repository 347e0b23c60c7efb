"""Read fairseq's checkpoints: its Transformer, Macaron Net's translators and Macaron Net's BERT."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from sublayer.config.text.tokenizers import is_codes_file
from sublayer.counts import count
from sublayer.data.subwords.bpe_files import find_dictionary, read_codes
from sublayer.data.subwords.word_bpe import WordBpeTokenizer
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.data.tokenizers.moses import MosesTokenizer
from sublayer.errors import CheckpointError
from sublayer.files.parsing import MAX_BYTES, read_bytes
from sublayer.interop.certificate import certify
from sublayer.interop.config_reader import Content
from sublayer.interop.fairseq.fairseq_config import read_fairseq_config
from sublayer.interop.fairseq.fairseq_file import find_checkpoint, read_checkpoint
from sublayer.interop.fairseq.fairseq_weights import (
    OUTPUT,
    TABLE,
    FairseqWeights,
    has_final_norm,
    prepare,
    take_translator_copies,
)
from sublayer.interop.fairseq.macaron_bert import (
    bert_pairs,
    bert_task,
    is_bert,
    prepare_bert,
    read_bert_config,
)
from sublayer.interop.huggingface.classes import FAMILIES
from sublayer.interop.huggingface.exchange import save_imported
from sublayer.interop.huggingface.folder import CONFIG, check_new, check_path
from sublayer.interop.huggingface.folder_tokenizer import check_tokenizer
from sublayer.interop.huggingface.representable import refused_fields
from sublayer.interop.seq2seq.translator_weights import pairs
from sublayer.interop.weight_map import assemble
from sublayer.model.transformer import Transformer

_TITLE, _BERT_TITLE = "fairseq's Transformer", "Macaron Net's BERT"
_UNKNOWN_LANGUAGE = "und"
_READS_WORDS = (
    "it reads words that spaces divide, as the text was prepared for training, "
    "and writes such words"
)
_READS_TEXT = "it reads text by Moses' rules, in lower case, as the published code prepares it"
_LACKS_CODES = (
    "its codes (codes, code, bpecodes, *.codes) and its dictionary (dict.de.txt) "
    "are not both beside it"
)
_ORACLE = FAMILIES["m2m_100"]
# transformers makes the three tables one only where the output is one with them.
_RENAMED = {
    TABLE: tuple(
        f"model.{name}.weight"
        for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
    ),
    OUTPUT: ("lm_head.weight",),
}


def import_fairseq(path: Path, out: Path) -> dict[str, Any]:
    """Convert a checkpoint of fairseq to a new model folder; return its certificate.

    ``path`` is the file, or a folder that holds one; with codes and a dictionary beside it the
    tokenizer comes along, which reads words as the model was trained on them. The certificate names
    every tensor that was left out. Where transformers has an equal class (M2M100's, for pre-norm
    models but Macaron Net's), that class reads the checkpoint's tensors too, and the logits are
    compared.

    Raises CheckpointError where the checkpoint is damaged, cannot be represented, or gives other
    logits there, ConfigError where ``out`` exists.
    """
    check_path(path)
    check_new(out)
    model, weights, n_optimizer = read_fairseq(path)
    left_out = {
        "optimizer_tensors": n_optimizer,
        "no_weights": weights.no_weights,
        "copies": weights.copies,
    }
    note = _LACKS_CODES
    if model.tokenizer is not None:
        note = _READS_TEXT if model.config.kind == "encoder" else _READS_WORDS
    compared = _certify(model, weights.tensors)
    certificate = {**compared, "left_out": left_out, "tokenizer": note}
    save_imported(model, out, certificate)
    return certificate


def read_fairseq(path: Path) -> tuple[Transformer, FairseqWeights, int]:
    """Read the model of a checkpoint, in evaluation mode.

    Beside it stand its tensors, and how many tensors of an optimizer there are. It has a tokenizer
    where codes and a dictionary are beside the file.

    Raises CheckpointError where any of the files is damaged, or they do not belong together.
    """
    file = find_checkpoint(path)
    checkpoint = read_checkpoint(file)
    settings = checkpoint.settings
    encodes = is_bert(checkpoint.tensors)
    take_copies = prepare_bert if encodes else take_translator_copies
    weights = prepare(settings, checkpoint.tensors, take_copies)
    vocab_size = _rows(weights.tensors[TABLE])
    kind = MosesTokenizer if encodes else WordBpeTokenizer
    _check_dictionaries(file.parent, vocab_size, len(kind.specials))
    final = has_final_norm(weights, checkpoint.tensors)
    vocabulary = _read_vocabulary(file.parent, vocab_size, kind)
    if encodes:
        config = read_bert_config(settings, weights.tensors, has_final_norm=final)
        names = bert_pairs(config)
        model = assemble(weights.tensors, names, config, title=_BERT_TITLE, file=settings.file)
        model.task = bert_task(settings, config)
        model.tokenizer = vocabulary
        return model, weights, checkpoint.n_optimizer
    config = read_fairseq_config(settings, vocab_size=vocab_size, has_final_norm=final)
    names = pairs(config, table=TABLE, output=OUTPUT)
    model = assemble(weights.tensors, names, config, title=_TITLE, file=settings.file)
    if vocabulary is not None:
        source = settings.fields.get("source_lang") or _UNKNOWN_LANGUAGE
        target = settings.fields.get("target_lang") or _UNKNOWN_LANGUAGE
        rules = LanguageRules(str(source)), LanguageRules(str(target))
        model.tokenizer = BilingualTokenizer(vocabulary, *rules)
    return model, weights, checkpoint.n_optimizer


def _rows(table: Tensor) -> int:
    if table.dim() != 2 or not len(table):
        raise CheckpointError(
            f"{TABLE} has shape {list(table.shape)}, which is no embedding matrix's"
        )
    return len(table)


def _read(path: Path) -> bytes:
    return read_bytes(path, CheckpointError, max_bytes=MAX_BYTES)


def _check_dictionaries(folder: Path, vocab_size: int, n_special: int) -> None:
    """Raise CheckpointError where a dictionary beside a checkpoint is not of the table's size."""
    for path in sorted(folder.glob("dict*.txt")):
        content = _read(path)
        lines = [line for line in content.split(b"\n") if line.strip()]
        n_entries = n_special + len(lines)
        if n_entries != vocab_size:
            raise CheckpointError(
                f"{path} has {n_entries} entries with the {n_special} special ones, "
                f"{TABLE} has {count(vocab_size, 'row')}: they do not belong together"
            )


def _read_vocabulary(
    folder: Path, vocab_size: int, kind: type[WordBpeTokenizer]
) -> Tokenizer | None:
    """Read codes with the dictionary beside a checkpoint; None where one of them is not there."""
    dictionary = find_dictionary(folder)
    codes = []
    for path in folder.iterdir():
        if path.is_file() and is_codes_file(path.name):
            codes.append(path)
    codes.sort()
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
        return {"checked": False, "reason": f"no class of it is {_BERT_TITLE}"}
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
