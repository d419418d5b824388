"""`armillary script`: scripts are stored and run, and a run tells what it does and what each step of it cost."""

from __future__ import annotations

from pathlib import Path

from support.server_operator import Operator

MOVE = """function (from, to) {
    console.log("moving %s", from);
    __.queryDocuments(__.getSelfLink(), "SELECT * FROM c WHERE c.place = '" + from + "'", function (error, found) {
        if (error) throw error;
        if (!found.length) throw new Error(404, "nothing there");
        found.forEach(function (each) {
            each.place = to;
            __.replaceDocument(each._self, each);
        });
        __.readDocument(__.getAltLink() + "/docs/none", function (error) {
            __.response.setBody({moved: found.length, missing: error.number});
        });
    });
}"""


def test_life(operator: Operator, name: str, tmp_path: Path) -> None:
    container = f"scripts-{name}/c"
    operator.command("containers", "create", container, "--partition-key", "/pk")
    source = tmp_path / "move.js"
    source.write_text(MOVE)
    assert "no scripts" in operator.command("script", "list", container)
    assert "Stored the procedure move" in operator.command("script", "put", container, "move", str(source))
    operator.command(
        "script", "put", container, "t", str(source), "--trigger", "--when", "post", "--operation", "create"
    )
    operator.command("script", "put", container, "f", str(source), "--function")
    operator.command("script", "put", container, "move", str(source))
    listed = operator.json("script", "list", container)
    assert [[each["name"] for each in listed[kind]] for kind in ("procedures", "triggers", "functions")] == [
        ["move"],
        ["t"],
        ["f"],
    ]
    assert listed["triggers"][0]["triggerType"] == "Post"
    assert "post create" in operator.command("script", "list", container)
    assert operator.command("script", "show", container, "move").strip() == MOVE
    operator.command("script", "delete", container, "t", "--trigger", "--yes")
    assert "'t' does not exist" in operator.command("script", "show", container, "t", "--trigger", code=2)
    assert "--trigger" in operator.command("script", "put", container, "x", str(source), "--when", "pre", code=2)
    assert "cannot be read" in operator.command("script", "put", container, "x", "/no/such/file", code=2)


def test_runs(operator: Operator, name: str, tmp_path: Path) -> None:
    container = f"runs-{name}/c"
    operator.command("containers", "create", container, "--partition-key", "/pk")
    for script, source in (("move", MOVE), ("add", ADD)):
        (tmp_path / script).write_text(source)
        operator.command("script", "put", container, script, str(tmp_path / script))
    added = operator.command("script", "run", container, "add", "--partition-key", "a", "--params", "[3]")
    assert added.strip() == "3"
    params = ["--partition-key", "a", "--params", '["here", "there"]']
    rehearsed = operator.json("script", "run", container, "move", *params, "--dry-run")
    assert (rehearsed["response"], rehearsed["kept"]) == ({"moved": 3, "missing": 404}, False)
    done = operator.json("script", "run", container, "move", *params)
    assert (done["response"], done["log"], done["kept"]) == ({"moved": 3, "missing": 404}, "moving here", True)
    steps = [(each["operation"], each["subject"], each["status"], each.get("items")) for each in done["steps"]]
    assert steps == [
        ("query", "SELECT * FROM c WHERE c.place = 'here'", 200, 3),
        *[("replace", each, 200, None) for each in "012"],
        ("read", "none", 404, None),
    ]
    assert abs(sum(each["chargeRu"] for each in done["steps"]) + 1 - done["chargeRu"]) < 0.05
    assert abs(done["chargeRu"] - rehearsed["chargeRu"]) < 0.01
    shown = operator.command("script", "run", container, "move", "--explain", *params[:3], '["there", "here"]')
    assert "5 operations" in shown and "replace" in shown and '"moved": 3' in shown
    refused = operator.command("script", "run", container, "move", *params[:3], '["nowhere", "x"]', code=2)
    assert "nothing there" in refused and "(move.js:5:" in refused
    assert "--partition-key" in operator.command("script", "run", container, "add", code=2)
    assert "'none' does not exist" in operator.command("script", "run", container, "none", *params, code=2)
    assert "JSON list" in operator.command("script", "run", container, "add", "--params", "3", code=2)


ADD = """function (count) {
    for (var number = 0; number < count; number++)
        __.createDocument(__.getSelfLink(), {id: String(number), pk: "a", place: "here"});
    __.response.setBody(count);
}"""
