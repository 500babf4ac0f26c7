"""The constants by which exact theory chooses its ways, each with its reason. None changes a result beyond its error.

Measurements are of one x86 machine with two cores, moments in dimension 8. They say where a constant comes from; it
need not be chosen again for another machine.
"""

# --- memory and threads ---------------------------------------------------------------------------------------------

OUTCOMES_AT_ONCE = 2**20  # numbers of outcomes that are held at a time: 8 MB
CACHED_OUTCOMES = 2**16  # the same where they are used at once: 0.5 MB; larger temporaries take fresh pages each time
MAX_MOMENTS_BYTES = 4 * 2**30  # of second moments: compositions need several times as much
SHOWN_COVARIANCES = 2**27  # numbers of covariances in an exact curve: 1 GB, as much again as they take anyway
JOINT_COORDINATES = 4096  # of the law of theta and all control variates: 128 MB, held a few times
VANISHED_VARIANCE = 1e-14  # of the largest: along such an axis a normal vector is taken for its mean
PATH_STEP, PATH_NODES = 1 / 6, 121  # of the path of an inversion, in standard deviations of its middle
BENDS = (1.0, 0.3, 0.1, 0.03, 0.0)  # of the path, as shares of steepest descent; the first that is accurate is taken
QUANTILE_STEPS, LEVEL_ROUNDING = 80, 1e-12  # of Newton's method for a quantile, at most, and where it ends
LEVEL_ERROR = 1e-6  # of a quantile's level, at most
THREADS_FROM = 2**16  # numbers in a pass: a thread starts in 40 us (measured); so many numbers take 300 us
RECENT_ROUNDS = 8  # of a method without control variates that are kept for each problem: small matrices
TABLES_AT_ONCE = 12  # of local steps that are composed: 0.13 ms for 12 tables of FedLSA, 1.7 ms for 100 at a time

# --- rounding -------------------------------------------------------------------------------------------------------

MAX_ROUNDING_ERROR = 1e-3  # relative error that rounding I - eta A may leave: moments with more are refused
MOMENT_ROUNDING = 1e-15  # of the largest second moments that enter: less than nothing by that much is rounding
VARIANCE_ROUNDING = 1e-9  # share of the squared bias by which rounding may make a variance negative
TRIAL_MODES, TRIAL_DOUBLINGS = 48, 12  # first modes, and powers of functions, by which nodes are chosen and checked
JOINT_MODES = 120  # of all agents: up to which a round on all of their covariances takes no longer than on nodes
MODES_RESIDUAL = 1e-12  # of a round in eigenbases, relative
MAX_KERNEL_RANK, KERNEL_ROUNDING = 400, 1e-17  # of a factored kernel: its columns, and what is left of its diagonal
DENSE_MODES = 1600  # of all agents: up to which their joint covariance is written out, 40 MB
INERTIA_SHARE = 1e-6  # of a factor, below which columns are left out where only a sign matters
MAX_NODES = 60  # nodes of the second mode, at most
NODE_ROUNDING = 1e-13  # share of a trial function that a further node must add: below it is noise
NODE_ERROR = 1e-11  # of trial functions that nodes were not chosen by
MAX_EIGENVECTOR_CONDITION = 1e4  # of a basis that is tried: worse ones lose more digits than the residual allows
EIGENBASIS_RESIDUAL = 1e-14  # of A in its eigenbasis, relative to its size: 50 roundings, as of plain products
LOG1P_BELOW = 0.5  # |eta lambda| up to which 1 - eta lambda is better left unrounded
SOLUTION_ERROR = 1e-9  # relative, up to which the solution of a linear system is returned
STEP_SIZE_DIGITS = 1e-12  # relative tolerance of a step size: rounding hides what is nearer to the edge
SCOUTED_STEP = 0.01  # relative tolerance of the stability limit of a similar problem, from which the search begins
EDGE = 1e-9  # of a radius to one: nearer it is one
STEP_SIZE_RANGE = 1e9  # around the inverse of the largest ||A_c||: step sizes farther away are not looked at

# --- random lengths of rounds ---------------------------------------------------------------------------------------

