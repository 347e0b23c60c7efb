"""Run the cells of a notebook in order and keep what they show: ``python examples/execute.py``.

Each cell's last expression is its output, as in Jupyter, which is not needed. The cells run in a
new folder, whose path is left out of the outputs; standard error is not kept.
"""

import ast
import json
import os
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent / "first-hour.ipynb"


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run all code cells of a notebook in this process, and return it with their outputs."""
    names: dict[str, Any] = {}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            shown = _run("".join(cell["source"]), names)
            outputs = [] if shown is None else [_output(shown, count)]
            cell.update(execution_count=count, outputs=outputs)
    return notebook


def _run(source: str, names: dict[str, Any]) -> Any:
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def _output(value: Any, count: int) -> dict[str, Any]:
    html = getattr(value, "_repr_html_", None)
    data = {"text/plain": [repr(value)]} if html is None else {"text/html": [html()]}
    return {
        "output_type": "execute_result",
        "execution_count": count,
        "metadata": {},
        "data": data,
    }


if __name__ == "__main__":
    read = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        ran = execute(read)
    text = json.dumps(ran, indent=1, ensure_ascii=False).replace(f"{folder}/", "")
    NOTEBOOK.write_text(f"{text}\n", encoding="utf-8")
