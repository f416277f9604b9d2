"""Files become the features that the schema says, whatever their format and their size."""

import bz2
import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from optax_varynorm.tables import DataError, ReadSettings, encoding, open_table, scan
from optax_varynorm.tables.schema import Categorical, Numeric, Schema

TEXT = """age, city ,score,income
39,Rome,1.5,low
50,Paris,NA,high
?,Rome, 2.5 ,low
+38,,-3.5e2,high
28,"New York, NY",nan,low
"""
# age, age missing, New York, Paris, Rome, city missing, score, score missing
FEATURES = [
    [39, 0, 0, 0, 1, 0, 1.5, 0],
    [50, 0, 0, 1, 0, 0, 0, 1],
    [0, 1, 0, 0, 1, 0, 2.5, 0],
    [38, 0, 0, 0, 0, 1, -350, 0],
    [28, 0, 1, 0, 0, 0, 0, 1],
]


def encoded(path, target="income", batch_rows=2, skip=0, **choices):
    """All features and targets of a file, by way of its own schema."""
    table = open_table(path)
    schema = scan(table, target, **choices).schema
    parts = []
    for batch in table.batches(batch_rows, skip):
        features = encoding.features(schema, table, batch, 1, encoding.Surprises())
        dense = features.toarray() if table.is_sparse else features
        parts.append((dense, encoding.targets(schema, table, batch, 1)))
    features, targets = (np.concatenate(part) for part in zip(*parts, strict=True))
    return schema, features, targets


@pytest.fixture
def table_path(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(TEXT)
    return path


def test_categories_and_missing_values_have_features_of_their_own(table_path):
    schema, features, targets = encoded(table_path)
    np.testing.assert_array_equal(features, np.array(FEATURES, np.float32))
    np.testing.assert_array_equal(targets, [1, 0, 1, 0, 1])
    assert schema.target.labels == ("high", "low")
    assert schema.columns == (
        Numeric("age", True),
        Categorical("city", True, ("New York, NY", "Paris", "Rome")),
        Numeric("score", True),
    )
    assert Schema.from_json(schema.to_json()) == schema


def test_every_format_has_the_same_features(tmp_path, table_path):
    (tmp_path / "people.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    (tmp_path / "people.csv.bz2").write_bytes(bz2.compress(TEXT.encode()))
    body = TEXT.split("\n", 1)[1]
    (tmp_path / "nameless.csv").write_text(body)
    (tmp_path / "people.tsv").write_text(TEXT.replace(", NY", " NY").replace(",", "\t"))
    columns = {
        "age": pa.array([39, 50, None, 38, 28], pa.int32()),
        "city": pa.array(["Rome", "Paris", "Rome", None, "New York, NY"]).dictionary_encode(),
        "score": [1.5, float("nan"), 2.5, -350.0, None],
        "income": ["low", "high", "low", "high", "low"],
    }
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "people.parquet")
    for name in ("people.csv.gz", "people.csv.bz2", "people.tsv", "people.parquet"):
        _, features, targets = encoded(tmp_path / name)
        np.testing.assert_array_equal(features, np.array(FEATURES, np.float32))
        np.testing.assert_array_equal(targets, [1, 0, 1, 0, 1])
    schema, features, _ = encoded(tmp_path / "nameless.csv", target="4")
    np.testing.assert_array_equal(features, np.array(FEATURES, np.float32))
    assert [column.name for column in schema.columns] == ["1", "2", "3"]


def test_numbers_may_be_categories_and_columns_may_be_left_out(table_path):
    schema, _, _ = encoded(table_path, categorical=["age"], drop=["score", "city"])
    assert schema.columns == (Categorical("age", True, ("+38", "28", "39", "50")),)


def test_a_header_of_numbers_has_to_be_claimed(tmp_path):
    path = tmp_path / "years.csv"
    path.write_text("2019,2020\n1,2\n3,4\n")
    assert open_table(path).columns == ["1", "2"]
    assert open_table(path, ReadSettings(header=True)).columns == ["2019", "2020"]
    path.write_text("red,round\nblue,flat\n")
    assert open_table(path).columns == ["red", "round"]
    assert open_table(path, ReadSettings(header=False)).columns == ["1", "2"]


@pytest.mark.parametrize(
    "text",
    [
        "\n\nx,y\n1,0\n\n2,1\n\n",
        "x,y\r\n1,0\r\n2,1",
        "\ufeffx,y\n1,0\n2,1\n",
        '"x","y"\n"1","0"\n2,1\n',
    ],
)
def test_line_ends_empty_lines_marks_and_quotes_change_nothing(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode())
    schema, features, targets = encoded(path, "y")
    assert schema.columns == (Numeric("x", False),)
    np.testing.assert_array_equal(features, [[1], [2]])
    np.testing.assert_array_equal(targets, [0, 1])


def test_batches_have_one_size_and_start_where_they_are_told(tmp_path):
    """More than one of Arrow's blocks, which are of a megabyte."""
    path = tmp_path / "rows.csv"
    count = 300_000
    path.write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(count)))
    table = open_table(path)
    for skip in (0, 123_456):
        batches = [*table.batches(7000, skip)]
        assert {batch.num_rows for batch in batches[:-1]} == {7000}
        values = np.concatenate([batch["x"].to_numpy() for batch in batches]).astype(int)
        np.testing.assert_array_equal(values, np.arange(skip, count))


