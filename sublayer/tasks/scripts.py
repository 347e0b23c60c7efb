"""Writing systems: sentence-ending marks, characters of scripts without spaces."""

OTHER_ENDS = (
    "。｡！？．﹒﹖﹗"  # wide
    "։׃؟۔܀܁܂߹।॥၊။።፧፨។៕᠃᠉᥄᥅᱾᱿꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫‼‽⁇⁈⁉⸮⸼"
)
"""Marks that end sentences in scripts other than Latin, Greek and Cyrillic.

Source: the marks of spaCy's sentencizer, those of Khmer and Hebrew added."""
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u3190-\u9fff\uf900-\ufaff"
    "\ufe30-\ufe4f\uff01-\uff9f\U00020000-\U0003ffff"
)
"""Ranges of characters, for a regular expression, that are written without spaces between words.

Thai, Lao, Tibetan, Burmese, Khmer; Chinese and Japanese with their punctuation; not Hangul."""
