"""What pages load, and the reader's own settings: theme, zone, keys."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct
from starlette.responses import RedirectResponse, Response

from ...core.local_path import local
from ..problem import Problem
from ..routing import PUBLIC, Call, Routes
from . import assets

routes = Routes()

YEAR: Final = 31_536_000


@routes.page("GET", "/static/{hash}/{name}", action=PUBLIC)
async def own(call: Call[None, None]) -> Response:
    """A file of ours."""
    return _file(call, call.path["name"])


@routes.page("GET", "/static/{hash}/lib/{name}", action=PUBLIC)
async def library(call: Call[None, None]) -> Response:
    """A file of a library."""
    return _file(call, f"lib/{call.path['name']}")


@routes.page("GET", "/favicon.ico", action=PUBLIC)
async def favicon(call: Call[None, None]) -> Response:
    """Browsers ask for it unasked."""
    return call.redirect(assets.path_of("mark.svg"))


def _file(call: Call[None, None], name: str) -> Response:
    digest, files = assets.found()
    if call.path["hash"] != digest or name not in files:
        raise Problem("not_found", "there is no such file; reload the page")
    file = files[name]
    headers = {"Cache-Control": f"public, max-age={YEAR}, immutable", "Vary": "Accept-Encoding"}
    if "gzip" in call.request.headers.get("accept-encoding", ""):
        return Response(file.packed, media_type=file.type, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.body, media_type=file.type, headers=headers)


class Preferences(Struct):
    back: str = "/"
    theme: Literal["system", "light", "dark"] | None = None
    zone: Literal["utc", "local"] | None = None
    keys: Literal["on", "off"] | None = None


@routes.page("POST", "/preferences", action="see", form=Preferences, only_reads=True)
async def preferences(call: Call[None, Preferences]) -> Response:
    """Theme, zone and keys, in cookies of the reader's browser."""
    root = str(call.request.scope.get("root_path", "")).rstrip("/")
    answer = RedirectResponse(root + local(call.body.back), status_code=303)
    for name in ("theme", "zone", "keys"):
        value = getattr(call.body, name)
        if value is not None:
            answer.set_cookie(f"treadle_{name}", value, max_age=YEAR, path=root or "/", samesite="lax")
    return answer
