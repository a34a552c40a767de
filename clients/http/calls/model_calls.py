"""Calls about the model, its versions, and named models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import orjson

from clients.http import answers, replies
from clients.http.calls.call import JSON, Call, T, get, put
from service.wire import MEDIA_TYPE


def models(detail: bool = False) -> Call[tuple[answers.ListedModel, ...]]:
    """GET /models."""
    query = (("detail", "true"),) if detail else ()
    return get("/models", replies.named_models, query)


def named_model(name: str) -> Call[answers.NamedModelSummary]:
    """GET /models/{name}."""
    return get(
        f"/models/{quote(name, safe='')}",
        lambda document: answers.build(answers.NamedModelSummary, document),
    )


def make_model(name: str, settings: Mapping[str, Any]) -> Call[answers.NamedModel]:
    """PUT /models/{name}."""
    return Call(
        "PUT",
        f"/models/{quote(name, safe='')}",
        lambda reply: answers.build(answers.NamedModel, replies.json(reply)),
        headers={"accept": JSON, "content-type": JSON},
        body=orjson.dumps({"settings": dict(settings)}),
    )


def take_down_model(name: str) -> Call[None]:
    """DELETE /models/{name}. Not repeatable: the second time there may be none."""
    return Call(
        "DELETE",
        f"/models/{quote(name, safe='')}",
        lambda reply: None,
        headers={"accept": JSON},
        repeatable=False,
    )


def of_model(name: str | None, call: Call[T]) -> Call[T]:
    """The same call for a named model; None for the service's own."""
    if name is None:
        return call
    return replace(call, path=f"/models/{quote(name, safe='')}{call.path}")


def feature_names() -> Call[tuple[str, ...] | None]:
    """GET /model/feature-names."""
    return get("/model/feature-names", replies.feature_names)


def name_features(names: Sequence[str] | None) -> Call[None]:
    """PUT or DELETE /model/feature-names."""
    if names is None:
        return Call("DELETE", "/model/feature-names", lambda reply: None, headers={"accept": JSON})
    return Call(
        "PUT",
        "/model/feature-names",
        lambda reply: None,
        headers={"accept": JSON, "content-type": JSON},
        body=orjson.dumps({"feature_names": list(names)}),
    )


def set_mode(mode: str, reason: str | None, by: str | None) -> Call[answers.Restored]:
    """PUT /model/mode."""
    return put("/model/mode", {"mode": mode, "reason": reason, "by": by})


def settings() -> Call[Mapping[str, answers.Setting]]:
    """GET /model/settings."""
    return get(
        "/model/settings",
        lambda document: {
            name: answers.build(answers.Setting, row)
            for name, row in replies.field_of(document, "settings").items()
        },
    )


def change_settings(
    settings: Mapping[str, float | int | None], reason: str | None, by: str | None
) -> Call[answers.Restored]:
    """PATCH /model/settings."""
    body: dict[str, object] = {"settings": dict(settings), "reason": reason, "by": by}
    return replace(put("/model/settings", body), method="PATCH")


def model() -> Call[answers.ModelInfo]:
    """GET /model."""
    return get("/model", replies.model_info)


def versions() -> Call[tuple[answers.ModelVersion, ...]]:
    """GET /model/versions."""
    return get(
        "/model/versions",
        lambda document: tuple(
            answers.build(answers.ModelVersion, row)
            for row in replies.rows_of(document, "versions")
        ),
    )


def rollback(version: int) -> Call[answers.Restored]:
    """POST /model/rollback. Not repeatable: it would undo what was learned in between."""
    return Call(
        "POST",
        "/model/rollback",
        lambda reply: answers.build(answers.Restored, replies.json(reply)),
        headers={"content-type": JSON, "accept": JSON},
        body=orjson.dumps({"version": version}),
        repeatable=False,
    )


def release(reason: str | None, by: str | None) -> Call[answers.Restored]:
    """POST /model/release. Not repeatable: the second time nothing may be held back."""
    return Call(
        "POST",
        "/model/release",
        lambda reply: answers.build(answers.Restored, replies.json(reply)),
        headers={"content-type": JSON, "accept": JSON},
        body=orjson.dumps({"reason": reason, "by": by}),
        repeatable=False,
    )


def _about_classes(
    path: str,
    labels: dict[str, answers.Label],
    reason: str | None,
    by: str | None,
    *,
    repeatable: bool,
) -> Call[answers.Restored]:
    return Call(
        "POST",
        path,
        lambda reply: answers.build(answers.Restored, replies.json(reply)),
        headers={"content-type": JSON, "accept": JSON},
        body=orjson.dumps({**labels, "reason": reason, "by": by}),
        repeatable=repeatable,
    )


def merge_classes(
    label: answers.Label, into: answers.Label, reason: str | None, by: str | None
) -> Call[answers.Restored]:
    """POST /model/merge-classes. Not repeatable: the second time there is no such class."""
    return _about_classes(
        "/model/merge-classes", {"label": label, "into": into}, reason, by, repeatable=False
    )


def rename_class(
    label: answers.Label, to: answers.Label, reason: str | None, by: str | None
) -> Call[answers.Restored]:
    """POST /model/rename-class. Not repeatable: the second time it has its new name."""
    return _about_classes(
        "/model/rename-class", {"label": label, "to": to}, reason, by, repeatable=False
    )


def checkpoint(version: int | None = None) -> Call[bytes]:
    """GET /model/checkpoint."""
    of_version = "" if version is None else f"?version={version}"
    return Call(
        "GET",
        f"/model/checkpoint{of_version}",
        lambda reply: reply.body,
        headers={"accept": MEDIA_TYPE},
    )


def restore(data: bytes) -> Call[answers.Restored]:
    """PUT /model/checkpoint. Not repeatable, as rolling back is not."""
    return Call(
        "PUT",
        "/model/checkpoint",
        lambda reply: answers.build(answers.Restored, replies.json(reply)),
        headers={"content-type": MEDIA_TYPE, "accept": JSON},
        body=data,
        repeatable=False,
    )
