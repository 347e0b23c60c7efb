"""Columns understood: which holds arms, seeds, items, documents, steps and values."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sublayer.counts import count
from sublayer.errors import ConfigError, DataError
from sublayer.judging.runs import Records
from sublayer.judging.tables import Coded, Table
from sublayer.nearest import nearest

COLUMNS, ROWS, FILES = "columns", "rows", "files"
"""Words that an option takes instead of a column's name."""
ROLES = ("arm", "seed", "item", "document", "step")
KNOWN: Mapping[str, tuple[str, ...]] = {
    "arm": ("arm", "config", "configuration", "model", "method", "variant", "system", "condition"),
    "seed": ("seed", "random_seed", "rng_seed"),
    "item": ("item", "item_id", "id", "doc_id", "example", "example_id", "instance", "question_id"),
    "document": ("document", "document_id", "passage", "passage_id", "article", "article_id"),
    "step": ("step", "global_step", "_step", "training_step"),
}
"""Names of columns by role, in lower case."""
LOWER = re.compile(
    "_(loss|nll|ppl|perplexity|bp[bc]|bits_per_[a-z]+|nats|err(or)?|[wct]er|r?mse|mae|brier)_"
)
HIGHER = re.compile(
    "_(acc|accuracy|f1|bleu|chrf|rouge.?|exact_match|em|auc|auroc|precision|recall|reward|win_rate|"
    "ndcg|mcc|pearson|spearman|iou|psnr|ssim)_"
)
_SEED = re.compile(r"(?P<before>.*?)[-_. /]*seed[-_=. ]?(?P<seed>\d+)(?P<after>.*)", re.IGNORECASE)
_WANDB = re.compile(r"(?P<run>.+) - (?P<metric>.+?)(?P<bound>__MIN|__MAX)?")
_TENSORBOARD = ("Wall time", "Step", "Value")
_EXPORTED = re.compile(r"run-(?P<run>.+?)-tag-(?P<metric>.+)")


@dataclass(frozen=True)
class Asked:
    """Columns by option; an empty text: not given."""

    arm: str = ""
    seed: str = ""
    item: str = ""
    document: str = ""
    value: str = ""
    step: str = ""
    names: str = ""
    """The pattern of runs' names, as ``{arm}-{seed}``."""
    baseline: str = ""
    new: str = ""
    task: str = ""
    filter: str = ""


@dataclass(frozen=True)
class Understood:
    """The records of sources, and how they were read."""

    records: tuple[Records, ...]
    metric: str
    said: tuple[str, ...]
    """The meaning found for columns and names, a line each."""
    is_lower_better: bool | None = None
    """None: nothing says."""
    why: str = ""
    """The source of the metric's direction."""
    without_items: tuple[Records, ...] = ()
    """The values of whole runs, for beside sources that have no items; empty: these are all."""
    split: str = ""
    """The split of a text that was scored; empty: unknown."""


def direction_of(metric: str) -> bool | None:
    """Return whether lower is better, by a metric's name; None where it does not say."""
    words = [word for word in re.split(r"[^a-z0-9]+", metric.lower()) if word]
    joined = f"_{'_'.join(words)}_"
    is_lower, is_higher = bool(LOWER.search(joined)), bool(HIGHER.search(joined))
    return is_lower if is_lower != is_higher else None


@dataclass(frozen=True)
class RunName:
    """Reads arm and seed off the name of a run."""

    pattern: re.Pattern[str]
    is_asked: bool
    n_slashes: int = 0

    @classmethod
    def of(cls, names: str) -> "RunName":
        """Return what ``--names`` says, as ``{arm}-{seed}``; of an empty text: ``seed`` and digits.

        Raises ConfigError where ``{arm}`` is missing.
        """
        if not names:
            return cls(_SEED, is_asked=False)
        if names.count("{arm}") != 1 or names.count("{seed}") > 1:
            raise ConfigError(f"--names {names} has to say {{arm}} once, as in {{arm}}-{{seed}}")
        stem = names
        while (ending := Path(stem).suffix).lower() in _ENDINGS:
            stem = stem.removesuffix(ending)
        text = re.escape(stem).replace(r"\{arm\}", "(?P<arm>.+?)")
        text = text.replace(r"\{seed\}", "(?P<seed>[^/]+?)")
        text += f"({re.escape(names.removeprefix(stem))})?"  # files are read without their endings
        return cls(re.compile(text), is_asked=True, n_slashes=names.count("/"))

    def read(self, name: str) -> tuple[str, str] | None:
        """Return arm and seed, an empty one where the pattern has none; None without a match."""
        match = self.pattern.fullmatch(name)
        if match is None:
            if self.is_asked:
                raise ConfigError(f"--names does not fit {name}: say how it is made")
            return None
        found = match.groupdict()
        if self.is_asked:
            return found["arm"], found.get("seed") or ""
        before, after = found["before"].strip("-_. /"), found["after"].strip("-_. /")
        arm = "-".join(part for part in (before, after) if part)
        return (arm, found["seed"]) if arm else None


