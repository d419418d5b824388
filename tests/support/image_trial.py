"""The start command of the image, tried where the image's conditions can be made without Docker: `python -m
support.image_trial` runs inside a network and a mount namespace of its own, in which all ports are free. It makes the
root file system read-only, /tmp and the volume the only places to write to, and starts the server under another user if
it is root and that user may reach the program. Prints what it found as JSON."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

TEMPORARY = Path("/tmp")
VOLUME = Path("/tmp/volume")  # the machine has no /data, and a read-only root none can be made in
READY_S = 90.0


def main() -> None:
    """Standard input: the command, its user id, its environment, commands to run once the server is ready, and the
    directories that the command needs."""
    asked = json.load(sys.stdin)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up and running
    hidden = {Path(each): os.open(each, os.O_PATH) for each in asked["needed"] if Path(each).is_relative_to(TEMPORARY)}
    for command in (("-o", "remount,bind,ro", "/"), ("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")):
        subprocess.run(["mount", *command], check=True)
    for path, descriptor in hidden.items():  # a checkout below /tmp, which is another one now
        path.mkdir(parents=True, exist_ok=True)
        source = f"/proc/{os.getpid()}/fd/{descriptor}"
        subprocess.run(["mount", "--no-canonicalize", "--bind", source, path], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
    VOLUME.mkdir(mode=0o700)
    user = []
    if asked["user"] is not None:
        user = ["setpriv", f"--reuid={asked['user']}", f"--regid={asked['user']}", "--clear-groups"]
        tried = subprocess.run([*user, asked["command"][0], "--version"], cwd="/", capture_output=True, check=False)
        if tried.returncode == 0:
            os.chown(VOLUME, asked["user"], asked["user"])
        else:  # the checkout is in a directory of root's own
            user = []
    log = Path("/tmp/log")
    with log.open("w") as errors:
        server = subprocess.Popen(
            [*user, *asked["command"]],
            env=asked["environment"],
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert server.stdout is not None
    found: dict[str, Any] = {"ready": server.stdout.readline(), "isRoot": not user}
    try:
        found["answers"] = {url: _get(url) for url in asked["urls"]} if found["ready"] else {}
        found["commands"] = [
            subprocess.run(
                [*user, *command], env=asked["environment"], cwd="/", capture_output=True, text=True, check=False
            ).__dict__
            for command in asked["then"]
        ]
        found["root"] = _writable("/"), _writable("/etc")
        server.send_signal(signal.SIGTERM)
        found["code"] = server.wait(READY_S)
    finally:
        server.kill()
    found["log"] = log.read_text()
    found["volume"] = sorted(path.name for path in VOLUME.iterdir())
    own = {VOLUME, log, *(TEMPORARY / path.relative_to(TEMPORARY).parts[0] for path in hidden)}
    found["temporary"] = sorted(path.name for path in TEMPORARY.iterdir() if path not in own)
    json.dump(found, sys.stdout)


def _get(url: str) -> list[Any]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(url, headers={"Accept": "text/html"})
    opener = urllib.request.build_opener(_NoRedirect(), urllib.request.HTTPSHandler(context=context))
    until = time.monotonic() + READY_S
    while True:
        try:
            with opener.open(request, timeout=READY_S) as answer:
                return [answer.status, answer.read().decode("utf-8", "replace")]
        except urllib.error.HTTPError as error:
            with error:
                return [error.code, error.headers.get("location", "")]
        except OSError:
            if time.monotonic() > until:
                raise


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        return None


def _writable(directory: str) -> bool:
    try:
        (Path(directory) / ".tried").touch()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
