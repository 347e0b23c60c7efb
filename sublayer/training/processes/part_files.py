"""Tensors of which each process has a part, to and from safetensors files: a file of each process.

By ``torch.distributed.checkpoint`` and its storage of safetensors, which pickles nothing. What was
written by some processes is read by any number of them, and what one process wrote by all.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from sublayer.errors import CheckpointError
from sublayer.files.tensor_parts import StoredTensors

# What it does step by step, and that it writes no index.
logging.getLogger("torch.distributed.checkpoint").setLevel(logging.ERROR)


def write_parts(
    tensors: Mapping[str, Tensor], folder: Path, group: dist.ProcessGroup | None = None
) -> None:
    """Write each process's parts of distributed tensors, and by one of them what all have.

    All processes enter. Raises CheckpointError in all of them where one cannot write.
    """
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        save(dict(tensors), storage_writer=writer, process_group=group)
    except CheckpointException as error:
        raise CheckpointError(
            f"cannot write {folder}: {_reason(error)}; free some space, then --resume"
        ) from None


def read_parts(tensors: Mapping[str, Tensor], stored: StoredTensors) -> None:
    """Read into distributed tensors, in place, what is stored of them.

    All processes enter. Raises CheckpointError in all of them where one cannot read.
    """
    folder = stored.whole.parent if stored.is_whole else stored.folder
    # All files of the folder are read, and the last to say something would be believed.
    others = {*folder.glob("*.safetensors")} - {*stored.files()}
    if others:
        raise CheckpointError(
            f"{folder} has {min(others).name} beside {stored.files()[0].name}: one of them is of "
            "another checkpoint"
        )
    reader = HuggingFaceStorageReader(str(folder))
    try:
        load(dict(tensors), storage_reader=reader)
    except CheckpointException as error:
        raise CheckpointError(f"{folder} cannot be read: {_reason(error)}") from None


def _reason(error: CheckpointException) -> str:
    """Return what the first process that failed says."""
    _, (cause, _) = min(error.failures.items())
    return str(cause)
