"""Runs and loaded models; folders listed, reports written."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sublayer.api import answering, inspecting, scoring, writing
from sublayer.api.arguments import as_path, as_text
from sublayer.api.results import Result, Shown, draw_run, figure, html_table, number, page, prose
from sublayer.api.scoring import Scores
from sublayer.api.writing import Completions, Fillings, Texts, Translations
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.options import Argument, Option, PathText, checked
from sublayer.text_model import TextModel
from sublayer.values import as_json_values

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from sublayer.api.scoring import SplitName
    from sublayer.config.recipe import ResolvedRecipe
    from sublayer.model.output import Filling
    from sublayer.tasks.predicting import NamedPrediction


_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Pretrained(TextModel):
    """A model with its tokenizer and its task, called as its module is, and asked by methods.

    ``model`` is the module of PyTorch, for what takes one, such as ``torch.compile``. Its
    attributes are found here too: ``config``, ``logits``, ``state_dict()``, ``parameters()``,
    ``to``, ``eval`` ... Given to ``sublayer.generate`` or ``sublayer.translate`` in place of a
    path, it is not loaded again.
    """

    path: Path | None = None
    """The path that it was loaded from; None: it was built from a recipe."""

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
                "the model was built from a recipe, and has no folder: train it, or name a run"
            )
        return str(self.path)

    def __repr__(self) -> str:
        return repr(self.model)

    def predict(
        self, rows: Iterable[Any], *, task: str | None = None, batch: int | None = None
    ) -> "list[NamedPrediction]":
        """Answer rows: texts, tuples of texts, or mappings by the names of the task's fields.

        Of a choice the choices stand behind the texts of a tuple, and as ``choices`` in a mapping.
        A row with an empty text is not answered. ``task`` names one of several that the model
        answers; ``batch`` rows are computed at a time.

        Raises ConfigError where the model answers no task, and DataError for a row that is none of
        these.
        """
        from sublayer.objective.supervised.answering import predict_rows

        return predict_rows(self, rows, task=task, batch=batch)

    def fill(self, text: str, n: int = 5) -> "list[list[Filling]]":
        """Return the ``n`` likeliest fillings of each mask of a text, with their probabilities.

        A mask is ``[MASK]``, ``<mask>`` or, of a T5, ``<extra_id_0>`` and so on, too. Raises as
        ``sublayer.decode.gaps.fill_masks`` does.
        """
        from sublayer.decode.gaps import fill_masks

        return fill_masks(self, text, n)

    def embed(
        self,
        texts: Iterable[str],
        *,
        pool: Literal["mean", "first", "last"] = "mean",
        normalize: bool = False,
        batch: int | None = None,
    ) -> "NDArray[np.float32]":
        """Return a vector of each text, ``[N, D]``: its final hidden states, pooled.

        Cut or empty ones are reported. Raises as ``sublayer.evaluation.vectors.embed_texts`` does.
        """
        from sublayer.evaluation.vectors import embed_all

        return embed_all(self, texts, pool=pool, normalize=normalize, batch=batch)

    def generate(self, prompt: str, **options: Any) -> Texts | Completions:
        """Continue a prompt by a decoder, or complete one with gaps: ``sublayer.generate``."""
        return writing.generate(self, prompt, **options)

    def translate(self, lines: Iterable[str], **options: Any) -> Translations:
        """Translate lines: ``sublayer.translate``."""
        return writing.translate(self, lines, **options)


def load(
    path: str | PathLike[str],
    device: "str | torch.device" = "cpu",
    dtype: "torch.dtype | None" = None,
    *,
    average: int | None = None,
) -> Pretrained:
    """Load a model in evaluation mode, with its ``.config``, ``.tokenizer`` and ``.task``.

    ``path`` is a run, a checkpoint, or a model folder (as training saves it and ``sublayer import``
    writes it). Of a run it is the final model, or, before there is one, the checkpoint of the best
    evaluation, or else the newest whole one. ``average`` gives the mean of a run's newest
    checkpoints, so many, instead (Vaswani et al. 2017, sec. 6.1). ``dtype`` converts the weights;
    None makes them float32, but where all were saved as float64. ``.tokenizer`` is None where the
    folder has none; ``predict`` answers rows where the model was fine-tuned, ``fill`` fills masks
    and ``embed`` gives vectors of texts.

    Raises CheckpointError where there is no such model, or it is damaged, or of another format;
    ConfigError for a device that is not there, or fewer checkpoints than are asked for.
    """
    from sublayer.loading import load as load_model

    folder = as_text(path)
    text_model = load_model(folder, device=device, dtype=dtype, average=average)
    return Pretrained(text_model.model, text_model.tokenizer, text_model.task, Path(folder))


def from_recipe(source: str | Path, overrides: Mapping[str, Any] | None = None) -> Pretrained:
    """Build the untrained model of a recipe, in evaluation mode, with ``.tokenizer``.

    Prepares the recipe's data, for the tokenizer. With ``init.run`` the model has the weights that
    training would start from. Raises ConfigError, DataError and CheckpointError.
    """
    from sublayer.config.load import load_recipe
    from sublayer.config.resolve_model import resolve_model
    from sublayer.model.build import build
    from sublayer.objective.families import family_of
    from sublayer.runs.session import prepare_data
    from sublayer.runs.start_check import check_start
    from sublayer.training import warm_start

    loaded = load_recipe(source, overrides or {})
    check_start(loaded)
    for note in loaded.notes:
        _log.warning(note)
    recipe = loaded.recipe
    start = warm_start.Pretrained(recipe.init)
    data = prepare_data(recipe, pretrained=start)
    family = family_of(recipe.objective)
    config = resolve_model(
        family.shape_model(recipe, data),
        vocab_size=data.tokenizer.vocab_size,
        context=recipe.data.context,
    )
    model = build(config, seed=recipe.train.seed).eval()
    built = Pretrained(model, data.tokenizer, family.describe_task(recipe, data))
    for note in warm_start.start_from(built, start):
        _log.warning(note)
    return built


class Run(dict[str, Any]):
    """A run: a dict of its record, empty before it has ended, with methods on its model.

    Wherever a path of a run is taken, it may be given itself. Each method is the function of
    :mod:`sublayer` of its name on this run, with the same arguments, numbers and errors.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        """Its folder."""
        from sublayer.files.checkpoints import read_record

        super().__init__(read_record(self.path) or {})

    def __fspath__(self) -> str:
        return fspath(self.path)

    def to_dict(self) -> dict[str, Any]:
        """Return the record, as ``sublayer train --json`` prints it."""
        record: dict[str, Any] = as_json_values(dict(self))
        return record

    @property
    def is_finished(self) -> bool:
        """True where it was trained to its end, and has a record."""
        return bool(self)

    @property
    def recipe(self) -> "ResolvedRecipe":
        """Its recipe as it ran, every derived value filled in."""
        from sublayer.config.run_recipe import read_run_recipe

        return read_run_recipe(self.path / "recipe.toml")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Measures of training, in order: ``kind`` (train or valid), ``step``, ``loss`` ..."""
        from sublayer.training.metrics import METRICS, read_metrics

        return read_metrics(self.path / METRICS)

    @property
    def curve(self) -> list[dict[str, Any]]:
        """The evaluations during training, in order: ``step``, ``tokens``, ``seconds``, metrics."""
        return [line for line in self.metrics if line["kind"] == "valid"]

    def load(self, device: str = "cpu") -> Pretrained:
        """Load its model, in evaluation mode, as ``sublayer.load`` does."""
        return load(self.path, device=device)

    def evaluate(self, split: "SplitName | None" = None, **options: Any) -> Scores:
        """Score the model on a text: ``sublayer.evaluate``."""
        return scoring.evaluate(self, split, **options)

    def generate(self, prompt: str, **options: Any) -> Texts | Completions:
        """Continue a prompt by a decoder: ``sublayer.generate``."""
        return writing.generate(self, prompt, **options)

    def fill(self, text: str, **options: Any) -> Completions | Fillings:
        """Fill the masks of a text, or its gaps by an encoder-decoder: ``sublayer.fill``."""
        return writing.fill(self, text, **options)

    def embed(self, texts: Iterable[str], **options: Any) -> "NDArray[np.float32]":
        """Give a vector of each text: ``sublayer.embed``."""
        return answering.embed(self, texts, **options)

    def translate(self, lines: Iterable[str], **options: Any) -> Translations:
        """Translate lines: ``sublayer.translate``."""
        return writing.translate(self, lines, **options)

    def predict(self, rows: Iterable[Any], **options: Any) -> "list[NamedPrediction]":
        """Answer rows by a fine-tuned model: ``sublayer.predict``."""
        return answering.predict(self, rows, **options)

    def inspect_layers(self, **options: Any) -> Result:
        """Measure the effect of each block on a text: ``sublayer.inspect_layers``."""
        return inspecting.inspect_layers(self, **options)

    def inspect_splitting(self, **options: Any) -> Result:
        """Measure how layers follow their flows: ``sublayer.inspect_splitting``."""
        return inspecting.inspect_splitting(self, **options)

    def inspect_paths(self, **options: Any) -> Result:
        """Follow tokens through sub-layers: ``sublayer.inspect_paths``."""
        return inspecting.inspect_paths(self, **options)

    def __repr__(self) -> str:
        if not self.is_finished:
            return f"{self.path}: not finished: sublayer.train(run, resume=True) goes on"
        lines = [f"{self.path}: {self['title']}" if self["title"] else str(self.path)]
        lines += [f"  {name:<12} {value}" for name, value in self._facts()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        lines = self.metrics
        parts = [prose(str(self.path)), html_table(["", ""], self._facts())]
        if not self.is_finished:
            parts = [prose(repr(self))]
        if any(line["kind"] == "valid" for line in lines):
            parts.append(figure(draw_run(self.path.name, lines)))
        return page(*parts)

    def _facts(self) -> list[tuple[str, str]]:
        if not self.is_finished:
            return []
        scores = ", ".join(
            f"{name} {number(value)}" for name, value in self["valid"].items() if name != "step"
        )
        parameters = self.get("parameters") or {}
        facts = [
            ("valid", f"{scores} (step {self['valid']['step']:,})"),
            ("trained", f"{count(self['step'], 'step')}, {count(self['tokens'], 'token')}"),
            ("time", f"{self['seconds']:,.1f} s, {self['tokens_per_s']:,.0f} tokens/s"),
        ]
        if "total" in parameters:
            facts.insert(1, ("parameters", f"{parameters['total']:,}"))
        return facts


def open_run(path: str | PathLike[str]) -> Run:
    """Open a run by its folder, finished or not.

    Raises ConfigError where the folder holds none, CheckpointError where its record is damaged.
    """
    folder = Path(as_text(path))
    if not (folder / "recipe.toml").is_file():
        raise ConfigError(f"{folder} holds no run: it has no recipe.toml")
    return Run(folder)


class Rows(Result):
    """Rows of runs, comparisons and imported models; ``rows["runs"]`` are the rows."""

    def _repr_html_(self) -> str:
        rows = [
            [row["folder"], row["kind"], row["state"], row["headline"] or row["title"]]
            for row in self["runs"]
        ]
        return page(html_table(["folder", "kind", "state", "headline"], rows))


_RUNS = Path("runs")


@checked
def list_runs(
    *folders: PathText,
    arms: Annotated[bool, Option("Also list the single runs of comparisons.")] = False,
) -> Rows:
    """List the runs, comparisons and imported models below folders, ``runs`` where none is given.

    The newest come first; ``arms`` adds the single runs of comparisons. Raises ConfigError for a
    folder that is not there.
    """
    from sublayer.reporting.listing import find_rows, render_rows

    paths = [as_path(folder) for folder in folders] or [_RUNS]
    is_missing = not folders and not _RUNS.exists()
    rows = [] if is_missing else find_rows(paths, with_arms=arms)

    where = " and ".join(map(str, paths))
    text = render_rows(rows) if rows else f"no runs in {where}; `sublayer train gpt` makes one"
    return Rows({"runs": [asdict(row) for row in rows]}, Shown(text))


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
    tables: Annotated[
        Sequence[PathText],
        Option(
            "Also write every run of a comparison and the differences: .csv, .md or .tex. "
            "Repeatable.",
            flag="--table",
            metavar="FILE",
        ),
    ] = (),
) -> Path:
    """Write the HTML report of a run or a comparison again, and return its absolute path.

    ``out`` is its file, ``report.html`` in the folder unless given. Raises ConfigError where the
    folder holds neither, and for a file that is no report of it.
    """
    from sublayer.reporting.files import report_again

    files = [as_path(file) for file in tables]
    return report_again(as_path(folder), None if out is None else as_path(out), files)