@dataclass(frozen=True)
class Layout:
    """The role of each column of a table."""

    roles: Mapping[str, str]
    """By role, the column; ``columns``, ``rows`` or ``files`` where it is none."""
    values: tuple[str, ...]
    """The columns of numbers: one, or one for each arm, seed, item or run."""
    over: str = ""
    """The role of several columns of numbers: arms, seeds, items or runs."""
    metric: str = "value"
    unused: tuple[str, ...] = ()


def understand_tables(tables: Sequence[Table], asked: Asked, *, n_sources: int = 0) -> Understood:
    """Read tables as records, an arm a table where none of their columns says so.

    ``n_sources`` counts what else is judged with them; at least the tables.

    Raises ConfigError where the role of a column is doubtful, with the option that says it.
    """
    check_words(asked)
    namer = RunName.of(asked.names)
    whole, tables = tables, [table.of_runs() for table in tables]
    curves = [_curves(table, asked, namer) for table in tables]
    if all(curves):
        if idle := next((role for role in ROLES if getattr(asked, role)), ""):
            raise ConfigError(f"--{idle} has no effect on exports of curves: leave it out")
        records = [each for found in curves if found for each in found[0]]
        metrics = {found[1] for found in curves if found}
        if len(metrics) > 1:
            raise ConfigError(f"the tables have different metrics, {', '.join(sorted(metrics))}")
        said = [found[2] for found in curves if found]
        return Understood(tuple(records), metrics.pop(), tuple(dict.fromkeys(said)))
    n_sources = max(n_sources, len(tables))
    layouts = [_layout(table, asked, len(tables), n_sources) for table in tables]
    read = [_records(table, layout, namer) for table, layout in zip(tables, layouts, strict=True)]
    _check_metrics(tables, layouts)
    _check_effects(layouts, asked)
    said = [_said(tables, layouts[0], read[0], namer)]
    unused = dict.fromkeys(column for layout in layouts for column in layout.unused)
    if unused:
        said.append(f"not used: {', '.join(unused)}")
    if any(one is not other for one, other in zip(whole, tables, strict=True)):
        said.append("not used: rows of differences, which follow from those of runs")
    return Understood(tuple(read), layouts[0].metric, tuple(said))


def _check_metrics(tables: Sequence[Table], layouts: Sequence[Layout]) -> None:
    """Raise ConfigError where columns of scores are named as two metrics, such as loss and acc."""
    named = {
        layout.metric.lower(): f"{layout.metric} of {table.name}"
        for table, layout in zip(tables, layouts, strict=True)
        if table.has_header and not layout.over
    }
    if len(named) > 1:
        raise ConfigError(
            f"the tables have different metrics, {' and '.join([*named.values()][:2])}: name their "
            "columns alike, or give --value NAME, one that all have"
        )


def _check_effects(layouts: Sequence[Layout], asked: Asked) -> None:
    """Raise ConfigError for an option that no table makes use of."""
    is_named = [layout.over != "run" and "arm" in _known(layout) for layout in layouts]
    if asked.names and all(is_named):
        raise ConfigError("--names has no effect where columns say the arms: leave it out")
    if asked.document and not any("item" in _known(layout) for layout in layouts):
        raise ConfigError(f"--document {asked.document} needs items: give --item NAME too")


def _known(layout: Layout) -> set[str]:
    return {role for role, word in layout.roles.items() if word != FILES} | {layout.over}


def check_words(asked: Asked) -> None:
    """Raise ConfigError where two options say columns, rows or files."""
    for word in (COLUMNS, ROWS, FILES):
        both = [role for role in ROLES if getattr(asked, role) == word]
        if len(both) > 1:
            raise ConfigError(f"--{both[0]} {word} and --{both[1]} {word} exclude each other")
    columns = [word for role in ("arm", "seed", "item", "step") if (word := getattr(asked, role))]
    twice = next((word for word in columns if columns.count(word) > 1), None)
    if twice is not None:
        raise ConfigError(f"two options name the column {twice}: name one for each")
    for role in ("document", "step"):
        if getattr(asked, role) in (COLUMNS, ROWS, FILES):
            raise ConfigError(f"--{role} {getattr(asked, role)} has no meaning: name a column")
    for role in ("seed", "item"):
        if getattr(asked, role) == FILES:
            raise ConfigError(f"--{role} files has no meaning: --names says how files are named")


