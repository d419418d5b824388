"""The development certificate: self-signed, for this machine's own names, made when the first TLS client comes.

It lets SDKs that insist on https connect; it proves nothing to clients that were not told to trust it. Servers on a
network have a certificate of the operator's (`tls.py`), of which only the dates and names are looked at here, for the
log. Files that Armillary did not make are never written over.
`cryptography` is imported only here, and only when needed: that takes tenths of a second.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from armillary import limits
from armillary.clock import Clock, SystemClock
from armillary.errors import Failure, Kind
from armillary.net.tls import load_context
from armillary.storage.directory import write_private

if TYPE_CHECKING:
    from cryptography import x509

log = logging.getLogger("armillary.net")

CERTIFICATE_FILE: Final = "certificate.pem"
KEY_FILE: Final = "key.pem"
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
# How Armillary knows its own files: the certificate's organisation, and a line before the key, which PEM allows.
_ORGANIZATION: Final = "Armillary development certificate"
_KEY_MARK: Final = b"Key of the Armillary development certificate\n"


def development_context(
    directory: Path | None, hosts: Sequence[str] = (), *, clock: Clock | None = None
) -> ssl.SSLContext:
    """TLS with the certificate of `directory`, made there if it is missing or no longer good. None: nothing is kept."""
    if directory is not None:
        return load_context(*ensure_certificate(directory, hosts, clock=clock))
    return context_of(*make_certificate(hosts, clock=clock))


def make_certificate(hosts: Sequence[str] = (), *, clock: Clock | None = None) -> tuple[bytes, bytes]:
    """Certificate and key in PEM form, kept in no file."""
    now = datetime.fromtimestamp((clock or SystemClock()).now_s(), UTC)
    return _make(list(dict.fromkeys((*_HOSTS, *hosts))), now)


def context_of(certificate: bytes, key: bytes) -> ssl.SSLContext:
    with tempfile.TemporaryDirectory(prefix="armillary-tls-") as private:  # the ssl module reads keys from files alone
        files = Path(private, CERTIFICATE_FILE), Path(private, KEY_FILE)
        for file, content in zip(files, (certificate, key), strict=True):
            write_private(file, content)
        return load_context(*files)


def public_part(file: Path) -> bytes:
    """The certificates of a PEM file, without anything else that it may hold: a private key, say."""
    return b"".join(each + b"\n" for each in _CERTIFICATE.findall(file.read_bytes()))


def ensure_certificate(directory: Path, hosts: Sequence[str] = (), *, clock: Clock | None = None) -> tuple[Path, Path]:
    """The files of certificate and key in `directory`. One that has been trusted stays as long as it is of use.

    Files of another origin are used as they are if they fit each other; if not, a Failure says so.
    """
    names = list(dict.fromkeys((*_HOSTS, *hosts)))
    now = datetime.fromtimestamp((clock or SystemClock()).now_s(), UTC)
    certificate_file, key_file = directory / CERTIFICATE_FILE, directory / KEY_FILE
    certificate = read_certificate(certificate_file)
    fits = _fits(certificate_file, key_file)
    if not _is_ours(certificate_file, key_file, certificate, fits=fits):
        _check_foreign(certificate, hosts, now, fits=fits)
    elif certificate is None or not fits or not _is_current(certificate, now) or missing_names(certificate, names):
        made, key = _make(names, now)
        # A crash in between leaves two files that do not fit and are marked as ours: the next start makes them anew.
        write_private(key_file, _KEY_MARK + key)
        write_private(certificate_file, made)
    return certificate_file, key_file


def read_certificate(file: Path) -> x509.Certificate | None:
    """The first one in the file; None if there is none."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError):
        return None


def missing_names(certificate: x509.Certificate, names: Sequence[str]) -> list[str]:
    """Those of `names` that clients would refuse this certificate for."""
    from cryptography import x509

    try:
        covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return list(names)
    patterns = {name.lower() for name in covered.get_values_for_type(x509.DNSName)}
    return [
        name
        for name in names
        if _general_name(name) not in covered
        and name.lower() not in patterns
        and f"*.{name.lower().partition('.')[2]}" not in patterns
    ]


def log_certificate(certificate_file: Path, hosts: list[str], clock: Clock) -> None:
    """Log until when a certificate is valid, and what clients will refuse it for."""
    certificate = read_certificate(certificate_file)
    if certificate is None:
        return
    now = datetime.fromtimestamp(clock.now_s(), UTC)
    until = certificate.not_valid_after_utc
    if not certificate.not_valid_before_utc <= now < until:
        log.warning("the TLS certificate is not valid now: it is valid until %s", f"{until:%Y-%m-%d %H:%M}Z")
    missing = missing_names(certificate, hosts)
    if missing:
        log.warning("the TLS certificate does not name %s: clients will refuse it there", ", ".join(missing))
    log.info("TLS certificate loaded, valid until %s", f"{until:%Y-%m-%d %H:%M}Z")


def is_made_by_armillary(certificate: x509.Certificate) -> bool:
    from cryptography.x509.oid import NameOID

    organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return [each.value for each in organizations] == [_ORGANIZATION]


def _is_ours(certificate_file: Path, key_file: Path, certificate: x509.Certificate | None, *, fits: bool) -> bool:
    """Whether both files may be written: each is missing, empty or made by Armillary."""
    if certificate is not None:
        if not is_made_by_armillary(certificate):
            return False
    elif _has_content(certificate_file):
        return False
    # Earlier versions wrote keys without the mark; those belong to the certificate beside them.
    return (certificate is not None and fits) or not _has_content(key_file) or _is_marked(key_file)


def _has_content(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False


def _is_marked(key_file: Path) -> bool:
    return key_file.read_bytes().startswith(_KEY_MARK)


def _fits(certificate_file: Path, key_file: Path) -> bool:
    try:
        load_context(certificate_file, key_file)  # refuses a key that does not belong to the certificate
    except (OSError, ValueError):
        return False
    return True


def _is_current(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def _check_foreign(certificate: x509.Certificate | None, hosts: Sequence[str], now: datetime, *, fits: bool) -> None:
    if certificate is None or not fits:
        raise Failure(
            Kind.UNAVAILABLE,
            f"{CERTIFICATE_FILE} and {KEY_FILE} in the data directory were not made by Armillary and are not a "
            "certificate with its key. They are left as they are: name the right files with --tls-certificate and "
            "--tls-key, or remove both to have a development certificate made.",
        )
    if not _is_current(certificate, now):
        log.warning("the certificate in the data directory is not valid now; Armillary did not make it and leaves it")
    missing = missing_names(certificate, hosts)
    if missing:
        log.warning(
            "the certificate in the data directory does not name %s; Armillary did not make it and leaves it",
            ", ".join(missing),
        )


def _make(names: Sequence[str], now: datetime) -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "localhost"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION),
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
        # Not a certificate authority: trusting it means trusting this server, not certificates that it signs.
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
