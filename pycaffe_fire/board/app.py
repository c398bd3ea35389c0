"""What the page may ask for: one small function for each address."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from math import isnan, nan
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ..errors import FireError
from .access import Access
from .files import (
    RunFile,
    archive,
    image_shape,
    nets_of,
    onnx_bytes,
    run_files,
    snapshots,
    test_net,
)
from .follow import RunLog
from .jobs import Jobs
from .nets import drawn, filters, layer_facts
from .overview import overview
from .runs import Runs, epoch_share
from .series import AXES, View
from .workers import Worker, Workers

STATIC = Path(__file__).parent / "static"
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
LOOK = 0.5  # seconds between looks at the logs
BEAT = 15.0  # seconds after which a silent stream says that it lives
MOST_POINTS, MOST_SMOOTH = 4000, 100_000
MOST_BYTES = 20 << 20  # of an uploaded image
UPLOAD_SECONDS = 30.0  # that an upload may be silent
MOST_WHOLE = 2**53  # of numbers in a query: above, floats leave out whole numbers
PAGE = 24  # records


class Board:
    """The runs, the worker processes and the jobs of one server."""

    def __init__(self, folder: str) -> None:
        self.runs = Runs(folder)
        self.workers = Workers()
        self.jobs = Jobs()
        self.changed = asyncio.Event()

    async def follow(self) -> None:
        """Read what the logs gain, for as long as the server runs."""
        while True:
            before = self.runs.version
            behind = await run_in_threadpool(self.runs.refresh)
            if self.runs.version != before:
                self.changed.set()
                self.changed = asyncio.Event()
            await asyncio.sleep(0.01 if behind else LOOK)

    def log(self, request: Request) -> RunLog:
        try:
            return self.runs[request.path_params["run"]]
        except KeyError:
            raise HTTPException(404, "no such run") from None

    def net(self, request: Request) -> dict[str, Any]:
        """The net that a request names."""
        nets = nets_of(self.log(request).run.started)
        try:
            return nets[request.query_params.get("net", "train")]
        except KeyError:
            raise HTTPException(404, "the run has no such net") from None

    def model(self, request: Request) -> RunFile:
        """The snapshot that a request names, or the newest."""
        found = snapshots(run_files(self.log(request).path, self.runs.folder))
        name = request.query_params.get("snapshot") or (found[0].name if found else "")
        for file in found:
            if file.name == name:
                return file
        raise HTTPException(404, "the run has no such snapshot")


# Static files.


def static_files() -> dict[str, Path]:
    """All there is to serve, by name; a request can only choose among these."""
    return {
        path.relative_to(STATIC).as_posix(): path
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in KINDS and path.is_file()
    }


def _static(files: dict[str, Path]) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        path = files.get(request.path_params.get("name", "index.html"))
        if path is None:
            raise HTTPException(404, "no such file")
        return Response(path.read_bytes(), media_type=KINDS[path.suffix])

    return answer


# Runs.


async def live(request: Request) -> Response:
    board: Board = request.app.state.board

    async def stream() -> AsyncIterator[str]:
        known: dict[str, tuple[int, str]] = {}
        first = True
        while True:
            changed, now = board.changed, board.runs.versions()
            news = [key for key, version in now.items() if known.get(key) != version]
            gone = [key for key in known if key not in now]
            if news or gone or first:
                rows = await run_in_threadpool(board.runs.rows, news)
                yield f"data: {_dumps({'rows': rows, 'gone': gone})}\n\n"
            known, first = now, False
            try:
                await asyncio.wait_for(changed.wait(), BEAT)
            except asyncio.TimeoutError:
                yield ": still here\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


def curves(request: Request) -> Response:
    """Curves of one run, thinned out to what a chart can show."""
    board: Board = request.app.state.board
    log, query = board.log(request), request.query_params
    by = query.get("by", "iteration")
    if by not in AXES:
        raise HTTPException(400, f"by must be one of {', '.join(AXES)}")
    view = View(
        by, _number(query, "from", float("-inf")), _number(query, "to", float("inf")),
        int(min(MOST_POINTS, max(2, _number(query, "points", 800)))),
        int(min(MOST_SMOOTH, max(1, _number(query, "smooth", 1)))), epoch_share(log.run.started),
    )  # fmt: skip
    names = query.getlist("name") or sorted(log.run.curves)
    exact = replace(view, smooth=1)  # tests and rates are what they are
    found = {name: log.curve(name, view if _is_noisy(name) else exact) for name in names}
    return _json({name: points for name, points in found.items() if points is not None})


def _is_noisy(name: str) -> bool:
    return name.startswith("train") or name == "images_per_second"


def one_run(request: Request) -> Response:
    board: Board = request.app.state.board
    log = board.log(request)
    row = board.runs.row(request.path_params["run"])
    return _json({"row": row, **overview(log, board.runs.folder)})


# The net.


def net(request: Request) -> Response:
    return _json(drawn(request.app.state.board.net(request)))


def layer(request: Request) -> Response:
    board: Board = request.app.state.board
    try:
        model = board.model(request)
    except HTTPException:
        model = None
    name = request.query_params.get("name", "")
    try:
        return _json(layer_facts(board.log(request), board.net(request), name, model))
    except KeyError:
        raise HTTPException(404, "the net has no such layer") from None


def filter_image(request: Request) -> Response:
    board: Board = request.app.state.board
    query = request.query_params
    blob = _whole(query, "blob")
    return Response(
        filters(board.model(request), query.get("name", ""), blob), media_type="image/png"
    )


# Files.


def file(request: Request) -> Response:
    board: Board = request.app.state.board
    files = run_files(board.log(request).path, board.runs.folder)
    found = files.get(request.query_params.get("name", ""))
    if found is None:
        raise HTTPException(404, "the run has no such file")
    return FileResponse(
        found.path, media_type="application/octet-stream", headers=_download(found.name)
    )


def archive_file(request: Request) -> Response:
    board: Board = request.app.state.board
    log, model = board.log(request), board.model(request)
    made = archive(model, log.path, log.run.started)
    name = model.name.partition(".caffemodel")[0]
    return StreamingResponse(
        iter(lambda: made.read(1 << 20), b""), media_type="application/zip",
        headers=_download(f"{name}.zip"),
    )  # fmt: skip


def onnx_file(request: Request) -> Response:
    board: Board = request.app.state.board
    log, model = board.log(request), board.model(request)
    name = model.name.partition(".caffemodel")[0]
    return Response(
        onnx_bytes(model, log.run.started), media_type="application/octet-stream",
        headers=_download(f"{name}.onnx"),
    )  # fmt: skip


def _download(name: str) -> dict[str, str]:
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}


# Data.


def _browser(request: Request) -> tuple[Worker, tuple[Any, ...]]:
    board: Board = request.app.state.board
    log, net = board.log(request), board.net(request)
    layer = request.query_params.get("layer", "")
    key = (log.path, request.query_params.get("net", "train"), layer)
    arguments = {"prototxt": net["prototxt"], "layer": layer}
    return board.workers.get("browse", key, _folder(log), arguments), key


async def data(request: Request) -> Response:
    worker, _ = _browser(request)
    return _json(await worker.ask("facts"))


async def survey(request: Request) -> Response:
    """POST starts reading all records; GET says how far that is."""
    board: Board = request.app.state.board
    worker, key = _browser(request)
    if request.method == "POST":
        return _json(
            board.jobs.start(("survey", *key), lambda tell: worker.ask("survey", progress=tell))
        )
    return _json(board.jobs.get(("survey", *key)))


async def records(request: Request) -> Response:
    worker, _ = _browser(request)
    query = request.query_params
    label = _whole(query, "label") if query.get("label") else None
    first = max(0, _whole(query, "first"))
    return _json(await worker.ask("page", label=label, first=first, count=PAGE, **_shown_as(query)))


def _shown_as(query: Any) -> dict[str, Any]:
    """Are records wanted as the net sees them, and in which draw?"""
    return {"seen": query.get("seen") == "1", "draw": max(0, _whole(query, "draw"))}


async def record_image(request: Request) -> Response:
    worker, _ = _browser(request)
    query = request.query_params
    image = await worker.ask("image", record=_whole(query, "record"), **_shown_as(query))
    return Response(base64.b64decode(image), media_type="image/png")


# Results.


async def results(request: Request) -> Response:
    """POST starts a test over all records, DELETE ends it, GET says how far it is."""
    board: Board = request.app.state.board
    log, model = board.log(request), board.model(request)
    key = ("results", model.path, model.written)
    if request.method == "DELETE":
        board.jobs.cancel(key)
        return _json({"state": "none"})
    if request.method == "GET":
        return _json(board.jobs.get(key))
    arguments = {"prototxt": test_net(log.run.started)["prototxt"], "model": model.path}

    async def work(tell: Callable[[int, int], None]) -> Any:
        worker = board.workers.get("results", key, _folder(log), arguments)
        try:
            return await worker.ask("run", progress=tell)
        finally:
            board.workers.drop(worker)

    return _json(board.jobs.start(key, work))


# Try it.


async def _trial(request: Request) -> tuple[Worker, tuple[Any, ...]]:
    board: Board = request.app.state.board
    log, model = board.log(request), board.model(request)
    key = (model.path, model.written)
    net = test_net(log.run.started)
    arguments = {
        "prototxt": net["prototxt"], "model": model.path, "shape": image_shape(net),
        "stored": await _stored_shape(board, log, net),
    }  # fmt: skip
    return board.workers.get("trial", key, _folder(log), arguments), key


_shapes: dict[tuple[str, float], list[int] | None] = {}


async def _stored_shape(board: Board, log: RunLog, net: dict[str, Any]) -> list[int] | None:
    """The size of images before the crop, where the data is there to tell."""
    key = (log.path, float(log.run.started.get("time", 0)))
    layers = net.get("data") or []
    if key not in _shapes:
        _shapes[key] = None
        if layers and "crop" in layers[0].get("transform", ""):
            arguments = {"prototxt": net["prototxt"], "layer": layers[0]["layer"]}
            worker = board.workers.get("browse", (*key, "shape"), _folder(log), arguments)
            try:
                _shapes[key] = (await worker.ask("facts"))["stored"]
            except FireError:  # the data is not there any more: the crop's size will do
                pass
            finally:
                board.workers.drop(worker)
    return _shapes[key]


async def try_image(request: Request) -> Response:
    """POST an image's bytes; the answer is what the net says of it."""
    content = await _uploaded(request)
    worker, _ = await _trial(request)
    return _json(await worker.ask("image", image=base64.b64encode(content).decode()))


