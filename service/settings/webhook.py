"""Settings of the webhook."""

from __future__ import annotations

import re

from pydantic import (
    Field,
    SecretStr,
    field_validator,
)
from pydantic_settings import BaseSettings

from service.signature import key_of


class WebhookSettings(BaseSettings):
    """Who is told of events, and of which."""

    webhook_url: SecretStr | None = Field(
        None,
        description="http:// or https:// address that is told of events as they happen; needs "
        "webhook_secret.",
    )
    webhook_secret: SecretStr | None = Field(
        None, description="whsec_ and base64: the key that signs what the webhook is told."
    )
    webhook_events: str = Field(
        "boundary,change_detected,prior_shift,features_drifting,outlier_burst,class_proposed",
        pattern=r"^\s*[a-z_]+\s*(,\s*[a-z_]+\s*)*$",
        description="Kinds of events that the webhook is told of, separated by commas.",
    )

    @field_validator("webhook_url")
    @classmethod
    def _web_address(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not re.match(r"https?://[^/?#\s]+", value.get_secret_value()):
            raise ValueError("expected an address that begins with http:// or https://")
        return value

    @field_validator("webhook_secret")
    @classmethod
    def _signing_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            key_of(value.get_secret_value())
        return value

    @property
    def webhook_kinds(self) -> frozenset[str]:
        """Kinds of events that the webhook is told of; none where there is no webhook."""
        if self.webhook_url is None:
            return frozenset()
        return frozenset(kind.strip() for kind in self.webhook_events.split(","))
