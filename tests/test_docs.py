"""README, CONTRIBUTING, docs, notebook: commands, code, links, names, and what a reader does."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import namedtuple
from itertools import takewhile
from pathlib import Path
from runpy import run_path

import pytest
from tokenizers import ByteLevelBPETokenizer

import sublayer
from sublayer.cli import main as cli
from sublayer.config.load import load_recipe
from sublayer.config.messages import choices_of
from sublayer.config.model import FFNS
from sublayer.config.optimizers import OPTIMIZERS
from sublayer.config.plugins import load_plugins
from sublayer.config.recipe import OBJECTIVES, TABLES, declaration, declarations, keys
from sublayer.config.train import BATCHES, LENGTHS
from sublayer.errors import SublayerError
from sublayer.interop.huggingface import export_huggingface
from sublayer.study.definition import find_study, is_run, load_asked, load_study, split_words
from sublayer.suite.file import read_suite
from sublayer.tasks.registry import TASKS
from tests.commands.results import unwrapped
from tests.commands.reviews import reviews, write_csv
from tests.interop.answering import model_for
from tests.interop.tiny import tiny
from tests.stories import write_stories
from tests.task_files import write_rte, write_squad, write_sst2

PROJECT = Path(__file__).resolve().parent.parent
PAGES = [PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "AGENTS.md")]
PAGES += sorted(PROJECT.glob("docs/*.md"))
Command = namedtuple("Command", "page line shown")
"""A command line of a page; ``shown`` is what the page says it prints, or None."""


def blocks(page, language):
    return [block for _, block in _fenced(page, language)]


def inline_code(page):
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", prose)


def commands(*pages):
    """Read the commands of pages, in order: ``sh``, and transcripts of ``console``."""
    for page in pages:
        for language, block in _fenced(page, "sh|console"):
            block = re.sub(r" *\\\n *", " ", block)
            if language == "console":
                first, *shown = block.splitlines()
                yield Command(page.name, first.removeprefix("$ "), tuple(shown))
            else:
                for line in block.splitlines():
                    yield Command(page.name, line.partition("  #")[0].strip(), None)


def _fenced(page, languages):
    found = rf"^```({languages})\n(.*?)^```$"
    return re.findall(found, page.read_text(), flags=re.MULTILINE | re.DOTALL)


DOCS = PROJECT / "docs"
NOTEBOOK = json.loads((PROJECT / "examples" / "first-hour.ipynb").read_text(encoding="utf-8"))
CELLS = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
NOT_FIELDS = {"train.c", "train.csv", "train.data", "train.gold", "train.jsonl", "train.tsv"}
NOT_FIELDS |= {"train.json", "model.embed", "model.embed_tokens", "model.fill", "model.safetensors"}
NOT_FIELDS |= {"model.onnx"}
NOT_FIELDS |= {f"{table}.py" for table in TABLES}
SUBLAYER = [command for command in commands(*PAGES) if command.line.startswith("sublayer ")]
TRANSCRIPTS = [command for command in SUBLAYER if command.shown is not None]
EXAMPLES = [Command(name, cli.command_of(name).example, ()) for name in cli.COMMANDS]
FEW = '"train.steps": 2, "train.threads": 1, "train.precision": "float32"'
FEW_ROWS = f'"train.batch_sequences": 2, {FEW}'
ONE_LAYER = '"model.n_layers": 1, "model.d_model": 16, "model.n_heads": 2'
SMALLER = {
    '"model.d_model": 64, "train.steps": 200': f'"model.d_model": 16, {FEW_ROWS}',
    'settings = {"model.n_layers": 2': 'settings = {"data.path": "book.txt", "model.n_layers": 2',
    '"book.txt", "train.minutes": 2}': f'"book.txt", "data.vocab_size": 150, {FEW_ROWS}}}',
    '{"train.epochs": 1}': f"{{{ONE_LAYER}, {FEW}}}",
    '"train.minutes": 2, "opt': f'"data.vocab_size": 100, "train.batch_tokens": 512, {FEW}, "opt',
}
"""Lengths and sizes that the pages show, and what takes seconds."""
WITH_LINKS = ("*.md", "docs/*.md", "benchmarks/**/*.md", "records/*/*.md", "tests/**/*.md")
GENERATED = [f"reference/{it}.md" for it in ("fields", "commands", "devices", "records", "tasks")]
"""What ``docs/generate.py`` writes; the build of the site checks links to it."""


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    for page in PAGES:
        for block in blocks(page, "toml"):
            name = re.match(r"# (\S+\.toml)\n", block)
            assert name, f"{page.name}: a recipe is shown without its file's name"
            (tmp_path / name[1]).write_text(block)
    shutil.copytree(PROJECT / "examples" / "scores", tmp_path / "scores")
    shutil.copy(PROJECT / "examples" / "mish.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_the_pages_show_every_command_and_every_command_an_example(workplace):
    assert {command.line.split()[1] for command in SUBLAYER} >= set(cli.COMMANDS)
    assert len(TRANSCRIPTS) >= 5
    assert [example.line.split()[1] for example in EXAMPLES] == list(cli.COMMANDS)
    assert [error for example in EXAMPLES for error in mistakes(example)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_commands_fields_and_paths_that_exist(page, workplace):
    assert [error for command in commands(page) for error in mistakes(command)] == []
    code = inline_code(page)
    named = re.findall(rf"(?<![\w/])(?:{'|'.join(TABLES)})\.[a-z_]+\b", "\n".join(code))
    assert [key for key in sorted({*named} - NOT_FIELDS) if not declarations(key)] == []
    paths = [each for each in code if re.fullmatch(r"(sublayer|tests|docs|benchmarks)/\S*", each)]
    assert [path for path in paths if not (PROJECT / path).exists()] == []
    # A site shows a line of `console` without a prompt as output; commands alone are `sh`.
    assert [block for block in blocks(page, "console") if not block.startswith("$ ")] == []
    places = re.findall(r"(?<![\w.])/(?:home|root|tmp|Users|work|mnt)/\S*", page.read_text())
    assert places == [], "a path of one machine"


def mistakes(command):
    words = shlex.split(command.line)
    if words[:1] != ["sublayer"] or words[1].startswith("-"):
        return []
    try:
        check(words[1:], is_transcript=command.shown is not None)
    except SublayerError as error:
        return [f"{command.line}: {error}"]
    return []


def check(words, *, is_transcript):
    parser = cli.group_with(words[0]).commands[words[0]]
    words = list(takewhile(lambda word: word not in ("<", ">", "|"), words))
    values = parser.make_context(words[0], words[1:]).params if "--help" not in words else {}
    source, settings = values.get("source") or values.get("recipe"), values.get("settings")
    load_plugins(values.get("plugins") or ())
    if words[0] in ("plan", "compare"):
        settings = values.get("words")
    if source is None or settings is None or is_transcript:
        return
    # A run that a reader would have by then stands for the recipe that it came from.
    source = "gpt" if source.startswith("runs/") else str(source)
    settings = [setting for setting in settings if not setting.startswith("init.run=")]
    if words[0] in ("plan", "compare"):
        sources, settings = split_words(source, settings)
        if not any(is_run(each) or each.startswith("runs/") for each in sources):
            load_asked(sources, settings, vary_texts=values.get("vary") or [])
    else:
        load_recipe(source, settings)


@pytest.mark.parametrize("command", TRANSCRIPTS, ids="{0.page}: {0.line}".format)
def test_a_command_prints_what_is_shown(command, workplace, capsys):
    cli.main(shlex.split(command.line)[1:])
    out, err = capsys.readouterr()
    # "..." stands for lines, an ellipsis for the rest of one: what differs from machine to machine.
    lines = (re.escape(line).replace("…", ".*") + r"\n" for line in command.shown)
    pattern = "".join(lines).replace(r"\.\.\.\n", r"(?:.*\n)*")
    printed = (out + err).replace("\N{NO-BREAK SPACE}", " ")
    assert re.fullmatch(pattern, printed), f"{command.line} prints:\n{printed}"


def test_make_has_every_target_that_is_shown():
    targets = set(re.findall(r"(?m)^([a-z0-9-]+):", (PROJECT / "Makefile").read_text()))
    lines = [command.line.split() for command in commands(*PAGES)]
    assert {"demo", "test"} <= {words[1] for words in lines if words[0] == "make"} <= targets


def test_the_files_that_are_shown_are_recipes_studies_and_suites(workplace):
    for path in workplace.glob("*.toml"):
        if path.name == "suite.toml":
            assert read_suite(path).title
        elif find_study(path.name):
            assert len(load_study(path.name).arms) >= 2
        else:
            assert load_recipe(path.name).recipe.title


def test_the_page_of_plugins_shows_the_shipped_example():
    example = (PROJECT / "examples" / "mish.py").read_text()
    assert blocks(DOCS / "own-rows.md", "python") == [example]


def test_the_readme_has_the_speeds_of_the_benchmarks():
    text = (PROJECT / "README.md").read_text()
    section = text.partition("| | ")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if re.search(r"\| [\d. to]+ \|", line)]
    speeds = re.findall(r"\b\d\.\d\d\b", "\n".join(row for row in rows if "| ---" not in row))
    measured = (PROJECT / "benchmarks" / "README.md").read_text()
    assert len(speeds) > 20
    assert [speed for speed in speeds if speed not in measured] == []


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_pages_name_all_kinds_of_models(page):
    introduction = unwrapped((PROJECT / page).read_text().partition("\n## ")[0].lower())
    kinds = list(choices_of(declaration("model.kind").annotation))
    assert [kind for kind in kinds if re.search(rf"(?<!-)\b{kind}s?\b", introduction)] == kinds


def rows(page, heading):
    section = (DOCS / page).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return sorted(re.findall(r"^\| `([\w-]+)` \|", section, flags=re.MULTILINE))


def test_the_pages_name_every_choice_package_and_public_name():
    positions = choices_of(declaration("model.positions").annotation)
    assert rows("model.md", "Feed-forward networks") == sorted(FFNS)
    assert rows("model.md", "Positions") == sorted(positions)
    assert rows("training.md", "Objectives") == sorted(OBJECTIVES)
    named = re.search(r"`optimizer.kind` is ([^;]*);", (DOCS / "training.md").read_text())
    assert sorted(re.findall(r"`([\w-]+)`", named[1])) == sorted(OPTIMIZERS)
    package = PROJECT / "sublayer"
    files = [path for kind in ("py", "toml") for path in package.rglob(f"*/*.{kind}")]
    packages = {f"{path.parent.relative_to(PROJECT).as_posix()}/" for path in files}
    modules = {f"sublayer/{path.name}" for path in package.glob("*.py")} - {"sublayer/__main__.py"}
    assert (packages | modules) - set(inline_code(PROJECT / "CONTRIBUTING.md")) == set()
    words = set(re.findall(r"[A-Za-z_]+", " ".join(inline_code(DOCS / "python.md"))))
    assert set(sublayer.__all__) - words == {"__version__"}


def test_the_reference_has_every_field_command_task_and_record():
    page = run_path(DOCS / "generate.py")
    fields, shown, tasks = (page[f"{name}_page"]() for name in ("fields", "commands", "tasks"))
    assert [key for key in keys() if f"### `{key}`\n" not in fields] == []
    assert [name for name in cli.COMMANDS if f"## {name}\n" not in shown] == []
    assert [task.title for task in TASKS.values() if f" | {task.title} | " not in tasks] == []
    pages = "\n".join(path.read_text() for path in PROJECT.glob("docs/*.md"))
    for record in sorted(PROJECT.glob("records/*/")):
        assert f"](reference/records.md#{record.name})" in pages, record
        section = page["records_page"]().partition(f"\n## {record.name}\n")[2]
        section = section.partition("\n## ")[0]
        assert re.search(r"^\| .*\d", section, flags=re.MULTILINE), f"no result of {record}"
        assert "### What does not follow" in section, record


def test_the_page_of_claims_says_what_the_records_are_judged_to_say_today():
    page = run_path(DOCS / "claims.py")
    assert page["claims_page"]() == (DOCS / "claims.md").read_text(), "run python docs/claims.py"
    texts = [path.read_text() for path in DOCS.glob("*.md")]
    assert [page["with_tables"](text) for text in texts] == texts, "run python docs/claims.py"
    asked = tomllib.loads((PROJECT / "records" / "claims.toml").read_text())
    for claim in asked["claim"]:
        if "study" in claim.get("not_run", {}):
            load_study(claim["not_run"]["study"], scale=claim["not_run"]["scale"])
    judge_again = run_path(PROJECT / "benchmarks" / "judge_again.py")["judge_again"]
    for results in PROJECT.glob("records/*/results.json"):
        kept = json.loads((results.parent / "judged.json").read_text())["differences"]
        judged = judge_again(results.parent, asked["record"].get(results.parent.name, {}))
        for then, now in zip(kept, judged["differences"], strict=True):
            assert then["verdict"] == now["verdict"], (results.parent.name, now["arm"])
            for end in ("mean", "low", "high") if now["low"] is not None else ("mean",):
                assert then[end] == pytest.approx(now[end], rel=1e-3)


def test_the_site_asks_nothing_of_other_servers(tmp_path):
    for folder in ("docs", "records"):
        shutil.copytree(PROJECT / folder, tmp_path / folder)
    shutil.copy(PROJECT / "zensical.toml", tmp_path)
    subprocess.run([sys.executable, "docs/generate.py"], cwd=tmp_path, check=True)
    build = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    built = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    text = "\n".join(page.read_text() for page in (tmp_path / "site").rglob("*.html"))
    loaded = r"<(?:link|script|img|iframe|source)\b[^>]*\b(?:href|src)=[\"']?(?:https?:)?//[^>]*>"
    assert len(text) > 10_000 and re.findall(loaded, text) == []


def run_python(code, folder):
    environment = {"SUBLAYER_CACHE": str(folder / "cache"), "PYTHONPATH": str(PROJECT)}
    given = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", code], **given)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page, n_smaller, last", [
    ("README.md", 2, r"ffn=swiglu \S+ \S+ (better|worse|cannot tell)"),
    ("docs/judging.md", 0, r'\{"look": 5, .*'),
    ("docs/python.md", 4, "stride 0 is too small: give at least 1"),
])  # fmt: skip
def test_the_python_of_a_page_runs_in_order(tmp_path, page, n_smaller, last):
    text = "It was a bright cold day, and the clocks were striking.\nNobody knew why the harbour "
    text += "was empty.\nShe read the letter twice and said nothing.\n"
    for name in ("book.txt", "train.en", "train.de"):
        (tmp_path / name).write_text(text * 200)
    write_csv(tmp_path / "my.csv", reviews(40))
    code = "\n".join(blocks(PROJECT / page, "python"))
    assert sum(whole in code for whole in SMALLER) == n_smaller
    for whole, small in SMALLER.items():
        code = code.replace(whole, small)
    assert re.fullmatch(last, run_python(code, tmp_path).splitlines()[-1])


@pytest.mark.pages
def test_the_cells_of_the_notebook_run_in_order(tmp_path):
    code = "\n".join("".join(cell["source"]) for cell in CELLS)
    assert "steps = 300" in code
    run_python(code.replace("steps = 300", "steps = 3"), tmp_path)


def test_the_notebook_is_kept_as_it_ran():
    assert [cell["execution_count"] for cell in CELLS] == list(range(1, len(CELLS) + 1))
    assert '"text/html"' in json.dumps([cell["outputs"] for cell in CELLS])
    assert not re.search(r"/(?:home|root|tmp|work)/", json.dumps(NOTEBOOK))


def prose(page):
    fenced = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]+`", lambda code: code[0].replace("](", "] ("), fenced)


def broken(page):
    found = []
    for link in re.findall(r"\]\((?!https?://|mailto:)([^)\s]+)\)", prose(page)):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if target in [DOCS / each for each in GENERATED]:
            continue
        if not target.exists():
            found.append(f"{link}: there is no such file")
        elif anchor:
            headings = re.findall(r"^#{1,6} +(.+?) *$", prose(target), flags=re.MULTILINE)
            plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
            if anchor not in {re.sub(r"\s", "-", heading) for heading in plain}:
                found.append(f"{link}: there is no such heading")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_fits_a_column_and_no_sentence_has_it_for_a_subject(page):
    code = [line for block in blocks(page, "sh|bash|toml|py|python") for line in block.splitlines()]
    code += [block.partition("\n")[0] for block in blocks(page, "console")]
    assert [line for line in code if len(line) > 82] == []
    assert re.findall(r"^```\n\n[a-z].*", page.read_text(), flags=re.MULTILINE) == []


def test_every_link_leads_to_a_file_and_a_heading():
    linked = (page for pattern in WITH_LINKS for page in PROJECT.glob(pattern))
    assert [(page, links) for page in linked if (links := broken(page))] == []


def test_the_menu_of_the_documentation_names_every_page_once_in_seven_groups():
    groups = tomllib.loads((PROJECT / "zensical.toml").read_text())["project"]["nav"]
    assert [type(pages) for group in groups for pages in group.values()] == [list] * 7
    menu = json.dumps(groups)
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.glob("*.md")]
    assert sorted(re.findall(r'"([\w/-]+\.md)"', menu)) == sorted([*pages, *GENERATED])


_STEPS = 4
_LENGTHS = tuple(f"train.{name}=" for name in LENGTHS)
_MODEL = {"n_layers": 2, "n_decoder_layers": 2, "d_model": 32, "n_heads": 2, "d_head": 16}
_TUNED = {"n_layers": 1, "d_model": 32, "n_heads": 2}
_WIDTHS = {"d_ff": 48, "d_embed": 16}


def shrink(words):
    """Return a command's words with a length, a model and a batch that take a moment."""
    if words[0] == "demo":
        return ["compare", "demo", *_shortened([]), "--seeds", "1"]
    if words[0] == "finetune":
        return _tuned(words)
    if words[0] not in ("train", "compare"):
        return list(words)
    names = list(takewhile(lambda word: "=" not in word and not word.startswith("-"), words[1:]))
    is_many = len(names) > 1 or "--branch-decay" in words
    if is_many and names[0].startswith("runs/"):
        return list(words)  # runs that have ended are compared, and branch, as they are
    kept, settings, options = [words[0], *names], [], []
    for word in words[len(kept) :]:
        is_value = options[-1:] in (["--vary"], ["--tune"])
        is_setting = "." in word.partition("=")[0] and "=" in word and not is_value
        (settings if is_setting else options).append(word)
    if words[0] == "compare" and find_study(words[1]) is not None:
        few = [] if "--seeds" in options else ["--seeds", "1"]
        scale = options[options.index("--scale") + 1] if "--scale" in options else None
        if load_study(words[1], scale=scale).chain is not None:
            few += ["--finetunings", "1", f"finetune.train.steps={_STEPS}"]
        return [*kept, *_shortened(settings), "train.batch_sequences=4", *options, *few]
    if words[1].startswith("runs/") and "--resume" in options:
        others = [each for each in settings if not each.startswith(_LENGTHS)]
        return [*kept, *others, *([f"train.steps={2 * _STEPS}"] if settings else []), *options]
    if words[1].startswith("runs/") or any(each.startswith("init.run") for each in settings):
        return [*kept, *_shortened(settings), *options]
    loaded = load_recipe(words[1], settings)
    return [*kept, *_shortened(settings), *_small_model(loaded, settings), *options]


