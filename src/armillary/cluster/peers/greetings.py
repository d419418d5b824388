"""The first frames of a connection, on either side. A connection is open when the accepting node has seen the proof
that the connecting one knows the cluster's key; until then each side takes small frames alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from armillary.clock import Clock
from armillary.cluster.peers import handshake
from armillary.cluster.peers.connection import Handler, PeerConnection
from armillary.cluster.peers.frames import BadFrame, Frame, FrameKind
from armillary.errors import Failure


class AcceptedConnection(PeerConnection):
    """From another node, if it proves to be one. `fingerprint`: of this node's certificate."""

    def __init__(
        self, node: str, key: bytes, fingerprint: bytes, handlers: Mapping[str, Handler], clock: Clock
    ) -> None:
        super().__init__(handlers, clock)
        self._name = node
        self._key = key
        self._fingerprint = fingerprint
        self._nonce = clock.random_bytes(handshake.NONCE_BYTES)
        self.takes_calls = True  # False: the other node has made it to relay a client's connection

    def _begin(self, tls: Any) -> None:
        self._send(FrameKind.HELLO, head=handshake.hello(self._nonce))

    def _greet(self, frame: Frame) -> None:
        if frame.kind is not FrameKind.PROOF:
            raise BadFrame(f"{frame.kind.name} came instead of a proof")
        try:
            node = handshake.check_proof(frame.head, self._key, self._fingerprint, self._nonce)
        except Failure as failure:
            self.end(failure.message, farewell=failure.message)
            return
        if node is None or node in ("", self._name):
            self.end("it does not know the key of this cluster, or has this node's own name")
            return
        self.takes_calls = frame.head.get("relays") is not True
        self._open(node)
        self._send(FrameKind.WELCOME, head={"node": self._name})


class DialedConnection(PeerConnection):
    """To a node whose certificate is known by its fingerprint."""

    def __init__(
        self,
        node: str,
        key: bytes,
        fingerprint: bytes,
        other: str,
        handlers: Mapping[str, Handler],
        clock: Clock,
        *,
        relays: bool,
    ) -> None:
        """`relays`: it is for a client's connection, and the other node makes no calls on it."""
        super().__init__(handlers, clock)
        self._name = node
        self._key = key
        self._fingerprint = fingerprint
        self._other = other
        self._relays = relays
        self._has_answered = False

    def _begin(self, tls: Any) -> None:
        if not handshake.has_fingerprint(tls, self._fingerprint):
            self.end("its certificate is not the one that it has announced")

    def _greet(self, frame: Frame) -> None:
        if frame.kind is FrameKind.HELLO and not self._has_answered:
            self._has_answered = True
            try:
                head = handshake.proof(frame.head, self._key, self._fingerprint, self._name)
            except Failure as failure:
                self.end(failure.message)
                return
            self._send(FrameKind.PROOF, head={**head, "relays": self._relays})
        elif frame.kind is FrameKind.WELCOME and self._has_answered:
            if frame.head.get("node") == self._other:
                self._open(self._other)
            else:
                self.end("another node answers at its address")
        elif frame.kind is FrameKind.FAREWELL:
            self.end(str(frame.head.get("message", "")))
        else:
            raise BadFrame(f"{frame.kind.name} came during the greeting")
