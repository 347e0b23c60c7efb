"""Keys and values of executed attentions, preallocated and passed in: never kept on a module."""

from collections.abc import Callable
from itertools import product

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import stacks
from sublayer.errors import ConfigError
from sublayer.model.capacity import check_memory

Pair = tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S K"]]


class KeyValues:
    """The keys and values of one executed attention, of which the first ``cache.length`` are filled.

    Keys lie feature by feature, so that a query's product with all of them reads memory in order.
    """

    def __init__(
        self, cache: "Cache", shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
    ) -> None:
        self._cache = cache
        n_rows, n_heads, max_len, d_head = shape
        self._keys = torch.zeros(n_rows, n_heads, d_head, max_len, dtype=dtype, device=device)
        self._values = torch.zeros(shape, dtype=dtype, device=device)
        self._folded = self._keys.flatten(0, 1), self._values.flatten(0, 1)

    @property
    def dtype(self) -> torch.dtype:
        """The type in which keys and values are kept."""
        return self._keys.dtype

    def append(
        self, k: Float[Tensor, "B H T K"], v: Float[Tensor, "B H T K"]
    ) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S K"]]:
        """Write the new keys and values behind the old ones and give all of them."""
        end = self._write(k, v)
        return self._keys.narrow(3, 0, end).transpose(2, 3), self._values.narrow(2, 0, end)

    def append_folded(
        self, k: Float[Tensor, "B H T K"], v: Float[Tensor, "B H T K"]
    ) -> tuple[Float[Tensor, "BH K S"], Float[Tensor, "BH S K"]]:
        """Do the same, and give all of them as one batch of matrices, those of keys transposed."""
        end = self._write(k, v)
        keys, values = self._folded
        return keys.narrow(2, 0, end), values.narrow(1, 0, end)

    def _write(self, k: Float[Tensor, "B H T K"], v: Float[Tensor, "B H T K"]) -> int:
        start, n_new = self._cache.length, k.shape[2]
        self._keys.narrow(3, start, n_new).copy_(k.transpose(2, 3))
        self._values.narrow(2, start, n_new).copy_(v)
        return start + n_new


class MemoryKeyValues:
    """The keys and values that one executed cross entry made of the encoder's output, which no step changes."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._made: Pair | None = None

    def get(self, make: Callable[[], Pair]) -> Pair:
        """Give them, made at the first call."""
        if self._made is None:
            k, v = make()
            # Keys lie feature by feature, as those of a sequence's own tokens do.
            keys = k.to(self._dtype).transpose(2, 3).contiguous().transpose(2, 3)
            self._made = keys, v.to(self._dtype).contiguous()
        return self._made


def cache_bytes(config: ModelConfig, n_rows: int, max_len: int, dtype: torch.dtype) -> int:
    """Count the bytes of the keys and values that a decoder keeps of its own tokens."""
    assert config.d_head is not None, "the config is not resolved"
    decoder = stacks(config)[-1]
    n_attentions = decoder.n_layers * sum(entry.name == "attention" for entry in decoder.block)
    return 2 * n_attentions * n_rows * max_len * config.n_heads * config.d_head * dtype.itemsize


class Cache:
    """What a decoder keeps of the tokens it has seen, for ``batch_size`` rows of at most ``max_len`` tokens.

    Each executed attention has its own place, also where weights are shared. Every forward pass appends its tokens.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch_size: int,
        max_len: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        assert config.d_head is not None, "the config is not resolved"
        shape = (batch_size, config.n_heads, max_len, config.d_head)
        check_memory(
            cache_bytes(config, batch_size, max_len, dtype),
            f"the cache of {batch_size:,} rows of {max_len:,} tokens",
            "take fewer rows at a time (--batch), or a shorter context",
        )
        self.max_len, self.length = max_len, 0
        self.mask = torch.zeros(batch_size, max_len, dtype=torch.bool, device=device)
        self.is_padded = False
        decoder = stacks(config)[-1]
        self._kept: dict[tuple[int, int], KeyValues | MemoryKeyValues] = {}
        for layer, (place, entry) in product(range(decoder.n_layers), enumerate(decoder.block)):
            if entry.name == "attention":
                self._kept[layer, place] = KeyValues(self, shape, dtype, torch.device(device))
            elif entry.name == "cross":
                self._kept[layer, place] = MemoryKeyValues(dtype)

    def kept(self, layer: int, place: int) -> KeyValues | MemoryKeyValues | None:
        """Give what the entry at ``place`` of block ``layer`` keeps; None for entries that keep nothing."""
        return self._kept.get((layer, place))

    @property
    def past_mask(self) -> Bool[Tensor, "B P"] | None:
        """Which of the tokens seen are real; None where all are."""
        return self.mask[:, : self.length] if self.is_padded else None

    def check(self, n_tokens: int) -> None:
        """Raise ConfigError where ``n_tokens`` more do not fit."""
        if self.length + n_tokens > self.max_len:
            raise ConfigError(
                f"{self.length} + {n_tokens} tokens do not fit a cache of max_len = {self.max_len}; make a longer one"
            )

    def advance(self, n_tokens: int, mask: Bool[Tensor, "B T"] | None) -> None:
        """Count tokens as seen; ``mask`` tells the real ones."""
        end = self.length + n_tokens
        self.mask[:, self.length : end] = True if mask is None else mask
        self.is_padded = self.is_padded or mask is not None
        self.length = end
