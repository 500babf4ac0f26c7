"""States on disk come back as they were, or not at all."""

import os
import stat

import msgspec
import numpy as np
import pytest

from fedlsa.errors import MessageError, ResultFileError
from fedlsa.network.disk import load_state, save_state
from fedlsa.network.protocol.client import ClientState
from fedlsa.network.protocol.records import VERSION, decode, encode
from fedlsa.network.protocol.run_settings import RunSettings
from fedlsa.network.protocol.server import ServerState, open_round


@pytest.fixture
def server():
    settings = RunSettings(name="e", step_size=0.1, local_steps=3, rounds=9, sites=("north", "süd"), clip=1e-3)
    return open_round(ServerState.start(settings, 3), ["north"])[0]


def same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype
        np.testing.assert_array_equal(one[name], other[name])


def test_a_server_state_with_an_open_round_survives_the_disk(server):
    back = decode(encode(server), ServerState)
    assert encode(back) == encode(server)
    assert back.settings == server.settings
    assert back.pending.round == 1
    assert type(back.opened) is int


def test_a_client_state_survives_the_disk():
    v = np.arange(3.0)
    share = np.arange(24, dtype=np.int16).reshape(3, 8)
    about = ("expérience", 1, bytes(range(32)), 4, 6, 7, "ab", ("a",), 3.5, 2.5)
    state = ClientState(*about, v, v + 1, v + 2, v + 3, v + 4, share)
    back = decode(encode(state), ClientState)
    assert encode(back) == encode(state)
    assert [getattr(back, name) for name in back.__struct_fields__[:10]] == list(about)
    np.testing.assert_array_equal(back.xi, v)


def test_a_file_that_is_not_there_is_none_and_one_that_is_replaced_leaves_nothing_behind(tmp_path):
    path = tmp_path / "state.npz"
    assert load_state(path) is None
    for i in range(3):
        save_state(path, {"x": np.full(4, float(i))})
    assert load_state(path)["x"][0] == 2
    assert os.listdir(tmp_path) == ["state.npz"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_cut_short_or_changed_in_any_byte_of_its_data_is_an_error_or_the_same_state(tmp_path):
    path, x = tmp_path / "state.npz", np.arange(5.0)
    save_state(path, {"x": x})
    whole = path.read_bytes()
    damaged = 0
    for i in range(len(whole)):
        for bad in (whole[:i], whole[:i] + bytes([whole[i] ^ 0x41]) + whole[i + 1 :]):
            path.write_bytes(bad)
            try:
                back = load_state(path)
            except ResultFileError as error:
                damaged += "is damaged" in str(error)
            else:
                same(back, {"x": x})  # some bytes of a zip file, such as dates, mean nothing
    assert damaged > 1.5 * len(whole)


def test_pickles_are_neither_written_nor_read(tmp_path):
    with pytest.raises(ResultFileError, match="plain"):
        save_state(tmp_path / "a.npz", {"x": np.array([{}], object)})
    np.savez(tmp_path / "b.npz", x=np.array([{}], object))
    with pytest.raises(ResultFileError, match="damaged"):
        load_state(tmp_path / "b.npz")


def test_a_folder_that_refuses_is_a_clear_error(tmp_path):
    with pytest.raises(ResultFileError, match="cannot write state"):
        save_state(tmp_path / "nowhere" / "state.npz", {"x": np.zeros(1)})
    with pytest.raises(ResultFileError, match="damaged"):
        load_state(tmp_path)


def test_states_with_a_part_missing_or_changed_are_refused(server):
    for state in (server, ClientState.fresh("e", 0, 2)):
        content = msgspec.msgpack.decode(encode(state)[1:])
        for name in content.keys() - {"pending"}:
            for changed in ({k: v for k, v in content.items() if k != name}, content | {name: [[]]}):
                with pytest.raises(MessageError):
                    decode(bytes([VERSION]) + msgspec.msgpack.encode(changed), type(state))
