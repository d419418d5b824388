"""The verbs of `armillary cluster`: those that ask a running node, which is found as other commands find their server,
and the dispatch to those that start or change a cluster themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from armillary.tools.cluster.placement_commands import move, placement, show_plan
from armillary.tools.remote import Server, Where, find_server
from armillary.tools.screen import Screen, count, counted, size
from armillary.tools.settings import Settings

_POLL_S: Final = 0.2
_STOPPED_SETTINGS: Final = ("data", "config", "cluster", "cluster_single_postgres")


def run_cluster(arguments: dict[str, Any], settings_of: Callable[[dict[str, object]], Settings]) -> int:
    """`settings_of`: the settings of some arguments, the environment and a file."""
    verb = arguments.pop("verb")
    screen = Screen(is_json=arguments.pop("json", False))
    if verb == "try":
        from armillary.tools.cluster.trial import run_trial

        return run_trial(screen, arguments)
    if verb in ("init", "leave", "reset-log"):
        return _run_stopped(verb, screen, arguments, settings_of)
    where = Where.taken_from(arguments)
    settings = settings_of({name: value for name, value in arguments.items() if name in ("data", "config")})
    server = find_server(settings, where)
    try:
        return _LIVE[verb](server, screen, arguments)
    finally:
        server.close()


def _run_stopped(
    verb: str, screen: Screen, arguments: dict[str, Any], settings_of: Callable[[dict[str, object]], Settings]
) -> int:
    """Imported here: the storage engine takes time to import."""
    from armillary.tools.cluster import stopped_nodes

    settings = settings_of({name: value for name, value in arguments.items() if name in _STOPPED_SETTINGS})
    run = {"init": stopped_nodes.init, "leave": stopped_nodes.leave, "reset-log": stopped_nodes.reset_log}[verb]
    return run(screen, arguments, settings)


def show_status(server: Server, screen: Screen, arguments: dict[str, Any]) -> int:
    content = server.get("cluster")
    if screen.is_json:
        screen.content(content)
        return 0
    leader = content["leader"] or "no node"
    screen.say(f"{leader} leads in epoch {count(content['epoch'])}; asked: {content['node']}.")
    if content["priorities"]:
        screen.say(f"Order of regions: {', '.join(content['priorities'])}.")
    figures = (">applied", ">flushed", ">rows behind", ">seconds", ">forwards")
    columns = ("node", "region", "role", "version", *figures, "SQL")
    drops = ("forwards", "flushed", "version", "SQL", "applied")
    screen.table(columns, [_row(each) for each in content["nodes"]], drop=drops)
    _say_log(screen, content)
    return 0


def _row(node: dict[str, Any]) -> list[str]:
    if node["role"] is None:
        role = "not reached" if node["alive"] else f"gone for {node['silentSeconds']:,.0f} s"
    else:
        role = node["role"] + (", drained" if node["drained"] else "")
    figures = [node[name] for name in ("appliedRow", "flushedRow", "lagRows")]
    seconds = node["lagSeconds"]
    return [
        node["name"],
        node["region"],
        role,
        node["version"] or "-",
        *("-" if each is None else count(each) for each in figures),
        "-" if seconds is None else f"{seconds:.3f}",
        "-" if node["forwards"] is None else count(node["forwards"]),
        node["addresses"].get("sql", "-"),
    ]


def _say_log(screen: Screen, content: dict[str, Any]) -> None:
    log = content["log"]
    if log is None:
        screen.say(f"The log cannot be read: {content['logError']}.")
        return
    rows = f"rows {count(log['lowestRow'])} to {count(log['newestRow'])}"
    screen.say(f"Log: {rows}, {size(log['bytes'])}; it waits for {log['slowestReplica'] or 'no replica'}.")
    if not log["wantsSynchronousStandby"]:
        screen.say("PostgreSQL has no synchronous standby configured: losing its disk loses acknowledged writes.")
    elif log["hasSynchronousStandby"] is None:
        screen.say("Standbys of PostgreSQL: not visible; GRANT pg_read_all_stats to its role shows them.")
    elif not log["hasSynchronousStandby"]:
        screen.say("No synchronous standby of PostgreSQL is connected: writes wait for one.")


def fail_over(server: Server, screen: Screen, arguments: dict[str, Any]) -> int:
    node = arguments["node"]
    return _leads(screen, server.post("cluster", "failover", body={"node": node} if node else {}))


def fail_over_region(server: Server, screen: Screen, arguments: dict[str, Any]) -> int:
    return _leads(screen, server.post("cluster", "failover-region", body={"region": arguments["region"]}))


def _leads(screen: Screen, content: dict[str, Any]) -> int:
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"{content['leader']} leads now.")
    return 0


def drain(server: Server, screen: Screen, arguments: dict[str, Any]) -> int:
    outcome = "does not lead until `armillary cluster undrain`"
    if arguments.get("empty"):
        outcome += ", and its replicas go to other nodes: `armillary cluster plan` shows how far that is"
    return _drain(server, screen, arguments, "drain", outcome)


def undrain(server: Server, screen: Screen, arguments: dict[str, Any]) -> int:
    return _drain(server, screen, arguments, "undrain", "may lead again")


def _drain(server: Server, screen: Screen, arguments: dict[str, Any], verb: str, outcome: str) -> int:
    node = arguments["node"]
    body = ({"node": node} if node else {}) | ({"empty": True} if arguments.get("empty") else {})
    content = server.post("cluster", verb, body=body)
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"{content['node']} {outcome}.")
    return 0


def remove(server: Server, screen: Screen, arguments: dict[str, Any]) -> int:
    content = server.delete("cluster", "nodes", arguments["node"])
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"{content['node']} is no node of the cluster any more; the log keeps nothing for it.")
    return 0


def verify(server: Server, screen: Screen, arguments: dict[str, Any]) -> int:
    """1 if nodes differ, or a node could not be compared."""
    content = server.post("cluster", "verify", body={})
    with screen.progress("digesting") as update:
        while not content["complete"]:
            done = [each for each in content["nodes"] if not each["pending"]]
            update(len(done) / len(content["nodes"]), f"{len(done)} of {len(content['nodes'])} nodes have digested")
            time.sleep(_POLL_S)
            content = server.get("cluster", "verify", str(content["mark"]))
    if screen.is_json:
        screen.content(content)
    else:
        rows = [
            [each["name"], each["digest"] or ("none" if each["reached"] else "not reached")]
            for each in content["nodes"]
        ]
        screen.table(("node", f"digest of the state at row {content['mark']}"), rows)
        compared = sum(each["digest"] is not None for each in content["nodes"])
        verdict = "have the same state" if content["equal"] else "HAVE DIFFERENT STATES"
        screen.say(f"{compared} of {counted(len(content['nodes']), 'node')} {verdict}.")
    return 0 if content["equal"] and all(each["digest"] is not None for each in content["nodes"]) else 1


_LIVE: dict[str, Callable[[Server, Screen, dict[str, Any]], int]] = {
    "status": show_status,
    "failover": fail_over,
    "failover-region": fail_over_region,
    "drain": drain,
    "undrain": undrain,
    "plan": show_plan,
    "placement": placement,
    "move": move,
    "remove": remove,
    "verify": verify,
}
