"""The label of a class, as it is typed."""

from __future__ import annotations

import re

from clients.http.answers import Label
from clients.http.client import GMRClient


def class_label(client: GMRClient, text: str) -> Label:
    """A class as it was typed: one that is known, else a whole number or text."""
    text = text.strip()
    whole = re.fullmatch(r"-?[0-9]+", text)
    return text if whole is None or text in client.model().labels else int(text)
