"""A table of one's own that a small model learns: reviews, whose words say which label is right."""

import csv
import random

GOOD = ("lovely", "great", "superb", "moving")
BAD = ("dull", "awful", "tedious", "bland")
OTHERS = ("film", "plot", "actor", "scene", "music", "story", "camera")


def reviews(n, seed=0):
    rng, rows = random.Random(seed), []
    for number in range(n):
        is_good = rng.random() < 0.5
        rating = (4.0 if is_good else 1.0) + rng.random()
        words = [*rng.choices(OTHERS, k=4), *rng.choices(GOOD if is_good else BAD, k=2)]
        rng.shuffle(words)
        row = {"review": f"The {' '.join(words)}.", "stars": "good" if is_good else "bad"}
        rows.append({**row, "rating": f"{rating:.2f}", "film": f"film {number // 3}"})
    return rows


def write_csv(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([rows[0], *(row.values() for row in rows)])
    return path
