"""Commands of models: import, export, evaluate, embed, inspect."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from sublayer.api import inspecting, run, scoring, writing
from sublayer.api.results import Found
from sublayer.cli.build import CommandResult, client_of, has_work, refuse
from sublayer.counts import count
from sublayer.errors import ConfigError, DataError
from sublayer.files.lines import text_lines
from sublayer.files.storage import as_typed, check_free, expanded, new_file
from sublayer.options import Argument, Option
from sublayer.system.processes import is_first_launched
from sublayer.system.stages import display, note, stage
from sublayer.tasks.own_table import SUFFIXES
from sublayer.tasks.records import suffix_of


@client_of(run.import_model, "sublayer import huggingface downloads/gpt2 --out runs/gpt2")
def import_(**options: Any) -> CommandResult:
    """Import a model of another system, with its tokenizer if it has one, into a new folder that
    all commands read.

    Where transformers is installed and can read the model, the logits of the two are compared, of
    an encoder without a head the hidden states; the largest difference is shown and kept in
    certificate.json. Of pickles only fairseq's are read, as tensors and plain values: nothing that
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


@client_of(run.export, "sublayer export runs/book --to huggingface exported")
def export(**options: Any) -> CommandResult:
    """Write a model so that transformers loads it: a decoder as GPT-2 or GPT-1, an encoder as BERT
    or ALBERT, an encoder-decoder as M2M100, Marian or T5.

    GPT-1 is the class of decoders whose norms stand after their sub-layers, T5 that of
    encoder-decoders with relative positions. A model that was fine-tuned on a task becomes the
    class that answers it (labels or a number, choices, spans), with the words of its labels. A
    model that none of these classes can represent is refused, and the field that prevents it is
    named. Where transformers is installed, the logits of both models are compared; the largest
    difference is printed, and kept in certificate.json.
    """
    return run.export(**options)


Runs = Annotated[
    Sequence[Path],
    Argument(
        "A run, a checkpoint, or the folder of an imported model; several fine-tuned runs are "
        "an ensemble, whose answers are averaged; with --suite any models.",
        metavar="RUN",
        complete="runs",
    ),
]
Probes = Annotated[
    str | None,
    Option(
        "Ask a model that predicts text for answers without training: cola, sst2, race, "
        "winograd, dpr, with commas between, or all; --path names the folder of their files.",
        metavar="NAMES",
    ),
]
ProbeWords = Annotated[
    str | None,
    Option(
        "Of the probe sst2: the words that are compared, that of the first label first. "
        "Default: negative,positive.",
        metavar="A,B",
        needs="probes",
    ),
]
References = Annotated[
    Sequence[str],
    Option(
        "Of --probes: the score that is 1 on the axis that begins at chance. Repeatable.",
        metavar="PROBE=SHARE",
        needs="probes",
    ),
]
Suite = Annotated[
    Path | None,
    Option(
        "A TOML file that lists tasks, probes, texts and pairs: one scorecard of all runs.",
        metavar="FILE",
    ),
]
CsvFile = Annotated[
    Path | None,
    Option("Of a suite: write the scorecard as CSV, too.", metavar="FILE", needs="suite"),
]
HtmlFile = Annotated[
    Path | None,
    Option("Of a suite: write the scorecard as HTML, too.", metavar="FILE", needs="suite"),
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
    """Score how well a model predicts a text, or answers tasks, that it was not trained on.

    A decoder gives bits per byte (lower is better; compares across tokenizers), and the loss per
    token, character and word. An encoder gives the accuracy of masked tokens and of judging pairs
    of texts: next sentence (nsp) and sentence order (sop), whichever it was trained on. A
    translator gives BLEU against the text's own translations. A fine-tuned model gives its score on
    the development set of its tasks, with the standard error, and baselines without a model;
    several are scored as one, the average of their answers. A model that predicts text answers
    --probes, tasks that it was not trained on. With --suite any models stand side by side in one
    scorecard, on the tasks and texts that a file lists. The arithmetic is that of the saved
    weights, float32, whatever the precision of training was.
    """
    if suite is not None:
        refuse(
            {**options, "probes": probes},
            "is of one model's own text or task: with --suite leave it out, the suite names its "
            "measures",
            but=("device",),
        )
        return _evaluate_suite(suite, runs, {"csv": csv, "html": html}, options.get("device"))
    if not has_work("evaluate"):
        return None
    if probes is None:
        return scoring.evaluate(runs, **options)
    if len(runs) > 1:
        raise ConfigError("--probes asks one model: name one run, or a --suite for several")
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
        from sublayer.suite.evaluate import check_suite, evaluate_suite
        from sublayer.system.machine import choose_device
        from sublayer.training.world import leave_world

    chosen = choose_device(device)
    work = check_suite(suite, runs)
    try:
        evaluated = evaluate_suite(work, chosen)
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
        Path, Argument("A file of texts, one on a line, packed or not.", metavar="FILE")
    ],
    out: Annotated[
        Path,
        Option(
            "The new file of the vectors, which numpy.load reads: float32, a row for each line.",
            metavar="FILE.npy",
        ),
    ],
    **options: Any,
) -> CommandResult:
    """Write a vector of each line of a file: the final hidden states of its tokens, pooled.

    Encoders, decoders, LSTMs and the encoders of encoder-decoders have them, fine-tuned or not. A
    line that is longer than the model reads is cut, and said; of an empty one the special tokens
    alone are read, and it has zeros where a model has none.
    """
    check_free(out, "--out", (".npy",))
    path = expanded(file)
    if path.is_dir():
        raise DataError(f"{file} is a folder: name a file of lines")
    lines = text_lines(path)
    if suffix_of(path) in SUFFIXES:
        note(f"{file} is a table, which is read line by line, names of columns and all")
    if not lines:
        raise DataError(f"{file} has no lines: there is nothing to embed")

    with stage("starting PyTorch"):
        import numpy as np

        from sublayer.api.arguments import loaded
        from sublayer.evaluation.vectors import describe_unread, embed_texts

    def show(n_done: int) -> None:
        done = f"embedding {n_done:,} of {count(len(lines), 'line')}"
        display().change_innermost(done, n_done / len(lines))

    run, pool = options.pop("run"), options.pop("pool", "mean")
    normalize = options.pop("normalize", False)
    model = loaded(run, options.pop("device", None))
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
            "layers: the distance and the angle between each block's input and output; splitting: "
            "the error of applying attention and feed-forward network one after the other; paths: "
            "where each sub-layer moves each token.",
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
    """Measure the effect of each block of a model on a text's tokens, and compare models by it.

    layers: the L2 distance, the cosine and the angle between each block's input and output, and the
    norms of both: means over tokens, with quartiles (Lan et al. 2020, Fig. 1), computed in the
    precision of the saved weights. A block that all layers share can be run beyond the model's own
    number of layers.

    splitting: without a run, the error of one step of each splitting scheme on differential
    equations whose flows are known (Lu et al. 2019, sec. 3). With runs, how far each layer's step
    is from following the flows of its own attention and feed-forward network.

    paths: the first tokens of a text as particles, from what enters a model through every sub-layer
    of its blocks, drawn in the plane in which their states vary most, as in `sublayer inspect paths
    runs/book --path book.txt --out paths.svg`.
    """
    if "beyond" in options and what != "layers":
        raise ConfigError("--beyond is of inspect layers: leave it out")
    result: CommandResult = getattr(inspecting, f"inspect_{what}")(*runs, **options)
    return result
