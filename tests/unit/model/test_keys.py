from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from azure.cosmos.partition_key import NonePartitionKeyValue, PartitionKey, _Undefined
from support.portions import Amount

from armillary.errors import Failure, Kind
from armillary.model.keys import (
    Key,
    KeyComponent,
    PartitionKeyDefinition,
    Step,
    parse_path,
    path_steps,
    to_header,
)
from armillary.model.values import UNDEFINED

SEED = 40_961
V1 = PartitionKeyDefinition.parse({"paths": ["/pk"], "kind": "Hash", "version": 1})
V2 = PartitionKeyDefinition.parse({"paths": ["/pk"], "kind": "Hash", "version": 2})
THREE = PartitionKeyDefinition.parse({"paths": ["/a", "/b", "/c"], "kind": "MultiHash", "version": 2})
SYSTEM = PartitionKeyDefinition.parse({"paths": ["/_partitionKey"], "kind": "Hash", "systemKey": True})

X100 = "05C1DD45A3938C08" + "79" * 100 + "00"
# From the protocol's description: value, effective key of V1, effective key of V2.
VECTORS: list[tuple[KeyComponent, str, str]] = [
    ("", "05C1CF33970FF80800", "32E9366E637A71B4E710384B2F4970A0"),
    ("a", "05C1D78593652C086200", "3A5381E1114EB8D3FCC90795045B49B7"),
    ("A", "05C1ED4B21E306084200", "14F53A0810CE6727EB1CD722D321216F"),
    ("redmond", "05C1EFE313830C087366656E706F6500", "22E342F38A486A088463DFF7838A5963"),
    ("partitionKey", "05C1E1B3D9CD2608716273756A756A706F4C667A00", "013AEFCF77FA271571CF665A58C933F1"),
    ("é", "05C1B3CD91912008C4AA00", "007199F104E04116EE25AF912CA4889B"),
    ("你好", "05C1D37361259408E5BEA1E6A6BE00", "004DC6466F1ECD29F3606AEBC7AFC317"),
    ("😀", "05C1814D5F9C08F1A0998100", "28D7FCB721E75FBE0DAC3D71DAB82766"),
    ("x" * 100, X100, "3F35F33CA8F8DA98DB46E18CDC66A245"),
    ("x" * 101, X100, "300C91B3A88EBBFFE4DB4541EA0875FC"),
    ("x" * 1024, X100, "2BAC2ED991B1AFB0E265AC327A32C95F"),
    (None, "05C1ED45D7475601", "378867E4430E67857ACE5C908374FE16"),
    (True, "05C1D7C5A903D803", "0E711127C5B5A8E4726AC6DD306A3E59"),
    (False, "05C1DB857D857C02", "2FE1BE91E90A3439635E0E9E37361EF2"),
    (UNDEFINED, "05C1D529E345DC00", "11622DAA78F835834610ABE56EFF5CB5"),
    (0, "05C1BF6DA11560058000", "155B95BEDAC4B1E9EC1CDC9BB0DDDE58"),
    (-0.0, "05C1E703ED99A0058000", "3D018BB1DF3DB27235766E81FD10406E"),
    (1, "05C1ED172B6B2605BFF0", "20CD98B339BA78A5D0CF6953B87070B0"),
    (5, "05C1D9C1C5517C05C014", "19C08621B135968252FB34B4CF66F811"),
    (42, "05C1E75FCB273A05C04580", "08E6D561F6FD951DCC25E7E4EA2884B5"),
    (-1, "05C1D1A5BDDF9C054010", "19938E7A936C1C5B9E3AE842BBC16839"),
    (5.5, "05C1D7A771716C05C016", "0E2EE47829D1AF775EEFB6540FD1D0ED"),
    (0.1, "05C1D92733D70405BFB9CD673399CD6734", "21DEBA97B3AF01087F4E1F889B0A7739"),
    (1e300, "05C1AB5FCFAF8005FE37F30F918103D738", "1234CB21048B20039B22F11DBB13CD7B"),
    (2**53, "05C1E53167392405C340", "15335910D01122E3D99DA5DE569B065D"),
    (2**53 - 1, "05C1B3FBA771A005C33FFFFFFFFFFFFFFE", "12C221C7032CED1F9E6693CE1428E6CF"),
    (-(2**53 - 1), "05C1DF1FF7D550053CC101010101010102", "2F1DA39110B7FB1FD46388C72F6BDBA2"),
    (4294967296, "05C1ED5B039B6005C1F0", "0C746AE2C07859994662C1770E77CCFB"),
    (1.7976931348623157e308, "05C1CBE367C53005FFEFFFFFFFFFFFFFFE", "31424D996457102634591FF245DBCC4D"),
    (5e-324, "05C1E5C91F4D3005800101010101010102", "0E6CBA63A280927DE485DEF865800139"),
]
A = "3A5381E1114EB8D3FCC90795045B49B7"
MULTI_VECTORS: list[tuple[Key, str]] = [
    (Key(("a", "b", "c")), A + "195644569A78B1E22D200348AF9416CE" + "2562D4841EF4AF76D90EC904CEE5FA9A"),
    (Key(("a", None, 5)), A + "378867E4430E67857ACE5C908374FE16" + "19C08621B135968252FB34B4CF66F811"),
    (Key(("a", UNDEFINED, True)), A + "11622DAA78F835834610ABE56EFF5CB5" + "0E711127C5B5A8E4726AC6DD306A3E59"),
    (
        Key(("WA", "redmond", "98052")),
        "0845FB119899DE50766A2C4CEFC2FA73" + "22E342F38A486A088463DFF7838A5963" + "36C8BBEC5EEB4676558994E4D8DF79A7",
    ),
]


