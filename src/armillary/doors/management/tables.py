"""Tables over the management API: containers of the database of tables, as the Table door makes them."""

from __future__ import annotations

from typing import Final

from armillary import limits
from armillary.account import containers
from armillary.account.catalog.records import Record
from armillary.account.catalog.tables import find_table, table_body, tables_database, tables_of
from armillary.account.container import Container
from armillary.doors.management import throughput
from armillary.doors.management.call import Action, Call
from armillary.doors.management.databases import without_links
from armillary.errors import bad_request
from armillary.model.items import validate_name
from armillary.model.json_members import shown
from armillary.net.http import Response

KIND: Final = "tables"


async def list_tables(call: Call) -> Response:
    return call.answer_list(KIND, [(each.name, without_links(each.record)) for each in tables_of(call.account)])


async def show_table(call: Call) -> Response:
    return call.answer_resource(KIND, without_links(find_table(call.account, call.names[0]).record))


async def put_table(call: Call) -> Response:
    resource, options = call.envelope(KIND)
    name = call.named_resource(resource)
    resource.end()
    wanted = throughput.read_options(options)
    present = _find(call)
    if present is not None:
        await throughput.change(call, present.record, wanted)
        return call.answer_resource(KIND, without_links(present.record))
    _check_new(name)
    database = await tables_database(call.account)
    if wanted is None:  # a table may have as little as a container without a key: see offers.least_ru
        wanted = throughput.default_of(call, database, call.services.settings.table_throughput_ru, has_key=False)
    made = await containers.create_container(call.account, database, table_body(name), wanted)
    return call.answer_resource(KIND, without_links(made.record))


async def delete_table(call: Call) -> Response:
    await containers.delete_container(call.account, find_table(call.account, call.names[0]), None)
    return call.answer_deleted()


def _find(call: Call) -> Container | None:
    return next((each for each in tables_of(call.account) if each.name == call.names[0]), None)


def _record(call: Call) -> Record:
    return find_table(call.account, call.names[0]).record


def _check_new(name: str) -> None:
    validate_name(name)
    if len(name) > limits.TABLE_NAME_CHARACTERS_MAX:
        raise bad_request(f"A table's name has at most {limits.TABLE_NAME_CHARACTERS_MAX} characters.")
    if name == "Tables" or "(" in name or ")" in name:
        raise bad_request(
            f"'{shown(name)}' cannot be the name of a table: 'Tables', ( and ) have a meaning in addresses."
        )


ACTIONS: Final[tuple[tuple[str, str, Action], ...]] = (
    ("GET", KIND, list_tables),
    ("GET", f"{KIND}/{{}}", show_table),
    ("PUT", f"{KIND}/{{}}", put_table),
    ("DELETE", f"{KIND}/{{}}", delete_table),
    *((method, f"{KIND}/{{}}/{words}", action) for method, words, action in throughput.settings_actions(KIND, _record)),
)
