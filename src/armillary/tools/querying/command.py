"""`armillary query`: asks a server for the rows of a query and writes them page by page. Ctrl-C ends it between two
pages or within one; what was written stays."""

from __future__ import annotations

import sys
from typing import Any, Final

from armillary.errors import bad_request
from armillary.tools.commands.arguments import container_path, key_values
from armillary.tools.querying.arguments import parameters_of
from armillary.tools.querying.query_plan import draw_plan, explanation, summary_lines
from armillary.tools.querying.row_output import RowOutput
from armillary.tools.querying.sql_pages import Asked, Figures, SqlAccount
from armillary.tools.remote import Where
from armillary.tools.screen import Screen
from armillary.tools.settings import Settings
from armillary.tools.transfer.endpoints.cosmos import ContainerLink

_SQL_CHARACTERS_MAX: Final = 256 * 1024  # as the server takes it


def run_query(arguments: dict[str, Any], settings: Settings) -> int:
    form = arguments.get("output", "table")
    rows_max = arguments.get("max_items")
    if rows_max is not None and rows_max < 1:
        raise bad_request(f"--max-items is {rows_max}; expected how many rows to show, at least 1.")
    if form == "csv" and "explain" in arguments:
        raise bad_request("--explain prints a table or JSON; leave out --output csv.")
    asked = Asked(
        place_named(arguments["container"]),
        _text(arguments["sql"]),
        parameters_of(arguments.get("parameter", ())),
        key_values(arguments["partition_key"]) if "partition_key" in arguments else None,
    )
    account = SqlAccount.find(settings, Where.taken_from(arguments))
    try:
        show(account, asked, Screen(), form, rows_max, is_explained="explain" in arguments)
    finally:
        account.close()
    return 0


def show(
    account: SqlAccount, asked: Asked, screen: Screen, form: str, rows_max: int | None = None, *, is_explained: bool
) -> Figures:
    """Run a query and write its rows and summary, or its plan instead."""
    figures, output = Figures(), RowOutput(form, screen)
    for rows in account.pages(asked, figures, output.page_rows, rows_max):
        if not is_explained:
            output.write(rows)
    if not is_explained:
        for line in summary_lines(figures):
            output.say(line)
    elif form == "json":
        screen.content(explanation(figures))
    else:
        draw_plan(screen, figures)
    return figures


def place_named(name: str) -> ContainerLink:
    _, database, _, container = container_path(name)
    return ContainerLink(database, container)


def _text(given: str) -> str:
    text = sys.stdin.read(_SQL_CHARACTERS_MAX + 1) if given == "-" else given
    if not text.strip():
        raise bad_request('The query is empty. Give one such as "SELECT * FROM c".')
    if len(text) > _SQL_CHARACTERS_MAX:
        raise bad_request(f"The query is longer than {_SQL_CHARACTERS_MAX // 1024} KB. Use parameters for long values.")
    return text.strip().rstrip(";")
