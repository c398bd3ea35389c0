"""Who may ask, and for what: token, host, origin, listed files and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pycaffe_fire.board.files import run_files

from .board_cases import Server

pytest.importorskip("starlette", reason="the extra `board` is not installed")


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/live", "/api/runs/x", "/nothing"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT"])
def test_without_the_token_nothing_is_told(server: Server, path: str, method: str) -> None:
    status, content, _ = server.ask(path, method, authorization="none")
    assert status == 403 and b"digits" not in content and server.token.encode() not in content


def test_a_wrong_token_is_refused(server: Server) -> None:
    for wrong in ("", "x", server.token[:-1], server.token + "x", "\u00e9"):
        assert server.ask("/", authorization=f"token {wrong}".encode().decode("latin-1"))[0] == 403
        cookie = f"fire_board_{server.port}={wrong}".encode().decode("latin-1")
        assert server.ask("/", authorization="none", cookie=cookie)[0] == 403
    assert server.ask("/?token=wrong", authorization="none")[0] == 403
    # Only the page itself takes it from the address, where it ends up in histories.
    assert server.ask(f"/static/main.js?token={server.token}", authorization="none")[0] == 403


def test_the_address_gives_a_cookie_that_opens_everything_else(server: Server) -> None:
    status, content, headers = server.ask(f"/?token={server.token}", authorization="none")
    assert status == 200 and b"fire_board" in content
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    given = cookie.partition(";")[0]
    assert server.ask("/static/main.js", authorization="none", cookie=given)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1",
                                  "127.0.0.1:1", "127.0.0.1.evil.example:{port}", ""])  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_another_host_is_refused(server: Server, host: str, method: str) -> None:
    assert server.ask("/", method, host=host.format(port=server.port))[0] == 403


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "HEAD"])
def test_another_origin_is_refused(server: Server, method: str) -> None:
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{server.port}"):
        assert server.ask("/api/runs/x", method, origin=origin)[0] == 403
    own = f"http://127.0.0.1:{server.port}"
    assert server.ask("/api/runs/x", method, origin=own)[0] in (404, 405)


def test_what_changes_something_must_say_where_it_comes_from(server: Server) -> None:
    cookie = f"fire_board_{server.port}={server.token}"
    (row, *_) = server.rows().values()
    path = f"/api/runs/{row['id']}/results"
    assert server.ask(path, "POST", authorization="none", cookie=cookie)[0] == 403
    site = server.ask(path, authorization="none", cookie=cookie, sec_fetch_site="cross-site")
    assert site[0] == 403


def test_every_answer_carries_the_policy(server: Server) -> None:
    for path, token in (("/", ""), ("/nothing", ""), ("/", "none")):
        found = server.ask(path, authorization=token or f"token {server.token}")[2]
        policy = found["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert found["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", [
    "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd",
    "/static/uplot/../../app.py", "/../../etc/passwd", "/static/%00", "/static/",
])  # fmt: skip
def test_there_is_no_way_out_of_the_static_files(server: Server, path: str) -> None:
    assert server.ask(path)[0] == 404


def test_only_listed_files_of_a_run_are_served(server: Server, case: Path) -> None:
    run = server.rows()["good"]["id"]
    names = [f["name"] for f in server.json(f"/api/runs/{run}")["files"]]
    assert "net_log.jsonl" in names and "net_iter_40.caffemodel" in names
    log = (case / "runs" / "good" / "net_log.jsonl").read_bytes()
    assert server.ask(f"/api/runs/{run}/file?name=net_log.jsonl")[1] == log
    for name in ("labels.txt", "../good/net_log.jsonl", "%2e%2e/x", "/etc/passwd", ""):
        assert server.ask(f"/api/runs/{run}/file?name={name}")[0] == 404
    for path in ("archive", "filters", "layer", "onnx", "results"):
        status, content, _ = server.ask(f"/api/runs/{run}/{path}?snapshot=../../net.prototxt")
        assert status in (200, 404) and b"train_lmdb" not in content
        assert status == 404 or path == "layer"
    assert server.ask("/api/runs/..%2f..%2fetc/file?name=passwd")[0] == 404


def test_links_are_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret.caffemodel").write_bytes(b"secret")
    (root / "a_log.jsonl").write_text("{}\n")
    os.symlink(outside / "secret.caffemodel", root / "a_iter_1.caffemodel")
    (root / "a_iter_2.caffemodel").write_bytes(b"ours")
    os.symlink(outside, root / "linked")
    (outside / "b_log.jsonl").write_text("{}\n")
    assert set(run_files(str(root / "a_log.jsonl"), str(root))) == {
        "a_log.jsonl", "a_iter_2.caffemodel",
    }  # fmt: skip
    assert run_files(str(root / "linked" / "b_log.jsonl"), str(root)) == {}
    from pycaffe_fire.board.runs import Runs

    runs = Runs(str(root))
    runs.refresh()
    assert [runs.row(key)["name"] for key in runs.versions()] == ["a"]


def test_uploads_have_limits(server: Server) -> None:
    run = server.rows()["good"]["id"]
    status, content, _ = server.ask(f"/api/runs/{run}/try", "POST", b"\0" * (21 << 20))
    assert status == 413
    status, content, _ = server.ask(f"/api/runs/{run}/try", "POST", b"no image")
    assert status == 422 and "known kind" in json.loads(content)["error"]
