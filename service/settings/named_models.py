"""Settings of named models, beside the service's own."""

from __future__ import annotations

from pydantic import (
    Field,
)
from pydantic_settings import BaseSettings


class NamedModelSettings(BaseSettings):
    """How many named models there may be, and how many are loaded."""

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
    cluster: bool = Field(
        False,
        description="Whether the API answers for all models of the cluster that model names, which "
        "`gmr cluster up` began.",
    )
    api_models: int = Field(
        64,
        ge=1,
        le=10_000,
        description="Named models whose snapshots an API process holds, at most; those asked for "
        "longest ago go first.",
    )
