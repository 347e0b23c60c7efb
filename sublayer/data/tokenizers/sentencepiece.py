"""SentencePiece vocabularies, ALBERT's, T5's and Marian's: trained here, or read from models."""

import base64
import hashlib
import io
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, TextIO
from unicodedata import category

import numpy as np

from sublayer.config.data import check_sentinels
from sublayer.config.table import MOST_SENTINELS
from sublayer.data.tokenizers.base import (
    NO_TEXT,
    SPACE,
    SPECIAL_NAMES,
    RaggedIds,
    Tokenizer,
    after_newline,
    begins_any_word,
    begins_word,
    decode_utf8,
    find_sentinels,
    read_fields,
    read_file,
    read_roles,
    read_value,
    sentinel_name,
)
from sublayer.data.tokenizers.library import read_ids
from sublayer.data.tokenizers.probe import try_file
from sublayer.data.tokenizers.settings import (
    AS_MODEL,
    AS_WRITTEN,
    CONFIG_NAME,
    T5S,
    AddedToken,
    MarkedText,
    Normalization,
    read_settings,
)
from sublayer.errors import ConfigError, DataError, SublayerError
from sublayer.files.arrays import AnyInts, Bools, Ints, TokenIds
from sublayer.system.terminal import note


def open_model(model: bytes, name: str = "the file") -> Any:
    """Load a model into SentencePiece's processor; raise DataError, with ``name``, if damaged.

    It is probed in a child process first: a damaged model can crash its reader.
    """
    from sentencepiece import SentencePieceProcessor

    try_file("sentencepiece", model, f"{name} is not a SentencePiece model, or is damaged")
    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    return processor


def parse_model(model: bytes) -> Any:
    """Parse a model file into SentencePiece's message; raise DataError if it is damaged."""
    messages: Any = import_module("sentencepiece.sentencepiece_model_pb2")
    problems: Any = import_module("google.protobuf.message")
    try:
        return messages.ModelProto.FromString(model)
    except problems.DecodeError:
        raise DataError("its SentencePiece model is damaged") from None


def packed(model: bytes) -> dict[str, str]:
    """Return a model in base64, with its checksum."""
    checksum = hashlib.sha256(model).hexdigest()
    encoded = base64.b64encode(model)
    return {"sha256": checksum, "model": encoded.decode()}


def unpacked(content: Any) -> bytes:
    """Return the model that ``packed`` encoded; raise DataError where it is damaged."""
    fields = read_fields(content, _Packed)
    try:
        model = base64.b64decode(fields.model, validate=True)
    except ValueError as error:
        raise DataError("its SentencePiece model is not base64: it is damaged") from error
    if hashlib.sha256(model).hexdigest() != fields.sha256:
        raise DataError("its SentencePiece model does not match its checksum: it is damaged")
    return model


@dataclass(frozen=True)
class _Packed:
    sha256: str
    model: str


_UNKNOWN_TEXT = " ⁇ ".encode()
"""SentencePiece's text of the unknown id."""
_T5_CLASSES = ("T5Tokenizer", "T5TokenizerFast")
_T5_SENTINELS = 100
"""The default number of sentinels of transformers' class."""


CONTROLS = ("[CLS]", "[SEP]", "[MASK]")
USER_DEFINED = ("(", ")", '"', "-", ".", "–", "£", "€")

_CHARACTER_COVERAGE = 0.99995
_ALL_CHARACTERS = {"character_coverage": 1.0}
_MARK = "\u2585"
_SENTENCES = 10_000_000
_LINE_BYTES = 4192
_LINE_CHARACTERS = _LINE_BYTES // 4
_THREADS = 16


_ALBERT: dict[str, Any] = {
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "control_symbols": list(CONTROLS),
    "user_defined_symbols": list(USER_DEFINED),
}
_T5: dict[str, Any] = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


class _NoRoom(ConfigError):
    """A vocabulary too small for the characters of its text."""


