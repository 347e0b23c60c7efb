"""Options that the speed benchmarks share, and their progress lines."""

import argparse
import sys
from pathlib import Path


def add_shared_options(
    parser: argparse.ArgumentParser, *, quick_rounds: int, minutes: float = 19.0
) -> None:
    """Add how long and how often is measured, on how many threads, and where results go."""
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.1, 0.0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--minutes",
        type=float,
        default=minutes,
        help=f"for training, {minutes:g} unless given; a case has three rounds at least",
    )
    parser.add_argument("--threads", type=int, help="as many as there are cores unless given")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{quick_rounds} rounds, memory over few steps; nothing is kept",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    parser.add_argument("--serve", help=argparse.SUPPRESS)


def note(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)