async def _uploaded(request: Request) -> bytes:
    """The body of a request; one that claims to be too large is refused before it is read."""
    content = bytearray()
    parts = aiter(request.stream())
    length = int(request.headers.get("content-length", 0))  # h11 lets nothing else pass
    while length <= MOST_BYTES and len(content) <= MOST_BYTES:
        try:
            content += await asyncio.wait_for(anext(parts), UPLOAD_SECONDS)
        except StopAsyncIteration:
            return bytes(content)
        except asyncio.TimeoutError:
            raise HTTPException(
                408, f"no more of the image came for {UPLOAD_SECONDS:.0f} seconds",
                {"connection": "close"},
            ) from None  # fmt: skip
    raise HTTPException(413, f"images of up to {MOST_BYTES >> 20} MB are taken")


async def try_blob(request: Request) -> Response:
    worker, _ = await _trial(request)
    image = await worker.ask("blob", name=request.query_params.get("name", ""))
    return Response(base64.b64decode(image), media_type="image/png")


async def occlusion(request: Request) -> Response:
    """POST starts a map of what matters for a class, GET says how far it is."""
    board: Board = request.app.state.board
    worker, key = await _trial(request)
    query = request.query_params
    target = _whole(query, "target")
    whole = ("occlusion", *key, query.get("image", ""), target)
    if request.method == "GET":
        return _json(board.jobs.get(whole))
    return _json(
        board.jobs.start(whole, lambda tell: worker.ask("occlusion", progress=tell, target=target))
    )


