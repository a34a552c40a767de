"""Tests for the service.settings module."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.config import EngineConfig
from core.engine.asked_settings import ADJUSTABLE, NUMBERS
from core.errors import InvalidSettings
from service.settings import CLIENT_VARIABLES, Settings, mask_url
from service.settings.reading import EXPECTED

SECRET = "redis://trainer:s3cret@redis.example:6379/0"
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HOOK = "https://me:s3cret@hooks.example/T0KEN?key=s3cret"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("GMR_"):
            monkeypatch.delenv(name)


def source_of(settings: Settings, name: str) -> str:
    return next(row.source for row in settings.describe() if row.name == name)


def test_a_flag_beats_a_variable_beats_a_file_beats_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "gmr.toml"
    config.write_text("port = 1001\nhost = '0.0.0.0'\nseed = 7\n")
    monkeypatch.setenv("GMR_PORT", "1002")
    monkeypatch.setenv("GMR_HOST", "::1")

    settings = Settings.load({"port": 1003}, config=config)

    assert (settings.port, settings.host, settings.seed) == (1003, "::1", 7)
    assert source_of(settings, "port") == "flag --port"
    assert source_of(settings, "host") == "environment GMR_HOST"
    assert source_of(settings, "seed") == f"file {config}"
    assert source_of(settings, "device") == "default"


def test_a_flag_that_was_not_given_changes_nothing() -> None:
    assert Settings.load({"port": None}).port == Settings().port


def test_the_variable_gmr_config_names_the_file_when_no_flag_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gmr.toml").write_text("n_components = 9\n")
    monkeypatch.setenv("GMR_CONFIG", str(tmp_path / "gmr.toml"))
    assert Settings.load().n_components == 9


def test_a_misspelled_variable_stops_the_start_with_a_suggestion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GMR_N_COMPONENT", "5")
    with pytest.raises(
        InvalidSettings, match=r"GMR_N_COMPONENT is no setting\. Did you mean GMR_N_"
    ):
        Settings.load()


def test_a_misspelled_key_of_the_file_stops_the_start_with_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "gmr.toml").write_text("prot = 1\n")
    with pytest.raises(InvalidSettings, match="Did you mean port"):
        Settings.load(config=tmp_path / "gmr.toml")


def test_an_unknown_flag_stops_the_start_with_a_suggestion() -> None:
    with pytest.raises(InvalidSettings, match="Did you mean replay"):
        Settings.load({"reply": "analytic"})


def test_variables_of_the_clients_are_legal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CLIENT_VARIABLES:
        monkeypatch.setenv(name, "x")
    Settings.load()


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMR_N_FEATURES", "")
    assert Settings.load().n_features is None


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("port", 70_000, "less than or equal to 65535"),
        ("device", "tpu", "device means"),
        ("model", "a:b", "model means"),
        ("preset", "best", "one of mfa, flat, paper, dcgmm"),
        ("publish_interval_s", -1, "greater than or equal to 0"),
        ("redis_url", "http://x", "redis://"),
        ("redis_url", "redis://", "redis://"),
        *(
            ("ert", value, "ert means")
            for value in ("012", "1e7h", "-5h", "h", "12 h", "1w", "1e17", "1e999")
        ),
        *(("ert", value, "above zero") for value in ("0s", "0.00h")),
        ("ert", "1", "ert means"),
        ("webhook_url", "ftp://x", "http:// or https://"),
        ("webhook_url", "https://", "http:// or https://"),
        ("webhook_secret", "hunter2", "openssl rand"),
        ("webhook_events", "Boundary!", "webhook_events means"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_source(
    name: str, value: object, expected: str
) -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings.load({name: value})
    assert f"(from flag --{name.replace('_', '-')})" in str(caught.value)
    assert expected in str(caught.value)
    assert "pattern" not in str(caught.value)


def test_every_setting_that_has_a_pattern_is_explained_in_words() -> None:
    patterns = {
        name: getattr(rule, "pattern", None)
        for name, field in Settings.model_fields.items()
        for rule in field.metadata
        if getattr(rule, "pattern", None) is not None
    }
    assert patterns.keys() == EXPECTED.keys()
    for name in patterns:
        with pytest.raises(InvalidSettings) as caught:
            Settings.load({name: "!"})
        assert EXPECTED[name] in str(caught.value)
        assert patterns[name] not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "samples", "seconds"),
    [
        ("2", 2.0, None),
        ("5000000", 5e6, None),
        ("1e8", 1e8, None),
        ("30s", 1e7, 30.0),
        ("90min", 1e7, 5400.0),
        ("12h", 1e7, 43_200.0),
        ("0.5d", 1e7, 43_200.0),
    ],
)
def test_a_run_time_is_asked_for_in_samples_or_as_a_time(
    text: str, samples: float, seconds: float | None
) -> None:
    settings = Settings.load({"ert": text})
    assert settings.ert_seconds == seconds
    # A time becomes samples once their rate is known; until then the default holds.
    assert settings.engine_config().ert == samples


@pytest.mark.parametrize(
    ("written", "samples"),
    [("2", 2.0), ("5_000_000", 5e6), ("5e6", 5e6), ("1e16", 1e16), ("123456789", 123_456_789.0)],
)
def test_a_run_time_in_a_file_may_be_a_number(tmp_path: Path, written: str, samples: float) -> None:
    path = tmp_path / "gmr.toml"
    path.write_text(f"ert = {written}\n")
    settings = Settings.load(config=path)
    assert settings.engine_config().ert == samples
    # So it may in the JSON that makes a model, which is then the same as with text.
    assert Settings.load().for_model("m", {"ert": samples}).ert == settings.ert


@pytest.mark.parametrize("written", ["1", "0", "-5", "12.5", "true", "nan", "inf", "1e17"])
def test_a_number_that_is_no_run_time_is_refused(tmp_path: Path, written: str) -> None:
    path = tmp_path / "gmr.toml"
    path.write_text(f"ert = {written}\n")
    with pytest.raises(InvalidSettings, match="ert is "):
        Settings.load(config=path)


def test_choices_that_do_not_go_together_are_refused_at_once() -> None:
    with pytest.raises(InvalidSettings, match="no 'analytic' replay"):
        Settings.load({"preset": "paper", "replay": "analytic"})
    with pytest.raises(InvalidSettings, match="more than max_features"):
        Settings.load({"n_features": 11, "max_features": 10})


@pytest.mark.parametrize("content", ["port = ", "port: 1", "\xff\xfe"])
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "gmr.toml").write_bytes(content.encode("latin-1"))
    with pytest.raises(InvalidSettings, match=r"gmr\.toml"):
        Settings.load(config=tmp_path / "gmr.toml")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="No such file"):
        Settings.load(config=tmp_path / "none.toml")


def test_a_password_is_shown_nowhere() -> None:
    settings = Settings.load({"redis_url": SECRET})
    assert settings.redis_address() == SECRET
    shown = [repr(settings), str(settings), *(row.value for row in settings.describe())]
    assert not any("s3cret" in text for text in shown)
    assert "redis://trainer:***@redis.example:6379/0" in shown


def test_a_password_in_an_invalid_address_is_not_shown_either() -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings.load({"redis_url": "http://u:s3cret@x"})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:p@ss:w/rd@host", "redis://:***@host"),
        ("unix:///a/b.sock?db=1&password=x", "unix:///a/b.sock?db=1&password=***"),
    ],
)
def test_masking_leaves_everything_but_the_password(url: str, masked: str) -> None:
    assert mask_url(url) == masked


def test_the_address_may_come_from_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    monkeypatch.setenv("GMR_REDIS_URL_FILE", str(tmp_path / "secret"))
    settings = Settings.load()
    assert settings.redis_address() == SECRET
    assert source_of(settings, "redis_url") == "environment GMR_REDIS_URL_FILE"


def test_neither_key_nor_address_of_the_webhook_is_shown() -> None:
    settings = Settings.load({"webhook_url": HOOK, "webhook_secret": KEY})
    shown = [repr(settings), *(row.value for row in settings.describe())]
    assert not any(word in text for text in shown for word in ("s3cret", "T0KEN", KEY[6:]))
    assert "https://***" in shown
    settings = Settings.load({"webhook_url": "https://hooks.example/T0KEN", "webhook_secret": KEY})
    assert "https://hooks.example/***" in [row.value for row in settings.describe()]
    for name, value in (("webhook_secret", "s3cret"), ("webhook_url", "ftp://x/s3cret")):
        with pytest.raises(InvalidSettings) as caught:
            Settings.load({name: value})
        assert "s3cret" not in str(caught.value)


def test_the_key_of_the_webhook_may_come_from_a_file_and_must_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidSettings, match="without webhook_secret"):
        Settings.load({"webhook_url": HOOK})
    for name, value in (("webhook_secret", KEY), ("webhook_url", HOOK)):
        (tmp_path / name).write_text(value + "\n")
        monkeypatch.setenv(f"GMR_{name.upper()}_FILE", str(tmp_path / name))
    settings = Settings.load()
    assert settings.webhook_secret is not None
    assert settings.webhook_secret.get_secret_value() == KEY
    assert source_of(settings, "webhook_url") == "environment GMR_WEBHOOK_URL_FILE"


def test_the_webhook_is_told_of_the_kinds_that_are_listed() -> None:
    assert Settings.load({"webhook_events": "boundary"}).webhook_kinds == frozenset()
    hooked = {"webhook_url": HOOK, "webhook_secret": KEY}
    assert "boundary" in Settings.load(hooked).webhook_kinds
    chosen = Settings.load({**hooked, "webhook_events": "boundary , to_come"})
    assert chosen.webhook_kinds == {"boundary", "to_come"}


@pytest.mark.parametrize("without_defaults", [False, True])
def test_a_child_with_the_environment_has_the_same_settings(
    monkeypatch: pytest.MonkeyPatch, without_defaults: bool
) -> None:
    settings = Settings.load({"port": 9, "redis_url": SECRET, "n_features": 3, "outlier_c": 1.5})
    environment = settings.environment(without_defaults=without_defaults)
    assert ("GMR_PRESET" in environment) is not without_defaults
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Settings.load().model_dump() == settings.model_dump()


@pytest.mark.parametrize(
    ("address", "store", "in_redis"),
    [
        (None, "auto", False),
        ("unix:///x.sock", "auto", False),
        ("redis://host", "auto", True),
        ("redis://host", "directory", False),
        ("unix:///x.sock", "redis", True),
    ],
)
def test_snapshots_travel_through_redis_only_to_other_machines(
    address: str | None, store: str, in_redis: bool
) -> None:
    settings = Settings.load({"redis_url": address, "snapshot_store": store})
    assert settings.snapshots_in_redis is in_redis


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_core_gets_plain_values() -> None:
    config = Settings.load({"n_components": 7, "seed": 3, "n_features": 5}).engine_config()
    assert (config.n_components, config.seed, config.n_features) == (7, 3, 5)


def test_whoever_sets_c_and_no_rate_wants_outliers_by_c_in_child_processes_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rate(flags: dict[str, object]) -> float | None:
        settings = Settings.load(flags)
        with monkeypatch.context() as patch:
            for name, value in settings.environment().items():
                patch.setenv(name, value)
            config = Settings.load().engine_config()
        assert config == settings.engine_config()
        return config.outlier_false_positive_rate

    assert rate({}) == 0.05
    assert rate({"outlier_c": 2.0}) is None
    assert rate({"outlier_false_positive_rate": 0.2}) == 0.2
    assert rate({"outlier_c": 3.0, "outlier_false_positive_rate": 0.2}) == 0.2


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("s3://id:s3cret@bucket", "environment variables alone"),
        ("az://container?sig=s3cret", "environment variables alone"),
        ("ftp://bucket", "begins with one of s3://, gs://, az://, file://"),
        ("folder", "expected dir, redis, or an address"),
        ("s3://", "s3://BUCKET/PREFIX"),
        ("file://relative", "three slashes"),
    ],
)
def test_a_store_is_named_by_an_address_without_credentials(address: str, expected: str) -> None:
    with pytest.raises(InvalidSettings, match=expected) as refused:
        Settings.load({"checkpoints": address})
    assert "s3cret" not in str(refused.value)


def test_checkpoints_are_kept_in_a_redis_of_ones_own_only() -> None:
    with pytest.raises(InvalidSettings, match="Set GMR_REDIS_URL"):
        Settings.load({"checkpoints": "redis"})
    settings = Settings.load({"checkpoints": "redis", "redis_url": "redis://r.example"})
    assert settings.checkpoints_in_store
    assert settings.checkpoints_in_redis


def test_a_named_model_has_its_checkpoints_in_the_same_store() -> None:
    settings = Settings.load({"checkpoints": "s3://bucket/models/"})
    assert settings.checkpoints == "s3://bucket/models"
    assert settings.for_model("pump-7", {}).checkpoints == "s3://bucket/models"
    assert settings.checkpoints_in_store
    assert not Settings.load().checkpoints_in_store


@pytest.mark.parametrize("name", ADJUSTABLE)
def test_what_can_be_asked_for_of_a_model_may_be_set_from_the_first(name: str) -> None:
    value = 0.5 if name in NUMBERS else 33
    made = Settings(**{name: value}).engine_config()  # type: ignore[arg-type]
    assert getattr(made, name) == value != getattr(EngineConfig(), name)
