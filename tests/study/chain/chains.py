"""Small chains: a decoder pre-trained on a text of its own, then fine-tuned on tiny tasks."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w

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
FIXED = {"threads": 1, "precision": "float32"}
FINETUNE = {"steps": 3, "evaluate_steps": 3, "batch_sequences": 8}
STUDY: dict[str, Any] = {
    "title": "A small chain",
    "match": "none",
    "seeds": 3,
    "finetunings": 2,
    "averages": {"both": ["sst2", "copa"]},
    "scale": {
        "cpu": {
            "recipe": "gpt",
            "set": {"model": MODEL, "data": DATA, "train": {**STEPS, **FIXED}},
            "finetune": {"train": FINETUNE, "data": {"held_out": 0.2}},
        }
    },
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
        said = (
            f"the {n} films of year {n % 7} were {'fine' if n % 3 else 'dull'}" for n in range(400)
        )
        text.write_text("\n".join(said))
        write_stsb(write_copa(write_sst2(folder / "glue")))
    path = folder / "small.toml"
    study = {key: value for key, value in {**STUDY, **changes}.items() if value is not None}
    path.write_text(tomli_w.dumps(study))
    return path


def words(study: Path, *more: str) -> list[str]:
    """Return the words of the command that compares the study's arms."""
    text, tasks = (str(study.parent / name) for name in ("text.txt", "glue"))
    return ["compare", str(study), f"data.path={text}", "--data", tasks, *more]


def finished(workshop: Workshop, name: str, *more: str, **changes: Any) -> Path:
    """Give the folder of a chain, its text and tasks; its finished study is ``out`` therein."""

    def make(folder: Path) -> None:
        study = write_chain(folder, **changes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
            assert cli.main(words(study, *more, "--out", str(folder / "out"))) == 0

    return workshop.once(f"chain-{name}", make)
