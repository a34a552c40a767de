"""The names under which Prometheus knows the service's metrics."""

from __future__ import annotations

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from service.api.metrics import ApiMetrics
from service.trainer.metrics import TrainerMetrics

SUFFIXES = {
    "counter": ("_total",),
    "histogram": ("_bucket", "_sum", "_count"),
    "gauge": ("",),
}


def families() -> dict[str, Metric]:
    """Every metric of our own, by the name that documentation uses."""
    trainer, api = TrainerMetrics(), ApiMetrics()
    trainer.checkpoint_timestamp.set(1)  # its age is told once there is a checkpoint
    api.redis_answered(
        backlog=0,
        heartbeat_age=0,
        trainer_works=True,
        buckets={"default-b000": True},
        dead_letters=(0, 0),
        models={"loaded": 1},
        ids_age=0.0,
    )
    api.counted(0, 0, {})
    text = api.text(trainer.text()).decode()
    return {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(text)
        if family.name.startswith("gmr_")
    }


def series() -> set[str]:
    """Every name that a query may use, `up` included."""
    return {"up"} | {
        family.name + suffix for family in families().values() for suffix in SUFFIXES[family.type]
    }
