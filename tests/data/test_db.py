"""Databases: reading by position, the errors of bad ones, and writers that leave nothing half."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb
import pytest

from pycaffe_fire.data import db as db_module
from pycaffe_fire.data import survey
from pycaffe_fire.data.db import open_database
from pycaffe_fire.data.survey import check
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.errors import DataError


def write(path: Path, count: int, size: int = 10) -> Any:
    with DatabaseWriter(path) as writer:
        for i in range(count):
            writer.put(b"%08d" % i, bytes([i % 251]) * size)
    return path


def test_caffes_database(golden: Path) -> None:
    db = open_database("raw_lmdb")
    assert len(db) == 12
    assert [db.key(i)[:8] for i in range(12)] == [b"%08d" % i for i in range(12)]
    assert len(db.record(11)) == 3085


def test_round_trip_and_lazy_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db_module, "_WALK", 7)
    db = open_database(write(tmp_path / "x", 50))
    assert bytes(db.record(3)) == bytes([3]) * 10
    assert len(db._ends) - 1 == 7  # walked no further than needed
    assert db.key(49) == b"00000049" and db.key(20) == b"00000020"
    with pytest.raises(IndexError):
        db.key(50)


def test_threads_share_one_database(tmp_path: Path) -> None:
    path = write(tmp_path / "x", 300)
    db = open_database(path)
    assert open_database(str(path) + "/../x") is db
    wrong: list[int] = []

    def read() -> None:
        wrong.extend(i for i in range(300) if bytes(db.record(i)) != bytes([i % 251]) * 10)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_more_threads_than_reader_slots(tmp_path: Path) -> None:
    db: Any = open_database(write(tmp_path / "x", 10))

    def full(**options: Any) -> None:
        raise lmdb.ReadersFullError("MDB_READERS_FULL")

    real, db._env = db._env, SimpleNamespace(begin=full)
    results = []
    thread = threading.Thread(target=lambda: results.append(bytes(db.record(5))))
    thread.start()
    thread.join()
    db._env = real
    assert results == [bytes([5]) * 10]


def damaged(path: Path, rng: Any) -> None:
    """Some bytes of some pages of a database's tree overwritten, its meta pages left alone."""
    file = path / "data.mdb"
    content = bytearray(file.read_bytes())
    for _ in range(rng.randrange(1, 20)):
        at = rng.randrange(2 * 4096, len(content))
        content[at : at + 4] = rng.choice([b"\xff" * 4, b"\0" * 4, rng.randbytes(4)])
    file.write_bytes(content)


READ_ALL = """
import sys
from pycaffe_fire.data.db import open_database
from pycaffe_fire.errors import DataError
try:
    database = open_database(sys.argv[1])
    for i in range(min(len(database), 100000)):
        bytes(database.record(i))
except DataError as error:
    print(error)
"""


@pytest.mark.parametrize("seed", range(4))
def test_damaged_trees_are_one_sentence(tmp_path: Path, seed: Any) -> None:
    """Errors of the library, and signals where it trusts what it reads, name the database."""
    path = write(tmp_path / "x", 400, size=3000 if seed % 2 else 40)
    damaged(path, random.Random(seed))
    command = [sys.executable, "-c", READ_ALL, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), f"ended by signal {-done.returncode}"
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0 or f"pycaffe_fire: {path}" in done.stderr
    assert not done.stdout or str(path) in done.stdout


def test_errors_of_the_library_name_file_and_key(tmp_path: Path) -> None:
    path = write(tmp_path / "x", 400, size=3000)
    db = open_database(path)
    key = db.key(300)
    content = bytearray((path / "data.mdb").read_bytes())
    for page in range(2, len(content) // 4096):  # every page claims to be one of no known kind
        content[page * 4096 + 10 : page * 4096 + 12] = b"\x77\x77"
    (path / "data.mdb").write_bytes(content)
    with pytest.raises(DataError, match=f"{path}, record '{key.decode()}': the database is damag"):
        db.record(300)


def test_a_database_that_is_cut_short_while_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "x", 400, size=3000)
    db = open_database(path)
    assert len(db.record(399)) == 3000
    os.truncate(path / "data.mdb", 3 * 4096)
    with pytest.raises(DataError, match="truncated: data.mdb has 12,288 bytes of"):
        db.record(399)


def test_last_words_where_only_a_signal_comes(tmp_path: Path) -> None:
    path = write(tmp_path / "x", 400, size=3000)
    program = (
        "import os, sys\n"
        "from pycaffe_fire.data.db import open_database\n"
        "database = open_database(sys.argv[1])\n"
        "view = database.record(399)\n"
        "os.truncate(sys.argv[1] + '/data.mdb', 100)\n"
        "bytes(view)\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert f"{path}/data.mdb: was cut short while it was read (SIGBUS)" in done.stderr


def test_a_count_that_lies(tmp_path: Path) -> None:
    path = write(tmp_path / "x", 20)
    content = bytearray((path / "data.mdb").read_bytes())
    for page in (0, 4096):  # entries of the main tree, in both meta pages
        at = page + 16 + 24 + 48 + 32
        content[at : at + 8] = (1 << 60).to_bytes(8, "little")
    (path / "data.mdb").write_bytes(content)
    with pytest.raises(DataError, match="is damaged"):
        open_database(path)


def die(*arguments: str) -> None:
    os.abort()


def test_a_survey_outlives_the_reading_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "x", 20, size=3000)
    content = bytearray((path / "data.mdb").read_bytes())
    for page in range(2, len(content) // 4096):
        content[page * 4096 + 10 : page * 4096 + 12] = b"\x77\x77"
    (path / "data.mdb").write_bytes(content)
    problems = check(str(path)).problems
    assert len(problems) == 20 and str(path) in problems[0]
    monkeypatch.setattr(survey, "check_here", die)
    with pytest.raises(DataError, match="so damaged that it ended the process that read it"):
        check(str(path))


def test_where_no_lock_file_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x", 4)
    real = lmdb.open

    def refuse_locks(*args: Any, **options: Any) -> Any:
        if options.get("lock", True):
            raise lmdb.ReadonlyError("Permission denied")
        return real(*args, **options)

    monkeypatch.setattr(lmdb, "open", refuse_locks)
    path.chmod(0o555)
    db = open_database(path)
    assert bytes(db.record(3)) == bytes([3]) * 10
    assert sorted(os.listdir(path)) == ["data.mdb"]
    path.chmod(0o755)


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_read_only_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "x", 4)
    path.chmod(0o555)
    assert len(open_database(path)) == 4
    path.chmod(0o755)


