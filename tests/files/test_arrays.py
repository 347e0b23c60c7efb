"""Arrays in a file: what was written is read back, and what is damaged is refused in a line."""

import json

import numpy as np
import pytest

from sublayer.errors import DataError
from sublayer.files.arrays import dump_arrays, load_arrays


def test_arrays_and_their_header_are_read_back():
    data = dump_arrays({"counts": np.array([[3, 300]]), "shares": np.array([0.25])}, {"n": [1]})
    arrays, header = load_arrays(data, "it", DataError)
    assert header == {"n": [1]}
    assert arrays["counts"].tolist() == [[3, 300]]
    assert arrays["counts"].dtype == np.uint16
    assert arrays["shares"].tolist() == [0.25]


@pytest.mark.parametrize("dtype", [None, "BOOL", "F16", ["U8"], {"U8": 1}, 8])
def test_what_is_no_array_of_numbers_is_refused(dtype: object):
    entry = {"dtype": dtype, "shape": [1], "data_offsets": [0, 1]}
    head = json.dumps({"__metadata__": {"header": "{}"}, "values": entry}).encode()
    data = len(head).to_bytes(8, "little") + head + b"\0"
    with pytest.raises(DataError, match="it: 'values' is no array of numbers"):
        load_arrays(data, "it", DataError)
