"""Small files of SentencePiece's models in the layouts of Marian and T5, made here."""

import io
import json

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from tests.data.releases import write_release

EN = ["Two young men are outside, near many bushes.", "A dog runs through the snow."]
EN += ["Several men operate a machine."]
DE = ["Zwei junge Männer sind draußen, nahe vieler Büsche.", "Ein Hund läuft durch den Schnee."]
DE += ["Männer bedienen eine Maschine."]
LINES = [
    "The quick brown fox jumps over the lazy dog 123, it's! The Cat sat on the mat. Zoë café.",
    "Deux petits chats dorment, 1,234 a < > _ extra id 9: / s",
]

TEXTS = [
    *("The <extra_id_0> sat on the <extra_id_1>.", "a<extra_id_0>b", "  the  dog ", " \n", ""),
    *(" <extra_id_2>  <extra_id_1>\n x", "<extra_id_4><extra_id_4>"),
    *("<extra_id_00> is text, and so is <extra_id>", "日本 men\tx\r\n\r\ny ½ ﬁne Ａ ｂ"),
    "cafe\u0301 \u1112\u1161\u11ab a\u00a0b a\u2028b \u0085 \u3000x",
    "\ufeffa\u200bb \x00 \x7f \u2581the \u2581 aaaaaaa",
]
"""With five sentinels at least; the names of other special ids are in none."""


def spm(lines, size, **rules):
    model = io.BytesIO()
    rules = {"vocab_size": size, "hard_vocab_limit": False, "minloglevel": 2, **rules}
    SentencePieceTrainer.train(sentence_iterator=iter([*lines] * 9), model_writer=model, **rules)
    return model.getvalue()


def t5_model(lines=LINES, **rules):
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    return spm([*lines, *lines], 90, **{**ids, **rules})


def write_t5(folder, **rules):
    return write_release(folder, {"spiece.model": t5_model(**rules)})


def write_marian(folder, **rules):
    """Write the files of a vocabulary that lacks a few pieces of its models."""
    folder.mkdir(exist_ok=True)
    names = ["</s>", "<unk>", ">>de<<"]
    for file, lines in (("source.spm", EN), ("target.spm", DE)):
        model = spm(lines, 90, **rules)
        (folder / file).write_bytes(model)
        processor = SentencePieceProcessor(model_proto=model)
        ids = range(3, processor.get_piece_size())
        names += [processor.id_to_piece(id_) for id_ in ids if id_ % 7]
    ids = {name: id_ for id_, name in enumerate(dict.fromkeys([*names, "<pad>"]))}
    (folder / "vocab.json").write_text(json.dumps(ids))
    settings = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