@pytest.mark.parametrize(("value", "v1", "v2"), VECTORS, ids=[str(vector[0])[:20] for vector in VECTORS])
def test_effective_keys_of_the_protocols_table(value: KeyComponent, v1: str, v2: str) -> None:
    assert V1.effective_key(Key((value,))).hex().upper() == v1
    assert V2.effective_key(Key((value,))).hex().upper() == v2


@pytest.mark.parametrize(("key", "expected"), MULTI_VECTORS)
def test_effective_keys_of_hierarchical_keys(key: Key, expected: str) -> None:
    assert THREE.effective_key(key).hex().upper() == expected
    assert THREE.effective_key(Key(key[:2])).hex().upper() == expected[:64]
    low, high = THREE.prefix_range(Key(key[:1]))
    assert (low.hex().upper(), high.hex().upper()) == (expected[:32], expected[:32] + "FF")
    assert low < THREE.effective_key(key) < high


def random_component(dice: random.Random) -> KeyComponent:
    kind = dice.randrange(10)
    if kind == 0:
        return dice.choice((None, UNDEFINED))
    if kind == 1:
        return dice.choice((True, False))
    if kind == 2:
        return dice.choice((0, -0.0, 1, -1, 5e-324, -5e-324, 1.7976931348623157e308, 2**32 - 1, 2**32, -(2**31), 2**53))
    if kind == 3:
        return dice.randrange(-(2**53), 2**53)
    if kind == 4:
        return dice.randrange(0, 1000)
    if kind == 5:
        return dice.choice((1, -1)) * float(f"{dice.uniform(1, 10):.16f}e{dice.randrange(-300, 300)}")
    if kind == 6:
        return dice.choice("a\x00é你😀") * dice.choice((1, 24, 25, 26, 33, 34, 49, 50, 51, 99, 100, 101, 102))
    alphabet = "abcXYZ019 /\"'\\\x00\x01\x7f\x80éß你好\u2028\uffff😀"
    return "".join(dice.choices(alphabet, k=dice.choice((0, 1, 2, 5, 12, 36))))


def random_keys(count: int, levels: int = 1) -> list[Key]:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    return [Key(tuple(random_component(dice) for _ in range(levels))) for _ in range(count)]


def to_client(component: KeyComponent, dice: random.Random) -> Any:
    """The clients have three ways to say undefined."""
    return dice.choice((_Undefined(), NonePartitionKeyValue, {})) if component is UNDEFINED else component


def test_v2_keys_equal_the_clients() -> None:
    client, dice = PartitionKey("/pk", version=2), random.Random(SEED)
    for key in random_keys(5000):
        expected = client._get_effective_partition_key_string([to_client(key[0], dice)])
        assert V2.effective_key(key).hex().upper() == expected, key


