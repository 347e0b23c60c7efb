"""Small chains: a decoder pre-trained on a text of its own, then fine-tuned on tiny tasks."""

import json
from pathlib import Path
from typing import Any

import pytest

from sublayer import cli
from tests.made import Workshop
from tests.task_files import write_copa, write_sst2, write_stsb

SAYS = "Texts help as much as pre-training."
ARMS: list[dict[str, Any]] = [
    {"name": "full", "published": {"sst2": 91.3, "mnli": 81.8}},
    {"name": "no texts", "finetune": {"objective": {"language_weight": 0.0}}},
    {"name": "fresh", "pretrain": False},
]
MODEL = {"n_layers": 1, "d_model": 16, "n_heads": 2}
DATA = {"context": 48, "tokenizer": "bpe", "vocab_size": 300, "split": "80/10/10"}
STEPS = {"steps": 6, "batch_sequences": 4, "evaluate_tokens": 512, "evaluate_steps": 6}
FINETUNE = {"steps": 3, "evaluate_steps": 3, "batch_sequences": 8}
SCALE: dict[str, Any] = {
    "recipe": "gpt",
    "set": {"model": MODEL, "data": DATA, "train": {**STEPS, "threads": 1, "precision": "float32"}},
    "finetune": {"train": FINETUNE, "data": {"held_out": 0.2}},
}
STUDY: dict[str, Any] = {
    "title": "A small chain",
    "match": "none",
    "seeds": 3,
    "finetunings": 2,
    "averages": {"both": ["sst2", "copa"]},
    "scale": {"cpu": SCALE},
    "stages": [{"each": ["sst2", "copa"]}],
    "arms": ARMS,
}
QUESTION = {
    "margin": "99 points",
    "margin_reason": "for the test",
    "hypothesis": {"says": SAYS, "contrast": {"no texts": 1.0, "fresh": -1.0}},
}
EARLY = {"tasks": "sst2", "name": "early", "from_step": 4}
LATE = {"tasks": "sst2", "name": "late"}
TOGETHER = {"name": "both of them", "ensemble": ["early", "late"]}
ENSEMBLE: dict[str, Any] = {
    "stages": [TOGETHER, EARLY, LATE],
    "arms": [{"name": "a"}, {"name": "b", "set": {"model": {"ffn": "swiglu"}}}],
    "averages": {},
    "seeds": 1,
    "finetunings": 3,
}
KEPT = "train.keep_steps=[4]"


def write_chain(folder: Path, **changes: Any) -> Path:
    """Write the study with some of its keys replaced, its text and its tasks, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "text.txt"
    if not text.exists():
        lines = []
        for n in range(400):
            word = "fine" if n % 3 else "dull"
            lines.append(f"the {n} films of year {n % 7} were {word}")
        text.write_text("\n".join(lines))
        write_stsb(write_copa(write_sst2(folder / "glue")))
    study = {**STUDY, **changes}
    path = folder / "small.toml"
    lines = [f"{key} = {inline(value)}" for key, value in study.items() if value is not None]
    path.write_text("\n".join(lines) + "\n")
    return path


def inline(value: Any) -> str:
    """Write a value as TOML, tables in one line."""
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key)} = {inline(each)}" for key, each in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"
    return json.dumps(value)


def words(study: Path, *more: str) -> list[str]:
    """Return the words of the command that compares the study's arms."""
    folder = study.parent
    text = f"data.path={folder / 'text.txt'}"
    return ["compare", str(study), text, "--data", str(folder / "glue"), *more]


def finished(workshop: Workshop, name: str, *more: str, **changes: Any) -> Path:
    """Give the folder of a chain, its text and tasks; its finished study is ``out`` therein."""

    def make(folder: Path) -> None:
        study = write_chain(folder, **changes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
            assert cli.main(words(study, *more, "--out", str(folder / "out"))) == 0

    return workshop.once(f"chain-{name}", make)