def _tuned(words):
    settings = [word for word in words[1:] if "=" in word]
    others = [word for word in words[1:] if "=" not in word]
    small = [] if others[0].startswith("runs/") else [f"model.{k}={v}" for k, v in _TUNED.items()]
    warmup = ["optimizer.warmup_steps=1"] if "--preset" in others else []
    return ["finetune", *others, *_shortened([*settings, *warmup]), *small]


def _shortened(settings):
    few = {"train.steps": _STEPS, "train.evaluate_steps": _STEPS, "train.checkpoint_steps": 1}
    few |= {"train.threads": 1, "train.precision": "float32", "train.evaluate_tokens": 1024}
    if any(each.startswith("optimizer.warmup_steps=") for each in settings):
        few["optimizer.warmup_steps"] = 1
    others = [each for each in settings if not each.startswith(_LENGTHS)]
    kept = [each for each in others if each.partition("=")[0] not in few]
    return [*kept, *(f"{key}={value}" for key, value in few.items())]


def _small_model(loaded, settings):
    recipe = loaded.recipe
    small = {}
    for name, value in {**_MODEL, **_WIDTHS}.items():
        current = getattr(recipe.model, name)
        if current is not None and current > value:
            small[f"model.{name}"] = value
    if (getattr(recipe.optimizer, "warmup_steps", None) or 0) > _STEPS:
        small["optimizer.warmup_steps"] = 1
    small["data.context"] = min(recipe.data.context, 32)
    if recipe.data.vocab_size is not None:
        small["data.vocab_size"] = min(recipe.data.vocab_size, 400)
    for name in BATCHES:
        if getattr(recipe.train, name) is not None:
            small[f"train.{name}"] = 4 if name == "batch_sequences" else 256
    given = {each.partition("=")[0] for each in settings}
    return [f"{key}={value}" for key, value in small.items() if key not in given]


