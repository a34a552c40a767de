"""Every value an operator may change, in one place.

Rules of this module:

1. A value comes from a flag, an environment variable `GMR_<NAME>`, a key of a
   TOML file or the default, in falling order of precedence, and `describe` says
   which of them it was.
2. A name that no setting has stops the start, with a suggestion. A misspelled
   variable that is silently ignored costs an afternoon.
3. Secrets leave this module only through `get_secret_value()`; rows, messages and
   `repr` show them masked.
4. Nothing here knows what the values do. Core gets plain values, never `Settings`.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

from pydantic import (
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from core.errors import InvalidSettings
from service.signature import key_of

if TYPE_CHECKING:
    from core.config import EngineConfig

PREFIX: Final = "GMR_"

CONFIG_VARIABLE: Final = "GMR_CONFIG"
"""Names the TOML file when `--config` does not."""

SECRET_FILE_VARIABLE: Final = "GMR_REDIS_URL_FILE"
"""Names a file that holds `redis_url`, as container platforms hand out secrets."""

SECRET_FILES: Final[Mapping[str, str]] = {
    SECRET_FILE_VARIABLE: "redis_url",
    "GMR_WEBHOOK_URL_FILE": "webhook_url",
    "GMR_WEBHOOK_SECRET_FILE": "webhook_secret",
    "GMR_ADMIN_KEY_FILE": "admin_key",
}
"""Variables that name a file with the value of a setting, and which one it is."""

CLIENT_VARIABLES: Final[Mapping[str, str]] = {
    "GMR_DATASETS": "Folder in which the clients look for data sets.",
    "GMR_URL": "Where the clients reach the service.",
    "GMR_API_KEY": "The key that the clients bring.",
}
"""Variables that are legal but belong to the clients, not to the service."""

TLS_PAIRS: Final = (
    ("tls_certificate", "tls_key"),
    ("redis_tls_certificate", "redis_tls_key"),
)
TLS_FILES: Final = ("redis_tls_ca", *(name for pair in TLS_PAIRS for name in pair))

STORE_SCHEMES: Final = ("s3", "gs", "az", "file")

REDIS_SCHEMES: Final = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")

MIB: Final = 1024 * 1024

OF_A_MODEL: Final = frozenset(
    {
        "preset",
        "n_components",
        "n_factors",
        "n_features",
        "variance_floor",
        "detector",
        "shadow_detectors",
        "ert",
        "outlier_c",
        "outlier_false_positive_rate",
        "image",
        "shift",
        "sharpening",
        "pace",
        "replay",
        "replay_factor",
        "window",
        "set_aside_limit",
        "label_wait_samples",
        "label_wait_s",
        "awaiting_limit",
        "proposal_samples",
        "experts",
        "warm_up",
        "seed",
        "max_classes",
        "gate_max_forgetting",
        "gate_rollback",
    }
)
"""Settings that a named model may have otherwise than the service's own."""

KIND_OF_MODEL: Final = ("preset", "n_components", "n_factors")
"""Settings without which a checkpoint cannot be read."""

ERT_UNITS: Final[Mapping[str, float]] = {"min": 60.0, "s": 1.0, "h": 3600.0, "d": 86400.0}

ERT_PATTERN: Final = (
    "^([2-9]|[1-9][0-9]{1,17}|[1-9][0-9]?e(1[0-6]|[0-9])|"
    r"[0-9]{1,9}(\.[0-9]{1,3})?(s|min|h|d))$"
)


EXPECTED: Final[Mapping[str, str]] = {
    "model": "expected 1 to 64 letters, digits, dots, underscores and hyphens",
    "device": "expected auto, cpu, cuda, or cuda: with a number",
    "ert": "expected 2 samples or more (5000000, 1e8), at most 1e16, or a time (12h, 30d; units s, "
    "min, h, d)",
    "image": "expected HEIGHT,WIDTH or HEIGHT,WIDTH,CHANNELS, like 28,28 or 32,32,3",
    "webhook_events": "expected kinds of events, separated by commas, like boundary,outlier_burst",
}
"""In words, what a setting that is checked by a pattern must be."""


class Row(NamedTuple):
    """One line of `gmr serve --show-config`."""

    name: str
    value: str
    source: str  # "default", "file PATH", "environment GMR_X" or "flag --x"


