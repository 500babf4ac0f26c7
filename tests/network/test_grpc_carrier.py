"""The gRPC carrier on bytes: whom it lets in, what it asks, and what it drops; sites and strangers are threads here."""

import contextlib
import queue
import socket
import ssl
import threading
import time

import grpc
import pytest
from authority import Authority
from deployment import many_sockets

from fedlsa.errors import MessageError, NetworkError
from fedlsa.network.carriers import grpc_carrier
from fedlsa.network.carriers.grpc_carrier import FRAME, GrpcCarrier
from fedlsa.network.carriers.grpc_site import SiteLink
from fedlsa.network.processes import greeting

PATIENCE = 60.0  # seconds, on a busy machine


def until(happens, what):
    end = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.02)


class Place:
    """A carrier and sites that echo, over real sockets."""

    def __init__(self, folder):
        self.authority, self.said, self.alarms, self.links = Authority(folder), [], [], []
        self.pins, self.known, self.trusted = {}, set(), []
        self.carrier = None
        self.port = 0
        self.server_keys = self.authority.issue("localhost", "server", server=True)
        self.serve()

    def serve(self, **options):
        if self.carrier is not None:
            self.carrier.close()
        self.carrier = GrpcCarrier(
            f"localhost:{self.port}",
            self.identity_files,
            self.pinned,
            say=self.said.append,
            alarm=lambda site, text: self.alarms.append(threading.current_thread().name),
            knows=lambda identity: identity in ("", *self.known),
            **options,
        )
        self.port = self.carrier.port

    def identity_files(self):
        keys = self.server_keys
        key, certificate, ca = (p.read_bytes() for p in (keys.key, keys.certificate, keys.ca))
        return key, certificate, b"".join([ca, *self.trusted])

    def pinned(self, site):
        path = self.pins.get(site)
        return path.read_bytes() if path is not None and path.exists() else None

    def enrol(self, name):
        keys = self.authority.issue(name)
        self.pins[name] = keys.certificate
        return keys

    def join(self, keys, answer=lambda order: b"re:" + order, **options):
        said = []
        link = SiteLink("localhost", self.port, keys, answer, say=said.append, **options)
        link.said = said
        link.thread = threading.Thread(target=link.run, daemon=True)
        link.thread.start()
        self.links.append(link)
        return link

    def site(self, name, *args, **options):
        link = self.join(self.enrol(name), *args, **options)
        until(lambda: name in self.carrier.present(), f"{name} is here; {link.said} {self.said}")
        return link

    def ask(self, orders, deadline=PATIENCE):
        return dict(self.carrier.ask(orders, deadline))

    def raw(self, keys, metadata=()):
        """A stream without our site's code: (channel, stream, queue of what is sent)."""
        ca, key, certificate = (p.read_bytes() for p in (keys.ca, keys.key, keys.certificate))
        options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.secure_channel(
            f"localhost:{self.port}", grpc.ssl_channel_credentials(ca, key, certificate), options=options
        )
        sent, told = queue.SimpleQueue(), (*greeting(), *metadata)
        return channel, channel.stream_stream("/fedlsa.Site/Join")(iter(sent.get, None), metadata=told), sent


@pytest.fixture
def place(tmp_path):
    it = Place(tmp_path)
    yield it
    for link in it.links:
        link.stop()
    it.carrier.close()


def refusal(place, keys):
    """(status, text) that a stream with these keys ends with."""
    channel, stream, sent = place.raw(keys)
    with channel, pytest.raises(grpc.RpcError) as refused:
        next(stream)
    sent.put(None)
    return refused.value.code(), refused.value.details()


def test_every_site_is_asked_at_once_and_answers_its_own_order(place):
    for name in ("a", "b", "c"):
        place.site(name)
    assert place.carrier.present() == ("a", "b", "c")
    assert place.ask({s: s.encode() for s in "abc"}) == {"a": b"re:a", "b": b"re:b", "c": b"re:c"}
    assert place.ask({"a": b""}) == {"a": b"re:"}
    assert place.ask({}) == {}
    assert place.carrier.counts["a"]["answers"] == 2


def test_a_site_that_is_away_is_asked_when_it_comes_within_the_deadline(place):
    keys = place.enrol("late")
    threading.Timer(0.5, lambda: place.join(keys)).start()
    assert place.ask({"late": b"x"}) == {"late": b"re:x"}
    assert place.ask({"never": b"x"}, 0.2) == {}


def test_an_order_is_asked_again_after_the_stream_broke_and_answered_once(place):
    seen, broken = [], threading.Event()

    def answer(order):
        seen.append(order)
        if not broken.is_set():
            broken.set()
            link._call.cancel()  # the stream breaks before the answer leaves
        return b"re:" + order

    link = place.site("a", answer)
    assert list(place.carrier.ask({"a": b"x"}, PATIENCE)) == [("a", b"re:x")]
    assert seen == [b"x", b"x"]


