"""Draw the architectures of the papers' recipes: ``images/diagrams/``.

``python docs/diagrams.py``, after a change of a recipe or of how diagrams are drawn.
"""

from pathlib import Path

from sublayer.config.load import load_recipe
from sublayer.diagram import describe, draw_svg

IMAGES = Path(__file__).parent / "images" / "diagrams"
RECIPES = (
    "gpt",
    "macaron",
    "llama-2023",
    "albert-base",
    "bert-base",
    "char-t64",
    "gpt1-lstm",
    "t5-base",
    "t5-v1.1-base",
    "wmt14-base-macaron",
)


def diagram(name: str) -> str:
    """Draw the diagram of a recipe as ``sublayer recipes NAME --diagram --out FILE.svg`` does."""
    return draw_svg(describe(load_recipe(name)))


if __name__ == "__main__":
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in RECIPES:
        (IMAGES / f"{name}.svg").write_text(diagram(name), encoding="utf-8")
