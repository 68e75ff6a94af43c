"""The pages whose examples run other libraries for a minute and more belong to `make test-slow`."""

import pytest

SLOW = {"numpyro.md", "pymc.md"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in SLOW:
            item.add_marker(pytest.mark.slow)
