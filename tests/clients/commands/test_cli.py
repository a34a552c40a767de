"""Tests for clients.commands.cli and clients.commands.serving."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clients.commands.cli import COMMANDS, OF_ONE_MODEL, app, exit_status, load
from clients.commands.serving import NOT_FLAGS
from clients.http.errors import InputError, ServiceUnreachable
from core.errors import GMRError, InvalidSettings
from service.settings import Settings
from tests.service.running import LONGEST_S, wait_until

HEAVY = {"torch", "numpy", "fastapi", "pydantic", "httpx2", "sklearn", "matplotlib"}


@pytest.fixture
def gmr(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    """A terminal in an empty folder, wide enough that nothing is wrapped."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    return CliRunner()


def function_of(name: str) -> object:
    module, _, attribute = COMMANDS[name][0].partition(":")
    return getattr(import_module(module), attribute)


def test_help_lists_every_command(gmr: CliRunner) -> None:
    result = gmr.invoke(app, ["--help"])
    assert result.exit_code == 0
    for name, (_, line) in COMMANDS.items():
        assert name in result.output
        assert line in result.output


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['gmr', '--help']\n"
        "from clients.commands.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('loaded:', *sorted(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.rpartition("loaded:")[2].split())
    assert "typer" in loaded
    assert not HEAVY & loaded


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(gmr: CliRunner, name: str) -> None:
    result = gmr.invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert f"Example: gmr {name}" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_list_is_the_first_of_the_commands_own_help(name: str) -> None:
    described = inspect.getdoc(function_of(name)) or ""
    assert " ".join(described.split("\n\n")[0].split()) == COMMANDS[name][1]


OF_A_SERVICE = {"models", "keys", "audit", "doctor", "demo", "evaluate", "reset"}
"""Commands with an address whose subject is no one model."""


def test_every_command_that_asks_a_model_can_ask_a_named_one() -> None:
    asking = {
        name for name in COMMANDS if "url" in inspect.signature(load(name).callback).parameters
    }
    assert asking - OF_A_SERVICE == set(OF_ONE_MODEL)


def test_a_typing_error_is_answered_with_a_suggestion(gmr: CliRunner) -> None:
    result = gmr.invoke(app, ["evalute"])
    assert result.exit_code == 2
    assert "Did you mean 'evaluate'?" in result.output


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError("x"), 2),
        (InvalidSettings("x"), 2),
        (ServiceUnreachable("x"), 1),
        (GMRError("x"), 1),
    ],
)
def test_the_exit_status_says_who_has_to_act(error: GMRError, status: int) -> None:
    assert exit_status(error) == status


def test_the_version_is_an_option_as_elsewhere(gmr: CliRunner) -> None:
    result = gmr.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"gmr-stream {metadata.version('gmr-stream')}\n"


def test_versions_are_printed(gmr: CliRunner) -> None:
    result = gmr.invoke(app, ["version"])
    assert result.exit_code == 0
    assert f"python {sys.version.split()[0]}" in result.output


def test_compile_warms_up(gmr: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[bool]()
    monkeypatch.setattr("service.trainer.warm_up.warm_up", lambda: done.append(True))
    assert gmr.invoke(app, ["compile"]).exit_code == 0
    assert done == [True]


def test_the_module_can_be_run_without_being_installed() -> None:
    command = [sys.executable, "-m", "clients.commands.cli", "version"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.startswith(("gmr-stream ", "python "))


# Settings as flags


@pytest.mark.parametrize("name", ["serve", "trainer", "api"])
def test_every_setting_that_a_command_reads_is_a_flag_of_it(name: str) -> None:
    flags = {flag for parameter in load(name).params for flag in parameter.opts}
    unread = NOT_FLAGS.get(name, frozenset())
    for setting in Settings.model_fields:
        assert (f"--{setting.replace('_', '-')}" in flags) == (setting not in unread), setting


def test_no_flag_is_missing_that_a_command_reads() -> None:
    folder = Path(__file__).parents[3] / "service"
    of_api = {*folder.glob("api/**/*.py"), folder / "broker" / "stream.py"}
    of_serve = {
        *folder.glob("supervisor/*.py"),
        *folder.glob("upkeep/*.py"),  # commands of their own
        *folder.glob("settings/*.py"),
        folder / "cluster" / "local.py",  # likewise
    }
    assert all(path.is_file() for path in of_api | of_serve)
    everything = set(folder.rglob("*.py")) - of_serve
    for name, files in (("trainer", everything - of_api), ("api", everything)):
        source = "".join(path.read_text("utf-8") for path in files)
        for setting in NOT_FLAGS[name]:
            assert f"settings.{setting}" not in source, (name, setting)
    assert {"host", "port"} <= NOT_FLAGS["trainer"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["serve", "--prot", "1"], "--prot is no setting. Did you mean --port?"),
        (["api", "--foo", "1"], "--foo is no setting."),
        (["trainer", "--port", "1"], "--port does nothing for `gmr trainer`"),
        (["trainer", "--max-backlog", "1"], "--max-backlog does nothing for `gmr trainer`"),
    ],
)
def test_a_flag_that_there_is_not_is_one_clear_error(
    gmr: CliRunner, arguments: list[str], complaint: str
) -> None:
    result = gmr.invoke(app, arguments)
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {complaint}")
    assert result.output.count("\n") == 1
    assert "Usage" not in result.output


