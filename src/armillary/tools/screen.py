"""What the commands print: tables, bars and progress for people, JSON for programs. Standard output carries results
alone, so that it can be piped; progress goes to standard error. Names and values from requests may contain control
characters, which a terminal would obey, and line ends, which would forge log lines: both are escaped.

Rich is imported when a `Screen` is made or used: a server, which needs the escaping alone, starts without it.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import compress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.table import Table

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_LINE_END: Final = re.compile("\n+")
_PIPE_WIDTH = 160
_NARROW_WIDTH = 110  # below, bars have half their cells
_BAR_CELLS = 20
_ANY_WIDTH = 100_000
_LINE_EVERY_S = 5.0  # of progress that goes into a file or a pipe
_FULL, _EMPTY, _PARTS = "█", "░", " ▏▎▍▌▋▊▉"


class Screen:
    def __init__(self, *, is_json: bool = False) -> None:
        from rich.console import Console
        from rich.markup import escape

        self.is_json = is_json
        self._escape = escape

        class Output(Console):
            def on_broken_pipe(self) -> None:
                raise BrokenPipeError  # the command ends as one that prints without Rich

        self._console = Output(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, emoji=False)
        self._progress_console = Console(stderr=True)
        encoding = (self._console.encoding or "").lower()
        self._is_plain = not encoding.startswith("utf")

    def content(self, content: Any) -> None:
        """For programs."""
        print(json.dumps(content, indent=2, ensure_ascii=False))

    def say(self, text: str) -> None:
        # Not wrapped, so that lines can be searched; a terminal wraps by itself.
        self._console.print(self._escape(printable(text)), soft_wrap=True)

    def heading(self, text: str) -> None:
        self._console.print(f"[bold]{self._escape(printable(text))}[/bold]")

    @property
    def is_terminal(self) -> bool:
        return self._console.is_terminal

    @property
    def width(self) -> int:
        return self._console.width

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        title: str | None = None,
        drop: Sequence[str] = (),
    ) -> None:
        """Columns whose name begins with > are aligned to the right. `drop`: the columns that are left out, in this
        order, until the table fits the screen; a line below the table names them."""
        self._console.print(self.made_table(columns, rows, title, drop))

    def made_table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        title: str | None = None,
        drop: Sequence[str] = (),
    ) -> Table:
        """The same, to be shown by `watch`."""
        from rich.measure import Measurement

        names = {column.removeprefix(">") for column in columns}
        drop = [name for name in drop if name in names]
        dropped: list[str] = []
        while True:
            table = self._made(columns, rows, title, dropped)
            measured = Measurement.get(self._console, self._console.options.update(width=_ANY_WIDTH), table)
            if measured.maximum <= self._console.width or len(dropped) == len(drop):
                return table
            dropped.append(drop[len(dropped)])

    def _made(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None, dropped: Sequence[str]
    ) -> Table:
        from rich.table import Table

        box = None if self._is_plain else _box()
        table = Table(title=title, title_justify="left", box=box, header_style="bold", pad_edge=False)
        if dropped:
            what = "Columns that do not fit" if len(dropped) > 1 else "A column that does not fit"
            table.caption, table.caption_justify = f"{what}: {self._escape(', '.join(dropped))}.", "left"
        kept = [column.removeprefix(">") not in dropped for column in columns]
        for column in compress(columns, kept):
            table.add_column(
                self._escape(column.removeprefix(">")), justify="right" if column.startswith(">") else "left"
            )
        for row in rows:
            table.add_row(*(self._escape(one_line(str(cell))) for cell in compress(row, kept)))
        return table

    def watch(self, frame: Callable[[], Sequence[Table | str]], every_s: float, times: int | None) -> None:
        """Show frames in one place, as often as asked for or until Ctrl-C. Without a terminal they follow each
        other."""
        from rich.console import Group
        from rich.live import Live

        is_live = self._console.is_terminal
        with Live(console=self._console, auto_refresh=False) if is_live else nullcontext() as live:
            shown = 0
            try:
                while True:
                    parts = [self._escape(printable(each)) if isinstance(each, str) else each for each in frame()]
                    if live is not None:
                        live.update(Group(*parts), refresh=True)
                    else:
                        self._console.print(Group(*parts))
                    shown += 1
                    if times is not None and shown >= times:
                        return
                    time.sleep(every_s)
            except KeyboardInterrupt:
                return

    def bar(self, share: float, cells: int = _BAR_CELLS) -> str:
        """A share from 0 to 1 as a picture; more than 1 is full. Half as long on a narrow screen."""
        cells = cells if self._console.width >= _NARROW_WIDTH else cells // 2
        filled = max(0.0, min(1.0, share)) * cells
        if self._is_plain:
            return "#" * round(filled) + "." * (cells - round(filled))
        whole = int(filled)
        part = _PARTS[int((filled - whole) * len(_PARTS))].strip() if whole < cells else ""
        return (_FULL * whole + part).ljust(cells, _EMPTY)

    @contextmanager
    def progress(self, what: str) -> Iterator[Any]:
        """A bar that is told how far something has come: `update(share, text)`. It never runs backwards: a smaller
        share than before changes the text alone. Without a terminal it prints a line now and then."""
        if not self._progress_console.is_terminal:
            yield _growing(self._lines())
            return
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        with Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=self._progress_console,
            transient=True,
            disable=self.is_json,
        ) as progress:
            task = progress.add_task(what, total=1.0)

            def update(share: float, text: str) -> None:
                progress.update(task, completed=min(1.0, max(0.0, share)), description=text)

            yield _growing(update)

    def _lines(self) -> Callable[[float, str], None]:
        said_s = time.monotonic()

        def update(share: float, text: str) -> None:
            nonlocal said_s
            if not self.is_json and time.monotonic() - said_s >= _LINE_EVERY_S:
                said_s = time.monotonic()
                known = f" ({percent(min(1.0, share))})" if share > 0 else ""
                print(f"{text}{known}", file=sys.stderr, flush=True)

        return update


def _growing(update: Callable[[float, str], None]) -> Callable[[float, str], None]:
    """Splits add items to what is to be copied, and sources grow: the share that was shown once stays."""
    reached = 0.0

    def grow(share: float, text: str) -> None:
        nonlocal reached
        reached = max(reached, min(1.0, share))
        update(reached, text)

    return grow


def _box() -> Any:
    from rich import box

    return box.SIMPLE_HEAD


def count(number: float) -> str:
    """1,234"""
    return f"{number:,.0f}"


def counted(number: int, noun: str) -> str:
    """1 row, 2 rows"""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def size(size_bytes: int) -> str:
    """1.2 MB"""
    amount = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def units(ru: float) -> str:
    return f"{ru:,.1f}" if ru < 1000 else f"{ru:,.0f}"


def throughput_text(throughput: dict[str, Any] | None) -> str:
    if throughput is None:
        return "-"
    text = f"{throughput['ru']:,} RU/s"
    if throughput.get("autoscale"):
        text = f"up to {text}"
    if throughput.get("sharedByDatabase"):
        text += " (shared)"
    if throughput.get("pending"):
        text += " (pending)"
    return text


# Escaping of text for terminals and logs.


def printable(text: str) -> str:
    """Escape control characters, except tabs and line ends."""
    return _CONTROL.sub(_escaped, text)


def one_line(text: str, continued: str = "\\n") -> str:
    """Escape control characters and line ends."""
    return _LINE_END.sub(lambda found: continued * len(found.group()), printable(text))


def json_line(text: str) -> str:
    """JSON that leaves other than ASCII characters as they are, in one line all the same."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found.group())
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
