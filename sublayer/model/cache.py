"""Key/value and state caches, allocated in advance and passed in, never stored on a module."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import attention_forms, key_heads, stacks
from sublayer.errors import ConfigError
from sublayer.system.machine import check_memory

KeyValuePair = tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S K"]]


@dataclass
class _Filled:
    """Number of tokens in a cache, shared by its parts.

    Parts refer to this object instead of the cache: reference cycles would keep gigabytes of caches
    alive until the garbage collector runs.
    """

    length: int = 0


class KeyValues:
    """Keys and values of one executed attention, a ring of ``room`` tokens.

    Token i is stored at ``i % room``: a local attention has room for its window, any other for all
    tokens of the cache. Keys are stored feature-major, so that a query's product with all keys
    reads memory in order.
    """

    def __init__(
        self,
        filled: _Filled,
        shape: tuple[int, int, int, int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._filled = filled
        n_rows, n_heads, self.room, d_head = shape
        by_feature = (n_rows, n_heads, d_head, self.room)
        self._keep(
            torch.zeros(by_feature, dtype=dtype, device=device),
            torch.zeros(shape, dtype=dtype, device=device),
        )

    def take_rows(self, rows: Int[Tensor, " N"]) -> None:
        """Select ``rows``, in their order; rows may repeat."""
        self._keep(self._keys[rows], self._values[rows])

    def _keep(self, keys: Float[Tensor, "B H K S"], values: Float[Tensor, "B H S K"]) -> None:
        self._keys = keys
        self._values = values
        # Views with rows and heads as one axis, created once to save time in a step.
        self._folded_keys = self._keys.flatten(0, 1).transpose(1, 2)  # [B H, S, K]
        self._folded_values = self._values.flatten(0, 1)  # [B H, S, K]

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of keys and values."""
        return self._keys.dtype

    def append(
        self, k: Float[Tensor, "B H T K"], v: Float[Tensor, "B H T K"]
    ) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S K"]]:
        """Append new keys and values, and return those that a new query may see, in order.

        The result is in the cache's dtype: views, valid until the same positions are overwritten,
        or copies where the ring is full. Only ``Cache.advance`` changes the length.
        """
        start = self._filled.length
        if start + k.shape[2] > self.room:
            past = torch.arange(start - min(start, self.room - 1), start, device=k.device)
            past.remainder_(self.room)
            every = (
                torch.cat([self._keys[..., past].transpose(2, 3), k.to(self.dtype)], 2),
                torch.cat([self._values[:, :, past], v.to(self.dtype)], 2),
            )
            self._write(k, v)
            return every
        end = self._write(k, v)
        keys = self._keys.narrow(3, 0, end).transpose(2, 3)  # [B, H, S, K]
        return keys, self._values.narrow(2, 0, end)

    def append_folded(
        self, k: Float[Tensor, "B H T K"], v: Float[Tensor, "B H T K"]
    ) -> tuple[Float[Tensor, "BH S K"], Float[Tensor, "BH S K"]]:
        """Append a token's keys and values; return all in the ring, rows and heads as one axis.

        This is the layout of a decoding step, whose products have one batch axis.
        """
        end = self._write(k, v)
        keys = self._folded_keys.narrow(1, 0, end)  # [B H, S, K]
        return keys, self._folded_values.narrow(1, 0, end)

    def append_at(
        self,
        k: Float[Tensor, "B H 1 K"],
        v: Float[Tensor, "B H 1 K"],
        place: Int[Tensor, " 1"],
        room: int,
    ) -> tuple[Float[Tensor, "BH S K"], Float[Tensor, "BH S K"]]:
        """Write one token at a place held in a tensor; return the first ``room``, folded.

        Entries that no token has been written to are finite, but meaningless.
        """
        self._keys.index_copy_(3, place, k.transpose(2, 3).to(self.dtype))
        self._values.index_copy_(2, place, v.to(self.dtype))
        return self._folded_keys.narrow(1, 0, room), self._folded_values.narrow(1, 0, room)

    def _write(self, k: Float[Tensor, "B H T K"], v: Float[Tensor, "B H T K"]) -> int:
        """Write the last ``room`` of new tokens; return the number of filled places."""
        start, n_new = self._filled.length, k.shape[2]
        end, first = start + n_new, start % self.room
        if first + n_new > self.room:
            n_kept = min(n_new, self.room)
            places = torch.arange(end - n_kept, end, device=k.device).remainder_(self.room)
            self._keys[..., places] = k[:, :, -n_kept:].transpose(2, 3).to(self.dtype)
            self._values[:, :, places] = v[:, :, -n_kept:].to(self.dtype)
        else:
            self._keys.narrow(3, first, n_new).copy_(k.transpose(2, 3))
            self._values.narrow(2, first, n_new).copy_(v)
        return min(end, self.room)


