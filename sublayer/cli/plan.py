"""``sublayer plan``: the cost of a run or a comparison, before anything is spent."""

from collections.abc import Sequence
from typing import Annotated, Any

from sublayer.api.planning import plan
from sublayer.cli.build import Json, client_of, print_result
from sublayer.options import Argument

EXAMPLE = "sublayer plan gpt train.minutes=5 --vary model.ffn=gelu,swiglu --measure"

Source = Annotated[
    str,
    Argument(
        "A recipe, a study or a run, by name or path; or the first of several recipes, which "
        "is the baseline.",
        metavar="RECIPE|STUDY",
        complete="recipes_and_studies",
    ),
]
Words = Annotated[
    Sequence[str],
    Argument(
        "Further recipes, an arm each, then settings for all arms, such as model.d_ff=512.",
        metavar="[RECIPE ...] [KEY=VALUE ...]",
        complete="recipes_and_settings",
    ),
]


@client_of(plan)
def command(
    options: dict[str, Any],
    source: Source,
    words: Words = (),
    as_json: Json = False,
) -> None:
    """Give the cost of a run or of each arm of a comparison: parameters, FLOPs, memory, disk; with
    --measure, time; and which difference it can find. With --processes, the cost of each of them.

    No text is read and nothing is trained. A vocabulary that is yet to be trained is taken to have
    data.vocab_size tokens.
    """
    from sublayer.study.definition import split_words

    sources, settings = split_words(source, words)
    print_result(plan(sources, settings, **options), as_json)
