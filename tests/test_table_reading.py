"""CSV files as programs write them: separators, encodings, packed ones; and what is no table."""

import gzip

import numpy as np
import pytest

from priorax.estimators import tables


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,y\n", "has no rows"),
        ("a,b,a\n1,2,3\n", "names 'a' more than once"),
        ("1,2\n3,4\n", "must name the columns"),
        ("a,y\n1,2\n3\n", "line 3: 1 cells"),
        ("a,y\n1,2\n\n3,4\n", "line 3: 0 cells"),
    ],
)
def test_files_that_are_no_tables(text, words, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=words):
        tables.read(tmp_path / "t.csv")


def test_files_that_are_no_text(tmp_path):
    for raw in (b"\x89PNG\r\n\x1a\n\0\0\0", b"a,y\n\x81,1\n", b"\xff\xfea"):
        (tmp_path / "t.csv").write_bytes(raw)
        with pytest.raises(ValueError, match="is not text in UTF-8, UTF-16 or Latin-1"):
            tables.read(tmp_path / "t.csv")
    with pytest.raises(FileNotFoundError, match="no file"):
        tables.read(tmp_path / "none.csv")


@pytest.mark.parametrize(("encoding", "found"), [("latin-1", "cp1252"), ("utf-16", "utf-16"), ("utf-8-sig", "utf-8")])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_files_in_other_encodings_and_packed_ones_are_read(encoding, found, pack, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(pack("größe,y\nMünchen,1\n".encode(encoding)))
    cells = tables.read(path)
    assert (cells.columns, cells.encoding) == ({"größe": ["München"], "y": ["1"]}, found)
    assert tables.read(path, encoding=encoding).columns == cells.columns


def test_an_encoding_that_is_none_or_another_is_refused(tmp_path):
    (tmp_path / "t.csv").write_bytes("a,y\nMünchen,1\n".encode("latin-1"))
    with pytest.raises(ValueError, match="encoding='utf-8' is not the encoding of"):
        tables.read(tmp_path / "t.csv", encoding="utf-8")
    for name in ("klingon", "rot13"):
        with pytest.raises(ValueError, match=f"encoding='{name}' is unknown"):
            tables.read(tmp_path / "t.csv", encoding=name)


def test_a_gzip_file_that_is_damaged_or_holds_too_much_is_refused(tmp_path, monkeypatch):
    packed = gzip.compress(b"a,y\n" + b"1,2\n" * 100_000)
    (tmp_path / "t.csv.gz").write_bytes(packed[:-20])
    with pytest.raises(ValueError, match="damaged gzip file"):
        tables.read(tmp_path / "t.csv.gz")
    monkeypatch.setattr(tables, "SMALL_TEXT", 1000)
    (tmp_path / "t.csv.gz").write_bytes(packed)
    with pytest.raises(ValueError, match="unpacks to more than"):
        tables.read(tmp_path / "t.csv.gz")


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_separators_quotes_and_byte_order_marks(mark, tmp_path):
    text = f'\ufeffa{mark} "b{mark} c" \r\n 1.5 {mark}"x{mark} y"\r\nNaN{mark}none\r\n'
    (tmp_path / "t.csv").write_bytes(text.encode())
    cells = tables.read(tmp_path / "t.csv")
    assert cells.columns == {"a": ["1.5", ""], f"b{mark} c": [f"x{mark} y", "none"]}
    assert cells.lines == [2, 3]


def test_decimal_commas(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1,5;2\n-0,25;none\n")
    cells = tables.read(tmp_path / "t.csv")
    assert [column.kind for column in tables.typed(cells, ["a", "b"]).columns.values()] == ["number", "number"]
    np.testing.assert_array_equal(cells.numbers("a"), [1.5, -0.25])
    np.testing.assert_array_equal(cells.numbers("b"), [2.0, np.nan])