NOT_HERE = (
    "sublayer import gpt1-numpy downloads/",
    "sublayer export runs/first --to hub:", "sublayer import huggingface hub:",
    "sublayer import fairseq downloads/", "sublayer tokenize data/bpe.codes",
    # Up to 64 layers, or some thirty arms, each at several rates; a cluster.
    "sublayer compare modifications-2026", "sublayer plan modifications-2026 --measure",
    "sublayer compare char-depth", "sublayer plan char-depth --scale cpu --measure",
    "sublayer compare --on",
)  # fmt: skip
"""Beginnings of commands that need published files, what else this project cannot make, or long."""
_BOOK = "sublayer train gpt data.path=book.txt train.steps=200 --out runs/book"
_LETTERS = "sublayer train albert-small data.path=letters"
_APART = f"{_LETTERS} model.share=none --out runs/apart"
BEFORE = {
    **dict.fromkeys(("data.md", "evaluating.md", "runs.md"), (_BOOK,)),
    "exchanging.md": ("sublayer train gpt train.steps=200 --out runs/first",),
    "finetuning.md": (f"{_LETTERS} train.steps=200 --out runs/albert-small",),
    "generating.md": (_BOOK, "sublayer train t5-mini data.path=books --out runs/t5"),
    "inspecting.md": (_BOOK, _APART, f"{_LETTERS} --out runs/shared"),
}
"""What the reader of a page has done before, on the page that it names."""
_EVERY_LETTER = "The quick brown fox jumps over the lazy dog. She said nothing."
_SHOWN = [page for page in PAGES if page.name not in ("CONTRIBUTING.md", "CHANGELOG.md")]


