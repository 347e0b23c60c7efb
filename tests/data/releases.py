"""Small files in the layouts in which corpora are published."""

import io
import tarfile
import zipfile

from sublayer.data.corpora import HELD_OUT, TRAINING

FILES = {
    f"{TRAINING}/news.en-00001-of-00100": b"The first sentence .\n",
    f"{TRAINING}/news.en-00002-of-00100": b"The second sentence .\n",
    f"{HELD_OUT}/news.en.heldout-00000-of-00050": b"A test sentence .\n",
    f"{HELD_OUT}/news.en.heldout-00001-of-00050": b"A held-out sentence .\n",
    f"{HELD_OUT}/news.en.heldout-00002-of-00050": b"Another one .\n",
    f"{HELD_OUT}/news.en-00000-of-00100": b"All that is held out .\n",
    f"{TRAINING}/.svn/entries": b"8\n",
    "README": b"About .\n",
}


def write_release(folder, files=FILES):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def write_archive(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as opened:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))
    return path


def write_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return path
