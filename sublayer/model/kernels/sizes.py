"""Block sizes of our kernels, for the kernels and the memory estimate."""

GELU_PART = 1 << 17
"""Elements of the tanh GELU for each thread at a time.

From 2**16 to 2**18 a step takes as long, with and without avx512; the whole leaves every cache, and
with fewer the calls begin to show.
"""

BLOCK_ROWS = 128
"""Query rows that attention takes at a time.

Measured with bf16 and float32 at 256 and 512 tokens: blocks of 64 and of all rows are both slower.
"""

GRAIN = 1 << 16
"""Scores of a sequence for each thread from which attention takes it alone.

Of fewer, the many small operations show, most where threads wait for each other beside other
programs.
"""

NARROW_HEAD = 32
"""Features of a head up to which PyTorch's fused attention is the faster one on a CPU in float32.

Wider heads are faster by products of their own; benchmarks/kernel_choices.py.
"""

CPU_CHUNK_LOGITS = 1 << 22
"""Logits that the cross-entropy holds at a time.

Fewer make the matrix products slower, more only cost memory.
"""

GPU_CHUNK_LOGITS = 1 << 27
"""The same on a GPU."""

SWISH_PART = 1 << 20
"""Elements that a swish of another slope than 1 takes at a time, to make little beside them."""

CPU_UPDATE_PART = 1 << 18
"""Numbers of parameters of one shape that Adafactor updates together; a larger one goes alone.

Fewer are as fast, and from four times as many on they leave the cache.
"""

GPU_UPDATE_PART = 1 << 24
"""The same on a GPU, where fewer cost launches."""
