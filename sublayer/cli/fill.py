"""``sublayer fill``: the likeliest fillings of a text's masks."""

from typing import Any

from sublayer.api.writing import fill, fill_masks
from sublayer.cli.build import Json, client_of, print_result

EXAMPLE = 'sublayer fill runs/albert-small --text "The [MASK] sat on the mat."'


@client_of(fill)
def command(options: dict[str, Any], as_json: Json = False) -> None:
    """Fill the masks of a text: the likeliest fillings of each, with their probabilities.

    An encoder fills each mask with one token, given that all others are masked. A T5 fills each
    with any number of tokens; the likeliest that a beam of N finds are listed.
    """
    print_result(fill_masks(**options), as_json)
