"""A computation recorded as a CUDA graph, which a GPU replays without a call for each kernel."""

from collections.abc import Callable

import torch
from torch import Tensor

_N_WARMING = 2
_FEWEST_TOKENS = 64
"""A guess, not measured: recording takes as long as some dozens of steps."""


def pays(device: torch.device, n_tokens: int) -> bool:
    """Check whether to record a step that is taken for so many tokens."""
    return device.type == "cuda" and n_tokens >= _FEWEST_TOKENS


def record(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Record a computation, and return what replays it: the same tensor, written anew.

    It must read and write the same memory each time, wait for nothing, and change nothing when it
    is done twice: it is, before it is recorded. Source: the documentation of
    ``torch.cuda.CUDAGraph``.
    """
    current = torch.cuda.current_stream()
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        for _ in range(_N_WARMING):
            compute()
    current.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay
