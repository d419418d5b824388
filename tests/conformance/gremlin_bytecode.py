"""Instructions of our own as the objects that gremlinpython sends, so that its serialisers can write them: whatever is
expressible in a text goes through a released client's bytecode as well.
"""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

from gremlin_python import statics
from gremlin_python.process import traversal as client
from gremlin_python.process.strategies import (
    PartitionStrategy,
    ProductiveByStrategy,
    ReadOnlyStrategy,
    SeedStrategy,
    SubgraphStrategy,
)
from gremlin_python.structure.graph import Vertex as ClientVertex

from armillary.languages.gremlin.syntax.instructions import CardinalityValue, Instruction, Strategy, Traversal
from armillary.languages.gremlin.syntax.tokens import Token
from armillary.languages.gremlin.values.elements import Vertex, pairs
from armillary.languages.gremlin.values.predicates import TEXT, P
from armillary.languages.gremlin.values.typed_values import Long, Set, Uuid

_STRATEGIES = {
    "PartitionStrategy": PartitionStrategy,
    "SubgraphStrategy": SubgraphStrategy,
    "ReadOnlyStrategy": ReadOnlyStrategy,
    "SeedStrategy": SeedStrategy,
    "ProductiveByStrategy": ProductiveByStrategy,
}
_SETTINGS = {"partitionKey": "partition_key", "writePartition": "write_partition", "readPartitions": "read_partitions"}


def bytecode(traversal: Traversal) -> client.Bytecode:
    found = client.Bytecode()
    found.source_instructions = [_instruction(each) for each in traversal.source]
    found.step_instructions = [_instruction(each) for each in traversal.steps]
    return found


def _instruction(each: Instruction) -> list[Any]:
    return [each.name, *(value(argument) for argument in each.arguments)]


def value(given: Any) -> Any:
    """One argument as the client would hold it."""
    match given:
        case Traversal():
            return bytecode(given)
        case P():
            kind = client.TextP if given.name in TEXT else client.P
            if given.name in ("and", "or"):
                first, *rest = given.value
                joined = value(first)
                for other in rest:
                    joined = client.P(given.name, joined, value(other))
                return joined
            return kind(given.name, value(given.value))
        case Token():
            members = getattr(client, given.family)
            name = given.value
            snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
            if name.isupper():
                snake = name
            return next(members[each] for each in (name, f"{name}_", snake) if each in members.__members__)
        case CardinalityValue():
            members = {"single": "single", "list": "list_", "set": "set_"}
            return getattr(client.CardinalityValue, members[given.cardinality.value])(value(given.value))
        case Strategy():
            settings = {_SETTINGS.get(key, key): value(each) for key, each in given.settings.items()}
            return _STRATEGIES[given.name](**settings)
        case Vertex():
            return ClientVertex(given.id, given.label)
        case Set():
            return {value(each) for each in given}
        case list():
            return [value(each) for each in given]
        case dict():
            return {value(key): value(each) for key, each in pairs(given)}
        case bool() | None:
            return given
        case Uuid():
            return uuid.UUID(str(given))
        case Long():
            return statics.long(given)
        case datetime.datetime() | Decimal() | str() | float() | int():
            return given
    raise NotImplementedError(type(given).__name__)
