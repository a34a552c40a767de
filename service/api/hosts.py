"""By which names the service may be asked, and which pages may ask it to change.

The service trusts whoever can reach it on loopback, and there a browser is a danger: a page of
another site can send requests to it, and by rebinding a name of its own to 127.0.0.1 it can read
the answers, too. Such requests bear that name in `Host`, and the page's site in `Origin`.
"""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from service.settings import Settings

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")


class TrustedHosts:
    """Decides on the headers `Host` and `Origin`.

    Arguments:
        settings: Say where the service listens, and which names are its own.
    """

    def __init__(self, settings: Settings) -> None:
        names = {name.strip().lower() for name in settings.allowed_hosts.split(",")} - {""}
        self._allowed = frozenset(names)
        if settings.on_loopback:
            names.add(settings.host.lower())
        if names:
            # A page can give itself any name but these; health checks ask by them.
            names |= set(LOOPBACK_NAMES)
        self._names = names
        self._any = not names

    def serves(self, host: str) -> bool:
        """Whether a request for this `Host` is meant for this service.

        Example:
            >>> hosts = TrustedHosts(Settings(allowed_hosts="gmr.example"))
            >>> [hosts.serves(one) for one in ("localhost:8000", "gmr.example", "evil.example")]
            [True, True, False]
        """
        name = name_of(host)
        return self._any or name in self._names or name.endswith(".localhost")

    def trusts(self, origin: str, host: str) -> bool:
        """Whether a page of this `Origin` may change what `host` serves: only its own pages may.

        Example:
            >>> hosts = TrustedHosts(Settings())
            >>> hosts.trusts("http://localhost:8000", "localhost:8000")
            True
            >>> hosts.trusts("http://localhost:3000", "localhost:8000"), hosts.trusts("null", "a")
            (False, False)
        """
        parts = urlsplit(origin)
        default = {"http": 80, "https": 443}.get(parts.scheme)
        if default is None:
            return False
        try:
            asked = urlsplit(f"{parts.scheme}://{host}")
            same_port = (parts.port or default) == (asked.port or default)
        except ValueError:
            return False
        if parts.hostname is None:
            return False
        # A proxy in front may ask by another name than the page did.
        return parts.hostname in self._allowed or (parts.hostname == asked.hostname and same_port)


def name_of(host: str) -> str:
    """The name or address of a `Host`, without its port.

    Example:
        >>> name_of("[::1]:8000"), name_of("LocalHost:80"), name_of("127.0.0.1")
        ('::1', 'localhost', '127.0.0.1')
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        return str(ipaddress.ip_address(name)) if ":" in name else name
    except ValueError:
        return ""