LENGTHS_TAIL = 1e-18  # share of a sum over lengths that is left out: below rounding
LENGTHS_TERMS = 16  # of such a sum, at least, for one that matters
MAX_DOUBLINGS = 64  # of such a sum: 2**64 steps are longer than digits reach

# --- many rounds ----------------------------------------------------------------------------------------------------

KRYLOV_FROM = 100  # rounds that take no longer one by one: spaces of the limit and the way there have 80 dimensions
KRYLOV_STAGE = 8  # dimensions that a space grows by before it is asked whether it is enough
KRYLOV_ROUNDS = 256  # that a space is followed at a time; more than it has dimensions
NORM_PROBES = 8  # random vectors by which the norm of a linear function is estimated
MEANS_ACCURACY = 1e-13  # the same of means alone, relative to themselves
CURVE_ACCURACY = 1e-12  # of what is shown, relative to the limit and to what is left of the way there
VANISHED = 1e-30  # of that: no transient brings what is left of a stable way back from there
VANISHED_MEAN = 1e-18  # share of a mean in its Krylov space that is left out: below rounding in 1e5 rounds
DOUBLED_ROUNDS = 20  # times that the rounds are doubled in which it is looked for: up to 1e6 of them
LIMIT_ERROR = 1e-10  # of a limit from which distances are measured
MAX_GAIN = 1e3  # times A_bar: beyond it steps of Scaffnew, A u - x, are lost in y = x - gain u
MAX_LIMIT_GAIN = 1e6  # times A_bar, for a limit, where nothing adds up over rounds
GAIN_ROUNDINGS = 20  # of a limit's error, times that ratio; 12 were seen on Garnet problems from 1e2 to 1e6
NEAR_LIMIT = 1e-2  # share of its limit from which on a variance is measured from there
MAX_ROUND_WORK = 1e11  # numbers that single rounds may go through: minutes
MAX_TABLE_WORK = 1e8  # the same of the local steps of a round of agents that remember rows, one by one: seconds
ROUND_OVERHEAD = 20_000  # numbers of a state that take no longer than calling a round
MAX_ITERATIONS = 10**7  # of Scaffnew, each of which is computed: minutes

# --- trajectories ---------------------------------------------------------------------------------------------------

MAX_PRODUCT_MOMENTS = 2**18  # on the product of chains, states times size of y squared: 2 MB that a round goes over
MAX_CHAIN_MAP = 2**25  # numbers of the map of one agent's moments over a round: 256 MB
SETTLED = 1e-13  # of the way to its limit that a recursion may still have before it, relative
SETTLING = 1e-9  # change in a round, relative, from which on it is watched

# --- Krylov spaces and limits ---------------------------------------------------------------------------------------

MAX_KRYLOV_DIM = 144  # of a space: more orthogonalisation costs more than a restart
MIN_KRYLOV_DIM = 40  # that there must be room for: restarts of smaller spaces would not converge
KRYLOV_NUMBERS = 2**28  # in a basis: 2 GB
KRYLOV_RESTARTS = 20
SKETCH_SIZE = 4096  # sums that stand for a long vector in inner products; many times the dimensions of a space
CANCELLATION = 1e-3  # share of an image that is left when rounding calls for another pass
NEXT_RATE, RATE_DIGITS = 1.001, 1e-9  # steps of a search for the radius, and its relative tolerance
RATE_STEP = 1e-6  # above the largest factor of a pair of modes, relative, where the search ends
RADIUS_RESIDUAL = 1e-10  # of an eigenvalue, relative, from which on it is taken for the radius
SIDE_RESIDUAL = 1e-3  # the same of its distance to a number, where only the side matters
CLEARLY_UNSTABLE = 1.01  # radius from which on it decides by itself
LIMIT_GOAL, STABILITY_GOAL = 1e-12, 1e-6  # error that routes to a limit aim at; the same where only its sign matters
SMALL_STEP, SMALL_STEPS = 0.03, 6  # of what eta H ||A|| is at first, and how often it is halved, to extrapolate to 0
MAX_LIMIT_ERROR = 1e-6  # up to which a limit is returned, with that error, where no route is accurate
WRITTEN_OUT = 2000  # numbers of a state up to which a round is written out as a matrix: 32 MB
KEPT = 1e-12  # of a round on the joint law: singular values of what it changes, below which it keeps a direction
NOISE_DEFINITE = 1e-6  # least eigenvalue of a round's noise, relative, that makes it as good a source as the identity
INERTIA_ROUNDING = 1e-12  # of the largest eigenvalue, beyond which the sign of another one is clear
GMRES_PASSES = 120  # over all agents, at most, before the residual is computed afresh: 10 to 30 are common
GMRES_REDUCTION, GMRES_REFINEMENTS = 1e-10, 4  # of the residual each time, and how often

