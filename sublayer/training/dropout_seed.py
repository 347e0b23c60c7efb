"""Seed dropout by where training stands, with no state of its own."""

import hashlib

import torch


def seed_dropout(seed: int, step: int, micro_batch: int, rank: int) -> None:
    """Seed PyTorch's global generators for one micro-batch; the caller restores them.

    Those of all devices. ``step`` and ``micro_batch`` count from 0, and the processes of a step,
    by ``rank``, draw apart.
    """
    position = f"dropout {seed} {step} {micro_batch} {rank}"
    hashed = hashlib.blake2b(position.encode(), digest_size=8)
    number = int.from_bytes(hashed.digest(), "little")
    # Within the range of a signed integer of 64 bits.
    number >>= 1
    if torch.accelerator.is_available():
        torch.manual_seed(number)
    else:  # for each device that is not there, torch.manual_seed formats the stack
        torch.default_generator.manual_seed(number)
