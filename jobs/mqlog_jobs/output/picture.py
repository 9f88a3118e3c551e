"""Output for a terminal as a picture: SVG with a font that every machine has."""

import io
from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from mqlog_jobs.output.whole_file import replace_file

_CELLS: Final = 96
_THEME: Final = TerminalTheme(
    (23, 30, 38),
    (230, 235, 240),
    [(44, 54, 65), (255, 138, 144), (111, 220, 160), (242, 196, 109), (125, 183, 255),
     (216, 155, 240), (84, 200, 214), (230, 235, 240)],
    [(139, 152, 166), (255, 138, 144), (111, 220, 160), (242, 196, 109), (125, 183, 255),
     (216, 155, 240), (84, 200, 214), (255, 255, 255)],
)  # fmt: skip
# As rich's own, without the font that it fetches from elsewhere: each run of text has a length of
# its own, so letters stand below each other whatever the font is.
_SVG: Final = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font: {char_height}px/{line_height}px ui-monospace, "SF Mono", Menlo, Consolas,
    "DejaVu Sans Mono", "Liberation Mono", monospace;
}}
.{unique_id}-title {{ font: bold 18px system-ui, "Segoe UI", Roboto, Arial, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def save(path: str, title: str, draw: Callable[[Console], None]) -> None:
    """Write what ``draw`` prints to ``path``. The same output gives the same picture."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=_CELLS,
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
    )
    draw(console)
    picture = console.export_svg(title=title, theme=_THEME, code_format=_SVG, unique_id="mqlog")
    replace_file(path, picture)
