"""`make numbers`: recompute every measured number in the texts from committed rows, and fail if one differs.

In README.md, results/README.md and docs/ a measured number stands between two comments (a *span*):

    <!--n time name=figure8 method=bsp N=20-->192 [180, 209]<!--/n-->

The words after `n` are the name of a function in `tools/sources.py` and its arguments; the text of the span must equal
what the function returns. Tables are spans on lines of their own. `python -m tools.numbers --write` updates all spans.
Lines with other numbers, such as settings and definitions, are listed in `tools/typed_numbers.txt`: a new one is an
error until it becomes a span or, by `--write-typed`, is added to the list.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.sources import SOURCES

ROOT = Path(__file__).parent.parent
SPAN = re.compile(r"<!--n ([^>]+?)-->(.*?)<!--/n-->", re.DOTALL)
TYPED = ROOT / "tools" / "typed_numbers.txt"
CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)\n]*\)|<[^>\n]*>", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.-])\d[\d,.]*\d|(?<![\w.-])\d(?![\w])")


def texts() -> list[Path]:
    """List the texts that may have numbers.

    Returns:
        The Markdown files.
    """
    return [ROOT / "README.md", ROOT / "results" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def value(words: str) -> str:
    """Compute the text of a span.

    Args:
        words: Name of a source, and its arguments as `key=value`.

    Returns:
        The text.

    Raises:
        ValueError: If there is no such source.
    """
    name, *arguments = words.split()
    if name not in SOURCES:
        raise ValueError(f"there is no source {name!r}; known are {', '.join(sorted(SOURCES))}")
    return SOURCES[name](**dict(argument.split("=", 1) for argument in arguments))


def renewed(text: str, compute: Callable[[str], str] = value) -> str:
    """Recompute the spans of a text.

    Args:
        text: The text.
        compute: Computes the text of a span from the words in its first comment.

    Returns:
        The text with updated spans.
    """

    def one(found: re.Match[str]) -> str:
        words, before = found[1], found[2]
        edge = "\n" if before.startswith("\n") else ""
        return f"<!--n {words}-->{edge}{compute(words)}{edge}<!--/n-->"

    return SPAN.sub(one, text)


def differences(path: Path) -> Iterator[str]:
    """List the spans of a file that differ from what their sources return.

    Args:
        path: The Markdown file.

    Yields:
        A message for each span that differs.
    """
    for found in SPAN.finditer(path.read_text()):
        now = value(found[1])
        if found[2].strip() != now.strip():
            yield (
                f"{path.relative_to(ROOT)}: the text of '{found[1]}' is\n{found[2].strip()}\nbut its source returns\n"
                f"{now.strip()}\nrun `python -m tools.numbers --write`"
            )


def typed(path: Path) -> Iterator[str]:
    """List the lines of a file with numbers outside of spans, code and links.

    Args:
        path: The Markdown file.

    Yields:
        File and line, separated by a colon.
    """
    text = SPAN.sub("", path.read_text())
    text = CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    for line in text.splitlines():
        if NUMBER.search(line):
            yield f"{path.relative_to(ROOT)}: {line.strip()}"


def main(arguments: list[str]) -> int:
    """Check the texts, or update them.

    Args:
        arguments: `--write` updates all spans, `--write-typed` accepts all lines with numbers outside of spans.

    Returns:
        The exit code: 1 if a span differs from its source, or a line with a number is not on the list.
    """
    if "--write" in arguments:
        for path in texts():
            path.write_text(renewed(path.read_text()))
    lines = sorted(line for path in texts() for line in typed(path))
    if "--write-typed" in arguments:
        TYPED.write_text("\n".join(lines) + "\n")
    wrong = [words for path in texts() for words in differences(path)]
    known = set(TYPED.read_text().splitlines())
    new = [line for line in lines if line not in known]
    for words in wrong:
        print(words, file=sys.stderr)
    for line in new:
        print(f"{line}\nhas a number outside of a span; make it a span, or run with --write-typed", file=sys.stderr)
    spans = sum(len(SPAN.findall(path.read_text())) for path in texts())
    print(f"{spans} numbers and tables recomputed, {len(wrong)} differ, {len(new)} new typed lines")
    return 1 if wrong or new else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
