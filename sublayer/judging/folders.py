"""Folders of runs: lm-evaluation-harness samples, TensorBoard events, our runs and studies."""

import lzma
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sublayer.config.objective import EvaluatedMetric
from sublayer.config.recipe import OBJECTIVES
from sublayer.errors import CheckpointError, DataError
from sublayer.evaluation.items import DOCUMENTS, Items, ItemTable, Sha256, read_items
from sublayer.files.arrays import load_arrays
from sublayer.files.parsing import Count, Number, Typed, check_typed, read_bytes, read_json_object
from sublayer.files.storage import describe_absence
from sublayer.judging.layout import RunName, SourceRecords, direction_of
from sublayer.judging.runs import JudgingOptions, Records
from sublayer.judging.tables import Coded, json_lines
from sublayer.numbers import count
from sublayer.study.arms import LONGEST_PART, in_path

SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<time>\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl")
EVENTS = "events.out.tfevents.*"
RESULTS, STUDY, RUNS = "results.json", "study.toml", "runs.json"
RECORD, TEST, SCORES = "record.json", "test.json", "scores.json"
_SEEDS = ("random_seed", "numpy_seed", "torch_seed", "fewshot_seed")
_Run = tuple[str, str]
"""Arm and seed."""
_AGREE = 1e-6
_LARGEST_EVENT = 1 << 28
STUDY_ITEMS = "items.safetensors.xz"
"""Items of all runs of a comparison in earlier versions' format, rounded, neighbours summed: read
if the runs are missing, as in records."""
_ITEMS_VERSION = 1
_MAX_UNPACKED = 128 << 20


def read_folder(path: Path, options: JudgingOptions, namer: RunName) -> list[SourceRecords]:
    """Read a folder of runs of any kind, or one file of samples; runs of this program one by one.

    Raises DataError if it holds no known kind of run.
    """
    if path.is_file() and SAMPLES.fullmatch(path.name):
        return [_samples(path.parent, [path], options, namer)]
    ours = [path]
    if not any((path / name).is_file() for name in (RESULTS, STUDY, RECORD, SCORES)):
        files = (file for name in (RECORD, SCORES) for file in path.glob(f"*/{name}"))
        ours = sorted({file.parent for file in files if file.is_file()})
    parts = []
    for folder in ours:
        is_comparison = any((folder / name).is_file() for name in (RESULTS, STUDY))
        with _whole(folder / RESULTS if is_comparison else folder):
            parts.append((_comparison if is_comparison else _run)(folder, options, namer))
    if parts:
        return parts
    samples = sorted(file for file in path.rglob("samples_*") if SAMPLES.fullmatch(file.name))
    if samples:
        return [_samples(path, samples, options, namer)]
    if events := sorted(path.rglob(EVENTS)):
        return [_events(path, events, options, namer)]
    raise DataError(
        f"{path} holds no known kind of run: name a folder with samples_*.jsonl of "
        "lm-evaluation-harness (--log_samples), with TensorBoard's event files, or of a run or "
        "a comparison of this program"
    )


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Raise DataError for a file that does not have its writer's format."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{path} is damaged, or of another version ({reason:.80})") from error


def _samples(
    path: Path, samples: Sequence[Path], options: JudgingOptions, namer: RunName
) -> SourceRecords:
    """Read lm-evaluation-harness samples: a model per folder, an item per document of the task.

    Seeds in the results distinguish several runs of a model. The value of bits_per_byte is a sum
    over items divided by their bytes, as the harness aggregates it.
    """
    named = {sample: match for sample in samples if (match := SAMPLES.fullmatch(sample.name))}
    task = options.choose("task", sorted(match["task"] for match in named.values()), path)
    results: dict[Path, dict[Path, dict[str, Any]]] = {}
    for sample, match in sorted(named.items(), key=lambda pair: (pair[0].parent, pair[0])):
        if match["task"] == task:
            file = sample.with_name(f"results_{match['time']}.json")
            content = read_json_object(file, DataError) if file.exists() else {}
            results.setdefault(sample.parent, {})[sample] = content
    records = []
    metric, is_lower = "", None
    for folder, of_model in results.items():
        arm, *seeds = namer.of_source(str(path if len(results) == 1 else folder))
        with _whole(folder):
            if len(of_model) > 1:
                configs = [result.get("config", {}) for result in of_model.values()]
                drawn = [[str(config.get(name)) for name in _SEEDS] for config in configs]
                seeds = ["/".join(dict.fromkeys(run_seeds)) for run_seeds in drawn]
                if len({tuple(run_seeds) for run_seeds in drawn}) < len(drawn):
                    raise DataError(
                        f"{folder} has {len(drawn)} runs of {task} with the same seeds: name the "
                        "samples file of one, or move the others"
                    )
        for seed, (sample, result) in zip(seeds, of_model.items(), strict=True):
            with _whole(sample):
                one, metric = _samples_of_run(sample, options, arm, seed)
                is_higher = result.get("higher_is_better", {}).get(task, {}).get(metric)
            records.append(one)
            is_lower = is_lower if is_higher is None else not is_higher
    note = (
        f"{path}: samples of {task}, {metric}; {count(len(results), 'model')}, "
        f"{count(len(records), 'run')}; item: doc_id and doc_hash"
    )
    return SourceRecords(tuple(records), metric, (note,), is_lower, f"by the results of {task}")