class MemoryKeyValues:
    """Keys and values of the encoder's output in one cross-attention, which are constant."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._pair: KeyValuePair | None = None

    def take_rows(self, rows: Int[Tensor, " N"]) -> None:
        """Select rows as ``KeyValues.take_rows`` does."""
        if self._pair is not None:
            k, v = self._pair
            self._pair = k[rows], v[rows]

    def get(self, compute: Callable[[], KeyValuePair]) -> KeyValuePair:
        """Return the keys and values, which ``compute`` computes at the first call."""
        if self._pair is None:
            k, v = compute()
            # Keys are stored feature-major, as in ``KeyValues``.
            keys = k.to(self._dtype).transpose(2, 3).contiguous().transpose(2, 3)
            self._pair = keys, v.to(self._dtype).contiguous()
        return self._pair


class LstmState:
    """State of one LSTM layer after the tokens read so far, initially zero."""

    def __init__(self, n_rows: int, n_units: int, dtype: torch.dtype, device: torch.device) -> None:
        self.output = torch.zeros(n_rows, n_units, dtype=dtype, device=device)
        self.cell = torch.zeros(n_rows, n_units, dtype=dtype, device=device)

    def get(
        self, dtype: torch.dtype, rows: Int[Tensor, " S"] | None = None
    ) -> tuple[Float[Tensor, "1 S D"], Float[Tensor, "1 S D"]]:
        """Return the output and cell of some or all rows, in ``dtype``."""
        output, cell = self.output, self.cell
        if rows is not None:
            output, cell = output[rows], cell[rows]
        return output[None].to(dtype), cell[None].to(dtype)

    def take_rows(self, rows: Int[Tensor, " N"]) -> None:
        """Select rows as ``KeyValues.take_rows`` does."""
        self.output = self.output[rows]
        self.cell = self.cell[rows]

    def set(
        self,
        output: Float[Tensor, "1 S D"],
        cell: Float[Tensor, "1 S D"],
        rows: Int[Tensor, " S"] | None = None,
    ) -> None:
        """Store the final states of some or all rows."""
        if rows is None:
            rows = torch.arange(len(self.output), device=self.output.device)
        self.output = self.output.index_copy(0, rows, output[0].to(self.output.dtype))
        self.cell = self.cell.index_copy(0, rows, cell[0].to(self.cell.dtype))


def cache_bytes(config: ResolvedModel, n_rows: int, max_len: int, dtype: torch.dtype) -> int:
    """Count the bytes of a decoder's self-attention cache.

    For an LSTM these are the bytes of its states. An encoder's output is not counted.
    """
    decoder = stacks(config)[-1]
    if _is_recurrent(config):
        return n_rows * decoder.n_layers * 2 * config.d_model * dtype.itemsize
    forms = (form for of_block in attention_forms(config, decoder) for form in of_block)
    n_kept = sum(min(form.window or max_len, max_len) for form in forms if form is not None)
    n_features = 2 * key_heads(config) * config.d_head  # a key and a value
    return n_rows * n_kept * n_features * dtype.itemsize


class Cache:
    """Key/value cache of a decoder, for ``batch_size`` rows of at most ``max_len`` tokens.

    Executed attentions have separate entries, even if they share weights; a local one keeps only
    the last tokens of its window, padding included. Every forward pass appends its tokens. For an
    LSTM it holds the states of layers, and is never full.

    Raises ConfigError where the machine has too little memory.
    """

    def __init__(
        self,
        config: ResolvedModel,
        batch_size: int,
        max_len: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        check_memory(
            cache_bytes(config, batch_size, max_len, dtype),
            f"the cache of {batch_size:,} rows of {max_len:,} tokens",
            "take fewer rows at a time (--batch), or a shorter context",
        )
        self.is_endless = _is_recurrent(config)
        self.max_len = max_len
        self.dtype = dtype
        self._filled = _Filled()
        n_masked = 0 if self.is_endless else max_len
        self.mask = torch.zeros(batch_size, n_masked, dtype=torch.bool, device=device)
        self.is_padded = False
        decoder = stacks(config)[-1]
        forms = attention_forms(config, decoder)
        self._key_values: dict[tuple[int, int], KeyValues | MemoryKeyValues | LstmState] = {}
        for layer in range(decoder.n_layers):
            for index, entry in enumerate(decoder.block):
                if entry.kind.is_recurrent:
                    state = LstmState(batch_size, config.d_model, dtype, torch.device(device))
                    self._key_values[layer, index] = state
                match entry.kind.attends_to:
                    case "itself":
                        form = forms[layer][index]
                        room = max_len if form is None else min(form.window or max_len, max_len)
                        shape = (batch_size, key_heads(config), room, config.d_head)
                        key_values = KeyValues(self._filled, shape, dtype, torch.device(device))
                        self._key_values[layer, index] = key_values
                    case "memory":
                        self._key_values[layer, index] = MemoryKeyValues(dtype)
                    case "nothing":
                        pass

    def key_values(self, layer: int, index: int) -> KeyValues | MemoryKeyValues | LstmState | None:
        """Return the cache of entry ``index`` of block ``layer``, both counted from 0.

        None for an entry without a cache, such as a feed-forward network.
        """
        return self._key_values.get((layer, index))

    @property
    def length(self) -> int:
        """Return the number of appended tokens, padding included."""
        return self._filled.length

    @property
    def n_past(self) -> int:
        """Return the number of earlier tokens to attend to; 0 for an LSTM."""
        return 0 if self.is_endless else self.length

    @property
    def past_mask(self) -> Bool[Tensor, "B P"] | None:
        """Return the mask of real past tokens; None without padding."""
        has_mask = self.is_padded and not self.is_endless
        return self.mask[:, : self.length] if has_mask else None

    def check(self, n_tokens: int) -> None:
        """Raise ConfigError if ``n_tokens`` more tokens do not fit."""
        if not self.is_endless and self.length + n_tokens > self.max_len:
            raise ConfigError(
                f"{self.length} + {n_tokens} tokens do not fit into a cache of "
                f"max_len = {self.max_len}: create a longer cache"
            )

    def clear(self) -> None:
        """Drop all tokens, but keep the buffers; only for decoders without LSTM or encoder."""
        self._filled.length = 0
        self.is_padded = False

    def take_rows(self, rows: Int[Tensor, " N"]) -> None:
        """Select ``rows``, in their order; rows may repeat.

        This allows several texts to continue a prompt that was read once.
        """
        for state in self._key_values.values():
            state.take_rows(rows)
        self.mask = self.mask[rows]

    def advance(self, n_tokens: int, mask: Bool[Tensor, "B T"] | None) -> None:
        """Count tokens as read; ``mask`` is True at real tokens, None without padding.

        It is called once per forward pass, after all blocks have appended keys and values.
        """
        end = self.length + n_tokens
        if not self.is_endless:
            new = self.mask[:, self.length : end]
            new.fill_(True) if mask is None else new.copy_(mask)
        self.is_padded = self.is_padded or mask is not None
        self._filled.length = end


def _is_recurrent(config: ResolvedModel) -> bool:
    return any(entry.kind.is_recurrent for entry in stacks(config)[-1].block)
