"""Model cards: README.md of an exported folder, from the recipe, record and scores of its run."""

import json
import math
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w

from sublayer.config.layers import read_toml
from sublayer.config.load import find_recipe, read_derived, read_recipe
from sublayer.config.recipe import Recipe
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.errors import CheckpointError
from sublayer.evaluation.effects import item_effects
from sublayer.evaluation.items import FromItems, Items, quotient_of, read_items
from sublayer.files.checkpoints import read_record
from sublayer.files.parsing import read_json_object
from sublayer.files.storage import resolved
from sublayer.interop.certificate import CERTIFICATE, describe, describe_ids
from sublayer.interop.exits import Exported
from sublayer.interop.tokenizers import UNKNOWN_LANGUAGE
from sublayer.numbers import count
from sublayer.objective.base import family_of
from sublayer.statistics.contrasts import RunScores, arm_less
from sublayer.statistics.covariance import ItemSpreads
from sublayer.text_model import TextModel

NAME = "README.md"
_ANSWERS = {"choice": "multiple-choice", "span": "question-answering"}
_SPLITS = {"train": "training", "valid": "validation"}
_NO_SCORES = ("step", "tokens")
_FORMAT = ".4g"
_LEVEL = 0.05
_NO_ITEMS = "no interval: items were not kept"
_NOTE = (
    "Intervals are over the documents or examples of the split alone: runs with other seeds differ "
    "by more."
)


def write_card(
    folder: Path,
    text_model: TextModel,
    exported: Exported,
    *,
    name: str,
    library: str,
    source: Path,
    license_name: str | None = None,
    is_average: bool = False,
) -> None:
    """Write the card of a folder that ``exported`` describes; ``library`` is its format.

    ``name`` stands for the folder: its own, or its name on the hub. ``source`` is the run,
    checkpoint or model folder of the model. The scores of its run are given where the model is the
    run's final one, and no mean of checkpoints (``is_average``). Raises CheckpointError where files
    of the run are damaged.
    """
    config, tokenizer = text_model.model.config, text_model.tokenizer
    recipe = find_recipe(source)
    title = name if recipe is None else read_recipe(recipe).title or name
    n_parameters = sum(parameter.numel() for parameter in text_model.model.parameters())
    kind = "none" if tokenizer is None else tokenizer.kind
    use = exported.following.replace(str(folder), name)
    module = use.partition(".")[0]
    if module.isidentifier():
        is_model = ".from_pretrained(" in use
        use = f"{'model' if is_model else 'loaded'} = {use}"
        if is_model and exported.has_tokenizer:
            use = f"tokenizer = {module}.AutoTokenizer.from_pretrained({name!r})\n{use}"
        use = f"import {module}\n\n{use}"
    lines = [describe(exported.certificate), describe_ids(exported.certificate), *exported.lines]
    parts = [
        _metadata(text_model, library, license_name),
        f"# {title}",
        f"Kind: {config.kind}, {count(config.n_layers, 'block')} of width {config.d_model:,}, "
        f"{count(n_parameters, 'parameter')}. Tokenizer: {kind}, {config.vocab_size:,} ids. "
        f"Exported by sublayer {version('sublayer')}.",
        f"## Use\n\n```{'python' if module.isidentifier() else 'sh'}\n{use}\n```",
    ]
    if recipe is not None:
        final = (recipe.parent, recipe.parent / "model")
        is_final = not is_average and resolved(source) in final
        parts += _describe_run(recipe.parent, is_final=is_final)
    listed = [f"- {line}" for line in dict.fromkeys(lines) if line]
    listed.append(f"- all numbers: `{CERTIFICATE}`")
    parts.append("\n".join(["## Certificate", "", *listed]))
    (folder / NAME).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _metadata(text_model: TextModel, library: str, license_name: str | None) -> str:
    """Format the metadata that the Hugging Face hub reads, as YAML."""
    fields: dict[str, Any] = {"library_name": library, "pipeline_tag": _pipeline(text_model)}
    tokenizer = text_model.tokenizer
    if isinstance(tokenizer, BilingualTokenizer):
        sides = (tokenizer.source.language, tokenizer.target.language)
        fields["language"] = [language for language in sides if language != UNKNOWN_LANGUAGE]
    fields |= {"license": license_name, "tags": ["sublayer"]}
    # Strings and lists of JSON are YAML.
    lines = [f"{name}: {json.dumps(value)}" for name, value in fields.items() if value]
    return "\n".join(["---", *lines, "---"])


def _pipeline(text_model: TextModel) -> str | None:
    """Return the hub's name of the task of a model; None without one."""
    config, task = text_model.model.config, text_model.task
    if config.span_head != "none" or config.label_outputs:
        kind = "classes" if config.span_head == "none" else "span"
        kind = kind if task is None else task.tasks[0].kind
        return _ANSWERS.get(kind, "text-classification")
    if config.kind == "encoder":
        return "feature-extraction" if config.head == "none" else "fill-mask"
    if config.kind == "encoder-decoder":
        return "translation" if isinstance(text_model.tokenizer, BilingualTokenizer) else None
    return "text-generation"


