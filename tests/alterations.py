"""Files altered in every way that files get altered: strategies, and the alterations themselves."""

import json
import os
import shutil
import tomllib
from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import tomli_w
from safetensors.torch import load_file, save_file

from sublayer.files.checkpoints import MANIFEST, _files
from sublayer.files.storage import sha256_of

_VALUES = [
    None, True, False, 0, 1, -1, 7, 0.5, -0.0, 1e308, 10**18, 10**30, 2**63, "", "x", "/etc/passwd",
    "../../x", "a" * 300, "ä", "\x00", [], {}, [1], [[]], {"x": 1}, ["a", 3],
]  # fmt: skip
_CONTENTS = [
    b"", b"\n", b"null", b"[]", b"3", b'"x"', b"\xff\xfe\x00", b"\x00" * 64, b"x" * 1000, b"[[[]]]",
    b"[" * 100_000, b'{"a":' * 5000, b"1" * 5000, b'{"a": NaN}', b'{"a": 1e999}', b"a = 1",
    b'{"a": 1, "a": 2}', b"a = [" * 500, b"a = " + b"9" * 5000, b"a." * 40_000 + b"a = 1",
    b"[model]\nd_model = 8\nnothing = 3\n", b'{"a": "\\ud800"}', b"\xef\xbb\xbf{}",
]  # fmt: skip


def alterations():
    numbers, places = st.integers(0, 10**6), st.tuples(st.floats(0, 0.999), st.integers(1, 255))
    return st.one_of(
        st.builds(_flipped, st.lists(places, min_size=1, max_size=4)),
        st.builds(_truncated, st.floats(0, 0.999)),
        st.sampled_from(_CONTENTS).map(lambda content: lambda path: path.write_bytes(content)),
        st.sampled_from([Path.unlink, _made_a_folder, make_a_pipe]),
        st.builds(_linked_to, st.sampled_from(("mine.txt", "nowhere", "itself", "."))),
        st.builds(_scaled, st.sampled_from((0.0, -1.0, 1e9, 1e38, 1e-42)), st.integers(0, 9)),
        *[st.builds(_changed, numbers, st.sampled_from(_VALUES))] * 2,
        *[st.builds(_dropped, numbers, st.booleans())] * 2,
    )


def write_manifest_anew(file):
    """Rewrite the manifest of the checkpoint that a file is in, as if the file were as written."""
    for folder in file.parents:
        if (folder / MANIFEST).is_file() and file.name != MANIFEST:
            manifest = {
                name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
                for name, path in _files(folder)
            }
            (folder / MANIFEST).write_text(json.dumps(manifest))
            return


def _flipped(places):
    def alter(path):
        data = bytearray(path.read_bytes())
        for place, mask in places:
            if data:
                data[int(place * len(data))] ^= mask
        path.write_bytes(data)

    return alter


def _scaled(factor, number):
    """Multiply weights: one tensor of a few, or all."""

    def alter(path):
        tensors = load_file(path) if path.suffix == ".safetensors" else {}
        for place, (name, tensor) in enumerate(tensors.items()):
            if tensor.is_floating_point() and place % 10 in (number, number - 8):
                tensors[name] = (tensor.double() * factor).clamp(-3e38, 3e38).to(tensor.dtype)
        if tensors:
            save_file(tensors, path)

    return alter


def _truncated(share):
    return lambda path: os.truncate(path, int(share * path.stat().st_size))


def _made_a_folder(path):
    content = path.read_bytes()
    path.unlink()
    path.mkdir()
    (path / path.name).write_bytes(content)


def make_a_pipe(path):
    path.unlink()
    os.mkfifo(path)


def _linked_to(target):
    def alter(path):
        path.unlink()
        path.symlink_to(path.name if target == "itself" else target)

    return alter


def _changed(number, value):
    return lambda path: _edit(path, number, lambda found, key: found.__setitem__(key, value))


def _dropped(number, is_renamed):
    def drop(container, key):
        value = container.pop(key)
        if is_renamed and isinstance(container, dict):
            container["a" * 60] = value

    return lambda path: _edit(path, number, drop)


def _edit(path, number, edit):
    """Edit one place in a JSON or TOML file, JSON lines or the header of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    if path.suffix == ".toml":
        content = tomllib.loads(data.decode())
        _edit_one(content, number, edit)
        data = data[:-1]  # there is no null in TOML
        with suppress(TypeError, ValueError):
            data = tomli_w.dumps(content).encode()
    elif path.suffix == ".json":
        data = _edited(data, number, edit)
    elif path.suffix == ".jsonl":
        lines = _edited(b"[" + b",".join(data.splitlines()) + b"]", number, edit)
        data = b"".join(json.dumps(line).encode() + b"\n" for line in json.loads(lines))
    elif path.suffix == ".safetensors":
        header = _edited(data[8 : 8 + size], number, edit)
        data = len(header).to_bytes(8, "little") + header + data[8 + size :]
    else:
        data = data[number % (len(data) + 1) :]
    path.write_bytes(data)


def _edited(text, number, edit):
    content = json.loads(text)
    _edit_one(content, number, edit)
    return json.dumps(content).encode()


def _edit_one(content, number, edit):
    places, level = [], [content]
    while level:
        container = level.pop()
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        places += [(container, key) for key in keys]
        level += [container[key] for key in keys if isinstance(container[key], dict | list)]
    if places:
        edit(*places[number % len(places)])


def state(step, best, /, **changed):
    """What a checkpoint says of the loop, for tests that write checkpoints without a loop."""
    evaluation = None if best is None else {"step": best, "loss": 2.5, "bits_per_byte": 3.6}
    content = {"step": step, "tokens": 96 * step, "seconds": 0.5 * step}
    content |= {"step_seconds": 0.25 * step}
    return json.dumps({**content, "best": evaluation, "pending_losses": [2.25], **changed})


def copy(folder, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    return target
