"""A table of one's own that a small model learns: reviews, whose words say which label is right."""

import csv
import random
from pathlib import Path

GOOD = ("lovely", "great", "superb", "moving")
BAD = ("dull", "awful", "tedious", "bland")
OTHERS = ("film", "plot", "actor", "scene", "music", "story", "camera")


def review(rng: random.Random, *, is_good: bool) -> str:
    """Return a sentence with two words that say what it says."""
    words = [*rng.choices(OTHERS, k=4), *rng.choices(GOOD if is_good else BAD, k=2)]
    rng.shuffle(words)
    return f"The {' '.join(words)}."


def reviews(n: int, seed: int = 0) -> list[dict[str, str]]:
    """Return rows of ``review``, ``stars``, which are words, ``rating`` and ``film``."""
    rng = random.Random(seed)
    rows = []
    for number in range(n):
        is_good = rng.random() < 0.5
        rating = (4.0 if is_good else 1.0) + rng.random()
        rows.append(
            {
                "review": review(rng, is_good=is_good),
                "stars": "good" if is_good else "bad",
                "rating": f"{rating:.2f}",
                "film": f"film {number // 3}",
            }
        )
    return rows


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    """Write a table with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
