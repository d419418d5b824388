"""Authentication with SCRAM or PLAIN: the user is the account, whose passwords are its keys, or one of a database, by
SCRAM-SHA-256. Each connection authenticates for itself.

Keys are derived once for each mechanism, in a thread, when a client first needs them. Comparisons with secrets take
constant time.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from bson.binary import Binary

from armillary.account.account import Account
from armillary.audit import SignInLog
from armillary.clock import Clock
from armillary.doors.mongo.client import Client, Login
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.sessions import scram
from armillary.doors.mongo.sessions.roles import grant_of
from armillary.doors.mongo.settings import Grant
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document

log = logging.getLogger(__name__)

_CONVERSATION: Final = 1
_NONCE_BYTES: Final = 24
_Secrets = tuple[list[scram.Secret], list[scram.Secret]]  # of users that do not exist, and of the one that does


class Authenticator:
    def __init__(
        self, account: Account, owners: Sequence[str | None], readers: Sequence[str | None], clock: Clock
    ) -> None:
        self._users = account.database_users
        self._account = account.settings.name
        self._secret = account.secret  # salts are derived from it
        self._clock = clock
        self._keys: list[tuple[str, Grant]] = []
        self.sign_in_log = SignInLog("mongo")
        self._derived: dict[str, asyncio.Future[_Secrets]] = {}
        self.use(owners, readers)

    def use(self, owners: Sequence[str | None], readers: Sequence[str | None]) -> None:
        """Replace the account's keys."""
        self._keys = [(key, Grant.WRITE) for key in owners if key] + [(key, Grant.READ) for key in readers if key]
        self._derived = {}

    def still_has(self, client: Client) -> bool:
        """Whether what a client authenticated with is still valid: a key of the account, or the password of a user."""
        if client.login is not None:
            user = self._users.find(client.login.database, client.login.name)
            return user is not None and user.serial == client.login.serial
        return client.came_with in {key for key, _ in self._keys}

    def has_owner(self, owner: str) -> bool:
        """Whether the owner of a cursor (`Client.owner`) is still there, with the password that it had."""
        database, name, serial = owner.split("\0")
        user = self._users.find(database, name)
        return user is not None and user.serial == serial

    def check_again(self, clients: Iterable[Client], strangers: Grant) -> None:
        """After a change of keys or users: connections whose key or password is no more valid are closed after the
        answer that is under way, and other roles of users count at once. `strangers`: what they may do from then on."""
        for client in clients:
            if client.user is not None and not self.still_has(client):
                client.user, client.login, client.grant = None, None, strangers
                client.line.retire()
            elif client.login is not None:
                user = self._users.find(client.login.database, client.login.name)
                client.grant = grant_of(user) if user is not None else Grant.NOTHING

    def mechanisms_of(self, user: str) -> list[str]:
        """For hello's saslSupportedMechs, which asks with `database.user`. The answer is the same whether that user
        exists or not: a stranger learns no name from it."""
        return [scram.SHA_1.name, scram.SHA_256.name]

    async def start(self, client: Client, request: Fields, database: str) -> Document:
        mechanism = request.text("mechanism", "")
        payload = request.payload("payload")
        client.conversation = None
        if mechanism == "PLAIN":
            return self._plain(client, payload)
        known = scram.MECHANISMS.get(mechanism)
        if known is None:
            raise refusal(2, f"Unsupported mechanism '{mechanism[:64]}' on authentication database")
        options = request.optional_document("options") or {}
        conversation = scram.Conversation(
            known,
            payload,
            lambda user: self._salt(known, database, user),
            self._clock.random_bytes(_NONCE_BYTES),
            skips_empty=bool(options.get("skipEmptyExchange", False)),
            database=database,
        )
        client.conversation = conversation
        return _step(conversation.first_answer, is_done=False)

    async def go_on(self, client: Client, request: Fields) -> Document:
        conversation = client.conversation
        if conversation is None:
            raise refusal(17, "No SASL session state found")
        if request.body.get("conversationId") != _CONVERSATION:
            client.conversation = None
            raise refusal(17, "sasl: Mismatched conversation id")
        payload = request.payload("payload")
        if conversation.is_proven:
            client.conversation = None
            if payload:
                raise scram.failed("The last message of the client is not empty")
            self._admit_proven(client, conversation)
            return _step(b"", is_done=True)
        client.conversation = None
        answer = conversation.prove(payload, await self._secrets(conversation))
        if not conversation.skips_empty:
            client.conversation = conversation
            return _step(answer, is_done=False)
        self._admit_proven(client, conversation)
        return _step(answer, is_done=True)

    def _salt(self, mechanism: scram.Mechanism, database: str, name: str) -> tuple[bytes, int]:
        """With the number of iterations: that of a stored user is kept with it, as later versions may have another."""
        if name == self._account:
            return scram.salt_of(mechanism, self._secret, name), mechanism.iterations
        user = self._users.find(database, name) if mechanism is scram.SHA_256 else None
        if user is not None:
            return user.verifier.salt, user.verifier.iterations
        return scram.salt_of(mechanism, self._secret, name, database), mechanism.iterations

    def _plain(self, client: Client, payload: bytes) -> Document:
        if not client.is_tls:
            raise refusal(2, "The mechanism PLAIN sends the key as it is: it is accepted over TLS only")
        user, password = scram.plain_credentials(payload)
        found = Grant.NOTHING
        for key, grant in self._keys:
            if hmac.compare_digest(key.encode(), password.encode()):
                found = grant
        if found is Grant.NOTHING or user != self._account:
            raise scram.failed()
        self._admit(client, user, found, password, None)
        return _step(b"", is_done=True)

    def _admit_proven(self, client: Client, proven: scram.Conversation) -> None:
        login = Login(proven.database, proven.user, proven.serial) if proven.serial else None
        self._admit(client, proven.user, proven.grant, proven.password, login)

    def _admit(self, client: Client, user: str, grant: Grant, key: str, login: Login | None) -> None:
        before = client.came_with, client.login
        client.came_with, client.login = key, login
        if not self.still_has(client):  # the key or the user was replaced between two steps
            client.came_with, client.login = before
            raise scram.failed()
        client.user = user
        client.grant = grant
        kind = "database user" if login is not None else "key" if grant is Grant.WRITE else "read-only key"
        self.sign_in_log.granted(client.remote[0], kind)

    async def _secrets(self, conversation: scram.Conversation) -> list[scram.Secret]:
        mechanism = conversation.mechanism
        if mechanism.name not in self._derived:
            await asyncio.sleep(0)  # a request is started without a task
            self._derived[mechanism.name] = asyncio.get_running_loop().run_in_executor(None, self._derive, mechanism)
        found = await asyncio.shield(self._derived[mechanism.name])
        user = self._users.find(conversation.database, conversation.user) if mechanism is scram.SHA_256 else None
        if user is not None:
            own = scram.Secret(user.verifier.stored_key, user.verifier.server_key, grant_of(user), serial=user.serial)
            return [own, *found[0][1:]]  # as many as others have: the work must not tell that the user exists
        return found[hmac.compare_digest(conversation.user.encode(), self._account.encode())]

    def _derive(self, mechanism: scram.Mechanism) -> _Secrets:
        salt = scram.salt_of(mechanism, self._secret, self._account)
        made = [scram.secret_of(mechanism, self._account, key, salt, grant) for key, grant in self._keys]
        # For unknown users: as many keys, which match no proof.
        return [each._replace(stored_key=bytes(len(each.stored_key)), grant=Grant.NOTHING) for each in made], made


def _step(payload: bytes, *, is_done: bool) -> Document:
    return {"conversationId": _CONVERSATION, "done": is_done, "payload": Binary(payload, 0)}


def unauthorized(name: str) -> Failure:
    return Failure(Kind.UNAUTHORIZED, f"Command {name} requires authentication", details={"code": 13})
