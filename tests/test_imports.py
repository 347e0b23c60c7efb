"""The package as a whole: its imports, its names, what it declares and what it is slow to load."""

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import sublayer

PROJECT = Path(__file__).resolve().parent.parent
PYDANTIC = {"field_validator", "model_validator"}
CALLED_BY_OTHERS = {
    "__getattr__": "Python, for the public names of `sublayer`",
    "__dir__": "Python, for the public names of `sublayer`",
    "import_": "the command line, for the command of that name",
    "format_options": "typer, for the help of a command",
    **dict.fromkeys(("source_vars", "get_completion_args", "format_completion"), "typer"),
    "encode_target": "who scores translations of their own; the twin of `encode_source`",
    "Norm": "plugins", "ticks": "the template of the forest plot",
    "reset_parameters": "PyTorch's LSTM, as it is built", "writable": "what prints on a stream",
}  # fmt: skip
"""Names that nothing here refers to, and who does."""
TINY = {"model.n_layers": 1, "model.d_model": 16, "model.n_heads": 2, "data.context": 16}
TINY |= {"train.steps": 1, "train.batch_sequences": 2, "train.precision": "float32"}


def read_package():
    texts = {}
    for path in sorted((PROJECT / "sublayer").rglob("*.py")):
        parts = path.relative_to(PROJECT).with_suffix("").parts
        texts[".".join(parts).removesuffix(".__init__")] = path.read_text()
    return texts


def imported(text, modules):
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            for each in node.names:
                member = f"{node.module}.{each.name}"
                found.add(member if member in modules else str(node.module))
    return found & set(modules)


def test_no_files_import_each_other():
    texts = read_package()
    attention = "sublayer.model.kernels.attention"
    assert attention in imported(texts["sublayer.model.blocks"], texts)
    imports = {module: imported(text, texts) - {module} for module, text in texts.items()}
    TopologicalSorter(imports).prepare()  # raises CycleError


def definitions(tree):
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (each.name for each in node.body if is_method(each))
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (each.id for each in targets if isinstance(each, ast.Name))


