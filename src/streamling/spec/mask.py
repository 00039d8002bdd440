"""One set of rules for what is masked, in every text that is printed, logged or stored.

    is_secretive   a name whose values are secrets
    mask           a secret value
    mask_url       a value that is an address
    mask_text      any text, such as the message of a library
    remember       a secret value that `mask_text` must find

Imports nothing heavy: the launch of Java needs the names.
"""

from __future__ import annotations

import json
import re
import threading
from typing import Final
from urllib.parse import quote, quote_plus, unquote

MASK: Final = "*****"
SECRETIVE = re.compile(
    r"(?<![a-z])pass(?![a-z])|password|passwd|passphrase|passcode|(?<![a-z])pwd?(?![a-z])|keypass|secret|token"
    r"|credential|(?<![a-z])creds?(?![a-z])|(?<![a-z])auth(?![a-z])|bearer|authori[sz]ation|cookie|jaas"
    r"|(?:api|access|account|private)[-_.]?key|keystore",
    re.IGNORECASE,
)
"""Matches names of fields, options and parameters whose values must be masked."""

# What is in front of a password in an address. The user may be empty, and with a scheme it may contain an `@`.
# A URL with one slash is a typing error; its password must be masked all the same.
_USER = re.compile(r":/{1,3}[^:]*:")
_USER_WITHOUT_SCHEME = re.compile(r"\s*[^\s:/?#@]+:(?!/)")
_PARAMETER = re.compile(r"(?<=[?&;#])[^=&;?#\s]+=")
_WORD = re.compile(r"""[^\s"']+""")
# `password=..` as in connection strings and properties, `"password": ".."` as in JSON.
_ASSIGNMENT = re.compile(
    r"""((?<![\w.-])[\w.-]+=|["'][\w.-]+["']\s{0,9}:\s{0,9})("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"',;&}\])]+)"""
)
# A password that is a word, or a number, cannot be told from the same word in a sentence. A header may be a media type.
_ORDINARY = re.compile(
    r"[A-Za-z]+(?:[_ -][A-Za-z]+)*|[0-9]+"
    r"|(?:application|text|multipart|image|audio|video)/[a-z0-9.+-]{1,40}(?:; ?charset=[A-Za-z0-9-]{1,20})?"
)
_LEAST_KNOWN = 5


class _KnownSecrets:
    """The secret values of this process, in every notation in which a library may quote them."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._lock = threading.Lock()

    def add(self, secret: str) -> None:
        lines = [line.strip() for line in (secret, *secret.splitlines())]
        texts = {line for line in lines if len(line) >= _LEAST_KNOWN and not _ORDINARY.fullmatch(line)}
        if texts <= self._texts:
            return
        with self._lock:
            self._texts |= texts
            notations = {notation for text in self._texts for notation in _notations(text)}
            alternatives = sorted(notations, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, alternatives)))

    def mask(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)


_known = _KnownSecrets()


def is_secretive(name: str) -> bool:
    """Whether values under this name may be secrets. All headers count: any of them may be a credential."""
    return name.lower() == "headers" or SECRETIVE.search(name) is not None


def mask(text: str) -> str:
    """`*****`, followed by the last five characters if the text is longer than five."""
    return MASK + text[-5:] if len(text) > 5 else MASK


def mask_url(text: str) -> str:
    """A value that is a URL, or a list of URLs, with all passwords masked: before the host and in the query."""
    return _replace(text, password_spans(text))


def mask_text(text: str) -> str:
    """A text of any origin: known secrets, passwords in URLs and those after `password=` are masked."""
    text = _known.mask(text)
    text = _replace(text, password_spans_in_text(text))
    return _ASSIGNMENT.sub(lambda found: found[1] + MASK if SECRETIVE.search(found[1]) else found[0], text)


def password_spans(url: str, *, bare: bool = True) -> list[tuple[int, int]]:
    """Start and end of what may be a password in a value that is a URL; without `bare` it must have a scheme.

    A password may contain every character, so it ends at the last `@`; one in the query ends where the value ends.
    """
    spans = []
    if (end := url.rfind("@")) > 0:
        user = _USER.search(url, 0, end) or (_USER_WITHOUT_SCHEME.match(url, 0, end) if bare else None)
        if user is not None:
            spans.append((user.end(), end))
    for parameter in _PARAMETER.finditer(url):
        if SECRETIVE.search(parameter[0]):
            apart = [span for span in spans if span[1] < parameter.start()]
            start = parameter.end() if apart else min(parameter.end(), *(span[0] for span in spans), len(url))
            return [*apart, (start, len(url))]
    return spans


def password_spans_in_text(text: str) -> list[tuple[int, int]]:
    """As `password_spans`, for the URLs in a text: each ends at the next space or quote."""
    return [
        (word.start() + start, word.start() + end)
        for word in _WORD.finditer(text)
        if ":/" in word[0] or "?" in word[0]
        for start, end in password_spans(word[0])
    ]


def remember(secret: str) -> None:
    """From now on `mask_text` masks this value. One that may be an ordinary word is not masked."""
    _known.add(secret)


def remember_url(url: str) -> None:
    """As `remember`, for the passwords in an address."""
    for start, end in password_spans(url):
        remember(url[start:end])
        remember(unquote(url[start:end]))


def _replace(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in reversed(spans):
        text = text[:start] + MASK + text[end:]
    return text


def _notations(text: str) -> set[str]:
    return {text, repr(text)[1:-1], json.dumps(text)[1:-1], quote(text, safe=""), quote(text), quote_plus(text)}
