"""Small files of Marian's vocabulary, made here."""

import io
import json

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

EN = [
    "Two young men are outside, near many bushes.",
    "A dog runs through the snow.",
    "Several men operate a machine.",
]
DE = [
    "Zwei junge Männer sind draußen, nahe vieler Büsche.",
    "Ein Hund läuft durch den Schnee.",
    "Männer bedienen eine Maschine.",
]


def spm(lines, size, **rules):
    model = io.BytesIO()
    rules = {"vocab_size": size, "hard_vocab_limit": False, "minloglevel": 2, **rules}
    SentencePieceTrainer.train(sentence_iterator=iter(lines * 9), model_writer=model, **rules)
    return model.getvalue()


def write_marian(folder, **rules):
    """Write the files of a vocabulary that lacks a few pieces of its models."""
    folder.mkdir(exist_ok=True)
    names = ["</s>", "<unk>", ">>de<<"]
    for file, lines in (("source.spm", EN), ("target.spm", DE)):
        model = spm(lines, 90, **rules)
        (folder / file).write_bytes(model)
        processor = SentencePieceProcessor(model_proto=model)
        names += [
            processor.id_to_piece(id_) for id_ in range(3, processor.get_piece_size()) if id_ % 7
        ]
    ids = {name: id_ for id_, name in enumerate(dict.fromkeys([*names, "<pad>"]))}
    (folder / "vocab.json").write_text(json.dumps(ids))
    settings = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
