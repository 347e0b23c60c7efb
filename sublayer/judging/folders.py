"""Folders of runs: lm-evaluation-harness's samples, TensorBoard's events, our runs and studies."""

import lzma
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.evaluation.items import Items, ItemTable
from sublayer.files.arrays import load_arrays
from sublayer.files.parsing import Count, Number, Typed, check_typed, read_bytes, read_json_object
from sublayer.judging.layout import Asked, RunName, Understood, direction_of, source_names
from sublayer.judging.runs import Records
from sublayer.judging.tables import Coded, json_lines
from sublayer.runs.items import DOCUMENTS, Sha256, read_items
from sublayer.study.arms import LONGEST_PART, in_path

SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<time>\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl")
EVENTS = "events.out.tfevents.*"
RESULTS, STUDY, RECORD, TEST, SCORES = (
    "results.json",
    "study.toml",
    "record.json",
    "test.json",
    "scores.json",
)
_RATIOS: Mapping[str, tuple[str, str, float]] = {
    "bits_per_byte": ("nats", "bytes", math.log(2)),
    "loss": ("nats", "tokens", 1.0),
    "mlm_accuracy": ("correct", "tokens", 1.0),
}
"""Our metrics as one column of items over another, times a unit."""
_Run = tuple[str, str]
"""Arm and seed."""
_PAIRS_ACCURACY = ("correct", "pairs", 1.0)
_AGREE = 1e-6
_LARGEST_EVENT = 1 << 28
STUDY_ITEMS = "items.safetensors.xz"
"""Items of all runs of a comparison, rounded, and neighbours added together, as earlier versions
wrote them: read where the runs are not there, as in records."""
_ITEMS_VERSION = 1
_MAX_UNPACKED = 128 << 20


def runs_below(path: Path) -> list[Path]:
    """Return a folder, or the runs of this program in it where it is none itself."""
    if any((path / name).is_file() for name in (RESULTS, STUDY, RECORD, SCORES)):
        return [path]
    found = {each.parent for name in (RECORD, SCORES) for each in path.glob(f"*/{name}")}
    return sorted(found) or [path]


def read_folder(path: Path, asked: Asked, namer: RunName) -> Understood:
    """Read a folder of runs of any kind, or one file of samples.

    Raises DataError where it holds no known kind of run.
    """
    if path.is_file() and SAMPLES.fullmatch(path.name):
        return _of_samples(path.parent, [path], asked, namer)
    if (path / RESULTS).is_file() or (path / STUDY).is_file():
        with _whole(path / RESULTS):
            return _comparison(path, asked)
    if (path / RECORD).is_file() or (path / SCORES).is_file():
        with _whole(path):
            return _run(path, asked, namer)
    if samples := sorted(
        each for each in path.rglob("samples_*.jsonl") if SAMPLES.fullmatch(each.name)
    ):
        return _of_samples(path, samples, asked, namer)
    if events := sorted(path.rglob(EVENTS)):
        return _events(path, events, asked, namer)
    raise DataError(
        f"{path} is a folder of no runs that are known: name one with samples_*.jsonl of "
        "lm-evaluation-harness (--log_samples), with TensorBoard's event files, or of a run or a "
        "comparison of this program"
    )


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Raise DataError for a file that differs from what its writer produces."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{path} is damaged, or of another version ({reason:.80})") from error


def _of_samples(path: Path, samples: Sequence[Path], asked: Asked, namer: RunName) -> Understood:
    """Read samples of lm-evaluation-harness: a model a folder, a document of the task an item.

    Several runs of a model are told apart by the seeds in their results. The value of bits_per_byte
    is a sum over items divided by their bytes, as the harness aggregates it.
    """
    named = {sample: match for sample in samples if (match := SAMPLES.fullmatch(sample.name))}
    tasks = sorted({match["task"] for match in named.values()})
    task = asked.task or tasks[0]
    if task not in tasks or (len(tasks) > 1 and not asked.task):
        raise ConfigError(f"{path} has samples of {', '.join(tasks)}: give --task NAME")
    folders: dict[Path, list[Path]] = {}
    for each, match in named.items():
        if match["task"] == task:
            folders.setdefault(each.parent, []).append(each)
    records = []
    metric, is_lower = "", None
    for folder, own in sorted(folders.items()):
        arm, seed = source_names(str(path if len(folders) == 1 else folder), namer)
        results = []
        for file in own:
            try:
                name = f"results_{named[file]['time']}.json"
                results.append(read_json_object(folder / name, DataError))
            except FileNotFoundError:
                results.append({})
        with _whole(folder):
            seeds = [seed] if len(own) == 1 else _seeds_of(results, folder, task)
        for file, result, seed in zip(own, results, seeds, strict=True):
            with _whole(file):
                one, metric = _samples(file, asked, arm, seed)
                known = result.get("higher_is_better", {}).get(task, {}).get(metric)
            records.append(one)
            is_lower = is_lower if known is None else not known
    said = (
        f"{path}: samples of {task}, {metric}; {count(len(folders), 'model')}, "
        f"{count(len(records), 'run')}; item: doc_id and doc_hash"
    )
    return Understood(tuple(records), metric, (said,), is_lower, f"by the results of {task}")