def test_the_help_says_what_kind_of_value_a_flag_takes(gmr: CliRunner) -> None:
    shown = {
        parameter.opts[0]: parameter.metavar
        for parameter in load("serve").params
        if parameter.metavar
    }
    assert shown["--webhook-secret"] == "SECRET"
    assert shown["--webhook-url"] == shown["--redis-url"] == "URL"


def test_show_config_says_where_each_value_came_from(
    gmr: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GMR_SEED", "5")
    (tmp_path / "gmr.toml").write_text('n_components = 7\nport = 9001\nlog_level = "error"\n')
    arguments = ["--show-config", "--config", "gmr.toml", "--port", "9002"]
    result = gmr.invoke(app, ["serve", *arguments])
    assert result.exit_code == 0
    rows = {
        line.split()[0]: line.split()[1:] for line in result.output.splitlines() if line.strip()
    }
    assert rows["port"] == ["9002", "flag", "--port"]
    assert rows["seed"] == ["5", "environment", "GMR_SEED"]
    assert rows["n_components"] == ["7", "file", "gmr.toml"]
    assert rows["window"][1:] == ["default"]
    assert set(Settings.model_fields) <= set(rows)


def test_show_config_masks_the_password(gmr: CliRunner) -> None:
    address = "redis://trainer:s3cret@redis.example:6379"
    result = gmr.invoke(app, ["serve", "--show-config", "--redis-url", address])
    assert "s3cret" not in result.output
    assert "redis://trainer:***@redis.example:6379" in result.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--port", "99999"], "port is 99999 (from flag --port)"),
        (["--preset", "round"], "preset is round (from flag --preset)"),
        (["--config", "missing.toml"], "missing.toml cannot be read"),
    ],
)
def test_a_setting_that_will_not_do_stops_the_start(
    gmr: CliRunner, arguments: list[str], complaint: str
) -> None:
    result = gmr.invoke(app, ["serve", *arguments])
    assert result.exit_code == 2
    assert complaint in result.output
    assert "Traceback" not in result.output


def test_a_misspelled_variable_stops_the_start(
    gmr: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GMR_PROT", "1")
    result = gmr.invoke(app, ["serve"])
    assert result.exit_code == 2
    assert "Did you mean GMR_PORT?" in result.output


@pytest.mark.parametrize("name", ["trainer", "api"])
def test_a_lone_process_needs_a_redis_address(name: str, tmp_path: Path) -> None:
    # A process of its own: it sets up logging and signals for good.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    run = subprocess.run(
        [sys.executable, "-m", "clients.commands.cli", name],
        cwd=tmp_path,
        env={key: value for key, value in environment.items() if not key.startswith("GMR_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert "Set GMR_REDIS_URL" in run.stderr


def test_a_run_time_that_is_a_time_leads_to_where_one_may_be_given(gmr: CliRunner) -> None:
    result = gmr.invoke(app, ["ert", "30d"])
    assert result.exit_code == 2
    assert "GMR_ERT=30d" in result.output
    assert "gmr models make NAME --set ert=30d" in result.output


def test_a_command_that_is_terminated_leaves_no_temporary_copy(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "clients.commands.cli", "encoding", "-", "--out", "encoding.json"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert run.stdin is not None
    run.stdin.write(b"a,b\n1,2\n")
    run.stdin.flush()  # and not closed: more may come
    wait_until(lambda: any(tmp_path.iterdir()))
    run.send_signal(signal.SIGTERM)
    _, said = run.communicate(timeout=LONGEST_S)
    assert run.returncode == 128 + signal.SIGTERM, said
    assert said == b""
    assert not any(tmp_path.iterdir())
