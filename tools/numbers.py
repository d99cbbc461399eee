"""`make numbers`: recompute every number of the texts from the committed rows, and fail where one differs.

In README.md, results/README.md and docs/ a number that was measured stands between two comments:

    <!--n figure8.median N=20-->182 [171, 204]<!--/n-->

The words after `n` name a function in `SOURCES`, and its arguments; what stands between the comments must be what it
returns. Tables stand between such comments on lines of their own. `python -m tools.numbers --write` replaces what
differs. Lines with numbers outside of such comments, such as settings and definitions, are listed in
`tools/typed_numbers.txt`: a new one fails until it was put between comments or, by `--write-typed`, on the list.
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


def texts(root: Path = ROOT) -> list[Path]:
    """List the texts that may have numbers.

    Args:
        root: The root of the repository.

    Returns:
        The Markdown files.
    """
    return [root / "README.md", root / "results" / "README.md", *sorted((root / "docs").rglob("*.md"))]


def value(words: str) -> str:
    """Compute what stands between two comments.

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
    """Recompute the numbers of a text.

    Args:
        text: The text.
        compute: Gives the text between two comments by their words.

    Returns:
        The text with what its sources say now.
    """

    def one(found: re.Match[str]) -> str:
        words, before = found[1], found[2]
        edge = "\n" if before.startswith("\n") else ""
        return f"<!--n {words}-->{edge}{compute(words)}{edge}<!--/n-->"

    return SPAN.sub(one, text)


def differences(path: Path) -> Iterator[str]:
    """List where a text differs from its rows.

    Args:
        path: The text.

    Yields:
        One line for each number that differs.
    """
    for found in SPAN.finditer(path.read_text()):
        now = value(found[1])
        if found[2].strip() != now.strip():
            yield f"{path.relative_to(ROOT)}: {found[1]} is now\n{now.strip()}\nand not\n{found[2].strip()}"


def typed(path: Path) -> Iterator[str]:
    """List the lines of a text with numbers that no source computes.

    Args:
        path: The text.

    Yields:
        File and line, separated by a colon.
    """
    text = SPAN.sub("", path.read_text())
    text = CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    for line in text.splitlines():
        if NUMBER.search(line):
            yield f"{path.relative_to(ROOT)}: {line.strip()}"


def main(arguments: list[str]) -> int:
    """Check the texts, or renew them.

    Args:
        arguments: `--write` to write the numbers, `--write-typed` to accept all typed ones.

    Returns:
        The exit code: 1 if a text differs from its rows.
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
        print(f"a number that no source computes, in {line}", file=sys.stderr)
    spans = sum(len(SPAN.findall(path.read_text())) for path in texts())
    print(f"{spans} numbers and tables recomputed, {len(wrong)} differ, {len(new)} new typed lines")
    return 1 if wrong or new else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
