"""Files of tasks, as their publishers write them, whose answers a tiny model can learn."""

import json
from pathlib import Path

import numpy as np

GOOD, BAD = ("fine", "great", "lovely"), ("awful", "dull", "poor")
_NOUNS = ("film", "plot", "actor", "scene", "song", "story", "ending", "joke", "cast", "idea")
_SIZES = {"train": 60, "dev": 20}


FIRST_MARK = 0x4E00
"""The character that marks the first row of all; each further one has the next."""


def write_sst2(
    folder: Path, sizes: dict[str, int] = _SIZES, *, seed: int = 0, marks: bool = False
) -> Path:
    """Write sentences that are positive where a word is; no two are alike.

    Each ends with a word of its own; with ``marks`` that is a character that no other row has.
    """
    rng = np.random.default_rng(seed)
    number = 0
    for split, n in sizes.items():
        lines = ["sentence\tlabel"]
        for place in range(n):
            label = place % 2
            words = [*rng.choice(_NOUNS, rng.integers(2, 7)), rng.choice((BAD, GOOD)[label])]
            rng.shuffle(words)
            own = chr(FIRST_MARK + number) if marks else f"n{number}"
            lines.append(f"{' '.join(words)} {own} \t{label}")
            number += 1
        _write(folder / "SST-2" / f"{split}.tsv", lines)
    return folder


def write_stsb(folder: Path, sizes: dict[str, int] = _SIZES, seed: int = 1) -> Path:
    """Write pairs of sentences, and how many of the five words of the second are good."""
    rng = np.random.default_rng(seed)
    for split, n in sizes.items():
        lines = ["index\tsentence1\tsentence2\tscore"]
        for place in range(n):
            first = rng.choice(_NOUNS, 3)
            n_good = int(rng.integers(0, 6))
            second = [*rng.choice(GOOD, n_good), *rng.choice(BAD, 5 - n_good)]
            rng.shuffle(second)
            lines.append(f"{place}\t{' '.join(first)}\t{' '.join(second)}\t{n_good:.3f}")
        _write(folder / "STS-B" / f"{split}.tsv", lines)
    return folder


def write_rte(folder: Path, sizes: dict[str, int] = _SIZES, seed: int = 2) -> Path:
    """Write texts and what follows from them: what has no word that the text lacks."""
    rng = np.random.default_rng(seed)
    for split, n in sizes.items():
        lines = ["index\tsentence1\tsentence2\tlabel"]
        for place in range(n):
            words = rng.permutation(_NOUNS)
            label = ("entailment", "not_entailment")[place % 2]
            second = words[1] if place % 2 == 0 else words[6]
            first = " ".join(words[:4])
            lines.append(f"{place}\t{first} t{split}{place}\tthe {second}\t{label}")
        _write(folder / "RTE" / f"{split}.tsv", lines)
    return folder


def write_copa(folder: Path, sizes: dict[str, int] = _SIZES, seed: int = 3) -> Path:
    """Write premises and two alternatives, the right one of which is good."""
    rng = np.random.default_rng(seed)
    for split, n in sizes.items():
        lines = []
        for place in range(n):
            label = place % 2
            choices = [str(rng.choice(GOOD if label == k else BAD)) for k in range(2)]
            row = {
                "premise": f"{rng.choice(_NOUNS)} {place}",
                "choice1": choices[0],
                "choice2": choices[1],
                "question": "effect",
                "label": label,
                "idx": place,
            }
            lines.append(json.dumps(row))
        _write(folder / "COPA" / f"{_JSON_NAMES[split]}.jsonl", lines)
    return folder


_JSON_NAMES = {"train": "train", "dev": "val"}


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def write_squad(folder: Path, n: int = 12) -> Path:
    """Write questions after what is praised in short passages, each of an article of its own.

    In the files of 2.0 each third one has no answer.
    """
    for version in ("1.1", "2.0"):
        articles = [_praise(number, version) for number in range(n)]
        content = json.dumps({"version": version, "data": articles})
        _write(folder / f"train-v{version}.json", [content])
        _write(folder / f"dev-v{version}.json", [content])
    return folder


def _praise(number: int, version: str) -> dict:
    noun = _NOUNS[number % len(_NOUNS)]
    context = f"Of article {number} the {noun} is lovely."
    answers = [{"text": noun, "answer_start": context.index(noun)}]
    question = {"id": f"q{number}", "question": "What is lovely?", "answers": answers}
    if version == "2.0":
        question["is_impossible"] = number % 3 == 0
        if question["is_impossible"]:
            question |= {"question": "What is dull?", "answers": []}
    return {"title": f"article {number}", "paragraphs": [{"context": context, "qas": [question]}]}
