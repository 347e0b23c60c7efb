"""Commands of reference: recipes, fields, tasks, completion."""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sublayer.api import recipes as api
from sublayer.api.arguments import Plugins, Settings
from sublayer.api.recipes import FieldRow, field_rows, find_fields, json_schema
from sublayer.api.results import Found
from sublayer.cli.build import CommandResult, client_of
from sublayer.cli.completion import SHELLS
from sublayer.config.plugins import PLUGINS, mark_used
from sublayer.config.recipe import TABLES
from sublayer.errors import ConfigError, DataError, check_rules, nearest_hint
from sublayer.numbers import count
from sublayer.options import Argument, Option
from sublayer.system.terminal import hanging, page_width, paragraph, stage
from sublayer.tables import table
from sublayer.values import show as quoted

if TYPE_CHECKING:
    from sublayer.data.tokenizers.base import Tokenizer
    from sublayer.tasks.task import Example, Task


@client_of(api.recipe, "sublayer recipes llama-2023 --changed")
def recipes(
    source: Annotated[
        str | None,
        Argument(
            "A recipe's name, a .toml file, or a run. Default: a list of all recipes.",
            metavar="RECIPE",
            complete="recipes",
        ),
    ] = None,
    overrides: Settings = None,
    diagram: Annotated[
        bool, Option("Draw the recipe's architecture instead of its fields.")
    ] = False,
    out: Annotated[
        Path | None,
        Option(
            "The file to draw the diagram in. Default: the terminal.",
            metavar="FILE.svg",
            needs="diagram",
        ),
    ] = None,
    **options: Any,
) -> CommandResult:
    """List the recipes and studies, or show all fields of a recipe, each with the origin of its
    value: a recipe or a rule.
    """
    check_rules(
        "",
        (
            diagram and "changed" in options,
            "--diagram draws a recipe, and --changed lists fields: leave out one",
        ),
        (
            diagram and source is None,
            "--diagram draws one recipe: name it, as in `recipes gpt --diagram`",
        ),
        (
            source is None and "changed" in options,
            "--changed shows the settings of one recipe: name it, such as llama-2023",
        ),
    )
    if source is None:
        return api.list_recipes()
    if not diagram:
        return api.recipe(source, overrides, **options)
    drawn = api.draw(source, overrides, out=out)
    return drawn if out is None else Found(drawn.found, f"diagram: {drawn['file']}")


@client_of(example="sublayer fields d_ff")
def fields(
    name: Annotated[
        str | None,
        Argument(
            f"A field (d_ff, model.d_ff), a table ({', '.join(TABLES)}), or a word to search "
            "names, choices and descriptions for. Default: all fields.",
            metavar="NAME|WORD",
            complete="fields",
        ),
    ] = None,
    schema: Annotated[bool, Option("Print the JSON Schema of a recipe file, for editors.")] = False,
    plugins: Plugins = (),
) -> CommandResult:
    """List the fields of a recipe: type, unit, default, condition of effect, recipes that set it.

    On the command line a field is set by TABLE.FIELD=VALUE.
    """
    mark_used(PLUGINS.values())  # their rows are listed
    if schema:
        if name is not None:
            raise ConfigError(f"--schema covers all fields: leave out {quoted(name)}")
        return Found(json_schema(), json.dumps(json_schema(), indent=2))
    rows = field_rows() if name is None else find_fields(name)
    return Found({"fields": [asdict(row) for row in rows]}, "\n\n".join(map(_field, rows)))


def _field(field: FieldRow) -> str:
    default = field.default if field.default.startswith("derived") else f"default {field.default}"
    facts = [
        field.type,
        f"in {field.unit}" if field.unit else "",
        default if field.default != "unset" else "",
    ]
    notes = [
        field.description,
        f"Counts where {field.used_when}." if field.used_when else "",
        f"Set by {', '.join(field.set_by)}." if field.set_by and field.table else "",
    ]
    texts = ("; ".join(filter(None, facts)), " ".join(filter(None, notes)))
    name = ".".join(filter(None, (field.table, field.name)))
    return "\n".join([name, *(paragraph(text, indent="    ") for text in texts)])


