"""Tags as a bar of their shares and a legend; a tag has one colour in all of a page."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from mqlog_jobs.output.amounts import ABOUT, count
from mqlog_jobs.report.charts import SERIES, bar, colour
from mqlog_jobs.report.facts import TagHeld, Tags
from mqlog_jobs.report.markup import Element, element

NO_TAG = "no tag"
_NONE = "none"
_OTHER_TAGS = "rest"


class TagColours:
    """The colours of tags: one for each tag in all charts of a page, and others within a row."""

    def __init__(self, rows: Iterable[Tags | None] = ()) -> None:
        """Give colours to the tags of all rows of the page, those of most messages first.

        A tag that shares rows with tags of all colours has that of ``rest``.
        """
        beside: defaultdict[str, set[str]] = defaultdict(set)
        messages: Counter[str] = Counter()
        for row in rows:
            held = [] if row is None else row.tags[:SERIES]
            names = {one.tag for one in held if one.tag is not None}
            for one in held:
                if one.tag is not None:
                    messages[one.tag] += one.messages
                    beside[one.tag] |= names - {one.tag}
        self._numbers: dict[str, int] = {}
        used: Counter[int] = Counter()
        for tag in sorted(messages, key=lambda tag: (-messages[tag], tag)):
            taken = {self._numbers.get(other) for other in beside[tag]}
            free = [number for number in range(SERIES) if number not in taken]
            self._numbers[tag] = min(
                free, key=lambda number: (used[number], number), default=SERIES
            )
            used[self._numbers[tag]] += 1

    def of(self, tag: str | None) -> str:
        """Return the class of the colour of a tag."""
        return _NONE if tag is None else colour(self._numbers.get(tag, SERIES))


def tag_bar(tags: Tags, colours: TagColours, most: int = SERIES) -> list[Element]:
    """Return a bar of the shares of the tags, and the first ``most`` of them by name."""
    total = max(tags.looked.of, 1)
    shown = tags.tags[:most]
    classes = [colours.of(tag.tag) for tag in shown]
    about = ABOUT if tags.looked.is_sample else ""
    parts = [(tag.messages / total, name) for tag, name in zip(shown, classes, strict=True)]
    named = [
        _key(name, tag_name(tag), about + percent(share))
        for tag, (share, name) in zip(shown, parts, strict=True)
    ]
    left = len(tags.tags) + tags.others - len(shown)
    if left:
        rest = max(1 - sum(share for share, _ in parts), 0.0)
        parts.append((rest, _OTHER_TAGS))
        named.append(
            _key(_OTHER_TAGS, f"{count(left)} other{'s' * (left > 1)}", about + percent(rest))
        )
    text = ", ".join(f"{tag_name(tag)} {percent(tag.messages / total)}" for tag in shown)
    return [bar(parts, f"Shares of tags: {about}{text}"), element("ul", *named, class_="keys")]


def tag_name(tag: TagHeld) -> str:
    """Return the tag, or the words for none."""
    return NO_TAG if tag.tag is None else tag.tag


def percent(share: float) -> str:
    """Return a share in percent; one that rounds to 0 is said to be less than 1."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def _key(colour_class: str, name: str, value: str) -> Element:
    return element("li", element("i", class_=f"key {colour_class}"), name, " ", element("b", value))
