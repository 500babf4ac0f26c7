"""The longer matrix of faults is collected where FEDLSA_TEST_NETWORK is set (make test-network)."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

if not os.environ.get("FEDLSA_TEST_NETWORK"):
    collect_ignore_glob = ["test_*.py"]