class Settings(BaseSettings):
    """The settings of the service. Frozen: a change of settings is a restart.

    `Settings(...)` reads the environment and takes keyword arguments, which is
    handy in tests. A program starts with `Settings.load`, which also reads a
    TOML file, refuses unknown names and remembers where each value came from.

    Example:
        >>> settings = Settings(port=9000)
        >>> settings.port, settings.n_factors
        (9000, 20)
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid"
    )

    # Where the service listens and keeps its things.
    host: str = Field(
        "127.0.0.1", min_length=1, description="Address that the API listens on; 0.0.0.0 for all."
    )
    port: int = Field(
        8000, ge=0, le=65535, description="Port that the API listens on; 0 picks a free one."
    )
    tls_certificate: Path | None = Field(
        None,
        description="Certificate, with those that lead to its authority, by which the API speaks "
        "HTTPS; needs tls_key.",
    )
    tls_key: Path | None = Field(None, description="Key of that certificate.")
    admin_key: SecretStr | None = Field(
        None,
        description="Key that may do anything, 24 characters or more; makes every request need a "
        "key. Required for an address other than loopback, unless insecure.",
    )
    insecure: bool = Field(
        False,
        description="Whether an address other than loopback is served to anybody, without keys.",
    )
    allowed_hosts: str = Field(
        "",
        description="Names by which the service may be asked, separated by commas; by those of "
        "loopback it always may. Empty: on loopback by no other, elsewhere by any.",
    )
    data_dir: Path = Field(
        Path(".gmr"), description="Folder for checkpoints, snapshots and the embedded Redis."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least severe log record that is written."
    )
    access_log: bool = Field(
        False, description="Whether the API writes a log record for every request."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Log records as text for people or JSON, one per line, for collectors."
    )

    # Redis.
    redis_url: SecretStr | None = Field(
        None,
        description="redis://, rediss://, unix:// or redis+cluster:// address of a Redis of your "
        "own (6.2 or newer); without it `gmr serve` runs the embedded one.",
    )
    redis_tls_ca: Path | None = Field(
        None,
        description="Certificates of those who may have signed that of rediss://; unset: the "
        "system's.",
    )
    redis_tls_certificate: Path | None = Field(
        None, description="Certificate that is shown to rediss://, where that wants one."
    )
    redis_tls_key: Path | None = Field(None, description="Key of that certificate.")
    redis_replicas: int = Field(
        0,
        ge=0,
        le=100,
        description="Replicas of that Redis that must have an entry before it is acknowledged.",
    )
    accept_weak_durability: bool = Field(
        False,
        description="Whether a Redis is taken that may lose what it has acknowledged.",
    )
    redis_binary: Path | None = Field(
        None, description="redis-server or valkey-server program to run as the embedded Redis."
    )
    redis_maxmemory_mib: int = Field(
        2048, ge=16, le=1_048_576, description="Memory of the embedded Redis, in MiB."
    )
    disk_reserve_mib: int = Field(
        64,
        ge=0,
        le=1_048_576,
        description="Room on the disk of the embedded Redis, in MiB, below which nothing more is "
        "accepted; 0 accepts until the disk is full.",
    )
    model: str = Field(
        "default",
        pattern=r"^[A-Za-z0-9._-]{1,64}(/[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$",
        description="Name of the service's own model; services whose names differ share a Redis "
        "without meeting.",
    )

    # The model.
    device: str = Field(
        "auto",
        pattern="^(auto|cpu|cuda(:[0-9]+)?)$",
        description="Where the model lives: cpu, cuda, cuda:N, or auto (CUDA where there is one).",
    )
    preset: str = Field(
        "mfa",
        description="Learner: mfa (factor analysers), flat (diagonal components), paper (SGD, as "
        "published), dcgmm (deep convolutional, for images), or one that the installation offers.",
    )
    n_components: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Components of the mixture (K), at most; unset: 500 for mfa, 81 for dcgmm, "
        "else 100.",
    )
    n_factors: int = Field(
        20, ge=0, le=1000, description="Of preset mfa: directions in which a component stretches."
    )
    n_features: int | None = Field(
        None, ge=1, description="Features per sample (D); unset: the first batch decides."
    )
    variance_floor: float = Field(
        0.05, gt=0, le=1000, description="Smallest variance that scores, in standardised units."
    )
    detector: str = Field(
        "sequential",
        description="What finds boundaries: sequential, paper, adwin, page_hinkley, kswin, or one "
        "that the installation offers; none leaves them to POST /drift/boundary.",
    )
    shadow_detectors: str = Field(
        "",
        description="Detectors, separated by commas, that run beside it and decide nothing.",
    )
    ert: str = Field(
        "10000000",
        pattern=ERT_PATTERN,
        description="Expected run time between false alarms of detector sequential: samples, or "
        "a time at the observed rate, like 12h or 30d (units s, min, h, d).",
    )
    outlier_c: float = Field(
        2.0,
        gt=0,
        le=100,
        description="A sample is an outlier below the running mean minus c deviations. Decides "
        "where it is set and outlier_false_positive_rate is not, and while too little is known "
        "for p-values.",
    )
    outlier_false_positive_rate: float | None = Field(
        0.05,
        gt=0,
        lt=1,
        description="Share of inliers that may be called outliers, by their p-values; goes before "
        "outlier_c.",
    )
    image: str | None = Field(
        None,
        pattern=r"^\s*[0-9]+\s*(,\s*[0-9]+\s*){1,2}$",
        description="Declares samples as images in [0, 1], which keep their scale: HEIGHT,WIDTH "
        "or HEIGHT,WIDTH,CHANNELS. Unset: uint8 or the shape of what is sent declares them; "
        "dcgmm and shift take a square with one channel.",
    )
    shift: int = Field(
        0,
        ge=0,
        le=4,
        description="Of presets mfa and flat, where samples are images: pixels by which one may be "
        "shifted and still be the same; 0: samples may be anything.",
    )
    sharpening: int = Field(
        0,
        ge=0,
        le=1000,
        description="Of preset dcgmm: steps that sharpen every image that GET /sample draws.",
    )
    pace: Literal["stream", "published"] = Field(
        "stream",
        description="Of presets paper and dcgmm: stream anneals within one pass over a stream, "
        "published is the paper's own schedule, made for tens of epochs.",
    )
    replay: Literal["auto", "analytic", "constant", "proportional"] = Field(
        "auto",
        description="How earlier sub-tasks are kept alive: analytic (mfa, flat), constant or "
        "proportional (paper); auto: the preset's own.",
    )
    replay_factor: float = Field(
        2.0, ge=0, le=1000, description="Generated samples per new one, where samples are drawn."
    )
    window: int = Field(
        4096, ge=1, le=1_000_000, description="Samples held raw, at most, to learn from again."
    )
    set_aside_limit: int = Field(
        4096, ge=1, le=1_000_000, description="Samples kept apart, at most, while a change is open."
    )
    label_wait_samples: int = Field(
        10_000,
        ge=1,
        le=100_000_000,
        description="Samples of the stream that may pass before a sample with an id is learned "
        "without its label.",
    )
    label_wait_s: float = Field(
        3600.0,
        ge=0.05,
        le=31_536_000,
        description="Seconds that may pass before a sample with an id is learned without its "
        "label.",
    )
    awaiting_limit: int = Field(
        4096, ge=1, le=1_000_000, description="Samples that await their label at a time, at most."
    )
    proposal_samples: int = Field(
        50,
        ge=0,
        le=512,
        description="Unknown samples without a label that are proposed as a new class when they "
        "lie together, 10 or more; 0: never.",
    )
    experts: bool = Field(
        True,
        description="Of presets mfa and flat, where samples are no images: whether experts with a "
        "finite memory say beside the mixture what a sample is called.",
    )
    warm_up: int = Field(
        1000,
        ge=1,
        le=10_000_000,
        description="Samples of a sub-task before all bets of the detector are open; it is armed "
        "after a fifth of them.",
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of everything random in the model.")

    # Publishing and keeping.
    snapshot_store: Literal["auto", "directory", "redis"] = Field(
        "auto",
        description="How snapshots reach the API: a file in the data dir, or a Redis key. auto: a "
        "file where Redis is local to this machine (embedded or unix://), else Redis.",
    )
    publish_interval_s: float = Field(
        1.0, ge=0, le=3600, description="Seconds between two published snapshots, at least."
    )
    checkpoint_interval_s: float = Field(
        5.0, ge=0, le=3600, description="Seconds between two checkpoints, at most, while learning."
    )
    checkpoints: str = Field(
        "dir",
        description="Where checkpoints are: dir (the data dir), or a store that several machines "
        "reach: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, or file:///PATH, a "
        "shared folder. Credentials come from the store's own environment variables.",
    )
    checkpoints_mib: int = Field(
        4096,
        ge=1,
        le=1_048_576,
        description="What a model's checkpoints in a store may come to, in MiB; of those before "
        "boundaries the oldest go first. The newest are kept whatever they come to.",
    )
    checkpoint_mib: int = Field(
        256,
        ge=1,
        le=1_048_576,
        description="Learned entries held in the stream, in MiB, that bring a checkpoint forward.",
    )
    gate_max_forgetting: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Largest fall of the retained accuracy on a past sub-task, 0 to 1, with which "
        "a version is served; else the last that passed goes on answering. Unset: all are served.",
    )
    gate_rollback: bool = Field(
        False,
        description="Whether the trainer goes back by itself to the version that passed last, "
        "where another does not.",
    )
    settle_after_s: float = Field(
        1.0,
        ge=0.05,
        le=3600,
        description="Quiet seconds after which batches set aside are decided about, and samples "
        "that wait in a window are taken into the model.",
    )
    drain_timeout_s: float = Field(
        10.0, ge=0, le=3600, description="Seconds to learn what is in the stream when stopping."
    )
    history_length: int = Field(
        10_000, ge=1, le=10_000_000, description="Batches kept for GET /drift/history."
    )
    events_length: int = Field(
        10_000, ge=1, le=10_000_000, description="Events kept for GET /events to resume from."
    )
    dedupe_ttl_s: int = Field(
        86_400, ge=1, le=31_536_000, description="Seconds for which a batch_id is remembered."
    )
    dead_letters_length: int = Field(
        1000, ge=1, le=100_000, description="Dead letters kept; the oldest go first."
    )
    dead_letters_mib: int = Field(
        64, ge=1, le=65_536, description="What these hold of batches, in MiB; the oldest go first."
    )
    deaths_per_minute: int = Field(
        8,
        ge=0,
        le=1_000_000,
        description="Deaths of one part within a minute beyond which `gmr serve` ends.",
    )
    stall_s: float = Field(
        120.0,
        ge=1,
        le=86_400,
        description="Seconds without progress, or without an answer, after which a part hangs: "
        "/health/ready says so, and `gmr serve` kills the part and starts it again.",
    )
    ledger_length: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="Batches of which GET /batches knows for long how they were split, where "
        "samples were quarantined or dropped.",
    )

    standby: bool = Field(
        False,
        description="Whether a trainer that finds another one at work waits to take over. All have "
        "the same data dir, on a disk that they share, or the same store (GMR_CHECKPOINTS); Redis "
        "alone decides who works.",
    )
    accept_loss: int | None = Field(
        None,
        ge=1,
        description="Entries that a trainer may go on without, where no checkpoint holds them: "
        "exactly the number that it has named when it refused to start.",
    )

    # The webhook.
    webhook_url: SecretStr | None = Field(
        None,
        description="http:// or https:// address that is told of events as they happen; needs "
        "webhook_secret.",
    )
    webhook_secret: SecretStr | None = Field(
        None, description="whsec_ and base64: the key that signs what the webhook is told."
    )
    webhook_events: str = Field(
        "boundary,prior_shift,outlier_burst,class_proposed",
        pattern=r"^\s*[a-z_]+\s*(,\s*[a-z_]+\s*)*$",
        description="Kinds of events that the webhook is told of, separated by commas.",
    )

    # Named models, beside the service's own.
    max_models: int = Field(
        1000, ge=0, le=100_000, description="Most named models (PUT /models/{name}); 0: none."
    )
    models_on_demand: bool = Field(
        False,
        description="Whether the first batch of a name that is not known makes the model; the key "
        "that sends it needs the role ingest only.",
    )
    unload_after_s: float = Field(
        60.0,
        ge=0.1,
        le=86_400,
        description="Seconds without an entry after which the trainer keeps a named model and "
        "lets go of it; its next entry loads it again.",
    )
    loaded_models_mib: int = Field(
        1024,
        ge=1,
        le=1_048_576,
        description="What checkpoints of loaded named models may come to, in MiB, before the "
        "trainer lets go of those that have been quiet for longest.",
    )
    api_models: int = Field(
        64,
        ge=1,
        le=10_000,
        description="Named models whose snapshots an API process holds, at most; those asked for "
        "longest ago go first.",
    )

    # Limits of requests.
    max_body_bytes: int = Field(
        32 * MIB, ge=1024, le=512 * MIB, description="Largest request body, in bytes."
    )
    max_bodies_mib: int = Field(
        256,
        ge=1,
        le=1_048_576,
        description="Memory for the bodies of all requests at a time, in MiB for each API process; "
        "at least one body of max_body_bytes has room.",
    )
    max_checkpoint_bytes: int = Field(
        1024 * MIB,
        ge=1024,
        le=64 * 1024 * MIB,
        description="Largest checkpoint that PUT /model/checkpoint takes, in bytes.",
    )
    max_samples: int = Field(
        10_000, ge=1, le=10_000_000, description="Most samples in one request."
    )
    max_features: int = Field(
        100_000, ge=1, le=10_000_000, description="Most features per sample (D)."
    )
    max_sample_n: int = Field(
        10_000, ge=1, le=10_000_000, description="Most samples that GET /sample draws at once."
    )
    max_classes: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="Most classes; a batch that would bring more is refused.",
    )
    max_backlog: int = Field(
        2_000,
        ge=1,
        le=10_000_000,
        description="Entries accepted and not yet learned beyond which POST /ingest answers 429.",
    )

    key_requests_per_s: float | None = Field(
        None, gt=0, description="Requests that each key may send in a second, at an API process."
    )
    key_samples_per_s: float | None = Field(
        None, gt=0, description="Samples, or labels, that each key may send in a second, likewise."
    )
    key_bytes_per_s: float | None = Field(
        None, gt=0, description="Bytes of bodies that each key may send in a second, likewise."
    )

    max_key_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of the newest samples learned that one key may have sent; the trainer "
        "makes dead letters of batches beyond it.",
    )

    # Threads.
    trainer_threads: int = Field(
        1, ge=1, le=256, description="Threads of the trainer's tensor kernels."
    )
    trainer_niceness: int = Field(
        10,
        ge=0,
        le=19,
        description="How far the trainer steps back where others want the processor, the API "
        "among them; 0: not at all, 19: as far as can be.",
    )
    api_threads: int = Field(1, ge=1, le=256, description="Threads of the API's tensor kernels.")

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _rule_by_name(self) -> Self:
        """Whoever sets `outlier_c`, and no rate, wants outliers by the likelihood."""
        given = self.model_fields_set
        if "outlier_c" in given and "outlier_false_positive_rate" not in given:
            object.__setattr__(self, "outlier_false_positive_rate", None)
        return self

    @field_validator("redis_url")
    @classmethod
    def _known_scheme(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        scheme, separator, rest = value.get_secret_value().partition("://")
        if not separator or scheme not in REDIS_SCHEMES or not rest:
            raise ValueError(f"expected an address that begins with one of {_schemes()}")
        place = re.match(r"[^/?#]*", rest)
        if not rest.startswith("/") and place is not None and "@" in rest[place.end() :]:
            # A part of the password would be taken for the port, or even be connected to.
            raise ValueError("expected / ? # and @ in user and password as %2F %3F %23 and %40")
        return value

    @field_validator("checkpoints")
    @classmethod
    def _known_store(cls, value: str) -> str:
        if value == "dir":
            return value
        scheme, separator, rest = value.partition("://")
        if not separator or scheme not in STORE_SCHEMES:
            schemes = ", ".join(f"{scheme}://" for scheme in STORE_SCHEMES)
            raise ValueError(f"expected dir, or an address that begins with one of {schemes}")
        if re.search(r"[@?#\s]", rest):
            raise ValueError(
                "expected an address without user, password, question mark and space: credentials "
                "come from the store's own environment variables alone"
            )
        if not rest.strip("/") or (scheme == "file") != rest.startswith("/"):
            raise ValueError("expected s3://BUCKET/PREFIX, or file:///PATH with three slashes")
        return value.rstrip("/")

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, value: str) -> str:
        from core.config import presets

        if value not in presets():
            raise ValueError(f"expected one of {', '.join(presets())}")
        return value

    @field_validator("ert")
    @classmethod
    def _some_time(cls, value: str) -> str:
        if not re.search("[1-9]", value):
            raise ValueError("expected a time above zero, like 12h or 30d")
        return value

    @field_validator("webhook_url")
    @classmethod
    def _web_address(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not re.match(r"https?://[^/?#\s]+", value.get_secret_value()):
            raise ValueError("expected an address that begins with http:// or https://")
        return value

    @field_validator("admin_key")
    @classmethod
    def _long_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not re.fullmatch(r"[!-~]{24,256}", value.get_secret_value()):
            raise ValueError(
                "expected 24 to 256 printable characters without spaces, such as those that "
                "`openssl rand -hex 32` prints"
            )
        return value

    @field_validator("webhook_secret")
    @classmethod
    def _signing_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            key_of(value.get_secret_value())
        return value

    @field_validator(
        "data_dir",
        "redis_binary",
        "redis_tls_ca",
        "redis_tls_certificate",
        "redis_tls_key",
        "tls_certificate",
        "tls_key",
    )
    @classmethod
    def _expand_home(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser()

    @classmethod
    def load(
        cls, flags: Mapping[str, object] | None = None, *, config: Path | None = None
    ) -> Settings:
        """Settings from flags, environment and file, each value with its source.

        Arguments:
            flags: Field name to value; None means that the flag was not given.
            config: TOML file with field names as keys; without it the file that
                `GMR_CONFIG` names, if any.

        Raises:
            InvalidSettings: An unknown name (with a suggestion), a value out of
                range (with its source), or a file that cannot be read.
        """
        environment = {
            name.upper(): value
            for name, value in os.environ.items()
            if name.upper().startswith(PREFIX) and value != ""
        }
        _refuse_unknown_variables(environment)
        if config is None and CONFIG_VARIABLE in environment:
            config = Path(environment[CONFIG_VARIABLE])

        values: dict[str, object] = {}
        sources: dict[str, str] = {}

        if config is not None:
            for name, value in _read_file(config).items():
                values[name], sources[name] = value, f"file {config}"
        for variable, name in SECRET_FILES.items():
            if variable in environment:
                values[name] = _read_secret(Path(environment[variable]), variable)
                sources[name] = f"environment {variable}"
        for name in cls.model_fields:
            if (variable := _variable(name)) in environment:
                values[name], sources[name] = environment[variable], f"environment {variable}"
        for name, value in (flags or {}).items():
            if value is not None:
                values[name], sources[name] = value, f"flag {_flag(name)}"

        try:
            settings = cls(**values)  # type: ignore[arg-type]  # checked by pydantic
        except ValidationError as error:
            raise _explain(error, values, sources) from None
        if settings.n_features is not None and settings.n_features > settings.max_features:
            raise InvalidSettings(
                f"n_features is {settings.n_features}, more than max_features "
                f"({settings.max_features}), so that every batch would be refused. Raise "
                f"GMR_MAX_FEATURES or lower GMR_N_FEATURES."
            )
        if settings.webhook_url is not None and settings.webhook_secret is None:
            raise InvalidSettings(
                "webhook_url is set without webhook_secret, so that the receiver could not tell "
                "our messages from anybody's. Set GMR_WEBHOOK_SECRET to what "
                "`echo whsec_$(openssl rand -base64 32)` prints, here and at the receiver."
            )
        settings.check_files()
        settings.engine_config()  # core refuses what does not go together, now and not later
        settings._sources.update(sources)
        return settings

    def for_model(self, name: str, given: Mapping[str, object]) -> Settings:
        """The settings of a named model: those of the service, but for what was given.

        Arguments:
            name: Of the model.
            given: Some of `OF_A_MODEL`.

        Raises:
            InvalidSettings: One is no setting of a model, or has a value that will not do.
        """
        unknown = sorted(set(given) - OF_A_MODEL)
        if unknown:
            raise InvalidSettings(
                f"{unknown[0][:80]!r} is no setting of a model. "
                f"{_suggestion(unknown[0], set(OF_A_MODEL))} A model may have its own "
                f"{', '.join(sorted(OF_A_MODEL))}.",
                unknown=unknown,
            )
        own = {name: getattr(self, name) for name in self.model_fields_set}
        if "outlier_c" in given and "outlier_false_positive_rate" not in given:
            own.pop("outlier_false_positive_rate", None)
        if (
            given.get("preset", self.preset) != self.preset
        ):  # what was chosen for another one is no choice for this
            own.pop("n_components", None)
            own.pop("n_factors", None)
        values = {
            **own,
            **given,
            "model": f"{self.model}/{name}",
            "data_dir": self.data_dir / "models" / name,
            # Of a file or Redis, as the service's own: an address says where Redis is.
            "snapshot_store": "redis" if self.snapshots_in_redis else "directory",
        }
        try:
            settings = Settings(**values)
        except ValidationError as error:
            raise _explain(error, values, dict.fromkeys(given, "the model's own")) from None
        settings.engine_config()
        return settings

    def own_of_model(self, given: Mapping[str, object]) -> dict[str, object]:
        """What is to be registered of a named model, of which these are the settings.

        That is what was given, and what decides on the kind of model: that must not change when
        the service's own settings do.
        """
        own = {name: getattr(self, name) for name in (*KIND_OF_MODEL, *given)}
        return {name: value for name, value in own.items() if value is not None or name in given}

    @property
    def on_loopback(self) -> bool:
        """Whether the API listens where only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    @property
    def scheme(self) -> str:
        """Of the API's addresses."""
        return "http" if self.tls_certificate is None else "https"

    @property
    def requires_keys(self) -> bool:
        """Whether a request needs a key."""
        return self.admin_key is not None or not (self.on_loopback or self.insecure)

    def check_exposure(self) -> None:
        """Refuse to listen to others without keys, unless that is asked for by name.

        Raises:
            InvalidSettings: There would be no key by which anybody could ask.
        """
        if self.requires_keys and self.admin_key is None:
            raise InvalidSettings(
                f"The API would listen on {self.host}, where others reach it, and there is no "
                f"key. Set GMR_ADMIN_KEY to what `openssl rand -hex 32` prints and make further "
                f"keys with `gmr keys`; or set GMR_HOST=127.0.0.1; or, where something in front "
                f"asks who they are, say --insecure.",
                setting="admin_key",
            )

    def check_files(self) -> None:
        """Refuse halves of pairs, files that are not there, and what would have no effect.

        Raises:
            InvalidSettings: TLS could not be spoken as asked for, or replicas not be waited for.
        """
        for one, other in TLS_PAIRS:
            given = [name for name in (one, other) if getattr(self, name) is not None]
            if len(given) == 1:
                missing = other if given == [one] else one
                raise InvalidSettings(
                    f"{given[0]} is set without {missing}, and neither is of use alone. Set "
                    f"{_variable(missing)}, too.",
                    setting=missing,
                )
        for name in TLS_FILES:
            path = getattr(self, name)
            if path is not None and not os.access(path, os.R_OK):
                raise InvalidSettings(
                    f"{name} is {path}, which cannot be read. Expected a PEM file. Check the path "
                    f"and its permissions.",
                    setting=name,
                )
        address = self.redis_address() or ""
        files = self.redis_tls_ca or self.redis_tls_certificate
        if files and not address.startswith("rediss"):
            raise InvalidSettings(
                "Files for TLS with Redis are set, but the address does not begin with rediss://, "
                "so that they would not be used. Correct GMR_REDIS_URL.",
                setting="redis_url",
            )
        if self.redis_replicas and (not address or "cluster" in address):
            raise InvalidSettings(
                f"redis_replicas is {self.redis_replicas}, but the Redis is "
                f"{'a cluster' if address else 'the embedded one'}, where replicas are not waited "
                f"for. Expected the address of a primary in GMR_REDIS_URL, or 0.",
                setting="redis_replicas",
            )

    def describe(self) -> list[Row]:
        """Name, value and source of every setting, secrets masked, in the order declared."""
        return [
            Row(name, self._shown(name), self._sources.get(name, "default"))
            for name in type(self).model_fields
        ]

    def environment(self) -> dict[str, str]:
        """The variables that make `Settings.load` in a child process equal to this.

        Secrets are in clear: hand it to a child's environment, never to a log.
        """
        variables = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, SecretStr):
                value = value.get_secret_value()
            if value is not None:
                variables[_variable(name)] = str(value)
        return variables

    def redis_address(self) -> str | None:
        """The Redis URL in clear, or None for the embedded Redis."""
        return None if self.redis_url is None else self.redis_url.get_secret_value()

    @property
    def webhook_kinds(self) -> frozenset[str]:
        """Kinds of events that the webhook is told of; none where there is no webhook."""
        if self.webhook_url is None:
            return frozenset()
        return frozenset(kind.strip() for kind in self.webhook_events.split(","))

    @property
    def bodies_bytes(self) -> int:
        """Bytes that the bodies of all requests may hold at a time."""
        return max(self.max_bodies_mib * MIB, self.max_body_bytes)

    @property
    def snapshots_in_redis(self) -> bool:
        """Whether snapshots travel through Redis: what `snapshot_store` comes to here."""
        if self.snapshot_store != "auto":
            return self.snapshot_store == "redis"
        address = self.redis_address()
        return address is not None and not address.startswith("unix://")

    @property
    def checkpoints_in_store(self) -> bool:
        """Whether checkpoints are in a store that other machines reach, too."""
        return self.checkpoints != "dir"

    @property
    def ert_seconds(self) -> float | None:
        """Expected run time between false alarms as a time; None where it is in samples."""
        for unit, seconds in ERT_UNITS.items():
            if self.ert.endswith(unit):
                return float(self.ert.removesuffix(unit)) * seconds
        return None

    def engine_config(self) -> EngineConfig:
        """The part of the settings that core's engine is built from, as plain values."""
        # Imported here: what only reads settings need not know core's.
        from core.config import EngineConfig

        return EngineConfig(
            preset=self.preset,
            n_components=self.n_components,
            n_factors=self.n_factors,
            n_features=self.n_features,
            variance_floor=self.variance_floor,
            detector=self.detector,
            shadow_detectors=self.shadow_detectors,
            **({} if self.ert_seconds is not None else {"ert": float(self.ert)}),
            outlier_c=self.outlier_c,
            outlier_false_positive_rate=self.outlier_false_positive_rate,
            image=self.image,
            shift=self.shift,
            sharpening=self.sharpening,
            pace=self.pace,
            replay=self.replay,
            replay_factor=self.replay_factor,
            window=self.window,
            set_aside_limit=self.set_aside_limit,
            label_wait_samples=self.label_wait_samples,
            awaiting_limit=self.awaiting_limit,
            proposal_samples=self.proposal_samples,
            experts=self.experts,
            max_classes=self.max_classes,
            warm_up=self.warm_up,
            seed=self.seed,
        )

    def _shown(self, name: str) -> str:
        value = getattr(self, name)
        if isinstance(value, SecretStr):
            return _masked(name, value.get_secret_value())
        return "unset" if value is None else str(value)