@pytest.fixture
def readers_folder(workplace, monkeypatch):
    tmp_path, letters = workplace, workplace / "letters"
    letters.mkdir()
    write_stories(letters)
    for path in letters.iterdir():
        sentences = map(str.capitalize, path.read_text().splitlines())
        path.write_text("".join(f"{each}\n" for each in sentences))
    documents = [path.read_text().splitlines() for path in sorted(letters.iterdir())]
    book = "\n\n".join("\n".join(document) for document in documents)
    (tmp_path / "book.txt").write_text(f"{book}\nIt was the end.\n")
    (tmp_path / "notes.txt").write_text(f"{book[: len(book) // 2]}\n")
    (tmp_path / "race").mkdir()
    for name, field in (("letters.jsonl", "text"), ("race/test.jsonl", "article")):
        lines = (json.dumps({field: " ".join(document)}) for document in documents)
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    write_rte(tmp_path / "glue")
    write_sst2(tmp_path / "glue", {"train": 60, "dev": 20, "test": 8})
    write_squad(tmp_path / "squad")
    write_csv(tmp_path / "my.csv", reviews(60))
    write_csv(tmp_path / "new.csv", reviews(5, seed=1))
    pairs = [f"{n} a letter\t{n} ein Brief\n" for n in range(60)]
    (tmp_path / "pairs.tsv").write_text("en\tde\n" + "".join(pairs))
    (tmp_path / "new.tsv").write_text("en\na letter\n")
    shutil.copytree(letters, tmp_path / "books")
    for path in (tmp_path / "books").iterdir():
        path.write_text(f"{path.read_text()}{_EVERY_LETTER}\n")
    lines = [sentence for document in documents for sentence in document]
    for name, text in {"train.en": lines, "train.de": lines, "captions.en": lines[:5]}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in text))
    _save_downloads(tmp_path / "downloads")
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))


