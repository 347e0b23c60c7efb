"""Sentences that are hard for tokenizers: by hand, by a seeded generator, and from real texts."""

import random

from hypothesis import strategies as st

WRITTEN = (
    "In 2019, 1,000 people paid $12,345.67 for 3,5 and 7,",
    "Ärzte, naïve cafés, Ångström, Zoë's fiancée; ﬁne ½ x² ①",
    *("Σίσυφος ΟΔΟΣ ΑΣ Σ", "İstanbul straße ŒUVRE ǅ"),
    "東京は日本の首都です。漢字 and 한국어 mixed",
    *("क्षि ไทย עִבְרִית العَرَبِيَّة", "👍🏽 ❤️ 👨‍👩‍👧 a👍b", "\ue000private\U000f0000 \ufffd"),
    "``quoted'' ''text`` \"straight\" “curly” ‘single’ don't",
    "tab\there  and   spaces \u00a0\u2003\u3000 no\u2028break\u0085next\x1c\x1d\x1e\x1fend",
    *("zero\u200bwidth\u00adsoft\ufefffeff\u2060joiner\u200d", "\x00nul\x01\x07bell\x7fdel\x9f"),
    "[MASK] [CLS] [SEP] [PAD] [UNK] <pad> <unk> </s> <mask> [unused7]",
    *("▁under▁score __init__ ## ##ing a##b", "(parentheses) “–” £5 €6, - . – (a)(b)"),
    "x" * 100 + " " + "y" * 101 + " " + "z" * 300,
    "http://en.wikipedia.org/wiki/Main_Page?x=1,2&y=%20",
    "00000 11111 aaaaaaa zzzzz 1,1,1,1 12,345,678,",
)
_ALPHABET = (
    "aeinorst" * 6
    + "ABCZÄÖÜÉßøłđĳ0123456789,.;:!?'\"()[]{}<>-–—_/\\@#$%^&*+=~`|£€ \u0301\u0308"
    + "漢字東京あいガパ한국ΑΒΓςσДжשלعรि👍❤️🏽\u200b\u00ad\u00a0\t"
    + " " * 20
)


ODD = st.text(
    st.sampled_from("ab 's19.,(\n\t\r\u00a0\u3000\u0085\u2028\x1c\x1f\u200b\ufeffÉéσΣ\u0301漢𝄞“&"),
    max_size=60,
)


def sentences(folder):
    """More than a thousand of all three kinds, each of one line."""
    draw = random.Random(0)
    made = ["".join(draw.choices(_ALPHABET, k=draw.randint(1, 80))) for _ in range(400)]
    text = (folder / "enwik8" / "enwik8_first_4MB").read_bytes()[:1_500_000]
    found = text.decode("utf-8", "ignore").split("\n")
    lines = [line for line in found if line.strip() and not line.isascii()]
    book = (folder / "books" / "Emma.txt").read_text(encoding="utf-8-sig")
    paragraphs = [" ".join(each.split()) for each in book.split("\n\n") if each.strip()]
    return [*WRITTEN, *made, *lines[:350], *paragraphs[:350]]