def test_multi_hash_keys_equal_the_clients_whole_and_as_prefixes() -> None:
    client, dice = PartitionKey(["/a", "/b", "/c"], kind="MultiHash"), random.Random(SEED)
    for key in random_keys(5000, levels=3):
        key = Key(key[: dice.randrange(1, 4)])
        components = [to_client(component, dice) for component in key]
        assert THREE.effective_key(key).hex().upper() == client._get_effective_partition_key_string(components), key
        if len(key) < 3:
            expected = client._get_epk_range_for_prefix_partition_key(components)
            low, high = THREE.prefix_range(key)
            assert (low.hex().upper(), high.hex().upper()) == (expected.min, expected.max)


def test_v1_keys_equal_the_clients_but_for_its_known_deviations() -> None:
    """The client deviates from the service for V1 in three ways, which touch only how it routes, and only these are
    allowed for: it prints lower case; it drops the trailing 01 of null; it reduces integers modulo 2**32 before
    hashing, which is avoided by handing it those as floats."""
    client, dice = PartitionKey("/pk", version=1), random.Random(SEED)
    for key in random_keys(5000):
        component = to_client(key[0], dice)
        if type(component) is int and not 0 <= component < 2**32:
            component = float(component)
        expected = str(client._get_effective_partition_key_string([component])).upper()
        if component is None:
            expected += "01"
        assert V1.effective_key(key).hex().upper() == expected, key


def test_v1_effective_keys_are_prefix_free() -> None:
    keys = sorted({V1.effective_key(key) for key in random_keys(5000)})
    for low, high in itertools.pairwise(keys):
        assert not high.startswith(low)


def test_effective_keys_lie_inside_the_space_and_the_range_of_the_key() -> None:
    for definition in (V1, V2):
        for key in random_keys(1000):
            low, high = definition.prefix_range(key)
            assert b"" < low == definition.effective_key(key) < high < b"\xff"


def test_the_empty_key() -> None:
    assert SYSTEM.effective_key(Key(())) == b""
    assert SYSTEM.prefix_range(Key(())) == (b"", b"\x00")
    assert V2.prefix_range(Key(())) == THREE.prefix_range(Key(())) == (b"", b"\xff")


# Definitions


@pytest.mark.parametrize(
    "definition",
    [
        {"paths": ["/department"], "kind": "Hash", "version": 2},
        {"paths": ["/department"], "kind": "Hash", "version": 1},
        {"paths": ["/properties/name"], "kind": "Hash", "version": 2},
        {"paths": ["/id"], "kind": "Hash", "version": 2},
        {"paths": ['/"department name"'], "kind": "Hash", "version": 2},
        {"paths": ["/a"], "kind": "MultiHash", "version": 2},
        {"paths": ["/a", "/b/c", "/id"], "kind": "MultiHash", "version": 2},
        {"paths": ["/_partitionKey"], "kind": "Hash", "version": 1, "systemKey": True},
    ],
)
def test_definitions_are_read_back_as_given(definition: dict[str, Any]) -> None:
    parsed = PartitionKeyDefinition.parse(definition)
    assert parsed.to_json() == definition
    assert PartitionKeyDefinition.parse(parsed.to_json()) == parsed
    assert hash(parsed) == hash(PartitionKeyDefinition.parse(definition))


