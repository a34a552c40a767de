"""How `gmr ingest --model-column` sends: the rows of a table to the models that they name."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from clients.commands.file_sender import FileSender, say_error
from clients.data.live import LiveInput
from clients.data.parts import Part, Parts, parts_of
from clients.http.address import address
from clients.http.client import GMRClient
from clients.http.errors import InputError, NotAuthorised, RequestRefused
from clients.http.rejected import BatchesRejected
from clients.sending.bar import check_reachable
from core.counted import counted

_MOST_NAMED: Final = 10
"""Models that a message names."""

_NOT_FOUND: Final = 404


@dataclass(frozen=True)
class PartSender:
    """Sends files by model, as `FileSender` sends them to one.

    Arguments:
        files: Sends a part.
        column: Of the tables, which says the model of each row.
        make: Make models that are not there yet.
    """

    files: FileSender
    column: str
    make: bool

    def __post_init__(self) -> None:
        if re.search(r"/models/[^/]+$", address(self.files.url)):
            raise InputError(
                f"A model was named, and column {self.column!r} says the models as well. Leave out "
                f"--model or --model-column."
            )

    def send(self, path: Path, name: str, live: LiveInput | None = None) -> None:
        """Send the rows of each model of one file, model by model, from where each was left.

        Arguments:
            path: The file.
            name: What it is called to the person who sends it.
            live: None: what comes line by line is not parted.

        Raises:
            InputError: It cannot be parted, or some part could not be sent whole.
        """
        options, console = self.files.options, self.files.console
        assert live is None
        failed = 0
        with tempfile.TemporaryDirectory(prefix="gmr-parts-") as folder:
            encoding = options.encoding
            parts = parts_of(
                path,
                self.column,
                Path(folder),
                text_columns=(options.label_column, options.id_column, *options.drop),
                columns=options.columns if encoding is None else encoding.names,
                decimal=options.decimal,
                skip_bad_rows=options.skip_bad_rows,
            )
            self._check_models([part.model for part in parts.each], name)
            for part in parts.each:
                try:
                    self._send(part, parts, name)
                except (InputError, BatchesRejected) as error:
                    failed += 1
                    say_error(console, error)
        if parts.skipped:
            left = counted(parts.skipped, "row")
            console.print(f"{left} of {name} could not be used, or named no model: left out.")
        if failed:
            raise InputError(
                f"The rows of {counted(failed, 'model')} in {name} could not be sent whole, as "
                f"told above. Put right what is wrong, and run the same command again: what was "
                f"sent is not sent twice."
            )

    def _send(self, part: Part, parts: Parts, name: str) -> None:
        options = self.files.options
        if options.columns is None and options.encoding is None:
            options = replace(options, drop=(*options.drop, self.column))
        files = replace(
            self.files,
            url=address(self.files.url, part.model),
            options=options,
            model=part.model,
        )
        title = f"{part.model} of {name}"
        try:
            files.send(part.path, title)
        except InputError as error:
            # Lines of the part are nobody's.
            told = re.sub(r" \(line \d+ of the file\)", "", str(error))
            told, row = told.replace(str(part.path), title), error.context.get("row")
            if isinstance(row, int) and 0 <= row < len(part.rows):
                place = parts.place(part.rows[row])
                told += f" Row {row} of {part.model} is row {part.rows[row]} of {name}{place}."
            raise InputError(told, **error.context) from error

    def _there(self, client: GMRClient, named: Sequence[str]) -> set[str]:
        """Models that are there, of those that a table names at least."""
        try:
            return {model.name for model in client.models()}
        except NotAuthorised:  # to list them all, as a sensor's key is not: ask for each
            there = set[str]()
            for model in named:
                with GMRClient(self.files.url, model=model) as of_model:
                    try:
                        of_model.ingest_state()
                    except RequestRefused as error:
                        if error.status != _NOT_FOUND:
                            raise
                    else:
                        there.add(model)
            return there

    def _check_models(self, named: Sequence[str], name: str) -> None:
        """Make the models that are not there, or raise where that was not asked for."""
        with GMRClient(self.files.url) as client:
            check_reachable(client)
            there = self._there(client, named)
            missing = [model for model in named if model not in there]
            if missing and not self.make:
                first = ", ".join(missing[:_MOST_NAMED])
                raise InputError(
                    f"{name} names {counted(len(missing), 'model')} that the service does not "
                    f"have: {first}{', ...' if len(missing) > _MOST_NAMED else ''}. Nothing was "
                    f"sent. Make them with --make-models, or one by one with settings of its own: "
                    f"gmr models make {missing[0]}"
                )
            for model in missing:
                client.make_model(model)
        if missing:
            self.files.console.print(f"Made {counted(len(missing), 'model')}.", highlight=False)
