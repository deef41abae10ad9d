"""The serving port: OpenAI embeddings, models, health, metrics."""

from __future__ import annotations

import base64
from typing import Any

import orjson
from fastapi import FastAPI, Response

from numaserve_api import names
from numaserve_serving.engine.engine import Embedded, Engine, shorten
from numaserve_serving.http import metrics
from numaserve_serving.http.errors import HANDLERS, ApiError, json_answer
from numaserve_serving.http.middleware import App, ServerMiddleware
from numaserve_serving.http.schemas import MAX_INPUTS, EmbeddingsRequest, EmbeddingsResponse, ModelCard, ModelList
from numaserve_serving.http.state import ServerState
from numaserve_serving.system.placement import read_placement


def serving_app(state: ServerState) -> App:
    """The ASGI app of the serving port."""
    app = FastAPI(title="numaserve", version="1", docs_url=None, redoc_url=None, exception_handlers=dict(HANDLERS))
    _health(app, state)
    _models(app, state)

    @app.post("/v1/embeddings", response_model=EmbeddingsResponse)
    async def embeddings(body: EmbeddingsRequest) -> Response:
        """Vectors of one text or a list of texts, in the order given."""
        engine = _engine(state)
        _check_model(state, body.model)
        texts = _texts(body.input)
        dimension = _dimension(state, body.dimensions)
        result = await engine.embed(texts)
        return _answer(state, body, result, dimension)

    return ServerMiddleware(app, state)


def _engine(state: ServerState) -> Engine:
    if state.engine is None:
        raise ApiError(503, f"not ready: {state.step}", "server_error")
    return state.engine


def _check_model(state: ServerState, asked: str | None) -> None:
    name = state.identity.name
    known = {None, "", name, f"{name}@{state.space}"}
    if asked not in known:
        raise ApiError(404, f"there is no model {asked!r} here, this server answers as {name!r}", param="model")


def _texts(given: Any) -> list[str]:
    """The request's texts; everything else is refused with the remedy."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list):
        raise ApiError(400, "input must be a string or a list of strings", param="input")
    if not texts:
        raise ApiError(400, "input is an empty list: send at least one text", param="input")
    if len(texts) > MAX_INPUTS:
        raise ApiError(
            400, f"input has {len(texts)} texts, at most {MAX_INPUTS} a request: send several requests", param="input"
        )
    if any(isinstance(t, (int, list)) and not isinstance(t, bool) for t in texts):
        raise ApiError(
            400,
            "input holds token ids, of a tokenizer that may be another than this model's: send texts "
            "(langchain-openai: check_embedding_ctx_length=False)",
            param="input",
        )
    wrong = next((i for i, t in enumerate(texts) if not isinstance(t, str)), None)
    if wrong is not None:
        raise ApiError(400, f"input {wrong} is no string", param="input")
    return texts


def _dimension(state: ServerState, asked: int | None) -> int | None:
    """The size to cut vectors to; None for the whole vector."""
    sizes = state.dimensions
    if asked is not None and asked not in sizes:
        raise ApiError(400, f"dimensions {asked} is not offered, this model has {sizes}", param="dimensions")
    if asked is not None:
        return asked
    offered = state.config.model.dimensions
    return offered[0] if offered else None


def _answer(state: ServerState, body: EmbeddingsRequest, result: Embedded, dimension: int | None) -> Response:
    vectors = result.vectors
    if dimension is not None and dimension != vectors.shape[1]:
        vectors = shorten(vectors, dimension)
    if body.encoding_format == "base64":
        rows: list[Any] = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
    else:
        rows = list(vectors)
    document = {
        "object": "list",
        "data": [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)],
        "model": f"{state.identity.name}@{state.space}",
        "usage": {"prompt_tokens": result.tokens, "total_tokens": result.tokens, "truncated_tokens": result.truncated},
    }
    content = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, media_type="application/json", headers={names.HEADER_TRUNCATED: str(result.truncated)})


def _models(app: FastAPI, state: ServerState) -> None:
    @app.get("/v1/models", response_model=ModelList)
    async def models() -> ModelList:
        """The one model this server answers as."""
        return ModelList(data=[ModelCard(id=state.identity.name)])

    @app.get("/info")
    async def info() -> dict[str, Any]:
        """What is served and how it is executed."""
        facts = state.loaded.facts if state.loaded else None
        return {
            "model_id": state.identity.name,
            "revision": state.identity.revision,
            "artifact": state.loaded.artifact.digest if state.loaded else None,
            "space": state.space,
            "max_input_length": state.config.window.max_tokens,
            "dimensions": state.dimensions,
            "precision": facts.precision if facts else None,
            "threads": facts.threads if facts else None,
            "fingerprint": facts.fingerprint if facts else None,
        }


def _health(app: FastAPI, state: ServerState) -> None:
    @app.get("/v2/health/live")
    async def live() -> Response:
        """Whether a restart would not help."""
        return json_answer({"live": state.alive}, 200 if state.alive else 503)

    @app.get("/v2/health/ready")
    @app.get("/health")
    async def ready() -> Response:
        """Whether requests may come; while starting, the step it is at."""
        body = {"ready": state.ready, "step": "draining" if state.draining else state.step}
        return json_answer(body, 200 if state.ready else 503)

    @app.get("/metrics")
    async def exposition() -> Response:
        """OpenMetrics."""
        queued = state.engine.queued_tokens if state.engine else 0
        content = state.metrics.render(queued, read_placement(state.roots).throttled_periods)
        return Response(content, media_type=metrics.CONTENT_TYPE)