def _samples_of_run(
    path: Path, options: JudgingOptions, arm: str, seed: str
) -> tuple[Records, str]:
    """Read one file of samples; return its records and their metric."""
    by_filter: dict[str, dict[int, dict[str, Any]]] = {}
    for line, row in enumerate(json_lines(path), 1):
        by_filter.setdefault(str(row.get("filter", "none")), {})[line] = row
    rows = by_filter[options.choose("filter", sorted(by_filter), path)]
    first = next(iter(rows.values()))
    usual = [name for name in ("acc", "exact_match") if name in first]
    metric = options.choose("value", first.get("metrics") or usual, path)
    places = [f"{path}, line {line}, {metric}" for line in rows]
    value, weight = np.empty(len(rows)), np.ones(len(rows))
    items, documents = [], []
    for n, row in enumerate(rows.values()):
        score = row.get(metric)
        if isinstance(score, list) and len(score) == 2 and metric == "bits_per_byte":
            value[n], weight[n] = -float(score[0]) / math.log(2), float(score[1])
        elif isinstance(score, bool | int | float):
            value[n] = score
        else:
            raise DataError(
                f"{places[n]}: {score!r:.40} is not a number: judge a metric that is a mean over "
                "documents, and bits_per_byte in place of a perplexity, since both rank models "
                "alike"
            )
        items.append(f"{row.get('doc_id')} ({str(row.get('doc_hash', ''))[:8]})")
        if options.document:
            document = row.get("doc", {}).get(options.document)
            if document is None:
                raise DataError(f"{places[n]}: doc has no {options.document}")
            documents.append(str(document))
    return Records.of_run(
        str(path),
        arm,
        seed,
        value,
        places.__getitem__,
        item=Coded.of(items),
        document=Coded.of(documents) if documents else None,
        weight=weight if (weight != 1.0).any() else None,
    ), metric


def _events(
    path: Path, events: Sequence[Path], options: JudgingOptions, namer: RunName
) -> SourceRecords:
    """Read the scalars of TensorBoard event files: each folder of files is a run."""
    records, runs = [], []
    tag = ""
    for folder in sorted({event.parent for event in events}):
        curves: dict[str, dict[int, float]] = {}
        for file in sorted(folder.glob(EVENTS)):
            for name, step, value in _scalars(file):
                curves.setdefault(name, {})[step] = value
        if not curves:
            continue
        tag = options.choose("value", sorted(curves), folder, usual=tag)
        arm, seed = namer.of_source(str(folder))
        runs.append(f"{arm} seed {seed}")
        values = np.array(list(curves[tag].values()))
        places = [f"{folder}, step {step}" for step in curves[tag]]
        steps = np.array(list(curves[tag]), dtype=np.float64)
        one = Records.of_run(str(folder), arm, seed, values, places.__getitem__, step=steps)
        records.append(one)
    if not records:
        raise DataError(f"{path} has event files without scalars, so nothing can be judged")
    note = f"{path}: TensorBoard's events of {tag}, one run per folder: {', '.join(runs)}"
    return SourceRecords(tuple(records), tag, (note,))


