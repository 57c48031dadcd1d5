"""The server: five fixed responses and one computation, on this machine only.

It reads no files after its start, writes none, and no path depends on the request. Requests with a host name
other than 127.0.0.1 or localhost are refused, so that no other site can reach it through its own host name
(DNS rebinding). The headers of every response forbid the page to load anything from elsewhere.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from khot.explore.computed import computed
from khot.explore.document import asset, plotly_source, served_page
from khot.explore.state import BadParameter, read_state

__all__ = ["HEADERS", "application", "listen"]

HOSTS = ["127.0.0.1", "localhost"]
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class _Guarded(BaseHTTPMiddleware):
    """Adds the headers to every answer."""

    async def dispatch(
        self, request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = await call_next(request)
        response.headers.update(HEADERS)
        return response


def application() -> Starlette:
    """The page, its parts, and ``/compute``."""
    page = served_page()
    parts = {
        "/explore.css": (asset("explore.css"), "text/css"),
        "/explore.js": (asset("explore.js"), "text/javascript"),
        "/plotly.js": (plotly_source(), "text/javascript"),
        "/favicon.ico": ("", "image/x-icon"),
    }

    def fixed(text: str, kind: str) -> Callable[[Request], Response]:
        return lambda request: Response(text, media_type=kind)

    def whole_page(request: Request) -> Response:
        return HTMLResponse(page)

    routes = [Route("/", whole_page, methods=["GET"])]
    routes += [Route(path, fixed(*part), methods=["GET"]) for path, part in parts.items()]
    routes.append(Route("/compute", _compute, methods=["GET"]))
    guards = [
        Middleware(_Guarded),
        Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
    ]
    return Starlette(routes=routes, middleware=guards)


def _compute(request: Request) -> JSONResponse:
    given: dict[str, Any] = dict(request.query_params)
    try:
        return JSONResponse(computed(read_state(given)))
    except BadParameter as error:
        return JSONResponse({"error": str(error), "parameter": error.parameter}, status_code=422)


def listen(port: int) -> socket.socket:
    """A socket on 127.0.0.1; port 0 takes a free one."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except OSError:
        found.close()
        raise
    return found
