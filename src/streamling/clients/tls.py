"""Which certificates are trusted over TLS: those of the machine, or those of the file that SSL_CERT_FILE names.

Clients bring lists of their own, each another one. With this they all trust the same.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from streamling.errors import SETTING_INVALID, UserError

if TYPE_CHECKING:
    import ssl

_VARIABLE = "SSL_CERT_FILE"
HOW_TO_TRUST = f"its authority must be one that the machine trusts, or stand in the file that {_VARIABLE} names"
# Where systems keep what they trust, as one file: Debian and Alpine, Red Hat, SUSE, macOS and BSD.
_USUAL = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def trusted_certificates() -> str | None:
    """A file of certificates. None: the machine has none where it is usual, and a client's own list has to do.

    Raises UserError SETTING_INVALID.
    """
    if named := os.environ.get(_VARIABLE):
        if not Path(named).is_file():
            raise UserError(
                SETTING_INVALID,
                f"the environment variable {_VARIABLE} names the file '{named}', which is not there",
                hint="it must hold the certificates that are trusted, in PEM form",
            )
        return named
    return next((place for place in _USUAL if Path(place).is_file()), None)


def tls_context() -> ssl.SSLContext:
    """For HTTP clients. Raises UserError SETTING_INVALID."""
    return _context(trusted_certificates())


@cache
def _context(file: str | None) -> ssl.SSLContext:
    import ssl

    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        raise UserError(SETTING_INVALID, f"'{file}' does not hold certificates in PEM form: {error}") from error
