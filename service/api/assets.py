"""Files that the page at `/` is made of: read once, compressed once, named by their content.

Rules of this module:

1. A file is found by its name in a table made at the start, so that no path of a request ever
   reaches the disk.
2. The entity tag is of the content. Any replica of the same release answers the same tag, and a
   browser that has the file is answered 304.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from fastapi import Request, Response

from service.api.entity_tag import is_known, tag_of
from service.api.negotiation import GZIP, choose_coding

TYPES: Final[Mapping[str, str]] = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""What is served, by the end of its name; nothing else is."""

HEADERS: Final[Mapping[str, str]] = {
    # Kept by the browser and asked for again, at the price of an answer without a body.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True)
class Asset:
    """One file.

    Arguments:
        media_type: Of its content.
        plain: The content.
        packed: The same compressed by gzip.
        tag: Entity tag, quoted, as HTTP has it.
    """

    media_type: str
    plain: bytes
    packed: bytes
    tag: str

    @classmethod
    def of(cls, name: str, content: bytes) -> Asset:
        """The file of this name and content.

        Example:
            >>> Asset.of("a.css", b"p { margin: 0 }").media_type
            'text/css; charset=utf-8'
        """
        packed = gzip.compress(content, mtime=0)
        return cls(TYPES[name.rpartition(".")[2]], content, packed, tag_of(content))

    def answer(self, request: Request, headers: Mapping[str, str] | None = None) -> Response:
        """The file, compressed where the client reads that; 304 where it has it already.

        Arguments:
            request: Its headers decide.
            headers: More to answer with.

        Raises:
            NotAcceptable: The client wants it neither compressed nor plain.
        """
        every = {**HEADERS, "ETag": self.tag, **(headers or {})}
        if is_known(self.tag, request):
            return Response(status_code=304, headers=every)
        if choose_coding(request.headers.get("accept-encoding")) == GZIP:
            every["Content-Encoding"] = GZIP
            return Response(self.packed, headers=every, media_type=self.media_type)
        return Response(self.plain, headers=every, media_type=self.media_type)


def read(package: str, folder: str) -> dict[str, Asset]:
    """Every file below a folder of a package, by its path within the folder."""
    root = resources.files(package).joinpath(folder)
    return {name: Asset.of(name, file.read_bytes()) for name, file in _files(root)}


def _files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _files(one, f"{prefix}{one.name}/")
        elif one.name.rpartition(".")[2] in TYPES:
            yield f"{prefix}{one.name}", one
