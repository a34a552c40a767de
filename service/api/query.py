"""Which parameters a query may have: those that the route declares, each as often as it says.

A parameter that nothing reads is refused before anything is done. A misspelt `batch_id` would
protect nothing, and a misspelt `classes` would be answered with samples of any class.

`/metrics` and the pages for people ignore what they do not know: Prometheus and browsers may be
told to add parameters of their own.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property
from types import UnionType
from typing import Any, Union, get_args, get_origin

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams

from core.errors import InvalidRequest

LONGEST_SHOWN = 40
"""Characters of a name that an answer repeats."""


class StrictRoute(APIRoute):
    """A route that refuses parameters of the query that it does not declare.

    Declared are the parameters of its function, and those of its `openapi_extra`. A list takes a
    parameter as often as it comes, everything else once.
    """

    @cached_property
    def parameters(self) -> Mapping[str, bool]:
        """Name -> whether it may come more than once."""
        declared = {
            field.alias: _is_list(field.field_info.annotation)
            for field in self.dependant.query_params
        }
        for parameter in (self.openapi_extra or {}).get("parameters", ()):
            if parameter["in"] == "query":
                declared[parameter["name"]] = parameter["schema"].get("type") == "array"
        return declared

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The framework's handler, behind the check."""
        handler = super().get_route_handler()

        async def checked(request: Request) -> Response:
            if request.scope["query_string"]:
                check(request.query_params, self.parameters)
            return await handler(request)

        return checked


def check(query: QueryParams, declared: Mapping[str, bool]) -> None:
    """Refuse the first parameter that is not declared, or that comes too often.

    Arguments:
        query: Of a request.
        declared: Name -> whether it may come more than once.

    Raises:
        InvalidRequest: There is one; the error names it and the parameters that there are.

    Example:
        >>> check(QueryParams("n=2&classes=1&classes=2"), {"n": False, "classes": True})
        >>> check(QueryParams("class=2"), {"n": False, "classes": True})
        Traceback (most recent call last):
        ...
        core.errors.InvalidRequest: This route has no parameter 'class'. Did you mean `classes`? \
It takes classes, n.
    """
    seen = set[str]()
    for name, _ in query.multi_items():
        if name not in declared:
            raise _refused(name, f"This route has no parameter {_shown(name)}.", declared)
        if name in seen and not declared[name]:
            raise _refused(
                name,
                f"The parameter {_shown(name)} comes {len(query.getlist(name))} times; expected "
                f"it once.",
                declared,
            )
        seen.add(name)


def _refused(name: str, what: str, declared: Mapping[str, bool]) -> InvalidRequest:
    known = sorted(declared)
    close = [] if name in declared else difflib.get_close_matches(name[:200], known, n=1)
    if close:
        advice = f"Did you mean `{close[0]}`? It takes {', '.join(known)}."
    elif not known:
        advice = "It takes none; leave it out."
    else:
        advice = f"It takes {', '.join(known)}; correct the name or leave it out."
    if name in declared:
        advice = "Leave out all but one."
    shown = name[:LONGEST_SHOWN]
    return InvalidRequest(
        f"{what} {advice}",
        parameter=shown,
        known=known,
        errors=[{"where": f"query.{shown}", "what": what}],
    )


def _shown(name: str) -> str:
    return repr(name[:LONGEST_SHOWN])


def _is_list(annotation: Any) -> bool:
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return any((get_origin(part) or part) is list for part in parts)
