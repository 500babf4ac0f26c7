"""What the longer matrix of faults shares with the tests above it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
