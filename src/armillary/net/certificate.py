"""The development certificate: self-signed, for this machine's own names, made when the first TLS client comes.

It lets SDKs that insist on https connect; it proves nothing to anybody. A server on a real network is given a
certificate of its own. `cryptography` is imported only here, and only when needed: that takes tenths of a second.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from armillary import limits
from armillary.clock import Clock, SystemClock
from armillary.storage.directory import write_private

if TYPE_CHECKING:
    from cryptography import x509

CERTIFICATE_FILE: Final = "certificate.pem"
KEY_FILE: Final = "key.pem"
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


def development_context(
    directory: Path | None, hosts: Sequence[str] = (), *, clock: Clock | None = None
) -> ssl.SSLContext:
    """TLS with the certificate of `directory`, made there if it is missing or no longer good. None: nothing is kept."""
    if directory is not None:
        return load_context(*ensure_certificate(directory, hosts, clock=clock))
    with tempfile.TemporaryDirectory(prefix="armillary-tls-") as private:  # the ssl module reads keys from files alone
        return load_context(*ensure_certificate(Path(private), hosts, clock=clock))


def load_context(certificate_file: Path, key_file: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer, HTTP/1.1 inside, with any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate_file, key_file)
    return context


def ensure_certificate(directory: Path, hosts: Sequence[str] = (), *, clock: Clock | None = None) -> tuple[Path, Path]:
    """The files of certificate and key in `directory`. One that has been trusted stays as long as it is of use."""
    names = list(dict.fromkeys((*_HOSTS, *hosts)))
    now = datetime.fromtimestamp((clock or SystemClock()).now_s(), UTC)
    certificate_file, key_file = directory / CERTIFICATE_FILE, directory / KEY_FILE
    if not _is_good(certificate_file, key_file, names, now):
        certificate, key = _make(names, now)
        # A crash in between leaves two files that do not fit, which the next start notices and makes anew.
        write_private(key_file, key)
        write_private(certificate_file, certificate)
    return certificate_file, key_file


def _is_good(certificate_file: Path, key_file: Path, names: Sequence[str], now: datetime) -> bool:
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        load_context(certificate_file, key_file)  # refuses a key that does not fit
        covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    is_current = certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
    return is_current and all(_general_name(name) in covered for name in names)


def _make(names: Sequence[str], now: datetime) -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "localhost"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Armillary development certificate"),
        ]
    )
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    public = key.public_key()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clients whose clock is behind ours
        .not_valid_after(now + timedelta(days=limits.CERTIFICATE_DAYS - 1))
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        # Not an authority: whoever trusts it trusts this server, and nothing that it could sign.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
    private_bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private_bytes


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
