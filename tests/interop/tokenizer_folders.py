"""Folders of tiny tokenizers whose own files say what is special, added and normalised."""

import io
import json
from functools import cache

import sentencepiece
import tokenizers
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

CORPUS = [
    "the cat sat on the mat. The DOG and Ünïcode Zwölf 日本語 テスト 12,345 7,0 Paris is",
    "[NUM] big, see [URL] <|user|> hi don't stop naïve café HELLO 한국어 русский ok",
] * 9  # fmt: skip
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NEW = ["<|user|>", "<|bot|>", "<sep>", "[URL]", "<new tok>", "<|pad|>"]
PARTS = [
    *NEW, *BERT, "<|endoftext|>", "</s>", "<pad>", "<unk>", "<extra_id_0>", "[NUM]", "a", " ", "  ",
    "\n", "\t", "é", "e\u0301", "ß", "İ", "日本", "🙂", "7,0", ".", "'", "\x01", "\u00a0", "the",
]  # fmt: skip
TEXTS = st.lists(st.lists(st.sampled_from(PARTS), max_size=7).map("".join), max_size=9)
FLAGS = {name: st.booleans() for name in ("special", "single_word", "lstrip", "rstrip")}


@cache
def trained(kind):
    quiet = {"vocab_size": 290, "show_progress": False}
    if kind == "bpe":
        library = tokenizers.Tokenizer(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        rules = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
        trainer = trainers.BpeTrainer(special_tokens=["<|endoftext|>"], **rules, **quiet)
    else:
        library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(special_tokens=[*BERT, "[NUM]"], **quiet)
    library.train_from_iterator(CORPUS, trainer)
    return library


@cache
def sentence_pieces(**rules):
    model = io.BytesIO()
    sizes = {"vocab_size": 200, "hard_vocab_limit": False, "minloglevel": 2, **rules}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, **sizes
    )
    return model.getvalue()


@st.composite
def folders(draw):
    """Draw the files of a folder by their names; beside them stands the type of its model."""
    name, files, settings = draw(st.sampled_from(["gpt2", "bert", "t5"])), {}, {}
    if name == "t5":
        files["spiece.model"] = sentence_pieces(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
        settings |= {"tokenizer_class": "T5Tokenizer", "extra_ids": 3}
        processor = sentencepiece.SentencePieceProcessor(model_proto=files["spiece.model"])
        n_ids = processor.get_piece_size() + 3
    else:
        library = trained("bpe" if name == "gpt2" else "wordpiece")
        n_ids, content = library.get_vocab_size(), json.loads(library.to_str())
        if name == "bert":
            pieces = [library.id_to_token(id_) for id_ in range(n_ids)]
            files["vocab.txt"] = "".join(f"{piece}\n" for piece in pieces)
            keys = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
            settings |= draw(st.fixed_dictionaries({}, optional=dict.fromkeys(keys, st.booleans())))
        elif draw(st.booleans()):
            files["tokenizer.json"] = library.to_str()
        else:
            files["vocab.json"] = json.dumps(content["model"]["vocab"])
            merges = [" ".join(pair) for pair in content["model"]["merges"]]
            files["merges.txt"] = "\n".join(["#version: 0.2", *merges])
        settings |= draw(
            st.fixed_dictionaries({}, optional={"split_special_tokens": st.booleans()})
        )
    added = draw(st.lists(st.sampled_from(NEW), max_size=4, unique=True))
    by_id = {n_ids + number: each for number, each in enumerate(added)}
    how = draw(st.sampled_from(["added_tokens.json", "decoder", "special_tokens_map.json"]))
    if how == "decoder":
        flags = {id_: draw(st.fixed_dictionaries(FLAGS)) for id_ in by_id}
        settings["added_tokens_decoder"] = {
            id_: {"content": by_id[id_], "normalized": False, **flags[id_]} for id_ in by_id
        }
    elif how == "added_tokens.json":
        files[how] = json.dumps({each: id_ for id_, each in by_id.items()})
    elif name != "t5" and added:
        files[how] = json.dumps({"additional_special_tokens": added})
    if added and draw(st.booleans()):
        settings["pad_token"] = added[0]
    return name, {**files, "tokenizer_config.json": json.dumps(settings)}
