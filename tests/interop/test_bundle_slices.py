"""Partitioned tensors are joined, or refused in a line that names them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sublayer.errors import CheckpointError
from sublayer.interop.tensorflow.bundle_slices import slice_key
from sublayer.interop.tensorflow.tensor_bundle import read_bundle
from tests.interop.bundles import (
    NUMBERS,
    add_tensor,
    new_message,
    shape_of,
    write_index,
    write_shards,
)


def write_sliced(prefix: Path, whole: Tensor, cuts: list[list[tuple[int, int | None]]]) -> None:
    """Write a tensor as the slices of the given extents, each under TensorFlow's key."""
    content: list[bytearray] = [bytearray(), bytearray()]
    entries = {}
    sliced = new_message("Entry", dtype=NUMBERS[whole.dtype], shape=shape_of(whole.shape))
    for number, extents in enumerate(cuts):
        places = tuple(slice(start, None if n is None else start + n) for start, n in extents)
        entries[slice_key(b"w", tuple(extents))] = add_tensor(content, number % 2, whole[places])
        sliced.slices.add(
            extent=[
                new_message("Extent", start=start, **({} if n is None else {"length": n}))
                for start, n in extents
            ]
        )
    write_shards(prefix, content)
    write_index(prefix, {b"w": sliced, **entries}, n_shards=2)


@pytest.mark.parametrize(
    ("name", "extents", "key"),
    [
        # As TensorFlow 2.21 wrote them.
        (b"part1", ((0, 4), (4500, 4500)), b"\0part1\0\x01\x01\x02\x80\x84\xd1\x94\xd1\x94"),
        (b"partTrue", ((667, 333), (0, 5)), b"\0partTrue\0\x01\x01\x02\xc2\x9b\xc1M\x80\x85"),
        (b"big", ((9999999999, 1), (0, None)), b"\0big\0\x01\x01\x02\xfaT\x0b\xe3\xff\x81\x80\x7f"),
    ],
)
def test_slices_have_the_keys_that_tensorflow_gives_them(
    name: bytes, extents: Any, key: bytes
) -> None:
    assert slice_key(name, extents) == key


@pytest.mark.parametrize(
    "cuts",
    [
        [[(0, 2), (0, 5)], [(2, 1), (0, 5)], [(3, 4), (0, 5)]],
        [[(3, 4), (0, None)], [(0, 3), (0, None)]],
        [[(0, 7), (0, 3)], [(0, 7), (3, 2)]],
        [[(0, None), (4, 1)], [(0, 7), (0, 4)]],
        [[(0, 7), (0, 5)]],
        [[(0, None), (0, None)]],
    ],
)
def test_a_tensor_in_slices_along_an_axis_is_joined(tmp_path: Path, cuts: Any) -> None:
    whole = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    write_sliced(tmp_path / "m", whole, cuts)
    found = read_bundle(tmp_path / "m")
    assert list(found) == ["w"]
    assert torch.equal(found["w"], whole)


@pytest.mark.parametrize(
    ("cuts", "message"),
    [
        ([[(0, 3), (0, 5)], [(3, 4), (0, 2)], [(3, 4), (2, 3)]], r"they cut the axes \[0, 1\]"),
        ([[(0, 3), (0, 5)]], "they end at element 3 of 7 of axis 0"),
        ([[(0, 3), (0, 5)], [(4, 3), (0, 5)]], "the one at element 4 of axis 0 does not fit"),
        ([[(0, 3), (0, 5)], [(2, 5), (0, 5)]], "the one at element 2 of axis 0 does not fit"),
        (
            [[(0, 3), (0, 5)], [(0, 3), (0, 5)], [(3, 4), (0, 5)]],
            "the one at element 0 of axis 0 does not fit",
        ),
        ([[(0, 7)]], "they do not have the 2 axes"),
    ],
)
def test_slices_that_do_not_follow_each_other_are_refused(
    tmp_path: Path, cuts: Any, message: str
) -> None:
    write_sliced(tmp_path / "m", torch.ones(7, 5), cuts)
    with pytest.raises(
        CheckpointError, match=rf"m\.index holds 'w' in slices that cannot be joined: {message}"
    ):
        read_bundle(tmp_path / "m")


def test_a_missing_slice_is_refused(tmp_path: Path) -> None:
    sliced = new_message("Entry", dtype=1, shape=shape_of([4]))
    sliced.slices.add(extent=[new_message("Extent", start=0, length=4)])
    write_index(tmp_path / "m", {b"w": sliced})
    with pytest.raises(CheckpointError, match="the one at element 0 of axis 0 is missing"):
        read_bundle(tmp_path / "m")
