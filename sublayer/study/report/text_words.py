"""Which text a study is of, and when it was run, in a line."""

from sublayer.counts import count
from sublayer.study.report.number_format import format_quantity
from sublayer.study.results import SIGNATURE, Results, StudyText

_NAMED = 3


def text_line(results: Results) -> str:
    """Name the text, what was trained and scored on, and the date; empty where nothing is known."""
    reproduction = results.reproduction
    parts = []
    text = reproduction.text
    if text is not None and text.names:
        parts.append(f"Text: {_name(text)}")
    if text is not None:
        parts += _sizes(text, results.split if is_scored_on_text(results) else "")
    if signature := reproduction.environment.get(f"{SIGNATURE}{results.metric.name}"):
        parts.append(f"{results.metric.name} by {signature}")
    if reproduction.date:
        parts.append(f"finished on {reproduction.date[:10]}")
    return f"{'; '.join(parts)}." if parts else ""


def is_scored_on_text(results: Results) -> bool:
    """Return whether values are of a split of the text, as those of a chain's tasks are not."""
    return not results.scored_on or "split" in results.scored_on


def _name(text: StudyText) -> str:
    *others, last = text.names[:_NAMED]
    n_more = len(text.names) - _NAMED
    if n_more > 0:
        return f"{', '.join([*others, last])} and {n_more} more"
    return " and ".join([", ".join(others), last]) if others else last


def _sizes(text: StudyText, scored: str) -> list[str]:
    said = []
    trained = "trained on" if scored else "pre-trained on"
    for split, verb in (("train", trained), (scored, f"scored on the {scored} split’s")):
        sizes = text.sizes.get(split, {})
        if "bytes" not in sizes or "documents" not in sizes:
            continue
        documents = count(sizes["documents"], "document")
        size = format_quantity(sizes["bytes"], "B")
        said.append(f"{verb} {documents}, {size}")
    return said