@pytest.mark.parametrize("zero_based", [True, False])
def test_libsvm_batches_are_the_file(tmp_path, zero_based):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 6)) * (rng.random((50, 6)) < 0.4)
    labels = rng.integers(3, size=50)
    path = tmp_path / "rows.libsvm"
    dump_svmlight_file(rows, labels, str(path), zero_based=zero_based, comment="a comment line")
    whole, whole_labels = load_svmlight_file(str(path), zero_based=True)
    schema, features, targets = encoded(path, "label", batch_rows=7)
    np.testing.assert_array_equal(features, whole.toarray().astype(np.float32))
    np.testing.assert_array_equal(np.array(schema.target.labels)[targets], whole_labels)
    _, tail, _ = encoded(path, "label", batch_rows=7, skip=20)
    np.testing.assert_array_equal(tail, features[20:])


def test_libsvm_is_known_by_its_content(tmp_path):
    path = tmp_path / "a9a"
    path.write_text("+1 3:1 11:1\n-1 5:0.5 # remark\n")
    _, features, targets = encoded(path, "label")
    np.testing.assert_array_equal(np.argwhere(features), [[0, 3], [0, 11], [1, 5]])
    np.testing.assert_array_equal(targets, [1, 0])


def test_what_the_model_has_not_met_is_counted(tmp_path, table_path):
    table_path.write_text("x,color,y\n1,red,0\n2,blue,1\n")
    schema = scan(open_table(table_path), "y").schema
    later = tmp_path / "later.csv"
    later.write_text("color,x\ngreen,\nred,3\n,4\ngreen,5\n")
    table = open_table(later)
    surprises = encoding.Surprises()
    (batch,) = table.batches(10)
    features = encoding.features(schema, table, batch, 1, surprises)
    np.testing.assert_array_equal(features, [[0, 0, 0], [3, 0, 1], [4, 0, 0], [5, 0, 0]])
    assert surprises == {
        ("color", encoding.NEW_CATEGORY): 2,
        ("color", encoding.MISSING_CATEGORY): 1,
        ("x", encoding.MISSING_NUMBER): 1,
    }

    rows, later_rows = tmp_path / "rows.libsvm", tmp_path / "later.libsvm"
    rows.write_text("1 1:1 3:2\n0 2:1\n")
    later_rows.write_text("1 1:1\n0 2:1 4:1 7:1\n0\n1 9:1\n")
    schema, table, surprises = (
        scan(open_table(rows), "label").schema,
        open_table(later_rows),
        encoding.Surprises(),
    )
    (batch,) = table.batches(10)
    features = encoding.features(schema, table, batch, 1, surprises)
    np.testing.assert_array_equal(
        features.toarray(), [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    )
    assert surprises == {("index:value", encoding.NEW_INDEX): 2}


def test_unknown_types_of_parquet_are_refused(tmp_path):
    path = tmp_path / "times.parquet"
    times = pa.array([0, 1], pa.timestamp("s"))
    pyarrow.parquet.write_table(pa.table({"when": times, "y": [0, 1]}), path)
    with pytest.raises(DataError, match=r"column 'when' is of type timestamp.*--drop when"):
        scan(open_table(path), "y")
