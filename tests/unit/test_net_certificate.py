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

from armillary.clock import SystemClock, VirtualClock
from armillary.net.certificate import CERTIFICATE_FILE, KEY_FILE, development_context, ensure_certificate

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
    for broken in (certificate_file, key_file):
        broken.write_bytes(b"nonsense")
        development_context(tmp_path, clock=clock)
        assert broken.read_bytes() != b"nonsense"
        broken.unlink()
        development_context(tmp_path, clock=clock)


def test_nothing_is_kept_without_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    context = development_context(None)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_sees_no_tls_does_not_load_cryptography() -> None:
    source = "import sys, armillary.net.listen, armillary.net.certificate; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", source], env={"PYTHONPATH": "src"}, check=False).returncode == 0