def test_defaults_of_a_definition() -> None:
    assert PartitionKeyDefinition.parse({"paths": ["/a"]}).to_json() == {"paths": ["/a"], "kind": "Hash", "version": 2}
    assert PartitionKeyDefinition.parse({"paths": ["/a"]}, default_version=1).version == 1
    multi = PartitionKeyDefinition.parse({"paths": ["/a"], "kind": "MultiHash"}, default_version=1)
    assert multi.version == 2


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"paths": ["/a", "/b", "/c", "/d"], "kind": "MultiHash", "version": 2}, "Too many partition key paths"),
        ({"paths": ["/a", "/b"], "kind": "Hash", "version": 2}, "Too many partition key paths"),
        ({"paths": []}, "at least one path"),
        ({"paths": "/a"}, "at least one path"),
        ({"paths": [1]}, "at least one path"),
        ({}, "at least one path"),
        (None, "must be an object"),
        (["/a"], "must be an object"),
        ({"paths": ["/a"], "kind": "Range"}, "kind"),
        ({"paths": ["/a"], "kind": ["Hash"]}, "kind"),
        ({"paths": ["/a"], "version": 3}, "version"),
        ({"paths": ["/a"], "version": True}, "version"),
        ({"paths": ["/a"], "version": "2"}, "version"),
        ({"paths": ["/a"], "version": None}, "version"),
        ({"paths": ["/a"], "kind": "MultiHash", "version": 1}, "version"),
        ({"paths": ["/a"], "systemKey": 1}, "systemKey"),
        ({"paths": ["/a"], "kind": "MultiHash", "systemKey": True}, "systemKey"),
        ({"paths": ["/a"], "flavour": 1}, "'flavour'"),
        ({"paths": [""]}, "failed near position '0'"),
        ({"paths": ["/"]}, "failed near position '0'"),
        ({"paths": ["a"]}, "failed near position '0'"),
        ({"paths": ["/a/"]}, "trailing slash or wildcard"),
        ({"paths": ["//a"]}, "failed near position '1'"),
        ({"paths": ["/a//b"]}, "failed near position '3'"),
        ({"paths": ["/a/ /b"]}, "failed near position '3'"),
        ({"paths": ['/"a']}, "failed near position '1'"),
        ({"paths": ['/"a\\"']}, "failed near position '1'"),
        ({"paths": ['/"a"b']}, "failed near position '4'"),
        ({"paths": ["/a/*"]}, "failed near position '3'"),
        ({"paths": ["/*"]}, "wildcard"),
        ({"paths": ["/a/?"]}, "wildcard"),
        ({"paths": ["/a/[]/b"]}, "wildcard"),
        ({"paths": ["/id ds"]}, "must contain only valid characters"),
        ({"paths": ["/a?b"]}, "wildcard"),
    ],
)
def test_definitions_that_are_refused(definition: Any, text: str) -> None:
    with pytest.raises(Failure) as caught:
        PartitionKeyDefinition.parse(definition)
    assert caught.value.kind is Kind.BAD_REQUEST
    assert text in caught.value.message


# Paths


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/a", ("a",)),
        ("/a/b/c", ("a", "b", "c")),
        ('/"department name"', ("department name",)),
        ("/department name", ("department name",)),
        ("/ Key 1 / Key 2 ", ("Key 1", "Key 2")),
        ("/\"le/vel\"/'x'", ("le/vel", "x")),
        ('/"first level\' 1*()"/"le/vel2"', ("first level' 1*()", "le/vel2")),
        ("/'level\" 1*()'/'le/vel2'", ('level" 1*()', "le/vel2")),
        ('/"a\\"b"/c', ('a\\"b', "c")),  # the clients leave the backslash in the name
        ("/'a\\'b'", ("a\\'b",)),
        ('/""', ("",)),
        ('/" a "', (" a ",)),
        ('/"*"', ("*",)),
        ("/[]/*", ("[]", "*")),
        ("/你好", ("你好",)),
    ],
)
def test_paths(path: str, names: tuple[str, ...]) -> None:
    assert parse_path(path) == names


def test_steps_tell_a_wildcard_from_a_quoted_name() -> None:
    assert path_steps('/"[]"/[]') == [Step("[]", True), Step("[]", False)]
    quoted = PartitionKeyDefinition.parse({"paths": ['/"*"/"[]"/"?"']})
    assert quoted.extract({"*": {"[]": {"?": 5}}}) == (5,)


def test_paths_are_read_as_the_client_reads_them() -> None:
    from azure.cosmos._base import ParsePaths

    print(f"seed {SEED}")
    dice = random.Random(SEED)
    accepted = 0
    for _ in range(5000):
        path = "".join(dice.choices('///""\'\\ab *', k=dice.randrange(1, 10)))
        try:
            names = parse_path(path)
        except Failure as failure:
            if failure.kind is not Kind.BAD_REQUEST:
                raise
            continue
        accepted += 1
        assert list(names) == ParsePaths([path]), path
    assert accepted > 200


# Keys of items


