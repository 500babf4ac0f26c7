"""Cells on a real Ray cluster of two nodes, one of which is killed in the middle."""

import importlib.util
import sys
import time

import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, ClusterError, MissingExtraError, SingularSystemError
from fedlsa.experiments import Cell, LocalExecutor, Store, run
from fedlsa.experiments.executor import Cluster

HERE = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HERE, reason="ray is not installed: pip install 'fedlsa[ray]'")


def cell(kind, i, states=12):
    """Small cells of several kinds; a simulation takes long enough for its node to die under it."""
    settings = {
        "problem": {"agents": 10, "states": states, "seed": i},
        "method": "scafflsa",
        "step_size": 0.1,
        "local_steps": 100,
        "rounds": 2000 if kind == "simulate" else 50,
        "record": 20,
    }
    return Cell(kind, {**settings, "seeds": 20} if kind == "simulate" else settings)


CELLS = [cell(kind, i) for i in range(6) for kind in ("simulate", "exact")]


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def alive(expected):
    """The nodes that live, once there are as many as expected or half a minute has passed: news travels slowly."""
    import ray

    until = time.monotonic() + 30
    while True:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        if len(nodes) == expected or time.monotonic() > until:
            return nodes
        time.sleep(0.2)


@pytest.fixture(scope="module")
def two_nodes():
    if " " in sys.executable:
        pytest.skip("Ray starts workers through a shell, in which it does not quote the path of Python")
    import ray
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = nodes.add_node(num_cpus=1)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    yield nodes, second
    ray.shutdown()
    nodes.shutdown()


@needs_ray
@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:9"])
def test_an_address_where_no_cluster_answers_is_one_line(tmp_path, address):
    import ray

    assert not ray.is_initialized()  # stands before the tests that hold a cluster
    with pytest.raises(ClusterError, match=f"no Ray cluster can be joined at '{address}'"):
        run({"all": CELLS}, Store(tmp_path), Cluster(address))


@needs_ray
def test_a_node_that_dies_in_the_middle_costs_nothing_but_time(tmp_path, two_nodes):
    nodes, second = two_nodes
    assert len(alive(2)) == 2
    killed = []

    def watch(progress):
        if progress.computed >= 3 and not killed:  # both nodes have work now
            killed.append(len(progress.waiting))
            nodes.remove_node(second, allow_graceful=False)

    progress = run({"all": CELLS}, Store(tmp_path / "ray"), Cluster("auto"), watch)
    assert killed
    assert killed[0] >= 4, "too few cells were left when the node died"
    assert len(alive(1)) == 1
    assert progress.computed == len(CELLS)
    run({"all": CELLS}, Store(tmp_path / "local"), LocalExecutor())
    assert content(tmp_path / "ray") == content(tmp_path / "local")


@needs_ray
def test_an_error_in_a_cell_is_the_error_that_it_would_be_here(tmp_path, two_nodes):
    with pytest.raises(SingularSystemError, match="must be invertible"):
        run({"all": [cell("exact", 0, states=5)]}, Store(tmp_path), Cluster("auto"))


@needs_ray
def test_a_sweep_on_a_cluster_has_the_bits_of_one_at_home(two_nodes):
    two = {name: fl.problems.garnet(agents=3, states=6, features=2, seed=i) for i, name in enumerate(("one", "two"))}
    asked = {"step_size": [0.05, 0.1], "local_steps": 5, "rounds": 4, "seeds": 2}
    told = []
    found = fl.sweep(two, fl.SCAFFLSA, **asked, ray="auto", progress=lambda *both: told.append(both))
    assert found.identical(fl.sweep(two, fl.SCAFFLSA, **asked))
    assert told[0] == (0, 4 * 3 * 5 * 4 * 2)  # updates: of runs, agents, local steps, rounds and seeds
    assert told[-1] == (told[0][1], told[0][1])
    with pytest.raises(ArgumentError, match="average_after must be at most rounds"):
        fl.sweep(two, fl.SCAFFLSA, **asked, average_after=9, ray="auto")

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fl.sweep(two, fl.SCAFFLSA, **asked, ray="auto", progress=stop)
    assert fl.sweep(two, fl.SCAFFLSA, **asked, ray="auto").identical(found)  # the cluster is there as before


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedlsa\[ray\]'"):
        Cluster("local")
