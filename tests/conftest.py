"""What all tests share: property tests that draw the same examples every time, and the examples as modules."""

import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: on busy cores, threads of BLAS wait for one another

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

settings.register_profile("fedlsa", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("fedlsa")


@pytest.fixture(scope="session")
def browser():
    """Chromium, driven by Playwright; where it is missing, tests that need it are skipped, but fail in CI."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        missing = "needs Chromium, which is not installed (on Debian: apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()
