"""Arguments of public functions: shared options, paths, tables, settings."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from sublayer.config.data import DocumentRule
from sublayer.config.plugins import mark_used, used_plugins
from sublayer.config.table import (
    LARGEST_FACTOR,
    LARGEST_PENALTY,
    LARGEST_SEED,
    LARGEST_VOCABULARY,
    LONGEST_WINDOW,
    MOST_FINETUNINGS,
    MOST_JOBS,
    MOST_SEEDS,
    WIDEST_BEAM,
    WIDEST_FFN,
)
from sublayer.errors import ConfigError, DataError
from sublayer.files.cache_folder import cache_folder, replacing
from sublayer.numbers import count
from sublayer.options import Argument, Option, PathText, as_text
from sublayer.system.terminal import note, stage
from sublayer.text_model import TextModel
from sublayer.values import as_cell, is_missing, plain, surrogate_problem, table_rows

if TYPE_CHECKING:
    import torch

    from sublayer.study.definition import Options


Recipe = Annotated[
    PathText,
    Argument(
        "A recipe's name (see `sublayer recipes`), a .toml file, or a run.",
        metavar="RECIPE",
        complete="recipes",
    ),
]
Device = Annotated[
    str | None,
    Option(
        "Device for computing: cpu, cuda, cuda:1 ... Default: a GPU if available.",
        metavar="DEVICE",
        complete="devices",
    ),
]
Model = Annotated[
    PathText,
    Argument(
        "A run, a checkpoint, or the folder of an imported model.", metavar="RUN", complete="runs"
    ),
]
Engine = Annotated[
    Literal["ctranslate2", "onnx"] | None,
    Option(
        "Program that computes in place of PyTorch, for a folder that `export` wrote for it; any "
        "other model is converted first."
    ),
]
Average = Annotated[
    int | None,
    Option(
        "Number of the run's newest checkpoints to average the weights of.", least=1, most=10_000
    ),
]
Plugins = Annotated[
    Sequence[PathText],
    Option(
        "Rows of your own, code that is run: a Python file, or the name of an installed package. "
        "Repeatable.",
        flag="--plugin",
        metavar="FILE",
        default=(),
    ),
]
TableFiles = Annotated[
    Sequence[PathText],
    Option(
        "Also write every run of a comparison and the differences: .csv, .md or .tex. Repeatable.",
        flag="--table",
        metavar="FILE",
    ),
]
Overrides = Sequence[str] | Mapping[str, Any]
"""``key=value`` texts, or values by field."""
Settings = Annotated[
    Overrides | None,
    Argument(
        "Settings over the recipe's, such as model.d_ff=512 (see `sublayer fields`).",
        metavar="KEY=VALUE",
        complete="settings",
    ),
]


class Decoding(TypedDict, total=False):
    """Options of decoding: greedy, by a beam, or by sampling."""

    beam: Annotated[
        int | None,
        Option(
            "Beam size for filled gaps or written answers; the most probable hypothesis is "
            "printed. Default: 1, greedy, unless a sampling option is given.",
            least=1,
            most=WIDEST_BEAM,
        ),
    ]
    temperature: Annotated[
        float | None,
        Option(
            "Sampling temperature: below 1 more certain, above 1 more varied, 0 greedy. Default: "
            "1.",
            least=0.0,
            most=LARGEST_FACTOR,
        ),
    ]
    top_k: Annotated[
        int | None,
        Option("Number of most probable tokens to sample among.", least=1, most=LARGEST_VOCABULARY),
    ]
    top_p: Annotated[
        float | None,
        Option(
            "Cumulative probability of the fewest most probable tokens to sample among (nucleus "
            "sampling).",
            least=0.0,
            most=1.0,
        ),
    ]
    seed: Annotated[
        int | None, Option("Random seed for sampling. Default: 0.", least=0, most=LARGEST_SEED)
    ]


class BeamSearch(TypedDict, total=False):
    """The beam search of a translator."""

    beam: Annotated[
        int | None,
        Option(
            "Beam size; 1 is greedy. Default: the run's objective.beam, 5.",
            least=1,
            most=WIDEST_BEAM,
        ),
    ]
    length_rule: Annotated[
        Literal["fairseq", "gnmt"] | None,
        Option(
            "Divisor of a hypothesis's log probability: n^p of its n tokens (fairseq), or ((5 + "
            "n) / 6)^p (gnmt). Default: the run's objective.length_rule, fairseq."
        ),
    ]
    length_penalty: Annotated[
        float | None,
        Option(
            "Exponent p of the length rule: 0 favours short translations, larger values longer "
            "ones. Default: the run's objective.length_penalty, 1.",
            least=-LARGEST_PENALTY,
            most=LARGEST_PENALTY,
        ),
    ]
    max_length_ratio: Annotated[
        float | None,
        Option(
            "Maximum length of a translation: RATIO x the source's tokens ...",
            alias="--longest-share",
            metavar="RATIO",
            least=0.0,
            most=LARGEST_FACTOR,
        ),
    ]
    max_length_offset: Annotated[
        float | None,
        Option(
            "... + OFFSET. Default: 200.",
            alias="--longest-more",
            metavar="OFFSET",
            least=-LONGEST_WINDOW,
            most=LONGEST_WINDOW,
        ),
    ]


class TextFormat(TypedDict, total=False):
    """Options of the documents in the files of a text."""

    documents: Annotated[
        DocumentRule | None,
        Option(
            "Unit of a document in --path: each file, each block between blank lines, each JSON "
            "record, or each row of CSV (the field data.documents).",
        ),
    ]
    text_field: Annotated[
        str | None,
        Option(
            "The field of JSON, or the column of CSV or Parquet, that holds the text of --path "
            "(the field data.text_field).",
            metavar="NAME",
        ),
    ]


class StudyOptions(TypedDict, total=False):
    """Options shared by a comparison and its plan: fields of ``study.options.Options``."""

    vary: Annotated[
        Sequence[str],
        Option(
            "Values of a field, one arm each; the first is the baseline. Repeatable.",
            metavar="FIELD=A,B",
            complete="varied",
            default=(),
        ),
    ]
    match: Annotated[
        Literal["parameters", "flops", "time", "none"] | None,
        Option("Budget shared by every arm and the baseline. Default: the study's, or parameters."),
    ]
    match_multiple: Annotated[
        int | None,
        Option(
            "Number of which matched widths are multiples, such as 8, where a GPU wants it. "
            "Default: the study's, or 1: exact.",
            metavar="N",
            least=1,
            most=WIDEST_FFN,
        ),
    ]
    seeds: Annotated[
        int | None,
        Option(
            "Number of seeds per arm, 0 to N - 1: at least 3, or 1 for values without a verdict. "
            "Default: the study's, or 5; 1 for a single arm.",
            least=1,
            most=MOST_SEEDS,
        ),
    ]
    until: Annotated[
        Literal["decided"] | None,
        Option(
            "Stopping rule: seeds are added until an arm is decided (better, worse, or no "
            "difference that matters), with intervals valid at every look.",
            metavar="decided",
        ),
    ]
    seeds_at_most: Annotated[
        int | None,
        Option("Largest number of seeds per arm with --until decided.", least=1, most=MOST_SEEDS),
    ]
    margin: Annotated[
        str | float | None,
        Option(
            "Smallest difference that matters, in either direction and in their unit, such "
            'as "0.01 bits per byte" or 0.01. Default: the study\'s, or none.',
            metavar="AMOUNT",
        ),
    ]
    tune: Annotated[
        Sequence[str],
        Option(
            "Values of a field to tune in every arm, selected on validation by runs with seeds "
            "of their own. Repeatable.",
            metavar="FIELD=A,B",
            complete="varied",
            default=(),
        ),
    ]
    tuning_seeds: Annotated[
        int | None,
        Option(
            "Runs per trial of --tune; their mean score selects. Default: 1.",
            least=1,
            most=MOST_SEEDS,
        ),
    ]
    extend: Annotated[
        int | None,
        Option(
            "Largest number of extensions of the --tune grid: if an arm's best value lies at an "
            "edge, every arm tries the next value beyond.",
            least=1,
            most=20,
        ),
    ]
    first_seed: Annotated[
        int | None,
        Option("First seed of the runs. Default: 0.", metavar="S", least=0, most=LARGEST_SEED),
    ]
    first_tuning_seed: Annotated[
        int | None,
        Option(
            "First seed of the trial runs of --tune, distinct from the compared seeds. Default: "
            "1000.",
            metavar="S",
            least=0,
            most=LARGEST_SEED,
        ),
    ]
    scale: Annotated[
        str | None,
        Option(
            "Scale of the study, such as paper or cpu. Default: paper, else cpu, else its first.",
            metavar="NAME",
            complete="scales",
        ),
    ]
    finetunings: Annotated[
        int | None,
        Option(
            "Fine-tuning runs per task and pre-training in a study with stages. Default: the "
            "study's, or 1.",
            least=1,
            most=MOST_FINETUNINGS,
        ),
    ]
    data: Annotated[
        PathText | None,
        Option(
            "Folder of the tasks' files in a study with stages. Default: the cache, with missing "
            "files downloaded.",
            metavar="DIR",
        ),
    ]
    out: Annotated[
        PathText | None,
        Option("The study's folder. Default: runs/NAME, then runs/NAME.2, ..."),
    ]
    jobs: Annotated[
        int,
        Option(
            "Runs trained in parallel, each in its own process with its share of the threads.",
            least=1,
            most=MOST_JOBS,
            default=1,
        ),
    ]
    plugins: Plugins


def study_options(
    options: StudyOptions,
    *,
    device: str | None = None,
    on: str | None = None,
    resume: bool = False,
) -> "Options":
    """Return the options of a study in its types."""
    from sublayer.study.definition import Options

    settings: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    settings.pop("plugins", None)
    readers: dict[str, Callable[[Any], Any]] = {"data": fspath, "margin": str, "out": Path}
    readers |= {"vary": tuple, "tune": tuple}
    for name in settings.keys() & readers.keys():
        settings[name] = readers[name](settings[name])
    return Options(device=device, on=on, resume=resume, **settings)


def as_source(target: Any) -> str:
    """Return the path of a table: a given file, or the stored rows of a DataFrame.

    Rows are stored as JSON lines in the cache, by content, so that training on them can resume.
    Raises as ``as_text`` does.
    """
    if isinstance(target, str | PathLike):
        return as_text(target)
    rows = table_rows(target)
    if rows is None:
        raise ConfigError(
            f"{type(target).__name__} is not a table: give the path of a file or a folder, a "
            "DataFrame, a dict of columns, or a list of mappings"
        )
    if not rows:
        raise DataError("the table has no rows")
    data = "".join(f"{_line(row, number)}\n" for number, row in enumerate(rows)).encode()
    path = cache_folder() / "tables" / f"{hashlib.sha256(data).hexdigest()[:16]}.jsonl"
    if not path.is_file():
        with replacing(path) as file:
            file.write(data)
    note(f"the table of {count(len(rows), 'row')} is stored as {path}")
    return str(path)


def _line(row: Mapping[str, Any], number: int) -> str:
    """Write a row as JSON; raise DataError, with row and column, for values unfit for a table."""
    cells = []
    for name, value in row.items():
        value = None if is_missing(value) else value
        if isinstance(value, PathLike | bytes):
            raise DataError(_no_cell(name, number, type(value).__name__))
        value = plain(value)
        if isinstance(value, float) and math.isinf(value):
            value = str(value)
        try:
            cell = json.dumps(value, ensure_ascii=False, default=as_cell)
        except TypeError as error:
            raise DataError(_no_cell(name, number, str(error))) from None
        if problem := surrogate_problem(cell):
            raise DataError(f"row {number} of the table: {name!r} {problem}")
        cells.append(f"{json.dumps(str(name), ensure_ascii=False)}: {cell}")
    return f"{{{', '.join(cells)}}}"


def _no_cell(name: str, number: int, kind: str) -> str:
    return (
        f"row {number} of the table: {name!r} is {kind}: make texts or numbers of the column "
        "(bytes by str.decode), or leave it out"
    )


def as_path(target: PathText) -> Path:
    """Return the path of a run, checkpoint or folder; raise as ``as_text`` does."""
    return Path(as_text(target, "a run, a checkpoint or a folder"))


def as_paths(targets: PathText | Sequence[PathText]) -> list[Path]:
    """Return the paths of one run, checkpoint or folder, or of several."""
    return [as_path(target) for target in _listed(targets, "run")]


def as_sources(source: PathText | Sequence[PathText]) -> list[str]:
    """Return the names of one recipe, study or run, or of several."""
    return [as_text(name, "a recipe") for name in _listed(source, "recipe")]


def _listed(targets: PathText | Sequence[PathText], what: str) -> Sequence[PathText]:
    listed = targets if isinstance(targets, list | tuple) else [targets]
    if not listed:
        raise ConfigError(f"no {what} is given: name one, or several in a list")
    return listed  # type: ignore[return-value]


@contextmanager
def starting(*runs: PathText) -> Iterator[None]:
    """Show that PyTorch starts, to load the models of some paths.

    Raises CheckpointError, before that, where a path is no run, checkpoint or model folder.
    """
    from sublayer.config.load import ENGINE_FILE, check_model_path

    for run in runs:
        # A folder for an engine is checked as it is opened.
        if not isinstance(run, TextModel) and not (Path(run) / ENGINE_FILE).is_file():
            check_model_path(Path(run))
    with stage("starting PyTorch"):
        yield


def loaded(
    run: PathText,
    device: str | None,
    dtype: "torch.dtype | None" = None,
    average: int | None = None,
    engine: str | None = None,
) -> TextModel:
    """Load the model of a path, by default on the best device; return a loaded model.

    With an ``engine`` it is the model that the engine computes. Raises ConfigError for a device, a
    dtype or an average of a loaded model, a dtype with an engine, and as loading does.
    """
    if engine is not None:
        from sublayer.interop.engines import load_engine

        if dtype is not None:
            raise ConfigError(
                f"{str(dtype).removeprefix('torch.')} has no effect with --engine {engine}, which "
                f"computes as it was exported: leave it out, and give export --dtype"
            )
        return load_engine(
            run if isinstance(run, TextModel) else Path(run), engine, device, average
        )
    from sublayer.loading import load
    from sublayer.system.machine import choose_device

    if not isinstance(run, TextModel):
        return load(Path(run), device=choose_device(device), dtype=dtype, average=average)
    mark_used(used_plugins(run.model.config))
    has_other_type = dtype not in (None, next(run.model.parameters()).dtype)
    if device is not None or average is not None or has_other_type:
        raise ConfigError(
            "the model is already loaded, with its device, dtype and average: leave these out"
        )
    return run
