from __future__ import annotations

import shutil
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12
from support.certificates import Signed
from support.process import READY_S, ServerProcess, run_armillary

from armillary import __version__
from armillary.tools.cli import main
from armillary.tools.settings import OPTIONS

StartServer = Callable[..., ServerProcess]
OPTION_VARIABLES = [option.variable for option in OPTIONS.values()]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"armillary {__version__}\n"


def test_version_does_not_load_the_server() -> None:
    outcome = run_armillary("version", environment={"PYTHONPROFILEIMPORTTIME": "1"})
    assert outcome.returncode == 0
    for heavy in ("rocksdict", "uvloop", "cryptography", "asyncio"):
        assert f" {heavy}\n" not in outcome.stderr, f"`armillary version` imports {heavy}"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["serve", "--sql-port", "x"], "armillary: --sql-port is 'x'; expected a port from 0 to 65535."),
        (["serve", "--host", "0.0.0.0"], "armillary: The host 0.0.0.0 can be reached from other machines"),
        (["check", "no-such-directory"], "armillary: There is no data directory at no-such-directory."),
    ],
)
def test_refusals_are_one_sentence_on_standard_error(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OPTION_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(expected)
    assert captured.err.count("\n") == 1


def test_abbreviated_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--sql", "0"])
    assert caught.value.code == 2
    assert "--sql" in capsys.readouterr().err


def test_serve_is_ready_when_it_says_so_and_stops_when_told(start_server: StartServer) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        server = start_server()
        assert server.url == f"http://127.0.0.1:{server.port}"
        with pytest.raises(urllib.error.HTTPError) as caught:  # it answers; it wants a signature
            urllib.request.urlopen(server.url, timeout=READY_S)
        assert caught.value.code == 401
        caught.value.close()
        server.process.send_signal(number)
        assert server.process.wait(READY_S) == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == "", "more than one line on standard output"
        assert "Traceback" not in server.log
        assert server.key not in server.log


def test_an_idle_connection_does_not_hold_up_the_end(start_server: StartServer) -> None:
    server = start_server()
    with socket.create_connection(("127.0.0.1", server.port)):
        server.stop()
    assert "cut off" not in server.log, "it waited for what was not to come"


def test_serve_in_memory_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server = ServerProcess.start(None)
    server.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_or_port_in_use_is_refused(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    outcome = run_armillary("serve", "--data", str(server.directory), "--sql-port", "0")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr.count("\n") == 1
    assert f"in use by process {server.process.pid}" in outcome.stderr
    outcome = run_armillary("serve", "--data", str(tmp_path / "other"), "--sql-port", str(server.port))
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert f"Port {server.port} of 127.0.0.1 cannot be opened: Address already in use." in outcome.stderr
    assert outcome.stderr.endswith("choose another port. --sql-port names it; 0 takes any free one.\n")
    assert "Traceback" not in outcome.stderr


def test_trust_says_nothing_of_a_certificate_of_another_origin(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    assert run_armillary("trust", "--data", str(directory)).returncode == 0
    foreign = Signed("operator", hosts=("localhost",))
    foreign.write(directory / "certificate.pem", directory / "key.pem")
    outcome = run_armillary("trust", "--data", str(directory), "--advertise", "db.example")
    assert outcome.returncode == 2
    assert "Armillary did not make" in outcome.stderr
    assert (directory / "certificate.pem").read_bytes() == foreign.pem
    assert (directory / "key.pem").read_bytes() == foreign.key_pem()


def test_trust_writes_a_trust_store_that_java_reads(tmp_path: Path) -> None:
    directory, store = tmp_path / "data", tmp_path / "for java.p12"
    outcome = run_armillary("trust", "--data", str(directory), "--java", str(store))
    assert outcome.returncode == 0, outcome.stderr
    assert f'-Djavax.net.ssl.trustStore="{store}" -Djavax.net.ssl.trustStorePassword=changeit' in outcome.stdout
    certificate = x509.load_pem_x509_certificate((directory / "certificate.pem").read_bytes())
    kept = pkcs12.load_pkcs12(store.read_bytes(), b"changeit").additional_certs
    assert [(each.certificate, each.friendly_name) for each in kept] == [(certificate, b"armillary")]
    # Java takes only certificates with this attribute of a bag for trusted: 2.16.840.1.113894.746875.1.1.
    if shutil.which("keytool") is not None:
        listed = subprocess.run(
            ["keytool", "-list", "-keystore", str(store), "-storepass", "changeit"], capture_output=True, text=True
        )
        assert "trustedCertEntry" in listed.stdout, listed.stdout
    outcome = run_armillary("trust", "--data", str(directory), "--java", str(tmp_path / "none" / "store.p12"))
    assert (outcome.returncode, outcome.stderr.count("\n")) == (2, 1)
    assert "cannot be written: No such file or directory." in outcome.stderr


def test_trust_makes_a_certificate_that_the_server_uses(start_server: StartServer, tmp_path: Path) -> None:
    directory = tmp_path / "with space"
    outcome = run_armillary("trust", "--data", str(directory))
    assert outcome.returncode == 0, outcome.stderr
    certificate = directory / "certificate.pem"
    assert f'"{certificate}"' in outcome.stdout
    made = certificate.read_bytes()
    assert run_armillary("trust", "--data", str(directory)).stdout == outcome.stdout
    server = start_server(directory=directory)
    context = ssl.create_default_context(cafile=str(certificate))
    with (
        socket.create_connection(("127.0.0.1", server.port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as trusted,
    ):
        assert trusted.version() in ("TLSv1.2", "TLSv1.3")
    assert certificate.read_bytes() == made