def _seeds_of(results: Sequence[Mapping[str, Any]], folder: Path, task: str) -> list[str]:
    names = ("random_seed", "numpy_seed", "torch_seed", "fewshot_seed")
    found = [tuple(result.get("config", {}).get(name) for name in names) for result in results]
    if len(set(found)) < len(found):
        raise DataError(
            f"{folder} has {len(found)} runs of {task} with the same seeds: name the samples file "
            "of one, or move the others"
        )
    return ["/".join(dict.fromkeys(map(str, each))) for each in found]


def _samples(path: Path, asked: Asked, arm: str, seed: str) -> tuple[Records, str]:
    rows = dict(enumerate(json_lines(path), 1))
    if not rows:
        raise DataError(f"{path} has no line")
    filters = sorted({str(row.get("filter", "none")) for row in rows.values()})
    filtered = asked.filter or filters[0]
    if filtered not in filters or (len(filters) > 1 and not asked.filter):
        raise ConfigError(f"{path} has answers by the filters {', '.join(filters)}: give --filter")
    rows = {n: row for n, row in rows.items() if str(row.get("filter", "none")) == filtered}
    first = next(iter(rows.values()))
    metrics = first.get("metrics") or [name for name in ("acc", "exact_match") if name in first]
    metric = asked.value or metrics[0]
    if metric not in metrics or (len(metrics) > 1 and not asked.value):
        raise ConfigError(f"{path} has the metrics {', '.join(metrics)}: give --value NAME")
    value, weight = np.empty(len(rows)), np.ones(len(rows))
    items, documents = [], []
    for place, (line, row) in enumerate(rows.items()):
        score = row.get(metric)
        if isinstance(score, list) and len(score) == 2 and metric == "bits_per_byte":
            value[place], weight[place] = -float(score[0]) / math.log(2), float(score[1])
        elif isinstance(score, bool | int | float):
            value[place] = score
        else:
            remedy = "judge a metric that is a mean over documents"
            if metric in ("word_perplexity", "byte_perplexity"):
                remedy = "judge bits_per_byte, which orders models alike"
            raise DataError(f"{path}, line {line}, {metric}: {score!r:.40} is no number: {remedy}")
        items.append(f"{row.get('doc_id')} ({str(row.get('doc_hash', ''))[:8]})")
        if asked.document:
            document = row.get("doc", {}).get(asked.document)
            if document is None:
                raise DataError(f"{path}, line {line}: doc has no {asked.document}")
            documents.append(str(document))
    lines = list(rows)
    return Records.of_run(
        str(path),
        arm,
        seed,
        value,
        lambda row: f"{path}, line {lines[row]}, {metric}",
        item=_coded(items),
        document=_coded(documents) if documents else None,
        weight=weight if (weight != 1.0).any() else None,
    ), metric


def _events(path: Path, events: Sequence[Path], asked: Asked, namer: RunName) -> Understood:
    """Read the scalars of TensorBoard's event files: each folder of files is a run."""
    records, runs = [], []
    tag = asked.value
    for folder in sorted({event.parent for event in events}):
        curves: dict[str, dict[int, float]] = {}
        for file in sorted(folder.glob(EVENTS)):
            for name, step, value in _scalars(file):
                curves.setdefault(name, {})[step] = value
        if not curves:
            continue
        if not tag and len(curves) == 1:
            (tag,) = curves
        if tag not in curves:
            listed = ", ".join(sorted(curves))
            raise ConfigError(f"{folder} has the scalars {listed}: give --value NAME")
        arm, seed = source_names(str(folder), namer)
        runs.append(f"{arm} seed {seed}")
        values = np.array(list(curves[tag].values()))
        steps = np.array(list(curves[tag]), dtype=np.float64)
        place = partial(_at_step, folder, list(curves[tag]))
        records.append(Records.of_run(str(folder), arm, seed, values, place, step=steps))
    if not records:
        raise DataError(f"{path} has event files without a scalar: nothing can be judged")
    said = f"{path}: TensorBoard's events of {tag}, one run per folder: {', '.join(runs)}"
    return Understood(tuple(records), tag, (said,))


