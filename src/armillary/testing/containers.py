"""A server for tests in a container, in the manner of testcontainers-python, which is needed for it: `pip install
testcontainers`. The container's ports are published on free ports of this machine; the same methods control it as the
other servers for tests.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Final, Self

from armillary.errors import Failure, Kind
from armillary.testing.controls import Controls
from armillary.testing.server_settings import environment_settings, new_control_key
from armillary.tools.options import ENVIRONMENT_PREFIX
from armillary.tools.settings import GREMLIN_PORT, MONGO_PORT, TABLE_PORT

IMAGE: Final = "armillary:latest"
READY_S: Final = 60.0
_POLL_S: Final = 0.1
_SCHEMES: Final = {"sql": "http", "table": "http", "mongo": "mongodb", "gremlin": "ws"}
_PORTS: Final = {"sql": 8081, "table": TABLE_PORT, "mongo": MONGO_PORT, "gremlin": GREMLIN_PORT}


class ArmillaryContainer(Controls):
    """`with ArmillaryContainer("armillary:0.1", throughput="enforce") as server:`, or `start` and `stop`."""

    def __init__(self, image: str = IMAGE, *, ready_s: float = READY_S, **settings: Any) -> None:
        """`settings`: of `armillary serve`, handed over as variables of the environment."""
        super().__init__()
        self.image = image
        self._ready_s = ready_s
        self.key = settings.get("key") or self.key
        self.account = settings.get("account") or self.account
        self.control_key = new_control_key()
        own = {"HOST": "0.0.0.0", "ALLOW_WELL_KNOWN_KEY": "true", "CONTROL_KEY": self.control_key}  # noqa: S104
        variables = {f"{ENVIRONMENT_PREFIX}{name}": value for name, value in own.items()}
        self._container = _docker_container(image)
        for name, value in (variables | environment_settings(settings)).items():
            self._container.with_env(name, value)
        self._container.with_exposed_ports(*_PORTS.values())

    @property
    def container(self) -> Any:
        """testcontainers' DockerContainer, for what has no method here: volumes, networks, names."""
        return self._container

    def start(self) -> Self:
        self._container.start()
        try:
            host = self._container.get_container_host_ip()
            self.addresses = {
                door: f"{_SCHEMES[door]}://{host}:{self._container.get_exposed_port(port)}"
                for door, port in _PORTS.items()
            }
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        self._close_connections()
        self._container.stop()
        self._forget_server()

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + self._ready_s
        while not self.control.is_answering:
            if time.monotonic() >= deadline_s:
                raise Failure(Kind.UNAVAILABLE, f"The container of {self.image} was not ready in {self._ready_s:g} s.")
            time.sleep(_POLL_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _docker_container(image: str) -> Any:
    try:
        from testcontainers.core.container import DockerContainer
    except ImportError as error:
        message = f"ArmillaryContainer needs testcontainers, which cannot be imported ({error})"
        raise ImportError(f"{message}: pip install testcontainers") from None
    return DockerContainer(image)
