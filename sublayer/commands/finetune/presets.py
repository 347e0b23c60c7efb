"""A preset's figures, as they are said before anything is trained."""

from collections.abc import Iterator

from sublayer.config.layering.finetune import Finetuning
from sublayer.config.layering.overrides import as_setting


def describe_preset(finetuning: Finetuning) -> Iterator[str]:
    """Say in lines what a preset sets and from where, and what of its source no setting can say.

    Settings that were told otherwise are left out.
    """
    preset = finetuning.preset
    yield f"preset {preset.name}: {preset.title}"
    by_source: dict[str, list[str]] = {}
    for figure in finetuning.figures():
        setting = f"{figure.key}={as_setting(figure.value)}"
        by_source.setdefault(figure.source, []).append(setting)
    for source, settings in by_source.items():
        yield f"  {' '.join(settings)} ({source})"
    for line in preset.differs:
        yield f"  not set: {line}"
