"""The raw bytes of a shard, as they are told from others: where they are cut, and encoded."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.whole_documents import check_unchanged
from sublayer.files.lines import changed


@dataclass
class TextSum:
    """The number and the CRC-32 of bytes that were read, in their order.

    Text is read twice, by who cuts it and by who encodes it: equal sums say that both read the
    same, whatever happened to the file in between.
    """

    n_bytes: int = 0
    crc32: int = 0

    def add(self, data: bytes) -> None:
        """Count the bytes that follow."""
        self.n_bytes += len(data)
        self.crc32 = zlib.crc32(data, self.crc32)


def check_sum(
    encoded: TextSum, cut: TextSum, name: str, sources: Sequence[Sequence[DocumentRange]]
) -> None:
    """Raise DataError where what was encoded is not what was cut, from document ``name`` on."""
    if encoded == cut:
        return
    for ranges in sources:
        check_unchanged(ranges)  # which knows the file
    raise changed(f"{name}, or what follows it,")
