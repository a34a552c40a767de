"""What do many models on many hosts take? Computed from figures that were measured for one.

`python -m benchmarks.fleet` prints a table; nothing runs. Models belong to buckets by their names,
as `gmr cluster` has it, and buckets to hosts in turn. What follows from the figures below is
arithmetic, and says nothing about networks, nor about a Redis that is the bottleneck.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from typing import Final

from service.cluster.buckets import bucket_of


@dataclass(frozen=True)
class Measured:
    """Figures of one process and one model with D = 16, K = 20 (docs/benchmarks.md).

    Arguments:
        process_mib: Of a trainer without models.
        model_mib: Of a loaded model beyond that, its window full.
        batch_s: Processor time of a batch of 100, an upper figure of a busy machine.
        back_s: From the death of a machine until another one reads on.
        load_s: To load one model from its checkpoint; assumed.
        status_commands_s: Commands of Redis a second of a loaded model that is quiet: its pace.
        idle_commands_s: The same of a thousand models that are not loaded, together.
        batch_commands: Commands of a batch: append, read, report, release; counted in the source.
        checkpoint_mib: Of a model.
    """

    process_mib: float = 419.0
    model_mib: float = 2.0
    batch_s: float = 0.0083
    back_s: float = 4.5
    load_s: float = 0.05
    status_commands_s: float = 0.1
    idle_commands_s: float = 15.0
    batch_commands: float = 4.0
    checkpoint_mib: float = 0.34


@dataclass(frozen=True)
class Fleet:
    """What is asked.

    Arguments:
        models: How many.
        hosts: Machines.
        buckets: Of the cluster; a process each.
        active: Share of the models that get batches.
        batches_s: A second, of each of these.
    """

    models: int = 10_000
    hosts: int = 50
    buckets: int = 256
    active: float = 0.2
    batches_s: float = 0.1


@dataclass(frozen=True)
class Needs:
    """What follows.

    Arguments:
        largest_bucket: Models of the bucket that has most.
        largest_host: Models of the host that has most.
        host_mib: Memory of that host.
        host_cores: Processor time a second of that host.
        busiest_bucket: The same of the busiest bucket, which has one core.
        commands_s: Of Redis, in all.
        back_s: After a host has died, until its largest bucket reads on.
        caught_up_s: Until that bucket has learned what came meanwhile.
        store_mib: Of the newest two checkpoints of all models.
    """

    largest_bucket: int
    largest_host: int
    host_mib: float
    host_cores: float
    busiest_bucket: float
    commands_s: float
    back_s: float
    caught_up_s: float
    store_mib: float

    @property
    def fits(self) -> bool:
        """Whether every bucket has less to do than one core does."""
        return self.busiest_bucket < 1.0


def needs(fleet: Fleet, measured: Measured) -> Needs:
    """What a fleet takes.

    Example:
        >>> found = needs(Fleet(models=1000, hosts=5, buckets=16), Measured())
        >>> found.fits, found.largest_bucket, round(found.commands_s)
        (True, 94, 112)
    """
    models = Counter(bucket_of(f"model-{number}", fleet.buckets) for number in range(fleet.models))
    hosts = Counter[int]()
    for bucket, count in models.items():
        hosts[bucket % fleet.hosts] += count
    largest, on_host = max(models.values()), max(hosts.values())
    processes = -(-fleet.buckets // fleet.hosts)
    each_s = fleet.active * fleet.batches_s
    loaded = fleet.active * fleet.models
    quiet = fleet.models - loaded
    busy = largest * each_s * measured.batch_s
    # Only models for which something came are loaded; each is needed again within its pause.
    back = measured.back_s + measured.load_s
    waiting = back * largest * each_s * measured.batch_s + fleet.active * largest * measured.load_s
    return Needs(
        largest_bucket=largest,
        largest_host=on_host,
        host_mib=processes * measured.process_mib + fleet.active * on_host * measured.model_mib,
        host_cores=on_host * each_s * measured.batch_s,
        busiest_bucket=busy,
        commands_s=fleet.models * each_s * measured.batch_commands
        + loaded * measured.status_commands_s
        + quiet / 1000 * measured.idle_commands_s,
        back_s=back,
        caught_up_s=back + waiting / (1 - busy) if busy < 1 else float("inf"),
        store_mib=2 * fleet.models * measured.checkpoint_mib,
    )


ROWS: Final = (
    ("largest bucket", "largest_bucket", "{:.0f} models"),
    ("largest host", "largest_host", "{:.0f} models"),
    ("memory of it", "host_mib", "{:.0f} MiB"),
    ("processor of it", "host_cores", "{:.2f} cores"),
    ("processor of the largest bucket", "busiest_bucket", "{:.3f} of its one core"),
    ("commands of Redis, in all", "commands_s", "{:.0f} a second"),
    ("a host dies: its buckets read on", "back_s", "{:.1f} s later"),
    ("and have caught up", "caught_up_s", "{:.1f} s later"),
    ("store, newest two of each", "store_mib", "{:.0f} MiB"),
)


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    default = Fleet()
    for name in ("models", "hosts", "buckets"):
        parser.add_argument(f"--{name}", type=int, default=getattr(default, name))
    for name in ("active", "batches_s"):
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=float, default=getattr(default, name)
        )
    fleet = Fleet(**vars(parser.parse_args()))
    found = needs(fleet, Measured())
    print(fleet)
    for label, name, form in ROWS:
        print(f"{label:36} {form.format(getattr(found, name))}")
    print("it fits" if found.fits else "IT DOES NOT FIT: more buckets, or fewer batches")


if __name__ == "__main__":
    main()
