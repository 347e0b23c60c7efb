"""A checkpoint's file is read as tensors and plain values; what it names is never run."""

import argparse
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.errors import CheckpointError
from sublayer.interop.fairseq.fairseq_file import find_checkpoint
from sublayer.interop.fairseq.importing import import_fairseq, read_fairseq
from tests.interop.fairseq_checkpoints import (
    PLAIN,
    as_fork,
    as_newest,
    draw,
    save_newest,
    saved,
    settings,
)


def test_a_folder_is_read_that_holds_one_checkpoint(tmp_path: Path) -> None:
    path = saved(tmp_path)
    assert find_checkpoint(tmp_path) == find_checkpoint(path) == path
    path.with_name("checkpoint_last.pt").write_bytes(path.read_bytes())
    with pytest.raises(
        CheckpointError, match=r"has checkpoint_best.pt and 1 more: name one of them"
    ):
        find_checkpoint(tmp_path)
    for place in (tmp_path / "nowhere", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(
            CheckpointError, match="is not a checkpoint of fairseq, nor a folder that holds one"
        ):
            find_checkpoint(place)


class Command:
    """What runs a command when an ordinary unpickler reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("is_old", [True, False])
@pytest.mark.parametrize("place", ["args", "model", "extra_state"])
def test_code_in_a_pickle_is_refused_and_never_run(
    tmp_path: Path, place: str, is_old: bool
) -> None:
    content = {"args": settings(PLAIN), "model": as_fork(draw(PLAIN)), "extra_state": {}}
    torch.save(
        {**content, place: Command(tmp_path / "made")},
        tmp_path / "x.pt",
        _use_new_zipfile_serialization=is_old,
    )
    with pytest.raises(
        CheckpointError,
        match=r"names posix.mkdir, and what a file names is never run: open it where",
    ):
        import_fairseq(tmp_path / "x.pt", tmp_path / "imported")
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


class DictConfig(dict[str, Any]):
    """A class of a library that is not of torch."""


def test_a_class_that_is_not_torchs_is_named(tmp_path: Path) -> None:
    save_newest(tmp_path / "x.pt", as_newest(draw(PLAIN)), DictConfig(vars(settings(PLAIN))))
    with pytest.raises(
        CheckpointError, match=rf"names {__name__}.DictConfig, .* as plain values, with torch.save"
    ):
        read_fairseq(tmp_path / "x.pt")


@pytest.mark.parametrize("is_old", [True, False])
def test_a_file_that_was_cut_is_refused(tmp_path: Path, is_old: bool) -> None:
    whole = saved(tmp_path)
    if not is_old:
        save_newest(whole, as_newest(draw(PLAIN)), settings(PLAIN))
    content = whole.read_bytes()
    cut = tmp_path / "cut.pt"
    for length in range(0, len(content), len(content) // 25):
        cut.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match="is damaged"):
            read_fairseq(cut)


def test_a_byte_that_was_changed_in_a_weight_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    weights = as_newest(draw(PLAIN))
    save_newest(path, weights, settings(PLAIN))
    content = bytearray(path.read_bytes())
    content[content.index(weights["encoder.layers.0.fc1.weight"].numpy().tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        CheckpointError, match="is damaged or cut short: the check sum of 'model/data/"
    ):
        read_fairseq(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "holds no model"),
        ({"args": argparse.Namespace()}, "holds no model"),
        ({"model": {}}, "it has neither args nor cfg with model"),
        ({"model": {}, "cfg": {"model": 3}}, "it has neither args nor cfg with model"),
        (
            {"model": {}, "args": argparse.Namespace()},
            "the weights lack encoder.embed_tokens.weight",
        ),
        ({"model": {2: torch.ones(1)}}, "model holds 2, which is not a name of a plain tensor"),
    ],
)
def test_a_file_without_a_translation_model_is_refused(
    tmp_path: Path, content: Any, message: str
) -> None:
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=message):
        read_fairseq(tmp_path / "x.pt")
