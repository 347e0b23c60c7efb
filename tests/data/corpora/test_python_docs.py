import ast
import inspect
import json

import pytest

from sublayer.data.corpora.python_docs import python_prose
from sublayer.errors import DataError


@pytest.fixture
def library(tmp_path, monkeypatch):
    monkeypatch.setattr("sublayer.data.corpora.python_docs._LEAST_BYTES", 10)
    root = tmp_path / "lib"
    for name, source in {
        "b.py": '"""About b."""\n'
        'def f():\n    """Indented\n\n        more   \n    """\n'
        '    def g(): "inner"\n',
        "a/__init__.py": 'class A:\n    """Said twice."""\n'
        '    async def f(self):\n        """Said twice."""\n',
        "c.py": 'if 1:\n  class C: "Said twice."\n'
        '  try:\n    def f(): "tried"\n  except E:\n    def f(): "or not"\n',
        "broken.py": 'print "',
        "nothing.py": "x = 1\n",
        "latin.py": b'# coding: latin-1\n"""caf\xe9"""\n',
        "control.py": '"""one \\x01 too"""\n',
        "surrogate.py": '"""lone \\ud800 one"""\n',
        "test/test_a.py": '"""A test."""\n',
        "email/tests/b.py": '"""Another test."""\n',
        "site-packages/x.py": '"""Not the library."""\n',
        "pydoc_data/topics.py": 'topics = {"if": "The if\\n*******\\n", '
        '"else": "Or\\n\\n  else"}\n',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(source if isinstance(source, bytes) else source.encode())
    return root


def test_docstrings_and_topics_are_found_cleaned_and_kept_once(cache, library):
    assert [
        (document.name, document.text.decode()) for document in python_prose(cache, library)
    ] == [
        ("a/__init__.py", "Said twice.\n"),
        ("b.py", "About b.\n\nIndented\n\nmore\n\ninner\n"),
        ("c.py", "tried\n\nor not\n"),
        ("control.py", "one ? too\n"),
        ("latin.py", "café\n"),
        ("surrogate.py", "lone ? one\n"),
        ("topic else", "Or\n\n  else\n"),
        ("topic if", "The if\n*******\n"),
    ]


def test_the_prose_is_cached_until_the_library_changes(cache, library):
    first = python_prose(cache, library)
    cached = next((cache / "prose").iterdir())
    cached.write_text(json.dumps([["only", "this"]]))
    assert [document.text for document in python_prose(cache, library)] == [b"this"]
    (library / "b.py").write_text('"""Something else about b."""\n')
    assert b"Something else about b.\n" in [
        document.text for document in python_prose(cache, library)
    ]
    cached.write_text("[[")
    (library / "b.py").unlink()
    assert len(python_prose(cache, library)) == len(first) - 1


def test_a_damaged_cache_is_made_again(cache, library):
    first = python_prose(cache, library)
    next((cache / "prose").iterdir()).write_text("[[")
    assert python_prose(cache, library) == first


def test_a_python_without_sources_is_refused(cache, tmp_path):
    with pytest.raises(
        DataError, match=r"data.corpus = python: .* has no Python sources to read; give data.path"
    ):
        python_prose(cache, tmp_path)


@pytest.mark.slow
def test_the_prose_of_this_python_is_two_megabytes_of_clean_text(prose_cache):
    documents = {document.name: document.text.decode() for document in python_prose(prose_cache)}
    text = "".join(documents.values())
    assert 1_500_000 < len(text.encode()) < 4_000_000
    assert not any(character < " " and character != "\n" for character in text)
    assert not any(line != line.rstrip() for line in text.split("\n"))
    first = ast.get_docstring(ast.parse(inspect.getsource(inspect)))
    assert first is not None
    assert documents["inspect.py"].startswith(first.splitlines()[0])
    assert len([name for name in documents if name.startswith("topic ")]) > 50
