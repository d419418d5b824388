"""SCRAM on the server's side (RFC 5802, 7677), and PLAIN.

The account's user has several passwords, which are the account's keys, all with one salt; the proof shows which one
the client knows. Users of databases have one password, of which a verifier is stored. An unknown user gets the same
conversation with keys that match no proof.
"""

from __future__ import annotations

import hashlib
import hmac
import stringprep
import unicodedata
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from armillary import limits
from armillary.account.security.database_users import Verifier
from armillary.doors.mongo.settings import Grant
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal

_PAYLOAD_BYTES_MAX: Final = 4096
_NONCE_BYTES: Final = 24


class Mechanism(NamedTuple):
    name: str
    digest: str
    iterations: int
    salt_bytes: int


_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)
SHA_256: Final = Mechanism("SCRAM-SHA-256", "sha256", limits.MONGO_SCRAM_256_ITERATIONS, 28)
SHA_1: Final = Mechanism("SCRAM-SHA-1", "sha1", limits.MONGO_SCRAM_1_ITERATIONS, 16)
MECHANISMS: Final = {each.name: each for each in (SHA_256, SHA_1)}


class Secret(NamedTuple):
    """What is derived from one password."""

    stored_key: bytes
    server_key: bytes
    grant: Grant
    password: str = ""
    serial: str = ""  # of a user of a database


def secret_of(mechanism: Mechanism, user: str, password: str, salt: bytes, grant: Grant) -> Secret:
    """Takes some milliseconds, by design of PBKDF2."""
    given = password
    if mechanism is SHA_1:
        password = hashlib.md5(f"{user}:mongo:{password}".encode(), usedforsecurity=False).hexdigest()
    salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, mechanism.iterations)
    client_key = _mac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    return Secret(stored_key, _mac(mechanism, salted, b"Server Key"), grant, given)


def verifier_of(password: str, salt: bytes) -> Verifier:
    """What is stored of the password of a user of a database. Takes some milliseconds."""
    made = secret_of(SHA_256, "", _prepared(password), salt, Grant.NOTHING)
    return Verifier(salt, SHA_256.iterations, made.stored_key, made.server_key)


def _prepared(password: str) -> str:
    """SASLprep (RFC 4013), as drivers do it before they derive their proof."""
    if password.isascii():
        return password
    mapped = "".join(
        [" " if stringprep.in_table_c12(each) else each for each in password if not stringprep.in_table_b1(each)]
    )
    found = unicodedata.normalize("NFKC", mapped)
    if any(prohibits(each) for each in found for prohibits in _PROHIBITED):
        raise refusal(2, "The password has characters that SASLprep prohibits")
    return found


def salt_of(mechanism: Mechanism, secret: bytes, user: str, database: str = "") -> bytes:
    """Always the same, also for unknown users: drivers cache what they derive from it, and a stranger who compares
    salts over databases, or before and after a change, learns no name. `database`: of its user; none for the account's
    user, which authenticates against any."""
    named = "\x00".join(("salt", mechanism.name, *((database,) if database else ()), user))
    return hmac.digest(secret, named.encode(), "sha512")[: mechanism.salt_bytes]


class Conversation:
    """One authentication, from the client's first message. Raises a Failure with code 18 if the proof is wrong."""

    def __init__(
        self,
        mechanism: Mechanism,
        first: bytes,
        salt: Callable[[str], tuple[bytes, int]],
        nonce: bytes,
        *,
        skips_empty: bool,
        database: str,
    ) -> None:
        """`salt`: of a user, with the number of iterations that its password is derived by."""
        text = _text(first)
        header, bare = text[:3], text[3:]
        if text.startswith(("n,a=", "y,a=")):
            header_end = text.find(",", 3) + 1
            header, bare = text[:header_end], text[header_end:]
        if header[:2] not in ("n,", "y,"):
            raise failed("Incorrect number of arguments for first SCRAM client message")
        fields = _fields(bare)
        if "n" not in fields or not fields.get("r"):
            raise failed("Invalid SCRAM client message: it needs a user and a nonce")
        self.mechanism = mechanism
        self.user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        self.database = database  # against which the user authenticates
        self.skips_empty = skips_empty
        self.grant = Grant.NOTHING
        self.password = self.serial = ""
        self.is_proven = False
        self._header = header
        self._nonce = fields["r"] + b64encode(nonce[:_NONCE_BYTES]).decode()
        self._bare = bare
        chosen, iterations = salt(self.user)
        self.first_answer = f"r={self._nonce},s={b64encode(chosen).decode()},i={iterations}".encode()

    def prove(self, last: bytes, secrets: Sequence[Secret]) -> bytes:
        """Compare the client's proof with every password of the user; the server's signature."""
        text = _text(last)
        fields = _fields(text)
        without_proof, _, _ = text.rpartition(",p=")
        try:
            proof = b64decode(fields.get("p", ""), validate=True)
            header = b64decode(fields.get("c", ""), validate=True)
        except (Base64Error, ValueError):
            raise failed() from None
        if not hmac.compare_digest(fields.get("r", "").encode(), self._nonce.encode()) or header != (
            self._header.encode()
        ):
            raise failed()
        message = f"{self._bare},{self.first_answer.decode()},{without_proof}".encode()
        found: Secret | None = None
        for secret in secrets:  # all of them, whichever matches: constant time
            signature = _mac(self.mechanism, secret.stored_key, message)
            if len(proof) != len(signature):
                raise failed()
            client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
            claimed = hashlib.new(self.mechanism.digest, client_key).digest()
            if hmac.compare_digest(claimed, secret.stored_key):
                found = secret
        if found is None or found.grant is Grant.NOTHING:
            raise failed()
        self.is_proven = True
        self.grant, self.password, self.serial = found.grant, found.password, found.serial
        return b"v=" + b64encode(_mac(self.mechanism, found.server_key, message))


def plain_credentials(payload: bytes) -> tuple[str, str]:
    """User and password of PLAIN."""
    parts = _text(payload).split("\x00")
    if len(parts) != 3 or not parts[1]:
        raise failed("Incorrectly formatted PLAIN client message")
    return parts[1], parts[2]


def failed(log_only: str = "") -> Failure:
    """The client learns only that it failed; the reason is for the log."""
    return Failure(
        Kind.UNAUTHORIZED, "Authentication failed.", details={"code": 18, **({"why": log_only} if log_only else {})}
    )


def _text(payload: bytes) -> str:
    if len(payload) > _PAYLOAD_BYTES_MAX:
        raise refusal(2, f"The payload of an authentication step has at most {_PAYLOAD_BYTES_MAX} bytes")
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise failed("The payload is no text") from None


def _fields(text: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _mac(mechanism: Mechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.digest)
