"""``[data]``: what it is computed on."""

from typing import Literal

from sublayer.config.table import List, Table, field

Sources = str | List | dict[str, float]


class DataConfig(Table):
    """The text, its split, its tokenizer and how it is cut into training windows."""

    path: Sources | None = field(
        None,
        (
            "Local text: a file (plain, .gz, .zst), a folder or a glob; a list; or {path = weight}. "
            "The files of a folder or a glob are documents."
        ),
    )
    corpus: Sources | None = field(
        None,
        (
            "Named text: python (the prose of the running Python installation), enwik8, text8, lm1b; a list; or "
            "{name = weight}. Given together with path they are mixed."
        ),
    )
    valid_path: str | None = field(None, "File, folder or glob of the validation split; it replaces split.")
    test_path: str | None = field(None, "File, folder or glob of the test split; it replaces split.")
    split: str | None = field(
        None,
        "Shares of train/valid/test: contiguous bytes of one file, whole documents of several.",
        unit="percent",
        derived="90/5/5, or the corpus's published split",
    )
    tokenizer: str = field("bytes", "bytes, characters, bpe (trained on the training split), or a tokenizer.json file.")
    vocab_size: int | None = field(
        None,
        "Size of the vocabulary that bpe trains; for characters, how many of the most frequent are kept.",
        unit="tokens",
        derived="8192 for bpe, all for characters",
        ge=2,
    )
    context: int = field(256, "Length of a training window.", unit="tokens", ge=2)
    windows: Literal["random", "shuffled"] = field(
        "random",
        "random: windows at uniform offsets; shuffled: consecutive windows, each once per epoch, in random order.",
    )
    boundaries: Literal["ignore", "respect"] = field(
        "ignore",
        "Whether attention and positions cross from one document into the next within a window.",
    )
