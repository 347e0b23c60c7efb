"""Runs and models: trained, opened, loaded, built, listed, imported, exported, reported."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sublayer.api import inspecting, scoring, writing
from sublayer.api.arguments import (
    Average,
    Device,
    Model,
    Plugins,
    Recipe,
    Settings,
    TableFiles,
    as_path,
    starting,
)
from sublayer.api.results import Found, draw_curves, figure, html_table, page, prose
from sublayer.config.plugins import load_plugins
from sublayer.config.table import MOST_STEPS
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import read_json_object
from sublayer.files.storage import as_typed, check_paths, describe_absence, resolved
from sublayer.interop.exits import ALIASES, EXITS, HubModel
from sublayer.interop.foreign_config import CLASSES
from sublayer.numbers import count, enumerate_names, format_quantity
from sublayer.options import Argument, Option, PathText, as_text, checked, options_of
from sublayer.plot import look
from sublayer.system.processes import is_first_launched
from sublayer.system.terminal import hanging, note, searchable, stage
from sublayer.text_model import TextModel
from sublayer.values import as_json_values, show

if TYPE_CHECKING:
    import torch

    from sublayer.config.recipe import ResolvedRecipe

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Pretrained(TextModel):
    """A model with its tokenizer and its task, called as its module, with functions as methods.

    ``model`` is the PyTorch module, for ``torch.compile`` and the like. Its attributes are
    available here, too: ``config``, ``logits``, ``state_dict()``, ``parameters()``, ``to``,
    ``eval`` ... Methods are the functions of :mod:`sublayer` by their names; any function that
    loads a model takes this one in place of a path.
    """

    path: Path | None = None
    """The path that it was loaded from; None: built from a recipe."""

    generate = writing.generate
    fill = writing.fill
    translate = writing.translate
    predict = writing.predict
    embed = writing.embed

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Compute the outputs of the module."""
        return self.model(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "model":
            raise AttributeError(name)
        return getattr(self.model, name)

    def __fspath__(self) -> str:
        if self.path is None:
            raise ConfigError(
                "the model was built from a recipe and has no folder: train it, or name a run"
            )
        return str(self.path)

    def __repr__(self) -> str:
        return repr(self.model)


def load(
    path: str | PathLike[str],
    device: "str | torch.device" = "cpu",
    dtype: "torch.dtype | None" = None,
    *,
    average: int | None = None,
    plugins: Sequence[str | PathLike[str]] = (),
) -> Pretrained:
    """Load a model in evaluation mode, with its ``.config``, ``.tokenizer`` and ``.task``.

    ``path`` is a run, a checkpoint, or a model folder (as training saves it and ``sublayer import``
    writes it). A run gives its final model, or else the checkpoint of its best evaluation, or else
    the newest complete one. ``hub:OWNER/NAME`` or ``hub:OWNER/NAME@REVISION`` is a model of
    transformers on the Hugging Face hub; its folder, ``.path``, is named by the commit. ``average``
    instead gives the mean of that number of a run's newest checkpoints (Vaswani et al. 2017, sec.
    6.1). ``dtype`` converts the weights; None: float32, unless all were saved as float64.
    ``.tokenizer`` is None if the folder has none; ``predict`` answers rows if the model was
    fine-tuned, ``fill`` fills masks and ``embed`` gives vectors of texts. ``plugins`` name the
    files or packages with the model's rows of your own.

    Raises CheckpointError if there is no such model, or it is damaged, or of another format;
    ConfigError for a missing device, or too few checkpoints.
    """
    from sublayer.loading import load as load_model

    load_plugins(plugins)
    folder = as_text(path)
    if (hub := HubModel.parse(folder)) is not None:
        if average is not None:
            raise ConfigError(f"average has no effect with {folder}: leave it out")
        from sublayer.interop.folder import fetch_model
        from sublayer.interop.huggingface import read_huggingface
        from sublayer.system.machine import check_device

        place, source = check_device(device), fetch_model(hub)
        found = read_huggingface(source)
        found.model.to(device=place, dtype=dtype)
    else:
        source = Path(folder)
        found = load_model(folder, device=device, dtype=dtype, average=average)
    return Pretrained(found.model, found.tokenizer, found.task, source, generation=found.generation)


def from_recipe(
    source: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    plugins: Sequence[str | PathLike[str]] = (),
) -> Pretrained:
    """Build the untrained model of a recipe, in evaluation mode, with ``.tokenizer``.

    Prepares the recipe's data, for the tokenizer. With ``init.run`` the model has the starting
    weights of training. ``plugins`` are as in ``load``. Raises ConfigError, DataError and
    CheckpointError.
    """
    from sublayer.config.load import load_recipe
    from sublayer.config.resolve import resolve_model
    from sublayer.model.transformer import build
    from sublayer.objective.base import family_of
    from sublayer.runs.folder import check_start
    from sublayer.runs.session import prepare_data
    from sublayer.training import warm_start

    load_plugins(plugins)
    loaded = load_recipe(source, overrides or {})
    check_start(loaded)
    for line in loaded.notes:
        _log.warning(line)
    recipe = loaded.recipe
    start = warm_start.StartModel(recipe.init)
    data = prepare_data(recipe, pretrained=start)
    family = family_of(recipe.objective)
    config = resolve_model(
        family.shape_model(recipe, data),
        vocab_size=data.tokenizer.vocab_size,
        context=recipe.data.context,
    )
    model = build(config, seed=recipe.train.seed).eval()
    built = Pretrained(model, data.tokenizer, family.describe_task(recipe, data))
    for line in start.copy_into(built):
        _log.warning(line)
    return built


class Run(dict[str, Any]):
    """A run: a dict of its record, empty before its end, with methods on its model.

    It serves wherever a run's path does. Methods are the functions of :mod:`sublayer` by their
    names, with the same arguments, numbers and errors.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        """Its folder."""
        from sublayer.files.checkpoints import read_record

        super().__init__(read_record(self.path) or {})

    evaluate = scoring.evaluate
    generate = writing.generate
    fill = writing.fill
    translate = writing.translate
    predict = writing.predict
    embed = writing.embed
    inspect_layers = inspecting.inspect_layers
    inspect_splitting = inspecting.inspect_splitting
    inspect_paths = inspecting.inspect_paths

    def __fspath__(self) -> str:
        return fspath(self.path)

    def to_dict(self) -> dict[str, Any]:
        """Return the record, as in ``sublayer train --json``."""
        record: dict[str, Any] = as_json_values(dict(self))
        return record

    @property
    def is_finished(self) -> bool:
        """True if it was trained to its end, and has a record."""
        return bool(self)

    @property
    def recipe(self) -> "ResolvedRecipe":
        """Its recipe as it ran, with all derived values."""
        from sublayer.config.load import read_run_recipe

        return read_run_recipe(self.path / "recipe.toml")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Measurements of training, in order: ``kind`` (train or valid), ``step``, ``loss`` ..."""
        from sublayer.training.log import METRICS, read_metrics

        return read_metrics(self.path / METRICS)

    @property
    def curve(self) -> list[dict[str, Any]]:
        """The evaluations during training, in order: ``step``, ``tokens``, ``seconds``, metrics."""
        return [line for line in self.metrics if line["kind"] == "valid"]

    def load(self, device: str = "cpu") -> Pretrained:
        """Load its model, in evaluation mode, as ``sublayer.load`` does."""
        return load(self.path, device=device)

    def __repr__(self) -> str:
        if not self.is_finished:
            return f"{self.path} is not finished: continue it with sublayer.train(run, resume=True)"
        from sublayer.objective.base import family_of

        recipe, valid = self.recipe, self["valid"]
        family = family_of(recipe.objective)
        trained = f"{count(self['step'], 'step')}, {count(self['tokens'], 'token')}"
        speed = f"{self['tokens_per_s']:,.0f} tokens/s"
        lines = [f"trained {trained} in {self['seconds']:.0f} s ({speed})"]
        if self.get("stopped_early"):
            lines.append(
                f"ended early, of {count(recipe.train.steps or 0, 'step')}: train.patience"
            )
        if self.get("peak_memory_bytes") is not None:
            memory = format_quantity(self["peak_memory_bytes"], "B")
            lines.append(
                f"memory: {memory} at most, above the process's memory before the run; on a CPU "
                "including code loaded during the run, which plan leaves out"
            )
        if line := (self.get("minutes") or {}).get("note"):
            lines.append(line)
        if "loss" in valid:
            which = "the last" if recipe.train.best_by == "last" else "best"
            lines.append(
                f"valid: {family.describe(valid)} ({which} of the evaluations during "
                f"training, at step {valid['step']:,})"
            )
        lines += [f"watched: {line}" for line in family.describe_watched(valid)]
        if "loss" in valid:
            lines += last_losses(self.metrics, valid["loss"])
        wrapped = [hanging(line, "", "  ") for line in lines]
        return searchable("\n".join([*wrapped, f"model and record: {as_typed(str(self.path))}"]))

    def _repr_html_(self) -> str:
        curves = []
        for index, kind in enumerate(("train", "valid"), start=1):
            lines = [line for line in self.metrics if line["kind"] == kind and "loss" in line]
            steps, losses = ([line[name] for line in lines] for name in ("step", "loss"))
            marker = "" if index == 1 else "o"
            style = {"label": kind, "color": look(index).placeholder, "marker": marker}
            curves.append((steps, losses, style))
        parts = [prose(str(self.get("title") or self.path)), prose(repr(self))]
        if self.curve:
            title = f"Loss of {self.path.name} by step"
            parts.append(figure(draw_curves(title, "loss in nats", curves)))
        return page(*parts)


def last_losses(lines: Sequence[Mapping[str, Any]], best: float) -> list[str]:
    """Describe the end of training: the last losses, and the gap of validation to training loss.

    ``lines`` are the measures of training, ``best`` is the lowest validation loss.
    """
    from sublayer.training.log import mean_losses

    trained = [mean for _, mean in mean_losses(lines)]
    losses = [line["loss"] for line in lines if line["kind"] == "valid" and "loss" in line]
    if not trained or not losses:
        return []
    valid, gap = losses[-1], losses[-1] - trained[-1]
    worse = f", {valid - best:.4f} above the best" if valid > best else ""
    return [
        f"at the end: valid {valid:.4f}{worse}; train {trained[-1]:.4f} nats over the steps since "
        f"the previous evaluation; valid is {abs(gap):.4f} {'above' if gap >= 0 else 'below'} it"
    ]


def open_run(path: str | PathLike[str], *, plugins: Sequence[str | PathLike[str]] = ()) -> Run:
    """Open a run by its folder, finished or not; ``plugins`` are as in ``load``.

    Raises ConfigError if the folder holds none, CheckpointError if its record is damaged.
    """
    load_plugins(plugins)
    folder = Path(as_text(path))
    if not (folder / "recipe.toml").is_file():
        raise ConfigError(f"{folder} holds no run: it has no recipe.toml")
    return Run(folder)


@checked
def train(
    source: Recipe,
    overrides: Settings = None,
    *,
    out: Annotated[
        PathText | None,
        Option("The run's folder. Default: runs/RECIPE, then runs/RECIPE.2, ..."),
    ] = None,
    resume: Annotated[
        bool,
        Option(
            "Resume the run in --out (default: RECIPE if it is a run, else the last) from its "
            "newest complete checkpoint."
        ),
    ] = False,
    branch_decay: Annotated[
        float | None,
        Option(
            "Train the decay of RECIPE, a run with a constant rate, as a new run from one of its "
            "kept checkpoints on: the rate falls linearly to 0 over this number of steps or, below "
            "1, this share of the new run's steps.",
            metavar="STEPS|SHARE",
            least=1e-6,
            most=MOST_STEPS,
        ),
    ] = None,
    from_step: Annotated[
        int | None,
        Option(
            "The step of that checkpoint. Default: the last one at the constant rate.",
            needs="branch_decay",
            least=1,
            most=MOST_STEPS,
        ),
    ] = None,
    device: Device = None,
    plugins: Plugins = (),
) -> Run:
    """Train a recipe, and return the run.

    ``overrides`` maps fields to values, such as ``{"model.d_ff": 512}``. Resuming a finished run
    returns it, unless a longer length is given. Raises the errors of :mod:`sublayer.errors`.
    """
    from sublayer.config.load import absolute_paths, load_recipe
    from sublayer.data.corpora import check_texts
    from sublayer.runs.folder import RunFolder, check_new, chosen_folder

    loaded = load_recipe(as_text(source, "a recipe"), overrides or {})
    if branch_decay is not None:
        if resume or overrides or loaded.run is None:
            raise ConfigError(
                "--branch-decay takes a run, without settings, and begins another: leave out "
                "--resume and settings, and name the folder of the run"
            )
        loaded = replace(loaded, name=f"{loaded.name}-decay")
    if not resume:
        check_texts(absolute_paths(loaded.recipe).data)
    folder = chosen_folder(None if out is None else Path(out), loaded, resume=resume)
    if not resume:
        check_new(folder)
    with stage("starting PyTorch"):
        from sublayer.runs.resume import plan_branch
        from sublayer.runs.run import begin_branch, train_run
        from sublayer.training.world import leave_world

    try:
        if branch_decay is not None:
            assert loaded.run is not None, "a branch has a run"
            begin_branch(plan_branch(loaded.run, branch_decay, from_step), folder, device)
            loaded, resume = load_recipe(folder), True
        before = RunFolder(folder).record() if resume else None
        record = train_run(loaded, folder, resume=resume, device=device)
    finally:
        leave_world()
    if record == before and is_first_launched():
        if record.get("stopped_early"):
            note(f"{folder} ended early by train.patience: nothing is left to train")
        else:
            longer = f"train.steps={2 * record['step']}"
            note(f"{folder} is finished: to continue it, give a longer length, such as {longer}")
    return Run(folder)


@checked
def list_runs(
    *folders: PathText,
    arms: Annotated[bool, Option("Also list the single runs of comparisons.")] = False,
    plugins: Plugins = (),
) -> Found:
    """List the runs, comparisons and imported models below folders, by default ``runs``.

    The newest come first, each in ``["runs"]`` of the result; ``arms`` adds the single runs of
    comparisons. Raises ConfigError for a missing folder.
    """
    from sublayer.reporting.listing import find_rows, render_rows

    paths = [as_path(folder) for folder in folders] or [Path("runs")]
    is_missing = not folders and not paths[0].exists()
    rows = [] if is_missing else find_rows(paths, with_arms=arms)
    where = " and ".join(map(str, paths))
    text = render_rows(rows) if rows else f"no runs in {where}; `sublayer train gpt` trains one"
    cells = [[row.folder, row.kind, row.state, row.headline or row.title] for row in rows]
    html = page(html_table(["folder", "kind", "state", "headline"], cells))
    return Found({"runs": [asdict(row) for row in rows]}, text, html)


@checked
def report(
    folder: Annotated[
        PathText,
        Argument(
            "The folder of a run or of a comparison.",
            metavar="RUN|STUDY",
            complete="runs_and_comparisons",
        ),
    ],
    out: Annotated[
        PathText | None,
        Option("The file to write. Default: report.html in the folder.", metavar="FILE"),
    ] = None,
    *,
    tables: TableFiles = (),
    plugins: Plugins = (),
) -> Path:
    """Rewrite the HTML report of a run or a comparison, and return its absolute path.

    ``out`` is its file, by default ``report.html`` in the folder. Raises ConfigError if the folder
    holds neither, and for a file that is not a report of it.
    """
    path, files = reported_folder(folder), [as_path(file) for file in tables]
    from sublayer.reporting.files import report_again

    return report_again(path, None if out is None else as_path(out), files)


def reported_folder(folder: PathText) -> Path:
    """Return the path of a folder to report; raise ConfigError where there is none."""
    path = as_path(folder)
    if not path.is_dir():
        fault = f"{path} is a file" if path.is_file() else describe_absence(path)
        raise ConfigError(f"{fault}: name the folder of a run or of a comparison")
    return path


@checked
def import_model(
    system: Annotated[
        Literal["huggingface", "gpt1-numpy", "fairseq"],
        Argument(
            "Format of the model: huggingface for transformers' "
            f"{enumerate_names([row.title for row in CLASSES])}; gpt1-numpy for the arrays of "
            "GPT-1's release; fairseq for its Transformer, Macaron Net's translators and its BERT.",
            metavar="SYSTEM",
        ),
    ],
    path: Annotated[
        PathText,
        Argument(
            "The model's folder; for huggingface also a name on the hub, to download, as in "
            "openai-community/gpt2 or hub:openai-community/gpt2@REVISION; for fairseq also a "
            "checkpoint file.",
            metavar="PATH",
        ),
    ],
    *,
    out: Annotated[
        PathText | None, Option("The new model's folder. Default: runs/NAME, then runs/NAME.2, ...")
    ] = None,
) -> Found:
    """Import a model of another system, with its tokenizer if it has one, into a new folder.

    The result has the folder (``model``) and the ``certificate`` of the comparison with the
    original. No code that a file names is run. Raises CheckpointError and DataError for unreadable
    files, ConfigError for a model that no recipe describes.
    """
    source = Path(path)
    hub = HubModel.parse(str(source))
    if system != "huggingface" and not source.exists():  # a name on the hub is no path
        raise ConfigError(f"{describe_absence(source)}: name the model's folder or file")
    if out is not None:
        check_paths(source, Path(out))
    with stage("starting PyTorch"):
        from sublayer.interop.fairseq import import_fairseq
        from sublayer.interop.gpt import import_gpt1
        from sublayer.interop.huggingface import import_huggingface
        from sublayer.runs.folder import free_folder

    readers = {
        "huggingface": import_huggingface,
        "gpt1-numpy": import_gpt1,
        "fairseq": import_fairseq,
    }
    name = resolved(source).name.removesuffix(".pt") if hub is None else Path(hub.name).name
    folder = free_folder(name) if out is None else Path(out)
    with stage(f"reading {path}"):
        certificate = readers[system](source, folder)
    imported = {
        "system": system,
        "model": str(folder),
        "kind": read_json_object(folder / "config.json", CheckpointError)["model"]["kind"],
        "has_tokenizer": (folder / "tokenizer.json").is_file(),
        "certificate": certificate,
    }
    from sublayer.interop.certificate import describe_ids

    lines = _described(imported, "model")
    if (ids := describe_ids(certificate)) is not None:
        lines.append(f"tokenizer: {ids}")
    lines += [f"{name}: {certificate[name]}" for name in _NOTED if name in certificate]
    if "left_out" in certificate:
        left_out = certificate["left_out"]
        parts = [f"{count(left_out['optimizer_tensors'], 'tensor')} of an optimizer"]
        reasons = {"no_weights": "no weights", "copies": "equal to the embedding matrix"}
        for name, reason in reasons.items():
            if left_out.get(name):
                parts.append(f"{', '.join(left_out[name])} ({reason})")
        lines.append(f"left out: {'; '.join(parts)}")
    return Found(imported, "\n".join(lines))


@checked
def export(
    run: Model,
    out: Annotated[
        PathText | None,
        Argument("The new folder to write; none with --to hub:OWNER/NAME.", metavar="DIR"),
    ] = None,
    *,
    to: Annotated[
        Literal["transformers", "huggingface", "gguf", "onnx", "safetensors", "ctranslate2"] | str,
        Option(
            f"The format: {'; '.join(f'{name}, {row.title}' for name, row in EXITS.items())}. "
            "huggingface is another name of transformers; hub:OWNER/NAME uploads that format to "
            "the Hugging Face hub, hub:OWNER/NAME@BRANCH to a branch.",
            metavar="FORMAT",
        ),
    ] = "transformers",
    class_name: Annotated[
        str | None,
        Option(
            "The class of transformers, in place of the first that can represent the model.",
            flag="--class",
            metavar="NAME",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        Option(
            "The type of the weights: for gguf float32, float16, bfloat16 or q8_0; for ctranslate2 "
            "float32, int8, int16, float16 or bfloat16. Default: float32.",
            metavar="TYPE",
        ),
    ] = None,
    license: Annotated[
        str | None,
        Option("Licence to state on the model card, by its name on the Hugging Face hub."),
    ] = None,
    average: Average = None,
    plugins: Plugins = (),
) -> Found:
    """Write a model into a new folder so that another system loads it.

    The folder has a model card, ``README.md``. The result has the ``class`` that loads it and the
    ``certificate`` of the comparison with the model. Raises ConfigError, with the field, for a
    model that the format cannot represent, and for an option that the format does not take.
    """
    hub = HubModel.parse(to)
    name = "transformers" if hub else ALIASES.get(to, to)
    if name not in EXITS:
        known = enumerate_names([*EXITS, *ALIASES, "hub:OWNER/NAME"], "or")
        raise ConfigError(f"--to {show(to)} is not accepted: give {known}")
    if (out is None) != (hub is not None):
        given = (
            "is missing: name the new folder" if out is None else f"has no effect with --to {to}"
        )
        raise ConfigError(f"DIR {given}")
    if out is not None and not isinstance(run, TextModel):
        check_paths(Path(run), Path(out))
    form = EXITS[name]
    of_formats = {"class_name": class_name, "dtype": dtype}
    options = {name: value for name, value in of_formats.items() if value is not None}
    for name in options.keys() - form.options:
        flag = options_of(export)[name][1].named(name)
        raise ConfigError(f"{flag} has no effect with --to {to}: leave it out")
    with starting(run):
        from sublayer.interop.card import write_card
        from sublayer.interop.folder import upload_model
        from sublayer.loading import load
        from sublayer.model.layers import load_class

        write = load_class(form.writer)
    model = load(Path(run), average=average)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "exported" if out is None else Path(out)
        with stage(f"writing {to if out is None else out}"):
            exported = write(model, folder, **options)
            write_card(
                folder,
                model,
                exported,
                name=folder.resolve().name if hub is None else hub.name,
                library=name,
                source=Path(run),
                license_name=license,
                is_average=average is not None,
            )
            target, deleted = (folder, []) if hub is None else upload_model(folder, hub)
    found = {
        "model": str(target),
        "class": exported.class_name,
        "has_tokenizer": exported.has_tokenizer,
        "certificate": exported.certificate,
    }
    lines = [*_described(found, "exported"), *exported.lines]
    if deleted:
        lines.append(f"deleted, of an earlier export: {', '.join(deleted)}")
    following = exported.following
    if hub is not None:
        following = following.replace(repr(str(folder)), repr(hub.name))
    return Found(found, "\n".join([*lines, f"next: {following}"]))


def _described(result: Mapping[str, Any], heading: str) -> list[str]:
    """Return the lines on a model, its tokenizer and certificate, for import and export."""
    from sublayer.interop.certificate import describe

    certificate, has_tokenizer = result["certificate"], result["has_tokenizer"]
    tokenizer = "with its tokenizer" if has_tokenizer else "without a tokenizer"
    why = certificate.get("tokenizer")
    if why and (heading == "exported" or not has_tokenizer):
        tokenizer += f": {why}"
    return [f"{heading}: {result['model']}, {tokenizer}", describe(certificate)]


_NOTED = ("source", "weights", "ignored", "kept")
