"""`armillary capture`: records what is asked of a container, on the server, and brings the recording here as a file or
as a workload.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from armillary.errors import bad_request
from armillary.storage.private import whole_file
from armillary.tools.commands.arguments import confirm, container_path
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, count, size

_DURATION = re.compile(r"([0-9]{1,6})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_COLUMNS = ("container", "id", "state", "requests", "size", "begun", "why it ended")


def start(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    name = arguments["container"]
    body: dict[str, Any] = {}
    if "for" in arguments:
        body["seconds"] = duration_s(arguments["for"], "--for")
    for field in ("share", "limit"):
        if field in arguments:
            body[field] = arguments[field]
    if "values" in arguments:
        body["values"] = True
    content = server.post(*container_path(name), "captures", body=body)
    if screen.is_json:
        screen.content(content)
        return
    kept = "values of up to 128 bytes are kept readable" if content["values"] else "values are kept as digests"
    screen.say(f"The capture {content['id']} of {name} runs for {content['seconds']} seconds; {kept}.")


def list_captures(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    if "container" in arguments:
        names = [arguments["container"]]
    else:
        names = [f"{each['database']}/{each['name']}" for each in server.get("containers")["containers"]]
    found: list[dict[str, Any]] = []
    for name in names:
        found += [{"container": name, **each} for each in server.get(*container_path(name), "captures")["captures"]]
    if screen.is_json:
        screen.content({"captures": found})
    elif not found:
        screen.say("There are no captures. `armillary capture start DATABASE/CONTAINER` starts one.")
    else:
        screen.table(_COLUMNS, [_row(each) for each in found], drop=("size", "begun", "requests", "why it ended"))


def _row(capture: dict[str, Any]) -> tuple[object, ...]:
    words = [capture[name] for name in ("container", "id", "state")]
    figures = (count(capture["requests"]), size(capture["bytes"]), capture["begunAt"])
    return (*words, *figures, capture.get("reason", ""))


def stop(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    path = container_path(arguments["container"])
    content = server.post(*path, "captures", _running(server, arguments), "stop", body={})
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"The capture {content['id']} has {count(content['requests'])} requests: {content['reason']}.")


def _running(server: Server, arguments: dict[str, Any]) -> str:
    """The id that was given, or that of the one capture that runs."""
    if "id" in arguments:
        return str(arguments["id"])
    name = arguments["container"]
    captures = server.get(*container_path(name), "captures")["captures"]
    running = [str(each["id"]) for each in captures if each["state"] == "running"]
    if len(running) != 1:
        raise bad_request(
            f"{len(running) or 'No'} captures of {name} are running: give the id of one; `armillary capture list` "
            "shows them."
        )
    return running[0]


def save(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    path, capture = container_path(arguments["container"]), arguments["id"]
    file = Path(arguments["file"])
    if "as_workload" in arguments:
        if "secret" in arguments:
            raise bad_request("A workload has no use for a secret: give --as-workload or --secret, not both.")
        _save_workload(server, arguments["container"], capture, file)
    else:
        with whole_file(file, "capture") as stream:
            _receive(server, path, capture, stream)
        if "secret" in arguments:
            secret = server.post(*path, "captures", capture, "secret", body={})["secret"]
            with whole_file(Path(arguments["secret"]), "secret") as stream:
                stream.write(f"{secret}\n".encode())
    size_bytes = file.stat().st_size
    if screen.is_json:
        screen.content({"file": str(file), "bytes": size_bytes, "id": capture})
    else:
        screen.say(f"Wrote the capture {capture} to {file} ({size(size_bytes)}).")


def _receive(server: Server, path: tuple[str, ...], capture: str, stream: BinaryIO) -> None:
    number = 0
    while (part := server.get_bytes(*path, "captures", capture, "parts", str(number))) is not None:
        stream.write(part)
        number += 1


def _save_workload(server: Server, name: str, capture: str, file: Path) -> None:
    # Imported here: it loads half of the engine, which the other verbs do not need.
    from armillary.insight.capture_workload import workload_text
    from armillary.insight.captures import read_capture

    path = container_path(name)
    container = server.get(*path)
    with tempfile.TemporaryFile() as received:
        _receive(server, path, capture, received)
        received.seek(0)
        text = workload_text(
            read_capture(received, f"The capture {capture}"), _throughput(container), container.get("bytes")
        )
    with whole_file(file, "workload") as stream:
        stream.write(text.encode())


def _throughput(container: dict[str, Any]) -> dict[str, int]:
    """As a workload has it; nothing where the database's is shared."""
    found = container["throughput"]
    if found is None or found.get("sharedByDatabase"):
        return {}
    return {"autoscale" if found["autoscale"] else "throughput": int(found["ru"])}


def delete(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    capture = arguments["id"]
    confirm(f"Delete the capture {capture} of {arguments['container']}?", "yes" in arguments)
    content = server.delete(*container_path(arguments["container"]), "captures", capture)
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"Deleted the capture {capture}.")


def duration_s(text: str, option: str) -> int:
    """90s, 15m, 1h or 1d as seconds."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise bad_request(f"{option} is {text!r}; expected a time such as 90s, 15m, 1h or 1d.")
    return int(found.group(1)) * _SECONDS[found.group(2)]