def _scalars(path: Path) -> Iterator[tuple[str, int, float]]:
    """Yield tag, step and value of an event file's scalars; the last record may be truncated."""
    problems: Any = import_module("google.protobuf.message")
    from tensorboardX.proto.event_pb2 import Event

    data = path.read_bytes()
    start = 0
    while start + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        stop = start + 12 + length
        try:
            if length > _LARGEST_EVENT:
                raise problems.DecodeError
            if stop + 4 > len(data):
                return  # still being written
            event = Event.FromString(data[start + 12 : stop])
        except problems.DecodeError as error:
            raise DataError(
                f"{path} is an incomplete event file (at byte {start:,}): copy it again"
            ) from error
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                yield value.tag, event.step, value.simple_value
            elif value.WhichOneof("value") == "tensor" and not value.tensor.tensor_shape.dim:
                # Scalars of newer versions of TensorBoard.
                tensor = value.tensor
                kind = {1: "<f", 2: "<d"}.get(tensor.dtype, "")  # DT_FLOAT, DT_DOUBLE
                listed = [*tensor.float_val, *tensor.double_val]
                if not listed and len(tensor.tensor_content) == struct.calcsize(kind) > 0:
                    listed += struct.unpack(kind, tensor.tensor_content)
                if listed:
                    yield value.tag, event.step, float(listed[0])
        start = stop + 4


def _comparison(path: Path, options: JudgingOptions, namer: RunName) -> SourceRecords:
    """Read a comparison's folder: the values of each arm and seed, failed runs, and items."""
    try:
        results = read_json_object(path / RESULTS, CheckpointError, max_bytes=1 << 30)
    except FileNotFoundError:
        raise DataError(f"{path} has no {RESULTS}: write it with sublayer report {path}") from None
    main = str(results["metric"])
    further = [result["metric"] for result in results.get("further", ()) if "metric" in result]
    metric = options.choose("value", [main, *further], path, usual=main)
    values: dict[_Run, float] = {}
    for arm in results["arms"]:
        no_scores = {"seeds": (), "values": ()}
        scores = arm if metric == main else arm["further"].get(metric, no_scores)
        for seed, value in zip(scores["seeds"], scores["values"], strict=True):
            values[arm["name"], str(seed)] = float(value)
    failed = {(failure["arm"], str(failure["seed"])) for failure in results.get("failures", ())}
    tables: dict[_Run, ItemTable] = {}
    added = 1
    for run in read_comparison_items(path, results):
        name = _table_name(metric, run.items.tables)
        if name is not None:
            tables[run.arm, str(run.seed)] = run.items.tables[name]
            added = max(added, run.added.get(name, 1))
    split = str(results.get("split", "test"))
    is_lower = results["is_lower_better"] if metric == main else direction_of(metric)
    note = f"{path}: a comparison, {metric} on the {split} split"
    whole = SourceRecords((), metric, (note,), is_lower, "its metric", split=split)
    return _of_runs(path, whole, values, failed, tables, added)


def _run(path: Path, options: JudgingOptions, namer: RunName) -> SourceRecords:
    """Read a run's folder: its test scores, else its validation scores, and its items."""
    split = "valid"
    measures: Mapping[str, Any]
    if (path / TEST).is_file():
        measures, split = read_json_object(path / TEST, CheckpointError), "test"
    elif (path / SCORES).is_file():
        tasks = read_json_object(path / SCORES, CheckpointError).get("tasks", ())
        measures = {str(task["task"]): float(task["score"]) for task in tasks}
        split = " and ".join(sorted({str(task.get("split", "dev")) for task in tasks}))
    else:
        measures = read_json_object(path / RECORD, CheckpointError).get("valid", {})
    is_of_tasks = (path / SCORES).is_file() and not (path / TEST).is_file()
    scores = {
        name: float(value)
        for name, value in measures.items()
        if isinstance(value, int | float) and (is_of_tasks or name not in ("step", "tokens"))
    }
    metrics = [name for name in scores if _measures(name) or name.endswith(("accuracy", "bleu"))]
    usual = (
        "bits_per_byte" if "bits_per_byte" in metrics else metrics[0] if len(metrics) == 1 else ""
    )
    metric = options.choose("value", scores, path, usual=usual)
    run = namer.of_source(str(path))
    items = read_items(path)
    name = None if items is None else _table_name(metric, items.tables)
    tables = {} if items is None or name is None else {run: items.tables[name]}
    note = f"{path}: a run, {metric} on the {split} split"
    is_lower = direction_of(metric)
    whole = SourceRecords((), metric, (note,), is_lower, "its metric", split=split)
    return _of_runs(path, whole, {run: scores[metric]}, set(), tables)


