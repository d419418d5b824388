"""The development certificate: made once, kept, and made anew only when it is of no use."""

from __future__ import annotations

import ssl
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from support.certificates import Signed

from armillary.clock import SystemClock, VirtualClock
from armillary.errors import Failure
from armillary.net.certificate import CERTIFICATE_FILE, KEY_FILE, development_context, ensure_certificate
from armillary.net.tls import TlsFiles, operator_context

DAY_S = 86_400


def test_it_is_made_once_and_private(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    certificate_file, key_file = ensure_certificate(directory)
    assert (certificate_file, key_file) == (directory / CERTIFICATE_FILE, directory / KEY_FILE)
    before = certificate_file.read_bytes(), key_file.read_bytes()
    for file in (certificate_file, key_file):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    development_context(directory)
    assert (certificate_file.read_bytes(), key_file.read_bytes()) == before
    assert sorted(path.name for path in directory.iterdir()) == [CERTIFICATE_FILE, KEY_FILE]


def test_it_names_this_machine_and_what_is_asked_for(tmp_path: Path) -> None:
    certificate_file, _ = ensure_certificate(tmp_path, ["db.example", "10.0.0.7", "localhost"])
    certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "db.example"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1", "10.0.0.7"]
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc <= timedelta(days=825)
    before = certificate_file.read_bytes()
    ensure_certificate(tmp_path)  # fewer names: it still serves
    assert certificate_file.read_bytes() == before
    ensure_certificate(tmp_path, ["other.example"])
    assert certificate_file.read_bytes() != before


def test_it_is_renewed_when_expired_broken_or_torn(tmp_path: Path) -> None:
    clock = VirtualClock(SystemClock().now_s())
    certificate_file, key_file = ensure_certificate(tmp_path, clock=clock)
    first = certificate_file.read_bytes()
    clock.advance(800 * DAY_S)
    ensure_certificate(tmp_path, clock=clock)
    assert certificate_file.read_bytes() == first
    clock.advance(30 * DAY_S)
    ensure_certificate(tmp_path, clock=clock)
    second = certificate_file.read_bytes()
    assert second != first
    certificate_file.write_bytes(first)  # as after a crash between the two files
    ensure_certificate(tmp_path, clock=clock)
    assert certificate_file.read_bytes() not in (first, second)
    for lost in (certificate_file, key_file):
        for content in (None, b""):
            lost.unlink()
            if content is not None:
                lost.write_bytes(content)
            development_context(tmp_path, clock=clock)
            assert lost.read_bytes()


def test_keys_of_earlier_versions_are_known_by_their_certificate(tmp_path: Path) -> None:
    clock = VirtualClock(SystemClock().now_s())
    certificate_file, key_file = ensure_certificate(tmp_path, clock=clock)
    key = key_file.read_bytes()
    key_file.write_bytes(key[key.index(b"-----BEGIN") :])
    before = certificate_file.read_bytes(), key_file.read_bytes()
    ensure_certificate(tmp_path, clock=clock)
    assert (certificate_file.read_bytes(), key_file.read_bytes()) == before
    clock.advance(900 * DAY_S)
    ensure_certificate(tmp_path, clock=clock)
    assert certificate_file.read_bytes() != before[0]


@pytest.mark.parametrize("hosts", [("localhost",), ("db.example",)])
@pytest.mark.parametrize("days", [30, -30])
def test_a_certificate_of_another_origin_is_used_and_never_overwritten(
    tmp_path: Path, hosts: tuple[str, ...], days: int, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = Signed("operator", hosts=hosts, days=days)
    foreign.write(tmp_path / CERTIFICATE_FILE, tmp_path / KEY_FILE)
    development_context(tmp_path, ["db.example"])
    assert (tmp_path / CERTIFICATE_FILE).read_bytes() == foreign.pem
    assert (tmp_path / KEY_FILE).read_bytes() == foreign.key_pem()
    assert ("does not name db.example" in caplog.text) == (hosts != ("db.example",))
    assert ("is not valid now" in caplog.text) == (days < 0)


@pytest.mark.parametrize(
    "foreign", ["certificate", "key", "key alone", "both, not fitting", "nonsense", "nonsense key"]
)
def test_files_of_another_origin_that_are_of_no_use_are_left_as_they_are(tmp_path: Path, foreign: str) -> None:
    certificate_file, key_file = ensure_certificate(tmp_path)
    other = Signed("operator", hosts=("localhost",))
    match foreign:
        case "certificate":
            certificate_file.write_bytes(other.pem)
        case "key":
            key_file.write_bytes(other.key_pem())
        case "key alone":
            certificate_file.unlink()
            key_file.write_bytes(other.key_pem())
        case "both, not fitting":
            certificate_file.write_bytes(other.pem)
            key_file.write_bytes(Signed("another").key_pem())
        case "nonsense":
            certificate_file.write_bytes(b"nonsense")
        case "nonsense key":
            key_file.write_bytes(b"nonsense")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(Failure, match="not made by Armillary"):
        development_context(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("wrong", ["missing", "not fitting", "encrypted", "nonsense"])
def test_files_of_the_operator_that_are_of_no_use_are_refused_by_name(tmp_path: Path, wrong: str) -> None:
    files = TlsFiles(tmp_path / "server.pem", tmp_path / "server-key.pem")
    made = Signed("server", hosts=("localhost",))
    made.write(files.certificate, files.key)
    assert operator_context(files).minimum_version == ssl.TLSVersion.TLSv1_2
    match wrong:
        case "missing":
            files.certificate.unlink()
        case "not fitting":
            files.key.write_bytes(Signed("other").key_pem())
        case "encrypted":
            files.key.write_bytes(made.key_pem(b"secret"))  # OpenSSL would ask for its password on the terminal
        case "nonsense":
            files.certificate.write_bytes(b"nonsense")
    with pytest.raises(Failure, match=r"server\.pem with the key .*server-key\.pem cannot be used"):
        operator_context(files)


def test_nothing_is_kept_without_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    context = development_context(None)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_sees_no_tls_does_not_load_cryptography() -> None:
    source = "import sys, armillary.net.listen, armillary.net.certificate; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", source], env={"PYTHONPATH": "src"}, check=False).returncode == 0
