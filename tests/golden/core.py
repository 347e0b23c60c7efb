"""Compare results with those on file, or write them where ``SUBLAYER_GOLDEN_WRITE`` is set.

Each result has a subject (a file) and a name (a key in it). A result without a tolerance is the
same on every machine. One with a tolerance is on file twice:

- ``data/SUBJECT.json``: results of all machines. Floats may differ by the tolerance, and are
  written anew only where one differs by more, so that two kinds of machines do not undo each
  other's.
- ``kinds/KIND/SUBJECT.json``: results of one kind of processor, to the bit. Other kinds ignore
  them; a kind without such a file is held to the tolerance alone.

Texts for people, ``data/SUBJECT.txt`` or ``data/SUBJECT/NAME.txt``, are held likewise: numbers
within them to the tolerance, all else as it is, with a checksum of the whole in ``kinds/KIND``.

A kind of processor is named by its architecture, PyTorch's capability (such as AVX512) and version,
the number of threads, and the first digits of a checksum over results of PyTorch's own operators
(products, attention, normalization, exponentials, in float32 and bfloat16) on fixed numbers. The
checksum tells apart vendors, and the instructions and blocks that oneDNN and MKL choose. No code
of the project takes part in it, so that a fault of the project cannot pass for another kind.
"""

import difflib
import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

WRITE = "SUBLAYER_GOLDEN_WRITE"
FOLDER = Path(__file__).parent
SHOWN = 10
"""Differences in a message."""
SMALL = 1e-3
"""Least magnitude that a tolerance is relative to: sums that cancel keep no relative accuracy."""


@cache
def kind() -> str:
    """Name this kind of processor."""
    parts = [
        platform.machine().lower(),
        torch.backends.cpu.get_cpu_capability().lower(),
        f"torch{torch.__version__.split('+')[0]}",
        f"threads{torch.get_num_threads()}",
        _probe()[:8],
    ]
    return "-".join(parts)


