"""Executing stored procedures over the SQL protocol. Storing them is `doors/sql/resources/resources.py`'s; running them
`account/`'s."""

from __future__ import annotations

from armillary.account.items.procedures import PROCEDURE_RU, execute
from armillary.doors.sql import headers as h
from armillary.doors.sql.call import Call
from armillary.doors.sql.headers import SCRIPT_LOGGING, with_log
from armillary.doors.sql.items.documents import header_key, place_headers
from armillary.errors import bad_request
from armillary.model.charges import Part, fitted
from armillary.model.items import parse_json
from armillary.model.keys import KEY_MISSING, NO_KEY
from armillary.model.resources import ResourceType
from armillary.net.http import Response


async def execute_procedure(call: Call) -> Response:
    container = call.owner_container()
    record = call.account.find(ResourceType.PROCEDURE, call.route.segments)
    arguments = parse_json(call.body) if call.body else []
    if not isinstance(arguments, list):
        raise bad_request("The arguments of a stored procedure are sent as a JSON array.")
    has_log = h.flag(call.headers, SCRIPT_LOGGING)
    h.consistency(call.headers, call.account.settings.consistency)
    key = header_key(call, container)
    if key is None:
        if container.key is not None:
            raise bad_request(KEY_MISSING)
        key = NO_KEY
    answer = await execute(call.account, container, record, arguments, key, session=call.session(), ask=call.ask)
    extra = place_headers(container, answer.range_id, answer.lsn)
    parts = [Part("run the script", PROCEDURE_RU), Part("its operations", answer.charge_ru - PROCEDURE_RU)]
    explained = fitted([part for part in parts if part.ru], answer.charge_ru) if call.explains else None
    response = call.answer(200, answer.charge_ru, answer.body, extra, explained)
    return with_log(response, answer.log) if has_log else response