def _layout(table: Table, asked: Asked, n_tables: int, n_sources: int) -> Layout:
    roles: dict[str, str] = {}
    for role in ROLES:
        word = getattr(asked, role)
        if word in table.names or word in (COLUMNS, ROWS, FILES):
            roles[role] = word
        elif word:
            raise ConfigError(_no_column(table, role, word))
        else:
            found = [name for name in table.names if name.lower() in KNOWN[role]]
            found = [name for name in found if name not in (asked.value, *roles.values())]
            if len(found) > 1:
                raise ConfigError(
                    f"{table.name} has the columns {_listed(found)}, and each could be the "
                    f"{role}: give --{role} NAME"
                )
            if found:
                (roles[role],) = found
    if asked.value and asked.value not in table.names:
        raise ConfigError(_no_column(table, "value", asked.value))
    if "arm" in roles and not asked.arm and n_tables > 1:
        raise ConfigError(
            f"arms are either the files or what the column {roles['arm']} of {table.name} says: "
            f"give --arm files or --arm {roles['arm']}"
        )
    free = [name for name in table.names if name not in roles.values()]
    numbers = [name for name in free if table.is_number(name)]
    numbers = [name for name in numbers if not table.is_unnamed(name)] or numbers
    over, values = _values(table, asked, roles, numbers)
    _settle_rows(table, roles, over, n_sources)
    metric = values[0] if not over else "value"
    if not table.has_header and not over:
        metric = "value"
    used = set(values)
    unused = tuple(name for name in free if name not in used)
    return Layout(roles, tuple(values), over, metric, unused)


def _values(
    table: Table, asked: Asked, roles: Mapping[str, str], numbers: Sequence[str]
) -> tuple[str, list[str]]:
    """Return the role of the columns of numbers, and their names."""
    over = next((role for role in ("arm", "seed", "item") if roles.get(role) == COLUMNS), "")
    if over and asked.value:
        raise ConfigError(f"--{over} columns leaves --value without effect: leave one out")
    if asked.value:
        return "", [asked.value]
    if not numbers:
        free = [name for name in table.names if name not in roles.values()]
        scores = [name for name in free if direction_of(name) is not None] or free
        if roles and len(scores) == 1:
            table.load([], scores)  # raises, with the line of the first text
        beside = f" beside {_listed(roles.values())}" if roles else ""
        raise DataError(f"{table.name} has no column of numbers{beside}: give it one of scores")
    if over:
        return over, list(numbers)
    if len(numbers) == 1:
        return "", list(numbers)
    if asked.names or ("seed" not in roles and all(map(_SEED.fullmatch, numbers))):
        runs = [_SEED.fullmatch(name) for name in numbers]
        is_seed = not asked.names and all(
            match and not match["before"] and not match["after"] for match in runs
        )
        return ("seed" if is_seed else "run"), list(numbers)
    named = {asked.baseline, asked.new} - {""}
    if "arm" not in roles and named and named <= set(numbers):
        return "arm", list(numbers)
    known = [name for name in numbers if direction_of(name) is not None]
    if len(known) == 1:
        return "", known
    shown = _listed(numbers if len(numbers) <= 6 else [*numbers[:5], f"{len(numbers) - 5} more"])
    raise ConfigError(
        f"{table.name} has the columns of numbers {shown}: give --value NAME where one is the "
        "score, or --arm, --seed or --item columns where each is one"
    )


def _settle_rows(table: Table, roles: dict[str, str], over: str, n_sources: int) -> None:
    """Settle the role of rows that no column names; raise ConfigError where it is doubtful."""
    named = {role for role in ("arm", "seed", "item") if roles.get(role, FILES) != FILES}
    if over == "run":
        named |= {"arm", "seed"}
    elif over:
        named.add(over)
    if "arm" not in named and roles.get("arm") != FILES and n_sources == 1:
        raise ConfigError(
            f"{table.name} is one table, and no column says what the arms are: give --arm NAME, or "
            "--arm columns where each column is an arm"
        )
    if "step" in roles:  # which tells the rows of a run apart
        return
    n_rows = table.n_head
    if named & {"seed", "item"} - {over} or (over and "arm" in named - {over}):
        return
    if n_rows > 1 and not (over in ("seed", "run") and "arm" in named - {over}):
        what = "--item rows" if over in ("seed", "run") else "--seed rows or --item rows"
        if over == "item":
            what = "--seed rows"
        raise ConfigError(f"{table.name} does not say what a row is: give {what}")