def _at_step(folder: Path, steps: Sequence[int], row: int) -> str:
    return f"{folder}, step {steps[row]}"


def _scalars(path: Path) -> Iterator[tuple[str, int, float]]:
    """Yield tag, step and value of each scalar of an event file; a last record may be cut short."""
    from tensorboardX.proto.event_pb2 import Event

    data = path.read_bytes()
    start = 0
    while start + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        stop = start + 12 + length
        if length > _LARGEST_EVENT:
            raise DataError(f"{path} is no whole event file (at byte {start:,}): copy it again")
        if stop + 4 > len(data):
            return  # which is still being written
        event = Event()
        try:
            event.ParseFromString(data[start + 12 : stop])
        except Exception as error:  # protobuf's own, of which it has several
            raise DataError(f"{path} is no whole event file (at byte {start:,})") from error
        for each in event.summary.value:
            if each.WhichOneof("value") == "simple_value":
                yield each.tag, event.step, each.simple_value
            elif each.WhichOneof("value") == "tensor" and not each.tensor.tensor_shape.dim:
                number = _tensor_number(each.tensor)
                if number is not None:
                    yield each.tag, event.step, number
        start = stop + 4


def _tensor_number(tensor: Any) -> float | None:
    """Return the number of a tensor of one, as newer versions of TensorBoard write scalars."""
    if tensor.float_val or tensor.double_val:
        return float((tensor.float_val or tensor.double_val)[0])
    kind = {1: "<f", 2: "<d"}.get(tensor.dtype)  # DT_FLOAT, DT_DOUBLE
    if kind is None or len(tensor.tensor_content) != struct.calcsize(kind):
        return None
    return float(struct.unpack(kind, tensor.tensor_content)[0])


def _comparison(path: Path, asked: Asked) -> Understood:
    """Read a comparison's folder: the values of each arm and seed, failed runs, and items."""
    try:
        results = read_json_object(path / RESULTS, CheckpointError, max_bytes=1 << 30)
    except FileNotFoundError:
        raise DataError(f"{path} has no {RESULTS}: write it by sublayer report {path}") from None
    metric = asked.value or str(results["metric"])
    is_main = metric == results["metric"]
    further = [each["metric"] for each in results.get("further", ()) if "metric" in each]
    if not is_main and metric not in further:
        names = ", ".join([str(results["metric"]), *further])
        raise ConfigError(f"{path} has the metrics {names}, and no {metric}: give --value NAME")
    values: dict[_Run, float] = {}
    for arm in results["arms"]:
        scores = arm if is_main else arm["further"].get(metric, {"seeds": (), "values": ()})
        for seed, value in zip(scores["seeds"], scores["values"], strict=True):
            values[arm["name"], str(seed)] = float(value)
    failed = {(each["arm"], str(each["seed"])) for each in results.get("failures", ())}
    tables: dict[_Run, ItemTable] = {}
    added = 1
    for run in read_comparison_items(path, results):
        name = _table_name(metric, run.items.tables)
        if name is not None:
            tables[run.arm, str(run.seed)] = run.items.tables[name]
            added = max(added, run.added.get(name, 1))
    split = str(results.get("split", "test"))
    said = f"{path}: a comparison, {metric} on the {split} split"
    is_lower = results["is_lower_better"] if is_main else direction_of(metric)
    return _of_runs(path, metric, values, failed, tables, said, is_lower, split, added)


def _run(path: Path, asked: Asked, namer: RunName) -> Understood:
    """Read a run's folder: what its test scored, and its items."""
    scores, split = _scores_of(path)
    known = [name for name in scores if name in _RATIOS or name.endswith(("accuracy", "bleu"))]
    metric = asked.value or (known[-1] if len(known) == 1 else "")
    if not metric and "bits_per_byte" in known:
        metric = "bits_per_byte"
    if metric not in scores:
        raise ConfigError(f"{path} has the scores {', '.join(scores)}: give --value NAME")
    run = source_names(str(path), namer)
    items = read_items(path)
    name = None if items is None else _table_name(metric, items.tables)
    tables = {} if items is None or name is None else {run: items.tables[name]}
    said = f"{path}: a run, {metric} on the {split} split"
    is_lower = direction_of(metric)
    return _of_runs(path, metric, {run: scores[metric]}, set(), tables, said, is_lower, split)