def is_method(node):
    if not isinstance(node, ast.FunctionDef) or re.fullmatch("__.*__", node.name):
        return False
    return not PYDANTIC & {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def uses(tree):
    """Names that are read, imported, or looked up by their text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A class may be named with its module or title, as ``module:class``, also among others.
            yield node.value
            yield from (word.rpartition(":")[2] for word in node.value.split() if ":" in word)


def test_all_definitions_are_used_here_or_by_others():
    trees = [ast.parse(source) for source in read_package().values()]
    known = {use for tree in trees for use in uses(tree)}
    defined = {name for tree in trees for name in definitions(tree)}
    assert defined - known == set(CALLED_BY_OTHERS)


@pytest.mark.parametrize("code, slow_ones", [
    ("import sublayer", "torch pydantic numpy"),
    ("import sublayer.runs.run", "scipy.stats matplotlib tensorboardX torch._dynamo"),
    ("run('--help')", "torch pydantic numpy scipy rich matplotlib"),
    ("run('runs', 'tests/golden/old', '--json')", "torch"),
    ("run('judge', *('examples/scores/' + name for name in ('base.csv', 'new.csv')))", "torch"),
    ("run('export', '--help')", "torch"), ("run('import', '--help')", "torch"),
    ("os.environ['_SUBLAYER_COMPLETE'] = 'zsh'; run('compare', 'gpt', '')", "torch"),
])  # fmt: skip
def test_slow_libraries_wait_until_they_are_needed(code, slow_ones):
    program = "import os, sys; from sublayer.cli.main import main\n"
    program += "def run(*words): assert main(words) == 0\n"
    program += f"{code}; print(set({slow_ones.split()}) & set(sys.modules), file=sys.stderr)"
    assert run_program(program).stderr == "set()\n"


NAMELESS = """
    train nosuch; train gpt model.d_modle=3; finetune gpt nosuch; compare nosuch; compare gpt nosuch
    compare gpt --vary model.ffm=gelu,swiglu; export nosuch out; report nosuch; translate nosuch
    generate nosuch --prompt a; fill nosuch --text a; predict nosuch new.csv; evaluate nosuch
    evaluate nosuch --probes cola; embed nosuch new.txt --out v.npy; inspect layers nosuch
    inspect splitting nosuch; inspect paths nosuch
    """


TAKEN = """
    train gpt --out notes; train gpt --out run
    finetune gpt new.csv --text text --label label --out run
    finetune gpt new.csv --text text --label label --seeds 2 --out seeds
    """


@pytest.mark.parametrize("mistakes", [NAMELESS, TAKEN], ids=["names of nothing", "taken folders"])
def test_mistaken_names_are_refused_in_one_line_before_pytorch_is_loaded(mistakes, tmp_path):
    (tmp_path / "new.csv").write_text("text,label\na,b\n")
    (tmp_path / "new.txt").write_text("text\na\n")
    for name in (
        "notes/a.txt",
        "run/recipe.toml",
        "seeds/seed-0/scores.json",
        "seeds/seed-1/recipe.toml",
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    lines = [words.split() for words in mistakes.replace("\n", ";").split(";") if words.strip()]
    program = f"import os, sys; os.chdir({str(tmp_path)!r}); from sublayer.cli.main import main\n"
    program += f"codes = [main(words) for words in {lines}]\n"
    program += "print(set(codes), 'torch' in sys.modules)"
    done = run_program(program)
    assert done.stdout == "{2} False\n"
    assert len(done.stderr.splitlines()) == len(lines)


def test_one_process_trains_without_the_compiler_and_what_several_need(tmp_path):
    (tmp_path / "text.txt").write_text("the cat saw another dog on a mat while it rained\n" * 40)
    slow_ones = {"torch._dynamo", "torch.distributed.tensor", "torch.onnx", "scipy", "sympy"}
    slow_ones |= {"sublayer.study", "sublayer.statistics"}
    settings = {"data.path": str(tmp_path / "text.txt"), "data.tokenizer": "bytes", **TINY}
    code = f"""
import sys, sublayer
for kind in ("sgd", "adam", "adamw", "lamb", "adafactor", "muon", "schedule-free", "lion"):
    settings = {settings} | {{"optimizer.kind": kind}}
    repr(sublayer.train("gpt", settings, out={str(tmp_path)!r} + "/" + kind, device="cpu"))
print({slow_ones} & set(sys.modules), file=sys.stderr)
"""
    assert run_program(code).stderr.endswith("set()\n")


def run_program(code):
    words = [sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, check=True, cwd=PROJECT)


def test_every_library_that_is_imported_is_declared(monkeypatch):
    # PyTorch's compiler imports setuptools, which adds the folder of its copies to the path.
    places = [place for place in sys.path if not place.endswith("_vendor")]
    monkeypatch.setattr(sys, "path", places)
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = sum((extras[key] for key in extras if key != "dev"), project["dependencies"])
    names = {canonical_name(re.match(r"[\w.-]+", row)[0]) for row in declared}
    known = packages_distributions()
    found = {name for text in read_package().values() for name in libraries(text)}
    # compression is Python's own from 3.14 on.
    foreign = found - sys.stdlib_module_names - {"sublayer", "_typeshed", "compression"}
    needed = {canonical_name(each) for name in foreign for each in known.get(name, [name])}
    # jinja2 brings MarkupSafe; where transformers is installed, it checks exports.
    assert needed - names == {"llama-cpp", "markupsafe", "transformers"}


def libraries(text):
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names):
                yield from (each.name.partition(".")[0] for each in names)
            case ast.ImportFrom(module, _, 0):
                yield module.partition(".")[0]
            case ast.Call(ast.Name("import_module" | "extra_module"), [ast.Constant(name), *_]):
                yield name.partition(".")[0]


def canonical_name(distribution):
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_the_version_is_the_same_everywhere():
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert sublayer.__version__ == version
    assert f'\nversion: "{version}"\n' in (PROJECT / "CITATION.cff").read_text()
    assert f"\n## [{version}]\n" in (PROJECT / "CHANGELOG.md").read_text()
    assert (PROJECT / "sublayer" / "py.typed").is_file()


def test_public_functions_can_be_called_whichever_module_was_imported_first():
    code = """
import sublayer
names = ("load", "from_recipe", "train", "compare")
functions = [getattr(sublayer, name) for name in names]
import sublayer.loading, sublayer.training.loop as loop
assert loop.__name__ == "sublayer.training.loop"
print(functions == [getattr(sublayer, name) for name in names], *map(callable, functions))
"""
    assert run_program(code).stdout.split() == ["True"] * 5


def test_public_names_are_listed_and_others_are_refused():
    assert set(sublayer.__all__) <= set(dir(sublayer))
    assert [name for name in sublayer.__all__ if not hasattr(sublayer, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sublayer.nothing  # noqa: B018
    files = (PROJECT / "sublayer").glob("*")
    assert set(sublayer.__all__) & {path.stem for path in files} == set()