def _records(table: Table, layout: Layout, namer: RunName) -> Records:
    by_column = {role: column for role, column in layout.roles.items() if column in table.names}
    step = by_column.pop("step", "")
    numbers = [*layout.values, *([step] if step else [])]
    loaded = table.load([*dict.fromkeys(by_column.values())], numbers)
    n_rows = len(loaded.numbers[layout.values[0]])
    n_columns = len(layout.values)
    value = np.stack([loaded.numbers[name] for name in layout.values], axis=1)  # [R, C]
    is_empty = np.zeros(value.shape, dtype=np.bool_)
    for column, name in enumerate(layout.values):
        is_empty[loaded.empty.get(name, []), column] = True
    if is_empty.any() and not layout.over and not step:
        row = int(np.argwhere(is_empty)[0, 0])
        raise DataError(
            f"{table.place(row, layout.values[0])} is empty: write the value, or nan for a run "
            "that failed"
        )

    kept = np.flatnonzero(~is_empty.reshape(-1))
    coded: dict[str, Coded] = {}
    rows, columns = np.divmod(np.arange(value.size), n_columns)
    for role in ("arm", "seed", "item", "document"):
        called = layout.roles.get(role, "")
        if called in table.names:
            own = loaded.coded[called]
            coded[role] = Coded(own.codes[rows], own.names)
        elif called == ROWS:
            coded[role] = Coded(rows, tuple(map(str, range(n_rows))))
        elif layout.over == role:
            coded[role] = Coded(columns, tuple(_column_name(role, layout.values)))
    pairs: Sequence[tuple[str, str]] = []
    if layout.over == "run":
        pairs = [_pair(namer, name) for name in layout.values]
    elif "arm" not in coded:
        pairs = [source_names(table.name, namer, has_seed="seed" in coded)] * n_columns
    for role, found in zip(("arm", "seed"), zip(*pairs, strict=True), strict=bool(pairs)):
        names = tuple(dict.fromkeys(found))
        if layout.over == "run" or role not in coded:
            coded[role] = Coded(np.array(list(map(names.index, found)))[columns], names)
    coded.setdefault("seed", Coded(np.zeros(value.size, dtype=np.int64), ("0",)))
    for role, own in coded.items():
        coded[role] = Coded(own.codes[kept], own.names)
    return Records(
        table.name,
        coded["arm"],
        coded["seed"],
        value.reshape(-1)[kept],
        lambda index: table.place(int(rows[kept[index]]), layout.values[int(columns[kept[index]])]),
        item=coded.get("item"),
        document=coded.get("document"),
        step=loaded.numbers[step][rows[kept]] if step else None,
    )


def source_names(name: str, namer: RunName, *, has_seed: bool = False) -> tuple[str, str]:
    """Return the arm and the seed that a source's path says, for what no column does.

    Of a pattern with slashes, so many folders above the file are read; a file that is called by its
    seed alone has its arm from the folder.
    """
    parts = [part for part in Path(name).parts if part not in ("/", ".", "..")] or [name]
    while Path(parts[-1]).suffix.lower() in _ENDINGS:
        parts[-1] = Path(parts[-1]).stem
    if has_seed and not namer.is_asked:
        return parts[-1], ""
    n_above = namer.n_slashes if namer.is_asked else 0
    found = namer.read("/".join(parts[-1 - n_above :]))
    if found is None:
        found = namer.read("/".join(parts[-2:]))
    return found or (parts[-1], "0")


_ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet", ".gz", ".zst", ".xz")


def _column_name(role: str, names: Sequence[str]) -> list[str]:
    if role != "seed":
        return list(names)
    found = [_SEED.fullmatch(name) for name in names]
    return [match["seed"] if match else name for match, name in zip(found, names, strict=True)]


def _pair(namer: RunName, name: str) -> tuple[str, str]:
    found = namer.read(name)
    if found is None:
        raise ConfigError(
            f"the run {name} does not say its arm and seed: give --names, as in "
            "--names '{arm}-{seed}'"
        )
    return found


