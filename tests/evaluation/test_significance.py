"""Paired tests equal the sacrebleu command's, and tell known systems apart."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sublayer.errors import DataError
from sublayer.evaluation.bleu import sacre_bleu
from sublayer.evaluation.significance import compare_translations

WORDS = ["Hund", "Katze", "läuft", "schnell", "der", "die", "ein", "auf", "dem", "Sofa", "."]


def sentences(n: int, seed: int) -> list[str]:
    drawn = np.random.default_rng(seed)
    return [" ".join(drawn.choice(WORDS, size=int(drawn.integers(5, 12)))) for _ in range(n)]


def damaged(lines: list[str], share: float, seed: int) -> list[str]:
    drawn = np.random.default_rng(seed)
    return [
        " ".join(word if drawn.random() > share else "nichts" for word in line.split())
        for line in lines
    ]


REFERENCES = sentences(60, 1)


def test_randomisation_is_that_of_the_command(tmp_path: Path) -> None:
    texts, others = damaged(REFERENCES, 0.2, 2), damaged(REFERENCES, 0.3, 3)
    for name, lines in (("refs", REFERENCES), ("this", texts), ("other", others)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    found = compare_translations("sacrebleu", texts, others, REFERENCES)
    words = "-m sacrebleu refs -i other this -m bleu --paired-ar -f json"
    command = [sys.executable, *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    baseline, system = (row["BLEU"] for row in json.loads(done.stdout))
    assert found.value == pytest.approx(system["score"])
    assert found.other == pytest.approx(baseline["score"])
    assert found.p_randomisation == pytest.approx(system["p_value"])


def test_the_interval_of_the_difference_is_that_of_lines_drawn_again() -> None:
    texts, others = damaged(REFERENCES, 0.2, 2), damaged(REFERENCES, 0.3, 3)
    found = compare_translations("sacrebleu", texts, others, REFERENCES)
    drawn = np.random.default_rng(12345).choice(60, size=(1000, 60), replace=True)[:40]
    first = [
        sacre_bleu([texts[i] for i in each], [REFERENCES[i] for i in each]).value
        - sacre_bleu([others[i] for i in each], [REFERENCES[i] for i in each]).value
        for each in drawn
    ]
    assert found.interval[0] < found.difference < found.interval[1]
    # 40 of the 1,000: nearly all within, and nearly as far apart.
    inside = [found.interval[0] <= each <= found.interval[1] for each in first]
    assert sum(inside) >= 36
    assert max(first) - min(first) > 0.6 * (found.interval[1] - found.interval[0])


def test_one_line_of_many_is_not_a_difference_beyond_doubt() -> None:
    others = damaged(REFERENCES, 0.2, 2)
    texts = [REFERENCES[0], *others[1:]]
    found = compare_translations("sacrebleu", texts, others, REFERENCES)
    # However the two lines are exchanged, the difference is as large.
    assert found.difference > 0 and found.p_randomisation == 1.0


@pytest.mark.parametrize("name", ["bleu", "sacrebleu", "chrf"])
def test_a_much_better_system_is_told_and_an_equal_one_is_not(name: str) -> None:
    texts = damaged(REFERENCES, 0.05, 2)
    better = compare_translations(name, texts, damaged(REFERENCES, 0.5, 3), REFERENCES)
    assert better.difference > 10 and better.p_randomisation < 0.01
    worse = compare_translations(name, damaged(REFERENCES, 0.5, 3), texts, REFERENCES)
    assert worse.difference == pytest.approx(-better.difference) and worse.p_randomisation < 0.01
    same = compare_translations(name, texts, texts, REFERENCES)
    assert same.difference == 0 and same.interval == (0.0, 0.0)
    assert same.p_randomisation == 1.0


def test_lines_of_another_number_are_refused() -> None:
    with pytest.raises(DataError, match="2 translations cannot be scored against 3 references"):
        compare_translations("bleu", ["a"] * 3, ["a"] * 2, ["a"] * 3)