def _probe() -> str:
    """Return the checksum of some of PyTorch's results on fixed numbers."""
    sums = hashlib.sha256()
    for dtype in (torch.float32, torch.bfloat16):
        for rows, inner, columns in ((8, 16, 24), (96, 16, 64), (33, 32, 300), (256, 512, 96)):
            a = _numbers(rows, inner).to(dtype)
            b = _numbers(columns, inner).to(dtype)
            results = [F.linear(a, b), a.T @ a, F.gelu(a), a.tanh(), a.sigmoid(), a.exp().sum(-1)]
            results += [F.layer_norm(a, (inner,)), F.log_softmax(a, -1), a.float().norm()[None]]
            heads = a.view(1, rows, 2, inner // 2).transpose(1, 2)
            results.append(F.scaled_dot_product_attention(heads, heads, heads, is_causal=True))
            for result in results:
                sums.update(result.float().contiguous().numpy().tobytes())
    return sums.hexdigest()


def _numbers(*shape: int) -> torch.Tensor:
    return (torch.arange(math.prod(shape)) * 7919 % 2003 / 1001.5 - 1).view(shape)


def digest(value: Any) -> str:
    """Return the checksum of JSON, of bytes or of tensors by name."""
    sums = hashlib.sha256()
    if isinstance(value, bytes):
        sums.update(value)
    elif isinstance(value, dict) and any(isinstance(each, torch.Tensor) for each in value.values()):
        for name, tensor in sorted(value.items()):
            sums.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            sums.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    else:
        sums.update(json.dumps(value, sort_keys=True).encode())
    return sums.hexdigest()[:32]


def compare(
    subject: str, name: str, found: Any, *, tolerance: float | None = None, bits: Any = None
) -> None:
    """Hold JSON to what is on file of it, or write that.

    The tolerance is relative, and for floats alone. With one, ``bits`` (by default, a checksum of
    ``found``) is held to the bit on this kind of processor. ``bits`` without a tolerance: ``found``
    is exact as well. Raises AssertionError that lists the first differences.
    """
    shared = FOLDER / "data" / f"{subject}.json"
    own = FOLDER / "kinds" / kind() / f"{subject}.json"
    found = json.loads(json.dumps(found))
    has_bits = tolerance is not None or bits is not None
    bits = digest(found) if bits is None else json.loads(json.dumps(bits))
    if os.environ.get(WRITE):
        known = _read(shared)
        if name not in known or any(_differences(name, known[name], found, tolerance or 0.0)):
            _write(shared, {**known, name: found})
        if has_bits:
            _write(own, {**_read(own), name: bits})
        return
    known = _read(shared)
    assert name in known, f"{shared} has no {name!r}: run `make golden`"
    _assert_none(shared, _differences(name, known[name], found, tolerance or 0.0))
    if has_bits and name in _read(own):
        _assert_none(own, _differences(name, _read(own)[name], bits, 0.0))


def compare_text(subject: str, found: str, *, tolerance: float) -> None:
    """Hold a text for people to what is on file of it, or write that.

    The subject may be ``SUBJECT/NAME``. Numbers may differ by the tolerance, relative, and by one
    in their last decimal. The kind of processor that wrote the file is held to every character.
    Raises AssertionError with a diff.
    """
    shared = FOLDER / "data" / f"{subject}.txt"
    folder, _, name = subject.rpartition("/")
    own = FOLDER / "kinds" / kind() / f"{folder or 'texts'}.json"
    known = shared.read_text(encoding="utf-8") if shared.exists() else ""
    sums = _read(own)
    if os.environ.get(WRITE):
        if sums.get(name) == digest(known) or not _alike(known, found, tolerance):
            shared.parent.mkdir(parents=True, exist_ok=True)
            shared.write_text(found, encoding="utf-8")
            for path in FOLDER.glob(f"kinds/*/{own.name}"):  # whose sums are of the text before
                _write(path, {key: value for key, value in _read(path).items() if key != name})
        _write(own, {**_read(own), name: digest(found)})
        return
    is_held = sums.get(name, digest(found)) == digest(found)
    if not (is_held and _alike(known, found, tolerance)):
        head = f"{shared.relative_to(FOLDER.parent.parent)} holds another text"
        diff = difflib.unified_diff(known.split("\n"), found.split("\n"), n=1, lineterm="")
        raise AssertionError("\n".join([head, *list(diff)[: 10 * SHOWN]]))


_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def _alike(known: str, found: str, tolerance: float) -> bool:
    """Return whether two texts differ by nothing but numbers within the tolerance."""
    if known == found:
        return True
    skeletons = [re.sub(" +|--+", " ", _NUMBER.sub("0", text)) for text in (known, found)]
    pairs = zip(_NUMBER.findall(known), _NUMBER.findall(found), strict=False)
    return skeletons[0] == skeletons[1] and all(_near(*pair, tolerance) for pair in pairs)


def _near(known: str, found: str, tolerance: float) -> bool:
    if known == found:  # as parts of checksums are, which may look like numbers beyond all floats
        return True
    one, other = (float(text.replace(",", "")) for text in (known, found))
    decimals = [len(text.partition(".")[2]) for text in (known, found) if "e" not in text]
    unit = 10.0 ** -min(decimals) if decimals and min(decimals) else 0.0
    return abs(one - other) <= tolerance * max(one, other, SMALL) + unit


def expect_names(subject: str, names: Iterable[str]) -> None:
    """Hold the names on file to those that are compared, or remove all others."""
    names = set(names)
    for path in FOLDER.glob(f"data/{subject}/*.txt"):
        if os.environ.get(WRITE) and path.stem not in names:
            path.unlink()
        assert not path.exists() or path.stem in names, f"nothing compares {path}: `make golden`"
    for path in (FOLDER / "data" / f"{subject}.json", *FOLDER.glob(f"kinds/*/{subject}.json")):
        known = _read(path)
        if os.environ.get(WRITE) and not known.keys() <= names:
            _write(path, {name: known[name] for name in known.keys() & names})
        left = sorted(_read(path).keys() - names)
        assert not left, f"{path} has {left}, which nothing compares: run `make golden`"


def _assert_none(path: Path, differences: Iterator[str]) -> None:
    listed = list(differences)
    if listed:
        more = [f"and {len(listed) - SHOWN} more"] if len(listed) > SHOWN else []
        head = f"{path.relative_to(FOLDER.parent.parent)} holds other results"
        raise AssertionError("\n  ".join([head, *listed[:SHOWN], *more]))


def _differences(where: str, known: Any, found: Any, tolerance: float) -> Iterator[str]:
    if isinstance(known, dict) and isinstance(found, dict):
        for name in [*known, *(name for name in found if name not in known)]:
            there = f"{where}: {name}"
            if name not in found:
                yield f"{there}: expected {_short(known[name])}, found none"
            elif name not in known:
                yield f"{there}: expected none, found {_short(found[name])}"
            else:
                yield from _differences(there, known[name], found[name], tolerance)
    elif isinstance(known, list) and isinstance(found, list):
        if len(known) != len(found):
            yield f"{where}: expected {len(known)} elements, found {len(found)}"
        for index, (one, other) in enumerate(zip(known, found, strict=False)):
            yield from _differences(f"{where}[{index}]", one, other, tolerance)
    elif tolerance and isinstance(known, float) and isinstance(found, float):
        scale = max(abs(known), abs(found), SMALL)
        if not (_same(known, found) or abs(found - known) <= tolerance * scale):
            yield f"{where}: expected {known!r}, found {found!r} ({(found - known) / scale:+.1e})"
    elif tolerance and isinstance(known, str) and isinstance(found, str):
        if not _alike(known, found, tolerance):
            yield f"{where}: expected {_short(known)}, found {_short(found)}"
    elif not _same(known, found):
        yield f"{where}: expected {_short(known)}, found {_short(found)}"


def _same(known: Any, found: Any) -> bool:
    is_nan = isinstance(known, float) and math.isnan(known)
    if is_nan:
        return isinstance(found, float) and math.isnan(found)
    return type(known) is type(found) and bool(known == found)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lay_out(dict(sorted(content.items()))) + "\n", encoding="utf-8")


def lay_out(value: Any, indent: str = "") -> str:
    """Write JSON with what is short, and each list of plain values, on a line of its own."""
    line = json.dumps(value, ensure_ascii=False)
    values = list(value.values()) if isinstance(value, dict) else value
    is_plain = not isinstance(value, dict | list)
    is_plain = is_plain or not any(isinstance(each, dict | list) for each in values)
    if isinstance(value, dict) and is_plain and len(line) > 100:
        is_plain = False
    if is_plain or len(line) + len(indent) <= 100:
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(k, ensure_ascii=False)}: {lay_out(v, deeper)}" for k, v in value.items()
        ]
        return "{\n" + ",\n".join(deeper + part for part in parts) + "\n" + indent + "}"
    return (
        "[\n" + ",\n".join(deeper + lay_out(each, deeper) for each in value) + "\n" + indent + "]"
    )
