"""The `gmr` command: joins all sub-commands.

Rules of this module:

1. A sub-command's module is imported when that sub-command is run, so that
   `gmr --help` answers at once; here stands only one line about each.
2. An error of ours is one message on standard error, not a traceback. Exit status 2:
   the command cannot be carried out as it was typed; 1: it was tried and failed.
"""

from __future__ import annotations

import inspect
import signal
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from clients.commands.options import for_one_model
from clients.extras import require
from core.errors import GMRError, InvalidBatch, InvalidSettings

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": (
        "clients.commands.demo:demo_command",
        "Watch a live service learn handwritten digits that arrive as five sub-tasks.",
    ),
    "serve": (
        "clients.commands.serving:serve_command",
        "Run the whole service: Redis, trainer and API.",
    ),
    "trainer": (
        "clients.commands.serving:trainer_command",
        "Run the trainer alone: the one process that learns. Needs --redis-url.",
    ),
    "api": (
        "clients.commands.serving:api_command",
        "Run an API process alone; start as many as you like. Needs --redis-url.",
    ),
    "status": (
        "clients.commands.status:status_command",
        "Print how a service is: model, phase, backlog, accuracy, last boundaries, trainer.",
    ),
    "top": (
        "clients.commands.top:top_command",
        "Watch a service live: throughput, inlier rate, evidence of a change, newest events.",
    ),
    "events": (
        "clients.commands.events:events_command",
        "Print what has happened, and with --follow what happens.",
    ),
    "explain": (
        "clients.commands.explain:explain_command",
        "Say what changed at a boundary: features, classes, components, and what people noted.",
    ),
    "encoding": (
        "clients.commands.encoding:encoding_command",
        "Say how a table with categories or missing values becomes numbers, as JSON.",
    ),
    "ingest": (
        "clients.commands.ingest:ingest_command",
        "Stream a file into a running service, in order, batch by batch.",
    ),
    "features": (
        "clients.commands.features:features_command",
        "Print what the features are called, or name them.",
    ),
    "labels": (
        "clients.commands.labels:labels_command",
        "Send labels for samples that were sent with ids and without labels.",
    ),
    "proposals": (
        "clients.commands.proposals:proposals_command",
        "List proposed new classes, name one, or dismiss it.",
    ),
    "classify": (
        "clients.commands.classify:classify_command",
        "Name the class of every sample of a file, as CSV.",
    ),
    "outliers": (
        "clients.commands.outliers:outliers_command",
        "Say of every sample of a file how usual it is, as CSV.",
    ),
    "sample": (
        "clients.commands.sample:sample_command",
        "Draw samples from the model, as CSV, .npz or picture.",
    ),
    "versions": (
        "clients.commands.versions:versions_command",
        "List the versions of the model that are kept.",
    ),
    "rollback": (
        "clients.commands.versions:rollback_command",
        "Serve a version of the model again that is kept.",
    ),
    "release": (
        "clients.commands.release:release_command",
        "Serve what is learned although the gate holds it back because it has forgotten.",
    ),
    "merge": (
        "clients.commands.merge:merge_command",
        "Let two classes be one from now on.",
    ),
    "rename": (
        "clients.commands.rename:rename_command",
        "Call a class otherwise from now on.",
    ),
    "batch": (
        "clients.commands.batch:batch_command",
        "Say what became of a batch.",
    ),
    "boundary": (
        "clients.commands.boundary:boundary_command",
        "Declare that a sub-task ends here.",
    ),
    "note": (
        "clients.commands.note:note_command",
        "Add a note to a boundary.",
    ),
    "freeze": (
        "clients.commands.mode:freeze_command",
        "Learn nothing any more: batches that come are scored, counted, told, and not learned.",
    ),
    "detect-only": (
        "clients.commands.mode:detect_only_command",
        "Find changes and tell them, but learn nothing and cross no boundary.",
    ),
    "thaw": (
        "clients.commands.mode:thaw_command",
        "Learn again, from where the model was frozen.",
    ),
    "ert": (
        "clients.commands.mode:ert_command",
        "Ask for another run time between false alarms, in samples.",
    ),
    "settings": (
        "clients.commands.settings:settings_command",
        "Show or change settings of a model while it runs.",
    ),
    "deadletters": (
        "clients.commands.deadletters:deadletters_command",
        "List, show, save, send again or drop batches that were accepted and could not be used.",
    ),
    "models": (
        "clients.commands.models:models_command",
        "List, make, copy, show or drop the named models of a service.",
    ),
    "keys": (
        "clients.commands.keys:keys_command",
        "List, make or revoke the keys by which others may ask.",
    ),
    "audit": (
        "clients.commands.audit:audit_command",
        "Show what administrators did: who, what, when, and what became of it.",
    ),
    "doctor": (
        "clients.commands.upkeep:doctor_command",
        "Look a service over, running or stopped; say what wants attention, and what to do.",
    ),
    "backup": (
        "clients.commands.upkeep:backup_command",
        "Write a service, its models and their stream, into one file.",
    ),
    "restore": (
        "clients.commands.upkeep:restore_command",
        "Bring a service back from a backup, into an empty data dir.",
    ),
    "rebuild": (
        "clients.commands.upkeep:rebuild_command",
        "Make a model again from its archive; say whether it is the same, bit for bit.",
    ),
    "reset": (
        "clients.commands.upkeep:reset_command",
        "Let a model begin anew, as if it had learned nothing.",
    ),
    "cluster": (
        "clients.commands.cluster:cluster_command",
        "Run trainers over many machines by Ray: up, status, models, drain, move, down.",
    ),
    "evaluate": (
        "clients.commands.evaluate:evaluate_command",
        "Measure continual learning on SOURCE through a live service.",
    ),
    "bench": (
        "clients.commands.bench:bench_command",
        "Run the benchmark NAME, print its tables and keep its numbers as JSON.",
    ),
    "compile": (
        "clients.commands.serving:compile_command",
        "Compile the detector's loops now, and keep them beside the package.",
    ),
    "version": (
        "clients.commands.version:version_command",
        "Print the versions of what is installed.",
    ),
}
"""Name -> where its function is, and its line in `gmr --help`."""

