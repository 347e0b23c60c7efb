"""Roles of a table's columns: arms, seeds, items, documents, steps and values."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sublayer.errors import ConfigError, DataError, nearest_hint
from sublayer.judging.runs import COLUMNS, FILES, ROLES, ROWS, JudgingOptions, Records
from sublayer.judging.tables import Coded, RunTable, is_empty
from sublayer.numbers import count, enumerate_names

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
_TENSORBOARD = ["Wall time", "Step", "Value"]
_EXPORTED = re.compile(r"run-(?P<run>.+?)-tag-(?P<metric>.+)")
_ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet", ".gz", ".zst", ".xz")
_SHOWN = 5


@dataclass(frozen=True)
class SourceRecords:
    """The records of sources, with their interpretation."""

    records: tuple[Records, ...]
    metric: str
    said: tuple[str, ...]
    """Interpretations of columns and names, a line each."""
    is_lower_better: bool | None = None
    """None: unknown."""
    why: str = ""
    """The source of the metric's direction."""
    without_items: tuple[Records, ...] = ()
    """Values per run, to join with sources without items; empty: same as the records."""
    split: str = ""
    """The scored split of a text; empty: unknown."""


def direction_of(metric: str) -> bool | None:
    """Return whether lower is better, by a metric's name; None if unknown."""
    words = [word for word in re.split(r"[^a-z0-9]+", metric.lower()) if word]
    joined = f"_{'_'.join(words)}_"
    is_lower, is_higher = bool(LOWER.search(joined)), bool(HIGHER.search(joined))
    return is_lower if is_lower != is_higher else None


def check_one_metric(sources: Iterable[tuple[str, str]]) -> None:
    """Raise ConfigError if sources, given as metric and name, have different metrics."""
    named = dict(sources)
    if len({metric.lower() for metric in named}) > 1:
        (one, of_one), (other, of_other), *_ = named.items()
        raise ConfigError(
            f"the sources have different metrics, {one} of {of_one} and {other} of {of_other}: "
            "rename the columns alike, or give --value NAME, a column of all sources"
        )


@dataclass(frozen=True)
class RunName:
    """Parser of arm and seed from the name of a run."""

    pattern: re.Pattern[str]
    is_asked: bool
    n_slashes: int = 0

    @classmethod
    def of(cls, names: str) -> "RunName":
        """Return the pattern of ``--names``, as ``{arm}-{seed}``; by default ``seed`` and digits.

        Raises ConfigError if ``{arm}`` is missing.
        """
        if not names:
            return cls(_SEED, is_asked=False)
        if names.count("{arm}") != 1 or names.count("{seed}") > 1:
            raise ConfigError(f"--names {names} must contain {{arm}} once, as in {{arm}}-{{seed}}")
        stem = without_ending(names)
        text = re.escape(stem).replace(r"\{arm\}", "(?P<arm>.+?)")
        text = text.replace(r"\{seed\}", "(?P<seed>[^/]+?)")
        text += f"({re.escape(names.removeprefix(stem))})?"  # files are matched without suffixes
        return cls(re.compile(text), is_asked=True, n_slashes=names.count("/"))

    def read(self, name: str) -> tuple[str, str] | None:
        """Return arm and seed, empty if not in the pattern; None without a match."""
        match = self.pattern.fullmatch(name)
        if match is None:
            if self.is_asked:
                raise ConfigError(f"--names does not match {name}: give a pattern that does")
            return None
        groups = match.groupdict()
        if self.is_asked:
            return groups["arm"], groups.get("seed") or ""
        parts = (groups[name].strip("-_. /") for name in ("before", "after"))
        arm = "-".join(filter(None, parts))
        return (arm, groups["seed"]) if arm else None

    def require(self, name: str) -> tuple[str, str]:
        """Return arm and seed; raise ConfigError for a name without them."""
        arm_seed = self.read(name)
        if arm_seed is None:
            raise ConfigError(
                f"the name of the run {name} has no known arm and seed: give --names, as in "
                "--names '{arm}-{seed}'"
            )
        return arm_seed

    def of_source(self, path: str, *, has_seed: bool = False) -> tuple[str, str]:
        """Return the arm and the seed in a source's path, for sources without such columns.

        A pattern with slashes also matches that number of parent folders; a file named only by its
        seed takes its folder's name as its arm.
        """
        parts = [part for part in Path(path).parts if part not in ("/", ".", "..")] or [path]
        parts[-1] = without_ending(parts[-1])
        if has_seed and not self.is_asked:
            return parts[-1], ""
        n_above = self.n_slashes if self.is_asked else 0
        arm_seed = self.read("/".join(parts[-1 - n_above :])) or self.read("/".join(parts[-2:]))
        return arm_seed or (parts[-1], "0")