def _masked(name: str, text: str) -> str:
    """What may be shown of a setting.

    Example:
        >>> _masked("webhook_url", "https://hooks.example:8443/a/token?x=1")
        'https://hooks.example:8443/***'
        >>> _masked("checkpoints", "s3://id:s3cret@bucket/models")
        's3://***'
    """
    match name:
        case "redis_url":
            return mask_url(text)
        case "webhook_url":
            # Such addresses often hold a token, anywhere but in the host; with an @ nothing
            # is certain, since it may end a password that holds a slash, too.
            found = re.match(r"(https?://)(?:([A-Za-z0-9.-]+(?::\d+)?)(?=[/?#]|$))?", text)
            if found is None:
                return "***"
            host = "" if found[2] is None or "@" in text else found[2] + "/"
            return f"{found[1]}{host}***"
        case "checkpoints":
            # One that is refused may hold a key, where others have a password or a query.
            return re.sub(r"//.*[@?#].*", "//***", text, flags=re.DOTALL)
        case "webhook_secret" | "admin_key":
            return "***"
    return text


def mask_url(url: str) -> str:
    """The address without a password. What cannot be told from one is replaced by stars.

    Example:
        >>> mask_url("rediss://trainer:s3cret@redis.example:6380/0")
        'rediss://trainer:***@redis.example:6380/0'
        >>> mask_url("unix:///run/redis.sock?password=s3cret&db=1")
        'unix:///run/redis.sock?password=***'
        >>> mask_url("s3cret")
        '***'
    """
    # By text, not by a URL parser: a password may hold characters that confuse one.
    found = re.fullmatch(r"([a-z][a-z+]*://)(.*)", url, re.DOTALL)
    if found is None:
        return "***"
    scheme, rest = found.groups()
    query = re.search(r"[?&]password=", rest, re.IGNORECASE)
    if rest.startswith("/"):
        return scheme + (rest if query is None else f"{rest[: query.end()]}***")
    login, at, where = rest.rpartition("@")
    if query is not None or not _WHERE.fullmatch(where):
        return f"{scheme}***"
    user, colon, _ = login.partition(":")
    return f"{scheme}{user}{':***' if colon else ''}{at}{where}"


