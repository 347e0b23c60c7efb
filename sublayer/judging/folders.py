"""Folders of runs: lm-evaluation-harness's samples, TensorBoard's events, our runs and studies."""

import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.evaluation.items import ItemTable
from sublayer.files.parsing import read_json_object
from sublayer.judging.layout import Asked, RunName, Understood, direction_of, source_names
from sublayer.judging.runs import Numbers, Records
from sublayer.judging.study_items import read_comparison_items
from sublayer.judging.tables import Coded, json_lines
from sublayer.runs.items import read_items

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
_PAIRS_ACCURACY = ("correct", "pairs", 1.0)
_AGREE = 1e-6
_LARGEST_EVENT = 1 << 28


def runs_below(path: Path) -> list[Path]:
    """Return a folder, or the runs of this program in it where it is none itself."""
    if any((path / name).is_file() for name in (RESULTS, STUDY, RECORD, SCORES)):
        return [path]
    found = {each.parent for name in (RECORD, SCORES) for each in path.glob(f"*/{name}")}
    return sorted(found) or [path]


def read_folder(path: Path, asked: Asked, namer: RunName) -> Understood:
    """Read a folder of runs of any kind, or one file of samples.

    Raises DataError where it holds none that is known.
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
    named = {each: SAMPLES.fullmatch(each.name) for each in samples}
    tasks = sorted({match["task"] for match in named.values() if match})
    task = asked.task or tasks[0]
    if task not in tasks or (len(tasks) > 1 and not asked.task):
        raise ConfigError(f"{path} has samples of {', '.join(tasks)}: give --task NAME")
    chosen = [each for each, match in named.items() if match and match["task"] == task]
    folders = sorted({each.parent for each in chosen})
    records, said = [], []
    metric, is_lower = "", None
    for folder in folders:
        arm, seed = source_names(str(path if len(folders) == 1 else folder), namer)
        own = [each for each in chosen if each.parent == folder]
        results = [_results_of(each) for each in own]
        with _whole(folder):
            seeds = [seed] if len(own) == 1 else _seeds_of(results, folder, task)
        for file, result, name in zip(own, results, seeds, strict=True):
            with _whole(file):
                one, metric = _samples(file, asked, arm, name)
                known = result.get("higher_is_better", {}).get(task, {}).get(metric)
            records.append(one)
            is_lower = is_lower if known is None else not known
    said.append(
        f"{path}: samples of {task}, {metric}; {count(len(folders), 'model')}, "
        f"{count(len(records), 'run')}; item: doc_id and doc_hash"
    )
    return Understood(tuple(records), metric, tuple(said), is_lower, f"by the results of {task}")


def _results_of(samples: Path) -> dict[str, Any]:
    match = SAMPLES.fullmatch(samples.name)
    assert match is not None, "its name was matched before"
    try:
        return read_json_object(samples.parent / f"results_{match['time']}.json", DataError)
    except FileNotFoundError:
        return {}


def _seeds_of(results: Sequence[Mapping[str, Any]], folder: Path, task: str) -> list[str]:
    names = ("random_seed", "numpy_seed", "torch_seed", "fewshot_seed")
    found = [tuple(each.get("config", {}).get(name) for name in names) for each in results]
    if len(set(found)) < len(found):
        raise DataError(
            f"{folder} has {len(found)} runs of {task} with the same seeds: name the samples file "
            "of one, or move the others"
        )
    return ["/".join(dict.fromkeys(map(str, each))) for each in found]


def _samples(path: Path, asked: Asked, arm: str, seed: str) -> tuple[Records, str]:
    rows = list(enumerate(json_lines(path), 1))
    if not rows:
        raise DataError(f"{path} has no line")
    filters = sorted({str(row.get("filter", "none")) for _, row in rows})
    filtered = asked.filter or filters[0]
    if filtered not in filters or (len(filters) > 1 and not asked.filter):
        raise ConfigError(f"{path} has answers by the filters {', '.join(filters)}: give --filter")
    rows = [(line, row) for line, row in rows if str(row.get("filter", "none")) == filtered]
    first = rows[0][1]
    metrics = first.get("metrics") or [name for name in ("acc", "exact_match") if name in first]
    metric = asked.value or metrics[0]
    if metric not in metrics or (len(metrics) > 1 and not asked.value):
        raise ConfigError(f"{path} has the metrics {', '.join(metrics)}: give --value NAME")
    value, weight = np.empty(len(rows)), np.ones(len(rows))
    items, documents = [], []
    for place, (line, row) in enumerate(rows):
        score = row.get(metric)
        if isinstance(score, list) and len(score) == 2 and metric in ("bits_per_byte",):
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
    n_rows = len(rows)
    lines = [line for line, _ in rows]
    return Records(
        str(path),
        _one(arm, n_rows),
        _one(seed, n_rows),
        value,
        lambda row: f"{path}, line {lines[row]}, {metric}",
        item=coded(items),
        document=coded(documents) if documents else None,
        weight=weight if (weight != 1.0).any() else None,
    ), metric


def _events(path: Path, events: Sequence[Path], asked: Asked, namer: RunName) -> Understood:
    """Read the scalars of TensorBoard's event files: each folder of files is a run."""
    records = []
    folders = sorted({each.parent for each in events})
    tag = asked.value
    for folder in folders:
        curves: dict[str, dict[int, float]] = {}
        for file in sorted(folder.glob(EVENTS)):
            for name, step, value in _scalars(file):
                curves.setdefault(name, {})[step] = value
        tags = sorted(curves)
        if not tags:
            continue
        if not tag and len(tags) == 1:
            (tag,) = tags
        if tag not in curves:
            raise ConfigError(f"{folder} has the scalars {', '.join(tags)}: give --value NAME")
        curve = curves[tag]
        arm, seed = source_names(str(folder), namer)
        steps = list(curve)
        records.append(
            Records(
                str(folder),
                _one(arm, len(curve)),
                _one(seed, len(curve)),
                np.array([curve[step] for step in steps]),
                _at_step(folder, steps),
                step=np.array(steps, dtype=np.float64),
            )
        )
    if not records:
        raise DataError(f"{path} has event files without a scalar: nothing can be judged")
    runs = [f"{each.arm.names[0]} seed {each.seed.names[0]}" for each in records]
    said = f"{path}: TensorBoard's events of {tag}, one run per folder: {', '.join(runs)}"
    return Understood(tuple(records), tag, (said,))


