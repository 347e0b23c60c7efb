"""``sublayer plan``: what a run or a comparison will cost, before anything is spent."""

from typing import Annotated, Any

import typer

from sublayer.api.planning import plan
from sublayer.cli.build import client_of, print_result
from sublayer.commands.shared import candidates
from sublayer.commands.shared.base import JsonOption

EXAMPLE = "sublayer plan gpt train.minutes=5 --vary model.ffn=gelu,swiglu --measure"

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|STUDY",
        autocompletion=candidates.recipes_and_studies,
        help="A recipe, a study or a run, by name or path; or the first of several recipes, which "
        "is the baseline.",
    ),
]
WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE ...] [KEY=VALUE ...]",
        autocompletion=candidates.recipes_and_settings,
        help="Further recipes, an arm each, then settings for all arms, such as model.d_ff=512.",
    ),
]


@client_of(plan)
def command(
    options: dict[str, Any],
    source: SourceArgument,
    words: WordsArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a run or each arm of a comparison takes: parameters, FLOPs, memory, disk; with
    --measure, time; and which difference it can find. With --processes, what each of them takes.

    No text is read and nothing is trained. A vocabulary that is yet to be trained is taken to have
    data.vocab_size tokens.
    """
    from sublayer.study.definition import split_words

    sources, settings = split_words(source, words or [])
    print_result(plan(sources, settings, **options), as_json)
