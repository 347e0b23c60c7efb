"""Next commands for a model, by its kind and its text."""

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from sublayer.config.recipe import Recipe
from sublayer.files.lines import PACKED
from sublayer.files.paths import as_typed
from sublayer.tasks.registry import TASKS

PROMPT, GAPS = '"The "', '"The <extra_id_0> of the book."'
_FILE = "FILE"
"""Stands for a text of the user's, where none is known."""
_BEGINNING = "next: "


def after_training(run: str, recipe: Recipe, splits: Collection[str]) -> list[str]:
    """Return commands for a run; ``splits`` are those that its text has."""
    name = shlex.quote(as_typed(run))
    if recipe.data.tasks is not None:
        return _listed([f"evaluate {name}", f"predict {name} {_FILE}"])
    held_out = [split for split in ("test", "valid") if split in splits]
    own_text = f"--split {held_out[0]}" if held_out else f"--path {_text(recipe)}"
    commands = [f"evaluate {name} {own_text}"]
    kind = recipe.model.kind
    if kind in ("decoder", "lstm"):
        commands.append(f"generate {name} --prompt {PROMPT}")
    elif kind == "encoder":
        # Without a text it reads the validation split.
        commands.append(
            f"inspect layers {name}"
            if "valid" in splits
            else f"inspect layers {name} --path {_text(recipe)}"
        )
    elif recipe.data.is_parallel:
        commands.append(f"translate {name} < {_source(recipe)}")
    else:
        knows_gaps = recipe.objective.n_sentinels(recipe.data.context) > 0
        commands.append(f"generate {name} --prompt {GAPS if knows_gaps else PROMPT}")
    return _listed(commands)


def after_import(
    model: str,
    kind: str,
    *,
    is_translator: bool,
    knows_gaps: bool,
    has_head: bool = True,
    answers: str | None = None,
    lacks_marks: bool = False,
) -> list[str]:
    """Return commands for an imported model that has a tokenizer; its text is not known.

    ``has_head``: it predicts tokens, or judges pairs of texts; ``answers`` is the name of the task
    that it answers, if any; ``lacks_marks``: its tokenizer has not the marks that it would read the
    texts between.
    """
    name = shlex.quote(as_typed(model))
    if lacks_marks:
        return _listed([f"finetune {name} TASK --data DIR"])
    if answers is not None:
        named = "" if answers in TASKS else " --task TASK"
        return _listed([f"evaluate {name}{named} --path DIR"])
    if kind in ("decoder", "lstm"):
        prompted = f"generate {name} --prompt {PROMPT}"
        return _listed([f"evaluate {name} --path {_FILE}", prompted])
    if kind == "encoder":
        trained = f"finetune {name} TASK --data DIR"
        embedded = f"embed {name} {_FILE} --out vectors.npy"
        return _listed(
            [f"inspect layers {name} --path {_FILE}"] if has_head else [embedded, trained]
        )
    if is_translator:
        return _listed([f"translate {name} < {_FILE}"])
    return _listed([f"generate {name} --prompt {GAPS if knows_gaps else PROMPT}"])


def after_importing(model: str) -> list[str]:
    """Return commands for the folder of a model that was imported with its tokenizer."""
    from sublayer.data.tasks.encoded import has_traversal
    from sublayer.data.tokenizers.languages import BilingualTokenizer
    from sublayer.data.tokenizers.named import load_tokenizer
    from sublayer.loading import load_task
    from sublayer.model.model_folder import read_config

    config = read_config(Path(model))
    spec = load_task(Path(model))
    tokenizer = load_tokenizer(Path(model) / "tokenizer.json")
    return after_import(
        model,
        config.kind,
        is_translator=isinstance(tokenizer, BilingualTokenizer),
        knows_gaps=bool(tokenizer.sentinel_ids),
        has_head=config.head != "none" or bool(config.sentence_classes),
        answers=None if spec is None else spec.tasks[0].name,
        lacks_marks=spec is not None
        and spec.format == "traversal"
        and not has_traversal(tokenizer),
    )


def _listed(commands: Sequence[str]) -> list[str]:
    lines = []
    for number, command in enumerate(commands):
        beginning = " " * len(_BEGINNING) if number else _BEGINNING
        lines.append(f"{beginning}sublayer {command}")
    return lines


def _text(recipe: Recipe) -> str:
    """Name the text of a recipe as it would be typed, where it is one."""
    path = recipe.data.path
    return shlex.quote(as_typed(path)) if isinstance(path, str) else _FILE


def _source(recipe: Recipe) -> str:
    """Name a file of lines to translate: a held-out one, or else one of the training text."""
    data = recipe.data
    for path in (data.test_source_path, data.valid_source_path, data.source_path):
        if path is not None and Path(path).suffix not in PACKED:
            return shlex.quote(as_typed(path))
    return _FILE