NEEDS_SERVE = (
    "demo",
    "serve",
    "trainer",
    "api",
    "doctor",
    "backup",
    "restore",
    "rebuild",
    "reset",
    "cluster",
    "evaluate",
    "bench",
    "compile",
)
"""Commands that need more than HTTP: the extra `serve`."""

_SERVING = "clients.commands.serving"
SETTINGS_AS_FLAGS = ("serve", "trainer", "api")
"""Commands whose flags are the settings of the service."""

OF_ONE_MODEL = (
    "status",
    "batch",
    "top",
    "events",
    "explain",
    "ingest",
    "features",
    "labels",
    "proposals",
    "classify",
    "outliers",
    "sample",
    "versions",
    "rollback",
    "release",
    "merge",
    "rename",
    "boundary",
    "note",
    "freeze",
    "detect-only",
    "thaw",
    "ert",
    "settings",
    "deadletters",
)
"""Commands that ask or teach a model, by --url: a named one by --model, too."""

PASSES_ON = ("bench",)
"""Commands that pass options which they do not know on to what they run."""


class LateGroup(TyperGroup):
    """A group whose commands are imported when they are run, and whose errors are messages."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` name, imported now."""
        if args and args[0] in COMMANDS:
            self.add_command(load(args[0]), args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn an error of ours into a message and an exit status."""
        try:
            return super().invoke(ctx)
        except GMRError as error:
            failure = error
        except TyperException as error:
            flag, command = getattr(error, "option_name", None), ctx.invoked_subcommand
            if flag is None or command not in SETTINGS_AS_FLAGS:
                raise
            failure = import_module(_SERVING).no_such_flag(command, flag)
        typer.secho(f"Error: {failure}", fg="red", err=True)
        raise typer.Exit(exit_status(failure))


def exit_status(error: GMRError) -> int:
    """2 for what whoever typed the command can put right, 1 for what went wrong then."""
    # Imported here: only a failure needs it.
    from clients.http.errors import InputError, RequestRefused

    mine = (InputError, InvalidSettings, InvalidBatch, RequestRefused)
    return 2 if isinstance(error, mine) else 1


def load(name: str) -> Any:
    """The command of that name, as typer makes it of its function."""
    if name in NEEDS_SERVE:
        require(f"gmr {name}", "serve")
    module, _, attribute = COMMANDS[name][0].partition(":")
    function = getattr(import_module(module), attribute)
    if name in OF_ONE_MODEL:
        function = for_one_model(function)
    # Help is as wide as the terminal, not as the source: only empty lines break it.
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    single.command(
        name,
        help="\n\n".join(" ".join(text.split()) for text in paragraphs),
        context_settings=settings if name in PASSES_ON else None,
    )(function)
    return typer.main.get_command(single)


def _make_app() -> typer.Typer:
    group = typer.Typer(
        cls=LateGroup,
        no_args_is_help=True,
        rich_markup_mode="rich",
        # A traceback is for us, and may be pasted into a report: no values, which may be secret.
        pretty_exceptions_show_locals=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @group.callback()
    def about(
        version: Annotated[
            bool,
            typer.Option(
                "--version", help="Print the version; `gmr version` says more.", callback=_version
            ),
        ] = False,
    ) -> None:
        """A service that learns from a stream while it serves, and notices when the world changes.

        Example: gmr serve, then in another terminal: gmr ingest train.npz
        """

    for name, (_, line) in COMMANDS.items():
        group.command(name, help=line)(_not_loaded)
    return group


def _version(asked: bool) -> None:
    if asked:
        # Imported here: only this needs it.
        from clients.evaluation.environment import versions

        typer.echo(f"gmr-stream {versions().get('gmr-stream', '0')}")
        raise typer.Exit


def _not_loaded() -> None:
    """Stands for a command until it is resolved."""
    raise AssertionError("a command is loaded before it is run")


app = _make_app()


def main() -> None:
    """Entry point of the console script.

    SIGTERM ends a command as Ctrl-C does, so that temporary copies and whatever it has started go
    with it. Commands that run a part of the service handle both by themselves.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    app(prog_name="gmr")


if __name__ == "__main__":
    main()