def _scores_of(path: Path) -> tuple[dict[str, float], str]:
    """Return the scores of a run's test, else those of its validation, and of which split."""
    if (path / TEST).is_file():
        found: Mapping[str, Any] = read_json_object(path / TEST, CheckpointError)
        split = "test"
    elif (path / SCORES).is_file():
        tasks = read_json_object(path / SCORES, CheckpointError).get("tasks", ())
        scores = {f"{task['task']}": float(task["score"]) for task in tasks}
        splits = {str(task.get("split", "dev")) for task in tasks}
        return scores, " and ".join(sorted(splits))
    else:
        found = read_json_object(path / RECORD, CheckpointError).get("valid", {})
        found = {name: found[name] for name in found if name != "step"}
        split = "valid"
    numbers = {name: value for name, value in found.items() if isinstance(value, int | float)}
    return {name: float(value) for name, value in numbers.items() if name != "tokens"}, split


def _table_name(metric: str, tables: Mapping[str, ItemTable]) -> str | None:
    """Return the table of items whose columns a metric follows from; None where it is unknown."""
    top, bottom, _ = _RATIOS.get(metric, _PAIRS_ACCURACY)
    for name, table in tables.items():
        is_of_it = metric in _RATIOS or name == f"{metric.removesuffix('_accuracy')}_pairs"
        if {top, bottom} <= set(table.columns) and is_of_it:
            return name
    return None


def _of_runs(
    path: Path,
    metric: str,
    values: Mapping[_Run, float],
    failed: set[_Run],
    tables: Mapping[_Run, ItemTable],
    said: str,
    is_lower: bool | None,
    split: str,
    added: int = 1,
) -> Understood:
    """Build the records of our runs: of whole runs, and of items where all that ended have them."""
    top, bottom, unit = _RATIOS.get(metric, _PAIRS_ACCURACY)
    whole: list[Records] = []
    of_items: list[Records] = []
    has_items = set(tables) == set(values) and len({table.digest for table in tables.values()}) == 1
    for run in [*values, *sorted(failed)]:
        value = values.get(run, math.nan)
        where = f"{path}, {run[0]}, seed {run[1]}"
        is_failed = np.array([run in failed])
        one = Records.of_run(
            str(path), *run, np.array([value]), partial(_at, where), failed=is_failed
        )
        whole.append(one)
        if not has_items:
            continue
        if run in failed:
            known = [record.item.names[:1] for record in of_items if record.item is not None]
            item = Coded(np.zeros(1, int), known[0] if known else ("0",))
            of_items.append(replace(one, item=item))
            continue
        table = tables[run]
        scores = table.columns[top].astype(np.float64) / unit
        weights = table.columns[bottom].astype(np.float64)
        if not math.isclose(float(scores.sum() / weights.sum()), value, rel_tol=_AGREE):
            has_items = False
            said += "; its items do not add up to its scores, and are not used"
            continue
        names = tuple(f"{place} ({table.digest[:8]})" for place in range(table.n_items))
        documents = table.documents
        records = Records.of_run(
            str(path),
            *run,
            scores,
            partial(_at_item, where),
            item=Coded(np.arange(table.n_items), names),
            document=None if documents is None else _coded(list(map(str, documents.tolist()))),
            weight=weights,
        )
        of_items.append(records)
    if has_items:
        said += f", with {count(len(of_items[0].value), 'item')} per run"
        said += f", each of {added}" if added > 1 else ""
    return Understood(
        tuple(of_items if has_items else whole),
        metric,
        (said,),
        is_lower,
        "its metric" if is_lower is not None else "",
        tuple(whole),
        split,
    )


def _at(where: str, row: int) -> str:
    return where


def _at_item(where: str, row: int) -> str:
    return f"{where}, item {row}"


def _coded(names: Sequence[str]) -> Coded:
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return Coded(np.array([places[name] for name in names], dtype=np.int64), tuple(places))


@dataclass(frozen=True)
class RunItems:
    """The items of one run."""

    arm: str
    seed: int
    items: Items
    added: Mapping[str, int] = field(default_factory=dict)
    """By table, how many neighbours were added together at a time, in files of earlier versions."""


