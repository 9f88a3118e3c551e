"""Tags as a bar of their shares and a legend; a tag keeps its colour from row to row."""

from collections.abc import Sequence

from mqlog_jobs.output.amounts import ABOUT, count
from mqlog_jobs.report.charts import SERIES, bar, colour
from mqlog_jobs.report.facts import TagHeld, Tags
from mqlog_jobs.report.markup import Element, element

NO_TAG = "no tag"
_NONE = "none"
_OTHER_TAGS = "rest"


class TagColours:
    """The colours of tags: in each row they differ, and a tag keeps its own where it can."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def row(self, tags: Sequence[str | None]) -> list[str]:
        """Return the class of the colour of each of these tags, at most SERIES."""
        taken: dict[str | None, int] = {}
        for tag in tags:
            known = self._known.get(tag or "")
            if known is not None and known not in taken.values():
                taken[tag] = known
        for tag in tags:
            if tag is not None and tag not in taken:
                free = [n for n in range(SERIES) if n not in taken.values()]
                unused = [n for n in free if n not in self._known.values()]
                taken[tag] = (unused or free)[0]
                self._known.setdefault(tag, taken[tag])
        return [_NONE if tag is None else colour(taken[tag]) for tag in tags]


def tag_bar(tags: Tags, colours: TagColours, most: int = SERIES) -> list[Element]:
    """Return a bar of the shares of the tags, and the first ``most`` of them by name."""
    total = max(tags.looked.of, 1)
    shown = tags.tags[:most]
    classes = colours.row([tag.tag for tag in shown])
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
