"""How `gmr ingest --model-column` sends: the rows of a table to the models that they name."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clients.commands.file_sender import FileSender, say_error
from clients.commands.named_parts import (
    check_no_model,
    missing_models,
    no_such_models,
    not_made_by_batch,
    of_whole,
    some_failed,
)
from clients.data.live import LiveInput
from clients.data.parts import Part, Parts, parts_of
from clients.http.address import address
from clients.http.client import GMRClient
from clients.http.errors import InputError
from clients.http.rejected import BatchesRejected
from core.counted import counted


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
        check_no_model(self.files.url, self.column)

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
                encoded=encoding is not None,
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
            raise some_failed(failed, name)

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
        try:
            files.send(part.path, f"{part.model} of {name}")
        except InputError as error:
            raise of_whole(error, part, parts, name) from error

    def _check_models(self, named: Sequence[str], name: str) -> None:
        """Make the models that are not there, or raise where that was not asked for.

        Where their first batch makes them, nobody need ask.
        """
        with GMRClient(self.files.url) as client:
            missing = missing_models(client, named)
            if not self.make:
                missing = not_made_by_batch(client, missing)
            if missing and not self.make:
                raise no_such_models(
                    name,
                    missing,
                    f"Make them with --make-models, or one by one with settings of its own: "
                    f"gmr models make {missing[0]}",
                )
            for model in missing:
                client.make_model(model)
        if missing:
            self.files.console.print(f"Made {counted(len(missing), 'model')}.", highlight=False)
