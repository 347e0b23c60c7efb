"""A translator so small that it learns a few words within seconds, and texts of such words."""

from sublayer.api.run import train

TINY = {"data.moses": "none", "data.context": 32, "model.n_layers": 1, "model.d_model": 32}
TINY |= {"model.d_ff": 32, "model.dropout": 0.0, "model.dropout_attention": 0.0}
TINY |= {"model.dropout_ffn": 0.0, "optimizer.warmup_steps": 30, "optimizer.clip_norm": 1.0}
TINY |= {"train.steps": 150, "train.batch_tokens": 320, "train.evaluate_steps": 50}
TINY |= {"train.precision": "float32", "train.threads": 1}


def train_translator(folder, **settings):
    """Train on ``a.en`` and ``a.de`` of a folder and return the run in it."""
    paths = {"data.source_path": str(folder / "a.en"), "data.target_path": str(folder / "a.de")}
    given = {name.replace("__", "."): value for name, value in settings.items()}
    train("multi30k-tiny", {**TINY, **paths, **given}, out=folder / "run")
    return folder / "run"


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))


def write_pair(folder, sources, targets):
    write_lines(folder / "a.en", sources)
    write_lines(folder / "a.de", targets)


def sentences(words, n, longest):
    places = [[(i // 7 + i * j) % 7 for j in range(1, 2 + i % longest)] for i in range(n)]
    return [" ".join(words[place] for place in each) for each in places]