def _table_name(metric: str, tables: Mapping[str, ItemTable]) -> str | None:
    """Return the item table that determines a metric; None if unknown."""
    candidates = (measure.table for measure in _measures(metric))
    return next((name for name in candidates if name in tables), None)


def _measures(metric: str) -> list[EvaluatedMetric]:
    """Return our metrics of a name that are quotients of columns, one per objective."""
    named = [table.evaluated.get(metric) for table in OBJECTIVES.values()]
    return [measure for measure in named if measure is not None and measure.table]


def _of_runs(
    path: Path,
    about: SourceRecords,
    values: Mapping[_Run, float],
    failed: set[_Run],
    tables: Mapping[_Run, ItemTable],
    added: int = 1,
) -> SourceRecords:
    """Add the records of our runs: run scores, and items if all finished runs have them."""
    (note,) = about.said
    whole = []
    for run in [*values, *sorted(failed)]:
        value = np.array([values.get(run, math.nan)])
        locate = [f"{path}, {run[0]}, seed {run[1]}"].__getitem__
        is_failed = np.array([run in failed])
        whole.append(Records.of_run(str(path), *run, value, locate, failed=is_failed))
    of_items: list[Records] = []
    if set(tables) == set(values) and len({table.digest for table in tables.values()}) == 1:
        measure, *_ = _measures(about.metric)
        top, bottom = measure.columns
        for run in values:
            table = tables[run]
            scores = table.columns[top].astype(np.float64) / measure.unit
            weights = table.columns[bottom].astype(np.float64)
            if not math.isclose(scores.sum() / weights.sum(), values[run], rel_tol=_AGREE):
                note += "; its items do not add up to its scores, and are not used"
                of_items = []
                break
            names = [f"{index} ({table.digest[:8]})" for index in range(table.n_items)]
            places = [f"{path}, {run[0]}, seed {run[1]}, item {n}" for n in range(table.n_items)]
            documents = table.documents
            one = Records.of_run(
                str(path),
                *run,
                scores,
                places.__getitem__,
                item=Coded.of(names),
                document=None if documents is None else Coded.of([*map(str, documents.tolist())]),
                weight=weights,
            )
            of_items.append(one)
    if of_items:
        note += f", with {count(len(of_items[0].value), 'item')} per run"
        note += f", each of {added}" if added > 1 else ""
        item = Coded(np.zeros(1, dtype=np.int64), tuple(names[:1]))
        of_items += [replace(records, item=item) for records in whole[len(values) :]]
    return replace(about, records=tuple(of_items or whole), said=(note,), without_items=(*whole,))


@dataclass(frozen=True)
class RunItems:
    """The items of one run."""

    arm: str
    seed: int
    items: Items
    added: Mapping[str, int] = field(default_factory=dict)
    """By table, the number of summed neighbours, in files of earlier versions."""


def read_comparison_items(folder: Path, results: Mapping[str, Any]) -> list[RunItems]:
    """Read the items of the runs that a comparison's results name, in its ``folder``.

    Raises CheckpointError if items are damaged.
    """
    run_items = []
    n_runs = 0
    scores = f"{results.get('split', 'test')}.json"
    for arm in results["arms"]:
        for seed, value in zip(arm["seeds"], arm["values"], strict=True):
            n_runs += 1
            runs = [
                run
                for run in _run_folders(folder, arm["name"], seed)
                if (run / scores).is_file()
                and read_json_object(run / scores, CheckpointError).get(results["metric"]) == value
            ]
            # Several runs with equal scores: the arm's is unknown.
            items = read_items(runs[0]) if len(runs) == 1 else None
            if items is not None:
                run_items.append(RunItems(arm["name"], seed, items))
    if len(run_items) < n_runs and (folder / STUDY_ITEMS).is_file():
        return read_study_items(folder / STUDY_ITEMS)
    return run_items


