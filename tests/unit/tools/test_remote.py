"""What commands say of a server that does not answer: whether it was asked decides what the operator has to do next."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from armillary.errors import Failure, Kind
from armillary.tools.remote import Server


@pytest.fixture
def hangs_up() -> Iterator[int]:
    """The port of a server that reads a request and closes the connection without an answer."""
    listening = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                accepted, _ = listening.accept()
            except OSError:
                return
            with accepted:
                accepted.recv(65536)

    thread = threading.Thread(target=run)
    thread.start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_a_command_that_was_sent_may_have_been_carried_out(hangs_up: int) -> None:
    server = Server(f"http://127.0.0.1:{hangs_up}", "key")
    with pytest.raises(Failure, match=r"was asked, and has not answered: .*may have been carried out") as changing:
        server.post("cluster", "failover", body={})
    assert changing.value.kind is Kind.UNAVAILABLE
    with pytest.raises(Failure, match=r"closed the connection or does not speak HTTP. Check the port in --url"):
        server.get("cluster")


def test_a_command_that_was_not_sent_was_not_carried_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(Failure, match="No server answers at"):
        Server(f"http://127.0.0.1:{port}", "key").post("cluster", "failover", body={})


def test_what_a_wrong_address_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        thread = threading.Thread(target=_answer_plainly, args=(plain,))
        thread.start()
        with pytest.raises(Failure, match=r"does not speak TLS. Write http:// instead of https://"):
            Server(f"https://127.0.0.1:{plain.getsockname()[1]}", "key").get("server")
        thread.join()
    with pytest.raises(Failure, match=r"There is no host 'no-such-host.invalid'"):
        Server("http://no-such-host.invalid:8081", "key").get("server")
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Failure, match="has not answered within"):
        Server(f"http://127.0.0.1:{silent.getsockname()[1]}", "key", timeout_s=0.05).get("server")


def _answer_plainly(listening: socket.socket) -> None:
    accepted, _ = listening.accept()
    with accepted:
        accepted.recv(65536)
        accepted.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
