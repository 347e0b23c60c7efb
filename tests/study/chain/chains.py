"""A small chain: a decoder pre-trained on a text of its own, then fine-tuned on tiny tasks."""

import json
from pathlib import Path
from typing import Any

from tests.task_files import write_copa, write_sst2, write_stsb

STUDY: dict[str, Any] = {
    "title": "A small chain",
    "match": "none",
    "seeds": 3,
    "finetunings": 2,
    "averages": {"both": ["sst2", "copa"]},
    "scale": {
        "cpu": {
            "recipe": "gpt",
            "set": {
                "model": {"n_layers": 1, "d_model": 16, "n_heads": 2},
                "data": {"context": 48, "tokenizer": "bpe", "vocab_size": 300, "split": "80/10/10"},
                "train": {
                    "steps": 6,
                    "batch_sequences": 4,
                    "evaluate_tokens": 512,
                    "evaluate_steps": 6,
                    "threads": 1,
                    "precision": "float32",
                },
            },
            "finetune": {
                "train": {"steps": 3, "evaluate_steps": 3, "batch_sequences": 8},
                "data": {"held_out": 0.2},
            },
        }
    },
    "stages": [{"each": ["sst2", "copa"]}],
    "arms": [
        {"name": "full", "published": {"sst2": 91.3, "mnli": 81.8}},
        {"name": "no texts", "finetune": {"objective": {"language_weight": 0.0}}},
        {"name": "fresh", "pretrain": False},
    ],
}


def write_chain(folder: Path, **changes: Any) -> Path:
    """Write the study with some of its keys replaced, its text and its tasks, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "text.txt"
    if not text.exists():
        lines = []
        for n in range(400):
            said = "fine" if n % 3 else "dull"
            lines.append(f"the {n} films of year {n % 7} were {said}")
        text.write_text("\n".join(lines))
        write_stsb(write_copa(write_sst2(folder / "glue")))
    study = {**STUDY, **changes}
    path = folder / "small.toml"
    lines = []
    for key, value in study.items():
        if value is not None:
            lines.append(f"{key} = {inline(value)}")
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
    return [
        "compare",
        str(study),
        f"data.path={folder / 'text.txt'}",
        "--data",
        str(folder / "glue"),
        *more,
    ]
