"""What came out: labelled datasets over (seed, rounds), saved, loaded, run again, combined and summed up.

>>> p = fl.problems.garnet(agents=4, seed=1)
>>> r = fl.simulate(p, fl.FedLSA(0.1, 10), rounds=5, seeds=2, engine="reference")
>>> again = fl.simulate(**fl.results.arguments(r))
>>> r.identical(again)
True
"""

from typing import TYPE_CHECKING

from ..lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from .dataset import STATE as STATE
    from .dataset import method_label as method_label
    from .dataset import recorded_rounds as recorded_rounds
    from .recipe import problem_text as problem_text
    from .result_files import load as load
    from .result_files import save as save
    from .result_files import save_curves as save_curves
    from .summary_tables import richardson_romberg as richardson_romberg
    from .summary_tables import summary as summary
    from .summary_tables import table as table
    from .sweeps import arguments as arguments
    from .sweeps import runs as runs

_load_lazily(__name__)
