"""The greatest values of numbers, and texts that are taken, in a recipe or on a command line.

Each is far above what anyone trains, and low enough that no sum or product of the values that they
allow overflows: a count of bytes or operations stays a number of the machine. Whether a machine can
hold these values is another question, which is asked before anything is allocated.
"""

MOST_LAYERS = 1000
"""Blocks of a stack; the deepest published has 1,000."""
MOST_HEADS = 100_000
MOST_LABELS = 100_000
WIDEST = 1_000_000
"""Features of a residual stream, a head or an embedding."""
WIDEST_FFN = 10_000_000
LARGEST_VOCABULARY = 100_000_000
LARGEST_TRAINED_VOCABULARY = 2_000_000
MOST_SENTINELS = 100_000
"""Gaps of a text, each with an id of its own; the published vocabularies have 100 to 300."""
MOST_BUCKETS = 1024
"""Distances that positions tell apart."""
LONGEST_WINDOW = 100_000_000
"""Tokens of a window."""
MOST_WINDOWS = 1_000_000_000
"""Windows of a batch."""
MOST_BATCH_TOKENS = 1_000_000_000_000
MOST_STEPS = 1_000_000_000_000
MOST_TOKENS = 1e18
LARGEST_SEED = 2**63 - 1
"""Largest seed of a generator of random numbers."""
MOST_THREADS = 1024
LARGEST_FACTOR = 1e6
"""A weight, a standard deviation: what numbers are multiplied with."""
LARGEST_RATE = 1e38
"""A learning rate that float32 holds: one that ruins a training ends it with what to do."""
MOST_ENTRIES = 100
"""Sub-layers of a block."""
WIDEST_BEAM = 1000
LARGEST_PENALTY = 10.0
"""Exponent of a translation's length."""
MOST_ROWS = 1_000_000
"""Lines, windows or continuations that a command computes at a time."""
LONGEST_TEXT = 65_536
"""Characters of a setting."""
MOST_SEEDS = 1000
"""Runs of an arm."""
MOST_JOBS = 1024
"""Runs at a time."""
MOST_ARMS = 500
"""Recipes that a comparison compares, and settings that it tries in each."""
MOST_FINETUNINGS = 1000
"""Of a stage of tasks under one pre-training; seeds of two pre-trainings are so far apart."""


def text_problem(text: str) -> str | None:
    """Return the fault of a text as such, in words; None for an ordinary one."""
    if len(text) > LONGEST_TEXT:
        return f"has {len(text):,} characters: give at most {LONGEST_TEXT:,}"
    if "\0" in text:
        return "has a null character, which no text or path has: leave it out"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "is not UTF-8: write it, or rename the file, in characters that are"
    return None
