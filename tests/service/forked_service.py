"""A whole service for tests of what it does once it runs: it is there at once, made of forks."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from service.supervisor.preloaded import MODULES
from tests.service.forked import forked
from tests.service.supervisor.services import Service

PROGRAM = "from tests.service.forked_supervisor import main; main()"


class ForkedService(Service):
    """The same but for its start, which takes a processor a second and not ten."""

    def _begun(self, command: Sequence[str], variables: Mapping[str, str]) -> Any:
        assert tuple(command) == ("-m", "service.supervisor")
        self._ends = contextlib.ExitStack()
        pipe = Path(self._ends.enter_context(tempfile.TemporaryDirectory())) / "output"
        os.mkfifo(pipe)
        modules = [*MODULES, "tests.service.forked_supervisor"]
        process = self._ends.enter_context(
            forked(PROGRAM, variables=variables, output=pipe, modules=modules)
        )
        process.stdout = pipe.open()
        return process

    def close(self) -> None:
        self._ends.close()  # kills it
        self._reader.join()
        self.process.stdout.close()  # type: ignore[union-attr]


@contextlib.contextmanager
def forked_service(data_dir: Path, **settings: object) -> Iterator[ForkedService]:
    """One that runs for as long as a block; killed at the end if it still does.

    Arguments:
        data_dir: Of the service.
        settings: As of `tests.service.supervisor.services.Service`.
    """
    one = ForkedService(data_dir, **settings)
    try:
        yield one
    finally:
        one.close()
