"""SentencePiece vocabularies, ALBERT's and T5's: trained here, or read from a model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.config.table import MOST_SENTINELS
from sublayer.data.arrays import AnyInts, Bools, Ints, TokenIds
from sublayer.data.sentencepiece.model import (
    mute_sentinels,
    open_model,
    packed,
    parse_model,
    sentinels_beside,
    train_pieces,
    unpacked,
)
from sublayer.data.subwords.library import read_file
from sublayer.data.tokenizers.base import (
    SPECIAL_NAMES,
    Tokenizer,
    after_newline,
    decode_utf8,
    names_behind,
    read_fields,
    read_roles,
    read_value,
)
from sublayer.data.tokenizers.settings import (
    AS_MODEL,
    AS_WRITTEN,
    T5S,
    AddedToken,
    MarkedText,
    Normalization,
)
from sublayer.data.tokenizers.words import SPACE, RaggedIds, begins_any_word, begins_word
from sublayer.errors import DataError


class UnigramTokenizer(Tokenizer):
    """A SentencePiece model, with the processing of a text before and after it.

    ``sentinels`` are added behind the model's ids, where it has none of its own. With sentinels and
    without a mask it is T5's: it takes a text as it is written, unless ``normalization`` is given.

    A published model without a mask normalises as it says itself, and sees whole texts. By ALBERT's
    rules each line is encoded on its own, as its data have one sentence in each, and a piece that
    ends in a digit and a comma is divided, so that the comma stands alone. Source:
    google-research/albert, ``tokenization.py``; words: ``create_pretraining_data.py``.

    ``reads_marks``: names of special ids, and of the ``added`` tokens, which follow all other ids,
    stand for these where they occur in a text; else they are text there. ``roles`` name the tokens
    that stand for padding and the like, where their usual names do not tell.

    Departure: the rest of a divided piece is looked up without the mark of a space that it did not
    have, as in the release under Python 2; under Python 3 the release keeps the mark. No piece of
    ALBERT's vocabulary shows it. Departure: all that Python calls whitespace divides words, U+001C
    to U+001F too, which T5's release leaves out.
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
        self._add_sentinels(sentinels)
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
        self._roles = self._set_roles(roles or {}, by_name)
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
        self._set_pieces(self._find_pieces())

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
        """Train ALBERT's vocabulary, or T5's with its ``sentinels``; ``vocab_size`` counts all ids.

        Short texts may hold fewer pieces. ``keep_accents`` and ``lowercase`` replace the rules for
        text, which are ALBERT's, or with sentinels none. With ``keep_accents`` True the model reads
        characters as they are written, without SentencePiece's NFKC, and has all of the text's
        where its size has room for them; a note says where it has not.

        Raises ConfigError where the characters of the text do not fit in; NotUtf8, a DataError,
        where a text is not UTF-8; DataError where there is no text.
        """
        published = AS_WRITTEN if sentinels else Normalization()
        rules = Normalization(
            do_lower_case=published.do_lower_case if lowercase is None else lowercase,
            keep_accents=published.keep_accents if keep_accents is None else keep_accents,
            # The release's division leaves digits unknown that are no pieces without the comma.
            divide_digit_commas=published.divide_digit_commas and keep_accents is None,
        )
        lines = (line for text in texts for line in rules.lines(decode_utf8(text)))
        model = train_pieces(
            lines, vocab_size=vocab_size, sentinels=sentinels, keeps_characters=bool(keep_accents)
        )
        return cls(model, rules, sentinels=sentinels)

    @classmethod
    def read(cls, path: Path, *, sentinels: int = 0, class_name: str = "") -> "UnigramTokenizer":
        """Read a published model. Raises DataError where it is none.

        A ``tokenizer_config.json`` beside it says how a text is normalised before the model's own
        rules, and so does ALBERT's ``class_name``. Without them these are all; but where the model
        has a mask, as ALBERT's, its pieces tell: letters are lowered if none is a capital, accents
        are stripped if none has any. T5's settings say how many sentinels are added; ``sentinels``
        are added otherwise.
        """
        model = read_file(path)
        rules = Normalization.read(path.parent, class_name)
        n_added = sentinels_beside(path.parent) or sentinels
        try:
            read = cls(model, rules, sentinels=n_added)
            if class_name == T5S and read.normalization == AS_MODEL and read._divides_lines:
                # Whitespace is Python's there, of which SentencePiece knows a part.
                return cls(model, AS_WRITTEN, sentinels=n_added)
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
        """Return the same with another ``reads_marks``, added tokens and roles where given."""
        return UnigramTokenizer(
            self._model,
            self.normalization,
            sentinels=self._n_sentinels,
            reads_marks=reads_marks,
            added=self.added if added is None else added,
            roles=self._roles if roles is None else roles,
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
        # What readers of the pieces alone, such as the tokenizers library, take for granted.
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
        """Return each piece and sentinel with its log-probability, in order of the ids."""
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
            if isinstance(part, str):
                rows += self._processor.encode(self._units(part))
            else:
                rows.append([part])
        ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32)
        if not self.normalization.divide_digit_commas:
            return ids
        return self._divided.take(ids)

    def _units(self, text: str) -> list[str]:
        """Return the parts of a text that SentencePiece encodes separately."""
        if not self.normalization.is_models:
            return self.normalization.lines(text)
        return text.split("\n") if self._divides_lines else [text]

    @cached_property
    def _divides_lines(self) -> bool:
        """True for a model that makes the same ids of a text and of its lines."""
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
        # Text as it was normalised; special ids have none, but for sentinels and added tokens; the
        # unknown has ``⁇``.
        if (ids < self._n_pieces).all():
            return str(self._processor.decode(ids.tolist())).encode()
        # Ids that are no piece of the model are written by their names.
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
        """Return which ids begin a word: after a space, punctuation or pieces not all of letters.

        Letters are a to z in ALBERT's vocabularies, and of scripts with spaces in others.
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
        if self._roles:
            marks["roles"] = self._roles
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
        """The ids that each id becomes: itself, or those of its parts."""
        rows = [self._divide(id_, name) for id_, name in enumerate(self.names)]
        return RaggedIds(rows)

    def _divide(self, id_: int, name: str) -> list[int]:
        before_comma = name[:-1]
        ends_in_comma = name.endswith(",") and before_comma[-1:].isdigit()
        if not ends_in_comma or id_ in self.special_ids:
            return [id_]
        text = before_comma.replace(SPACE, "")
        pieces = self._processor.encode(text, out_type=str)
        if not name.startswith(SPACE) and pieces[0].startswith(SPACE):
            first, *others = pieces
            pieces = [first.removeprefix(SPACE), *others]
        pieces.append(",")
        return [int(self._processor.piece_to_id(piece)) for piece in pieces if piece]

    def _add_sentinels(self, sentinels: int) -> None:
        muted, self.sentinel_ids = mute_sentinels(self._model, self.names)
        if self.sentinel_ids:
            self._processor = open_model(muted)
            return
        self.names += names_behind(sentinels)
        last = len(self.names) - 1
        self.sentinel_ids = tuple(last - number for number in range(sentinels))

    def _find_pieces(self) -> list[bytes]:
        special = set(self.special_ids)
        pieces = []
        for id_, name in enumerate(self.names):
            if id_ in special:
                pieces.append(b"")
            elif id_ < self._n_pieces and self._processor.is_byte(id_):
                value = int(name[3:-1], 16)  # of a name such as <0x0A>
                pieces.append(bytes([value]))
            else:
                pieces.append(name.replace(SPACE, " ").encode())
        return pieces
