"""From files of pairs to stored ids: what is divided, dropped, lower-cased and kept for scoring."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sublayer.config.data import DataConfig
from sublayer.data.parallel.sources import find_pairs, pack_pairs, sides_of
from sublayer.data.prepare import Data, prepare
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import ConfigError, DataError

EN = [
    "A man's hat.",
    "Two dogs, running!",
    "",
    "One very long sentence about nothing at all here",
    "A hat",
]
DE = ["Der Hut eines Mannes.", "Zwei Hunde rennen!", "leer", "kurz", "Ein Hut"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    train = [
        [f"{line} {number}" if line else "" for number in range(8) for line in lines]
        for lines in (EN, DE)
    ]  # equal pairs would all be in one split
    for name, lines in (
        ("train.en", train[0]),
        ("train.de", train[1]),
        ("test.en", EN),
        ("test.de", DE),
    ):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def config_of(files: Path, **fields: Any) -> DataConfig:
    given = {
        "source_path": str(files / "train.en"),
        "target_path": str(files / "train.de"),
        "source_language": "en",
        "target_language": "de",
        "moses": "tokenize",
        "tokenizer": "word-bpe",
        "vocab_size": 90,
        **fields,
    }
    return DataConfig(**given)


def prepared(files: Path, **fields: Any) -> Data:
    return prepare(config_of(files, **fields), cache=files / "cache")


def numbered(data: Data, pair: int) -> tuple[str, str]:
    starts = np.append(data.train.sentence_starts, len(data.train.ids))
    ids = [data.train.ids[starts[2 * pair + side] : starts[2 * pair + side + 1]] for side in (0, 1)]
    return " ".join(data.tokenizer.words(ids[0])), data.tokenizer.write(ids[1])


def sides(data: Data, pair: int) -> tuple[str, str]:
    source, target = (text.rsplit(" ", 1)[0] for text in numbered(data, pair))
    return source, target


def test_a_pair_is_a_document_of_two_sentences(files: Path) -> None:
    data = prepared(files)
    n_pairs = [len(split.document_starts) for split in (data.train, data.valid, data.test)]
    assert sum(n_pairs) == 4 * 8  # those without an empty side
    for split in (data.train, data.valid, data.test):
        assert len(split.sentence_starts) == 2 * len(split.document_starts)
    assert isinstance(data.tokenizer, BilingualTokenizer)
    known = {
        ("A man 's hat .", DE[0]),
        ("Two dogs , running !", DE[1]),
        (EN[3], DE[3]),
        (EN[4], DE[4]),
    }
    assert {sides(data, pair) for pair in range(n_pairs[0])} == known
    assert all(
        text.split()[-1].isdigit() for pair in range(n_pairs[0]) for text in numbered(data, pair)
    )


def test_training_is_filtered_and_what_is_scored_is_whole(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = {"test_source_path": str(files / "test.en"), "test_target_path": str(files / "test.de")}
    data = prepared(files, max_words_ratio=3.0, lowercase=True, **held)
    assert {sides(data, pair) for pair in range(3)} <= {
        ("a man 's hat .", DE[0].lower()),
        ("two dogs , running !", DE[1].lower()),
        ("a hat", "ein hut"),
    }
    err = capsys.readouterr().err
    assert "8 pairs with an empty side left out" in err
    assert "8 pairs with more than 3 words to one left out" in err
    pairs = data.test.pairs
    assert [(pair.source, pair.target) for pair in pairs] == list(zip(EN, DE, strict=True))
    assert pairs[0].source_words == "a man 's hat ."
    assert len(data.test.document_starts) == 4  # the empty one has no loss


def test_a_line_that_is_empty_on_both_sides_keeps_its_place_in_what_is_scored(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, lines in (("blank.en", [EN[0], "", EN[1]]), ("blank.de", [DE[0], " ", DE[1]])):
        (files / name).write_text("".join(f"{line}\n" for line in lines))
    held = {
        "test_source_path": str(files / "blank.en"),
        "test_target_path": str(files / "blank.de"),
    }
    pairs = prepared(files, **held).test.pairs
    assert [pair.target_words for pair in pairs] == [
        " ".join(DE[0].replace(".", " .").split()),
        "",
        "Zwei Hunde rennen !",
    ]
    assert "without text" not in capsys.readouterr().err


def test_a_tokenizer_keeps_the_rules_of_both_languages(files: Path) -> None:
    tokenizer = prepared(files, lowercase=True).tokenizer
    assert isinstance(tokenizer, BilingualTokenizer)
    tokenizer.save(files / "tokenizer.json")
    again = load_tokenizer(files / "tokenizer.json")
    assert isinstance(again, BilingualTokenizer) and again.fingerprint == tokenizer.fingerprint
    (ids,) = again.encode_source(["A man's hat."])
    assert again.words(ids) == ["a", "man", "'s", "hat", "."]
    (ids,) = again.encode_target(["Zwei Hunde rennen!"])
    assert again.write(ids) == "zwei hunde rennen!"


def test_one_vocabulary_serves_two_languages_of_another(files: Path) -> None:
    tokenizer = prepared(files).tokenizer
    tokenizer.save(files / "tokenizer.json")
    turned = config_of(
        files,
        tokenizer=str(files / "tokenizer.json"),
        vocab_size=None,
        source_path=str(files / "train.de"),
        target_path=str(files / "train.en"),
        source_language="de",
        target_language="en",
    )
    data = prepare(turned, cache=files / "cache")
    assert isinstance(data.tokenizer, BilingualTokenizer) and isinstance(
        tokenizer, BilingualTokenizer
    )
    assert data.tokenizer.vocabulary.fingerprint == tokenizer.vocabulary.fingerprint
    assert (data.tokenizer.source.language, data.tokenizer.target.language) == ("de", "en")


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (
            {"target_path": None},
            ConfigError,
            "data.target_path is missing: pairs in two files need both",
        ),
        ({"valid_target_path": "x"}, ConfigError, "data.valid_source_path is missing"),
        ({"path": "more.tsv"}, ConfigError, "both name pairs: leave one out"),
        ({"source_path": None, "target_path": None}, ConfigError, "there are no pairs to train on"),
        ({"source_path": "nowhere"}, DataError, "nowhere is not a file"),
    ],
)
def test_paths_that_name_no_pairs_are_refused(
    files: Path, fields: dict[str, Any], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        prepared(files, **fields)


def test_a_file_of_unknown_kind_is_refused(files: Path) -> None:
    with pytest.raises(DataError, match="pairs are read from .tsv, .json"):
        prepared(files, source_path=None, target_path=None, path=str(files / "train.en"))


@pytest.mark.parametrize("fields", [{}, {"path": "pairs.tsv"}])
def test_pairs_of_a_file_that_changed_are_not_kept(files, fields):
    changed = files / "train.en"
    if fields:
        changed = files / "pairs.tsv"
        changed.write_text("a hat\tein Hut\n")
        fields = {"path": str(changed), "source_path": None, "target_path": None}
    config = config_of(files, **fields)
    source = find_pairs(config, files / "cache", "train")
    with changed.open("a") as file:
        file.write("more\tmehr\n")
    if not fields:
        with (files / "train.de").open("a") as file:
            file.write("mehr\n")
    with pytest.raises(DataError, match=f"^{changed} changed while it was read"):
        pack_pairs(source, sides_of(config), files / "cache")
    assert not list((files / "cache").rglob("pairs/*"))
