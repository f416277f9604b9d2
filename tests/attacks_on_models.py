"""Model files that somebody has changed, drawn by Hypothesis, and what ``varynorm predict`` says.

What is not refused has to predict.
"""

import contextlib
import copy
import io
import json
import pathlib
import zipfile

import numpy as np
from hypothesis import strategies as st

from optax_varynorm.cli import archive
from tests.command_line import people, run

REFUSED = "not a model that `varynorm fit` has saved."
FITS = {
    "classes": ("people.csv", "--target", "income"),
    "numbers": ("people.csv", "--target", "score", "--loss", "quantile"),
    "sparse": ("rows.libsvm", "--loss", "hinge", "--learner", "diagonal"),
}


class Content(bytes):
    """Of a file, which nobody wants to see in a message."""

    def __repr__(self):
        return f"Content of {len(self)} bytes"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 0, 1, 2, 3, 10**9, 10**12, 10**30, -0.5, 1e308, 5e-324, 1e-13])
    | st.sampled_from([float("nan"), float("inf"), float("-inf"), "", "\ud800", "\x00", "logistic"])
    | st.integers()
    | st.floats()
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def fitted(folder: pathlib.Path) -> dict[str, bytes]:
    """Models by name, as they were saved; the files they learned from stay in the folder."""
    (folder / "people.csv").write_text(people(40)[0])
    (folder / "rows.libsvm").write_text("1 1:2 7:1\n-1 3:1\n1 2:1 7:5\n-1 1:1\n")
    models = {}
    with contextlib.chdir(folder):
        for name, (data, *options) in FITS.items():
            run("fit", data, *options, "-o", name)
            models[name] = Content((folder / name).read_bytes())
    return models


def entries_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as stored:
        return {name: stored.read(name) for name in stored.namelist()}


