"""Commands of models: import, export, evaluate, embed, inspect."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from sublayer.api import inspecting, run, scoring, writing
from sublayer.api.results import Found
from sublayer.cli.build import CommandResult, client_of, has_work, refuse
from sublayer.errors import ConfigError, DataError
from sublayer.files.lines import suffix_of, text_lines
from sublayer.files.storage import as_typed, check_free, expanded, new_file
from sublayer.numbers import count
from sublayer.options import Argument, Option
from sublayer.system.processes import is_first_launched
from sublayer.system.terminal import display, note, stage
from sublayer.tasks.own_table import SUFFIXES


@client_of(run.import_model, "sublayer import huggingface downloads/gpt2 --out runs/gpt2")
def import_(**options: Any) -> CommandResult:
    """Import a model of another system, with its tokenizer if it has one, into a new folder that
    all commands read.

    Where transformers is installed and can read the model, the logits of the two are compared, or
    the hidden states of an encoder without a head; the largest difference is shown and kept in
    certificate.json. The only pickles read are fairseq's, as tensors and plain values: no code that
    a file names is run.
    """
    imported = run.import_model(**options)
    if not imported["has_tokenizer"]:
        return imported
    from sublayer.cli.training import after_import
    from sublayer.data.tasks.encoded import TRAVERSAL_NAMES
    from sublayer.data.tokenizers.languages import BilingualTokenizer
    from sublayer.data.tokenizers.named import load_tokenizer
    from sublayer.loading import load_task
    from sublayer.model.model_folder import read_config

    folder = Path(imported["model"])
    config, spec = read_config(folder), load_task(folder)
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    is_traversal = spec is not None and spec.format == "traversal"
    following = after_import(
        imported["model"],
        config.kind,
        is_translator=isinstance(tokenizer, BilingualTokenizer),
        knows_gaps=bool(tokenizer.sentinel_ids),
        has_head=config.head != "none" or bool(config.sentence_classes),
        answers=None if spec is None else spec.tasks[0].name,
        lacks_marks=is_traversal and not tokenizer.added_ids.keys() >= set(TRAVERSAL_NAMES),
    )
    return Found(imported.found, "\n".join([str(imported), *following]))


@client_of(run.export, "sublayer export runs/book --to transformers exported")
def export(**options: Any) -> CommandResult:
    """Write a model for transformers, an engine such as llama.cpp, or the Hugging Face hub.

    transformers loads it as the first class that can represent it, or else by code that the folder
    brings (trust_remote_code). A model fine-tuned on a task becomes the class that answers it
    (labels or a number, choices, spans), with its label names. --class names another class. What
    the format cannot represent is refused, with the field that prevents it. If its software is
    installed, the outputs of both models are compared; the largest difference is printed, and kept
    in certificate.json.
    """
    return run.export(**options)


Runs = Annotated[
    Sequence[Path],
    Argument(
        "A run, a checkpoint, or the folder of an imported model; several fine-tuned runs form "
        "an ensemble with averaged answers; with --suite, any models.",
        metavar="RUN",
        complete="runs",
    ),
]
Probes = Annotated[
    str | None,
    Option(
        "Zero-shot tasks for a model that predicts text: cola, sst2, race, winograd, dpr, "
        "separated by commas, or all; --path names the folder of their files.",
        metavar="NAMES",
    ),
]
ProbeWords = Annotated[
    str | None,
    Option(
        "Words that the probe sst2 compares, the first label's first. Default: negative,positive.",
        metavar="A,B",
        needs="probes",
    ),
]
References = Annotated[
    Sequence[str],
    Option(
        "The score that --probes maps to 1, on a scale with chance at 0. Repeatable.",
        metavar="PROBE=SHARE",
        needs="probes",
    ),
]
Suite = Annotated[
    Path | None,
    Option(
        "A TOML file that lists tasks, probes, texts and pairs, for one scorecard of all runs.",
        metavar="FILE",
    ),
]
CsvFile = Annotated[
    Path | None,
    Option("Also write the scorecard of a suite as CSV.", metavar="FILE", needs="suite"),
]
HtmlFile = Annotated[
    Path | None,
    Option("Also write the scorecard of a suite as HTML.", metavar="FILE", needs="suite"),
]


@client_of(scoring.evaluate, "sublayer evaluate runs/book --split test --stride 32")
def evaluate(
    runs: Runs,
    probes: Probes = None,
    words: ProbeWords = None,
    reference: References = (),
    suite: Suite = None,
    csv: CsvFile = None,
    html: HtmlFile = None,
    **options: Any,
) -> CommandResult | None:
    """Score a model on text or tasks that it was not trained on.

    A decoder gives bits per byte (lower is better; comparable across tokenizers), and the loss per
    token, character and word. An encoder gives the accuracy of masked tokens and of text pairs:
    next sentence (nsp) or sentence order (sop), whichever it was trained on. A translator gives
    BLEU against the text's own translations. A fine-tuned model gives its score on the development
    set of its tasks, with the standard error, and baselines without a model; several are scored as
    one ensemble with averaged answers. A model that predicts text answers the zero-shot tasks of
    --probes. With --suite one scorecard compares any models on the tasks and texts that a file
    lists. The arithmetic is in the precision of the saved weights, float32, whatever the precision
    of training was.
    """
    if suite is not None:
        refuse(
            {**options, "probes": probes},
            "applies to one model's own text or task, and a --suite names its own measures: "
            "leave it out",
            but=("device",),
        )
        return _evaluate_suite(suite, runs, {"csv": csv, "html": html}, options.get("device"))
    if not has_work("evaluate"):
        return None
    if probes is None:
        return scoring.evaluate(runs, **options)
    if len(runs) > 1:
        raise ConfigError("--probes takes one model: name one run, or give a --suite for several")
    of_run = ("average", "path", "device")
    refuse(options, "has no effect on --probes: leave it out", but=of_run)
    return scoring.ask_probes(runs[0], probes, words=words, reference=reference, **options)


def _evaluate_suite(
    suite: Path, runs: Sequence[Path], files: Mapping[str, Path | None], device: str | None
) -> CommandResult:
    """Score models side by side, and write the scorecard to files, by suffix.

    Raises ConfigError, DataError and CheckpointError before any computation.
    """
    targets = {kind: expanded(path) for kind, path in files.items() if path is not None}
    check_free(targets.get("csv"), "--csv", (".csv",))
    check_free(targets.get("html"), "--html", (".html", ".htm"))
    with stage("starting PyTorch"):
        from sublayer.files.storage import write_file
        from sublayer.reporting.html import render_page
        from sublayer.reporting.tables import card_csv, card_sheet
        from sublayer.reporting.terminal import shown
        from sublayer.suite.evaluate import check_suite
        from sublayer.system.machine import choose_device
        from sublayer.training.world import leave_world

    chosen = choose_device(device)
    work = check_suite(suite, runs)
    try:
        evaluated = work.evaluate(chosen)
    finally:
        leave_world()
    card, title = evaluated.scorecard(), work.suite.title
    for kind, path in targets.items() if is_first_launched() else ():
        if kind == "csv":
            page = card_csv(card)
        else:
            named = title or "Scorecard"
            page = render_page("suite.html.j2", title=named, scorecard=card_sheet(card))
        write_file(path, page)
        note(f"wrote {path}")
    text = [*([title, ""] if title else []), *shown(card_sheet(card))]
    return Found(evaluated.to_json(), "\n".join(text))


@client_of(writing.embed, "sublayer embed runs/albert-small book.txt --out vectors.npy")
def embed(
    file: Annotated[
        Path, Argument("A file of texts, one per line, compressed or not.", metavar="FILE")
    ],
    out: Annotated[
        Path,
        Option(
            "The new file of vectors for numpy.load: float32, one row per line.",
            metavar="FILE.npy",
        ),
    ],
    **options: Any,
) -> CommandResult:
    """Write a vector for each line of a file: the pooled final hidden states of its tokens.

    The model is an encoder, a decoder, an LSTM or an encoder-decoder (its encoder), fine-tuned or
    not. A line longer than the model's context is truncated and reported; an empty line is its
    special tokens alone, or a vector of zeros if the model has none.
    """
    check_free(out, "--out", (".npy",))
    path = expanded(file)
    if path.is_dir():
        raise DataError(f"{file} is a folder: name a file of lines")
    lines = text_lines(path)
    if suffix_of(path) in SUFFIXES:
        note(f"{file} is a table, read line by line, including its column names")
    if not lines:
        raise DataError(f"{file} has no lines: there is nothing to embed")

    from sublayer.api.arguments import starting

    run, pool = options.pop("run"), options.pop("pool", "mean")
    with starting(run):
        import numpy as np

        from sublayer.evaluation.vectors import describe_unread, embed_texts

    def show(n_done: int) -> None:
        done = f"embedding {n_done:,} of {count(len(lines), 'line')}"
        display().change_innermost(done, n_done / len(lines))

    normalize = options.pop("normalize", False)
    device, engine = options.pop("device", None), options.pop("engine", None)
    model = writing.load_for_states(run, device, engine)
    width = model.model.config.d_model
    written = []
    blocks = embed_texts(model, lines, pool=pool, normalize=normalize, progress=show, **options)
    with stage("embedding"), new_file(out) as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (len(lines), width)}
        np.lib.format.write_array_header_1_0(stream, header)
        for block in blocks:
            stream.write(block.values.astype("<f4", copy=False).tobytes())
            written.append(block)
    for line in describe_unread(written, "line"):
        note(line)
    result = {
        "run": str(run),
        "path": str(file),
        "out": str(out),
        "lines": len(lines),
        "width": width,
        "pool": pool,
        "normalized": normalize,
        "cut": sum(int(block.is_cut.sum()) for block in written),
        "empty": sum(int(block.is_empty.sum()) for block in written),
    }
    vectors = f"{count(len(lines), 'vector')} of {width:,} numbers"
    return Found(result, f"{vectors} written to {as_typed(str(out))}")


@client_of(
    inspecting.inspect_layers,
    "sublayer inspect layers runs/book --path book.txt --out layers.svg",
)
def inspect(
    what: Annotated[
        Literal["layers", "splitting", "paths"],
        Argument(
            "The measure: layers, the distance and angle between each block's input and output; "
            "splitting, the error of applying attention and feed-forward network in turn; paths, "
            "each token's path through the sub-layers.",
            metavar="WHAT",
        ),
    ],
    runs: Annotated[
        Sequence[Path],
        Argument(
            "Runs, checkpoints, or folders of imported models.", metavar="RUN", complete="runs"
        ),
    ] = (),
    **options: Any,
) -> CommandResult:
    """Measure and compare the effect of each block of models on a text's tokens.

    layers: the L2 distance, the cosine and the angle between each block's input and output, and the
    norms of both: means over tokens, with quartiles (Lan et al. 2020, Fig. 1), computed in the
    precision of the saved weights. A block shared by all layers can run beyond the model's own
    number of layers.

    splitting: without a run, the error of one step of each splitting scheme on differential
    equations with known flows (Lu et al. 2019, sec. 3). With runs, the deviation of each layer's
    step from the flows of its own attention and feed-forward network.

    paths: the first tokens of a text as particles, from the model's input through every sub-layer
    of its blocks, drawn in the plane of largest variance of their states, as in `sublayer inspect
    paths runs/book --path book.txt --out paths.svg`.
    """
    if "beyond" in options and what != "layers":
        raise ConfigError("--beyond has no effect outside inspect layers: leave it out")
    result: CommandResult = getattr(inspecting, f"inspect_{what}")(*runs, **options)
    return result
