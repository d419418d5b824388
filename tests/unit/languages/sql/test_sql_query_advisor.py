"""The rules of the query advisor, each met and just missed."""

from __future__ import annotations

import pytest

from armillary.languages.sql.planning.query_advisor import advice_of
from armillary.languages.sql.syntax.parser import parse_query


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ('SELECT * FROM c WHERE ARRAY_CONTAINS(c.tags, {"name": "python"}, true)', ["QA1000"]),
        ("SELECT * FROM c WHERE ARRAY_CONTAINS(c.tags, 'python')", []),
        ("SELECT DISTINCT c.id FROM c JOIN t IN c.tags", ["QA1001"]),
        ("SELECT DISTINCT c.id FROM c", []),
        ("SELECT * FROM c WHERE CONTAINS(c.name, 'test')", ["QA1002"]),
        ("SELECT * FROM c WHERE STARTSWITH(c.name, 'test', true)", ["QA1003"]),
        ("SELECT * FROM c WHERE STRINGEQUALS(c.name, 'test', true)", ["QA1003"]),
        ("SELECT * FROM c WHERE STARTSWITH(c.name, 'test', false)", []),
        ("SELECT * FROM c WHERE ENDSWITH(c.name, 'document', true)", ["QA1004"]),
        ("SELECT COUNT(1) FROM c GROUP BY LOWER(c.name)", ["QA1005"]),
        ("SELECT COUNT(1) FROM c GROUP BY c.name", []),
        ("SELECT * FROM c WHERE LOWER(c.name) = 'test'", ["QA1006"]),
        ("SELECT LOWER(c.name) FROM c", []),
        ("SELECT * FROM c WHERE c.timestamp < GetCurrentDateTime()", ["QA1007"]),
        ("SELECT * FROM c WHERE c.ticks < GetCurrentTicks()", ["QA1008"]),
        ("SELECT * FROM c WHERE c.ts < GetCurrentTimestamp()", ["QA1009"]),
        ("SELECT * FROM c WHERE c.ts < GetCurrentTimestampStatic()", []),
        ("SELECT GetCurrentTimestamp() FROM c", []),
        ("SELECT * FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE CONTAINS(t, 'x'))", ["QA1002"]),
        (
            "SELECT * FROM c WHERE CONTAINS(c.a, 'x') AND CONTAINS(c.b, 'x', true) OR UPPER(c.a) > 'A'",
            ["QA1002", "QA1006"],
        ),
        ("SELECT udf.CONTAINS(c) FROM c", []),
    ],
)
def test_rules(text: str, rules: list[str]) -> None:
    assert advice_of(parse_query(text)) == rules