# Common parts.


def _folder(log: RunLog) -> str:
    return str(log.run.started.get("folder", ""))


def _number(query: Any, name: str, otherwise: float) -> float:
    try:
        value = float(query.get(name) or otherwise)
    except ValueError:
        value = nan
    if isnan(value):
        raise HTTPException(400, f"{name} must be a number")
    return value


def _whole(query: Any, name: str) -> int:
    """A whole number, 0 if there is none."""
    value = _number(query, name, 0)
    if abs(value) > MOST_WHOLE:
        raise HTTPException(400, f"{name} must be a whole number of at most {MOST_WHOLE}")
    return int(value)


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _json(value: Any) -> Response:
    return Response(_dumps(value), media_type="application/json")


async def _explain(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 422
    text = error.detail if isinstance(error, HTTPException) else str(error)
    return JSONResponse({"error": text}, status, getattr(error, "headers", None))


def make_app(folder: str, token: str, host: str, port: int) -> Access:
    """The application for everything below a folder."""
    files = static_files()
    run = "/api/runs/{run}"
    routes = [
        Route("/", _static(files)),
        Route("/static/{name:path}", _static(files)),
        Route("/api/live", live),
        Route(run, one_run),
        Route(f"{run}/curves", curves),
        Route(f"{run}/net", net),
        Route(f"{run}/layer", layer),
        Route(f"{run}/filters", filter_image),
        Route(f"{run}/file", file),
        Route(f"{run}/archive", archive_file),
        Route(f"{run}/onnx", onnx_file),
        Route(f"{run}/data", data),
        Route(f"{run}/survey", survey, methods=["GET", "POST"]),
        Route(f"{run}/records", records),
        Route(f"{run}/record", record_image),
        Route(f"{run}/results", results, methods=["GET", "POST", "DELETE"]),
        Route(f"{run}/try", try_image, methods=["POST"]),
        Route(f"{run}/blob", try_blob),
        Route(f"{run}/occlusion", occlusion, methods=["GET", "POST"]),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        board = app.state.board = Board(folder)
        following = asyncio.create_task(board.follow())
        yield
        following.cancel()
        board.jobs.close()
        board.workers.close()

    app = Starlette(
        routes=routes, lifespan=lifespan,
        exception_handlers={HTTPException: _explain, FireError: _explain},
    )  # fmt: skip
    return Access(app, token, host, port)
