"""fedlsa: federated linear stochastic approximation, simulated fast and checked against exact theory."""

from typing import TYPE_CHECKING

import numpy as _numpy  # noqa: F401  not lazily: threads that begin to load it at the same moment find half of it

from .lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from . import control as control
    from . import errors as errors
    from . import experiments as experiments
    from . import figures as figures
    from . import problems as problems
    from . import results as results
    from . import sklearn as sklearn
    from . import theory as theory
    from .algorithms import SAGA as SAGA
    from .algorithms import SCAFFLSA as SCAFFLSA
    from .algorithms import SVRG as SVRG
    from .algorithms import Adam as Adam
    from .algorithms import Algorithm as Algorithm
    from .algorithms import Anderson as Anderson
    from .algorithms import Buffered as Buffered
    from .algorithms import Compressed as Compressed
    from .algorithms import Delayed as Delayed
    from .algorithms import Dropouts as Dropouts
    from .algorithms import Exchange as Exchange
    from .algorithms import ExchangeMethod as ExchangeMethod
    from .algorithms import FedLin as FedLin
    from .algorithms import FedLSA as FedLSA
    from .algorithms import FedNova as FedNova
    from .algorithms import FedProx as FedProx
    from .algorithms import GradientTracking as GradientTracking
    from .algorithms import Momentum as Momentum
    from .algorithms import Noise as Noise
    from .algorithms import Personal as Personal
    from .algorithms import PowerLength as PowerLength
    from .algorithms import PowerStep as PowerStep
    from .algorithms import RandK as RandK
    from .algorithms import Rounding as Rounding
    from .algorithms import Scaffnew as Scaffnew
    from .algorithms import Scaffold as Scaffold
    from .algorithms import Sign as Sign
    from .algorithms import TopK as TopK
    from .algorithms import UnequalWork as UnequalWork
    from .conformance import check_method as check_method
    from .conformance import check_problem as check_problem
    from .conformance import check_sampling as check_sampling
    from .control import sarsa as sarsa
    from .engine import bootstrap as bootstrap
    from .engine import resume as resume
    from .engine import simulate as simulate
    from .engine import simulate_grid as simulate_grid
    from .engine import sweep as sweep
    from .fitting import Fit as Fit
    from .fitting import Regression as Regression
    from .fitting import Value as Value
    from .fitting import evaluate as evaluate
    from .fitting import fit as fit
    from .fitting import site_problem as site_problem
    from .installation import __version__ as __version__
    from .problems import Problem as Problem
    from .sampling import IID as IID
    from .sampling import Markov as Markov
    from .sampling import Replay as Replay
    from .sampling import Sampling as Sampling
    from .theory import plan as plan
    from .theory import trade_off as trade_off

_load_lazily(__name__, needs={"sklearn": "sklearn"})