# --- plans ----------------------------------------------------------------------------------------------------------

JOINT_NUMBERS = 1700  # of an exchange: 100 agents of 8 numbers, each with a memory beside, and the server's
MAX_EXACT_DIM = {"fedlsa": 32, "scafflsa": 20, "scaffnew": 20}  # dimensions in which exact moments are quick enough
PLANNED_NUMBERS = 400  # of the joint law of an exchange that is planned: a round takes some ten milliseconds
DOUBLED_MEANS = 6  # times that rounds are doubled of which means are had at once
PASSES, PASS_ERROR = 100, 1e-6  # to a limit in a search: how many at most, and by how much it may be off
DOUBLED_BUDGETS = 4  # times that observations of such a plan may be doubled where no cap is given
GROWN = 1e3  # times its start: an error beyond which a curve is given up in a search
DEFAULT_BUDGET = 4  # times the fewest observations with which a method gets there: what a plan may use by default
BUDGETS = (1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # times the fewest observations: the points of a trade-off
SPARSE_BUDGETS = (1.5, 3.0, 6.0)  # the same where a plan takes long: for Scaffnew, and for many different agents
PLAN_ATTEMPTS = 6  # plans that are held to the exact curve before none is found
SEARCHED_GROUPS = 10  # of different agents: with more, the search is over a similar problem with as many
MAX_SAMPLES = 2**31  # of a plan
TYPICAL_ROUNDS = 8  # where the search for their number begins, and up to which each is tried
MAX_HALVINGS = 40  # of a step size, whose limit of single steps is then proportional to it
SCAN_STRIDE = 1 / 8  # of a scan over step sizes, in octaves
SCAN_ZOOMS, SCANNED_VALLEYS = 5, 3  # how often it is made 8 times finer, and in how many of its valleys
SCANNED_DIM = 32  # up to which powers of FedLSA's mean map are taken at all step sizes of a scan
EXACT_ERRORS = 32  # for given rounds, at most, before the best of them is taken
DOUBT, DOUBT_OF_ROUNDS = 0.1, 2.0  # of logarithms of variances that other rounds had; the second per octave of T
LEAST_SHARE = 0.1  # of variances that are guessed from single steps
ERROR_TOO_LARGE = 2.0  # times the target: by how much an error is larger says nothing of other step sizes
SHRUNK_TOO_LARGE = 64.0  # the same of errors below that of the start in a quick search: four times fewer are computed
QUICK_FROM = 10_000  # observations of a plan from which a search over random lengths is quick first, then careful
STEEPEST_REST = 1.0  # the power of the step size, relative to single steps, with which variances change at most
STEEPEST_LENGTHS = 2.5  # the same of variances that random lengths make
MOST_CURVED = 2.0  # curvature of the logarithm of variances, relative to single steps, per squared octave
STEEPEST_ERROR = 6.0  # the same of whole errors, where no part of them is cheap
LONG_RATIO, SHORT_RATIO, SHORT_LENGTHS = 2.0, 1.2, 32  # of round lengths that are tried, and which of them are short
FEWER_SAMPLES = 8  # times as many as a plan has are those with which single steps get there, at most
FOLLOWED_ROUNDS, FOLLOWED_RATIO = 200, 1.05  # after a plan's end: so many one by one, then some so far apart
FOLLOWED_UNTIL = 8  # times as many rounds as planned, to which the curve is followed
MAX_FOLLOWING_WORK = 5e8  # multiplications that following it may take: half a second
