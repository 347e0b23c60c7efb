"""Write the pages that follow from the program: fields, help of the commands, records.

They are generated before each build of the documentation and not kept: ``python docs/generate.py``.
"""

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sublayer.api.recipes import FieldRow, field_rows
from sublayer.cli import main as cli
from sublayer.config.recipe import TABLES
from sublayer.estimate.cluster import DEVICES
from sublayer.numbers import count
from sublayer.tasks.metrics import METRICS
from sublayer.tasks.registry import SUITES

REFERENCE = Path(__file__).parent / "reference"
RECORDS = Path(__file__).parent.parent / "records"

_SCORES = {
    "bits_per_byte": "bits per byte",
    "loss": "nats per token",
    "frequency_loss": "by frequency",
    "mlm_accuracy": "masked tokens",
    "sop_accuracy": "sentence order",
    "nsp_accuracy": "next sentence",
    "bleu": "BLEU of words",
    "sacrebleu": "BLEU of text",
    "chrf": "chrF",
}
_VERDICTS = {"undecided": "cannot tell"}
"""Today's names of the verdicts of earlier versions."""

_ANSWERS = {
    "number": "a number",
    "choice": "one of the example's choices",
    "span": "a span of the passage",
}

_TABLES = {
    "": "Head of a recipe file",
    "model": "Architecture",
    "data": "Texts, tokens and batches",
    "objective": "Training objective",
    "optimizer": "Optimizer and learning rate",
    "train": "Length, batches, evaluations and checkpoints",
    "init": "Start model",
}


