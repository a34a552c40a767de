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

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import PrivateAttr, SecretStr, ValidationError
from pydantic_settings import SettingsConfigDict

from core.errors import InvalidSettings
from service.settings.api import ApiSettings
from service.settings.keeping import KeepingSettings
from service.settings.limits import LimitSettings
from service.settings.masking import masked
from service.settings.model import ModelSettings
from service.settings.named_models import NamedModelSettings
from service.settings.names import PREFIX, suggestion, variable
from service.settings.reading import explain, read
from service.settings.redis import RedisSettings
from service.settings.threads import ThreadSettings
from service.settings.webhook import WebhookSettings

if TYPE_CHECKING:
    from core.config import EngineConfig

TLS_PAIRS: Final = (
    ("tls_certificate", "tls_key"),
    ("redis_tls_certificate", "redis_tls_key"),
)
TLS_FILES: Final = ("redis_tls_ca", *(name for pair in TLS_PAIRS for name in pair))

OF_A_MODEL: Final = (frozenset(ModelSettings.model_fields) - {"device"}) | {
    "gate_max_forgetting",
    "gate_rollback",
    "max_classes",
}
"""Settings that a named model may have otherwise than the service's own."""

KIND_OF_MODEL: Final = ("preset", "n_components", "n_factors")
"""Settings without which a checkpoint cannot be read."""


class Row(NamedTuple):
    """One line of `gmr serve --show-config`."""

    name: str
    value: str
    source: str  # "default", "file PATH", "environment GMR_X" or "flag --x"


class Settings(
    # The last comes first in lists.
    ThreadSettings,
    LimitSettings,
    NamedModelSettings,
    WebhookSettings,
    KeepingSettings,
    ModelSettings,
    RedisSettings,
    ApiSettings,
):
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

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

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
        values, sources = read(cls.model_fields, flags or {}, config)
        try:
            settings = cls(**values)  # type: ignore[arg-type]  # checked by pydantic
        except ValidationError as error:
            raise explain(error, cls.model_fields, values, sources) from None
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
                f"{suggestion(unknown[0], set(OF_A_MODEL))} A model may have its own "
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
            "model": self.name_of(name),
            "data_dir": self.data_dir / "models" / name,
            # Of a file or Redis, as the service's own: an address says where Redis is.
            "snapshot_store": "redis" if self.snapshots_in_redis else "directory",
        }
        try:
            settings = Settings(**values)
        except ValidationError as error:
            sources = dict.fromkeys(given, "the model's own")
            raise explain(error, Settings.model_fields, values, sources) from None
        settings.engine_config()
        return settings

    def name_of(self, name: str) -> str:
        """What a named model of this service is called wherever services are told apart.

        Example:
            >>> Settings(model="plant").name_of("pump-7")
            'plant/pump-7'
        """
        return f"{self.model}/{name}"

    def own_of_model(self, given: Mapping[str, object]) -> dict[str, object]:
        """What is to be registered of a named model, of which these are the settings.

        That is what was given, and what decides on the kind of model: that must not change when
        the service's own settings do.
        """
        own = {name: getattr(self, name) for name in (*KIND_OF_MODEL, *given)}
        return {name: value for name, value in own.items() if value is not None or name in given}

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
                    f"{variable(missing)}, too.",
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
        if self.checkpoints_in_redis and not address:
            raise InvalidSettings(
                "checkpoints is redis, and no Redis of your own is named: in the embedded one they "
                "would be no safer than in the data dir. Set GMR_REDIS_URL, or leave it out.",
                setting="checkpoints",
            )
        files = self.redis_tls_ca or self.redis_tls_certificate
        if files and not address.startswith("rediss"):
            raise InvalidSettings(
                "Files for TLS with Redis are set, but the address does not begin with rediss://, "
                "so that they would not be used. Correct GMR_REDIS_URL.",
                setting="redis_url",
            )
        if self.redis_replicas and not address:
            raise InvalidSettings(
                f"redis_replicas is {self.redis_replicas}, but the Redis is the embedded one, "
                f"which has none. Set GMR_REDIS_URL, or 0.",
                setting="redis_replicas",
            )

    def describe(self) -> list[Row]:
        """Name, value and source of every setting, secrets masked, in the order declared."""
        return [
            Row(name, self._shown(name), self._sources.get(name, "default"))
            for name in type(self).model_fields
        ]

    def environment(self, *, without_defaults: bool = False) -> dict[str, str]:
        """The variables that make `Settings.load` in a child process equal to this.

        Secrets are in clear: hand it to a child's environment, never to a log.

        Arguments:
            without_defaults: Leave out what nobody has set, so that a process of another release
                can begin with it, which does not know all settings of this one.
        """
        variables = {}
        for name in type(self).model_fields:
            if without_defaults and name not in self.model_fields_set:
                continue
            value = getattr(self, name)
            if isinstance(value, SecretStr):
                value = value.get_secret_value()
            if value is not None:
                variables[variable(name)] = str(value)
        return variables

    @property
    def snapshots_in_redis(self) -> bool:
        """Whether snapshots travel through Redis: what `snapshot_store` comes to here."""
        if self.snapshot_store != "auto":
            return self.snapshot_store == "redis"
        address = self.redis_address()
        return address is not None and not address.startswith("unix://")

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
            cooldown=self.cooldown,
            seed=self.seed,
        )

    def _shown(self, name: str) -> str:
        value = getattr(self, name)
        if isinstance(value, SecretStr):
            return masked(name, value.get_secret_value())
        return "unset" if value is None else str(value)
