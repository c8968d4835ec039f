"""The report of `inspect` as one page: no script, and nothing from elsewhere, which its policy also forbids.

All texts of the message are escaped twice: control characters and direction marks as in the terminal, then for HTML.
"""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from streamcodec.cli.shown import alignment_text, figures, hex_rows, place_text, shape_text, size_text, unread_text
from streamcodec.engine.errors import printable, shortened
from streamcodec.inspection import Failure, Histogram, Picture, Report, Segment, TensorReport

_MOST_TENSORS: Final = 200
_NAME_CHARACTERS: Final = 200
_PICTURE_PIXELS: Final = 192
_COLOUR_TYPES: Final = {1: 0, 3: 2, 4: 6}
"""Of PNG, by the number of channels."""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2024; --dim: #5c6670; --paper: #fff; --card: #f4f6f8; --line: #d5dbe1;
  --good: #17713f; --bad: #b3261e; --mark: #ffd54a; --head: #7a8794; --header: #b7791f; --tensor: #2b6cb0;
  --other: #a0aab4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --dim: #9aa5b0; --paper: #14171a; --card: #1e2327;
  --line: #343b42; --good: #5fce8f; --bad: #ff8a80; --mark: #ffd54a; --head: #8a97a4; --header: #e0a84a;
  --tensor: #63a4e8; --other: #59636d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 68rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.35rem; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 1.75rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .25rem; }