def without_ending(name: str) -> str:
    """Return the name of a file of scores without suffixes such as ``.csv.gz``."""
    while (ending := Path(name).suffix).lower() in _ENDINGS:
        name = name.removesuffix(ending)
    return name


@dataclass(frozen=True)
class ColumnRoles:
    """The role of each column of a table."""

    roles: Mapping[str, str]
    """Column by role, or the distinguishing dimension: ``columns``, ``rows`` or ``files``."""
    values: tuple[str, ...]
    """Numeric columns: one, or one per arm, seed, item or run."""
    metric: str
    unused: tuple[str, ...]

    @property
    def is_of_runs(self) -> bool:
        """True if each numeric column is a run, named by arm and seed."""
        return self.roles.get("arm") == self.roles.get("seed") == COLUMNS


def understand_tables(
    tables: Sequence[RunTable], options: JudgingOptions, *, n_sources: int = 0
) -> list[SourceRecords]:
    """Read tables as records, an arm per table if no column names arms.

    ``n_sources`` counts all sources judged together, at least the tables. Raises ConfigError, with
    the option that decides, if the role of a column is ambiguous.
    """
    namer = RunName.of(options.names)
    of_runs = [table.of_runs() for table in tables]
    exports = [export for table in of_runs if (export := _export(table, options, namer))]
    if len(exports) == len(tables):
        options.refuse(*ROLES, why="has no effect on exports of curves")
        return exports
    n_sources = max(n_sources, len(tables))
    layouts = [_layout(table, options, len(tables), n_sources) for table in of_runs]
    read = [_records(table, layout, namer) for table, layout in zip(of_runs, layouts, strict=True)]
    pairs = zip(layouts, of_runs, strict=True)
    check_one_metric((layout.metric, table.name) for layout, table in pairs if layout.metric)
    if all(layout.roles["arm"] != FILES and not layout.is_of_runs for layout in layouts):
        options.refuse("names", why="has no effect where columns name the arms")
    if options.document and not any("item" in layout.roles for layout in layouts):
        raise ConfigError(f"--document {options.document} needs items: give --item NAME too")
    notes = [_said(of_runs, layouts[0], namer)]
    if unused := dict.fromkeys(column for layout in layouts for column in layout.unused):
        notes.append(f"not used: {', '.join(unused)}")
    if any(one is not other for one, other in zip(tables, of_runs, strict=True)):
        notes.append("not used: rows of differences, which follow from the rows of runs")
    return [SourceRecords(tuple(read), layouts[0].metric or "value", tuple(notes))]


