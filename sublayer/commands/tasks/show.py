"""``sublayer tasks NAME --show``: an example in each format, token by token."""

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from textwrap import fill
from typing import TYPE_CHECKING, Any

from sublayer.commands.shared.base import JsonObject
from sublayer.errors import DataError
from sublayer.tasks.formats import outline
from sublayer.tasks.registry import find_files, read_split
from sublayer.tasks.task import Example, Task

if TYPE_CHECKING:
    from sublayer.data.tasks.figure import Figure
    from sublayer.data.tokenizers.base import Tokenizer

_READERS = {
    "pair": "pair, for encoders",
    "traversal": "traversal, for decoders",
    "text": "text, for encoder-decoders and decoders",
}
_MOST_TOKENS = 48
"""Of one text; of a longer one as many are shown of its beginning and of its end as this halved."""
_WIDTH = 100


def show_task(
    task: Task, folder: str | None, tokenizer: "Tokenizer | None", *, row: int = 0
) -> dict[str, Any]:
    """Write the labelled example ``row``, from 0, of a task's first split in a folder.

    Without a folder, the names of its parts stand for its texts. Raises DataError where there is no
    such example.
    """
    from sublayer.data.tasks.figure import draw_figures

    where = ""
    example = outline(task)
    if folder is not None:
        example, where = _find_example(task, folder, row)
    figures = draw_figures(task, example, tokenizer)
    return {
        "task": task.name,
        "title": task.title,
        "example": where,
        "answer": _answer(task, example),
        "formats": {each.format: _written(each) for each in figures},
    }


def _find_example(task: Task, folder: str, row: int) -> tuple[Example, str]:
    found = find_files(task, folder)
    if not found:
        raise DataError(
            f"{folder} has no files of {task.title}: `sublayer tasks {folder}` lists what it has"
        )
    split = next(name for name in task.splits if name in found)
    examples = read_split(task, split, found[split]).examples
    if row >= len(examples):
        raise DataError(f"{split} of {task.title} has {len(examples)} rows: --row counts from 0")
    return examples[row], f"{split}, id {examples[row].id}"


def _answer(task: Task, example: Example) -> str | int | float | None:
    if not example.is_labelled:
        return None
    if example.label is None:
        return example.answers[0].text if example.answers else "none"
    if task.kind == "classes":
        return task.labels[int(example.label)]
    if task.kind == "choice":
        return example.choices[int(example.label)]
    return example.label


def _written(figure: "Figure") -> dict[str, Any]:
    tokens = [each for row in figure.rows for each in row]
    return {
        "rows": [[each.text for each in row] for row in figure.rows],
        "marks": list(dict.fromkeys(each.text for each in tokens if each.is_mark)),
        "target": [each.text for each in figure.target],
        "problem": figure.problem,
    }


def _shortened(row: Sequence[str], marks: Collection[str]) -> Iterator[str]:
    """Return a row's tokens with the middle of long texts left out."""
    for _, run in groupby(row, key=lambda token: token in marks):
        tokens = list(run)
        n_left_out = len(tokens) - _MOST_TOKENS
        if n_left_out > 0:
            half = _MOST_TOKENS // 2
            yield from (*tokens[:half], f"[... {n_left_out:,} more ...]", *tokens[-half:])
        else:
            yield from tokens


def render_shown(result: JsonObject) -> str:
    """Render what ``show_task`` found for people."""
    of = f", {result['example']}" if result["example"] else ""
    lines = [f"{result['title']}{of}"]
    for name, figure in result["formats"].items():
        lines += ["", _READERS[name]]
        if figure["problem"]:
            lines.append(_indented(figure["problem"]))
        for row in figure["rows"]:
            lines.append(_indented(" ".join(_shortened(row, figure["marks"]))))
        if figure["target"]:
            target = _shortened(figure["target"], figure["marks"])
            lines.append(_indented(" ".join(("->", *target))))
    if result["answer"] is not None:
        lines += ["", f"answer: {result['answer']}"]
    return "\n".join(lines)


def _indented(text: str) -> str:
    return fill(
        text,
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
