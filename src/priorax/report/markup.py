"""HTML of pages. Everything that comes from files is escaped."""

import base64
import html
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from priorax.report.plots import figure_bytes


def text(value: Any) -> str:
    """Escape a value for HTML.

    Args:
        value: Anything with a string form.

    Returns:
        The escaped text.
    """
    return html.escape(str(value).encode("utf-8", "replace").decode())


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Create a table.

    Args:
        header: Names of the columns, as plain text.
        rows: Cells, as HTML; the first one of each row is its heading.

    Returns:
        The HTML.
    """
    heads = "".join(f'<th scope="col">{text(head)}</th>' for head in header)
    lines = (
        "".join(f"<td>{cell}</td>" if i else f'<th scope="row">{cell}</th>' for i, cell in enumerate(row))
        for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def picture(figure: Figure, words: str) -> str:
    """Embed a figure in a page.

    Args:
        figure: The figure.
        words: What it shows, for those who cannot see it.

    Returns:
        The HTML, with the figure as SVG.
    """
    code = base64.b64encode(figure_bytes(figure, "svg")).decode()
    return f'<img class="plot" alt="{text(words)}" src="data:image/svg+xml;base64,{code}">'