def _layout(table: RunTable, options: JudgingOptions, n_tables: int, n_sources: int) -> ColumnRoles:
    roles: dict[str, str] = {}
    for role in (*ROLES, "value"):
        word = getattr(options, role)
        if word and word not in (*table.columns, *ROLES.get(role, ())):
            has = enumerate_names(list(table.columns))
            hint = nearest_hint(word, table.columns) or f": it has {has}"
            raise ConfigError(f"--{role} {word}: {table.name} has no such column{hint}")
        taken = (options.value, *roles.values())
        matching = [name for name in table.columns if name.lower() in KNOWN.get(role, ())]
        matching = [word] if word else [name for name in matching if name not in taken]
        if len(matching) > 1:
            raise ConfigError(
                f"{table.name}: each of the columns {enumerate_names(matching)} could be the "
                f"{role}: give --{role} NAME"
            )
        if matching and role != "value":
            (roles[role],) = matching
    if "arm" in roles and not options.arm and n_tables > 1:
        raise ConfigError(
            f"arms are either the files or the names in column {roles['arm']} of {table.name}: "
            f"give --arm files or --arm {roles['arm']}"
        )
    free = [name for name in table.columns if name not in roles.values()]
    values = _values(table, options, roles, free)
    over = {role for role, word in roles.items() if word == COLUMNS}
    if "arm" not in roles and n_sources == 1:
        raise ConfigError(
            f"{table.name} is a single table without a known column of arms: give --arm NAME, or "
            "--arm columns if each column is an arm"
        )
    row_roles = {role for role, word in roles.items() if word not in (COLUMNS, FILES)}
    is_told = row_roles & {"seed", "item", "step"} or (over and "arm" in row_roles) or len(over) > 1
    if table.n_rows > 1 and not is_told:
        ways = [f"--{role} rows" for role in ("seed", "item") if role not in over]
        raise ConfigError(
            f"the meaning of the rows of {table.name} is unknown: give {' or '.join(ways)}"
        )
    if roles.setdefault("arm", FILES) == FILES:
        roles.setdefault("seed", FILES)
    metric = values[0] if table.has_header and not over else ""
    unused = tuple(name for name in free if name not in values)
    return ColumnRoles(roles, tuple(values), metric, unused)


def _values(
    table: RunTable, options: JudgingOptions, roles: dict[str, str], free: Sequence[str]
) -> Sequence[str]:
    """Return the numeric columns; set in ``roles`` the dimension that distinguishes them."""
    over = next((role for role, word in roles.items() if word == COLUMNS), "")
    if over and options.value:
        raise ConfigError(f"--{over} columns leaves --value without effect: leave one out")
    if options.value:
        return [options.value]
    numbers = [name for name in free if table.is_number(name)]
    numbers = [name for name in numbers if not table.is_unnamed(name)] or numbers
    if not numbers:
        scores = [name for name in free if direction_of(name) is not None] or free
        if roles and len(scores) == 1:
            table.numbers(scores[0])  # raises, with the line of the first text
        beside = f" beside {enumerate_names(list(roles.values()))}" if roles else ""
        raise DataError(f"{table.name} has no column of numbers{beside}: add a column of scores")
    if over or len(numbers) == 1:
        return numbers
    seeds = [_SEED.fullmatch(name) for name in numbers]
    if options.names or ("seed" not in roles and all(seeds)):
        is_seed = all(match and not match["before"] and not match["after"] for match in seeds)
        is_run = options.names or not is_seed
        roles |= dict.fromkeys(("arm", "seed") if is_run else ("seed",), COLUMNS)
        return numbers
    named = {options.baseline, options.new} - {""}
    if "arm" not in roles and named and named <= set(numbers):
        roles["arm"] = COLUMNS
        return numbers
    metrics = [name for name in numbers if direction_of(name) is not None]
    if len(metrics) == 1:
        return metrics
    shown = numbers
    if len(numbers) > _SHOWN + 1:
        shown = [*numbers[:_SHOWN], f"{len(numbers) - _SHOWN} more"]
    raise ConfigError(
        f"{table.name} has the columns of numbers {enumerate_names(shown)}: give --value NAME if "
        "one is the score, or --arm, --seed or --item columns if each is an arm, seed or item"
    )


