"""Every measured number of the texts is what the committed rows say."""

import pytest

from tools import numbers, sources


def forget():
    """The rows that were read."""
    sources.rows.cache_clear()
    sources.file_rows.cache_clear()


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
    forget()
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
    forget()
    (words,) = numbers.differences(text)
    assert "the text of 'time name=figure3 method=bsp N=10' is" in words
    forget()


ALTERED = (
    ("results/figure5_full.csv", ",710.48,", ",610.48,", "README.md: the text of 'stat"),
    ("results/compare_tuned.csv", ",172,172,", ",572,572,", "results/README.md: the text of 'times"),
    ("benchmarks/results.json", '"measured": 8.952', '"measured": 3.952', "README.md: the text of 'benchmark"),
)


def test_the_command_fails_when_committed_measurements_are_altered(tmp_path, monkeypatch, capsys):
    root = numbers.ROOT
    wanted = [*numbers.texts(), *(root / "results").rglob("*.csv"), *(root / "results").rglob("*.json")]
    for path in [*wanted, root / "benchmarks" / "results.json"]:
        copy = tmp_path / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    for file, before, after, _ in ALTERED:
        content = (tmp_path / file).read_text()
        assert before in content
        (tmp_path / file).write_text(content.replace(before, after))
    for module in (sources, numbers):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    forget()
    assert numbers.main([]) == 1
    said = capsys.readouterr().err
    assert all(words in said for *_, words in ALTERED)
    forget()


def test_rows_are_selected_by_words_numbers_and_ranges_and_a_wrong_name_is_an_error():
    rows = [{"name": "a b", "x": 1}, {"name": "a b", "x": -2.5}, {"name": "c", "x": 1}]
    assert sources.select(rows, name="a_b", x="1") == rows[:1]
    assert sources.select(rows, x="-3..0") == rows[1:2]
    with pytest.raises(ValueError, match="no rows have"):
        sources.select(rows, name="d")


def test_statistics_are_of_the_last_rows_of_each_group_and_rows_without_the_column_do_not_count():
    rows = [{"seed": seed, "y": seed + i} for seed in (0, 10) for i in range(3)] + [{"seed": 0}]
    assert sources.statistic(rows, "y", each="seed", tail="2", form=".1f") == "1.5, 11.5"
    assert sources.statistic(rows, "y", how="max") == "12"
    assert sources.statistic([{"y": -0.2}], "y") == "0"


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
