"""`fedlsa network demo`, with commands as a user gives them."""

from fedlsa.network import demo as trial


def test_the_demonstration_ends_beside_the_simulation(tmp_path):
    lines = []
    assert trial.demo(tmp_path / "demo", say=lines.append) <= 1e-12
    assert any(text.startswith("site-3 is killed") for text in lines)
    assert lines[-2].startswith("largest difference to the pooled solution")
