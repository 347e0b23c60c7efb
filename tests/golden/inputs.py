"""Texts, tables, tasks, recipes and studies that golden commands read."""

import csv
import random
import shutil
from pathlib import Path

NOUNS = ("film", "plot", "actor", "scene", "song", "story", "ending", "joke", "cast", "idea")
GOOD, BAD = ("fine", "great", "lovely"), ("awful", "dull", "poor")
GERMAN = {
    "the": "der",
    "old": "alte",
    "red": "rote",
    "small": "kleine",
    "dog": "Hund",
    "fox": "Fuchs",
    "bird": "Vogel",
    "sees": "sieht",
    "hears": "hört",
    "finds": "findet",
    ".": ".",
}

_TRAIN = 'steps = 16\nevaluate_steps = 4\nbatch_sequences = 8\nprecision = "float32"\nthreads = 1'
_MODEL = "[model]\nn_layers = 2\nd_model = 16\nn_heads = 2"
_BOOK = '[data]\npath = "book.txt"\ndocuments = "blank-line"\ncontext = 48'

RECIPES = {
    "small": f"""\
title = "A small decoder"
extends = "gpt"
{_MODEL}
{_BOOK}
tokenizer = "characters"
[optimizer]
lr = 1e-2
[train]
{_TRAIN}
""",
    "recurrent": f"""\
extends = "gpt1-lstm"
model = {{ d_model = 16, d_embed = 16 }}
{_BOOK}
tokenizer = "characters"
[optimizer]
lr = 3e-2
warmup_steps = 4
[train]
{_TRAIN}
""",
    "deep": f"""\
extends = "char-small"
{_MODEL}
d_ff = 32
{_BOOK}
[train]
{_TRAIN}
""",
    "encoder": f"""\
extends = "albert-small"
{_MODEL}
d_embed = 8
{_BOOK}
tokenizer = "wordpiece"
vocab_size = 120
[optimizer]
kind = "adamw"
lr = 1e-2
[train]
{_TRAIN}
""",
    "translator": f"""\
extends = "multi30k-tiny"
{_MODEL.replace("2", "1", 1)}
[data]
source_path = "pairs.en"
target_path = "pairs.de"
vocab_size = 80
context = 32
[objective]
beam = 2
[optimizer]
lr = 5e-2
warmup_steps = 8
[train]
{_TRAIN.replace("batch_sequences = 8", "batch_tokens = 600").replace("16", "100")}
keep_checkpoints = 2
checkpoint_steps = 50
""",
    "gaps": f"""\
extends = "t5-mini"
{_MODEL}
{_BOOK}
vocab_size = 120
sentinels = 10
[train]
{_TRAIN.replace("16", "40")}
""",
}

STAGES = """\
title = "Two feed-forward networks, pre-trained and fine-tuned"
match = "parameters"
seeds = 3
finetunings = 2

[scale.cpu]
recipe = "small.toml"
set = { train.steps = 6 }

[scale.cpu.finetune]
train = { steps = 12, evaluate_steps = 6, precision = "float32", threads = 1 }
optimizer.lr = 1e-2

[[stages]]
table = "my.csv"
columns = { text = "review", label = "stars" }

[[stages]]
tasks = "sst2"
finetunings = 1

[[arms]]
name = "GELU"

[[arms]]
name = "SwiGLU"
set = { model.ffn = "swiglu" }
"""

SUITE = """\
title = "Small models, side by side"

[[texts]]
path = "other.txt"
documents = "blank-line"

[[tasks]]
names = ["rte"]
data = "glue"
finetune = "tuned"
[tasks.set]
train = { steps = 6, evaluate_steps = 3, precision = "float32", threads = 1 }
optimizer.lr = 1e-2

[[probes]]
names = ["sst2"]
data = "glue"
"""

_TWO_ARMS = '[[arms]]\nname = "A"\n[[arms]]\nname = "B"\nset = { model.ffn = "glu" }\n'
_SCALE = '[scale.cpu]\nrecipe = "small.toml"\n'
FAULTY = {
    "after.toml": f'{_SCALE}[[stages]]\ntasks = "sst2"\nafter = "mnli"\n{_TWO_ARMS}',
    "bad.toml": "[model\nd_model = 16\n",
    "broken.json": '{"kind": "bpe"',
    "circle.toml": 'extends = "circle.toml"\n',
    "claim.toml": f'{_SCALE}{_TWO_ARMS}[hypothesis]\nsays = "C wins"\nbetter = "C"\nthan = "A"\n',
    "empty.txt": "",
    "few/one.txt": "One document.",
    "flat.toml": "d_model = 16\n",
    "latin.txt": "café " * 400,
    "nobase.toml": 'extends = "gtp"\n',
    "nul.txt": "\0\1\2" * 400,
    "one.toml": f'{_SCALE}[[arms]]\nname = "alone"\n',
    "ragged.csv": "review,stars\nfine,good,more\ndull\n",
    "same.csv": "review,stars\n" + "fine,good\n" * 20,
    "short.txt": "A",
    "taskless.toml": f'{_SCALE}[[stages]]\ntasks = "sst3"\n{_TWO_ARMS}',
    "twice.toml": f'{_SCALE}[[arms]]\nname = "A"\n[[arms]]\nname = "A"\n',
    "typo.toml": 'extends = "gpt"\n[model]\nd_modle = 16\n',
    "unknown.toml": f"seed = 3\n{_SCALE}{_TWO_ARMS}",
}
"""Files that are refused, in Latin-1."""