def write_reference(folder: Path = REFERENCE) -> None:
    """Write the pages of fields, commands, tasks, devices and records, and the reports that those
    link.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fields.md").write_text(fields_page(), encoding="utf-8")
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")
    (folder / "tasks.md").write_text(tasks_page(), encoding="utf-8")
    (folder / "devices.md").write_text(devices_page(), encoding="utf-8")
    (folder / "records.md").write_text(records_page(), encoding="utf-8")
    for report in RECORDS.glob("*/report.html"):
        (folder / "records" / report.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(report, folder / "records" / report.parent.name / report.name)


def fields_page() -> str:
    """Lay out what ``sublayer fields`` prints, table by table."""
    lines = [
        "# Fields",
        "",
        "Every field of a recipe, as `sublayer fields` prints it. On the command line a field is",
        "set as `TABLE.FIELD=VALUE`. `sublayer fields --schema` prints the same as a JSON Schema,",
        "for editors. [Recipes and settings](../recipes.md) has the rules.",
        "",
    ]
    rows = field_rows()
    for table in ("", *TABLES):
        title = f"`[{table}]`: {_title(table)}" if table else _title(table)
        lines += [f"## {title}", ""]
        for row in rows:
            if row.table == table:
                lines += _field(row)
    return "\n".join(lines)


def commands_page() -> str:
    """Lay out the help of every command."""
    lines = ["# Commands", "", "The output of `sublayer COMMAND --help`, command by command.", ""]
    for name in cli.COMMANDS:
        lines += [f"## {name}", "", "```text", _help(name), "```", ""]
    return "\n".join(lines)


def tasks_page() -> str:
    """Lay out the table of tasks, suite by suite."""
    lines = [
        "# Tasks",
        "",
        "Published tasks, suite by suite, as `sublayer tasks` lists them. [Task",
        "files](../tasks.md) has their formats.",
        "",
    ]
    for suite in SUITES.values():
        lines += [
            f"## {suite.title}",
            "",
            "| task | title | texts | answer | metrics | splits |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for task in (row.task for row in suite.rows):
            metrics = [METRICS[name].title for name in task.metrics]
            texts, splits = ", ".join(task.fields), ", ".join(task.splits)
            answer = ", ".join(task.labels) or _ANSWERS[task.kind]
            cells = (task.name, task.title, texts, answer, ", ".join(metrics), splits)
            lines.append(f"| {' | '.join(map(_escaped, cells))} |")
        lines.append("")
    return "\n".join(lines)


def devices_page() -> str:
    """Lay out the table of devices that ``sublayer plan --device`` takes."""
    lines = [
        "# Devices",
        "",
        "Datasheets for `sublayer plan --device`: dense products, float32 without TF32, links one",
        "way between the eight devices of one machine ([cost and memory](../planning.md)).",
        "",
        "| `--device` | device | memory | bfloat16 | float32 | link | source |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, device in DEVICES.items():
        cells = (
            f"`{name}`",
            device.title,
            f"{device.memory_bytes / 1e9:g} GB",
            f"{device.bfloat16_per_s / 1e12:g} TFLOP/s",
            f"{device.float32_per_s / 1e12:g} TFLOP/s",
            f"{device.link_bytes_per_s / 1e9:g} GB/s",
            device.source,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def records_page() -> str:
    """Lay out the records: the command of each, its results, and their limits."""
    lines = [
        "# Records",
        "",
        "Complete runs and comparisons: the command, the results, and their limits. The folder",
        "`records` of the source has each with its recipe and every number.",
        "",
    ]
    for note in sorted(RECORDS.glob("*/NOTE.md")):
        folder = note.parent
        lines += [f"## {folder.name}", ""]
        for name, lay_out in _KEPT.items():
            if (folder / name).exists():
                record = json.loads((folder / name).read_text(encoding="utf-8"))
                lines += lay_out(folder.name, record)
        tables = folder / "TABLES.md"
        if tables.exists():
            lines += [tables.read_text(encoding="utf-8").strip(), ""]
        lines += [note.read_text(encoding="utf-8").replace("# ", "### ", 1).strip(), ""]
    return "\n".join(lines)


def _study(name: str, record: dict[str, Any]) -> list[str]:
    """Lay out a recorded comparison: its command and its verdicts, as they are judged today."""
    made = record["reproduction"]["environment"]
    judged = _judged_again(name)
    how = ""
    if judged:
        n = count(len(judged["differences"]), "comparison")
        level = f"; {100 * judged['level']:.2g} % over {n}" if judged["pairing"] else ""
        how = f" Judged by today's rule: {judged['of']}{level}."
    lines = [
        f"{record['title']}. {made['processor']}, {made['precision']}; `{record['metric']}` of the",
        f"{record['split']} split, {count(record['planned_seeds'], 'seed')}.{how}",
        f"[The report](records/{name}/report.html){', as it was then' if judged else ''}.",
        "",
        *("```sh", record["reproduction"]["command"], "```", ""),
    ]
    then = {(each["arm"], each["baseline"]): each["verdict"] for each in record["differences"]}
    headings = [
        "arm",
        "against",
        "difference",
        "interval",
        "verdict",
        *(["then"] if judged else []),
    ]
    lines += [f"| {' | '.join(headings)} |", f"| {' | '.join(_RULES[: len(headings)])} |"]
    for each in (judged or record)["differences"]:
        # Of one seed there is no interval.
        has_interval = each["low"] is not None
        interval = f"{each['low']:+.4f} to {each['high']:+.4f}" if has_interval else "–"
        mean = "–" if each["mean"] is None else f"{each['mean']:+.4f}"
        verdict = _verdict(each["verdict"])
        if each.get("on_this_text") and verdict in ("better", "worse"):
            verdict += ", on this text"
        row = [each["arm"], each["baseline"], mean, interval, verdict]
        if judged:
            row.append(_verdict(then.get((each["arm"], each["baseline"]), "not asked")))
        lines.append(f"| {' | '.join(row)} |")
    return [*lines, ""]


_RULES = ["---", "---", "---:", "---", "---", "---"]


def _judged_again(name: str) -> dict[str, Any] | None:
    """Read how a record was judged again; None of one that was not."""
    path = RECORDS / name / "judged.json"
    if not path.exists():
        return None
    judged: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return judged


def _verdict(written: str) -> str:
    return _VERDICTS.get(written, written)


def _run(_: str, record: dict[str, Any]) -> list[str]:
    """Lay out a recorded run: its commands and its scores."""
    train = record["train"]
    lines = [
        f"{train['title']}. {train['machine']['processor']}, {train['precision']};",
        f"{train['step']:,} steps, {train['seconds'] / 60:.0f} minutes. Text: {record['text']}.",
        "",
        *("```text", *record["commands"], "```", ""),
    ]
    scored = dict(_scored(record))
    shown = [key for key in _SCORES if any(key in scores for scores in scored.values())]
    lines += [f"| scored | {' | '.join(_SCORES[key] for key in shown)} |"]
    lines += [f"| --- |{' ---: |' * len(shown)}"]
    for text, scores in scored.items():
        cells = (f"{scores[key]:.4g}" if key in scores else "" for key in shown)
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return [*lines, ""]


def _scored(record: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Find the scores in a record of a run, by the scored data."""
    evaluated = record.get("evaluate", {})
    groups = (
        {**evaluated, **record} if "split" not in evaluated else {evaluated["split"]: evaluated}
    )
    for text, scores in groups.items():
        if text in ("valid", "test", "intrinsic"):
            yield text, scores


