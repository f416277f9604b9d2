"""Tables that somebody has changed, drawn by Hypothesis, and what the readers say of them.

What is not refused has to become features and targets.
"""

import bz2
import gzip
import io
import pathlib

import pyarrow as pa
import pyarrow.parquet
from hypothesis import strategies as st

from optax_varynorm.tables import DataError, encoding, open_table, scan
from tests.attacks_on_models import Content, flips, truncations
from tests.command_line import people

ROWS = 30


def originals() -> dict[str, bytes]:
    """Files by name."""
    text = people(ROWS)[0].encode()
    columns = {"a": pa.array(range(ROWS)), "b": ["x", None, "y"] * (ROWS // 3), "y": [0, 1, 1] * 10}
    file = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(columns), file)
    sparse = b"1 1:2 7:1e3\n-1 3:1 # remark\n" * (ROWS // 2)
    return {
        "rows.csv": Content(text),
        "rows.csv.gz": Content(gzip.compress(text)),
        "rows.csv.bz2": Content(bz2.compress(text)),
        "rows.parquet": Content(file.getvalue()),
        "rows.libsvm": Content(sparse),
        "rows.libsvm.gz": Content(gzip.compress(sparse)),
    }


PIECES = [
    b"",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\n",
    b"\r\n",
    b'"',
    b",",
    b"\x00",
    b"nan",
    b"inf",
    b"-1e999",
    b" 1:",
    b"qid:3 ",
    b"9" * 40,
    b"PAR1",
    b"PK\x03\x04",
    b"a" * 140_000,
    "\u00f6".encode("latin-1"),
]


@st.composite
def pieces(draw, content):
    """Some bytes are others, or more."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(0, min(len(changed), 200)))
        changed[first : first + draw(st.integers(0, 8))] = draw(st.sampled_from(PIECES))
    return Content(bytes(changed))


@st.composite
def anything(draw, content):
    return Content(draw(st.binary(max_size=300)) + draw(st.sampled_from([b"", bytes(content)])))


ATTACKS = {
    "tables: pieces": pieces,
    "tables: truncations": truncations,
    "tables: bit flips": flips,
    "tables: any bytes": anything,
}


def read(folder: pathlib.Path, name: str, content: bytes) -> bool:
    """Whether the table was refused, in one line; everything else but features is an error."""
    path = folder / name
    path.write_bytes(content)
    try:
        table = open_table(path)
        schema = scan(table, table.columns[-1]).schema
        first_row = 1
        for batch in table.batches(7):
            encoding.features(schema, table, batch, first_row, encoding.Surprises())
            encoding.targets(schema, table, batch, first_row)
            first_row += batch.num_rows
    except DataError as error:
        said = str(error)
    else:
        return False
    assert said.startswith(f"{path}: ")
    (_,) = said.splitlines()
    return True