def write_faulty(folder: Path) -> None:
    """Write files with mistakes."""
    for name, text in FAULTY.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text.encode("latin-1"))


def write_inputs(folder: Path) -> None:
    """Write all that commands read and that no command writes."""
    rng = random.Random(46)
    _write(folder / "book.txt", [_paragraph(rng) for _ in range(160)])
    _write(folder / "other.txt", [_paragraph(rng) for _ in range(12)])
    _write(folder / "marked.txt", ["A naïve café — 日本語, emoji 🙂 and a tab\there."])
    pairs = [_pair(rng) for _ in range(240)]
    _write(folder / "pairs.en", [first for first, _ in pairs])
    _write(folder / "pairs.de", [second for _, second in pairs])
    _write(folder / "few.en", ["the old dog sees the red fox .", "", "the bird ."])
    _write(folder / "lines.txt", ["The film is great.", "", "awful"])
    _write_tables(folder, rng)
    _write_tasks(folder / "glue", rng)
    scores = Path(__file__).parents[2] / "examples" / "scores"
    shutil.copytree(scores, folder / "scores")
    shutil.copytree(Path(__file__).parents[1] / "judging" / "mistakes", folder / "bad")
    for name, text in RECIPES.items():
        _write(folder / f"{name}.toml", text.splitlines())
    _write(folder / "stages.toml", STAGES.splitlines())
    _write(folder / "suite.toml", SUITE.splitlines())


def _paragraph(rng: random.Random) -> str:
    return " ".join(_sentence(rng) for _ in range(rng.randrange(3, 7))) + "\n"


def _sentence(rng: random.Random) -> str:
    words = [rng.choice((*NOUNS, *GOOD, *BAD)) for _ in range(rng.randrange(3, 9))]
    return f"The {' '.join(words)}."


def _pair(rng: random.Random) -> tuple[str, str]:
    adjectives, nouns, verbs = ("old", "red", "small"), ("dog", "fox", "bird"), ("sees", "hears")
    words = ["the", rng.choice(adjectives), rng.choice(nouns), rng.choice((*verbs, "finds"))]
    words += ["the", rng.choice(adjectives), rng.choice(nouns), "."]
    return " ".join(words), " ".join(GERMAN[word] for word in words)


def _review(rng: random.Random, number: int) -> dict[str, str]:
    is_good = number % 2 == 0
    words = [*rng.choices(NOUNS, k=3), *rng.choices(GOOD if is_good else BAD, k=2)]
    rng.shuffle(words)
    return {
        "review": f"The {' '.join(words)}.",
        "stars": "good" if is_good else "bad",
        "rating": f"{(4 if is_good else 1) + rng.random():.2f}",
        "film": f"film {number // 3}",
    }


def _write_tables(folder: Path, rng: random.Random) -> None:
    _write_csv(folder / "my.csv", [_review(rng, number) for number in range(120)])
    _write_csv(folder / "new.csv", [_review(rng, number) for number in range(3)])
    questions, choices = [], []
    for number in range(48):
        noun, good, bad = rng.choice(NOUNS), rng.choice(GOOD), rng.choice(BAD)
        passage = f"A {good} {noun} and a {bad} {rng.choice(NOUNS)}."
        questions.append({"passage": passage, "question": "Which is good?", "answer": noun})
        endings = [good, bad] if number % 3 else [bad, good]
        choices.append({"start": f"I liked the {noun}: it is", "first": endings[0]})
        choices[-1] |= {"second": endings[1], "right": good}
    _write_csv(folder / "questions.csv", questions)
    _write_csv(folder / "choices.csv", choices)


def _write_tasks(folder: Path, rng: random.Random) -> None:
    for split, n in (("train", 60), ("dev", 20), ("test", 6)):
        sst2, rte = [], []
        for number in range(n):
            row = _review(rng, number)
            text = row["review"].lower().rstrip(".")
            sst2.append([text, str(int(row["stars"] == "good"))])
            first, second = rng.sample(NOUNS, 4), rng.choice(NOUNS)
            follows = "entailment" if second in first else "not_entailment"
            rte.append([str(number), " ".join(first), f"the {second}", follows])
        headers = [["sentence", "label"], ["index", "sentence1", "sentence2", "label"]]
        if split == "test":
            headers = [["index", "sentence"], headers[1][:3]]
            sst2 = [[str(number), text] for number, (text, _) in enumerate(sst2)]
            rte = [cells[:3] for cells in rte]
        for task, header, rows in zip(("SST-2", "RTE"), headers, (sst2, rte), strict=True):
            _write(folder / task / f"{split}.tsv", ["\t".join(row) for row in (header, *rows)])


def _write_csv(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
