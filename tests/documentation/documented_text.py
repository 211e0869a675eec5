"""What the documentation says: its code blocks, and every command in blocks, comments and sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

SHELLS = ("bash", "console", "sh", "shell", "text", "")
PROGRAMS = ("fenchel", "make", "python", "pip", "torchrun")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
IN_A_SENTENCE = re.compile(r"`([^`]+)`")
COMMENT = re.compile(r"(?:^|\s)#.*$")


@dataclass(frozen=True)
class Command:
    """A command as it is typed, the page it stands on, and whether in a sentence of it."""

    page: str
    text: str
    in_a_sentence: bool = False

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    found = FENCED.findall(page.read_text(encoding="utf-8"))
    return [text for name, text in found if name == language]


def commands(page: Path) -> list[Command]:
    """Every command of a page, without comments and prompts; one that is there twice, once."""
    return commands_of(page.read_text(encoding="utf-8"), name_of(page))


def name_of(page: Path) -> str:
    """A page as messages call it: its place in the repository."""
    return page.relative_to(ROOT).as_posix()


def commands_of(text: str, name: str) -> list[Command]:
    """The same for a text."""
    shells = [block for language, block in FENCED.findall(text) if language in SHELLS]
    prose = FENCED.sub("\n", text)
    found = []
    for block in [*shells, *INDENTED.findall(prose)]:
        found += [Command(name, line) for line in _lines(block)]
    spans = IN_A_SENTENCE.findall("\n".join([INDENTED.sub("\n", prose), *_comments(text)]))
    for span in map(_on_one_line, spans):
        if _is_command(span):
            found.append(Command(name, span, in_a_sentence=True))
    typed = {command.text for command in found if not command.in_a_sentence}
    return [
        command
        for command in dict.fromkeys(found)
        if not (command.in_a_sentence and command.text in typed)
    ]


def _lines(block: str) -> list[str]:
    lines = block.replace("\\\n", " ").splitlines()
    parts = [part for line in lines for part in COMMENT.sub("", line).split(" && ")]
    return [
        part for part in (_on_one_line(part.lstrip(" $")) for part in parts) if _is_command(part)
    ]


def _comments(text: str) -> list[str]:
    shells = [block for language, block in FENCED.findall(text) if language in SHELLS]
    return [comment for block in shells for comment in re.findall(r"#.*$", block, re.MULTILINE)]


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _is_command(text: str) -> bool:
    program, _, rest = text.partition(" ")
    return program in PROGRAMS and bool(rest) and (program != "python" or ".py" in rest)