def train_pieces(
    lines: Iterable[str], *, vocab_size: int, sentinels: int = 0, keeps_characters: bool = False
) -> bytes:
    """Train a unigram model on lines; the same lines give the same file, on any machine.

    Ids: ``<pad>`` 0, ``<unk>`` 1, ``[CLS]``, ``[SEP]``, ``[MASK]``, then pieces that are never
    merged with others. With ``sentinels``, which are not in the file but reserved in its size, the
    ids are T5's: ``<pad>`` 0, ``</s>`` 1, ``<unk>`` 2, then pieces. At most ten million lines are
    sampled. A short text gives fewer pieces than ``vocab_size`` less ``sentinels``.
    ``keeps_characters``: without NFKC, and with all of the lines' characters if they fit;
    otherwise with 99.995 % of them.

    Raises ConfigError where ``vocab_size`` is too small for the text's characters, DataError where
    there is no text. Sources: google-research/albert, ``README.md``; T5: Raffel et al. 2020,
    sec. 2.2, and the ids of its release.

    Departure: a line longer than the trainer's limit is divided at spaces; the release skips it.
    """
    check_sentinels(vocab_size, sentinels)
    lines = _trainable(lines)
    if not keeps_characters:
        return _train(lines, vocab_size, sentinels, {"character_coverage": _CHARACTER_COVERAGE})
    rules: dict[str, Any] = {"normalization_rule_name": "identity"}
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as file:
        try:
            return _train(_keeping(lines, file), vocab_size, sentinels, rules | _ALL_CHARACTERS)
        except _NoRoom:
            file.seek(0)
            again = (line.removesuffix("\n") for line in file)
            rules["character_coverage"] = _CHARACTER_COVERAGE
            model = _train(again, vocab_size, sentinels, rules)
    note(
        f"data.vocab_size = {vocab_size:,} has no room for every character of the text: the "
        "rarest, up to 5 in 100,000 of the text, are unknown to the unigram tokenizer"
    )
    return model