def _save_downloads(folder):
    for name in ("gpt2", "bert-base-uncased", "albert-base-v2"):
        tiny(name.partition("-")[0], vocab_size=256).save(folder / name)
    export_huggingface(model_for("bert", TASKS["rte"]), folder / "bert-base-rte")
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([], vocab_size=256, show_progress=False)
    tokenizer.save(str(folder / "gpt2" / "tokenizer.json"))


@pytest.mark.pages
@pytest.mark.parametrize("page", _SHOWN, ids=lambda page: page.name)
@pytest.mark.usefixtures("readers_folder")
def test_the_commands_of_a_page_run_in_their_order(page, capsys):
    lines = [command.line for command in commands(page) if command.shown is None]
    for line in (*BEFORE.get(page.name, ()), *lines):
        if line.startswith(("sublayer ", "torchrun ")) and not line.startswith(NOT_HERE):
            _run(line, capsys)


def _run(line, capsys):
    words = shlex.split(line)
    if words[0] == "sublayer" and not {"<", ">"} & set(words):
        code = cli.main(shrink(words[1:]))
        printed = capsys.readouterr()
        assert code == cli.DONE, f"{shlex.join(shrink(words[1:]))}\n{printed.out}\n{printed.err}"
        return
    streams = {}
    for sign in {"<", ">"} & set(words):
        at = words.index(sign)
        streams[sign] = words[at + 1]
        del words[at : at + 2]
    at = words.index("sublayer")
    launcher = ["torch.distributed.run", *words[1:at]] if words[0] == "torchrun" else []
    command = [sys.executable, "-m", *launcher, "sublayer", *shrink(words[at + 1 :])]
    with Path(streams.get("<", os.devnull)).open("rb") as given:
        ended = subprocess.run(command, stdin=given, capture_output=True, check=False)
    if ">" in streams:
        Path(streams[">"]).write_bytes(ended.stdout)
    said = f"{shlex.join(command)}\n{ended.stdout.decode()}\n{ended.stderr.decode()}"
    assert ended.returncode == cli.DONE, said


@pytest.mark.pages
@pytest.mark.usefixtures("readers_folder")
def test_the_examples_of_the_commands_run_in_an_order(capsys):
    examples = {example.page: example.line for example in EXAMPLES}
    del examples["completion"]  # which changes the shell of whoever runs this
    first = ("train", "compare", "recipes", "fields", "plan", "tokenize", "import")
    _run("sublayer train multi30k-tiny data.source_path=train.en data.target_path=train.de", capsys)
    _run(_LETTERS, capsys)
    _run("sublayer finetune albert-small my.csv --text review --label stars", capsys)
    for name in (*first, *(name for name in examples if name not in first)):
        _run(examples[name], capsys)


def test_what_cannot_be_run_here_is_on_a_page():
    text = "\n".join(command.line for command in commands(*_SHOWN))
    assert [beginning for beginning in NOT_HERE if beginning not in text] == []
