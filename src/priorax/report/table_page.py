"""The report on a model of a CSV file: a single HTML file that needs no network. All text from files is escaped."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from priorax.checks import short_number
from priorax.report import residuals
from priorax.report.calibration import Calibration
from priorax.report.markup import picture, table, text
from priorax.report.viewer import write_page
from priorax.version import __version__


@dataclass(frozen=True)
class DoubtfulRow:
    """A row about which the model is uncertain."""

    place: str
    """Where it is: a line of the file, and its id if it has one."""
    predicted: str
    """The prediction."""
    truth: str
    """The true value; empty if it is unknown."""
    doubt: float
    """Epistemic uncertainty."""
    usual: str
    """How that compares with the training rows."""
    causes: tuple[str, ...]
    """What makes the row doubtful, in sentences without full stops."""


@dataclass(frozen=True)
class TablePage:
    """Content of a report."""

    title: str
    """What was predicted, from which file."""
    summary: str
    """One or two sentences about the model and the rows."""
    calibration: Calibration | None = None
    """Calibration and scores on rows with a known target, if there are any."""
    measured_on: str = ""
    """What these rows are."""
    predictions: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    """For numbers: true values, predicted means and total standard deviations of these rows."""
    doubtful: tuple[DoubtfulRow, ...] = ()
    """The most doubtful rows, the most doubtful one first."""
    doubtful_of: str = ""
    """What rows these were chosen from."""
    columns: tuple[tuple[str, str], ...] = ()
    """Columns that the model uses, and how."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Columns that it does not use, and why."""
    notes: tuple[str, ...] = ()
    """What else was noticed."""


def write_table_page(page: TablePage, out: Path | str) -> Path:
    """Write a report.

    Args:
        page: Its content.
        out: The file to write.

    Returns:
        The file written.
    """
    sections = [_scores(page), _residuals(page), _doubtful(page), _columns(page)]
    filled = {
        "title": text(page.title),
        "summary": text(page.summary),
        "sections": "\n".join(filter(None, sections)),
        "version": text(f"Written by priorax {__version__}."),
    }
    return write_page("table.html", filled, out)


def _section(name: str, title: str, words: str, body: str) -> str:
    soft = f'<p class="soft">{words}</p>\n' if words else ""
    return f'<section id="{name}">\n<h2>{text(title)}</h2>\n{soft}{body}\n</section>'


def _plain(lines: Sequence[Sequence[str]]) -> str:
    """Create a table from a header and rows of plain text."""
    header, *rows = lines
    return table(header, [[text(cell) for cell in row] for row in rows])


def _scores(page: TablePage) -> str:
    found = page.calibration
    if found is None:
        return ""
    body = _plain([(name or "score", *rest) for name, *rest in found.summary()])
    if found.kind == "number":
        words = (
            "Left: how often the true value is inside the predicted interval. On the dashed line the model is as "
            "certain as it should be; below it is overconfident, above it is too cautious. Right: how wide the "
            "intervals are, in units of the target."
        )
    else:
        words = (
            "Left: of the rows predicted with some confidence, the fraction that is right. On the dashed line the "
            "model is as certain as it should be; below it is overconfident, above it is too cautious. Right: how many "
            "rows have which confidence."
        )
        body += _classes(found)
    drawn = picture(found.plot(), "Observed against nominal frequencies")
    return (
        _section("scores", "Scores", text(f"Measured on {page.measured_on}."), body)
        + "\n"
        + _section("calibration", "Calibration", words, drawn)
    )


def _classes(found: Calibration) -> str:
    names = [score.name for score in found.classes]
    rows = [
        [text(name), *(f"<b>{count:,}</b>" if i == j else f"{count:,}" for j, count in enumerate(counts))]
        for i, (name, counts) in enumerate(zip(names, found.confusion, strict=True))
    ]
    return (
        "<h3>Each class against the rest</h3>"
        + _plain(found.class_summary())
        + "<h3>Confusion matrix</h3><p class='soft'>Rows of the table are true classes, columns predicted ones; bold: "
        + "right predictions.</p>"
        + table(["true class", *(f"predicted {name}" for name in names)], rows)
    )


def _residuals(page: TablePage) -> str:
    if page.predictions is None:
        return ""
    words = (
        "Left: points near the dashed line are predicted well; bars are one total standard deviation. Middle: "
        "residuals should scatter around zero without a pattern, nearly all inside the grey band. Right: divided by "
        "the predicted standard deviation, they should follow the red normal curve; a wider histogram means "
        "overconfidence."
    )
    if len(page.predictions[0]) > residuals.MOST_POINTS:
        words += f" Points: {residuals.MOST_POINTS:,} of {len(page.predictions[0]):,} rows."
    drawn = picture(residuals.figure(*page.predictions), "Residuals on rows with a known target")
    return _section("residuals", "Residuals", words, drawn)


def _doubtful(page: TablePage) -> str:
    if not page.doubtful:
        return ""
    known = any(row.truth for row in page.doubtful)
    header = ["row", "predicted", *(["true"] if known else []), "doubt", "what makes it doubtful"]
    lines = []
    for row in page.doubtful:
        causes = "".join(f"<li>{text(cause)}</li>" for cause in row.causes)
        why = f"<ul>{causes}</ul>" if causes else "<p>no single column</p>"
        doubt = f"<b>{short_number(row.doubt, 3)}</b><br><small class='soft'>{text(row.usual)}</small>"
        lines.append([text(row.place), text(row.predicted), *([text(row.truth)] if known else []), doubt, why])
    words = (
        f"Of {text(page.doubtful_of)}. Doubt is epistemic uncertainty, which more data like the row would reduce: the "
        "standard deviation between the members of the ensemble, or their mutual information in nats for classes. The "
        "last column names the columns with whose usual value, that of training rows alike in all other columns, the "
        "doubt would be lower."
    )
    return _section("doubtful", "Most doubtful rows", words, table(header, lines))


def _columns(page: TablePage) -> str:
    used = table(["column", "used as"], [[text(name), text(how)] for name, how in page.columns])
    left_out = [[text(name), text(why)] for name, why in page.left_out.items()]
    rest = "<h3>Left out</h3>" + table(["column", "because it"], left_out) if left_out else ""
    notes = "".join(f"<li>{text(note)}</li>" for note in page.notes)
    said = f"<h3>Notes</h3><ul>{notes}</ul>" if notes else ""
    return _section("columns", "Columns", "", used + rest + said)