def _at_step(folder: Path, steps: Sequence[int]) -> Callable[[int], str]:
    return lambda row: f"{folder}, step {steps[row]}"


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
    kinds = {1: "<f", 2: "<d"}  # DT_FLOAT, DT_DOUBLE
    kind = kinds.get(tensor.dtype)
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
    further = {each["metric"]: each for each in results.get("further", ()) if "metric" in each}
    if metric not in (results["metric"], *further):
        names = ", ".join([str(results["metric"]), *further])
        raise ConfigError(f"{path} has the metrics {names}, and no {metric}: give --value NAME")
    is_lower: bool | None = results["is_lower_better"]
    if metric != results["metric"]:
        is_lower = direction_of(metric)
    values: dict[tuple[str, str], float] = {}
    for arm in results["arms"]:
        scores = arm
        if metric != results["metric"]:
            scores = arm["further"].get(metric, {"seeds": (), "values": ()})
        for seed, value in zip(scores["seeds"], scores["values"], strict=True):
            values[arm["name"], str(seed)] = float(value)
    failed = {(each["arm"], str(each["seed"])) for each in results.get("failures", ())}
    tables: dict[tuple[str, str], ItemTable] = {}
    added = 1
    for run in read_comparison_items(path, results):
        name = _table_name(metric, run.items.tables)
        if name is not None:
            tables[run.arm, str(run.seed)] = run.items.tables[name]
            added = max(added, run.added.get(name, 1))
    split = str(results.get("split", "test"))
    said = f"{path}: a comparison, {metric} on the {split} split"
    found = _own_part(path, metric, values, failed, tables, said, is_lower, added)
    return replace(found, split=split)


def _run(path: Path, asked: Asked, namer: RunName) -> Understood:
    """Read a run's folder: what its test scored, and its items."""
    scores, split = _scores_of(path)
    known = [name for name in scores if name in _RATIOS or name.endswith(("accuracy", "bleu"))]
    metric = asked.value or (known[-1] if len(known) == 1 else "")
    if not metric and "bits_per_byte" in known:
        metric = "bits_per_byte"
    if metric not in scores:
        raise ConfigError(f"{path} has the scores {', '.join(scores)}: give --value NAME")
    arm, seed = source_names(str(path), namer)
    tables: dict[tuple[str, str], ItemTable] = {}
    items = read_items(path)
    name = None if items is None else _table_name(metric, items.tables)
    if items is not None and name is not None:
        tables[arm, seed] = items.tables[name]
    said = f"{path}: a run, {metric} on the {split} split"
    values = {(arm, seed): scores[metric]}
    found = _own_part(path, metric, values, set(), tables, said, direction_of(metric))
    return replace(found, split=split)


