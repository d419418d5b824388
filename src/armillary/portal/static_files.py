"""The files of the portal's pages: read when they are first asked for, compressed then, and held.

They are served below a digest of all of them, so that browsers may keep them for ever and modules can import each other
by relative paths. `index.html` alone has an address that stays; the digest is put into it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from armillary import limits
from armillary.net.http import BareResponse, Headers, Request, Response
from armillary.portal.policy import HEADERS, not_found

FILES: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
DIGEST_MARK: Final = b"{digest}"  # in index.html

_DIGEST_CHARACTERS: Final = 16
_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".json": b"application/json",
    ".svg": b"image/svg+xml",
    ".png": b"image/png",
    ".txt": b"text/plain; charset=utf-8",
}
_COMPRESSED_ALREADY: Final = frozenset((".png",))
_FOR_EVER: Final = (b"cache-control", b"public, max-age=31536000, immutable")
_ASK_AGAIN: Final = (b"cache-control", b"no-cache")

Seen = tuple[tuple[str, int, int], ...]


class StaticFiles:
    def __init__(self, directory: Path = FILES) -> None:
        self._directory = directory
        self._seen: Seen = ()  # name, time and size of all files when they were digested
        self._digest = ""
        self._held: dict[tuple[str, bool], Response] = {}  # by path and whether it is compressed
        self._held_bytes = 0

    async def index(self, request: Request) -> Response:
        """The page. Files that have changed since, as while one works on them, are read again."""
        await asyncio.to_thread(self._look)
        etag = f'"{self._digest}"'.encode("ascii")
        if request.headers.get(b"if-none-match") == etag:
            return BareResponse(304, [*HEADERS, _ASK_AGAIN, (b"etag", etag)])
        return await self._answer(INDEX, request, (_ASK_AGAIN, (b"etag", etag)))

    async def file(self, path: str, request: Request) -> Response:
        """`path`: the digest and the name below it."""
        digest, _, name = path.partition("/")
        if not self._digest:
            await asyncio.to_thread(self._look)
        if digest != self._digest or name not in {each for each, _, _ in self._seen} or name == INDEX:
            return not_found(f"The portal has no file '{name}'.")
        return await self._answer(name, request, (_FOR_EVER,))

    async def _answer(self, name: str, request: Request, extra: Headers) -> Response:
        suffix = Path(name).suffix
        is_compressed = suffix not in _COMPRESSED_ALREADY and b"gzip" in request.headers.get(b"accept-encoding", b"")
        held = self._held.get((name, is_compressed))
        if held is not None:
            return held
        body = await asyncio.to_thread(self._read, name, is_compressed)
        headers = [(b"content-type", _TYPES.get(suffix, b"application/octet-stream")), *extra, *HEADERS]
        headers += [(b"vary", b"accept-encoding")]
        headers += [(b"content-encoding", b"gzip")] if is_compressed else []
        response = BareResponse(200, headers, body)
        if self._held_bytes + len(body) <= limits.PORTAL_FILES_HELD_BYTES_MAX:
            self._held[name, is_compressed] = response
            self._held_bytes += len(body)
        return response

    def _read(self, name: str, is_compressed: bool) -> bytes:
        content = (self._directory / name).read_bytes()
        if name == INDEX:
            content = content.replace(DIGEST_MARK, self._digest.encode("ascii"))
        if not is_compressed:
            return content
        import gzip  # what a server whose portal is not opened does not need

        return gzip.compress(content, 9, mtime=0)

    def _look(self) -> None:
        seen = tuple(self._files())
        if seen == self._seen:
            return
        digest = hashlib.sha256()
        for name, _, _ in seen:
            content = (self._directory / name).read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        self._held, self._held_bytes = {}, 0
        self._digest, self._seen = digest.hexdigest()[:_DIGEST_CHARACTERS], seen

    def _files(self) -> Iterator[tuple[str, int, int]]:
        for path in sorted(self._directory.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                state = path.stat()
                yield path.relative_to(self._directory).as_posix(), state.st_mtime_ns, state.st_size
