"""How it looks: figures take results and draw them with matplotlib; they never simulate.

A drawing function returns a matplotlib `Figure`, with heading, legend and notes, for `save`:

>>> curve = fl.theory.exact(fl.problems.garnet(agents=4, seed=1), fl.FedLSA(0.1, 10), rounds=20)
>>> figure = fl.figures.exact_curves([curve])
>>> type(figure).__name__
'Figure'

With `ax=`, it draws into axes of your own and returns them as you gave them: one `Axes`, or a sequence where there are
several panels. What they hold stays, and so does all else in their figure. Text and lines have the sizes of
matplotlib's settings, or of `style`. The heading and the notes are for your caption: `ax.get_label()`.
`legend=False` leaves the legend to you.

>>> import matplotlib.pyplot as plt
>>> with fl.figures.style("paper"):
...     figure, (left, right) = plt.subplots(1, 2, layout="constrained")
...     ax = fl.figures.exact_curves(curve, ax=left, title="Exact error", legend=False)
...     lines = right.plot([0, 20], [1, 2])
>>> ax is left, left.get_title()
(True, 'Exact error')
>>> plt.close(figure)
"""

from typing import TYPE_CHECKING

from ..lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from .agent_plane import agent_paths as agent_paths
    from .agent_plane import predicted_bias as predicted_bias
    from .cost_curves import bound_and_curve as bound_and_curve
    from .cost_curves import error_curves as error_curves
    from .cost_curves import exact_curves as exact_curves
    from .cost_curves import trade_off as trade_off
    from .fits import coefficients as coefficients
    from .fits import forest as forest
    from .matplotlib_figures import save as save
    from .theme import style as style

_load_lazily(__name__)
