"""How two nodes know each other at the beginning of a connection.

The connecting node compares the certificate's SHA-256 with what the other has announced in the log, before it sends
anything inside TLS. The accepting node sends a nonce and the versions that it speaks. The connecting node answers with
its name, the version that it has chosen, and an HMAC by the cluster's key over the nonce, the certificate that it
sees, its name and the version: an answer that is passed on by a third party names another certificate. A stranger is
told nothing. Nodes that have no version in common part with a sentence.
"""

from __future__ import annotations

import hmac
import ssl
import struct
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.net.certificate import ensure_certificate
from armillary.net.tls import load_context
from armillary.storage.private import make_directory

VERSIONS: Final = (1,)  # of the protocol, that this node speaks
NONCE_BYTES: Final = 32
FINGERPRINT_BYTES: Final = 32
_CONTEXT: Final = b"armillary peer 1\0"


def own_certificate(directory: Path, clock: Clock) -> tuple[ssl.SSLContext, bytes]:
    """TLS for accepted connections and the fingerprint to announce. The certificate is kept in a directory of its
    own, so that one of the doors for which a name is added does not change this one."""
    make_directory(directory)
    certificate_file, key_file = ensure_certificate(directory, clock=clock)
    context = load_context(certificate_file, key_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols([])
    return context, fingerprint_of(ssl.PEM_cert_to_DER_cert(certificate_file.read_text("ascii")))


def fingerprint_of(certificate: bytes) -> bytes:
    """Of a certificate in its binary form (DER)."""
    return sha256(certificate).digest()


def connecting_context() -> ssl.SSLContext:
    """TLS for connections to other nodes: no authority is trusted, the fingerprint decides."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def has_fingerprint(tls: Any, fingerprint: bytes) -> bool:
    """Whether the other side of a TLS connection has shown this certificate."""
    shown = tls.getpeercert(binary_form=True) if tls is not None else None
    return shown is not None and hmac.compare_digest(fingerprint_of(shown), fingerprint)


def authentication(key: bytes, nonce: bytes, fingerprint: bytes, node: str, version: int) -> bytes:
    """What only a node that knows the key can say of itself on this connection."""
    message = _CONTEXT + nonce + fingerprint + node.encode("utf-8", "surrogatepass") + struct.pack(">I", version)
    return hmac.digest(key, message, "sha256")


def hello(nonce: bytes) -> dict[str, Any]:
    return {"versions": list(VERSIONS), "nonce": nonce.hex()}


def proof(head: dict[str, Any], key: bytes, fingerprint: bytes, node: str) -> dict[str, Any]:
    """What the connecting node answers to HELLO. Raises a Failure if there is no version in common."""
    offered = _numbers(head.get("versions"))
    nonce = _bytes(head.get("nonce"), NONCE_BYTES)
    common = set(offered) & set(VERSIONS)
    if not common:
        raise unknown_version(offered)
    version = max(common)
    return {"node": node, "version": version, "proof": authentication(key, nonce, fingerprint, node, version).hex()}


def check_proof(head: dict[str, Any], key: bytes, fingerprint: bytes, nonce: bytes) -> str | None:
    """The name of the connecting node; None if it is a stranger. Raises a Failure if it knows the key and has chosen a
    version that is not spoken here."""
    node, version = head.get("node"), head.get("version")
    if not isinstance(node, str) or not isinstance(version, int) or not 0 <= version < 2**32:
        return None
    expected = authentication(key, nonce, fingerprint, node, version)
    if not hmac.compare_digest(expected, _bytes(head.get("proof"), len(expected))):
        return None
    if version not in VERSIONS:
        raise unknown_version([version])
    return node


def _bytes(text: Any, count: int) -> bytes:
    """Zeros if it is nothing of that form."""
    try:
        found = bytes.fromhex(text)
    except (TypeError, ValueError):
        return bytes(count)
    return found if len(found) == count else bytes(count)


def _numbers(value: Any) -> list[int]:
    listed = value if isinstance(value, list) else []
    return [each for each in listed if isinstance(each, int)]


def unknown_version(offered: Sequence[int]) -> Failure:
    named = ", ".join(map(str, offered)) or "none"
    return Failure(
        Kind.UNSUPPORTED,
        f"The nodes speak different versions of the protocol between nodes: the other one offers {named}, this one "
        f"{', '.join(map(str, VERSIONS))}. Upgrade the older node.",
    )
