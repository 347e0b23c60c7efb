"""Texts that are watched, and splits of which nothing is held out."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from sublayer.config.data import DataConfig
from sublayer.data.prepare import prepare
from sublayer.errors import ConfigError, DataError
from tests.data.prepare.texts import raw

SQUAD = {"data": [{"paragraphs": [{"context": "One passage.", "qas": []}] * 2}]}
RACE = {"article": "A middle school passage.", "questions": []}


def test_nothing_is_held_out_of_a_text_that_is_all_for_training(file: Path, cache: Path):
    data = prepare(DataConfig(path=str(file), split="100/0/0", context=64), cache=cache)
    assert data.valid is None
    assert data.test is None
    assert raw(data.train) == file.read_bytes()
    assert data.checksums.keys() == {"train", "tokenizer"}
    assert data.sizes().keys() == {"train"}


def test_one_split_alone_can_be_held_out(file: Path, cache: Path):
    data = prepare(DataConfig(path=str(file), split="90/10/0", context=64), cache=cache)
    assert data.valid is not None
    assert data.test is None
    assert raw(data.train) + raw(data.valid) == file.read_bytes()


def test_passages_of_squad_and_race_are_watched_as_documents(
    file: Path, cache: Path, tmp_path: Path
):
    squad, race = tmp_path / "dev.json", tmp_path / "race"
    squad.write_text(json.dumps(SQUAD))
    race.mkdir()
    (race / "1.txt").write_text(json.dumps(RACE))
    watch = {"squad": str(squad), "race": str(race), "own": str(file)}
    data = prepare(DataConfig(path=str(file), watch=watch, context=64), cache=cache)
    assert list(data.watched) == ["squad", "race", "own"]
    assert raw(data.watched["squad"]) == b"One passage."
    assert raw(data.watched["race"]) == b"A middle school passage."
    assert raw(data.watched["own"]) == file.read_bytes()


def put_publishers_files(cache: Path) -> None:
    """Keep small files of SQuAD and RACE where those that are fetched are kept."""
    corpora = cache / "corpora"
    corpora.mkdir(parents=True)
    (corpora / "dev-v1.1.json").write_text(json.dumps(SQUAD))
    with tarfile.open(corpora / "RACE.tar.gz", "w:gz") as archive:
        for name in ("RACE/dev/middle/1.txt", "RACE/train/middle/1.txt"):
            content = json.dumps({**RACE, "article": f"A passage of {name}."}).encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def test_the_passages_of_both_development_sets_are_a_text_to_watch_or_to_test_on(
    file: Path, cache: Path
):
    put_publishers_files(cache)
    both = b"One passage.A passage of RACE/dev/middle/1.txt."
    apart = prepare(
        DataConfig(path=str(file), watch=("squad-dev", "race-dev"), context=64), cache=cache
    )
    assert b"".join(raw(split) for split in apart.watched.values()) == both
    together = DataConfig(path=str(file), watch=("albert-intrinsic",), context=64)
    (watched,) = prepare(together, cache=cache).watched.items()
    assert (watched[0], raw(watched[1])) == ("intrinsic", both)
    tested = DataConfig(
        path=str(file), split="90/10/0", test_path="albert-intrinsic", valid_path="race-dev"
    )
    data = prepare(tested.model_copy(update={"context": 64}), cache=cache)
    assert raw(data.train) == file.read_bytes()
    assert data.test is not None and data.valid is not None
    assert raw(data.test) == both
    assert raw(data.valid) == b"A passage of RACE/dev/middle/1.txt."
    assert data.test.sizes()["documents"] == 2


def test_a_test_that_cannot_be_fetched_says_what_to_do(
    file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object, **__: object) -> None:
        raise DataError("dev-v1.1.json cannot be downloaded")

    monkeypatch.setattr("sublayer.data.corpora.watched.fetch", refuse)
    config = DataConfig(path=str(file), test_path="albert-intrinsic", context=64)
    with pytest.raises(DataError) as error:
        prepare(config, cache=cache)
    assert str(error.value) == (
        "data.test_path = albert-intrinsic: dev-v1.1.json cannot be downloaded; give another text, "
        "data.test_path = PATH"
    )


def test_what_is_watched_changes_no_split(file: Path, cache: Path):
    plain = prepare(DataConfig(path=str(file), context=64), cache=cache)
    watch = {"own": str(file)}
    watched = prepare(DataConfig(path=str(file), watch=watch, context=64), cache=cache)
    assert watched.checksums == plain.checksums


def test_a_corpus_that_cannot_be_fetched_says_what_to_do(
    file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object, **__: object) -> None:
        raise DataError("dev-v1.1.json cannot be downloaded")

    monkeypatch.setattr("sublayer.data.corpora.watched.fetch", refuse)
    with pytest.raises(DataError) as error:
        prepare(DataConfig(path=str(file), watch=("squad-dev",), context=64), cache=cache)
    assert "data.watch = {squad = PATH}, or train without, data.watch = []" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("written", "refused"),
    [
        (None, r"no such file or folder: .*notes\.txt"),
        (b"", r"notes\.txt is empty"),
        (bytes(range(256)) * 4, r"notes\.txt is a binary file"),
        (b"n", r"notes, which is watched, has 1 token; 2 are the least that can be scored"),
    ],
)
def test_a_file_that_cannot_be_watched_is_refused_before_anything_is_trained(
    written: bytes | None, refused: str, file: Path, cache: Path, tmp_path: Path
):
    notes = tmp_path / "notes.txt"
    if written is not None:
        notes.write_bytes(written)
    with pytest.raises(DataError, match=refused):
        prepare(
            DataConfig(path=str(file), watch={"notes": str(notes)}, context=64, tokenizer="bytes"),
            cache=cache,
        )


@pytest.mark.parametrize(
    "watch", [("sqad-dev",), ("squad-dev", "squad-dev"), {"a/b": "x"}, {"a": ""}, {"valid": "x"}]
)
def test_a_watch_that_means_nothing_is_refused(watch: object):
    with pytest.raises((ConfigError, ValueError), match="watch"):
        DataConfig(watch=watch)  # type: ignore[arg-type]
