"""A store by its address, as people write it: `agents.db`, `jsonl:sessions`, `postgresql://agents@db.example/agents`.

Lives here: `open_store` and `Address`. An address may have a password: what is shown of one is made of its other
parts. A store's own module is imported when its kind is named.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import quote, unquote

import msgspec

from interlock.errors import ConfigError
from interlock.log.stores.store import Store

Kind: TypeAlias = Literal["sqlite", "jsonl", "postgres"]

SCHEMA = "interlock"  # of a PostgreSQL database, where the address names none
_KNOWN = (
    "An address is the path of a SQLite file, sqlite:PATH, jsonl:FOLDER or postgresql://USER@HOST/DATABASE"
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_POSTGRES = ("postgresql", "postgres")
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:\d*)?")


class Address(msgspec.Struct, frozen=True):
    """Where sessions are kept.

    place: the path of the file or of the folder, or what psycopg connects to; it may have a password.
    """

    kind: Kind
    place: str
    schema: str = SCHEMA

    @classmethod
    def of(cls, text: str | os.PathLike[str] | None = None) -> Address:
        """
        Args:
            text: None is the default file.

        Raises:
            ConfigError: it is no address.
        """
        if text is None:
            from interlock.log.stores.sqlite.database import default_path

            return cls("sqlite", str(default_path().absolute()))
        if not isinstance(text, str):
            return cls("sqlite", _path(os.fspath(text)))
        found = _SCHEME.match(text)
        scheme, rest = (found[1].lower(), text[found.end() :]) if found is not None else (None, text)
        if scheme in _POSTGRES:
            return _postgres(rest)
        if scheme not in (None, "sqlite", "jsonl"):
            raise ConfigError(f"No store is called {scheme}. {_KNOWN}; a path with a colon begins with ./")
        if not rest.strip() or "\0" in rest:
            raise ConfigError(f"The address of a store names no place. {_KNOWN}.")
        return cls("jsonl" if scheme == "jsonl" else "sqlite", _path(rest))

    def __str__(self) -> str:
        """For a person, without a password."""
        if self.kind != "postgres":
            return self.place
        authority, slash, after = self.place.partition("://")[2].partition("?")[0].partition("/")
        user, at, host = authority.rpartition("@")
        schema = "" if self.schema == SCHEMA else f"?schema={quote(self.schema)}"
        return f"postgresql://{user.partition(':')[0]}{at}{host}{slash}{after}{schema}"

    @property
    def password(self) -> str | None:
        """The one that the address has."""
        if self.kind != "postgres":
            return None
        before, _, asked = self.place.partition("://")[2].partition("?")
        user, at, _ = before.partition("/")[0].rpartition("@")
        _, colon, given = user.partition(":")
        named = [one.partition("=")[2] for one in asked.split("&") if one.startswith("password=")]
        return unquote(named[-1] if named else given) if named or (at and colon) else None

    def __repr__(self) -> str:
        return f"<Address {self}>"

    def store(self) -> Store:
        """The store; it opens what is there, or makes it, when it is first used.

        Raises:
            ConfigError: something else is there, or what the store needs is not installed.
        """
        match self.kind:
            case "sqlite":
                from interlock.log.stores.sqlite.store import SQLiteStore

                if os.path.isdir(self.place):
                    raise ConfigError(
                        f"{self} is a folder. A SQLite file is in one; a folder of JSON Lines is jsonl:FOLDER."
                    )
                return SQLiteStore(self.place)
            case "jsonl":
                from interlock.log.stores.jsonl.store import JSONLStore

                if os.path.exists(self.place) and not os.path.isdir(self.place):
                    raise ConfigError(f"{self} is no folder: jsonl:FOLDER has a file for each session.")
                return JSONLStore(self.place)
            case "postgres":
                from interlock.log.stores.postgres.store import PostgresStore

                return PostgresStore(self.place, schema=self.schema)

    async def there(self) -> bool:
        """Whether anything is kept there yet, without making anything. A server that cannot be asked has something.

        Raises:
            ConfigError: as of `store`.
        """
        if self.kind != "postgres":
            try:
                os.stat(self.place)
            except (FileNotFoundError, NotADirectoryError):
                return False
            except OSError:
                return True  # whoever uses the store is told what is wrong
            return True
        self.store()  # it says what is missing
        return await asyncio.to_thread(_has_tables, self.place, self.schema)


def open_store(address: str | os.PathLike[str] | None = None) -> Store:
    """The store at an address: a path or `sqlite:PATH` for a SQLite file, `jsonl:FOLDER`, `postgresql://…`.

    It is an async context manager, and belongs to the event loop in which it is first used; then what is missing is
    made. None is the default file. Of an address of PostgreSQL, `schema=NAME` behind the `?` names the schema.

    Raises:
        ConfigError: it is no address, something else is there, or psycopg is not installed. It never has a password.
    """
    return Address.of(address).store()


def _path(text: str) -> str:
    return str(Path(text).expanduser().absolute())


def _postgres(rest: str) -> Address:
    """
    Raises:
        ConfigError: it would be read as something else than was meant, and shown with a part of the password.
    """
    before, _, asked = rest.removeprefix("//").partition("?")
    authority = before.partition("/")[0]
    user, at, hosts = authority.rpartition("@")
    odd = "@" in user or "@" in before[len(authority) :] or (not at and "@" in asked and ":" in authority)
    if not rest.startswith("//") or odd or not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise ConfigError(
            "This is no address of a PostgreSQL database. It is postgresql://USER:PASSWORD@HOST:PORT/DATABASE, where "
            "@ : / ? and % in a name or password are written %40 %3A %2F %3F and %25."
        )
    parameters = asked.split("&")
    named = [one.removeprefix("schema=") for one in parameters if one.startswith("schema=")]
    kept = "&".join([one for one in parameters if not one.startswith("schema=")])
    schema = unquote(named[-1]) if named else SCHEMA
    return Address("postgres", f"postgresql://{before}" + (f"?{kept}" if kept else ""), schema)


def _has_tables(conninfo: str, schema: str) -> bool:
    import psycopg

    from interlock.log.stores.postgres.database import Database

    database = Database(conninfo, schema)
    try:
        with database.connect() as connection:
            return database.made(connection)
    except psycopg.Error:
        return True  # whoever uses the store is told what is wrong
