"""The pages of the documentation, and the code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_REGISTERS = re.compile(r"^@?register(_\w+)?\(", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(language: str) -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page) if block.language == language]


def blocks_of(page: Path, language: str | None = None) -> Iterator[Block]:
    text = page.read_text()
    for match in FENCE.finditer(text):
        if language in (None, match["language"]):
            yield Block(page, text.count("\n", 0, match.start()) + 1, match["language"], match["text"])


def write_modules(page: Path, directory: Path) -> None:
    """Write the plugins and connectors that a page shows to files, one per block."""
    directory.mkdir(parents=True, exist_ok=True)
    for block in blocks_of(page, "python"):
        if _REGISTERS.search(block.text):
            (directory / f"line_{block.line:04d}.py").write_text(block.text)