def test_a_coordinator_that_was_restarted_finds_its_sites_again(place):
    place.site("a")
    place.serve()
    assert place.ask({"a": b"x"}) == {"a": b"re:x"}


def test_a_late_answer_is_not_taken_for_that_of_the_next_order_and_only_the_newest_order_waits(place):
    seen, gate = [], threading.Event()

    def answer(order):
        seen.append(order)
        gate.wait()
        return b"re:" + order

    link = place.site("slow", answer)

    def waiting():
        return [frame[FRAME.size :] for frame, _ in link._orders]

    def asked_in_vain(order):  # nobody waits for the answer
        assert place.ask({"slow": order}, 0.1) == {}
        return True

    def open_gate():
        until(lambda: waiting() == [b"last"], "the last order waits at the site")
        gate.set()

    try:
        until(lambda: asked_in_vain(b"0") and seen, "the first order is being answered")
        for order in (b"1", b"2", b"3", b"4"):
            until(lambda order=order: asked_in_vain(order) and waiting() == [order], f"{order} waits at the site")
        opener = threading.Thread(target=open_gate)
        opener.start()
        assert place.ask({"slow": b"last"}) == {"slow": b"re:last"}
        opener.join()
    finally:
        gate.set()
    assert seen == [b"0", b"last"]
    assert place.carrier.counts["slow"]["dropped"] == 1


def test_a_stranger_without_a_certificate_or_with_one_of_another_authority_does_not_pass_the_handshake(place, tmp_path):
    link = place.site("a")
    other = Authority(tmp_path / "other")
    forged = other.issue("a")
    context = ssl.create_default_context(cafile=str(place.authority.ca))
    context.set_alpn_protocols(["h2"])
    for keys in (None, forged):
        if keys is not None:
            context.load_cert_chain(keys.certificate, keys.key)
        assert greeting_over_tls(place, context) == b""
    context.load_cert_chain(link.keys.certificate, link.keys.key)
    assert greeting_over_tls(place, context) != b""  # the right certificate passes by the same way
    channel = grpc.insecure_channel(f"localhost:{place.port}", options=[("grpc.enable_http_proxy", 0)])
    with channel, pytest.raises(grpc.RpcError) as plain:
        next(channel.stream_stream("/fedlsa.Site/Join")(iter([b"x"])))
    assert plain.value.code() == grpc.StatusCode.UNAVAILABLE
    assert place.carrier.present() == ("a",)
    assert place.carrier.counts["a"]["streams"] == 1  # none of them came as far as a stream


