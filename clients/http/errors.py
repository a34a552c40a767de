"""Everything the clients raise on purpose.

* GMRError (core.errors)
  + ClientError             root of this tree
    - InputError            a file, a data set, a sub-task list or an option cannot be used
      · HasLearned          a copy would replace what a model holds
    - ServiceUnreachable    no answer came: refused, timed out, or broken off, retries included
    - UnexpectedAnswer      an answer came that the contract does not know
    - WaitTimeout           what was waited for did not happen in time
    - ServiceError          the service answered with a problem document
      · RequestRefused      400, 404, 405, 413, 415, 422: change the request
      · RequestConflict     409: the state of the service does not allow it now
      · NotLearnedYet       409 of a model that has learned nothing, or no class
      · NotAuthorised       401, 403: the service, or a proxy before it, does not let you
      · ServiceBusy         429: too much backlog; try again later
      · ServiceUnavailable  502, 503, 504: a part of the service is away
      · ServiceFailed       any other 5xx: a defect of the service

The split says who can act: the first five of these are for whoever called, the
last three for whoever runs the service.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.errors import GMRError


class ClientError(GMRError):
    """Root of the tree."""


class InputError(ClientError):
    """A file, a data set, a sub-task list or an option cannot be used as given."""


class HasLearned(InputError):
    """A copy would replace the state of a model that has learned or accepted samples."""


class ServiceUnreachable(ClientError):
    """No answer came from the service."""


class UnexpectedAnswer(ClientError):
    """The answer is not what the contract says, so client and service do not fit."""


class WaitTimeout(ClientError):
    """An awaited event did not happen in time."""


class ServiceError(ClientError):
    """The service answered with an error.

    Attributes:
        status: HTTP status.
        title: What kind of problem it is, the same text for every occurrence.
        detail: What happened this time, with numbers.
        type: URI of the kind of problem.
        instance: What the problem is about, if the service said so.
        retry_after: Seconds to wait before another try, if the service said so.
        context: The numbers that help, as the service sent them.
    """

    def __init__(
        self,
        *,
        status: int,
        title: str,
        detail: str = "",
        type: str = "about:blank",
        instance: str | None = None,
        retry_after: float | None = None,
        context: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(f"{detail or title} (HTTP {status})", **dict(context or {}))
        self.status = status
        self.title = title
        self.detail = detail
        self.type = type
        self.instance = instance
        self.retry_after = retry_after


class RequestRefused(ServiceError):
    """The request cannot be answered as it was put; sending it again will not help."""


class RequestConflict(ServiceError):
    """The state of the service does not allow the request now."""


class NotLearnedYet(RequestConflict):
    """The model has not learned what the request needs."""


class NotAuthorised(ServiceError):
    """The service, or a proxy before it, does not let this caller do that."""


class ServiceBusy(ServiceError):
    """Too much is waiting to be learned; try again after `retry_after` seconds."""


class ServiceUnavailable(ServiceError):
    """A part of the service is away; try again later."""


class ServiceFailed(ServiceError):
    """A defect of the service: please report it with `instance`."""