def _trainable(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines without the trainer's reserved character, since it skips lines that contain it.

    Long lines are divided. Raises DataError after the last line if there were only control
    characters or byte order marks.
    """
    has_text = False
    for line in lines:
        has_text = has_text or any(category(char)[0] not in "CZ" for char in line)
        line = line.replace(_MARK, " ")
        start = 0
        while len(line) - start > _LINE_CHARACTERS:
            stop = line.rfind(" ", start + 1, start + _LINE_CHARACTERS)
            if stop < 0:
                stop = start + _LINE_CHARACTERS
            yield line[start:stop]
            start = stop
        yield line[start:]
    if not has_text:
        raise DataError(NO_TEXT)


def _keeping(lines: Iterable[str], file: TextIO) -> Iterator[str]:
    for line in lines:
        file.write(f"{line}\n")
        yield line


def _train(
    lines: Iterable[str], vocab_size: int, sentinels: int, rules: Mapping[str, Any]
) -> bytes:
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    problems: list[SublayerError] = []
    try:
        SentencePieceTrainer.train(
            sentence_iterator=_recording(lines, problems),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size - sentinels,
            hard_vocab_limit=False,
            **rules,
            input_sentence_size=_SENTENCES,
            shuffle_input_sentence=True,
            max_sentence_length=_LINE_BYTES,
            # The number of partial sums affects the last digits: fixed, whatever the cores.
            num_threads=_THREADS,
            minloglevel=2,
            **(_T5 if sentinels else _ALBERT),
        )
    except RuntimeError as error:
        if problems:  # the trainer wraps its input's errors
            raise problems[0] from None
        reason = str(error)
        if "required_chars" in reason:
            beside = f" with data.sentinels = {sentinels}" if sentinels else ""
            raise _NoRoom(
                f"data.vocab_size = {vocab_size} is too small for unigram{beside}: "
                "it does not hold the text's characters"
            ) from error
        if "sentences_.empty()" in reason or "all_chars_count" in reason:
            raise DataError(NO_TEXT) from error
        raise DataError(
            f"SentencePiece cannot train a tokenizer on this text: {reason[:200]}"
        ) from error
    return model.getvalue()


def _recording(lines: Iterable[str], problems: list[SublayerError]) -> Iterator[str]:
    """Yield lines; append the error that stops them to ``problems``."""
    try:
        yield from lines
    except SublayerError as error:
        problems.append(error)
        raise


class UnigramTokenizer(Tokenizer):
    """A SentencePiece model, with the processing of a text before and after it.

    ``sentinels`` are appended to the ids of a model without its own. With sentinels and without a
    mask it is T5's: it takes a text unchanged, unless ``normalization`` is given.

    A published model without a mask applies only its own normalisation, and sees whole texts. By
    ALBERT's rules each line is encoded separately, since ALBERT's data have one sentence per line,
    and a piece that ends in a digit and a comma is split before the comma. Source:
    google-research/albert, ``tokenization.py``; words: ``create_pretraining_data.py``.

    ``reads_marks``: names of special ids, and of the ``added`` tokens, which follow all other ids,
    are read as these tokens in a text; otherwise as text. ``roles`` name the tokens for padding and
    the like, where they do not have their usual names.

    Departure: the rest of a split piece is looked up without a space mark that the piece did not
    have, as in the release under Python 2; under Python 3 the release keeps the mark. The two agree
    on every piece of ALBERT's vocabulary. Departure: all of Python's whitespace divides words,
    including U+001C to U+001F, unlike in T5's release.
    """

    kind = "unigram"
    is_lossless = False
    has_words = True

    def __init__(
        self,
        model: bytes,
        normalization: Normalization | None = None,
        *,
        sentinels: int = 0,
        reads_marks: bool | None = None,
        added: Sequence[AddedToken] = (),
        roles: Mapping[str, str] | None = None,
    ) -> None:
        self._model = model
        self._processor = open_model(model)
        self._n_pieces = int(self._processor.get_piece_size())
        ids = range(self._n_pieces)
        self.names: list[str] = self._processor.id_to_piece(list(ids))
        # Sentinels are control pieces and the like, never text pieces, even under such a name.
        self.sentinel_ids = ()
        if sentinel_name(0) in self.names:
            content = parse_model(model)
            kinds = content.SentencePiece
            markers = (kinds.CONTROL, kinds.USER_DEFINED, kinds.UNUSED)
            marked = {
                piece.piece: id_
                for id_, piece in enumerate(content.pieces)
                if piece.type in markers
            }
            self.sentinel_ids = find_sentinels(marked)
        if self.sentinel_ids:
            for id_ in self.sentinel_ids:
                # As unused, it is never encoded from a text, and decodes to its name.
                content.pieces[id_].type = kinds.UNUSED
            self._processor = open_model(content.SerializeToString(deterministic=True))
        else:
            self.names += [sentinel_name(number) for number in reversed(range(sentinels))]
            last = len(self.names) - 1
            self.sentinel_ids = tuple(last - number for number in range(sentinels))
        self._n_sentinels = len(self.names) - self._n_pieces
        self.added = tuple(added)
        by_name = {name: id_ for id_, name in enumerate(self.names)}
        first_added = len(self.names)
        for token in added:
            if token.content not in by_name:
                by_name[token.content] = len(self.names)
                self.names.append(token.content)
        self.vocab_size = len(self.names)
        is_control, is_unused = self._processor.is_control, self._processor.is_unused
        controls = [id_ for id_ in ids if is_control(id_) or is_unused(id_)]
        self.unk_id = int(self._processor.unk_id())
        special_ids = {*controls, self.unk_id, *self.sentinel_ids}
        marks = {self.names[id_]: id_ for id_ in special_ids}
        marks |= {token.content: by_name[token.content] for token in added}
        self.marks = marks
        self.reads_marks = reads_marks
        self._set_special(marks)
        self.roles = self._set_roles(roles or {}, by_name)
        if reads_marks:
            named = (getattr(self, role) for role in SPECIAL_NAMES)
            special_ids.update(id_ for id_ in named if id_ is not None)
        else:
            behind = {by_name[token.content] for token in added if token.special}
            special_ids.update(id_ for id_ in behind if id_ >= first_added)
        self.special_ids = tuple(sorted(special_ids))
        words = {token.content: by_name[token.content] for token in added if not token.special}
        self._marked = MarkedText(marks if reads_marks else words, added)
        if normalization is None:
            texts = (name for id_, name in enumerate(self.names) if id_ not in special_ids)
            normalization = AS_MODEL if self.mask_id is None else Normalization.of(texts)
        self.normalization = normalization
        pieces = self._find_pieces()
        self._set_pieces(pieces)
        shown = {id_: self.names[id_].encode() for id_ in self.sentinel_ids}
        shown[self.unk_id] = _UNKNOWN_TEXT
        self.inner_pieces = [shown.get(id_, piece) for id_, piece in enumerate(pieces)]

    @classmethod
    def train(
        cls,
        texts: Iterable[bytes],
        *,
        vocab_size: int,
        keep_accents: bool | None = None,
        lowercase: bool | None = None,
        sentinels: int = 0,
    ) -> "UnigramTokenizer":
        """Train ALBERT's vocabulary, or T5's with ``sentinels``; ``vocab_size`` includes all ids.

        Short texts may give fewer pieces. ``keep_accents`` and ``lowercase`` replace the text
        rules, which are ALBERT's, or none with sentinels. With ``keep_accents`` True the model
        reads characters unchanged, without SentencePiece's NFKC, and has all of the text's
        characters if they fit; a note reports where they do not.

        Raises ConfigError where ``vocab_size`` is too small for the text's characters; NotUtf8, a
        DataError, where a text is not UTF-8; DataError where there is no text.
        """
        published = AS_WRITTEN if sentinels else Normalization()
        rules = Normalization(
            do_lower_case=published.do_lower_case if lowercase is None else lowercase,
            keep_accents=published.keep_accents if keep_accents is None else keep_accents,
            # The release's split leaves digits unknown that are pieces only with the comma.
            divide_digit_commas=published.divide_digit_commas and keep_accents is None,
        )
        lines = (line for text in texts for line in rules.lines(decode_utf8(text)))
        model = train_pieces(
            lines, vocab_size=vocab_size, sentinels=sentinels, keeps_characters=bool(keep_accents)
        )
        return cls(model, rules, sentinels=sentinels)

    @classmethod
    def read(cls, path: Path, *, sentinels: int = 0, class_name: str = "") -> "UnigramTokenizer":
        """Read a published model; raise DataError for any other file.

        A ``tokenizer_config.json`` next to it, or ALBERT's ``class_name``, decides how a text is
        normalised before the model's own rules. Without either, only the model's rules apply,
        unless the model has a mask, like ALBERT's: then texts are lowercased if no piece has a
        capital, and accents stripped if no piece has one. The number of added sentinels comes from
        T5's settings, otherwise from ``sentinels``.
        """
        model = read_file(path)
        rules = Normalization.read(path.parent, class_name)
        settings = read_settings(path.parent)
        if settings.get("tokenizer_class") in _T5_CLASSES:
            extra_ids = settings.get("extra_ids", _T5_SENTINELS)
            # bool is a subclass of int.
            if type(extra_ids) is not int or not 0 <= extra_ids <= MOST_SENTINELS:
                raise DataError(
                    f"{path.parent / CONFIG_NAME}: extra_ids = {str(extra_ids)[:60]} must be a "
                    f"number from 0 to {MOST_SENTINELS}"
                )
            sentinels = extra_ids or sentinels
        try:
            read = cls(model, rules, sentinels=sentinels)
            if class_name == T5S and read.normalization == AS_MODEL and read._divides_lines:
                # The class splits at Python's whitespace; SentencePiece knows only part of it.
                return cls(model, AS_WRITTEN, sentinels=sentinels)
            return read
        except DataError as error:
            raise DataError(f"{path}: {error}") from None

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> "UnigramTokenizer":
        """Build from ``content``; raise DataError, without a path, where it is damaged."""
        sentinels = read_value(content.get("sentinels", 0), int)
        if not 0 <= sentinels <= MOST_SENTINELS:
            raise DataError(f"sentinels = {sentinels} must be 0 to {MOST_SENTINELS}")
        reads_marks, roles = read_roles(content)
        return cls(
            unpacked(content),
            read_fields(content, Normalization, "is_models"),
            sentinels=sentinels,
            reads_marks=reads_marks,
            added=read_value(content.get("added", []), tuple[AddedToken, ...]),
            roles=roles,
        )

    def replaced(
        self,
        *,
        reads_marks: bool | None,
        added: Sequence[AddedToken] | None = None,
        roles: Mapping[str, str] | None = None,
    ) -> "UnigramTokenizer":
        """Return a copy with another ``reads_marks``, added tokens and roles where given."""
        return UnigramTokenizer(
            self._model,
            self.normalization,
            sentinels=self._n_sentinels,
            reads_marks=reads_marks,
            added=self.added if added is None else added,
            roles=self.roles if roles is None else roles,
        )

    @property
    def model(self) -> bytes:
        """The file that SentencePiece reads, usually called ``spiece.model``."""
        return self._model

    @property
    def charsmap(self) -> bytes:
        """SentencePiece's compiled normalisation table; empty where the model has none."""
        return bytes(parse_model(self._model).normalizer_spec.precompiled_charsmap)

    @property
    def is_plain(self) -> bool:
        """True for a unigram model of words after a space, without bytes."""
        model = parse_model(self._model)
        trainer = model.trainer_spec
        normalizer = model.normalizer_spec
        # Assumed by readers of the pieces alone, such as the tokenizers library.
        requirements = (
            normalizer.add_dummy_prefix,
            normalizer.remove_extra_whitespaces,
            normalizer.escape_whitespaces,
            not trainer.byte_fallback,
            not trainer.treat_whitespace_as_suffix,
            trainer.model_type == trainer.UNIGRAM,
            not self.normalization.is_models or self._divides_lines,
        )
        return all(requirements)

    def scores(self) -> list[tuple[str, float]]:
        """Return each piece and sentinel with its log-probability, by id."""
        scores = []
        for id_, name in enumerate(self.names[: self._n_pieces + self._n_sentinels]):
            is_piece = id_ < self._n_pieces
            score = float(self._processor.get_score(id_)) if is_piece else 0.0
            scores.append((name, score))
        return scores

    def encode(self, text: bytes) -> TokenIds:
        """Encode UTF-8; raise NotUtf8, a DataError, at the first byte that is not."""
        rows: list[list[int]] = []
        for part in self._marked.split(decode_utf8(text)):
            if not isinstance(part, str):
                rows.append([part])
            elif not self.normalization.is_models:
                rows += self._processor.encode(self.normalization.lines(part))
            else:
                units = part.split("\n") if self._divides_lines else [part]
                rows += self._processor.encode(units)
        ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32)
        if not self.normalization.divide_digit_commas:
            return ids
        return self._divided.take(ids)

    @cached_property
    def _divides_lines(self) -> bool:
        """True for a model that gives a text the same ids as its lines one by one."""
        spec = parse_model(self._model)
        rules = spec.normalizer_spec
        if not (rules.add_dummy_prefix and rules.remove_extra_whitespaces):
            return False
        # No piece joins a word to the next.
        inner = any(SPACE in name[1:] for name in self.names[: self._n_pieces])
        if spec.trainer_spec.treat_whitespace_as_suffix or inner:
            return False
        if any("\n" in mark for mark in self._marked.tokens):
            return False
        encode = self._processor.encode
        return bool(encode("a\na\ta") == encode("a") * 3)

    def _decode(self, ids: Ints) -> bytes:
        # The normalised text. Special ids have no text except sentinels and added tokens; the
        # unknown is ``⁇``.
        if (ids < self._n_pieces).all():
            return str(self._processor.decode(ids.tolist())).encode()
        # Ids beyond the model's pieces are written by name.
        silent = set(self.special_ids).difference(self.sentinel_ids)
        names = [
            self.names[id_] for id_ in ids.tolist() if id_ < self._n_pieces or id_ not in silent
        ]
        return str(self._processor.decode_pieces(names)).encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut after a newline, where lines are encoded separately; otherwise 0."""
        if self.normalization.is_models and not self._divides_lines:
            return 0
        return after_newline(text, near)

    def starts_word(self, ids: AnyInts) -> Bools:
        """Return which ids begin a word: pieces after a space, punctuation, or not only letters.

        Letters are a to z in ALBERT's vocabularies, and those of scripts with spaces in others.
        """
        return self._begins_word[ids]

    def content(self) -> dict[str, Any]:
        """Return the normalisation, the additions, and the model in base64."""
        n_added = self._n_sentinels
        marks: dict[str, Any] = {}
        if self.reads_marks is not None:
            marks["reads_marks"] = self.reads_marks
        if self.added:
            marks["added"] = [asdict(token) for token in self.added]
        if self.roles:
            marks["roles"] = self.roles
        if n_added:
            marks = {"sentinels": n_added, **marks}
        return self._described(**self.normalization.content(), **marks, **packed(self._model))

    @cached_property
    def _begins_word(self) -> Bools:
        # ALBERT's rule is for letters a to z.
        is_any = self.normalization.keep_accents and not self.normalization.divide_digit_commas
        begins_one = begins_any_word if is_any else begins_word
        begins = np.array([begins_one(name) for name in self.names])
        begins[list(self.special_ids)] = True
        return begins

    @cached_property
    def _divided(self) -> RaggedIds:
        """For each id, the ids of its parts; an undivided id itself."""
        rows = []
        for id_, name in enumerate(self.names):
            before_comma = name[:-1]
            ends_in_comma = name.endswith(",") and before_comma[-1:].isdigit()
            if not ends_in_comma or id_ in self.special_ids:
                rows.append([id_])
                continue
            text = before_comma.replace(SPACE, "")
            pieces = self._processor.encode(text, out_type=str)
            if not name.startswith(SPACE):
                pieces[0] = pieces[0].removeprefix(SPACE)
            pieces.append(",")
            rows.append([int(self._processor.piece_to_id(piece)) for piece in pieces if piece])
        return RaggedIds(rows)

    def _find_pieces(self) -> list[bytes]:
        special = set(self.special_ids)
        pieces = []
        for id_, name in enumerate(self.names):
            if id_ in special:
                pieces.append(b"")
            elif id_ < self._n_pieces and self._processor.is_byte(id_):
                value = int(name[3:-1], 16)  # from a name such as <0x0A>
                pieces.append(bytes([value]))
            else:
                pieces.append(name.replace(SPACE, " ").encode())
        return pieces


SOURCE, TARGET, NAMES = "source.spm", "target.spm", "vocab.json"
_UNKNOWN = "<unk>"
_CODE = (">>", "<<")
"""Marks around the target language's code at the beginning of a source text."""


