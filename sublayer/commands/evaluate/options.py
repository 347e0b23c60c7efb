"""Options of ``sublayer evaluate`` alone."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from sublayer.commands.shared import candidates
from sublayer.config.limits import LONGEST_WINDOW
from sublayer.config.objectives.translation import BleuTokenizer

SuiteOption = Annotated[
    Path | None,
    typer.Option(
        "--suite",
        metavar="FILE",
        help="A TOML file that lists tasks, probes, texts and pairs: one scorecard of all runs.",
    ),
]
CsvOption = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help="Of a suite: write the scorecard as CSV, too."),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Of a suite: write the scorecard as HTML, too."),
]
SplitOption = Annotated[
    Literal["valid", "test"] | None,
    typer.Option(
        "--split",
        help="Split of the run's own text, or of --corpus. Default: valid. Of tasks, valid is what "
        "was held out to select, and test, the default, the published development set.",
    ),
]
PathOption = Annotated[
    str | None,
    typer.Option(
        "--path",
        metavar="PATH",
        help="Score another text, all of it: a file, a folder or a glob. Of tasks: another file or "
        "folder of labelled rows, all of them.",
    ),
]
TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="NAME",
        help="The task to score a model on that answers one, such as an imported model: in its "
        "order the model's labels are put, by their words. Default: its own.",
    ),
]
ProbesOption = Annotated[
    str | None,
    typer.Option(
        "--probes",
        metavar="NAMES",
        help="Ask a model that predicts text what it answers without training: cola, sst2, race, "
        "winograd, dpr, with commas between, or all; --path names the folder of their files.",
    ),
]
WordsOption = Annotated[
    str | None,
    typer.Option(
        "--words",
        metavar="A,B",
        help="Of the probe sst2: the words that are compared, that of the first label first. "
        "Default: negative,positive.",
    ),
]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="PROBE=SHARE",
        help="Of --probes: the score that is 1 on the axis that begins at chance. Repeatable.",
    ),
]
AnswerOption = Annotated[
    Literal["greedy", "rank"] | None,
    typer.Option(
        "--answer",
        help="Of tasks as text to text: written token by token, or the label whose text is "
        "likeliest. Default: as the model was fine-tuned.",
    ),
]
CorpusOption = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        metavar="NAME",
        autocompletion=candidates.corpora,
        help="Score a split of a named corpus instead; albert-intrinsic: the passages of --path.",
    ),
]
StrideOption = Annotated[
    int | None,
    typer.Option(
        "--stride",
        min=1,
        max=LONGEST_WINDOW,
        help="Tokens between windows: 1 scores each token with the full context, more costs less. "
        "Default: half the context.",
    ),
]
PairsOption = Annotated[
    int | None,
    typer.Option(
        "--pairs",
        min=1,
        max=1_000_000_000,
        help="Pairs of texts that an encoder judges, at least. Default: 2000.",
    ),
]
LowercaseOption = Annotated[
    bool,
    typer.Option("--lowercase", help="Score a translator's text in lower case, on both sides."),
]
CompoundsOption = Annotated[
    bool,
    typer.Option(
        "--compounds",
        help="Also score a translator's words after every hyphen within a word was made one of "
        "its own (WMT14): higher than BLEU otherwise is.",
    ),
]
BleuTokenizerOption = Annotated[
    BleuTokenizer | None,
    typer.Option(
        "--bleu-tokenizer",
        help="sacreBLEU's tokenizer of a translator's BLEU. Default: the run's "
        "(see `sublayer fields objective.bleu_tokenizer`).",
    ),
]
ReferencesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--references",
        metavar="FILE",
        help="Of a translator: a file with a further reference of each line of the split, of which "
        "a blank one is none. Repeatable.",
    ),
]
AgainstOption = Annotated[
    Path | None,
    typer.Option(
        "--against",
        metavar="RUN",
        help="Another fine-tuned run of the same tasks, another translator, or a file with a "
        "translation of each line: is the difference more than chance?",
    ),
]
ChooseOption = Annotated[
    Literal["greedy"] | None,
    typer.Option(
        "--choose",
        help="Of several fine-tuned runs, choose those that score best together on what was held "
        "out of train, never on what is scored: one by one while the score rises. Default: all "
        "runs are members.",
    ),
]
