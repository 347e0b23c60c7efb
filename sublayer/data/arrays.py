"""Names for the types of arrays."""

import numpy as np
from numpy.typing import NDArray

# Docstrings give shapes in brackets where the code has no jaxtyping: ``[N]``, ``[B, T]``.

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
AnyInts = NDArray[np.integer]
"""Integers of any width: token ids as they are stored."""
TokenIds = NDArray[np.int32]
"""Token ids as tokenizers give them."""
