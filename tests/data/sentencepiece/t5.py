"""Small files of T5's vocabulary, made here with the settings of the published one."""

import io

from sentencepiece import SentencePieceTrainer

LINES = [
    "The quick brown fox jumps over the lazy dog 123, it's! The Cat sat on the mat. Zoë café.",
    "Deux petits chats dorment, 1,234 a < > _ extra id 9: / s",
]
TEXTS = [
    "The <extra_id_0> sat on the <extra_id_1>.",
    "a<extra_id_0>b",
    " <extra_id_2>  <extra_id_1>\n x",
    "<extra_id_4><extra_id_4>",
    "<extra_id_00> is text, and so is <extra_id>",
    "日本 men\tx\r\n\r\ny ½ ﬁne Ａ ｂ",
    "cafe\u0301 \u1112\u1161\u11ab a\u00a0b a\u2028b \u0085 \u3000x",
    "\ufeffa\u200bb \x00 \x7f \u2581the \u2581 aaaaaaa",
    "  the  dog ",
    " \n",
    "",
]
"""With five sentinels at least; the names of other special ids are in none."""


def t5_model(lines=LINES, **rules):
    """Train a model: padding is 0, the end 1, the unknown 2."""
    model = io.BytesIO()
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    SentencePieceTrainer.train(
        sentence_iterator=iter([*lines] * 20),
        model_writer=model,
        **{"vocab_size": 90, **ids, **rules},
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def write_t5(folder, **rules):
    """Write a folder with ``spiece.model`` alone; return it."""
    folder.mkdir(exist_ok=True)
    (folder / "spiece.model").write_bytes(t5_model(**rules))
    return folder
