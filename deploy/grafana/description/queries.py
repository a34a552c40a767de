"""Expressions of Prometheus for what the service tells.

Every API process repeats what the trainer says, so one about the trainer takes the maximum over the
processes, and one about requests the sum. All are about the job that is chosen above the panels,
and about the model, but for what a process tells of all models together.
"""

from __future__ import annotations

OWN = "()"
"""The choice of the service's own model: it is a pattern of no text, and no name of a model."""

CHOSEN = r'job="$job", model=~"$model", model=~"(\\Q$model\\E)?"'
"""What is of the chosen job and model.

The service's own has no label `model`, so a choice is a pattern. The second one takes a name as it
is written: pump.7 is not pump-7.
"""

OF_ALL = 'job="$job", model=""'
"""What an API process tells once, of all of its models together."""


def once(expression: str) -> str:
    """What every process says alike, once."""
    return f"max without (instance, job) ({expression})"


def gauge(name: str) -> str:
    """A number of the trainer's."""
    return once(f"{name}{{{CHOSEN}}}")


def rate(name: str, window: str = "1m") -> str:
    """A counter of the trainer's, per second."""
    return once(f"rate({name}{{{CHOSEN}}}[{window}])")


def quantile(share: float, name: str, by: str = "le", window: str = "5m", of: str = CHOSEN) -> str:
    """A quantile of a histogram, of all processes together."""
    return f"histogram_quantile({share}, sum by ({by}) (rate({name}_bucket{{{of}}}[{window}])))"


def by_route(share: float) -> str:
    """A quantile of the time to answer."""
    return quantile(share, "gmr_http_request_duration_seconds", "le, route", of=OF_ALL)


def of_own(expression: str, label: str, value: str) -> str:
    """The same with a label more where there is no label `model`."""
    return f'label_replace({expression}, "{label}", "{value}", "model", "")'