def _records(table: RunTable, layout: ColumnRoles, namer: RunName) -> Records:
    """Read a wide table as a long one: a row for each filled numeric cell."""
    value = np.stack([table.numbers(name) for name in layout.values], axis=1)  # [R, C]
    empty = np.stack([_empty(table, name) for name in layout.values], axis=1)
    over = COLUMNS in layout.roles.values()
    if empty.any() and not over and "step" not in layout.roles:
        where = table.place(int(empty.argmax()), layout.values[0])
        raise DataError(f"{where} is empty: write the value, or nan for a run that failed")
    rows, columns = np.nonzero(~empty)
    by_column = dict.fromkeys(ROLES, layout.values)
    if layout.is_of_runs:
        arms, seeds = zip(*map(namer.require, layout.values), strict=True)
        by_column |= {"arm": arms, "seed": seeds}
    else:
        matches = [(name, _SEED.fullmatch(name)) for name in layout.values]
        by_column["seed"] = tuple(match["seed"] if match else name for name, match in matches)

    def coded(role: str) -> Coded | None:
        word = layout.roles.get(role, FILES)
        if word in table.columns:
            return table.coded(word).at(rows)
        if word == ROWS:
            return Coded(rows, tuple(map(str, range(table.n_rows))))
        return Coded.of(by_column[role]).at(columns) if word == COLUMNS else None

    by_file = "", "0"
    if layout.roles["arm"] == FILES:
        has_seed = layout.roles["seed"] != FILES
        by_file = namer.of_source(table.name, has_seed=has_seed)
    all_rows = np.zeros_like(rows)
    step = layout.roles.get("step")
    return Records(
        table.name,
        coded("arm") or Coded(all_rows, by_file[:1]),
        coded("seed") or Coded(all_rows, by_file[1:]),
        value[rows, columns],
        lambda index: table.place(int(rows[index]), layout.values[int(columns[index])]),
        item=coded("item"),
        document=coded("document"),
        step=None if step is None else table.numbers(step)[rows],
    )


def _empty(table: RunTable, column: str) -> NDArray[np.bool_]:
    return np.array([is_empty(cell) for cell in table.columns[column]], dtype=np.bool_)


def _export(table: RunTable, options: JudgingOptions, namer: RunName) -> SourceRecords | None:
    """Read the curves of a W&B or TensorBoard export of runs; None for any other table."""
    step, *others = table.columns
    if list(table.columns) == _TENSORBOARD:
        name = Path(table.name).stem
        exported = _EXPORTED.fullmatch(name)
        metric = exported["metric"] if exported else "value"
        step, runs = "Step", {"Value": exported["run"] if exported else name}
        note = "TensorBoard's export, one file per run"
    else:
        matches = [match for name in others if (match := _WANDB.fullmatch(name))]
        if not others or len(matches) < len(others) or step.lower() not in ("step", "global_step"):
            return None
        matches = [match for match in matches if not match["bound"]]
        metric = options.choose("value", (match["metric"] for match in matches), table.name)
        runs = {match[0]: match["run"] for match in matches if match["metric"] == metric}
        note = f"W&B's export of {metric}, one column per run: {count(len(runs), 'run')}"
    records = [
        _curve(table, step, column, namer.require(name), has_gaps="W&B" in note)
        for column, name in runs.items()
    ]
    return SourceRecords(tuple(records), metric, (note,))


def _curve(
    table: RunTable, step: str, column: str, run: tuple[str, str], *, has_gaps: bool
) -> Records:
    """Read a column as the curve of a run; with ``has_gaps``, empty cells are skipped."""
    rows = np.flatnonzero(~_empty(table, column)) if has_gaps else np.arange(table.n_rows)
    return Records.of_run(
        table.name,
        *run,
        table.numbers(column)[rows],
        lambda row: table.place(int(rows[row]), column),
        step=table.numbers(step)[rows],
    )


def _said(tables: Sequence[RunTable], layout: ColumnRoles, namer: RunName) -> str:
    """Describe the roles of rows and columns of the tables in one line."""
    first = Path(tables[0].name).name
    has_seed = layout.roles["arm"] == FILES and (namer.is_asked or _SEED.search(first))
    shown = {"arm": "each file" if len(tables) > 1 else "the file"}
    shown["seed"] = "in the names of the files" if has_seed else "none, one run per arm"
    words = {ROWS: "each row", COLUMNS: "each column"}
    for role, word in layout.roles.items():
        if word != FILES or word in tables[0].columns:
            shown[role] = words.get(word, f"column {word}")
    if layout.is_of_runs:
        shown |= dict.fromkeys(("arm", "seed"), "in the names of the columns")
    is_wide = COLUMNS in layout.roles.values()
    shown["value"] = "in the columns" if is_wide else f"column {layout.values[0]}"
    return "; ".join(f"{role}: {shown[role]}" for role in (*ROLES, "value") if role in shown)