def zipped(entries, method=zipfile.ZIP_DEFLATED) -> bytes:
    """Of pairs of names and contents."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as stored:
        for name, content in entries:
            stored.writestr(name, content)
    return Content(file.getvalue())


def with_header(content: bytes, header) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return zipped((entries_of(content) | {archive.HEADER: text}).items())


def places(value, path=()):
    """Every place in a tree of JSON."""
    yield path
    children = value.items() if isinstance(value, dict) else ()
    for key, child in [*children, *(enumerate(value) if isinstance(value, list) else ())]:
        yield from places(child, (*path, key))


def change(header, path, action, value):
    """A copy in which a place has another value, is gone, or has a neighbour."""
    root = {"header": copy.deepcopy(header)}
    path = ("header", *path)
    parent = root
    for key in path[:-1]:
        parent = parent[key]
    if action == "replace":
        parent[path[-1]] = value
    elif action == "remove":
        del parent[path[-1]]
    elif isinstance(parent, dict):
        parent["another"] = value
    else:
        parent.insert(path[-1], value)
    return root.get("header")


@st.composite
def headers(draw, content):
    header = json.loads(entries_of(content)[archive.HEADER])
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([*places(header)][1:]))
        action = draw(st.sampled_from(["replace", "remove", "add"]))
        header = change(header, path, action, draw(json_values))
    return with_header(content, header)


@st.composite
def texts(draw, content):
    text = bytearray(entries_of(content)[archive.HEADER])
    first = draw(st.integers(0, len(text)))
    text[first : first + draw(st.integers(0, 30))] = draw(st.binary(max_size=30))
    return with_header(content, bytes(text))


@st.composite
def truncations(draw, content):
    first = draw(st.integers(0, 60))
    return Content(content[first * draw(st.booleans()) : draw(st.integers(0, len(content)))])


@st.composite
def flips(draw, content):
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 8))):
        # Half of them among the names and sizes, which are at the end.
        first = draw(st.sampled_from([0, max(0, len(content) - 2500)]))
        place = draw(st.integers(first, len(content) - 1))
        changed[place] ^= 1 << draw(st.integers(0, 7))
    return Content(changed)


@st.composite
def sizes(draw, content):
    """Arrays that declare another shape or dtype, and headers that agree with nothing."""
    entries = entries_of(content)
    name = draw(st.sampled_from([name for name in entries if name.endswith(".npy")]))
    array = np.load(io.BytesIO(entries[name]))
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 5, 8, 10**9, 10**12, 10**30]), max_size=4))
    file = io.BytesIO()
    described = {"descr": draw(st.sampled_from(["<f4", "<f8", "|O", "<U9", "<i8", "|b1"]))}
    described |= {"fortran_order": draw(st.booleans()), "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(file, described)
    rest = draw(st.sampled_from([array.tobytes(), b"", b"\x00" * 10_000]))
    entries[name] = file.getvalue() + rest
    header = json.loads(entries[archive.HEADER])
    many = st.sampled_from([1, 2, 3, 5, 10**6, 10**9, 10**12])
    if draw(st.booleans()):
        header["estimator"]["features"] = header["schema"]["sparse_width"] = draw(many)
    if draw(st.booleans()):
        header["estimator"]["classes"] = draw(many)
    return zipped((entries | {archive.HEADER: json.dumps(header).encode()}).items())


@st.composite
def entries(draw, content):
    """Other entries, other names, other ways to compress, numbers that nobody has learned."""
    inside = entries_of(content)
    name = draw(st.sampled_from([*inside]))
    kind = draw(st.sampled_from(["gone", "renamed", "more", "archive", "pickle", "bytes", "drawn"]))
    method = draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]))
    file = io.BytesIO()
    if kind in ("gone", "renamed"):
        moved = inside.pop(name)
    if kind == "renamed":
        inside[draw(st.sampled_from(["../../out.npy", "/tmp/out.npy", "a b", "x/"]))] = moved
    elif kind == "more":
        inside["another.npy"] = inside[name]
    elif kind == "archive":
        np.savez(file, np.zeros(3))
        inside[name] = file.getvalue()
    elif kind == "pickle":
        np.save(file, np.array([{}], object), allow_pickle=True)
        inside[name] = file.getvalue()
    elif kind == "bytes":
        inside[name] = draw(st.binary(max_size=200))
    elif kind == "drawn" and name.endswith(".npy"):
        array = np.load(io.BytesIO(inside[name]))
        numbers = draw(st.binary(min_size=array.nbytes, max_size=array.nbytes))
        inside[name] = inside[name][: -array.nbytes] + numbers
        method = zipfile.ZIP_DEFLATED
    return zipped(inside.items(), method)


ATTACKS = {
    "header: values": headers,
    "header: text": texts,
    "truncations": truncations,
    "bit flips": flips,
    "declared sizes": sizes,
    "entries": entries,
}


def bombs(content: bytes) -> dict[str, bytes]:
    """Small files that would become large ones."""
    inside = entries_of(content)
    header = json.loads(inside.pop(archive.HEADER))
    name = next(name for name in inside if name.endswith("played_point.npy"))
    zeros, many = bytes(2**24), 2**31
    prefix = io.BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": (1, many // 4)}
    np.lib.format.write_array_header_1_0(prefix, described)

    def with_large(name, start, size):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as stored:
            for other, data in ({archive.HEADER: json.dumps(header)} | inside).items():
                if other != name:
                    stored.writestr(other, data)
            with stored.open(name, "w", force_zip64=True) as entry:
                entry.write(start)
                for _ in range(size // len(zeros)):
                    entry.write(zeros)
        return file.getvalue()

    depth = 10**5
    return {
        "an array of 2 GB": with_large(name, prefix.getvalue(), many),
        "a header of 1 GB": with_large(archive.HEADER, b"[", 2**30),
        "a header of lists": with_header(content, b"[" + b"[]," * (2 * 10**6) + b"0]"),
        "a header of objects": with_header(content, b"[" + b'{"a":0},' * 10**6 + b"0]"),
        "a header that is deep": with_header(content, b"[" * depth + b"]" * depth),
        "a number of many digits": with_header(content, b"9" * 10**6),
    }


def predict(folder: pathlib.Path, name: str, content: bytes) -> bool:
    """Whether the model was refused; everything else but an answer is an error."""
    (folder / "attacked").write_bytes(content)
    data = FITS[name][0]
    with contextlib.chdir(folder):
        before = {*folder.iterdir()}
        result = run("predict", "attacked", data, expect=(0, 1))
        assert {*folder.iterdir()} == before
    if result.exit_code == 0:
        return False
    (line,) = result.stderr.splitlines()
    model_is_refused = line == f"varynorm: attacked: {REFUSED}"
    # A model that could have been saved may be one of another table, or of a later version.
    of_other_table = line.startswith(f"varynorm: {data}: ")
    later = "and this package reads version" in line
    assert model_is_refused or of_other_table or later, line
    return True
