"""`armillary trust`: where the development certificate is, and what makes which program accept it; with `--java`, a
trust store for Java.

Making and renewing the certificate is left to `net/certificate.py`.
"""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from armillary.errors import Failure, Kind, bad_request
from armillary.net.certificate import ensure_certificate, is_made_by_armillary, read_certificate
from armillary.storage.directory import DataDirectory
from armillary.storage.private import whole_file
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
  curl             curl --cacert {file} ...
  Go, Rust         export SSL_CERT_FILE={file}
                   (on macOS and Windows they read the system's store: see above; so do Rust programs with rustls and
                   its own roots, which take the certificate from their code only)
  .NET             the system's store: see above. On Linux also: export SSL_CERT_FILE={file}
  Java             armillary trust --java, which writes a trust store and says how Java reads it

SSL_CERT_FILE takes the place of the system's certificates in the programs that read it.

Or use http instead of https: the same port serves both. azure-cosmos for Java turns http into https unless Java runs
with -DCOSMOS.HTTP_CONNECTION_WITHOUT_TLS_ALLOWED=true; azure-documentdb for Java always does."""

# Java asks for a password even where nothing is secret. This is the one that Java's own store of certificates has.
TRUSTSTORE_PASSWORD = "changeit"
_JAVA_TEXT = """\
The trust store {store} has the development certificate {file} and no other, so that Java programs that use it accept
this server alone. They read it with

  java -Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword={password} ...

To add the certificate to the ones that Java trusts instead:

  sudo keytool -importcert -cacerts -noprompt -storepass {password} -alias armillary -file {file}"""


def trust(settings: Settings, truststore: Path | None = None) -> str:
    """`truststore`: the file for Java that is written too."""
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
    if truststore is not None:
        _write_truststore(made, truststore)
        store = _quote(truststore.resolve())
        return _JAVA_TEXT.format(store=store, file=_quote(certificate), password=TRUSTSTORE_PASSWORD)
    return _TEXT.format(file=_quote(certificate), more="".join(f" and {host}" for host in settings.named_hosts))


def _write_truststore(certificate: x509.Certificate, target: Path) -> None:
    # Java takes only entries for trusted that are marked in a way of its own, which this function does.
    entry = pkcs12.PKCS12Certificate(certificate, b"armillary")
    encryption = serialization.BestAvailableEncryption(TRUSTSTORE_PASSWORD.encode("ascii"))
    with whole_file(target, "trust store") as file:
        file.write(pkcs12.serialize_java_truststore([entry], encryption))


def _quote(path: Path) -> str:
    text = str(path)
    return f'"{text}"' if " " in text else text
