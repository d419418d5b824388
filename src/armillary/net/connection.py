"""One HTTP/1.1 connection: hands requests to the handler in order, writes the answers, cuts off slow clients.

Reading stops as soon as a complete request has to wait for the one before it, so a connection holds at most one piece
of requests, whatever its client pipelines. Bytes become requests in `reader.py`; the time comes from `service.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any, Final, cast

from armillary import limits
from armillary.net.answers import CLOSES, CONTINUE, HungUp
from armillary.net.connection_limits import Guest
from armillary.net.eager import resume
from armillary.net.head import HTTP_2, Refusal
from armillary.net.http import Later, Request, Response
from armillary.net.http_2 import SETTINGS, Http2Refusal
from armillary.net.reader import BETWEEN, HEAD, Reader
from armillary.net.requests.request_watch import FINE_S, PER_S, SLOTS, slot_of
from armillary.net.service import Service, log

_PIECE_BYTES: Final = limits.READ_PIECE_BYTES


class Connection(asyncio.Protocol):
    _transport: asyncio.Transport
    _reader: Reader

    def __init__(self, service: Service, guest: Guest | None = None) -> None:
        self._service = service
        self._is_known = False  # whether a request on it had a good signature
        self.guest = guest or service.crowd.seat()
        self._loop = service.loop
        # The request that is being answered, if it has to wait.
        self._task: asyncio.Task[None] | Later | None = None
        self._unparsed = b""
        self._is_tls = False
        self._is_reading_held = False
        self._is_write_paused = False
        self._is_ended = False  # by the client, which still reads
        self._is_lost = False
        self._is_lingering = False
        self._http_2: Http2Refusal | None = None
        self._linger_since_s = 0.0
        self._linger_bytes = 0
        self._answered_s = service.now_s
        self._unsent_since_s = service.now_s
        self._unsent_bytes = 0

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        peer = transport.get_extra_info("peername")
        self.guest.evict = self._transport.abort
        is_admitted = self._service.admit(self)
        self._reader = Reader(
            self._service,
            is_tls=self._is_tls,
            peer=str(peer[0]) if peer else "",
            is_shed=not is_admitted,
            has_certificate=bool(transport.get_extra_info("peercert")),
        )
        if self._service.is_closing:
            self._close()
        elif self.guest.is_gone:  # it was sent away while it began
            self._transport.abort()

    def connection_lost(self, exception: Exception | None) -> None:
        self._is_lost = True
        self._reader.waiting.clear()
        self._unparsed = b""
        # A request that runs goes on to its end: a write is not undone because its client left. It keeps its place
        # among the connections until then, so that leaving early does not get a client past their number.
        if self._task is None:
            self._service.forget(self)

    def eof_received(self) -> bool:
        """The client will send no more. What it has sent completely is answered."""
        self._is_ended = True
        is_busy = self._task is not None or bool(self._reader.waiting) or bool(self._unparsed)
        # TLS has no half-closed state: there the connection ends now.
        return is_busy and not self._is_tls and not self._is_lingering

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        # Not from inside the transport's own flush: an answer written here could pause and resume us recursively.
        self._loop.call_soon(self._serve)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader.refusal is not None or reader.is_last or self._is_lost:
            self._discard(data)
        elif len(data) <= _PIECE_BYTES and not self._unparsed:
            reader.feed(data)
            self._serve()
        else:
            self._unparsed += data
            self._parse()
        if not self._is_known:
            self.guest.hold(reader.unfinished_bytes)

    # Reading.

    def _parse(self) -> None:
        """Read what came until a request is complete; leave the rest for when it is answered."""
        reader = self._reader
        data = self._unparsed
        at = 0
        while at < len(data) and not reader.waiting and reader.refusal is None:
            end = at + max(_PIECE_BYTES, reader.body_bytes_due)  # a body goes in whole; only requests are many
            reader.feed(data[at:end])
            at = end
        self._unparsed = b"" if reader.is_last or reader.refusal is not None else data[at:]
        self._serve()

    def _parse_on(self) -> None:
        if self._unparsed and not self._reader.waiting and not self._is_lost:
            self._parse()

    def _discard(self, data: bytes) -> None:
        self._linger_bytes += len(data)
        if self._linger_bytes > limits.LINGER_BYTES_MAX:
            self._transport.abort()
        elif self._http_2 is not None:
            self._refuse_stream(self._http_2, data)

    def _hold_reading(self) -> None:
        if not self._is_reading_held and not self._transport.is_closing():
            self._is_reading_held = True
            self._transport.pause_reading()

    def _release_reading(self) -> None:
        if self._is_reading_held and not self._transport.is_closing():
            self._is_reading_held = False
            self._reader.since_s = self._service.now_s  # the time that we made the client wait is not its own
            self._transport.resume_reading()

    # Answering.

    def _serve(self) -> None:
        """Answer what waits, in order, until one has to be waited for. Then see to what is next."""
        reader = self._reader
        waiting = reader.waiting
        while waiting:
            if self._task is not None or self._is_write_paused:
                self._hold_reading()
                return
            request, ending = waiting.popleft()
            self._start(request, ending)
            if not self._is_known and waiting and self._task is None:
                # Of a stranger one request in a turn: whatever it pipelines, others have their turn between two.
                self._hold_reading()
                self._loop.call_soon(self._serve)
                return
        if self._task is not None or self._is_write_paused or self._is_lost:
            if self._unparsed:
                self._hold_reading()
        elif reader.refusal is not None:
            self._answer_refusal(reader.refusal)
        elif self._unparsed:
            self._hold_reading()
            self._loop.call_soon(self._parse_on)  # by way of the loop: others have their turn between two pieces
        elif reader.is_last or self._is_ended:
            self._close()
        else:
            if self._is_reading_held:
                self._release_reading()
            if reader.owes_continue:
                reader.owes_continue = False
                self._transport.write(CONTINUE)

    def _start(self, request: Request, ending: bytes) -> None:
        """Run the handler as far as it goes without waiting; see eager.py."""
        service = self._service
        request.begun_s = service.elapsed_s()
        if service.at_once is not None:
            try:
                response = service.at_once(request)
            except Exception as exception:
                self._answer_crash(request, ending, exception)
                return
            if response is not None:
                if not self._is_known:
                    self._hear(request)
                if isinstance(response, Response):
                    self._answer(request, ending, response)
                elif isinstance(response, Later):
                    self._task = response
                    response.give = partial(self._end_later, request, ending)
                else:
                    self._handle(request, ending, response)
                return
        self._handle(request, ending)

    def _end_later(self, request: Request, ending: bytes, given: Response | BaseException | None) -> None:
        """Called in the middle of other work, in its context and in its greenlet: here the answer is written, and no
        request is begun."""
        context = self._service.context
        if self._task is None:  # aborted meanwhile
            if isinstance(given, BaseException):
                log.error("a request whose connection was cut off failed", exc_info=given)
            return
        if given is None:
            self._loop.call_soon(self._handle_after_all, request, ending, context=context)
            return
        self._task = None
        if isinstance(given, Response):
            self._answer(request, ending, given)
        else:
            self._answer_crash(request, ending, given)
        if self._is_lost:
            self._service.forget(self)
        elif self._reader.waiting or self._unparsed or self._is_reading_held:
            self._loop.call_soon(self._serve, context=context)
        else:
            self._serve()

    def _handle_after_all(self, request: Request, ending: bytes) -> None:
        if self._task is None:
            return  # aborted meanwhile
        self._task = None
        self._handle(request, ending)
        if self._task is None:
            if self._is_lost:
                self._service.forget(self)
            self._serve()

    def _handle(self, request: Request, ending: bytes, coroutine: Coroutine[Any, Any, Response] | None = None) -> None:
        # In a context of its own, which a Task takes over: what a handler sets there must not leak into other requests.
        context = copy_context()
        try:
            if coroutine is None:
                coroutine = self._service.handler(request)
            awaited = context.run(coroutine.send, None)
        except StopIteration as stop:
            if not self._is_known:
                self._hear(request)
            self._answer(request, ending, stop.value)
        except (Exception, asyncio.CancelledError) as exception:
            self._answer_crash(request, ending, exception)
        else:
            if not self._is_known:
                self._hear(request)
            finishing = self._finish(request, ending, coroutine, awaited)
            self._task = self._loop.create_task(finishing, context=context)

    def _hear(self, request: Request) -> None:
        """Signatures are verified before a request waits for anything."""
        if request.is_known:
            self._is_known = True
            self.guest.recognise()
        else:
            self.guest.hear()

    async def _finish(
        self, request: Request, ending: bytes, coroutine: Coroutine[Any, Any, Response], awaited: Any
    ) -> None:
        task = self._task
        assert isinstance(task, asyncio.Task), "runs as the connection's task"
        try:
            response = await resume(coroutine, awaited)
        except asyncio.CancelledError as exception:
            if task.cancelling():
                raise  # the server closes
            self._answer_crash(request, ending, exception)
        except Exception as exception:
            self._answer_crash(request, ending, exception)
        else:
            self._answer(request, ending, response)
        finally:
            self._task = None
            if self._is_lost:
                self._service.forget(self)
        self._serve()

    def _answer(self, request: Request, ending: bytes, response: Response) -> None:
        transport = self._transport
        service = self._service
        # In line, as Observed.note does it: this is done for every request.
        elapsed_s = service.elapsed_s() - request.begun_s
        observed = service.watch.times[request.operation or service.unrouted]
        observed.sum_s += elapsed_s
        observed.buckets[SLOTS[int(elapsed_s * PER_S)] if elapsed_s < FINE_S else slot_of(elapsed_s)] += 1
        observed.statuses[response.status] += 1
        if response.kind is not None:
            observed.kinds[response.kind] += 1
        if service.watch.report is not None:
            service.report(request, response, elapsed_s)
        if transport.is_closing():
            return
        if service.is_closing:
            ending = CLOSES
        try:
            wire = service.answers.encode(response, ending, is_head=request.method == "HEAD")
        except HungUp:
            self._close()
            return
        except Exception as exception:
            self._answer_crash(request, ending, exception)
            return
        self._answered_s = service.now_s
        transport.write(wire)
        if ending is CLOSES:
            self._close()

    def _answer_crash(self, request: Request, ending: bytes, exception: BaseException) -> None:
        if self._service.is_closing:
            ending = CLOSES
        try:
            response = self._service.crash(request, exception)
            self._service.count_crash(request, response)
            wire = self._service.answers.encode(response, ending, is_head=request.method == "HEAD")
        except Exception:
            log.exception("the answer to a failed request could not be made")
            wire, ending = b"", CLOSES
        if not self._transport.is_closing():
            self._answered_s = self._service.now_s
            self._transport.write(wire)
            if ending is CLOSES:
                self._close()

    def _answer_refusal(self, refusal: Refusal | Response) -> None:
        """Answer what is not a request, and close in a way that lets the client read the answer."""
        transport = self._transport
        if self._is_lingering or transport.is_closing():
            return
        if refusal is HTTP_2:
            self._http_2 = Http2Refusal()
            transport.write(SETTINGS)
            self._linger()
            self._refuse_stream(self._http_2, self._reader.http_2_bytes)
            return
        wire = b""
        try:
            answer = refusal if isinstance(refusal, Response) else self._service.refuse(*refusal)
            wire = self._service.answers.encode(answer, CLOSES)
        except Exception:
            log.exception("the refusal of a malformed request could not be made")
        transport.write(wire)
        if self._is_ended:
            transport.close()
            return
        self._linger()
        self._end_writing()

    def _refuse_stream(self, http_2: Http2Refusal, data: bytes) -> None:
        wire = http_2.feed(data)
        if wire and not self._transport.is_closing():
            self._http_2 = None
            self._transport.write(wire)
            self._end_writing()

    def _linger(self) -> None:
        """To close with bytes unread makes the kernel reset the connection, and the client would lose the answer. So
        only our side ends, and what still comes is thrown away until the client ends too or its time is over."""
        self._is_lingering = True
        self._linger_since_s = self._service.now_s
        self._release_reading()

    def _end_writing(self) -> None:
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _close(self) -> None:
        self._reader.is_last = True
        self._reader.waiting.clear()
        self._unparsed = b""
        self._transport.close()

    # The service's side.

    def sweep(self, now_s: float) -> None:
        """Cut the client off if it has used up its time. Called once a second."""
        transport = self._transport
        reader = self._reader
        patience = self._service.patience
        if self._is_lost:
            return
        if self._is_lingering:
            if now_s - self._linger_since_s >= patience.linger_s:
                transport.abort()
        elif self._is_stalled(transport.get_write_buffer_size(), now_s):
            transport.abort()
        elif self._task is not None or reader.waiting or self._unparsed or self._is_write_paused:
            pass  # it is our turn, not the client's
        elif reader.stage == BETWEEN:
            idle_s = patience.idle_s if self._is_known else min(patience.idle_s, limits.STRANGER_IDLE_SECONDS)
            if now_s - self._answered_s >= idle_s:
                transport.close()
        elif reader.stage == HEAD:
            if now_s - reader.since_s >= patience.head_s:
                if reader.has_begun:
                    self._time_out("head")
                else:
                    transport.abort()
        else:
            late_s = now_s - reader.since_s - patience.body_grace_s
            if late_s >= 0 and not reader.is_screened:
                reader.screen()
                self._serve()
            elif late_s >= 0 and reader.body_bytes <= late_s * patience.body_bytes_per_s:
                self._time_out("body")

    def _time_out(self, part: str) -> None:
        self._reader.refusal = (408, f"The {part} of the request did not arrive in time.")
        self._serve()

    def _is_stalled(self, unsent_bytes: int, now_s: float) -> bool:
        """Whether the client takes its answers too slowly. The same rate is asked of it as for a body."""
        patience = self._service.patience
        if unsent_bytes and self._answered_s < self._unsent_since_s:
            if now_s - self._unsent_since_s < patience.write_stall_s:
                return False
            # Nothing was added since (that would have moved `_answered_s`), so what is missing now has been sent.
            if self._unsent_bytes - unsent_bytes < patience.write_stall_s * patience.body_bytes_per_s:
                return True
        self._unsent_since_s = now_s
        self._unsent_bytes = unsent_bytes
        return False

    def retire(self) -> None:
        """The server closes: end now if nothing is under way, else with the next answer."""
        reader = self._reader
        is_idle = reader.stage == BETWEEN or not reader.has_begun
        if is_idle and self._task is None and not reader.waiting and not self._unparsed:
            self._close()

    def abort(self) -> asyncio.Task[None] | None:
        """End at once. Returns the task of a request that is being cancelled, to be waited for. A request that no task
        waits for goes on to its end, and its answer is dropped."""
        task = self._task
        if isinstance(task, Later):
            self._task = task = None
        if task is not None:
            task.cancel()
        self._transport.abort()
        return task