_WHERE: Final = re.compile(
    r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])?(:\w*)?(/[A-Za-z0-9._/-]*)?(\?[A-Za-z0-9_=&.-]*)?"
)
"""Of an address what comes after user and password."""


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _schemes() -> str:
    return ", ".join(f"{scheme}://" for scheme in REDIS_SCHEMES)


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = {
        *map(_variable, Settings.model_fields),
        *CLIENT_VARIABLES,
        CONFIG_VARIABLE,
        *SECRET_FILES,
    }
    unknown = sorted(set(environment) - known)
    if unknown:
        raise InvalidSettings(
            f"The environment variable {unknown[0]} is no setting. "
            f"{_suggestion(unknown[0], known)} `gmr serve --show-config` lists them all.",
            unknown=unknown,
        )


def _read_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidSettings(
            f"The settings file {path} cannot be read: {error.strerror}. Check the path and its "
            f"permissions, or leave --config and {CONFIG_VARIABLE} out."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(
            f"The settings file {path} is no TOML: {error}. Write one `name = value` per line, "
            f"with text in quotes."
        ) from error
    unknown = sorted(set(values) - set(Settings.model_fields))
    if unknown:
        raise InvalidSettings(
            f"The key {unknown[0]!r} in {path} is no setting. "
            f"{_suggestion(unknown[0], set(Settings.model_fields))} "
            f"`gmr serve --show-config` lists them all.",
            unknown=unknown,
        )
    return values


def _read_secret(path: Path, variable: str) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(
            f"The file {path} that {variable} names cannot be read: {error}. It should hold "
            f"{SECRET_FILES[variable]} on one line; check its path and permissions."
        ) from error


def _suggestion(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else "Remove it, or check its spelling."


def _explain(
    error: ValidationError, values: Mapping[str, object], sources: Mapping[str, str]
) -> InvalidSettings:
    """The first complaint of pydantic in our words: value, source, what was expected."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = str(first["loc"][0])
    if name not in Settings.model_fields:
        return InvalidSettings(
            f"{name!r} is no setting. {_suggestion(name, set(Settings.model_fields))} "
            f"`gmr serve --show-config` lists them all.",
            unknown=[name],
        )
    # The value may hold a password even where it is not valid.
    shown = _masked(name, str(values.get(name)))
    expected = first["msg"].removeprefix("Value error, ")
    if first["type"] == "string_pattern_mismatch":
        expected = EXPECTED[name]  # a regular expression is no explanation
    return InvalidSettings(
        f"{name} is {shown} (from {sources.get(name, 'the program')}), which will not do: "
        f"{expected[:1].lower()}{expected[1:]}. {name} means: "
        f"{Settings.model_fields[name].description}",
        setting=name,
    )
