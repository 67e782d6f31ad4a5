"""The paths of the official suite and the official example, and replacements for missing dependencies of the suite."""

import sys
import types
from pathlib import Path

import pytest

SOURCE = Path(sys.prefix) / "source"
SUITE = SOURCE / "tests"


def leave_out_stores() -> None:
    """The suite imports plugins that start a Redis and a PostgreSQL; no check here uses them."""
    starter = lambda **_: pytest.fixture(scope="session")(lambda: None)  # noqa: E731
    for name, members in {
        "pytest_redis": {},
        "pytest_redis.factories": {"redis_proc": starter, "redis_noproc": starter},
        "pytest_redis.executor": {"NoopRedis": object, "RedisExecutor": object},
        "pytest_postgresql": {},
        "pytest_postgresql.factories": {"postgresql_proc": starter, "postgresql_noproc": starter},
        "pytest_postgresql.executor": {"PostgreSQLExecutor": object},
        "pytest_postgresql.executor_noop": {"NoopExecutor": object},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)


def import_suite() -> None:
    """Makes `e2e` importable."""
    leave_out_stores()
    sys.path.insert(0, str(SUITE))
