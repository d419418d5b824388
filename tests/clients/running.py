"""Runs a program against a server of its own and collects its steps."""

from __future__ import annotations

import asyncio
import asyncio.subprocess
import dataclasses
import re
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_plus

from clients.client_program import Program, Variant
from clients.installing import tools_environment
from clients.recording.exchanges import Recording
from clients.recording.proxies import Ports, Proxies
from clients.steps import Step, parse_step
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from support.process import KEY, ServerProcess

from armillary.net.certificate import ensure_certificate
from armillary.tools.settings import Settings

CONTROL_KEY = "Y29udHJvbCBrZXkgb2YgdGhlIGNsaWVudHMgdGVzdHM="
TRUSTSTORE_PASSWORD = "armillary"
PROGRAM_S_MAX = 300.0
# Also of the servers that recordings are replayed to.
SERVER_ARGUMENTS = ("--clock", "movable", "--control-key", CONTROL_KEY, "--script-confinement", "limits")


@dataclass(frozen=True)
class Run:
    """What came of running a program."""

    steps: list[Step]
    exit_code: int
    printed: str  # everything, for a look at what failed
    recording: Recording

    @property
    def is_complete(self) -> bool:
        return self.exit_code == 0 and bool(self.steps)


def run_program(program: Program, variant: Variant, folder: Path, tell: Callable[[Step], None]) -> Run:
    with tempfile.TemporaryDirectory(prefix="armillary-clients-") as directory:
        return asyncio.run(_run(program, variant, folder, Path(directory), tell))


async def _run(program: Program, variant: Variant, folder: Path, directory: Path, tell: Callable[[Step], None]) -> Run:
    recording = Recording()
    async with recorded_server(directory, recording) as ports:
        environment = _environment(program, variant, ports, directory)
        process = await asyncio.create_subprocess_exec(
            *program.run,
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=1 << 22,
        )
        steps: list[Step] = []
        lines: list[str] = []
        try:
            async with asyncio.timeout(PROGRAM_S_MAX):
                assert process.stdout is not None
                async for raw in process.stdout:
                    line = raw.decode("utf-8", "replace").rstrip()
                    lines.append(line)
                    step = parse_step(line)
                    if step is not None:
                        steps.append(step)
                        tell(step)
                await process.wait()
        except TimeoutError:
            lines.append(f"The program was ended after {PROGRAM_S_MAX:g} s.")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return Run(steps, process.returncode, "\n".join(lines), recording)


@asynccontextmanager
async def recorded_server(directory: Path, recording: Recording) -> AsyncIterator[Ports]:
    """A server in memory; where clients reach it through the proxies."""
    certificate, key = ensure_certificate(directory)
    _write_truststore(certificate, directory / "truststore.p12")
    arguments = [*SERVER_ARGUMENTS, "--tls-certificate", str(certificate), "--tls-key", str(key)]
    async with Proxies.listening(recording, certificate, key) as proxies:
        arguments += ["--mongo-advertised-host", f"127.0.0.1:{proxies.ports.mongo}"]
        server = await asyncio.to_thread(ServerProcess.start, None, *arguments, *management_arguments())
        try:
            proxies.lead_to(ports_of(server))
            yield proxies.ports
        finally:
            await asyncio.to_thread(server.stop)


def management_arguments() -> list[str]:
    has_door = any(each.name == "management_port" for each in dataclasses.fields(Settings))
    return ["--management-port", "0"] if has_door else []


def ports_of(server: ServerProcess) -> Ports:
    ports = {door: int(re.findall(r":(\d+)", url)[-1]) for door, url in server.doors.items()}
    management = ports.get("management", 0)
    return Ports(ports["sql"], ports["sql"], ports["mongo"], ports["gremlin"], management, management)


def _environment(program: Program, variant: Variant, ports: Ports, directory: Path) -> dict[str, str]:
    database = f"clients-{program.folder}".replace("_", "-")
    http = f"http://127.0.0.1:{ports.http}"
    management = f"http://127.0.0.1:{ports.management}"
    if variant.uses_tls:
        management = f"https://localhost:{ports.management_https}"
    given = {
        "ARMILLARY_ENDPOINT": f"https://localhost:{ports.https}" if variant.uses_tls else http,
        "ARMILLARY_KEY": KEY,
        "ARMILLARY_MONGO": f"mongodb://localhost:{quote_plus(KEY)}@127.0.0.1:{ports.mongo}/?replicaSet=globaldb",
        "ARMILLARY_GREMLIN": f"ws://127.0.0.1:{ports.gremlin}/",
        "ARMILLARY_GREMLIN_USER": f"/dbs/{database}/colls/graph",
        "ARMILLARY_CERTIFICATE": str(directory / "certificate.pem"),
        "ARMILLARY_TRUSTSTORE": str(directory / "truststore.p12"),
        "ARMILLARY_CONTROL": f"{http}/_armillary",
        "ARMILLARY_CONTROL_KEY": CONTROL_KEY,
        "ARMILLARY_DATABASE": database,
        "ARMILLARY_MANAGEMENT": management,
    }
    here = Path(__file__).parent
    modules = {"PYTHONPATH": str(here.parent), "PYTHONDONTWRITEBYTECODE": "1", "NODE_PATH": str(here)}
    return tools_environment() | modules | given | variant.env


def _write_truststore(certificate: Path, target: Path) -> None:
    """For Java."""
    trusted = pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(certificate.read_bytes()), b"armillary")
    encryption = serialization.BestAvailableEncryption(TRUSTSTORE_PASSWORD.encode())
    target.write_bytes(pkcs12.serialize_java_truststore([trusted], encryption))
