"""Dropout's randomness as a function of where training stands, with no state of its own."""

import hashlib

import torch


def seed_dropout(seed: int, step: int, micro_batch: int, rank: int) -> None:
    """Seed PyTorch's global generators for one micro-batch; the caller restores them (``torch.random.fork_rng``)."""
    digest = hashlib.blake2b(f"dropout {seed} {step} {micro_batch} {rank}".encode(), digest_size=8).digest()
    torch.manual_seed(int.from_bytes(digest, "little") >> 1)