@pytest.mark.parametrize(
    ("path", "document", "key"),
    [
        ("/pk", {"pk": "x"}, ("x",)),
        ("/pk", {"pk": 5}, (5,)),
        ("/pk", {"pk": 5.5}, (5.5,)),
        ("/pk", {"pk": True}, (True,)),
        ("/pk", {"pk": None}, (None,)),
        ("/pk", {"pk": {}}, (UNDEFINED,)),
        ("/pk", {"pk": {"a": 1}}, (UNDEFINED,)),
        ("/pk", {"pk": []}, (UNDEFINED,)),
        ("/pk", {"pk": ["x"]}, (UNDEFINED,)),
        ("/pk", {}, (UNDEFINED,)),
        ("/pk", {"pk": 2**53 + 1}, (2.0**53,)),
        ("/id", {"id": "1"}, ("1",)),
        ("/properties/name", {"properties": {"name": "x"}}, ("x",)),
        ("/properties/name", {"properties": "name"}, (UNDEFINED,)),
        ("/properties/name", {"properties": [{"name": "x"}]}, (UNDEFINED,)),
        ("/properties/name", {"properties": None}, (UNDEFINED,)),
        ("/properties/0", {"properties": ["x"]}, (UNDEFINED,)),
        ('/"department name"', {"department name": "x"}, ("x",)),
        ("/'le/vel'/\"x y\"", {"le/vel": {"x y": 1}}, (1,)),
    ],
)
def test_extract(path: str, document: dict[str, Any], key: Key) -> None:
    extracted = PartitionKeyDefinition.parse({"paths": [path]}).extract(document)
    assert extracted == key
    assert [type(component) for component in extracted] == [type(component) for component in key]


def test_extract_hierarchical_and_system() -> None:
    assert THREE.extract({"a": "x", "b": {"c": 1}, "c": None}) == ("x", UNDEFINED, None)
    assert SYSTEM.extract({"id": "1"}) == ()
    assert SYSTEM.extract({"_partitionKey": "x"}) == ("x",)
    nested = PartitionKeyDefinition.parse({"paths": ["/a/b"], "systemKey": True})
    assert nested.extract({"a": 1}) == ()
    assert nested.extract({"a": {"b": None}}) == (None,)


@pytest.mark.parametrize("definition", [V1, V2])
def test_the_longest_key(definition: PartitionKeyDefinition) -> None:
    limit = 2048
    longest = ["x" * limit, "é" * (limit // 2), "😀" * (limit // 4)]
    too_long = ["x" * (limit + 1), "é" * (limit // 2 + 1), "😀" * (limit // 4 + 1)]
    for text in longest:
        assert definition.extract({"pk": text}) == definition.parse_header(to_header(Key((text,)))) == (text,)
    for text in too_long:
        with pytest.raises(Failure) as from_item:
            definition.extract({"pk": text})
        with pytest.raises(Failure) as from_header:
            definition.parse_header(to_header(Key((text,))))
        assert from_item.value.kind is from_header.value.kind is Kind.BAD_REQUEST
        assert str(limit) in from_item.value.message


def test_long_keys_that_begin_alike_are_one_to_v1_only() -> None:
    first, second = Key(("x" * 101 + "a",)), Key(("x" * 101 + "b",))
    assert V1.effective_key(first) == V1.effective_key(second)
    assert V2.effective_key(first) != V2.effective_key(second)


# Headers


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('["x"]', ("x",)),
        (b'["x"]', ("x",)),
        ("[5]", (5,)),
        ("[5.5]", (5.5,)),
        ("[true]", (True,)),
        ("[null]", (None,)),
        ("[{}]", (UNDEFINED,)),
        ("[]", ()),
        ("[[]]", ()),
        ('["a",{},5]', ("a", UNDEFINED, 5)),
        ('["Infinity"]', ("Infinity",)),
        ('["\\u4f60\\u597d\\ud83d\\ude00"]', ("你好😀",)),
        ('["你好"]'.encode(), ("你好",)),
        ("[9007199254740993]", (2.0**53,)),
        ("[18446744073709551616]", (2.0**64,)),
        ("[-0.0]", (-0.0,)),
        (' [ "x" ] ', ("x",)),
    ],
)
def test_headers(text: str | bytes, key: Key) -> None:
    for definition in (V2, THREE):
        parsed = definition.parse_header(text)
        assert parsed == key
        assert [type(component) for component in parsed] == [type(component) for component in key]
        if parsed:
            assert definition.parse_header(to_header(parsed)) == parsed
            assert to_header(parsed).isascii()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        '"x"',
        "5",
        "null",
        "{}",
        "[",
        "[NaN]",
        "[Infinity]",
        "[-Infinity]",
        "[1e400]",
        "[" + "9" * 400 + "]",
        '["\\ud800"]',
        '["\\udc00x"]',
        '["\ud800"]',
        b'["\xff"]',
        b'["\xed\xa0\x80"]',
        '["x"] x',
        "['x']",
        '["x",]',
        "[[1]]",
        "[[[]]]",
        '["a",[]]',
        "[[],[]]",
        '[{"a":1}]',
        '[{"$type":"Infinity"}]',
        "[" * 5_000,
        '["' + "x" * 5000 + '"]',
        '["\x00"]',
    ],
)
def test_headers_that_are_refused(text: str | bytes) -> None:
    for definition in (V1, V2, THREE, SYSTEM):
        with pytest.raises(Failure) as caught:
            definition.parse_header(text)
        assert caught.value.kind is Kind.BAD_REQUEST
        assert len(caught.value.message) < 1000
        assert caught.value.message.isascii()
        assert caught.value.message.isprintable()