def read_comparison_items(folder: Path, results: Mapping[str, Any]) -> list[RunItems]:
    """Read the items of the runs that a comparison's results name; ``folder`` is its folder.

    Raises CheckpointError where items are damaged.
    """
    kept = []
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
            # Of several runs with one score none is known to be the arm's.
            items = read_items(runs[0]) if len(runs) == 1 else None
            if items is not None:
                kept.append(RunItems(arm["name"], seed, items))
    if len(kept) < n_runs and (folder / STUDY_ITEMS).is_file():
        return read_study_items(folder / STUDY_ITEMS)
    return kept


def _run_folders(folder: Path, arm: str, seed: int) -> Iterator[Path]:
    """Yield the folders that may hold an arm's run: of any trial, and of finished runs."""
    part = in_path(arm)
    for arm_folder in sorted(folder.glob("arms/*")):
        if re.fullmatch(rf"\d+-{re.escape(part[:LONGEST_PART])}", arm_folder.name):
            yield arm_folder / f"seed-{seed}"
            yield from sorted(arm_folder.glob(f"*/seed-{seed}"))
    if (folder / "runs.json").is_file():
        scored_here = folder / "scores" / part[-LONGEST_PART:] / f"seed-{seed}"
        if scored_here.is_dir():
            yield scored_here
        else:
            runs = read_json_object(folder / "runs.json", CheckpointError).get("runs", ())
            yield from map(Path, runs)


class _KeptRun(Typed):
    arm: str
    seed: Count
    split: str
    sha256: str


class _Group(Typed):
    """A table of the runs that scored the same items."""

    table: str
    unit: str
    digest: Sha256
    runs: Annotated[list[Count], Field(min_length=1)]
    """Indices into the header's runs, in the order of the rows of columns."""
    added: Annotated[Count, Field(ge=1)]
    """Number of neighbours that were added together at a time."""
    columns: Annotated[list[str], Field(min_length=1)]
    steps: dict[str, Number]
    """Columns that are stored as counts of a step, and that step."""
    shared: list[str]
    """Columns that are the same in all runs, and stored once."""
    has_documents: bool


class _Header(Typed):
    version: int
    runs: list[_KeptRun]
    groups: list[_Group]


def read_study_items(path: Path) -> list[RunItems]:
    """Read the items of a study's runs from the file of an earlier version.

    Sums of neighbouring items stand for the items: ``RunItems.added`` is their number. Raises
    CheckpointError where the file is missing, damaged, or of a version that is not known.
    """
    try:
        packed = read_bytes(path, CheckpointError, max_bytes=_MAX_UNPACKED)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
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
            f"{path} is of version {header.version}, which is not known: this is {_ITEMS_VERSION}"
        )
    tables: list[dict[str, ItemTable]] = [{} for _ in header.runs]
    added: list[dict[str, int]] = [{} for _ in header.runs]
    for number, group in enumerate(header.groups):
        for row, run in enumerate(group.runs):
            if run >= len(header.runs):
                raise CheckpointError(f"{path} is damaged: it has no run {run}")
            tables[run][group.table] = _table_of(arrays, number, group, row, path)
            added[run][group.table] = group.added
    return [
        RunItems(run.arm, run.seed, Items(run.split, run.sha256, tables[index]), added[index])
        for index, run in enumerate(header.runs)
    ]


def _table_of(
    arrays: Mapping[str, NDArray[Any]], number: int, group: _Group, row: int, path: Path
) -> ItemTable:
    """Build the table of one run, the group's at ``row``; ``number`` is the group's in the file."""
    columns = {}
    for name in group.columns:
        array = arrays.get(f"{number}/{name}")
        n_rows = 1 if name in group.shared else len(group.runs)
        if array is None or array.ndim not in (2, 3) or len(array) != n_rows:
            raise CheckpointError(
                f"{path} is damaged: {name[:60]!r} of {group.table[:60]!r} does not fit"
            )
        values = array[min(row, n_rows - 1)]
        columns[name] = values * group.steps[name] if name in group.steps else values
    sizes = {len(column) for column in columns.values()}
    documents = arrays.get(f"{number}/{DOCUMENTS}") if group.has_documents else None
    if group.has_documents:
        sizes.add(-1 if documents is None else len(documents))
    if len(sizes) != 1:
        raise CheckpointError(f"{path} is damaged: the columns of {group.table[:60]!r} do not fit")
    return ItemTable(group.unit, group.digest, columns, documents)
