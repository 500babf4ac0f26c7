"""Two coordinators with the keys of one network, and a keyed site that sends what nobody asked for: real processes."""

import queue
import shutil

import grpc
import pytest
from deployment import deployed, keys

from fedlsa.network.carriers.grpc_site import FRAME
from fedlsa.network.processes import greeting


@pytest.fixture(scope="module")
def it(tmp_path_factory):
    with deployed(tmp_path_factory.mktemp("network"), 3) as it:
        yield it


def test_a_site_stays_with_its_coordinator_when_a_copy_takes_its_address(it):
    copy = it.root / "copy"
    shutil.copytree(it.network.folder, copy)
    it.again(it.serve)  # the copy does not know of this start
    it.until(lambda: all(it.here(name) for name in it.sites), "all are here")
    it.serve.kill()
    other = it.child("serve", str(copy), "--no-page", log="other")
    other.start()
    try:
        it.until(lambda: "does not know the one that this site was with" in it.said("site-1"), "the site says so")
    finally:
        other.kill()
    it.serve.start()
    it.until(lambda: all(it.here(name) for name in it.sites), "all have returned to the first")


def test_what_nobody_asked_for_is_dropped_and_an_order_of_one_site_reaches_no_other(it):
    own = keys(it, "site-2")
    ca, key, certificate = (path.read_bytes() for path in (own.ca, own.key, own.certificate))
    it.sites["site-2"].end()
    options = [("grpc.enable_http_proxy", 0)]
    address, sent = f"127.0.0.1:{it.network.port}", queue.SimpleQueue()
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, certificate), options=options) as channel:
        stream = channel.stream_stream("/fedlsa.Site/Join")(iter(sent.get, None), metadata=greeting())
        stream.initial_metadata()
        for number in range(200):
            sent.put(FRAME.pack(number) + b"an order for site-1")
        with pytest.raises(grpc.RpcError) as ended:
            next(stream)
        sent.put(None)
    assert ended.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    before = it.said("site-1")
    it.sites["site-2"].start()
    it.until(lambda: it.here("site-2"), "the true site-2 is back, after its penalty")
    assert it.said("site-1") == before  # nothing reached it
