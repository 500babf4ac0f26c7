"""The check of pictures sees what it is for."""

import pytest
from print_quality import faults

from fedlsa.figures import theme


def picture(size=9.0, text="FedLSA", y=0.2, width=7.0):
    figure = theme.matplotlib().figure.Figure(figsize=(width, 4), dpi=240)
    axes = figure.subplots()
    axes.plot([0, 1], [0.5, 0.5])
    axes.set_ylim(0, 1)
    axes.text(0.5, y, text, fontsize=size, va="center")
    return figure


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"size": 6.0}, "6.0 points: 'FedLSA'"),
        ({"text": "bound (th:2nd_moment)"}, "a key for a name: 'bound (th:2nd_moment)'"),
        ({"y": 0.5}, "struck: 'FedLSA'"),
        ({"y": 1.3}, "cut off: 'FedLSA'"),
        ({"width": 5.0}, "1200 pixels wide"),
        ({"width": 10.0}, "6.3 points: 'FedLSA'"),
    ],
)
def test_a_fault_is_named_and_a_good_picture_has_none(change, fault):
    assert faults(picture()) == []
    assert fault in faults(picture(**change))