def _describe_run(run: Path, *, is_final: bool) -> Iterator[str]:
    """Yield the sections on training and evaluation that a run's files have."""
    record = read_record(run) or {}
    lines = ["## Training"]
    if not is_final:
        lines.append("The model is not the final one of its run, to which this section refers.")
    if record:
        length = f"{count(record['step'], 'step')} and {count(record['tokens'], 'token')}"
        lines.append(f"Trained for {length} in {record['precision']}.")
    data = record.get("data", {})
    table = ["| data | bytes | SHA-256 |", "| --- | ---: | --- |"]
    for name, checksum in data.get("checksums", {}).items():
        sizes = data.get(name)
        n_bytes = f"{sizes['bytes']:,}" if isinstance(sizes, dict) and "bytes" in sizes else ""
        table.append(f"| {_SPLITS.get(name, name)} | {n_bytes} | `{checksum}` |")
    if len(table) > 2:
        lines.append("\n".join(table))
    yield "\n\n".join([*lines, "The recipe, where it differs from the defaults:", _recipe(run)])
    if is_final and (rows := [*_scores(run, record)]):
        table = ["| split | metric | value | 95% interval |", "| --- | --- | ---: | --- |", *rows]
        note = [_NOTE] * any(not row.endswith(("|  |", f"| {_NO_ITEMS} |")) for row in rows)
        yield "\n\n".join(["## Evaluation", "\n".join(table), *note])


def _recipe(run: Path) -> str:
    """Format a run's recipe as TOML: the settings given, with files by their names alone."""
    path = run / "recipe.toml"
    recipe, derived, tables = read_recipe(path), read_derived(path), {}
    for name, content in read_toml(path).items():
        if name in Recipe.model_fields and isinstance(content, dict):
            defaults = type(getattr(recipe, name))().model_dump(mode="json")
            tables[name] = {
                key: _named(value)
                for key, value in content.items()
                if f"{name}.{key}" not in derived and (key == "kind" or defaults.get(key) != value)
            }
    given = {name: table for name, table in tables.items() if table}
    return f"```toml\n{tomli_w.dumps(given).strip()}\n```"


def _named(value: Any) -> Any:
    """Return a value with the names of files in place of their paths."""
    if isinstance(value, str) and Path(value).is_absolute():
        return Path(value).name
    if isinstance(value, dict):
        return {key: _named(each) for key, each in value.items()}
    return [_named(each) for each in value] if isinstance(value, list) else value


def _scores(run: Path, record: Mapping[str, Any]) -> Iterator[str]:
    """Yield a row of a table for each score that a run's files have."""
    objective = read_recipe(run / "recipe.toml").objective
    metrics = {metric.name: metric for metric in family_of(objective).metrics}
    test, tasks = run / "test.json", run / "scores.json"
    of_test = read_json_object(test, CheckpointError) if test.is_file() else {}
    of_splits = {_SPLITS["valid"]: record.get("valid") or {}, "test": of_test}
    for split, scores in of_splits.items():
        items = read_items(run) if split == "test" and scores else None
        for name, value in scores.items():
            if not isinstance(value, int | float) or name in _NO_SCORES:
                continue
            metric, measure = metrics.get(name), objective.evaluated.get(name)
            rule, unit, factor = None, "", 1.0
            if metric is not None:
                rule, factor = metric.from_items, metric.factor
                unit = metric.unit if metric.label == name else metric.label
            elif measure is not None and measure.table:
                rule, per = quotient_of(measure), measure.columns[1].removesuffix("s")
                unit = f"{measure.columns[0]} per {per}"
            around = _interval(items, rule, value, factor)
            title = f"{name} ({unit})" if unit else name
            yield f"| {split} | {title} | {factor * value:{_FORMAT}} | {around} |"
    of_tasks = read_json_object(tasks, CheckpointError)["tasks"] if tasks.is_file() else ()
    for task in of_tasks:
        score, error, freedom = task["score"], task["standard_error"], task["examples"] - 1
        around = "" if error is None or freedom < 1 else _between(score, error, freedom)
        yield f"| {task['split']} | {task['title']} | {score:{_FORMAT}} | {around} |"


def _interval(items: Items | None, rule: FromItems | None, value: float, factor: float) -> str:
    """Format the interval of a score over a test's units, as a study's are; empty without one."""
    if items is None:
        return _NO_ITEMS
    table = None if rule is None else items.tables.get(rule.table)
    test = None if table is None or rule is None else item_effects(table, rule)
    if test is None or rule is None or not math.isclose(rule.of(items) or 0.0, value, rel_tol=1e-6):
        return ""
    scores = RunScores.of(
        {"run": {0: value}, "zero": {0: 0.0}},
        effects={"run": {0: test.effects}, "zero": {0: 0.0 * test.effects}},
        n_documents=test.n_documents,
        shares=test.shares,
    )
    spread = ItemSpreads(scores, "zero").spread(arm_less("run", "zero"))
    assert spread is not None, "both have effects"
    error = math.sqrt(spread.whole.variance)
    return _between(factor * value, factor * error, spread.whole.freedom)


def _between(value: float, error: float, freedom: float) -> str:
    from scipy.special import stdtrit

    half = -float(stdtrit(freedom, _LEVEL / 2)) * error
    return f"{value - half:{_FORMAT}} to {value + half:{_FORMAT}}"
