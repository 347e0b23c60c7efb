"""Scores of models: on texts, on tasks, by zero-shot probes, by lm-evaluation-harness."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from sublayer.api.arguments import (
    Average,
    BeamSearch,
    Device,
    Plugins,
    TextFormat,
    as_path,
    as_paths,
    as_source,
    loaded,
    starting,
)
from sublayer.api.results import Found, html_table, page, rows_of
from sublayer.config.objective import BleuTokenizer
from sublayer.config.table import LONGEST_WINDOW, MOST_ROWS
from sublayer.errors import ConfigError
from sublayer.numbers import DASH, format_plain
from sublayer.options import Option, PathText, checked
from sublayer.system.terminal import noted, paragraph, stage, terminal_width
from sublayer.tables import table
from sublayer.tasks.probes import PROBES, Settings, check_names

if TYPE_CHECKING:
    from sublayer.objective.base import Evaluation, Family
    from sublayer.runs.texts import ScoredText

_LEGEND = (
    "from 0, the score of guessing, to 1, the reference: the score of a contemporary model "
    "trained on the task"
)


class Scoring(TextFormat, BeamSearch, total=False):
    """The scored text and the scoring options, for one kind of model or several."""

    corpus: Annotated[
        str | None,
        Option(
            "Named corpus to score a split of instead; albert-intrinsic: the passages of --path.",
            metavar="NAME",
            complete="corpora",
        ),
    ]
    stride: Annotated[
        int | None,
        Option(
            "Tokens between windows: 1 scores each token with the full context, larger strides "
            "cost less. Default: half the context.",
            least=1,
            most=LONGEST_WINDOW,
        ),
    ]
    pairs: Annotated[
        int | None,
        Option(
            "Smallest number of text pairs that an encoder judges. Default: 2000.",
            least=1,
            most=1_000_000_000,
        ),
    ]
    lowercase: Annotated[
        bool,
        Option("Score a translator's text in lower case, on both sides.", default=False),
    ]
    compounds: Annotated[
        bool,
        Option(
            "Also score a translation with hyphens within words split off as tokens (WMT14), "
            "which raises BLEU.",
            default=False,
        ),
    ]
    bleu_tokenizer: Annotated[
        BleuTokenizer | None,
        Option(
            "sacreBLEU's tokenizer for a translator's BLEU. Default: the run's (see `sublayer "
            "fields objective.bleu_tokenizer`).",
        ),
    ]
    references: Annotated[
        Sequence[PathText],
        Option(
            "File with a further reference translation for each line of the split, a blank line "
            "for none. Repeatable.",
            metavar="FILE",
            default=(),
        ),
    ]
    against: Annotated[
        PathText | None,
        Option(
            "Run to test the difference against for significance: another fine-tuned run of the "
            "same tasks, another translator, or a file with a translation of each line.",
            metavar="RUN",
        ),
    ]
    answer: Annotated[
        Literal["greedy", "rank"] | None,
        Option(
            "Decoding of text-to-text answers: greedy, token by token, or the label with the "
            "likeliest text. Default: as the model was fine-tuned.",
        ),
    ]
    task: Annotated[
        str | None,
        Option(
            "Task to score an answering model on, such as an imported one; the model's labels "
            "are matched to the task's order by name. Default: its own task.",
            metavar="NAME",
        ),
    ]


@checked
def evaluate(
    run: PathText | Sequence[PathText],
    split: Annotated[
        Literal["valid", "test"] | None,
        Option(
            "Split of the run's own text, or of --corpus. Default: valid. For tasks, valid is "
            "the held-out part for selection, and test, the default, the published development "
            "set.",
        ),
    ] = None,
    *,
    path: Annotated[
        PathText | Any,
        Option(
            "Other text to score in full: a file, a folder or a glob; for tasks, another file or "
            "folder of labelled rows.",
            metavar="PATH",
        ),
    ] = None,
    average: Average = None,
    choose: Annotated[
        Literal["greedy"] | None,
        Option(
            "Selection of ensemble members among fine-tuned runs: added one by one while the "
            "score rises on examples held out of train, never on the scored split. Default: all "
            "runs are members.",
        ),
    ] = None,
    batch: Annotated[
        int | None,
        Option(
            "Windows computed at a time; affects speed and memory only.", least=1, most=MOST_ROWS
        ),
    ] = None,
    device: Device = None,
    plugins: Plugins = (),
    **options: Unpack[Scoring],
) -> Found:
    """Score a model on a split of its run's text (valid by default), or on another by ``path``.

    ``run`` is a run, a checkpoint or an imported folder; a list of fine-tuned runs is scored by
    averaged answers, and ``choose`` selects among them on a held-out part of train. ``stride`` is
    in tokens between windows; ``beam`` and the lengths are for translators, ``pairs`` for encoders
    that judge pairs. ``batch`` changes speed and memory only. Loss is in nats per token,
    ``bits_per_byte`` in bits. Raises ConfigError for options of other models, DataError and
    CheckpointError.
    """
    runs = as_paths(run)
    source = None if path is None else as_source(path)
    settings: dict[str, Any] = {
        name: value
        for name, value in {"path": source, **options}.items()
        if value is not None and value is not False and (value or name != "references")
    }
    if "references" in settings:
        settings["references"] = [Path(file) for file in settings["references"]]
    if "against" in settings:
        settings["against"] = Path(settings["against"])
    if choose is not None and len(runs) == 1:
        raise ConfigError("--choose needs several runs to choose from: name them")
    with starting(*runs):
        from sublayer.objective.supervised.answering import find_members
        from sublayer.objective.supervised.evaluation import evaluate_ensemble
        from sublayer.objective.supervised.scores import render_tasks
        from sublayer.runs.texts import ScoredText

    if len(runs) > 1:
        find_members(runs)
    texts = [
        ScoredText(
            path,
            split,
            source,
            options.get("corpus"),
            options.get("documents"),
            options.get("text_field"),
        )
        for path in runs
    ]
    prepared = [_prepare(text, settings, device, batch, average) for text in texts]
    family, request = prepared[0]
    with stage("scoring"):
        if len(runs) == 1:
            results = family.evaluate(request)
            shown = family.render(results)
        else:
            requests = [request for _, request in prepared]
            results = evaluate_ensemble(requests, chooses=choose is not None)
            shown = render_tasks(results)
    measures = {name: x for name, x in results.items() if isinstance(x, int | float)}
    return Found(results, shown, page(html_table(["measure", "value"], rows_of(measures))))


def _prepare(
    text: "ScoredText",
    settings: Mapping[str, Any],
    device: str | None,
    batch: int | None,
    average: int | None,
) -> "tuple[Family, Evaluation]":
    """Load the model; return its scorer, with the request.

    Raises ConfigError for an option of other models.
    """
    from sublayer.objective.base import KINDS, Evaluation, family, family_of_model
    from sublayer.runs.texts import TokenProgress, recipe_of
    from sublayer.system.machine import choose_device

    choose_device(device)
    text.check()
    text_model = loaded(text.run, device, average=average)
    recipe = recipe_of(text.run)
    kind, of_model = family_of_model(text_model, recipe)
    for name in settings:
        if name not in of_model.options:
            kinds = [other for other in KINDS if name in family(other).options]
            raise ConfigError(
                f"--{name.replace('_', '-')} is for models of objective.kind = "
                f"{' or '.join(kinds)}, not of {kind}: leave it out"
            )
    request = Evaluation(
        run=text.run,
        text_model=text_model,
        recipe=recipe,
        split=text.split or ("valid" if text_model.task is None else "test"),
        options=settings,
        batch=batch,
        average=average,
        read_text=lambda sentences: text.read(text_model, recipe, sentences),
        own_text=lambda: text.read_own(text_model, recipe),
        progress=TokenProgress,
    )
    return of_model, request


def ask_probes(
    run: Path,
    names: str,
    *,
    path: str | None = None,
    words: str | None = None,
    reference: Sequence[str] = (),
    device: str | None = None,
    average: int | None = None,
) -> Found:
    """Score a model on zero-shot probes, by names with commas between or ``all``.

    Raises ConfigError for an unknown probe, bad words or a bad reference, and for a model that
    predicts no text.
    """
    chosen = list(PROBES) if names == "all" else [name.strip() for name in names.split(",")]
    compared = [word.strip() for word in (words or "").split(",")]
    if words is not None and (len(compared) != 2 or not all(compared)):
        raise ConfigError(
            f"--words {words!r} must be two words separated by a comma, the first label's first, "
            "such as negative,positive"
        )
    references = {}
    for text in reference:
        name, _, value = text.partition("=")
        try:
            references[name.strip()] = float(value)
        except ValueError:
            raise ConfigError(
                f"--reference {text!r} must be a probe with its score as a share, such as "
                "winograd=0.637"
            ) from None
    settings = Settings(references=references)
    if words is not None:
        settings = replace(settings, words=(compared[0], compared[1]))
    check_names(chosen)
    with starting(run):
        from sublayer.evaluation.probes import ask, check_model, read_probes
        from sublayer.objective.base import context_of
        from sublayer.runs.texts import TokenProgress, recipe_of
        from sublayer.tasks.metrics import METRICS
        from sublayer.tasks.scoring import points

    model = loaded(run, device, average=average)
    check_model(model, str(run))
    read = read_probes(chosen, path, settings)
    context = context_of(model.model, recipe_of(run))
    probes = [x.to_json() for x in ask(model, read, context, TokenProgress("scored", "texts"))]
    rows = []
    for probe in probes:
        error = probe["standard_error"]
        rows.append(
            (
                probe["title"],
                f"{probe['examples']:,}",
                METRICS[probe["metric"]].title,
                points(probe["value"]) + ("" if error is None else f" ± {points(error)}"),
                points(probe["chance"]),
                DASH if probe["reference"] is None else points(probe["reference"]),
                format_plain(probe["normalised"], 2),
            )
        )
    headings = ["probe", "examples", "metric", "score", "chance", "reference", "from 0 to 1"]
    shown = table(headings, rows, right=[1, 3, 4, 5, 6], width=terminal_width())
    notes = [noted(f"{probe['title']}: {note}") for probe in probes for note in probe["notes"]]
    text = "\n".join([shown, paragraph(_LEGEND), *notes])
    return Found({"run": str(run), "context": context, "probes": probes}, text)


def harness_model(run: PathText, *, device: str | None = None) -> Any:
    """Load a decoder or an LSTM as an ``LM`` of lm-evaluation-harness (the extra ``harness``).

    ``run`` is a run, a checkpoint or an imported folder. The result is for ``model=`` of
    ``lm_eval.simple_evaluate``. Raises ConfigError if the harness is not installed, and for a model
    that predicts no next token; CheckpointError without a model.
    """
    try:
        from lm_eval.api.model import LM
    except ModuleNotFoundError as error:
        raise ConfigError(
            "lm-evaluation-harness is not installed: pip install 'sublayer[harness]'"
        ) from error

    from sublayer.evaluation.probes import Requests
    from sublayer.objective.base import context_of
    from sublayer.runs.texts import recipe_of

    path = as_path(run)
    model = loaded(path, device)
    requests = Requests(model, context_of(model.model, recipe_of(path)), str(path))

    class HarnessModel(LM):  # type: ignore[misc]
        """A model of this program, as the harness calls it."""

        def loglikelihood(self, instances: list[Any]) -> list[tuple[float, bool]]:
            """Return the log-probability of each continuation, and whether it is greedy."""
            return requests.likelihoods([request.args for request in instances])

        def loglikelihood_rolling(self, instances: list[Any]) -> list[float]:
            """Return the log-probability of each text."""
            return requests.wholes([request.args[0] for request in instances])

        def generate_until(self, instances: list[Any]) -> list[str]:
            """Return a continuation of each prompt."""
            return [requests.written(*request.args) for request in instances]

        @property
        def tokenizer_name(self) -> str:
            """The tokenizer's fingerprint, as the key of cached answers."""
            assert model.tokenizer is not None, "models without a tokenizer were refused"
            return model.tokenizer.fingerprint

    return HarnessModel()
