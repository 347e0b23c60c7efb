"""Models scored: on texts, on tasks, by zero-shot probes, by lm-evaluation-harness."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sublayer.api.arguments import (
    Average,
    Device,
    LengthPenalty,
    LengthRule,
    MaxLengthOffset,
    MaxLengthRatio,
    SearchBeam,
    as_path,
    as_paths,
    as_source,
)
from sublayer.api.results import Result, html_table, page, rows_of
from sublayer.config.data import DocumentRule
from sublayer.config.limits import LONGEST_WINDOW, MOST_ROWS
from sublayer.config.train import PROBES, check_names
from sublayer.config.translation import BleuTokenizer
from sublayer.errors import ConfigError
from sublayer.options import Option, PathText, checked
from sublayer.system.stages import stage
from sublayer.system.terminal import noted, paragraph, terminal_width
from sublayer.tables import table

if TYPE_CHECKING:
    from sublayer.evaluation.probes import Settings
    from sublayer.objective.evaluation import Evaluation
    from sublayer.objective.family import Family
    from sublayer.runs.texts import ScoredText


class Scores(Result):
    """Scores of a model: measures by name, and the scored text; ``scores["loss"]`` is one."""

    def _repr_html_(self) -> str:
        measures = {
            name: value for name, value in self.found.items() if isinstance(value, int | float)
        }
        return page(html_table(["measure", "value"], rows_of(measures)))


_DASH = "\N{EN DASH}"
_LEGEND = (
    "from 0, which guessing scores, to 1, the reference: what a model of the paper's time scored "
    "that was trained on the task"
)
SplitName = Literal["valid", "test"]

Split = Annotated[
    SplitName | None,
    Option(
        "Split of the run's own text, or of --corpus. Default: valid. Of tasks, valid is what "
        "was held out to select, and test, the default, the published development set.",
    ),
]
TextPath = Annotated[
    PathText | Any,
    Option(
        "Score another text, all of it: a file, a folder or a glob. Of tasks: another file or "
        "folder of labelled rows, all of them.",
        metavar="PATH",
    ),
]
Corpus = Annotated[
    str | None,
    Option(
        "Score a split of a named corpus instead; albert-intrinsic: the passages of --path.",
        metavar="NAME",
        complete="corpora",
    ),
]
Documents = Annotated[
    DocumentRule | None,
    Option(
        "What counts as one document of --path: each file, each block between blank lines, "
        "each JSON record, or each row of CSV (the field data.documents).",
    ),
]
TextField = Annotated[
    str | None,
    Option(
        "The field of JSON, or the column of CSV or Parquet, that holds the text of --path "
        "(the field data.text_field).",
        metavar="NAME",
    ),
]
Stride = Annotated[
    int | None,
    Option(
        "Tokens between windows: 1 scores each token with the full context, more costs less. "
        "Default: half the context.",
        least=1,
        most=LONGEST_WINDOW,
    ),
]
Pairs = Annotated[
    int | None,
    Option(
        "Pairs of texts that an encoder judges, at least. Default: 2000.",
        least=1,
        most=1_000_000_000,
    ),
]
Lowercase = Annotated[bool, Option("Score a translator's text in lower case, on both sides.")]
Compounds = Annotated[
    bool,
    Option(
        "Also score a translator's words after every hyphen within a word was made one of "
        "its own (WMT14): higher than BLEU otherwise is.",
    ),
]
BleuBy = Annotated[
    BleuTokenizer | None,
    Option(
        "sacreBLEU's tokenizer of a translator's BLEU. Default: the run's "
        "(see `sublayer fields objective.bleu_tokenizer`).",
    ),
]
References = Annotated[
    Sequence[PathText],
    Option(
        "Of a translator: a file with a further reference of each line of the split, of which "
        "a blank one is none. Repeatable.",
        metavar="FILE",
    ),
]
Against = Annotated[
    PathText | None,
    Option(
        "Another fine-tuned run of the same tasks, another translator, or a file with a "
        "translation of each line: is the difference more than chance?",
        metavar="RUN",
    ),
]
AnswerBy = Annotated[
    Literal["greedy", "rank"] | None,
    Option(
        "Of tasks as text to text: written token by token, or the label whose text is "
        "likeliest. Default: as the model was fine-tuned.",
    ),
]
TaskName = Annotated[
    str | None,
    Option(
        "The task to score a model on that answers one, such as an imported model: in its "
        "order the model's labels are put, by their words. Default: its own.",
        metavar="NAME",
    ),
]
Choose = Annotated[
    Literal["greedy"] | None,
    Option(
        "Of several fine-tuned runs, choose those that score best together on what was held "
        "out of train, never on what is scored: one by one while the score rises. Default: all "
        "runs are members.",
    ),
]


@checked
def evaluate(
    run: PathText | Sequence[PathText],
    split: Split = None,
    *,
    path: TextPath = None,
    corpus: Corpus = None,
    documents: Documents = None,
    text_field: TextField = None,
    stride: Stride = None,
    pairs: Pairs = None,
    beam: SearchBeam = None,
    length_rule: LengthRule = None,
    length_penalty: LengthPenalty = None,
    max_length_ratio: MaxLengthRatio = None,
    max_length_offset: MaxLengthOffset = None,
    average: Average = None,
    lowercase: Lowercase = False,
    compounds: Compounds = False,
    bleu_tokenizer: BleuBy = None,
    references: References = (),
    against: Against = None,
    answer: AnswerBy = None,
    task: TaskName = None,
    choose: Choose = None,
    batch: Annotated[
        int | None,
        Option(
            "Windows computed at a time; affects speed and memory only.", least=1, most=MOST_ROWS
        ),
    ] = None,
    device: Device = None,
) -> Scores:
    """Score a model on a split of its own text (valid by default), or on another by ``path``.

    ``run`` is a run, a checkpoint or an imported folder; of several fine-tuned ones, given as a
    list, the average is scored, and ``choose`` chooses among them on a held-out part of train.
    ``stride`` is in tokens between windows; ``beam`` and the lengths are of translators, ``pairs``
    of encoders that judge pairs. ``batch`` changes speed and memory only. Loss is in nats per
    token, ``bits_per_byte`` in bits. Raises ConfigError for options of other kinds of models,
    DataError and CheckpointError.
    """
    runs = as_paths(run)
    source = None if path is None else as_source(path)
    options: dict[str, Any] = {
        "path": source,
        "corpus": corpus,
        "documents": documents,
        "text_field": text_field,
        "stride": stride,
        "pairs": pairs,
        "beam": beam,
        "length_rule": length_rule,
        "length_penalty": length_penalty,
        "max_length_ratio": max_length_ratio,
        "max_length_offset": max_length_offset,
        "lowercase": lowercase or None,
        "compounds": compounds or None,
        "bleu_tokenizer": bleu_tokenizer,
        "references": [Path(file) for file in references] or None,
        "against": None if against is None else Path(against),
        "answer": answer,
        "task": task,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if choose is not None and len(runs) == 1:
        raise ConfigError("--choose chooses members among several runs: name them")
    with stage("starting PyTorch"):
        from sublayer.objective.supervised.ensemble import find_members
        from sublayer.objective.supervised.ensemble_evaluation import evaluate_ensemble
        from sublayer.objective.supervised.rendering import render_ensemble
        from sublayer.runs.texts import ScoredText

    if len(runs) > 1:
        find_members(runs)
    prepared = [
        _prepare(
            ScoredText(path, split, source, corpus, documents, text_field),
            given,
            device=device,
            batch=batch,
            average=average,
        )
        for path in runs
    ]
    family, request = prepared[0]
    with stage("scoring"):
        if len(runs) == 1:
            return Scores(family.evaluate(request), family.render)
        requests = [request for _, request in prepared]
        return Scores(evaluate_ensemble(requests, chooses=choose is not None), render_ensemble)


def _prepare(
    text: "ScoredText",
    given: Mapping[str, Any],
    *,
    device: str | None,
    batch: int | None,
    average: int | None,
) -> "tuple[Family, Evaluation]":
    """Load the model and return what scores it, with the request."""
    from sublayer.loading import load
    from sublayer.objective.evaluation import Evaluation
    from sublayer.objective.families import family_of_model
    from sublayer.runs.texts import TokenProgress, recipe_of
    from sublayer.system.machine import choose_device

    chosen = choose_device(device)
    text.check()
    text_model = load(text.run, device=chosen, average=average)
    recipe = recipe_of(text.run)
    kind, family = family_of_model(text_model, recipe)
    _check_options(given, kind)
    request = Evaluation(
        run=text.run,
        text_model=text_model,
        recipe=recipe,
        split=text.split or ("valid" if text_model.task is None else "test"),
        options=given,
        batch=batch,
        average=average,
        read_text=lambda sentences: text.read(text_model, recipe, sentences),
        own_text=lambda: text.read_own(text_model, recipe),
        progress=TokenProgress,
    )
    return family, request


def _check_options(given: Mapping[str, Any], kind: str) -> None:
    """Raise ConfigError for an option that models of other kinds have."""
    from sublayer.objective.families import KINDS, family

    for name in given:
        if name in family(kind).options:
            continue
        kinds = [other for other in KINDS if name in family(other).options]
        option = f"--{name.replace('_', '-')}"
        raise ConfigError(
            f"{option} is for models of objective.kind = {' or '.join(kinds)}, "
            f"and this one is of {kind}: leave it out"
        )


def ask_probes(
    run: Path,
    names: str,
    folder: str | None,
    words: str | None,
    references: Sequence[str],
    *,
    device: str | None,
    average: int | None,
) -> Scores:
    """Ask a model zero-shot probes, by names with commas between or ``all``.

    Raises ConfigError for an unknown probe, bad words or a bad reference, and for a model that
    predicts no text.
    """
    with stage("starting PyTorch"):
        from sublayer.evaluation.probes import ask, check_model, read_probes
        from sublayer.loading import load
        from sublayer.objective.evaluation import context_of
        from sublayer.runs.texts import TokenProgress, recipe_of
        from sublayer.system.machine import choose_device

    chosen = PROBES if names == "all" else [name.strip() for name in names.split(",")]
    settings = _probe_settings(words, references)
    check_names(chosen)
    model = load(run, device=choose_device(device), average=average)
    check_model(model, str(run))
    read = read_probes(chosen, folder, settings)
    context = context_of(model.model, recipe_of(run))
    scores = ask(model, read, context, TokenProgress("scored", "texts"))
    result = {
        "run": str(run),
        "context": context,
        "probes": [score.to_json() for score in scores],
    }
    return Scores(result, _render_probes)


def _probe_settings(words: str | None, references: Sequence[str]) -> "Settings":
    from sublayer.evaluation.probes import Settings

    settings: dict[str, Any] = {}
    if words is not None:
        first, comma, second = words.partition(",")
        if not comma or not first.strip() or not second.strip() or "," in second:
            raise ConfigError(
                f"--words {words!r} are not two words with a comma between: that of the first "
                "label, then that of the second, such as negative,positive"
            )
        settings["words"] = (first.strip(), second.strip())
    given: dict[str, float] = {}
    for text in references:
        name, equals, value = text.partition("=")
        try:
            given[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise ConfigError(
                f"--reference {text!r} is not such as winograd=0.637: a probe, and its score as a "
                "share"
            )
    return Settings(**settings, references=given)


def _render_probes(result: Mapping[str, Any]) -> str:
    """Format what probes found in a table, with notes on each."""
    from sublayer.tasks.scoring import METRICS, points

    rows = []
    notes = []
    for probe in result["probes"]:
        error = probe["standard_error"]
        spread = "" if error is None else f" ± {points(error)}"
        rows.append(
            (
                probe["title"],
                f"{probe['examples']:,}",
                METRICS[probe["metric"]].title,
                f"{points(probe['value'])}{spread}",
                points(probe["chance"]),
                _DASH if probe["reference"] is None else points(probe["reference"]),
                _DASH if probe["normalised"] is None else f"{probe['normalised']:.2f}",
            )
        )
        notes += [noted(f"{probe['title']}: {note}") for note in probe["notes"]]
    headings = ["probe", "examples", "metric", "score", "chance", "reference", "from 0 to 1"]
    shown = table(headings, rows, right=[1, 3, 4, 5, 6], width=terminal_width())
    return "\n".join([shown, paragraph(_LEGEND), *notes])


def harness_model(run: PathText, *, device: str | None = None) -> Any:
    """Load a decoder or an LSTM as an ``LM`` of lm-evaluation-harness (the extra ``harness``).

    ``run`` is a run, a checkpoint or an imported folder. The result is for ``model=`` of
    ``lm_eval.simple_evaluate``. Raises ConfigError where the harness is not installed, and for a
    model that predicts no next token; CheckpointError where there is no model.
    """
    try:
        from lm_eval.api.model import LM
    except ModuleNotFoundError as error:
        raise ConfigError(
            "lm-evaluation-harness is not installed: pip install 'sublayer[harness]'"
        ) from error

    from sublayer.evaluation.prompted_likelihood import Requests
    from sublayer.loading import load
    from sublayer.objective.evaluation import context_of
    from sublayer.runs.texts import recipe_of
    from sublayer.system.machine import choose_device

    path = as_path(run)
    model = load(path, device=choose_device(device))
    requests = Requests(model, context_of(model.model, recipe_of(path)), str(path))

    class HarnessModel(LM):  # type: ignore[misc]
        """A model of this program, asked by the harness."""

        def loglikelihood(self, asked: list[Any]) -> list[tuple[float, bool]]:
            """Return the log-probability of each continuation, and whether it is greedy."""
            return requests.likelihoods([each.args for each in asked])

        def loglikelihood_rolling(self, asked: list[Any]) -> list[float]:
            """Return the log-probability of each text."""
            return requests.wholes([each.args[0] for each in asked])

        def generate_until(self, asked: list[Any]) -> list[str]:
            """Return the text that is written behind each prompt."""
            return [requests.written(*each.args) for each in asked]

        @property
        def tokenizer_name(self) -> str:
            """The tokenizer's fingerprint, under which answers are kept."""
            assert model.tokenizer is not None, "a model without a tokenizer is refused"
            return model.tokenizer.fingerprint

    return HarnessModel()
