"""Today's numbers are those that were written down: own_numbers.py has the cases, and says how they are compared.

python -m pytest -p no:cacheprovider tests/golden/test_own_numbers.py
"""

import copy

import own_numbers
import pytest
from tiers import mostly_long

STORED = own_numbers.stored()


def test_two_thousand_numbers_of_all_groups_are_held():
    assert list(STORED) == list(own_numbers.GROUPS)
    assert sum(own_numbers.count(v) for entries in STORED.values() for v in entries.values()) >= 2_000


@pytest.mark.parametrize("group", mostly_long(own_numbers.GROUPS, {*own_numbers.GROUPS} - {"plans"}))
def test_numbers_are_those_that_were_written_down(group, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the files that are asked for in vain are not
    changed = own_numbers.changes(STORED[group], own_numbers.compute(group))
    table = "\n".join(f"{group} / {name}: {change}" for name, change in changed.items())
    assert not changed, f"{len(changed)} changed; {own_numbers.RULE}\n{table}"


@pytest.mark.parametrize("value", [0.3, [1e-9, 0.3], [[5.0, -1.0], [2e-7, 1e-7]], "text", 3, True, None, float("inf")])
def test_a_change_is_noticed(value):
    def changed(old, new):
        return set(own_numbers.changes({"kept": 1.0, "value": old}, {"kept": 1.0, "value": new}))

    assert changed(value, copy.deepcopy(value)) == set()
    assert changed(value, [value]) == changed([value], value) == {"value"}
    if isinstance(value, list):
        row = value[-1] if isinstance(value[-1], list) else value
        row[0] *= 1 + 1e-12
        kept = copy.deepcopy(value)
        row[0] *= 1 + 1e-10
        assert changed(kept, value) == changed(value, kept) == {"value"}
        assert changed([*kept, kept[0]], kept) == {"value"}
        row[0] = float("nan")
        assert changed(kept, value) == changed(value, kept) == {"value"}
    else:
        other = {"text": "Text", 3: 3.0, True: 1, None: 0.0, 0.3: 0.3 * (1 + 1e-10)}.get(value, 1e300)
        assert changed(value, other) == changed(other, value) == {"value"}


def test_one_stored_number_off_by_a_little_fails():
    changed = copy.deepcopy(STORED["limits"])
    name = next(n for n, v in changed.items() if isinstance(v, float) and n.startswith("garnet"))
    changed[name] *= 1 + 1e-10
    assert own_numbers.changes(STORED["limits"], changed).keys() == {name}
    del changed[name]
    assert own_numbers.changes(STORED["limits"], changed) == {name: "gone"}
