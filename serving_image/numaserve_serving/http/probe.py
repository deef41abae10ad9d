"""The probe port: for the operator only, with a token whose digest alone the pod knows."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import numpy as np
from fastapi import Depends, FastAPI, Query, Request, Response

from numaserve_api import probe as contract
from numaserve_serving.backends.base import Vectors
from numaserve_serving.engine.engine import Engine
from numaserve_serving.engine.tokenizer import Encoded
from numaserve_serving.http.errors import HANDLERS, ApiError
from numaserve_serving.http.state import ServerState

Offset = Annotated[int, Query(ge=0)]
Limit = Annotated[int, Query(ge=1, le=contract.MAX_PAGE)]


def probe_app(state: ServerState) -> FastAPI:
    """The ASGI app of the probe port."""

    async def authorised(request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        digest = hashlib.sha256(given.encode()).hexdigest()
        if not state.identity.token_digest or not hmac.compare_digest(digest, state.identity.token_digest):
            raise ApiError(401, "this port is for the numaserve operator", "authentication_error")

    app = FastAPI(
        title="numaserve probe", docs_url=None, redoc_url=None, openapi_url=None,
        dependencies=[Depends(authorised)], exception_handlers=dict(HANDLERS),
    )  # fmt: skip
    _placement(app, state)
    _samples(app, state)
    _gate(app, state)
    return app


def _placement(app: FastAPI, state: ServerState) -> None:
    @app.get(contract.PATH_PLACEMENT, response_model=contract.PlacementReport)
    async def placement() -> contract.PlacementReport:
        return state.report()

    @app.post(contract.PATH_DRAIN, status_code=202)
    async def drain() -> Response:
        """From now on not ready, and every answer ends its connection."""
        state.draining = True
        return Response(status_code=202)


def _samples(app: FastAPI, state: ServerState) -> None:
    @app.get(contract.PATH_SAMPLES, response_model=contract.SamplePage)
    async def samples(offset: Offset = 0, limit: Limit = 100) -> contract.SamplePage:
        texts = _texts(_part(state, "samples"))
        digest = _digest(_part(state, "samples"))
        return contract.SamplePage(
            total=len(texts), offset=offset, digest=digest, texts=list(texts[offset : offset + limit])
        )

    @app.get(contract.PATH_REFERENCE, response_model=contract.VectorPage)
    async def reference(offset: Offset = 0, limit: Limit = 100) -> contract.VectorPage:
        path = _part(state, "reference")
        if path is None:
            return contract.VectorPage(total=0, offset=offset, count=0, dimension=0, vectors="")
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        page = np.asarray(vectors[offset : offset + limit], dtype="<f4")
        return contract.VectorPage(
            total=len(vectors), offset=offset, count=len(page), dimension=vectors.shape[1], vectors=_encode(page)
        )


def _gate(app: FastAPI, state: ServerState) -> None:
    @app.post(contract.PATH_GATE, response_model=contract.GateAnswer)
    async def gate(query: contract.GateQuery) -> contract.GateAnswer:
        """Vectors of texts, batched as asked, outside the service's own metrics; NaN is kept for the operator to judge."""
        engine = state.engine
        if engine is None:
            raise ApiError(503, f"not ready: {state.step}", "server_error")
        encoded = await engine.encode(query.inputs)
        begin = time.perf_counter()
        vectors = await _infer(engine, encoded, query.together)
        return contract.GateAnswer(
            revision=state.identity.revision,
            space=state.space,
            count=len(vectors),
            dimension=vectors.shape[1],
            vectors=_encode(vectors),
            token_counts=[len(e.ids) for e in encoded],
            token_digests=[e.digest for e in encoded],
            inference_seconds=time.perf_counter() - begin,
        )


async def _infer(engine: Engine, encoded: list[Encoded], together: bool) -> Vectors:
    """Inferred in batches within the engine's own token budget, so that users wait for one such batch at most."""
    size = _batch_size(encoded, engine.limits.batch_tokens) if together else 1
    pieces = [encoded[start : start + size] for start in range(0, len(encoded), size)]
    return np.concatenate([await engine.infer_now(piece) for piece in pieces])


def _batch_size(encoded: list[Encoded], budget: int) -> int:
    return max(1, budget // max(len(e.ids) for e in encoded))


def _part(state: ServerState, name: str) -> Path | None:
    if state.loaded is None:
        raise ApiError(503, f"not ready: {state.step}", "server_error")
    part: str | None = getattr(state.loaded.artifact.manifest.parts, name)
    return state.loaded.artifact.path(part) if part else None


@lru_cache(maxsize=1)
def _texts(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    return tuple(json.loads(line)["text"] for line in path.read_text(encoding="utf-8").split("\n") if line.strip())


@lru_cache(maxsize=1)
def _digest(path: Path | None) -> str:
    return "" if path is None else "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def _encode(vectors: Vectors) -> str:
    return base64.b64encode(np.ascontiguousarray(vectors, dtype="<f4").tobytes()).decode()
