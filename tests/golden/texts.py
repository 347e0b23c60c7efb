"""Texts, pairs and tasks, the same on every machine."""

import json
import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path

SYLLABLES = [
    *("ba", "den", "fi", "gor", "ka", "lu", "mer", "no", "pe", "ri", "sto", "tan"),
    *("ul", "wex", "zy", "ñu", "ße", "日", "本"),
]
NOUNS = ["film", "plot", "actor", "scene", "song", "story", "ending", "joke", "cast", "idea"]
GOOD, BAD = ["fine", "great", "lovely"], ["awful", "dull", "poor"]

TEXTS = {
    "English": "The quick brown fox didn't jump; it's over 3,000.50 lazy dogs (and 1 cat)!",
    "German": "Die Straße führt über größere Flüsse, „hübsch“ und weiß – ÄÖÜ.",
    "Chinese": "我们今天学习机器翻译。北京的天气很好，价格是一百元。",
    "Japanese": "きょうは日本語のテキストをトークン化します。カタカナ、ｶﾀｶﾅ。",
    "Vietnamese": "Tiếng Việt có nhiều dấu: người, nước, trường, được, khổng lồ.",
    "Vietnamese, decomposed": unicodedata.normalize("NFD", "Tiếng Việt: người, nước, trường"),
    "Korean": "한국어 문장을 토큰으로 나눕니다. 오늘은 날씨가 좋습니다!",
    "Arabic": "مرحبا بالعالم، هذا نَصٌّ عربيّ قصير ١٢٣.",
    "emoji and marks": "e\u0301 ﬁ Ⅷ ½ 👩‍👩‍👧 🇩🇪 \u200b\ufeff \xa0thin\u2009space ①",
    "CRLF": "one line\r\nanother line\r\n\r\n\ttabbed  twice \r alone\n\n",
    "NULs and controls": "a\0b\0\0c \x01\x1f\x7f\x85 [MASK] </s> <extra_id_0>",
    "long line": "Donaudampfschifffahrtsgesellschaft" * 40 + " " * 30 + "aaaa" * 90,
    "empty": "",
}
"""What tokenizers are given."""


class Drawn:
    """Draws from a seed, by the one generator of Python whose numbers no version changes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def number(self, low: int, high: int) -> int:
        return low + int(self._random() * (high - low))

    def one(self, values: list[str]) -> str:
        return values[self.number(0, len(values))]

    def some(self, values: list[str], n: int) -> list[str]:
        return [self.one(values) for _ in range(n)]


def stories(n: int = 60, seed: int = 5) -> list[list[str]]:
    """Draw documents of sentences, of words of which some are frequent."""
    draw = Drawn(seed)
    lexicon = ["".join(draw.some(SYLLABLES, draw.number(1, 4))) for _ in range(150)]

    def word() -> str:
        return lexicon[draw.number(0, draw.number(1, len(lexicon) + 1))]

    def sentence() -> str:
        return " ".join(word() for _ in range(draw.number(3, 11))) + "."

    return [[sentence() for _ in range(draw.number(2, 12))] for _ in range(n)]


def write_texts(folder: Path) -> None:
    """Write documents of sentences, a line each; pairs of lines; and the files of four tasks."""
    documents = stories()
    _write(folder / "stories.txt", "\n\n".join("\n".join(document) for document in documents))
    lines = [sentence[:-1].split() for document in documents for sentence in document]
    pairs = [f"{' '.join(words)}\t{' '.join(reversed(words))}" for words in lines]
    _write(folder / "pairs.tsv", "\n".join(pairs))
    for seed, (split, copa, n) in enumerate((("train", "train", 48), ("dev", "val", 16))):
        rows = list(_rows(split, Drawn(seed), n))
        sst2, rte, premises = zip(*rows, strict=True)
        _write(folder / f"SST-2/{split}.tsv", "\n".join(["sentence\tlabel", *sst2]))
        head = "index\tsentence1\tsentence2\tlabel"
        _write(folder / f"RTE/{split}.tsv", "\n".join([head, *rte]))
        _write(folder / f"COPA/{copa}.jsonl", "\n".join(premises))
        articles = [_article(split, number, Drawn(number)) for number in range(n)]
        _write(folder / f"{split}-v1.1.json", json.dumps({"version": "1.1", "data": articles}))


def _rows(split: str, draw: Drawn, n: int) -> Iterator[tuple[str, str, str]]:
    for number in range(n):
        label, quality = number % 2, (BAD, GOOD)
        words = [*draw.some(NOUNS, draw.number(2, 7)), draw.one(quality[label])]
        first, second = draw.some(NOUNS[:5], 4), draw.one((NOUNS[5:], NOUNS[:5])[label])
        follows = "entailment" if second in first else "not_entailment"
        choices = [draw.one(quality[label == k]) for k in range(2)]
        yield (
            f"{' '.join(words)} {split}{number} \t{label}",
            f"{number}\t{' '.join(first)} {split}{number}\tthe {second}\t{follows}",
            json.dumps(
                {
                    "premise": f"{draw.one(NOUNS)} {split} {number}",
                    "choice1": choices[0],
                    "choice2": choices[1],
                    "question": ("effect", "cause")[draw.number(0, 2)],
                    "label": label,
                    "idx": number,
                }
            ),
        )


def _article(split: str, number: int, draw: Drawn) -> dict[str, object]:
    noun = draw.one(NOUNS)
    filler = " ".join(draw.some(SYLLABLES, draw.number(1, 30)))
    context = f"{filler}. Of {split} {number} the {noun} is lovely, and {filler}."
    answers = [{"text": noun, "answer_start": context.index(f"{noun} is lovely")}]
    question = {"id": f"{split}{number}", "question": "What is lovely?", "answers": answers}
    return {"title": f"{split} {number}", "paragraphs": [{"context": context, "qas": [question]}]}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((text + "\n").encode())
