"""Prometheus' text format, read strictly."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def read(text: bytes) -> dict[str, float]:
    """Series to value; fails where the text is not valid."""
    values: dict[str, float] = {}
    names = []
    for family in text_string_to_metric_families(text.decode()):
        names.append(family.name)
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            series = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert series not in values, f"{series} occurs twice"
            values[series] = sample.value
    assert len(names) == len(set(names)), "a metric is declared twice"
    return values
