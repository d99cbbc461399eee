"""What the site takes from outside docs/, without copies: results/, notebooks/, and single rows and sections of
results/README.md.

In a page, a line `<!-- result: figure13 -->` becomes that result's picture, command and finding; `<!-- other results
-->`, on one line, all that are not on the page yet; `<!-- section: NAME -->` the section of that name.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
FOLDERS = {"results": (".png", ".csv", ".gif"), "notebooks": (".ipynb",)}
RESULT = re.compile(r"^<!-- result: ([\w.]+) -->$", re.MULTILINE)
SECTION = re.compile(r"^<!-- section: (.+) -->$", re.MULTILINE)


class Result(NamedTuple):
    """A row of the table in results/README.md."""

    name: str
    picture: str
    command: str
    minutes: str
    seen: str


def results() -> dict[str, Result]:
    """The rows that have a picture, by name."""
    found = {}
    for line in (ROOT / "results" / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        first = re.fullmatch(r"\[(.+)\]\((.+\.(?:png|gif))\)", cells[0])
        if first and len(cells) == 4:
            found[first[1]] = Result(first[1], first[2], *cells[1:])
    return found


def section(name: str) -> str:
    """A section of results/README.md, without its heading, its links as seen from a page beside the folder."""
    text = (ROOT / "results" / "README.md").read_text()
    body = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if body is None:
        raise ValueError(f"results/README.md has no section {name!r}")
    return re.sub(r"\]\((?!http|#)", "](results/", body[1].strip())


def shown(result: Result) -> str:
    """A result as Markdown."""
    return (
        f"![{result.name}](results/{result.picture})\n\n"
        f"**Command.** {result.command} (minutes: {result.minutes})\n\n"
        f"**Seen here.** {result.seen}\n"
    )


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is outside docs/."""
    for folder, kinds in FOLDERS.items():
        for path in sorted((ROOT / folder).glob("*")):
            if path.suffix in kinds:
                files.append(File.generated(config, f"{folder}/{path.name}", abs_src_path=str(path)))
    files.append(File.generated(config, "results/all.md", abs_src_path=str(ROOT / "results" / "README.md")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the lines that ask for something."""
    rows = results()
    if "<!-- other results -->" in markdown:
        named = RESULT.findall(markdown)
        others = [f"### {name}\n\n{shown(row)}" for name, row in rows.items() if name not in named]
        markdown = markdown.replace("<!-- other results -->", "\n".join(others))
    markdown = RESULT.sub(lambda found: shown(rows[found[1]]), markdown)
    return SECTION.sub(lambda found: section(found[1]), markdown)
