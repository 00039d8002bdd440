"""The generated password of a server, in a file next to its data that only its owner can read."""

from __future__ import annotations

import secrets

from streamling.dev.server import Site

PASSWORD_FILE = "password"


def create_password(site: Site) -> str:
    """The password of the server; generated at its first start."""
    file = site.directory / PASSWORD_FILE
    if not file.exists():
        draft = file.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(18))
        draft.rename(file)
    return file.read_text()


def read_password(site: Site) -> str:
    return (site.directory / PASSWORD_FILE).read_text()
