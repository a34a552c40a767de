"""Objects of one folder of a store: put if absent, read, listed, deleted. obstore does the work.

Addresses hold no secrets: credentials come from the environment alone, under the names that the
stores' own tools use. What a store says in an error may hold some, so it is masked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from core.errors import InvalidCheckpoint, InvalidSettings
from service.store.kept import StoreUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

TIMEOUT: Final = timedelta(seconds=60)
CONNECT_TIMEOUT: Final = timedelta(seconds=5)
RETRIES: Final = 3
RETRY_TIMEOUT: Final = timedelta(seconds=60)

MOST_NAMES: Final = 10_000
"""Objects of one model that a listing looks at."""

SECRET_NAMES: Final = re.compile(r"^(AWS|AZURE|GOOGLE)_.*(KEY|SECRET|TOKEN|CREDENTIAL|SAS|ACCOUNT)")
SHORTEST_SECRET: Final = 6
MOST_SAID: Final = 300


class Stored(NamedTuple):
    """What a listing says of an object."""

    nbytes: int
    time: float  # Unix seconds


class ObjectExists(Exception):
    """Something has that name already."""


class Objects:
    """One folder of a store.

    Arguments:
        url: Of the store: s3://BUCKET/PREFIX, gs://, az:// or file:///PATH.
        folder: Within it.

    Raises:
        InvalidSettings: The library is not installed, or the address will not do.
    """

    def __init__(self, url: str, folder: str) -> None:
        self.place = f"{url.rstrip('/')}/{folder}"
        self._folder = folder
        self._store = _open(url)
        path = urlsplit(url)
        # A store elsewhere answers when it has the bytes for good; a disk wants to be told to.
        self._disk = Path(unquote(path.path)) if path.scheme == "file" else None

    def put_new(self, name: str, data: bytes) -> None:
        """Put an object, unless the name is taken.

        Raises:
            ObjectExists: It is, or an earlier attempt arrived whose answer was lost.
            StoreUnavailable: It may be there, or not.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            obstore.put(self._store, self._at(name), data, mode="create", use_multipart=False)
            if self._disk is not None:
                _force(self._disk / self._at(name))
        except (AlreadyExistsError, PreconditionError) as error:
            raise ObjectExists(name) from error
        except Exception as error:
            raise self._failed("put", name, error) from error

    def get(self, name: str, nbytes: int | None = None) -> bytes:
        """The bytes of an object.

        Arguments:
            name: Of the object.
            nbytes: How many it must have; None: any number.

        Raises:
            InvalidCheckpoint: It is not there, or has another size.
            StoreUnavailable: It cannot be read for the moment.
        """
        import obstore

        try:
            found = obstore.get(self._store, self._at(name))
            size = found.meta["size"]
            if nbytes is not None and size != nbytes:
                raise of_another_size(f"{self.place}/{name}", size, nbytes)
            return bytes(found.bytes())
        except FileNotFoundError as error:
            raise gone(f"{self.place}/{name}") from error
        except InvalidCheckpoint:
            raise
        except Exception as error:
            raise self._failed("get", name, error) from error

    def names(self) -> dict[str, Stored]:
        """What is in the folder, the first ten thousand, by name.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        import obstore

        found: dict[str, Stored] = {}
        try:
            for some in obstore.list(self._store, prefix=self._folder):
                for one in some:
                    name = one["path"].removeprefix(f"{self._folder}/")
                    if "/" not in name:
                        found[name] = Stored(one["size"], one["last_modified"].timestamp())
                if len(found) >= MOST_NAMES:
                    break
        except FileNotFoundError:
            return {}
        except Exception as error:
            raise self._failed("list", "", error) from error
        return found

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are not there are no error.

        Raises:
            StoreUnavailable: Some may be left.
        """
        import obstore

        for name in names:
            try:
                obstore.delete(self._store, self._at(name))
            except FileNotFoundError:
                continue
            except Exception as error:
                raise self._failed("delete", name, error) from error

    def clear(self) -> int:
        """Delete all that is in the folder; how much that was.

        Raises:
            StoreUnavailable: Some may be left.
        """
        n_deleted = 0
        while names := self.names():
            self.delete(names)
            n_deleted += len(names)
        return n_deleted

    def _at(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _failed(self, what: str, name: str, error: Exception) -> StoreUnavailable:
        where = f"{self.place}/{name}".rstrip("/")
        return StoreUnavailable(f"{what} {where}: {masked(str(error))}")


def gone(place: str) -> InvalidCheckpoint:
    """The error for an object that is not there any more."""
    return InvalidCheckpoint(f"{place} is not there. Look whether something deletes in that store.")


def of_another_size(place: str, got: int, expected: int) -> InvalidCheckpoint:
    """The error for an object that has lost bytes, or gained some."""
    return InvalidCheckpoint(f"{place} has {got} bytes; expected {expected}. Look after the store.")


@lru_cache(maxsize=8)
def _open(url: str) -> ObjectStore:
    """A store; models share its connections.

    Raises:
        InvalidSettings: The library is not installed, or the address will not do.
    """
    try:
        from obstore.store import LocalStore, from_url
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            f"checkpoints is {url}, which needs obstore, and obstore is not installed. Install it "
            f"with pip install 'gmr-stream[store]', or set GMR_CHECKPOINTS=dir."
        ) from error
    try:
        if url.startswith("file://"):
            root = Path(unquote(urlsplit(url).path))
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            return LocalStore(root)
        open_url: Any = from_url  # whose types ask for the kind of store, too
        store: ObjectStore = open_url(
            url,
            client_options={
                "timeout": TIMEOUT,
                "connect_timeout": CONNECT_TIMEOUT,
                # Ours would go before what the environment says of it.
                "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true"),
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_TIMEOUT},
        )
        return store
    except Exception as error:
        raise InvalidSettings(
            f"The store {url} cannot be used: {masked(str(error))}. Expected s3://BUCKET/PREFIX, "
            f"gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///PATH in GMR_CHECKPOINTS, and "
            f"credentials in the store's own environment variables."
        ) from error


def masked(text: str) -> str:
    """What a store says, in one line, without what the environment keeps secret.

    Example:
        >>> masked("PUT https://a.example/b?sig=s3cret failed\\n\\nDebug source:\\n...")
        'PUT https://a.example/b?*** failed'
    """
    text = text.partition("\n\nDebug source")[0]
    for name, value in os.environ.items():
        if SECRET_NAMES.match(name) and len(value) >= SHORTEST_SECRET:
            text = text.replace(value, "***")
    text = re.sub(r"(https?://[^\s?]*)\?[^\s)\"']*", r"\1?***", text)
    return " ".join(text.split())[:MOST_SAID]


def _force(path: Path) -> None:
    """Have the disk hold a file and its name for good."""
    for one in (path, path.parent):
        descriptor = os.open(one, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
