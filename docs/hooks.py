"""Include files from outside docs/ in the site: results/, notebooks/, and parts of results/README.md.

A line `<!-- result: figure13 -->` is replaced by that result's figure, command and description, `<!-- other results
-->`, on one line, by all results that the page does not show, and `<!-- section: NAME -->` by the section of that name.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
FOLDERS = {"results": (".png", ".csv", ".json", ".gif"), "notebooks": (".ipynb",)}
RESULT = re.compile(r"^<!-- result: ([\w.]+) -->$", re.MULTILINE)
SECTION = re.compile(r"^<!-- section: (.+) -->$", re.MULTILINE)


class Result(NamedTuple):
    """A row of the table in results/README.md."""

    name: str
    picture: str
    command: str
    seen: str


def results() -> dict[str, Result]:
    """Return the rows of the table that have a figure, by name."""
    found = {}
    for line in (ROOT / "results" / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        first = re.fullmatch(r"\[(.+)\]\((.+\.(?:png|gif))\)", cells[0])
        if first and len(cells) == 3:
            found[first[1]] = Result(first[1], first[2], *cells[1:])
    return found


def section(name: str) -> str:
    """Return a section of results/README.md without its heading, with links relative to a page beside the folder.

    Args:
        name: Heading of the section.

    Returns:
        The Markdown text.

    Raises:
        ValueError: If there is no such section.
    """
    text = (ROOT / "results" / "README.md").read_text()
    body = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if body is None:
        raise ValueError(f"results/README.md has no section {name!r}")
    return re.sub(r"\]\((?!http|#)", "](results/", body[1].strip())


def shown(result: Result) -> str:
    """Format a result as Markdown.

    Args:
        result: The result.

    Returns:
        The Markdown text.
    """
    return f"![{result.name}](results/{result.picture})\n\n**Command.** {result.command}\n\n**Result.** {result.seen}\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add files from outside docs/.

    Args:
        files: The files of the site.
        config: The configuration of the site.

    Returns:
        All files.
    """
    for folder, kinds in FOLDERS.items():
        for path in sorted((ROOT / folder).glob("*")):
            if path.suffix in kinds:
                files.append(File.generated(config, f"{folder}/{path.name}", abs_src_path=str(path)))
    files.append(File.generated(config, "results/all.md", abs_src_path=str(ROOT / "results" / "README.md")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the placeholders of a page, and links out of docs/ to included files, which the site has inside of it.

    Args:
        markdown: The text of the page.
        **_: Not used.

    Returns:
        The text with results and sections.
    """
    rows = results()
    markdown = re.sub(r"\]\(\.\./((?:\.\./)*(?:results|notebooks)/)", r"](\1", markdown)
    markdown = markdown.replace("results/README.md)", "results/all.md)")
    if "<!-- other results -->" in markdown:
        named = RESULT.findall(markdown)
        others = [f"### {name}\n\n{shown(row)}" for name, row in rows.items() if name not in named]
        markdown = markdown.replace("<!-- other results -->", "\n".join(others))
    markdown = RESULT.sub(lambda found: shown(rows[found[1]]), markdown)
    return SECTION.sub(lambda found: section(found[1]), markdown)