p { margin: .25rem 0; }
.dim, th, dt { color: var(--dim); font-weight: normal; }
.good { color: var(--good); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
pre, .card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .75rem; margin: 0; }
pre { overflow: auto; max-height: 28rem; overflow-wrap: normal; font: 13px/1.45 ui-monospace, monospace; }
.card + .card { margin-top: .75rem; }
.failure { border-color: var(--bad); }
.failure pre { margin-top: .5rem; }
mark { background: var(--mark); color: #000; border-radius: 2px; }
.map { display: flex; height: 2rem; border-radius: 6px; overflow: hidden; border: 1px solid var(--line); }
.map span { min-width: 2px; border-right: 1px solid var(--paper); }
.map span:last-child { border-right: 0; }
.map .tensor:nth-child(even) { opacity: .65; }
.head { background: var(--head); } .header { background: var(--header); } .tensor { background: var(--tensor); }
.other { background: var(--other); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin-top: .5rem; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .15rem .75rem .15rem 0; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .4rem; }
dl { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; margin: .5rem 0; }
dd { margin: 0; font-variant-numeric: tabular-nums; }
.body { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-end; margin-top: .5rem; }
.bars { flex: 1 1 16rem; max-width: 32rem; }
.bars div { display: flex; align-items: flex-end; gap: 1px; height: 4.5rem; border-bottom: 1px solid var(--line); }
.bars div span { flex: 1; background: var(--tensor); }
.bars p { display: flex; justify-content: space-between; font-size: .85rem; }
img { image-rendering: pixelated; border: 1px solid var(--line); border-radius: 4px; }
code { font: .9em ui-monospace, monospace; }
"""

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def html_page(report: Report) -> str:
    """Return a report as a page."""
    title = f"{_text(report.source)}: {'valid' if report.is_valid else 'refused'}"
    return "".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
            f'<link rel="icon" href="data:,">\n<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n',
            *(f"{part}\n" for part in _parts(report)),
            "</body>\n</html>\n",
        )
    )


def _parts(report: Report) -> Iterator[str]:
    verdict = '<span class="good">valid</span>' if report.is_valid else '<span class="bad">refused</span>'
    size = "" if report.nbytes is None else f", {size_text(report.nbytes)}"
    yield f"<h1>{_text(report.source)}</h1><p>{_text(report.form)}{size}: {verdict}</p>"
    yield from (f'<p class="dim">{_text(note)}</p>' for note in report.notes)
    if report.failure is not None:
        yield from _failure(report.failure)
    if report.segments:
        yield "<h2>Bytes, to scale</h2>"
        yield from _map(report.segments)
    if report.head is not None:
        yield f'<h2>Head <span class="dim">{size_text(report.head.nbytes)}</span></h2>'
        lines = [report.head.start_line, *(f"{name}: {value}" for name, value in report.head.fields)]
        yield _pre(lines)
    if report.header is not None:
        yield f'<h2>Header <span class="dim">{size_text(report.header.nbytes)}</span></h2>'
        yield _pre([*report.header.text.rstrip().split("\n"), *(["... (cut)"] if report.header.is_cut else [])])
    if report.tensors:
        yield "<h2>Tensors</h2>"
        yield from map(_tensor, report.tensors[:_MOST_TENSORS])
    if len(report.tensors) > _MOST_TENSORS:
        yield f'<p class="dim">and {len(report.tensors) - _MOST_TENSORS} more</p>'


def _failure(failure: Failure) -> Iterator[str]:
    yield f'<h2>Refused</h2><div class="card failure"><h3 class="bad">{_text(failure.code)}</h3>'
    yield f"<p>{_text(failure.message)}</p>"
    yield f'<p class="dim">see {_text(failure.link)}</p>'
    if failure.path is not None:
        yield f"<p>at <code>{_text(failure.path)}</code></p>"
    if failure.offset is None:
        yield "<p>no single byte is wrong</p>"
    else:
        yield f"<p>at byte {failure.offset:,} (0x{failure.offset:x})</p>"
    if failure.view is not None:
        yield f"<pre>{''.join(_hex_lines(failure))}</pre>"
    yield "</div>"


def _hex_lines(failure: Failure) -> Iterator[str]:
    for row in hex_rows(failure.view) if failure.view is not None else ():
        cells = [f"<mark>{cell}</mark>" if index == row.marked else cell for index, cell in enumerate(row.cells)]
        yield f"{row.start:010x}  {' '.join(cells)}  |{html.escape(row.text)}|\n"
        if row.marked is not None:
            yield f"{'':10}  {'   ' * row.marked}^^ {row.remark}\n"


def _map(segments: tuple[Segment, ...]) -> Iterator[str]:
    shown = segments[:_MOST_TENSORS]
    bars = "".join(
        f'<span class="{each.kind}" style="flex:{each.nbytes} 0 0" title="{_name(each.name)}"></span>' for each in shown
    )
    yield f'<div class="map">{bars}</div>'
    yield '<div class="scroll"><table><tr><th>part</th>'
    yield '<th class="number">starts at byte</th><th class="number">bytes</th></tr>'
    for each in shown:
        yield (
            f'<tr><td><span class="key {each.kind}"></span>{_name(each.name)}</td>'
            f'<td class="number">{each.start:,}</td><td class="number">{each.nbytes:,}</td></tr>'
        )
    yield "</table></div>"
    if len(segments) > len(shown):
        yield f'<p class="dim">and {len(segments) - len(shown)} more</p>'


def _tensor(tensor: TensorReport) -> str:
    aligned = "" if tensor.alignment is None else f", {alignment_text(tensor)}"
    lines = [
        f'<div class="card"><h3>{_name(tensor.name)}</h3>',
        f"<p><code>{_text(tensor.datatype)} {shape_text(tensor.shape)}</code>",
        f' <span class="dim">{place_text(tensor)}{aligned}</span></p>',
    ]
    if tensor.statistics is None:
        lines.append(f'<p class="dim">{unread_text(tensor)}</p>')
    else:
        lines.append(
            f"<dl>{''.join(f'<div><dt>{name}</dt><dd>{value}</dd></div>' for name, value in figures(tensor))}</dl>"
        )
    if tensor.first_values:
        lines.append(f'<p><span class="dim">first</span> <code>{", ".join(map(_text, tensor.first_values))}</code></p>')
    histogram = None if tensor.statistics is None else tensor.statistics.histogram
    graphics = "".join((_bars(histogram) if histogram else "", _image(tensor.picture) if tensor.picture else ""))
    lines.append(f'<div class="body">{graphics}</div></div>' if graphics else "</div>")
    return "".join(lines)


def _bars(histogram: Histogram) -> str:
    most = max(histogram.counts)
    bars = "".join(
        f'<span style="height:{max(100 * count / most, 2 if count else 0):.1f}%" title="{count:,}"></span>'
        for count in histogram.counts
    )
    ends = f"<span>{histogram.start:.6g}</span><span>{histogram.end:.6g}</span>"
    return f'<div class="bars"><div>{bars}</div><p class="dim">{ends}</p></div>'


def _image(picture: Picture) -> str:
    data = base64.b64encode(_png(picture)).decode()
    scale = _PICTURE_PIXELS / max(picture.width, picture.height)
    size = f'width="{picture.width * scale:.0f}" height="{picture.height * scale:.0f}"'
    return f'<img {size} alt="the tensor as a small image" src="data:image/png;base64,{data}">'


def _png(picture: Picture) -> bytes:
    row_bytes = picture.width * picture.channels
    rows = [picture.data[start : start + row_bytes] for start in range(0, len(picture.data), row_bytes)]
    fields = struct.pack(">2I5B", picture.width, picture.height, 8, _COLOUR_TYPES[picture.channels], 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    chunks = ((b"IHDR", fields), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _pre(lines: Iterable[str]) -> str:
    return "<pre>{}</pre>".format("\n".join(map(_text, lines)))


def _name(name: str) -> str:
    return _text(shortened(name, _NAME_CHARACTERS)) or "(no name)"


def _text(text: str) -> str:
    return html.escape(printable(text))
