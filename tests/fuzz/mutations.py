"""Changes to valid inputs: of bytes, and of the structure of texts."""

from __future__ import annotations

from random import Random

# Numbers at the edges of types, as bytes and as text.
_BYTES = [
    b"",
    b"\0",
    b"\xff",
    b"\x80",
    b"\x7f",
    b"\xef\xbb\xbf",
    b"\xc3",
    b"\r",
    b"\n",
    b"\x80\x80\x80\x80\x10",
    b"\xff" * 10,
]
_WORDS = [
    "",
    " ",
    "\n",
    "\n  ",
    "\n- ",
    "\t",
    ":",
    ": ",
    "'",
    '"',
    "{",
    "}",
    "[",
    "]",
    "|",
    ">",
    "&a ",
    "*a",
    "-",
    "#",
    "!",
    "!!int ",
    "%",
    "@",
    "`",
    "\\",
    "null",
    "~",
    "true",
    "yes",
    "1e999",
    "-1",
    "0",
    ".inf",
    ".nan",
    "9" * 40,
    "1_000",
    "0x",
    "2024-13-45",
    "(",
    ")",
    ",",
    ";",
    "--",
    "/*",
    "*/",
    "*",
    "::",
    "$$",
    "${X}",
    "{{x}}",
    "<<",
    "é",
    "🚀",
    "\u2028",
    "\x85",
    "\u200b",
    "\ud7ff",
    "SELECT ",
    " FROM ",
    " WHERE ",
    " GROUP BY ",
    " UNION ALL ",
    " JOIN ",
    " OVER ()",
    " AS ",
    "CASE WHEN ",
    " END",
    "CAST(",
    "NULL",
    "INTERVAL '1 day'",
    "unnest(",
    "[[[[[[[[",
    "((((((((",
    "{{{{{{{{",
    "x" * 300,
    "\\u0000",
    "\\ud800",
    "\\x",
    "1e-400",
    "[" * 3000,
    '{"a":' * 3000,
    "(" * 2000,
    "- " * 2000,
    "NOT " * 2000,
]


def mutate_bytes(data: bytes, random: Random, other: bytes = b"") -> bytes:
    """The data after a few changes; `other` is an input from which pieces are taken."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        start = random.randint(0, len(data))
        end = min(len(data), start + random.choice((0, 1, 1, 2, 5, 30)))
        match random.randrange(6):
            case 0:
                piece = bytes(random.randrange(256) for _ in range(random.randint(1, 4)))
            case 1:
                piece = random.choice(_BYTES)
            case 2:
                piece = random.choice(_WORDS).encode()
            case 3:
                at = random.randint(0, len(other))
                piece = other[at : at + random.randint(1, 40)]
            case 4:
                piece = data[start:end] * random.choice((2, 3, 50))
            case _ if data:
                flipped = random.randrange(len(data))
                data = data[:flipped] + bytes([data[flipped] ^ (1 << random.randrange(8))]) + data[flipped + 1 :]
                continue
            case _:
                piece = b""
        data = data[:start] + piece + data[end:]
        if not random.randrange(20):
            data = data[: random.randint(0, len(data))]
    return data


def mutate_lines(text: str, random: Random, other: str = "") -> str:
    """The text after changes that respect its lines and words, so that more of it is still understood."""
    lines = text.split("\n")
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(lines))
        match random.randrange(8):
            case 0:
                lines.insert(at, random.choice(other.split("\n")))
            case 1:
                del lines[at]
            case 2:
                lines.insert(at, lines[random.randrange(len(lines))])
            case 3:
                lines[at] = "  " * random.randrange(3) + lines[at].lstrip()
            case 4 if ":" in lines[at]:
                key, colon, _ = lines[at].partition(":")
                lines[at] = f"{key}{colon} {random.choice(_WORDS)}"
            case 5:
                words = lines[at].split(" ")
                words[random.randrange(len(words))] = random.choice(_WORDS)
                lines[at] = " ".join(words)
            case 6:
                words = lines[at].split(" ")
                words.insert(random.randrange(len(words) + 1), random.choice(other.split() or [""]))
                lines[at] = " ".join(words)
            case _:
                lines[at] += random.choice(_WORDS)
        lines = lines or [""]
    return "\n".join(lines)


def mutate_text(text: str, random: Random, other: str = "") -> bytes:
    """By lines and words, by bytes, or both."""
    data = mutate_lines(text, random, other).encode(errors="replace") if random.randrange(4) else text.encode()
    return mutate_bytes(data, random, other.encode()) if not random.randrange(3) else data
