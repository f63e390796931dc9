"""A Redis Cluster in which the server with an app's slot is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.failover.launches import assert_sound, assert_unbroken, running
from tests.e2e.failover.redis_groups import Cluster, until

from detent.stores.registry import open_store, promise_of
from detent.testing.stores.fixtures import Asker, fire

pytestmark = pytest.mark.xdist_group("redis cluster")  # one for all of them, in this order


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For the last test of this file, which kills one of them, too."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), app="t")
    yield cluster
    cluster.end()


def test_nodes_follow_the_slot_of_their_app_when_its_server_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    assert [row.what for row in promise_of(cluster.url) if row.state != "ok"] == ["failover"]
    with running(tmp_path, cluster.url, cluster.url) as fleet:
        before = max(one.fence for one in fleet.witness.starts())
        cluster.master.end()
        until("its replica is promoted", cluster.is_promoted)
        fleet.wait_all_say("new-epoch")
        fleet.wait_more(3)
        assert cluster.replica.call("EXISTS", "{detent:t}:world") == 1
        fleet.stop()
        assert_sound(fleet)
        assert_unbroken(fleet)
        with closing(open_store(cluster.url)) as store:
            store.put([fire("t.b@1")])
            assert min(claim.fence for claim in Asker(store, app="t").claim(limit=10)) > before
