"""TLS of the doors: version and certificate of a server context, the operator's certificate and its reload.

The development certificate, which stands in where the operator gives none, is made by `certificate.py`. Deciding per
connection whether it speaks TLS is left to `listen.py`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from armillary.errors import bad_request

TLS_REQUIRED: Final = "This server takes TLS only: use https."


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The operator's files, in PEM form."""

    certificate: Path  # the server's own first, then the chain that leads to its authority
    key: Path


def load_context(certificate_file: Path, key_file: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer, HTTP/1.1 inside, with any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate_file, key_file, password=_no_password)
    return context


def ask_for_client_certificate(context: ssl.SSLContext, authority_file: Path) -> None:
    """Ask clients for a certificate of this authority. One without is served; what needs it is refused by the control
    door. A certificate of another authority ends the handshake."""
    try:
        context.load_verify_locations(authority_file)
    except (OSError, ssl.SSLError) as error:
        reason = f"{authority_file} cannot be used as the authority of client certificates: {_reason(error)}"
        raise bad_request(f"{reason}. --tls-client-ca names a PEM file.") from None
    context.verify_mode = ssl.CERT_OPTIONAL


def operator_context(files: TlsFiles) -> ssl.SSLContext:
    """TLS with the operator's certificate. Raises a Failure that says what is wrong with the files."""
    try:
        context = load_context(files.certificate, files.key)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise bad_request(
            f"The TLS certificate {files.certificate} with the key {files.key} cannot be used: {_reason(error)}."
        ) from None
    return context


def _no_password() -> str:
    """Without this, OpenSSL would ask for the password of an encrypted key on the terminal."""
    raise ValueError("the key is encrypted; give one without a password")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the key does not belong to the certificate"
        return f"it is not PEM, or is damaged ({error.reason or 'no reason given'})"
    if isinstance(error, OSError):
        return error.strerror or "it cannot be read"
    return str(error)
