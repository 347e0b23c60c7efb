"""Block sizes of our kernels, which the memory estimate uses as well."""

GELU_PART = 1 << 17
"""Number of elements of the tanh GELU that a thread computes at a time.

From 2**16 to 2**18 the time of a step is the same, with and without AVX-512. The full tensor does
not fit into any cache, and with fewer elements the overhead of calls becomes noticeable.
"""

BLOCK_ROWS = 128
"""Number of query rows that attention computes at a time.

Under causality, smaller blocks compute and save fewer weights of invisible keys. Blocks of all rows
are slower (256 and 512 tokens), and so are those of 64 on two threads, or in bfloat16.
"""

GRAIN = 1 << 16
"""Number of scores per thread from which attention computes sequences separately.

With fewer, the overhead of many small operations is noticeable, most of all where threads wait for
each other because other programs run.
"""

NARROW_HEAD = 32
"""Width of a head up to which PyTorch's fused attention is faster on a CPU in float32.

Wider heads are faster with separate products (benchmarks/kernel_choices.py).
"""

LEAST_PRODUCTS = 1 << 23
"""Number of multiplications of a product from which oneDNN is faster in float32.

Smaller ones are faster by MKL, with and without AVX-512 (benchmarks/kernel_choices.py).
"""

CPU_CHUNK_LOGITS = 1 << 22
"""Number of logits that the cross-entropy holds at a time.

Fewer slow down the matrix products, and more only take memory.
"""

GPU_CHUNK_LOGITS = 1 << 27
"""Number of logits that the cross-entropy holds at a time on a GPU."""

SWISH_PART = 1 << 20
"""Number of elements that a swish of a slope other than 1 computes at a time, to limit temporaries.
"""

CPU_UPDATE_PART = 1 << 18
"""Number of elements, of parameters of one shape, that Adafactor updates together.

A larger parameter is updated alone. Fewer elements are as fast, and four times as many do not fit
into the cache.
"""

GPU_UPDATE_PART = 1 << 24
"""Number of elements that Adafactor updates together on a GPU, where fewer cost kernel launches."""