def test_random_headers_give_a_key_or_a_bad_request(amount: Amount) -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    pieces = ['["', '"]', "[", "]", "{}", "null", "1", "1e999", "-", ",", '"', "\\u", "d83d", "\\", "é", "\x00", "true"]
    accepted = 0
    for _ in range(amount(20_000)):
        text: str | bytes = "".join(dice.choices(pieces, k=dice.randrange(1, 8)))
        if dice.random() < 0.3:
            text = "[" + ",".join(dice.choices(pieces, k=dice.randrange(1, 4))) + "]"
        if dice.random() < 0.3:
            text = str(text).encode() + dice.randbytes(dice.randrange(3))
        try:
            key = THREE.parse_header(text)
        except Failure as failure:
            if failure.kind is not Kind.BAD_REQUEST:
                raise
            continue
        accepted += 1
        assert len(THREE.effective_key(key)) == 16 * len(key)
    assert accepted > amount(300)


def test_every_key_survives_its_header() -> None:
    for key in random_keys(2000):
        for definition in (V1, V2):
            parsed = definition.parse_header(to_header(key))
            assert parsed == key
            assert definition.effective_key(parsed) == definition.effective_key(key)


@pytest.mark.parametrize(
    ("definition", "key"),
    [(V2, ()), (V2, ("a", "b")), (THREE, ("a",)), (THREE, ("a", "b", "c", "d")), (THREE, ()), (SYSTEM, ("a", "b"))],
)
def test_a_wrong_number_of_components(definition: PartitionKeyDefinition, key: Key) -> None:
    with pytest.raises(Failure) as caught:
        definition.check_full(key)
    assert caught.value.kind is Kind.KEY_MISMATCH
    assert caught.value.message == (
        "Partition key provided either doesn't correspond to definition in the collection or doesn't match partition"
        " key field values specified in the document."
    )


def test_full_keys_and_prefixes() -> None:
    V2.check_full(Key(("a",)))
    THREE.check_full(Key(("a", None, UNDEFINED)))
    SYSTEM.check_full(Key(()))
    SYSTEM.check_full(Key(("a",)))
    with pytest.raises(Failure) as caught:
        V2.prefix_range(Key(("a", "b")))
    assert caught.value.kind is Kind.KEY_MISMATCH


def test_half_a_surrogate_pair_from_a_query_is_refused() -> None:
    for definition in (V1, V2, THREE):
        with pytest.raises(Failure) as caught:
            definition.effective_key(Key(("\ud800",)))
        assert caught.value.kind is Kind.BAD_REQUEST


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (("a",), ("a",), True),
        (("a",), ("b",), False),
        ((1,), (1.0,), True),
        ((1,), (True,), False),
        ((0,), (False,), False),
        ((False,), (False,), True),
        ((0,), (-0.0,), False),
        ((-0.0,), (-0.0,), True),
        ((0.0,), (0,), True),
        ((None,), (UNDEFINED,), False),
        ((UNDEFINED,), (UNDEFINED,), True),
        ((None,), (None,), True),
        (("a", 1), ("a",), False),
        (("a", 1), ("a", True), False),
        (("",), (None,), False),
        ((), (), True),
    ],
)
def test_equality_agrees_with_the_hash(
    first: tuple[KeyComponent, ...], second: tuple[KeyComponent, ...], is_same: bool
) -> None:
    one, other = Key(first), Key(second)
    assert (one == other) is (other == one) is is_same
    assert (one != other) is not is_same
    assert (one == second) is (second == one) is is_same  # also where one side is a plain tuple
    assert (other in [one]) is (other in {one}) is (other in {one: 1}) is is_same
    assert one.begins_with(other) is is_same or len(one) > len(other)
    assert (THREE.effective_key(one) == THREE.effective_key(other)) == is_same
