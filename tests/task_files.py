"""Files of tasks, as their publishers write them, whose answers a tiny model can learn."""

import json

import numpy as np

GOOD, BAD = ("fine", "great", "lovely"), ("awful", "dull", "poor")
_NOUNS = ("film", "plot", "actor", "scene", "song", "story", "ending", "joke", "cast", "idea")
_SIZES = {"train": 60, "dev": 20}
FIRST_MARK = 0x4E00  # of the first row of all; each further one has the next


def write_sst2(folder, sizes=_SIZES, *, seed=0, marks=False):
    """Write sentences that are positive where a word is; no two are alike."""
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


def write_stsb(folder, sizes=_SIZES, seed=1):
    """Write pairs of sentences, and how many of the five words of the second are good."""

    def row(rng, split, place):
        first, n_good = rng.choice(_NOUNS, 3), int(rng.integers(0, 6))
        second = [*rng.choice(GOOD, n_good), *rng.choice(BAD, 5 - n_good)]
        rng.shuffle(second)
        return f"{place}\t{' '.join(first)}\t{' '.join(second)}\t{n_good:.3f}"

    return _write_rows(folder, "STS-B", row, sizes, seed, "score")


def write_rte(folder, sizes=_SIZES, seed=2):
    """Write texts and what follows from them: what has no word that the text lacks."""

    def row(rng, split, place):
        words = rng.permutation(_NOUNS)
        label, second = (("entailment", 1), ("not_entailment", 6))[place % 2]
        return f"{place}\t{' '.join(words[:4])} t{split}{place}\tthe {words[second]}\t{label}"

    return _write_rows(folder, "RTE", row, sizes, seed, "label")


def write_copa(folder, sizes=_SIZES, seed=3):
    """Write premises and two alternatives, the right one of which is good."""

    def row(rng, split, place):
        label = place % 2
        choices = [str(rng.choice(GOOD if label == k else BAD)) for k in range(2)]
        found = {"premise": f"{rng.choice(_NOUNS)} {place}", "choice1": choices[0]}
        found |= {"choice2": choices[1], "question": "effect", "label": label, "idx": place}
        return json.dumps(found)

    return _write_rows(folder, "COPA", row, sizes, seed)


def _write_rows(folder, name, row, sizes, seed, label=None):
    rng = np.random.default_rng(seed)
    for split, n in sizes.items():
        lines = [f"index\tsentence1\tsentence2\t{label}"] if label else []
        lines += [row(rng, split, place) for place in range(n)]
        path = f"{split}.tsv" if label else f"{split.replace('dev', 'val')}.jsonl"
        _write(folder / name / path, lines)
    return folder


def _write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def write_squad(folder, n=12):
    """Write questions after what is praised in short passages, each of an article of its own."""
    for version in ("1.1", "2.0"):
        articles = [_praise(number, version) for number in range(n)]
        content = json.dumps({"version": version, "data": articles})
        _write(folder / f"train-v{version}.json", [content])
        _write(folder / f"dev-v{version}.json", [content])
    return folder


def _praise(number, version):
    noun = _NOUNS[number % len(_NOUNS)]
    context = f"Of article {number} the {noun} is lovely."
    answers = [{"text": noun, "answer_start": context.index(noun)}]
    question = {"id": f"q{number}", "question": "What is lovely?", "answers": answers}
    if version == "2.0":
        question["is_impossible"] = number % 3 == 0
        if question["is_impossible"]:
            question |= {"question": "What is dull?", "answers": []}
    return {"title": f"article {number}", "paragraphs": [{"context": context, "qas": [question]}]}
