"""Which certificates TLS trusts: those of the operating system, or those in the file that SSL_CERT_FILE names.

Every client library has its own list of authorities. With this module they all trust the same ones.
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
HOW_TO_TRUST = f"its authority must be trusted by the operating system, or be in the file that {_VARIABLE} names"
# Where operating systems keep trusted certificates in one file: Debian and Alpine, Red Hat, SUSE, macOS and BSD.
_USUAL_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def trusted_certificates() -> str | None:
    """The file of trusted certificates. None: no such file in the usual places, so clients use their own lists.

    Raises UserError SETTING_INVALID.
    """
    if named := os.environ.get(_VARIABLE):
        if not Path(named).is_file():
            raise UserError(
                SETTING_INVALID,
                f"the environment variable {_VARIABLE} names the file '{named}', which does not exist",
                hint="it must contain the trusted certificates in PEM format",
            )
        return named
    return next((file for file in _USUAL_FILES if Path(file).is_file()), None)


def tls_context() -> ssl.SSLContext:
    """For HTTP clients. Raises UserError SETTING_INVALID."""
    return _context(trusted_certificates())


@cache
def _context(file: str | None) -> ssl.SSLContext:
    import ssl

    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        raise UserError(SETTING_INVALID, f"'{file}' does not contain certificates in PEM format: {error}") from error
