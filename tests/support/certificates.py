"""An authority, an intermediate one, and the certificates that they sign, as an operator has them."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Signed:
    """A certificate with its key, and the chain above it without the root."""

    def __init__(self, name: str, issuer: Signed | None = None, hosts: tuple[str, ...] = (), days: int = 30) -> None:
        self.issuer: Signed | None = issuer
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.chain: list[Signed] = [] if issuer is None or issuer.issuer is None else [issuer, *issuer.chain]
        now = datetime.now(UTC)
        signer = issuer or self
        builder = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(signer.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=60))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_named(each) for each in hosts]), critical=False
            )
        self.certificate = builder.sign(signer.key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        """The certificate, followed by the chain."""
        every = [self.certificate, *(each.certificate for each in self.chain)]
        return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in every)

    def key_pem(self, password: bytes | None = None) -> bytes:
        encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)

    def write(self, certificate_file: Path, key_file: Path) -> None:
        certificate_file.write_bytes(self.pem)
        key_file.write_bytes(self.key_pem())


def _named(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
