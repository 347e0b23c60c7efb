import tarfile
from pathlib import Path

import pytest

from sublayer.data.corpora.lm1b import (
    HELD_OUT,
    RELEASE,
    TRAINING,
    extract_release,
    find_release,
    read_release,
)
from sublayer.errors import DataError
from tests.data.corpora.releases import FILES, write_archive, write_release


def texts(folder: Path, cache: Path) -> dict[str, bytes]:
    return {
        split: b"".join(bytes(document.read()[:]) for document in documents)
        for split, documents in read_release(folder, cache).items()
    }


EXPECTED = {
    "train": b"The first sentence .\nThe second sentence .\n",
    "valid": b"A held-out sentence .\nAnother one .\n",
    "test": b"A test sentence .\n",
}


def test_the_release_has_its_published_split(tmp_path, cache):
    assert texts(write_release(tmp_path), cache) == EXPECTED


def test_the_release_is_found_at_a_folder_or_directly_below(tmp_path):
    write_release(tmp_path / RELEASE)
    assert find_release(tmp_path) == find_release(tmp_path / RELEASE) == tmp_path / RELEASE
    assert find_release(tmp_path / RELEASE / TRAINING) is None


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_the_archive_is_extracted_once(tmp_path, cache, mode):
    archive = write_archive(
        tmp_path / "release.tar", {f"{RELEASE}/{name}": text for name, text in FILES.items()}, mode
    )
    folder = extract_release(archive, cache)
    assert texts(folder, cache) == EXPECTED
    (folder / TRAINING / "news.en-00001-of-00100").write_bytes(b"Seen .\n")
    assert extract_release(archive, cache) == folder
    assert b"Seen ." in texts(folder, cache)["train"]


def test_nothing_is_extracted_outside_of_the_cache(tmp_path, cache):
    evil = {
        f"../../{TRAINING}/news.en-00001-of-00100": b"climbing .\n",
        f"/tmp/evil/{HELD_OUT}/news.en.heldout-00000-of-00050": b"absolute .\n",
        f"{HELD_OUT}/news.en.heldout-00001-of-00050": b"plain .\n",
        "../evil": b"other .\n",
    }
    folder = extract_release(write_archive(tmp_path / "evil.tar.gz", evil), cache)
    written = sorted(
        path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".gz"
    )
    assert all(path.is_relative_to(folder) for path in written)
    assert len(written) == 3


def test_links_in_an_archive_are_not_followed(tmp_path, cache):
    path = write_archive(
        tmp_path / "link.tar", {f"{HELD_OUT}/news.en.heldout-00000-of-00050": b"a .\n"}, "w"
    )
    with tarfile.open(path, "a") as opened:
        link = tarfile.TarInfo(f"{TRAINING}/news.en-00001-of-00100")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        opened.addfile(link)
    with pytest.raises(DataError, match="is an archive and not the lm1b release"):
        extract_release(path, cache)


def test_an_archive_of_something_else_is_refused_and_leaves_nothing(tmp_path, cache):
    path = write_archive(tmp_path / "books.tar.gz", {"books/a.txt": b"text"})
    with pytest.raises(
        DataError, match=r"books.tar.gz is an archive and not the lm1b release: unpack it"
    ):
        extract_release(path, cache)
    assert not list(cache.rglob("*lm1b*"))


@pytest.mark.parametrize("keep", [0, 10, 200])
def test_a_damaged_archive_is_named(tmp_path, cache, keep):
    big = {f"{TRAINING}/news.en-00001-of-00100": bytes(range(256)) * 4000, **FILES}
    path = write_archive(tmp_path / "release.tar.gz", big)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"release.tar.gz is a damaged archive"):
        extract_release(path, cache)
    assert not list(cache.rglob("*lm1b*"))


@pytest.mark.parametrize("missing", ["train", "valid", "test"])
def test_a_release_without_one_of_its_splits_is_refused(tmp_path, cache, missing):
    kept = {name: text for name, text in FILES.items() if text not in EXPECTED[missing]}
    folder = write_release(tmp_path, kept)
    for name in (TRAINING, HELD_OUT):
        (folder / name).mkdir(exist_ok=True)
    with pytest.raises(DataError, match=f"lacks the {missing} files of lm1b"):
        read_release(folder, cache)