def _scores_of(path: Path) -> tuple[dict[str, float], str]:
    """Return the scores of a run's test, else those of its validation, and of which split."""
    if (path / TEST).is_file():
        return _numbers(read_json_object(path / TEST, CheckpointError)), "test"
    if (path / SCORES).is_file():
        tasks = read_json_object(path / SCORES, CheckpointError).get("tasks", ())
        scores = {f"{each['task']}": float(each["score"]) for each in tasks}
        splits = {str(each.get("split", "dev")) for each in tasks}
        return scores, " and ".join(sorted(splits))
    record = read_json_object(path / RECORD, CheckpointError)
    return _numbers({k: v for k, v in record.get("valid", {}).items() if k != "step"}), "valid"


def _numbers(found: Mapping[str, Any]) -> dict[str, float]:
    return {k: float(v) for k, v in found.items() if isinstance(v, int | float) and k != "tokens"}


def _table_name(metric: str, tables: Mapping[str, ItemTable]) -> str | None:
    """Return the table of items whose columns a metric follows from; None where it is unknown."""
    top, bottom, _ = _ratio(metric)
    return next(
        (
            name
            for name, table in tables.items()
            if {top, bottom} <= set(table.columns)
            and (metric in _RATIOS or name == f"{metric.removesuffix('_accuracy')}_pairs")
        ),
        None,
    )


def _ratio(metric: str) -> tuple[str, str, float]:
    return _RATIOS.get(metric, _PAIRS_ACCURACY)


def _own_part(
    path: Path,
    metric: str,
    values: Mapping[tuple[str, str], float],
    failed: set[tuple[str, str]],
    tables: Mapping[tuple[str, str], ItemTable],
    said: str,
    is_lower: bool | None,
    added: int = 1,
) -> Understood:
    """Build the records of our runs: of whole runs, and of items where all that ended have them."""
    whole: list[Records] = []
    of_items: list[Records] = []
    digests = {table.digest for table in tables.values()}
    has_items = set(tables) == set(values) and len(digests) == 1
    for run in [*values, *sorted(failed)]:
        arm, seed = run
        value = values.get(run, math.nan)
        is_failed = run in failed
        whole.append(_of_run(path, arm, seed, value, is_failed=is_failed))
        if not has_items:
            continue
        if is_failed:
            first = next(iter(of_items), None)
            names = first.item.names[:1] if first is not None and first.item is not None else ("0",)
            one = _of_run(
                path, arm, seed, value, is_failed=True, item=Coded(np.zeros(1, int), names)
            )
            of_items.append(one)
            continue
        one = _of_table(path, metric, run, tables[run])
        own = float(one.value.sum() / _weight_of(one).sum())
        if not math.isclose(own, value, rel_tol=_AGREE):
            has_items = False
            said += "; its items do not add up to its scores, and are not used"
            of_items = []
            continue
        of_items.append(one)
    if has_items:
        said += f", with {count(len(of_items[0].value), 'item')} per run"
        if added > 1:
            said += f", each of {added}"
    lower = "its metric" if is_lower is not None else ""
    records = tuple(of_items if has_items else whole)
    return Understood(records, metric, (said,), is_lower, lower, tuple(whole))


def _weight_of(records: Records) -> Numbers:
    return np.ones_like(records.value) if records.weight is None else records.weight


def _of_run(
    path: Path, arm: str, seed: str, value: float, *, is_failed: bool, item: Coded | None = None
) -> Records:
    return Records(
        str(path),
        _one(arm, 1),
        _one(seed, 1),
        np.array([value]),
        lambda _: f"{path}, {arm}, seed {seed}",
        item=item,
        failed=np.array([is_failed]),
    )


def _of_table(path: Path, metric: str, run: tuple[str, str], table: ItemTable) -> Records:
    top, bottom, unit = _ratio(metric)
    n_items = table.n_items
    names = tuple(f"{place} ({table.digest[:8]})" for place in range(n_items))
    documents = None
    if table.documents is not None:
        documents = coded([str(each) for each in table.documents.tolist()])
    return Records(
        str(path),
        _one(run[0], n_items),
        _one(run[1], n_items),
        table.columns[top].astype(np.float64) / unit,
        lambda row: f"{path}, {run[0]}, seed {run[1]}, item {row}",
        item=Coded(np.arange(n_items), names),
        document=documents,
        weight=table.columns[bottom].astype(np.float64),
    )


def _one(name: str, n_rows: int) -> Coded:
    return Coded(np.zeros(n_rows, dtype=np.int64), (name,))


def coded(names: Sequence[str]) -> Coded:
    """Code a list of names."""
    places: dict[str, int] = {}
    codes: NDArray[np.int64] = np.array(
        [places.setdefault(name, len(places)) for name in names], dtype=np.int64
    )
    return Coded(codes, tuple(places))
