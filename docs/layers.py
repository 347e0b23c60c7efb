"""Draw the layers of the packages, by which imports run downwards: ``images/layers.svg``.

``python docs/layers.py``, after a change of the layers in ``pyproject.toml``. A caption is the
first line of a package or module.
"""

import ast
import tomllib
from html import escape
from pathlib import Path

PROJECT = Path(__file__).parent.parent
IMAGE = Path(__file__).parent / "images" / "layers.svg"
_ROW, _WIDTH, _NAMES = 24, 860, 210
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1c2733; }
  .name { font: 600 13px ui-monospace, monospace; }
  .sheet { fill: #ffffff; }
  .layer { fill: #e8eef5; stroke: #b8c6d6; }
  path { stroke: #62748a; fill: none; }
"""


def layers() -> list[list[str]]:
    """Read the layers of the import contract, from the commands down, as names of modules."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [layer.split(" | ") for layer in contract["layers"]]


def caption(module: str) -> str:
    """Return the first line of a module's docstring, without its full stop."""
    path = PROJECT.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].removesuffix(".")


def layers_svg() -> str:
    """Draw a box for each layer, with a line for each of its modules."""
    y, parts = _ROW // 2, []
    for modules in layers():
        height = _ROW * len(modules)
        box = f'x="40" y="{y}" width="{_WIDTH - 52}" height="{height - 3}" rx="4"'
        parts.append(f'<rect class="layer" {box}/>')
        for module in modules:
            name = escape(module.removeprefix("sublayer."))
            parts.append(f'<text class="name" x="52" y="{y + 15}">{name}</text>')
            parts.append(f'<text x="{_NAMES}" y="{y + 15}">{escape(caption(module))}</text>')
            y += _ROW
    bottom = y - 6
    parts.append(
        f'<path d="M20 {_ROW // 2}V{bottom}M14 {bottom - 8}L20 {bottom}L26 {bottom - 8}"/>'
    )
    size = f'width="{_WIDTH}" height="{y + 9}" viewBox="0 0 {_WIDTH} {y + 9}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    title = "<title>The layers of the packages: imports run downwards</title>"
    sheet = f'<style>{_STYLE}</style>\n<rect class="sheet" width="{_WIDTH}" height="{y + 9}"/>'
    return "\n".join([head, title, sheet, *parts, "</svg>", ""])


if __name__ == "__main__":
    IMAGE.write_text(layers_svg(), encoding="utf-8")
