"""Which exchanges of a recording are kept. Left out are those whose number or order depends on timing: requests of
change feed processors, and requests that ask the control API how far a split is. So are those with a wrong signature,
because replays sign anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from clients.recording.exchanges import UNRECORDED_PREFIX, Exchange


def kept_exchanges(exchanges: list[Exchange]) -> Iterator[Exchange]:
    rids: set[str] = set()  # of containers whose requests are left out
    for exchange in exchanges:
        api = exchange["api"]
        if api == "control" and exchange["method"] == "GET":
            continue
        if api == "sql" and exchange.get("answer", {}).get("status") == 401:
            continue
        if api in ("sql", "control"):
            text = f"{exchange['target']} {exchange.get('body', '')}"
            if _names_unrecorded(exchange) or any(rid in text for rid in rids):
                answered = exchange.get("answer", {}).get("json")
                if isinstance(answered, dict) and str(answered.get("id", "")).startswith(UNRECORDED_PREFIX):
                    rids.add(answered["_rid"])
                continue
        yield exchange


def _names_unrecorded(exchange: Exchange) -> bool:
    body = exchange.get("body", "")
    if f"/{UNRECORDED_PREFIX}" in exchange["target"]:
        return True
    is_creation = exchange["target"].rstrip("/").endswith(("/colls", "/containers"))
    return is_creation and isinstance(body, str) and f'"{UNRECORDED_PREFIX}' in body