def _run_folders(folder: Path, arm: str, seed: int) -> Iterator[Path]:
    """Yield the folders that may hold an arm's run: of any trial, and of finished runs."""
    part = in_path(arm)
    for arm_folder in sorted(folder.glob("arms/*")):
        if re.fullmatch(rf"\d+-{re.escape(part[:LONGEST_PART])}", arm_folder.name):
            yield arm_folder / f"seed-{seed}"
            yield from sorted(arm_folder.glob(f"*/seed-{seed}"))
    if (folder / RUNS).is_file():
        scored_here = folder / "scores" / part[-LONGEST_PART:] / f"seed-{seed}"
        if scored_here.is_dir():
            yield scored_here
        else:
            runs = read_json_object(folder / RUNS, CheckpointError).get("runs", ())
            yield from map(Path, runs)


class _KeptRun(Typed):
    arm: str
    seed: Count
    split: str
    sha256: str


class _Group(Typed):
    """A table of runs scored on the same items."""

    table: str
    unit: str
    digest: Sha256
    runs: Annotated[list[Count], Field(min_length=1)]
    """Indices into the header's runs, in row order of the columns."""
    added: Annotated[Count, Field(ge=1)]
    """Number of summed neighbours."""
    columns: Annotated[list[str], Field(min_length=1)]
    steps: dict[str, Number]
    """Columns stored as counts of a step, with that step."""
    shared: list[str]
    """Columns equal in all runs, stored once."""
    has_documents: bool


class _Header(Typed):
    version: int
    runs: list[_KeptRun]
    groups: list[_Group]


def read_study_items(path: Path) -> list[RunItems]:
    """Read the items of a study's runs from an earlier version's file.

    Items are sums of ``RunItems.added`` neighbours. Raises CheckpointError if the file is missing,
    damaged, or of an unknown version.
    """
    try:
        packed = read_bytes(path, CheckpointError, max_bytes=_MAX_UNPACKED)
    except FileNotFoundError:
        raise CheckpointError(describe_absence(path)) from None
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_UNPACKED)
    try:
        data = unpacker.decompress(packed, max_length=_MAX_UNPACKED)
    except lzma.LZMAError as problem:
        raise CheckpointError(f"{path} is damaged: {problem}") from None
    if not unpacker.eof:
        raise CheckpointError(f"{path} is cut short, or holds more than {_MAX_UNPACKED:,} bytes")
    arrays, content = load_arrays(data, str(path), CheckpointError)
    header = check_typed(content, _Header, f"the header of {path}", CheckpointError)
    if header.version != _ITEMS_VERSION:
        raise CheckpointError(
            f"{path} has version {header.version}, and only {_ITEMS_VERSION} is supported"
        )
    tables: list[dict[str, ItemTable]] = [{} for _ in header.runs]
    added: list[dict[str, int]] = [{} for _ in header.runs]
    for number, group in enumerate(header.groups):
        columns = {name: arrays.get(f"{number}/{name}") for name in (*group.columns, DOCUMENTS)}
        for row, run in enumerate(group.runs):
            if run >= len(header.runs):
                raise CheckpointError(f"{path} is damaged: it has no run {run}")
            tables[run][group.table] = _table_of(columns, group, row, path)
            added[run][group.table] = group.added
    return [
        RunItems(run.arm, run.seed, Items(run.split, run.sha256, tables[index]), added[index])
        for index, run in enumerate(header.runs)
    ]


def _table_of(
    arrays: Mapping[str, NDArray[Any] | None], group: _Group, row: int, path: Path
) -> ItemTable:
    """Build the table of one run, the group's at ``row``, from the group's arrays."""
    columns = {}
    for name in group.columns:
        array = arrays[name]
        n_rows = 1 if name in group.shared else len(group.runs)
        if array is not None and array.ndim in (2, 3) and len(array) == n_rows:
            values = array[min(row, n_rows - 1)]
            columns[name] = values * group.steps[name] if name in group.steps else values
    documents = arrays[DOCUMENTS] if group.has_documents else None
    by_item = [*columns.values(), *([] if documents is None else [documents])]
    n_needed = len(group.columns) + group.has_documents
    if len(by_item) < n_needed or len(set(map(len, by_item))) != 1:
        raise CheckpointError(f"{path} is damaged: a column of {group.table[:60]!r} does not fit")
    return ItemTable(group.unit, group.digest, columns, documents)
