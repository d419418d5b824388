"""`armillary trust`: where the development certificate is, and what makes which program accept it.

Making and renewing the certificate is left to `net/certificate.py`.
"""

from __future__ import annotations

from pathlib import Path

from armillary.errors import Failure, Kind, bad_request
from armillary.net.certificate import ensure_certificate, is_made_by_armillary, read_certificate
from armillary.storage.directory import DataDirectory
from armillary.tools.settings import Settings

_TEXT = """\
The development certificate is {file}
It is good for localhost, 127.0.0.1 and ::1{more}. To make programs on this machine accept it:

  Debian, Ubuntu   sudo install -m 644 {file} /usr/local/share/ca-certificates/armillary.crt
                   sudo update-ca-certificates
  Fedora, RHEL     sudo install -m 644 {file} /etc/pki/ca-trust/source/anchors/armillary.pem
                   sudo update-ca-trust
  macOS            sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain {file}
  Windows          certutil -addstore -f Root {file}
  Python           export REQUESTS_CA_BUNDLE={file} SSL_CERT_FILE={file}
                   (azure-cosmos needs nothing for localhost and 127.0.0.1)
  Node.js          export NODE_EXTRA_CA_CERTS={file}

Or use http instead of https: the same port serves both."""


def trust(settings: Settings) -> str:
    if settings.is_in_memory:
        raise bad_request("A server that keeps nothing on disk has a new certificate at every start. Use --data.")
    if settings.tls_certificate is not None:
        raise bad_request(
            "The server has a certificate of its operator's (--tls-certificate): clients trust its authority."
        )
    directory = settings.directory
    try:
        if not (directory / "FORMAT").exists():
            # A certificate alone would make it a directory that is not empty and not ours.
            DataDirectory.claim(directory, settings.data_permissions).release()
        certificate, _key = ensure_certificate(directory.resolve(), settings.named_hosts)
    except OSError as error:
        raise Failure(
            Kind.UNAVAILABLE,
            f"The certificate cannot be kept in the data directory: {error.strerror}. Check its permissions and disk.",
        ) from error
    made = read_certificate(certificate)
    if made is None or not is_made_by_armillary(made):
        raise bad_request(
            f"Armillary did not make {certificate} and uses it as it is: clients trust the authority that signed it."
        )
    return _TEXT.format(file=_quote(certificate), more="".join(f" and {host}" for host in settings.named_hosts))


def _quote(path: Path) -> str:
    text = str(path)
    return f'"{text}"' if " " in text else text