def has_paired_models(folder: Path) -> bool:
    """Return whether a folder has the three files of Marian's vocabulary."""
    return all((folder / name).is_file() for name in (SOURCE, TARGET, NAMES))


class PairedModels(Tokenizer):
    """Tokenizer with a SentencePiece model per language; decodes the second.

    ``encode`` reads the first language, ``encode_targets`` and ``decode`` the second. A piece not
    in ``names``, listed by id, is unknown. A leading ``>>...<<`` is one piece: the target language
    of a multilingual model. Source: transformers, ``MarianTokenizer``.

    Departure: names of special ids in a text are text.

    Raises DataError where ``names`` has no ``<unk>``, or a model is damaged.
    """

    kind = "sentencepiece-pair"
    is_lossless = False

    def __init__(self, source: bytes, target: bytes, names: Sequence[str]) -> None:
        self.source_model = source
        self.target_model = target
        self.names = tuple(names)
        self._source = open_model(source, SOURCE)
        self._target = open_model(target, TARGET)
        self._ids = {name: id_ for id_, name in enumerate(self.names)}
        if _UNKNOWN not in self._ids:
            raise DataError(f"the vocabulary has no {_UNKNOWN}")
        self.vocab_size = len(self.names)
        self.unk_id = self._ids[_UNKNOWN]
        self._set_special(self._ids)
        special = {self.unk_id, *(getattr(self, key) for key in SPECIAL_NAMES)} - {None}
        self.special_ids = tuple(sorted(special))
        texts = [
            "" if id_ in special else name.replace(SPACE, " ") for id_, name in enumerate(names)
        ]
        self._set_pieces([text.encode() for text in texts])

    @classmethod
    def read(cls, folder: Path) -> "PairedModels":
        """Read a folder's ``source.spm``, ``target.spm`` and ``vocab.json``, or raise DataError."""
        source = read_file(folder / SOURCE)
        target = read_file(folder / TARGET)
        ids = read_ids(folder / NAMES)
        last = len(ids) - 1
        if max(ids.values()) != last:
            raise DataError(
                f"{folder / NAMES}: the ids of its {len(ids):,} pieces must be 0 to {last:,}"
            )
        names = sorted(ids, key=ids.__getitem__)
        try:
            return cls(source, target, names)
        except DataError as error:
            raise DataError(f"{folder}: {error}") from error

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> "PairedModels":
        """Build from ``content``; raise DataError, without a path, where it is damaged."""
        names = read_value(content.get("names"), list[str])
        source = unpacked(content.get("source"))
        target = unpacked(content.get("target"))
        return cls(source, target, names)

    def encode(self, text: bytes) -> TokenIds:
        """Encode UTF-8 of the first language; raise NotUtf8, a DataError, at the first bad byte."""
        return self._encoded(text, self._source)

    def encode_targets(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode texts of the second language; raise NotUtf8 as ``encode`` does."""
        return [self._encoded(text, self._target) for text in texts]

    def _decode(self, ids: Ints) -> bytes:
        # Text in the second language: nothing for special ids, ``⁇`` for the unknown.
        silent = set(self.special_ids) - {self.unk_id}
        names = [self.names[id_] for id_ in ids.tolist() if id_ not in silent]
        text = str(self._target.decode_pieces(names))
        return text.replace(SPACE, " ").strip().encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut after a newline, though lines are not encoded separately: pairs are never cut."""
        return after_newline(text, near)

    def content(self) -> dict[str, Any]:
        """Return both models in base64, and the names of all ids."""
        source, target = packed(self.source_model), packed(self.target_model)
        return self._described(names=list(self.names), source=source, target=target)

    def _encoded(self, text: bytes, model: Any) -> TokenIds:
        # A leading language code is one piece.
        begin, end = _CODE
        rest = decode_utf8(text)
        pieces = []
        code, mark, behind = rest.partition(end)
        if mark and rest.startswith(begin):
            pieces, rest = [code + mark], behind
        pieces += model.encode(rest, out_type=str)
        ids = [self._ids.get(piece, self.unk_id) for piece in pieces]
        return np.array(ids, dtype=np.int32)
