"""`armillary script`: list, show, put, delete and run. A run can list each read and write with its charge (--explain)
and be rolled back (--dry-run).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from armillary.errors import Failure, Kind, bad_request
from armillary.tools.commands.arguments import confirm, container_path, key_values
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, counted, units

_COLUMNS = (">step", "operation", "subject", ">status", ">items", ">RU")


def list_scripts(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    content = server.get(*container_path(arguments["container"]), "scripts")
    if screen.is_json:
        screen.content(content)
        return
    rows = [
        [plural.removesuffix("s"), each["name"], _occasion(each), f"{len(each['body']):,}"]
        for plural, found in content.items()
        for each in found
    ]
    if rows:
        screen.table(("kind", "name", "runs", ">characters"), rows)
    else:
        screen.say("There are no scripts in this container. `armillary script put` stores one.")


def show_script(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    content = server.get(*_path(arguments))
    if screen.is_json:
        screen.content(content)
    else:
        print(content["body"])


def put_script(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    body = {"body": _source(arguments["file"])}
    if "trigger" in arguments:
        body["triggerType"] = arguments.get("when", "pre").capitalize()
        body["triggerOperation"] = arguments.get("operation", "all").capitalize()
    elif "when" in arguments or "operation" in arguments:
        raise bad_request("--when and --operation are for triggers: give --trigger too.")
    content = server.put(*_path(arguments), body=body)
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"Stored the {_kind(arguments)} {content['name']}.")


def delete_script(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    path = _path(arguments)
    confirm(f"Delete the {_kind(arguments)} {arguments['name']}?", "yes" in arguments)
    content = server.delete(*path)
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"Deleted the {_kind(arguments)} {arguments['name']}.")


def run_procedure(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    """Print the response of a procedure; if the procedure fails, the command fails with its message."""
    body: dict[str, Any] = {"arguments": _params(arguments.get("params", "[]")), "rehearsal": "dry_run" in arguments}
    if "partition_key" in arguments:
        body["partitionKey"] = key_values(arguments["partition_key"])
    path = (*container_path(arguments["container"]), "scripts", "procedures", arguments["name"], "run")
    content = server.post(*path, body=body)
    if screen.is_json:
        screen.content(content)
    elif "explain" in arguments:
        _explain(screen, content)
    if "failure" in content:
        raise Failure(Kind.SCRIPT_FAILED, content["failure"])
    if not screen.is_json:
        if content["log"]:
            print(content["log"], file=sys.stderr)
        if content["response"] is not None:
            print(json.dumps(content["response"], indent=2, ensure_ascii=False))


def _explain(screen: Screen, content: dict[str, Any]) -> None:
    steps = content["steps"]
    rows = [
        [number, each["operation"], each["subject"], each["status"], each.get("items", ""), f"{each['chargeRu']:.2f}"]
        for number, each in enumerate(steps, 1)
    ]
    rest_ru = content["chargeRu"] - sum(each["chargeRu"] for each in steps)
    rows.append(["", "run", "the script itself", "", "", f"{rest_ru:.2f}"])
    screen.table(_COLUMNS, rows, drop=("items", "status", "step"))
    kept = "kept" if content["kept"] else "nothing was kept"
    screen.say(f"{counted(len(steps), 'operation')}, {units(content['chargeRu'])} RU, {kept}.")


def _occasion(script: dict[str, Any]) -> str:
    if "triggerType" not in script:
        return ""
    return f"{script['triggerType'].lower()} {script['triggerOperation'].lower()}"


def _kind(arguments: dict[str, Any]) -> str:
    return "trigger" if "trigger" in arguments else "function" if "function" in arguments else "procedure"


def _path(arguments: dict[str, Any]) -> tuple[str, ...]:
    return (*container_path(arguments["container"]), "scripts", f"{_kind(arguments)}s", arguments["name"])


def _params(text: str) -> list[Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise bad_request(f"--params is not JSON: {error}.") from None
    if not isinstance(values, list):
        raise bad_request("--params must be a JSON list of arguments, such as '[1, \"two\"]'.")
    return values


def _source(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except OSError as error:
        raise bad_request(f"The file {name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise bad_request(f"The file {name} is not UTF-8 text. Save it as UTF-8.") from None
