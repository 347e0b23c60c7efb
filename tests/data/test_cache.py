import os

from sublayer.data.cache import content_key, file_digest


def test_keys_depend_on_every_part_and_on_nothing_else():
    assert content_key(1, {"a": 2, "b": 3}) == content_key(1, {"b": 3, "a": 2})
    assert (
        len(
            {content_key(1, "a"), content_key(1, "b"), content_key("1", "a"), content_key(1, ["a"])}
        )
        == 4
    )


def test_digests_of_large_files_are_remembered_until_they_change(tmp_path, cache, monkeypatch):
    monkeypatch.setattr("sublayer.data.cache._LARGE_BYTES", 3)
    path = tmp_path / "text"
    path.write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_digest(path, cache) == known
    remembered = next((cache / "digests").iterdir())
    remembered.write_text("0" * 64)
    assert file_digest(path, cache) == "0" * 64
    os.utime(path, ns=(1, 1))
    assert file_digest(path, cache) == known
