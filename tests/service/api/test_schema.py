"""Requests that schemathesis makes of the OpenAPI description: the service keeps to what it says.

`test_hostile.py` sends what no description allows. Here a library that knows nothing of the service
reads what is described, and holds answers against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.service.api.stack import make_settings, serving, teach, training

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]

ENDLESS = ["events"]


@pytest.fixture(scope="module")
def described(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The description of a service that has learned."""
    made = make_settings(redis_url, tmp_path_factory.mktemp("schema"), max_models=5)
    with training(made), serving(made) as client:
        teach(client)
        found = schemathesis.openapi.from_url(str(client.base_url.join("/openapi.json")))
        yield found.exclude(operation_id=ENDLESS)


def test_answers_are_as_they_are_described(described: Any) -> None:
    broken: dict[str, str] = {}
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) > 50
    for operation in operations:
        try:
            _asked_at_random(operation)
        except (Exception, BaseExceptionGroup) as error:
            broken[operation.label] = str(error)
    assert not broken


def _asked_at_random(operation: Any) -> None:
    """Some requests of one operation; the error of the smallest that is answered otherwise."""

    @settings(
        max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy())
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    ask()