@client_of(example="sublayer check mish.py")
def check(
    plugin: Annotated[
        str,
        Argument("A Python file, or the name of an installed package.", metavar="FILE"),
    ],
) -> CommandResult:
    """Try every row of a plugin in small models and runs, and list what holds.

    The plugin is code that is run. Exit code 0: all holds; 4: something does not.
    """
    with stage("starting PyTorch"):
        from sublayer.api.checking import check as check_rows
    return check_rows(plugin)


_MOST_ENTRIES = 8
"""Number of files listed for a folder without a known task."""
_NEXT = (
    "Training on a task without a folder of its files downloads those missing in the cache. The "
    "tasks of a folder: `sublayer tasks DIR`; a task in each format: `sublayer tasks NAME "
    "--show`."
)
_READERS = {
    "pair": "pair, for encoders",
    "traversal": "traversal, for decoders",
    "text": "text, for encoder-decoders and decoders",
}
_MOST_TOKENS = 48
"""Tokens to which a longer text is shortened, half from its beginning and half from its end."""


@client_of(example="sublayer tasks rte --show")
def tasks(
    name: Annotated[
        str | None,
        Argument(
            "A folder, to list its files of each task, or a task. Default: all tasks, with their "
            "files in the cache.",
            metavar="DIR|NAME",
            complete="tasks",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        Option("The folder of the task's files. Default: the cache.", metavar="DIR"),
    ] = None,
    show: Annotated[
        bool,
        Option(
            "Show an example token by token in each format, as models read it. Without --data, "
            "placeholders replace its texts."
        ),
    ] = False,
    row: Annotated[
        int,
        Option(
            "The number of the example to show, from 0, in the first available split.",
            least=0,
            most=10**9,
            needs="show",
        ),
    ] = 0,
    tokenizer: Annotated[
        Path | None,
        Option(
            "The tokenizer to use: a run, a model's folder, or a tokenizer's file or folder. "
            "Default: words.",
            metavar="RUN",
            complete="runs",
            needs="show",
        ),
    ] = None,
) -> CommandResult:
    """List the tasks for fine-tuning, and their files in a folder.

    Files are found by the names of their publishers or the hub, in the folder or its subfolder of a
    suite, such as glue, or of a task, such as SST-2. Invalid rows are left out, and counted with
    the reason and the first place.
    """
    from sublayer.files.storage import expanded
    from sublayer.tasks.registry import TASKS

    task = TASKS.get(name or "")
    if task is None and (show or data is not None):
        option = "--show" if show else "--data"
        raise ConfigError(f"{option} needs a task: name one, such as rte")
    if task is not None and show:
        from sublayer.api.tokenizing import find_tokenizer

        return _example(task, data, None if tokenizer is None else find_tokenizer(tokenizer), row)
    if task is not None:
        described = _described(task, data, reads=True)
        return Found({"folder": data, "tasks": [described]}, _task_text(described))
    folder = None if name is None else expanded(name)
    if folder is not None and not folder.is_dir():
        raise ConfigError(
            f"{name!r} is neither a folder nor a task"
            f"{nearest_hint(name or '', TASKS) or ': `sublayer tasks` lists the tasks'}"
        )
    rows = [_described(listed, folder, reads=folder is not None) for listed in TASKS.values()]
    entries = [] if folder is None else sorted(path.name for path in folder.iterdir())
    results: dict[str, Any] = {"folder": name, "entries": entries[:_MOST_ENTRIES], "tasks": rows}
    if folder is None:
        return Found(results, f"{_task_table(rows, 'in the cache')}\n\n{paragraph(_NEXT)}")
    there = [described for described in rows if described["splits"]]
    if not there:
        return Found(
            results,
            f"{name} has no files of a task, by the names of their publishers or the hub, such as "
            "SST-2/train.tsv or sst2/train-00000-of-00001.parquet: it has "
            f"{', '.join(results['entries']) or 'nothing'}. `sublayer tasks NAME` lists the names "
            "of a task's files",
        )
    absent = [described["name"] for described in rows if not described["splits"]]
    parts = [
        _task_table(there, "rows"),
        "\n".join(line for described in there for line in _faults(described)),
        paragraph(f"not there: {', '.join(absent)}") if absent else "",
    ]
    return Found(results, "\n\n".join(filter(None, parts)))


def _described(task: "Task", folder: Path | None, *, reads: bool) -> dict[str, Any]:
    """Describe a task and its files, in a folder or in the cache."""
    from sublayer.tasks.metrics import METRICS
    from sublayer.tasks.registry import ROWS, describe_files

    row = ROWS[task.name]
    return {
        "name": task.name,
        "title": task.title,
        "suite": task.suite,
        "kind": task.kind,
        "fields": task.fields,
        "labels": task.labels,
        "numbers": task.numbers if task.kind == "number" else None,
        "metrics": [METRICS[name].title for name in task.metrics],
        "published": task.splits,
        "trained_as": task.trained_as,
        "files": row.files,
        "urls": [file.url for file in row.release.files] if row.release else [],
        "splits": describe_files(task, folder, reads=reads),
    }


def _task_text(task: Mapping[str, Any]) -> str:
    from sublayer.tasks.registry import SUITES

    answer = {"choice": "one of the example's choices", "span": "a span of the passage"}
    if task["labels"]:
        answer[task["kind"]] = " or ".join(task["labels"])
    elif task["kind"] == "number":
        answer["number"] = "a number from {:g} to {:g}".format(*task["numbers"])
    facts = {
        "texts": ", ".join(task["fields"]),
        "answer": answer[task["kind"]],
        "score": " and ".join(task["metrics"]),
        "splits": ", ".join(task["published"]),
        "answered by": f"a model of {task['trained_as']}" if task["trained_as"] else "",
        "files": task["files"],
        "served at": ", ".join(task["urls"]) or "nowhere without asking",
        "found": _split_sizes(task) or "nothing",
    }
    lines = [f"{task['name']}: {task['title']} ({SUITES[task['suite']].title})"]
    lines += [hanging(text, f"  {name:<12}", " " * 14) for name, text in facts.items() if text]
    return "\n".join([*lines, *_faults(task)])


def _task_table(tasks: Sequence[Mapping[str, Any]], heading: str) -> str:
    rows = [
        (task["name"], task["title"], task["kind"], ", ".join(task["metrics"]), _split_sizes(task))
        for task in tasks
    ]
    return table(("task", "title", "kind", "metrics", heading), rows, width=page_width())


def _split_sizes(task: Mapping[str, Any]) -> str:
    parts = []
    for name, split in task["splits"].items():
        size = "" if split["rows"] is None else f" {split['rows']:,}"
        parts.append(f"{name} ?" if split["problem"] else f"{name}{size}")
    return ", ".join(parts)


def _faults(task: Mapping[str, Any]) -> Iterator[str]:
    """Report omitted or repaired rows of each split, with the first, or the split's read error."""
    happened = {"left_out": "left out", "repaired": "repaired", "kept": "kept unchanged"}
    for name, split in task["splits"].items():
        texts = [f"cannot be read: {split['problem']}"] if split["problem"] else []
        texts += [
            f"{count(rows['rows'], 'row')} {what}: {reason}; the first is {rows['first']}"
            for key, what in happened.items()
            for reason, rows in split[key].items()
        ]
        yield from (hanging(f"{task['name']}, {name}: {text}", "", "    ") for text in texts)


def _example(
    task: "Task", folder: Path | None, tokenizer: "Tokenizer | None", row: int
) -> CommandResult:
    """Show the example ``row``, from 0, of a task's first split in a folder, in each format.

    Without a folder, the names of its parts replace its texts. Raises DataError without such an
    example.
    """
    from sublayer.data.tasks.figure import draw_figures
    from sublayer.tasks.registry import find_files, read_split, wording_of

    where, example = "", wording_of(task).outline()
    if folder is not None:
        files = find_files(task, folder)
        if not files:
            raise DataError(
                f"{folder} has no files of {task.title}: `sublayer tasks {folder}` lists its tasks"
            )
        split = next(name for name in task.splits if name in files)
        examples = read_split(task, split, files[split]).examples
        if row >= len(examples):
            raise DataError(
                f"{split} of {task.title} has {len(examples)} rows: give a --row below that, from 0"
            )
        where, example = f"{split}, id {examples[row].id}", examples[row]
    answer, formats = _answer(task, example), draw_figures(task, example, tokenizer)
    lines = [f"{task.title}, {where}" if where else task.title]
    for format_, figure in formats.items():
        marks = figure["marks"]
        texts = [figure["problem"]] if figure["problem"] else []
        texts += [" ".join(_shortened(tokens, marks)) for tokens in figure["rows"]]
        if figure["target"]:
            texts.append(" ".join(["->", *_shortened(figure["target"], marks)]))
        lines += ["", _READERS[format_]]
        lines += [
            fill(
                text,
                100,
                initial_indent="  ",
                subsequent_indent="      ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            for text in texts
        ]
    if answer is not None:
        lines += ["", f"answer: {answer}"]
    about = {"task": task.name, "title": task.title, "example": where, "answer": answer}
    return Found({**about, "formats": formats}, "\n".join(lines))


def _answer(task: "Task", example: "Example") -> str | int | float | None:
    if not example.is_labelled:
        return None
    if example.label is None:
        return example.answers[0].text if example.answers else "none"
    if task.kind == "classes":
        return task.labels[int(example.label)]
    return example.choices[int(example.label)] if task.kind == "choice" else example.label


def _shortened(row: Sequence[str], marks: Collection[str]) -> Iterator[str]:
    """Return a row's tokens without the middle of long texts."""
    for _, text in groupby(row, key=lambda token: token in marks):
        tokens = list(text)
        n_left_out = len(tokens) - _MOST_TOKENS
        if n_left_out > 0:
            half = _MOST_TOKENS // 2
            yield from (*tokens[:half], f"[... {n_left_out:,} more ...]", *tokens[-half:])
        else:
            yield from tokens


@client_of(example="sublayer completion bash --install")
def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"] | None,
        Argument(
            "The shell: bash, zsh or fish. Default: the shell of the variable SHELL.",
            metavar="SHELL",
        ),
    ] = None,
    install: Annotated[
        bool,
        Option(
            "Install the script below the home folder, with a line in ~/.bashrc or ~/.zshrc that "
            "loads it, if missing."
        ),
    ] = False,
) -> CommandResult:
    """Print or install the shell script that completes sublayer's commands, options, recipes, runs,
    fields and their choices.

    For the current shell alone: eval "$(sublayer completion bash)"; in zsh likewise after compinit;
    in fish, sublayer completion fish | source.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise ConfigError(
            f"completion is not available for {name or 'this shell'}: name bash, zsh or fish"
        )
    if not install:
        script = SHELLS[name].script
        return Found({"shell": name, "script": script}, script.rstrip("\n"))
    from sublayer.files.storage import write_file

    target = Path.home() / SHELLS[name].path
    target.parent.mkdir(parents=True, exist_ok=True)
    write_file(target, SHELLS[name].script)
    lines = [f"completion of {name}: {target}"]
    startup, changed = Path.home() / SHELLS[name].settings, None
    before = startup.read_bytes() if startup.is_file() else b""
    line = SHELLS[name].line.encode()
    if line and line not in before.splitlines():
        # Appended, not replaced: the file may be a link.
        with startup.open("ab") as file:
            file.write((b"" if before.endswith(b"\n") or not before else b"\n") + line + b"\n")
        changed = str(startup)
        lines.append(f"line that loads it: {changed}")
    lines.append(f"to start a new shell: exec {name}")
    results = {"shell": name, "installed": str(target), "changed": changed}
    return Found(results, "\n".join(lines))
