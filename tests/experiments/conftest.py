"""What the tests of experiments share: their private catalogue is importable, also by the scripts that they start."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