def _curves(table: Table, asked: Asked, namer: RunName) -> tuple[list[Records], str, str] | None:
    """Read the curves of runs that W&B or TensorBoard exports; None: the table is neither's."""
    if table.names == _TENSORBOARD:
        name = Path(table.name).stem
        exported = _EXPORTED.fullmatch(name)
        metric = exported["metric"] if exported else "value"
        runs = {"Value": _pair(namer, exported["run"] if exported else name)}
        read = _curves_of(table, "Step", runs, has_gaps=False)
        return read, metric, "TensorBoard's export, one file per run"
    step, *others = table.names
    matches = {name: match for name in others if (match := _WANDB.fullmatch(name))}
    if not others or len(matches) < len(others) or step.lower() not in ("step", "global_step"):
        return None
    named = {name: match for name, match in matches.items() if not match["bound"]}
    metrics = tuple(dict.fromkeys(match["metric"] for match in named.values()))
    metric = asked.value or metrics[0]
    if metric not in metrics:
        raise ConfigError(f"{table.name} has no metric {metric}: it has {_listed(metrics)}")
    if not asked.value and len(metrics) > 1:
        raise ConfigError(f"{table.name} has the metrics {_listed(metrics)}: give --value NAME")
    chosen = {name: match for name, match in named.items() if match["metric"] == metric}
    runs = {name: _pair(namer, match["run"]) for name, match in chosen.items()}
    said = f"W&B's export of {metric}, one column per run: {count(len(chosen), 'run')}"
    return _curves_of(table, step, runs, has_gaps=True), metric, said


def _curves_of(
    table: Table, step: str, runs: Mapping[str, tuple[str, str]], *, has_gaps: bool
) -> list[Records]:
    """Read columns as curves of runs, by arm and seed; with gaps, an empty cell is no value."""
    loaded = table.load([], [step, *runs])
    records = []
    for column, run in runs.items():
        values = loaded.numbers[column]
        rows = np.arange(len(values))
        if has_gaps:
            rows = np.delete(rows, loaded.empty.get(column, []))
        place = partial(_place_in, table, column, rows)
        steps = loaded.numbers[step][rows]
        records.append(Records.of_run(table.name, *run, values[rows], place, step=steps))
    return records


def _place_in(table: Table, column: str, rows: NDArray[np.int64], row: int) -> str:
    return table.place(int(rows[row]), column)


def _no_column(table: Table, role: str, word: str) -> str:
    near = nearest(word, table.names)
    meant = f": did you mean {near}?" if near else f": it has {_listed(table.names)}"
    return f"--{role} {word}: {table.name} has no such column{meant}"


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    return (
        ", ".join(listed[:-1]) + (" and " if listed[:-1] else "") + (listed[-1] if listed else "")
    )


def _said(tables: Sequence[Table], layout: Layout, records: Records, namer: RunName) -> str:
    """Describe the roles of rows and columns of the tables in one line."""
    shown = {}
    for role in ("arm", "seed", "item", "document", "step"):
        column = layout.roles.get(role, "")
        if column in tables[0].names:
            shown[role] = f"column {column}"
        elif column == ROWS:
            shown[role] = "each row"
        elif layout.over == role or (layout.over == "run" and role in ("arm", "seed")):
            shown[role] = "each column"
    if layout.over == "run":
        shown["arm"] = shown["seed"] = "in the names of the columns"
    if "arm" not in shown:
        shown["arm"] = "each file" if len(tables) > 1 else "the file"
    if "seed" not in shown:
        has_seed = namer.is_asked or _SEED.search(Path(tables[0].name).name)
        shown["seed"] = "in the names of the files" if has_seed else "none, one run per arm"
    value = f"column {layout.values[0]}" if not layout.over else "in the columns"
    shown["value"] = value
    parts = [f"{role}: {shown[role]}" for role in (*ROLES, "value") if role in shown]
    return "; ".join(parts)


def with_direction(understood: Understood, asked: bool | None) -> Understood:
    """Settle which direction is better, by the option, the source or the metric's name.

    Raises ConfigError where none of them says so.
    """
    if asked is not None:
        return replace(understood, is_lower_better=asked, why="as asked")
    if understood.is_lower_better is not None:
        return understood
    found = direction_of(understood.metric)
    if found is None:
        raise ConfigError(
            f"it is not known whether a lower {understood.metric} is better: give "
            "--lower-is-better or --higher-is-better"
        )
    return replace(understood, is_lower_better=found, why=f"by its name, {understood.metric}")
