"""A store by its address: which one it is, what is refused, and what is never shown."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import ConfigError, JSONLStore, PostgresStore, SQLiteStore, open_store
from interlock.log.session import create_session, open_session
from interlock.log.stores.address import Address
from interlock.log.stores.store import Store
from postgres_server import PostgresServer, new_schema


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("a.db", "sqlite", "/work/a.db"),
        ("sqlite:a.db", "sqlite", "/work/a.db"),
        ("sqlite:/data/x:y", "sqlite", "/data/x:y"),
        ("./jsonl:x", "sqlite", "/work/jsonl:x"),
        ("a:b", "sqlite", "/work/a:b"),
        ("~/a.db", "sqlite", "/home/me/a.db"),
        ("jsonl:logs", "jsonl", "/work/logs"),
        ("JSONL:~/logs", "jsonl", "/home/me/logs"),
        ("jsonl:.", "jsonl", "/work"),
    ],
)
def test_a_path_is_a_file_and_a_scheme_says_what_else(
    text: str, kind: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr(os, "getcwd", lambda: "/work")
    address = Address.of(text)
    assert (address.kind, address.place, str(address), address.password) == (kind, place, place, None)


@pytest.mark.parametrize(
    ("text", "place", "schema", "shown", "password"),
    [
        ("postgresql:///agents", "postgresql:///agents", "interlock", "postgresql:///agents", None),
        ("postgres://h/d", "postgresql://h/d", "interlock", "postgresql://h/d", None),
        ("postgresql://u:p%40w@h:5432/d", None, "interlock", "postgresql://u@h:5432/d", "p@w"),
        ("postgresql://u@h1:1,[::1]:2/d", None, "interlock", "postgresql://u@h1:1,[::1]:2/d", None),
        (
            "postgresql://h/d?schema=a%20b&password=secret&sslmode=require",
            "postgresql://h/d?password=secret&sslmode=require",
            "a b",
            "postgresql://h/d?schema=a%20b",
            "secret",
        ),
        ("postgresql://u@/d?host=/run/@x", None, "interlock", "postgresql://u@/d", None),
    ],
)
def test_an_address_of_postgres_is_that_of_libpq_with_a_schema(
    text: str, place: str | None, schema: str, shown: str, password: str | None
) -> None:
    address = Address.of(text)
    assert (address.kind, address.place, address.schema) == ("postgres", place or text, schema)
    assert (str(address), repr(address), address.password) == (shown, f"<Address {shown}>", password)
    assert isinstance(address.store(), PostgresStore)


def test_without_an_address_it_is_the_default_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path))
    store = open_store()
    assert isinstance(store, SQLiteStore)
    assert store.path == tmp_path / "interlock.db"


def test_a_path_need_not_be_text(tmp_path: Path) -> None:
    store = open_store(tmp_path / "jsonl:x")
    assert isinstance(store, SQLiteStore)
    assert store.path == tmp_path / "jsonl:x"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no place"),
        ("sqlite:", "names no place"),
        ("jsonl: ", "names no place"),
        ("mysql://u:CANARY@h/d", "No store is called mysql."),
        ("redis:CANARY", "No store is called redis."),
        ("postgresql:h/CANARY", "This is no address of a PostgreSQL database."),
        ("postgresql://u:CAN/CANARY@h/d", "written %40 %3A %2F %3F and %25"),
        ("postgresql://u:CAN@CANARY@h/d", "written %40 %3A %2F %3F and %25"),
        ("postgresql://u:CAN?CANARY@h/d", "written %40 %3A %2F %3F and %25"),
        ("postgresql://h:CANARY/d", "This is no address of a PostgreSQL database."),
        ("postgresql://u:%zzCANARY@h/d", "This is no address of a PostgreSQL database: "),
        ("postgresql://u:%CANARY@h/d", "it is not UTF-8."),
        ("postgresql://u:\udcffCANARY@h/d", "it is not UTF-8."),
        ("postgresql://h/d?CANARY", "This is no address of a PostgreSQL database: "),
    ],
)
def test_what_is_no_address_is_refused_without_its_password(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(text)
    assert said in str(refused.value)
    assert "CANARY" not in str(refused.value)


@given(st.text(st.characters(codec="utf-8"), max_size=12), st.booleans(), st.booleans())
def test_no_part_of_a_password_is_ever_shown(between: str, quoted: bool, parameter: bool) -> None:
    """However it is written, and whatever libpq makes of it."""
    password = f"CANARY{between}CANARY"
    written = quote(password, safe="") if quoted else password
    text = (
        f"postgresql://u@h/d?password={written}"
        if parameter
        else f"postgresql://u:{written}@h/d?connect_timeout=2"
    )
    try:
        address = Address.of(text)
        shown = f"{address} {address!r} {address.store().place}"  # type: ignore[attr-defined]  # it is a PostgresStore
    except ConfigError as error:
        shown = f"{error} {error.__cause__}"
    else:
        assert not quoted or address.password == password
    assert "CANARY" not in shown


def test_another_kind_of_thing_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"is a folder\. A SQLite file is in one; .* is jsonl:FOLDER"):
        open_store(str(tmp_path))
    with pytest.raises(ConfigError, match=r"file is no folder: jsonl:FOLDER has a file for each session"):
        open_store(f"jsonl:{tmp_path / 'file'}")


def test_what_is_missing_for_postgres_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "interlock.log.stores.postgres.database", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"psycopg is not installed\. Install it: pip install"):
        open_store("postgresql://u:CANARY@h/d")


async def _kept(store: Store) -> str:
    async with store:
        session = await create_session(store)
        await session.close()
        return session.id


@pytest.mark.parametrize(("scheme", "cls"), [("", SQLiteStore), ("jsonl:", JSONLStore)])
async def test_whether_something_is_kept_there_is_found_out_without_making_it(
    scheme: str, cls: type, tmp_path: Path
) -> None:
    address = Address.of(f"{scheme}{tmp_path / 'a' / 'b'}")
    assert not await address.there()
    assert os.listdir(tmp_path) == []
    session_id = await _kept(address.store())
    assert await address.there()
    async with open_store(f"{scheme}{tmp_path / 'a' / 'b'}") as store:
        assert type(store) is cls
        assert (await open_session(session_id, store=store, readonly=True)).id == session_id


async def test_a_place_that_cannot_be_looked_at_may_have_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "stat", refused)
    assert await Address("sqlite", str(tmp_path / "a")).there()


@pytest.mark.slow
async def test_the_same_of_a_database(postgres: PostgresServer) -> None:
    schema = new_schema()
    address = Address.of(f"{postgres.url}&schema={schema}")
    assert not await address.there()
    assert postgres.query(f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'") == [(0,)]
    session_id = await _kept(address.store())
    assert await address.there()
    async with open_store(f"{postgres.url}&schema={schema}") as store:
        assert [info.id for info in await store.list()] == [session_id]


async def test_a_server_that_cannot_be_asked_may_have_something() -> None:
    assert await Address.of("postgresql://u:CANARY@127.0.0.1:1/d").there()
