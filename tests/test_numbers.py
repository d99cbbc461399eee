"""Every measured number of the texts is what the committed rows say."""

import pytest

from tools import numbers, sources


def test_the_texts_say_what_the_rows_say(capsys):
    assert numbers.main([]) == 0, capsys.readouterr().err


def test_an_altered_row_is_noticed(tmp_path, monkeypatch):
    """A text with a span of its own, over a copy of the rows in which one run took twice as long."""
    folder = tmp_path / "results"
    folder.mkdir()
    original = sources.ROOT / "results"
    for name in ("figure3_full.csv", "figure3_full.settings.json"):
        (folder / name).write_bytes((original / name).read_bytes())
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    monkeypatch.setattr(numbers, "ROOT", tmp_path)
    sources.rows.cache_clear()
    text = tmp_path / "text.md"
    text.write_text(numbers.renewed("It takes <!--n time name=figure3 method=bsp N=10-->?<!--/n--> episodes."))
    assert list(numbers.differences(text)) == []
    header, *lines = (folder / "figure3_full.csv").read_text().splitlines()
    place = header.split(",").index("episodes_to_learn")

    def slower(line):
        cells = line.split(",")
        if ",bsp,bsp,deep_sea,10," in line:
            cells[place] = str(2 * int(cells[place]))
        return ",".join(cells)

    (folder / "figure3_full.csv").write_text("\n".join([header, *map(slower, lines)]) + "\n")
    sources.rows.cache_clear()
    (words,) = numbers.differences(text)
    assert "time name=figure3 method=bsp N=10 is now" in words
    sources.rows.cache_clear()


def test_a_number_that_no_source_computes_is_noticed_unless_it_is_code_or_a_link(tmp_path, monkeypatch):
    monkeypatch.setattr(numbers, "ROOT", tmp_path)
    path = tmp_path / "text.md"
    path.write_text("Takes 42 minutes.\n`K=20` and [a](b10.png)\n<!--n x-->7<!--/n--> runs\n```\n12\n```\nDeepSea N²\n")
    assert list(numbers.typed(path)) == ["text.md: Takes 42 minutes."]


def test_tables_keep_their_own_lines_and_unknown_sources_are_named():
    text = numbers.renewed("<!--n a-->\nold\n<!--/n-->", lambda words: f"new {words}")
    assert text == "<!--n a-->\nnew a\n<!--/n-->"
    with pytest.raises(ValueError, match="no source 'nothing'"):
        numbers.value("nothing")