def greeting_over_tls(place, context):
    """What the server says after the handshake, as HTTP/2 has it; nothing where it ends the connection instead."""
    try:
        with (
            socket.create_connection(("localhost", place.port), 10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            return secure.recv(4096)
    except (ssl.SSLError, ConnectionError):
        return b""


def test_a_name_that_is_not_listed_or_whose_certificate_is_another_is_refused_by_name(place):
    assert refusal(place, place.authority.issue("unlisted"))[0] == grpc.StatusCode.PERMISSION_DENIED
    place.enrol("a")
    second = place.authority.issue("a", "a-second")  # of the same authority, with the same name
    code, text = refusal(place, second)
    assert code == grpc.StatusCode.PERMISSION_DENIED
    assert "another certificate is approved" in text
    assert place.carrier.present() == ()
    assert any("'unlisted'" in line for line in place.said)


def test_a_revoked_site_is_shut_out_at_once_and_a_renewed_certificate_lets_it_in(place):
    link = place.site("a")
    keys = place.pins.pop("a")
    until(lambda: place.carrier.present() == (), "its stream is closed")
    until(lambda: any("permission_denied" in line for line in link.said), "the site says why")
    place.pins["a"] = keys
    until(lambda: place.carrier.present() == ("a",), "it is back")


def test_a_renewed_server_certificate_is_taken_over_without_a_restart(place):
    def shown():
        return ssl.get_server_certificate(("localhost", place.port), timeout=PATIENCE)

    place.site("a")
    first = shown()
    assert first == shown()
    place.server_keys = place.authority.issue("localhost", "renewed", server=True)
    until(lambda: shown() != first, "the new one is shown")
    assert shown() == place.server_keys.certificate.read_text()
    assert place.ask({"a": b"x"}) == {"a": b"re:x"}  # whoever is here stays
    place.site("b")


def test_who_is_trusted_later_joins_without_a_restart(place, tmp_path):
    other = Authority(tmp_path / "other", "another authority")  # of two with one name TLS looks at the first
    keys = other.issue("late")
    keys.ca = place.authority.ca
    place.pins["late"] = keys.certificate
    link = place.join(keys)
    until(lambda: any("does not let this site's certificate in" in line for line in link.said), "it is kept out")
    place.trusted = [other.ca.read_bytes()]
    until(lambda: "late" in place.carrier.present(), "it is let in")
    place.trusted = []
    del place.pins["late"]
    until(lambda: "late" not in place.carrier.present(), "it is shut out")


def test_there_is_no_other_method_and_no_route_from_site_to_site(place):
    keys = place.enrol("a")
    place.site("b")
    channel, stream, sent = place.raw(keys)
    with channel:
        for path in ("/fedlsa.Site/Ask", "/grpc.health.v1.Health/Watch", "/fedlsa.Site/Join/b"):
            with pytest.raises(grpc.RpcError) as refused:
                next(channel.stream_stream(path)(iter([b"an order for b"])))
            assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
        sent.put(FRAME.pack(1) + b"an order for b")
        sent.put(None)
        with pytest.raises(grpc.RpcError):
            next(stream)
    assert place.ask({"b": b"x"}) == {"b": b"re:x"}
    assert place.carrier.counts["b"]["bytes_down"] == 1


def test_what_nobody_asked_for_is_dropped_and_whoever_keeps_sending_it_is_shut_out(place):
    keys = place.enrol("loud")
    place.site("good")
    channel, stream, sent = place.raw(keys)
    with channel:
        for number in range(grpc_carrier.MAX_UNASKED + 1):
            sent.put(FRAME.pack(number) + b"z" * 1000 if number % 2 else b"")
        with pytest.raises(grpc.RpcError) as ended:
            next(stream)
        sent.put(None)
    assert ended.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert place.carrier.counts["loud"]["dropped"] == grpc_carrier.MAX_UNASKED + 1
    assert "too much" in refusal(place, keys)[1]
    assert place.ask({"good": b"x"}) == {"good": b"re:x"}


def test_a_second_answer_to_the_same_order_is_dropped(place):
    keys = place.enrol("twice")
    channel, stream, sent = place.raw(keys)
    with channel:
        stream.initial_metadata()
        found = []
        asking = threading.Thread(target=lambda: found.extend(place.carrier.ask({"twice": b"x"}, PATIENCE)))
        asking.start()
        number = next(stream)[: FRAME.size]
        for text in (b"first", b"second"):
            sent.put(number + text)
        asking.join(PATIENCE)
        until(lambda: place.carrier.counts["twice"]["dropped"] == 1, "the second one is counted")
        sent.put(None)
    assert found == [("twice", b"first")]


def test_a_message_beyond_the_limit_ends_its_stream_and_compressed_ones_are_not_unpacked(place):
    keys = place.enrol("large")
    place.site("good")
    channel, stream, sent = place.raw(keys)
    sent.put(bytes(grpc_carrier.MAX_BYTES + 100))
    with channel, pytest.raises(grpc.RpcError) as ended:
        next(stream)
    sent.put(None)
    assert ended.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    credentials = grpc.ssl_channel_credentials(*(p.read_bytes() for p in (keys.ca, keys.key, keys.certificate)))
    before = place.carrier.counts["large"]["bytes_up"]
    with grpc.secure_channel(f"localhost:{place.port}", credentials, compression=grpc.Compression.Gzip) as channel:
        sent = queue.SimpleQueue()
        stream = channel.stream_stream("/fedlsa.Site/Join")(iter(sent.get, None), metadata=greeting())
        stream.initial_metadata()
        sent.put(bytes(8 * 2**20))
        until(lambda: place.carrier.counts["large"]["bytes_up"] > before, "it arrived")
        sent.put(None)
    assert place.carrier.counts["large"]["bytes_up"] - before < 100_000
    assert place.ask({"good": b"x"}) == {"good": b"re:x"}
    with pytest.raises(MessageError, match="at most"):
        place.ask({"good": bytes(grpc_carrier.MAX_BYTES + 1)})


def test_a_newer_stream_replaces_the_older_and_a_process_that_returns_raises_an_alarm(place):
    keys = place.enrol("a")
    first = place.join(keys, lambda order: b"first")
    until(lambda: place.carrier.present() == ("a",), "the first")
    second = place.join(keys, lambda order: b"second")
    until(lambda: place.alarms, "both keep returning")
    assert "grpc" not in place.alarms  # the loop, which must not wait for a disk
    until(lambda: any("two places" in line for line in place.said), "and says so")
    second.stop()
    second.thread.join(PATIENCE)  # it might be returning just now
    until(lambda: place.ask({"a": b"x"}, 1.0) == {"a": b"first"}, "the first is alone")
    count = place.carrier.counts["a"]["alarms"]
    first._call.cancel()
    until(lambda: place.ask({"a": b"x"}, 1.0) == {"a": b"first"}, "it is back")
    assert place.carrier.counts["a"]["alarms"] == count  # the other one is gone: a broken connection is no alarm


def test_a_site_that_restarts_or_whose_connection_breaks_raises_no_alarm(place):
    keys = place.enrol("a")
    for number in range(5):  # each a new process of the site; the one before it is dead
        link = place.join(keys, lambda order, number=number: b"%d" % number)
        until(lambda: place.ask({"a": b"x"}, 1.0) == {"a": b"%d" % number}, "it answers")  # noqa: B023
        if number < 4:
            link.stop()
    for _ in range(4):
        until(lambda: link.connected and link._call is not None, "it is connected")
        link._call.cancel()
        until(lambda: place.ask({"a": b"x"}, 1.0) == {"a": b"4"}, "it answers again")
    assert place.alarms == []


def test_a_site_stays_with_the_coordinator_that_it_knows(place):
    refused = []

    def accept(identity, known):
        if not known:
            refused.append(identity)
        return None if known else "this coordinator does not follow on the one that this site was with"

    link = place.join(place.enrol("a"), last=lambda: "first", accept=accept)
    until(lambda: refused, "the site refuses a coordinator that does not know the first")
    until(lambda: any("does not follow" in line for line in link.said), "and says why")
    place.known.add("first")
    until(lambda: place.ask({"a": b"x"}, 1.0), "and follows one that does")


@pytest.mark.long
def test_silent_connections_and_half_handshakes_keep_nobody_out(place):
    held = []
    with many_sockets(1200, ends=2) as count, contextlib.ExitStack() as closing:
        hello = ssl.MemoryBIO()
        half = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            half.do_handshake()
        first = hello.read()
        for number in range(count):
            held.append(closing.enter_context(socket.create_connection(("localhost", place.port), 20)))
            if number % 3 == 1:
                held[-1].sendall(first)  # waits for the server's answer and never reads it
            elif number % 3 == 2:
                held[-1].sendall(first[:60])
        place.site("new")
        assert place.ask({"new": b"x"}) == {"new": b"re:x"}
        until(lambda: all(closed(s) for s in held), "all of them are closed by the server")


def closed(s):
    """Whether the other side has closed; what it sent before is read away."""
    s.setblocking(False)
    try:
        while s.recv(65536):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_certificates_out_of_their_dates_are_refused_and_the_site_speaks_of_clocks(place):
    for name, begins, ends in (("expired", -3, -1), ("early", 1, 3)):
        keys = place.authority.issue(name, begins=begins, ends=ends)
        place.pins[name] = keys.certificate
        link = place.join(keys)
        until(lambda: any("clock" in line for line in link.said), "it says so")  # noqa: B023
        assert name not in place.carrier.present()
    for begins, ends in ((-3, -1), (1, 3)):  # the coordinator's own
        place.server_keys = place.authority.issue("localhost", "server", server=True, begins=begins, ends=ends)
        place.serve()
        link = place.join(place.enrol("a"))
        until(lambda: any("certificate is refused" in t and "clock" in t for t in link.said), "it says so")  # noqa: B023
        assert place.carrier.present() == ()


def test_a_proxy_of_the_environment_is_not_used(place, monkeypatch):
    seen = []
    listening = socket.create_server(("127.0.0.1", 0))

    def proxy():
        while True:
            try:
                client, _ = listening.accept()
                client.settimeout(5)
                seen.append(client.recv(300))
                client.close()
            except OSError:
                return

    threading.Thread(target=proxy, daemon=True).start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "grpc_proxy"):
        monkeypatch.setenv(name, address)
    for name in ("NO_PROXY", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    place.site("a")
    assert place.ask({"a": b"x"}) == {"a": b"re:x"}
    assert seen == []
    place.join(place.enrol("b"), proxy=address)  # unless one is asked for
    until(lambda: seen, "the proxy is asked")
    assert seen[0].startswith(b"CONNECT localhost:")
    listening.close()


def test_an_answer_that_fails_does_not_end_a_site(place):
    def answer(order):
        if order == b"bad":
            raise OSError("no space left")
        return b"re:" + order

    link = place.site("a", answer)
    assert place.ask({"a": b"bad"}, 0.3) == {}
    assert place.ask({"a": b"x"}) == {"a": b"re:x"}
    assert any("no space left" in line for line in link.said)


def test_a_port_that_is_taken_is_refused_with_a_sentence(place):
    with pytest.raises(NetworkError, match=r"cannot listen at localhost:\d+"):
        GrpcCarrier(f"localhost:{place.port}", place.identity_files, place.pinned)


def test_strangers_cannot_fill_the_log(place):
    keys = place.authority.issue("unlisted")
    for _ in range(40):
        refusal(place, keys)
    assert len([line for line in place.said if "unlisted" in line]) == 20
