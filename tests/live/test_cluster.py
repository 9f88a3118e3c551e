        check_readable(cluster, [cluster.known_route("T")])


def test_a_broker_without_a_master_is_refused_unless_slaves_may_be_read(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 1)
    fake.addresses["broker-a"] = {1: fake.address}
    with pytest.raises(NoMasterError, match=r"broker-a has no master.*set readFrom=any"):
        connect().reading_address("broker-a")
    assert connect(read_from="any").reading_address("broker-a") == fake.address


@pytest.mark.parametrize(
    ("read_from", "number"), [("master", 0), ("slave", 1), ("any", 0)], ids=str
)
def test_where_is_read_from(
    fake: FakeCluster, connect: Connect, read_from: str, number: int
) -> None:
    fake.fill("T", 1)
    hosts = {0: "h0:1", 1: "h1:1", 2: "h2:1"}