def _tasks(_: str, record: dict[str, Any]) -> list[str]:
    """Lay out models fine-tuned on tasks: start, scores, scores of baselines."""
    starts = record["starts"]
    lines = [
        f"{record['title']}. {record['machine']['processor']}.",
        "",
        *("```text", *record["commands"], "```", ""),
        "| pre-trained | parameters | tokens | minutes |",
        "| --- | ---: | ---: | ---: |",
    ]
    for kind, start in starts.items():
        cells = (f"{start['parameters']:,}", f"{start['tokens']:,}", f"{start['seconds'] / 60:.0f}")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    lines += [
        "",
        f"| task | rows | majority | words | {' | '.join(starts)} |",
        f"| --- | ---: | ---: | ---: |{' ---: |' * len(starts)}",
    ]
    for row in record["rows"]:
        cells = [_points(row["majority"]), _points(row["words"])]
        cells += [_scored_beside(row["scores"].get(kind), row["words"]) for kind in starts]
        lines.append(f"| {row['title']} | {row['examples']:,} | {' | '.join(cells)} |")
    lines += ["", "Bold: above `words`. With one standard error."]
    lines += ["", "| seeds of the encoder | scores | collapsed |", "| --- | --- | ---: |"]
    for name, found in record["seeds"].items():
        shown = ", ".join(map(_points, found["scores"]))
        lines.append(f"| {name} | {shown} | {sum(map(bool, found['collapses']))} |")
    if "mixture" in record:
        kinds = ("mixture", "task_bests", "ranked")
        tables = [record[kind] for kind in kinds if kind in record]
        lines += ["", "| mixture | the best mean | the best of each task | ranked |"]
        lines += ["| --- | ---: | ---: | ---: |"]
        for rows in zip(*tables, strict=True):
            cells = [_scored_beside(row, row["words"]) for row in rows]
            lines.append(f"| {rows[0]['task']} | {' | '.join(cells)} |")
    return [*lines, ""]


def _card(_: str, record: dict[str, Any]) -> list[str]:
    """Lay out a scorecard: its rows and columns, each score with its standard error."""
    columns = record["columns"]
    lines = [
        f"{record['title']}. {record['machine']['processor']}, {record['machine']['cores']} cores.",
        "",
        f"| | {' | '.join(column['label'] for column in columns)} |",
        f"| --- |{' ---: |' * len(columns)}",
    ]
    for row in record["rows"]:
        cells = (_card_cell(row["cells"].get(column["name"]), column) for column in columns)
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return [*lines, ""]


def _card_cell(cell: dict[str, Any] | None, column: dict[str, Any]) -> str:
    if cell is None:
        return ""
    shown = []
    for value in (cell["mean"], cell["error"]):
        if value is not None:
            is_share = column["factor"] == 100
            shown.append(_points(value) if is_share else f"{value:,.{0 if value > 9 else 3}f}")
    return " ± ".join(shown) + (", collapsed" if cell["n_collapsed"] else "")


def _scored_beside(found: dict[str, Any] | None, words: float) -> str:
    if found is None:
        return ""
    shown = _points(found["score"])
    if found["standard_error"] is not None:
        shown += f" ± {_points(found['standard_error'])}"
    return f"**{shown}**" if found["score"] > words else shown


def _points(value: float) -> str:
    return f"{100 * value:.1f}"


_KEPT: dict[str, Callable[[str, dict[str, Any]], list[str]]] = {
    "results.json": _study,
    "result.json": _run,
    "scores.json": _tasks,
    "card.json": _card,
}
"""Contents of a record, by the name of its file."""


def _title(table: str) -> str:
    return _TABLES.get(table, table)


def _field(row: FieldRow) -> list[str]:
    facts = [row.type]
    if row.unit:
        facts.append(f"in {row.unit}")
    if row.default != "unset":
        facts.append(row.default if row.default.startswith("derived") else f"default {row.default}")
    notes = [row.description]
    if row.used_when:
        notes.append(f"Counts where {row.used_when}.")
    if row.set_by and row.table:
        notes.append(f"Set by {', '.join(row.set_by)}.")
    name = ".".join(filter(None, (row.table, row.name)))
    return [f"### `{name}`", "", _escaped("; ".join(facts)), "", _escaped(" ".join(notes)), ""]


def _escaped(text: str) -> str:
    return "".join(
        f"\\{character}" if character in "\\`*_<>[]{}" else character for character in text
    )


def _help(name: str) -> str:
    caught = io.StringIO()
    with contextlib.redirect_stdout(caught):
        code = cli.main([name, "--help"])
    assert code == cli.DONE, f"sublayer {name} --help ends with {code}"
    return caught.getvalue().strip("\n")


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    write_reference()