def bad_missing(path: Path) -> str:
    return "no such database"


def bad_file(path: Path) -> str:
    path.write_bytes(b"hello")
    return "is a file"


def bad_folder(path: Path) -> str:
    path.mkdir()
    return "has no data.mdb"


def bad_garbage(path: Path) -> str:
    path.mkdir()
    (path / "data.mdb").write_bytes(b"garbage " * 4096)
    return "not an LMDB file"


def bad_zero_bytes(path: Path) -> str:
    path.mkdir()
    (path / "data.mdb").write_bytes(b"")
    return "data.mdb is empty"


def bad_empty(path: Path) -> str:
    write(path, 0)
    return "holds no records"


def bad_truncated(path: Path) -> str:
    write(path, 100, size=5000)
    os.truncate(path / "data.mdb", 300_000)
    return "truncated"


def bad_other_kind(path: Path) -> str:
    path.mkdir()
    (path / "CURRENT").write_text("MANIFEST-1\n")
    return "set backend: LEVELDB"


@pytest.mark.parametrize(
    "make",
    [
        bad_missing, bad_file, bad_folder, bad_garbage, bad_zero_bytes, bad_empty, bad_truncated,
        bad_other_kind,
    ],
)  # fmt: skip
def test_bad_databases(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "bad_lmdb"
    text = make(path)
    with pytest.raises(DataError, match=text) as caught:
        open_database(path)
    assert str(path) in str(caught.value)


def test_unknown_backend(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="known: lmdb, leveldb"):
        open_database(tmp_path, "SQLITE")


def test_leveldb(golden: Path) -> None:
    pytest.importorskip("plyvel")
    before = sorted(os.listdir("raw_leveldb"))
    level, flat = open_database("raw_leveldb", "LEVELDB"), open_database("raw_lmdb")
    assert len(level) == 12
    assert all(bytes(level.record(i)) == bytes(flat.record(i)) for i in range(4))
    assert sorted(os.listdir("raw_leveldb")) == before
    shutil.rmtree("gray_lmdb")
    os.mkdir("gray_lmdb")
    (golden / "gray_lmdb" / "CURRENT").write_text("nonsense")
    with pytest.raises(DataError, match="gray_lmdb: cannot be read as LevelDB"):
        open_database("gray_lmdb", "LEVELDB")


@pytest.mark.parametrize(
    "file, size, message",
    [
        ("000005.ldb", 20000, "000005.ldb"),
        ("000005.ldb", None, "missing files; e.g.: raw_leveldb/000005.ldb"),
        ("MANIFEST-000009", 0, "Corruption"),
        ("CURRENT", 0, "CURRENT file does not end with newline"),
    ],
)
def test_damaged_leveldb(golden: Path, file: str, size: Any, message: str) -> None:
    pytest.importorskip("plyvel")
    path = golden / "raw_leveldb" / file
    path.unlink() if size is None else path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=f"raw_leveldb: cannot be read as LevelDB: .*{message}"):
        open_database("raw_leveldb", "LEVELDB")


def test_damaged_leveldb_record(golden: Path) -> None:
    pytest.importorskip("plyvel")
    path = golden / "raw_leveldb" / "000005.ldb"
    content = bytearray(path.read_bytes())
    content[5000] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataError, match="raw_leveldb: is empty or damaged; make the database"):
        open_database("raw_leveldb", "LEVELDB")


def test_leveldb_without_plyvel(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plyvel", None)
    with pytest.raises(DataError, match="plyvel library, which is not installed; run: pip install"):
        open_database("raw_leveldb", "LEVELDB")


def test_map_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pycaffe_fire.data.writer._COMMIT_BYTES", 1 << 16)
    db = open_database(write(tmp_path / "x", 200, size=9000))
    assert len(db) == 200 and bytes(db.record(199)) == bytes([199]) * 9000


def test_writer_refuses_what_exists(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(DataError, match="exists already"), DatabaseWriter(tmp_path / "x"):
        pass


def test_failed_writer_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), DatabaseWriter(tmp_path / "x") as writer:
        writer.put(b"a", b"b")
        raise KeyError
    assert os.listdir(tmp_path) == []


def test_killed_writer_leaves_no_database(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from pycaffe_fire.data.writer import DatabaseWriter\n"
        "with DatabaseWriter(sys.argv[1]) as writer:\n"
        "    for i in range(5000): writer.put(b'%08d' % i, b'x' * 100)\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    path = tmp_path / "x"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        with DatabaseWriter(tmp_path / "y") as other:  # a living writer's folder is not touched
            other.put(b"a", b"b")
        with DatabaseWriter(path) as same:
            same.put(b"a", b"b")
            assert len([n for n in os.listdir(tmp_path) if n.endswith(".partial")]) == 2
            child.send_signal(signal.SIGKILL)
            child.wait()
    assert len(open_database(path)) == 1
    shutil.rmtree(path)
    write(path, 3)  # tidies up after the dead one
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]
