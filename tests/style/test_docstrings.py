"""A docstring names its nouns: no sentence of it is a chain of pronouns that point back."""

import ast
import re
from collections.abc import Iterator

import pytest

from style.test_tidy import SOURCES, TESTS

POINTERS = re.compile(
    r"\b(?:those|whose|whom|(?:that|ones?) (?:of|in|which|whose)"
    r"|(?:of|in|to|by|on|from|for|with|at) which)\b",
    re.IGNORECASE,
)
CHAINED = re.compile(
    r"\b(?:those|that|ones?) (?:of|in|to|with|by|on|from) (?:which|whose|whom|what)\b"
    r"|\b(?:those|that) of (?:those|that)\b",
    re.IGNORECASE,
)
MOST_POINTERS = 2
_OF_A_TABLE = re.compile(r"\S  +\S")
_SENTENCE_END = re.compile(r"(?<=[.:;])\s+|\n\n")


def sentences(docstring: str) -> Iterator[str]:
    """Yield the sentences of a docstring, without rows of tables."""
    prose = "\n".join(line for line in docstring.split("\n") if not _OF_A_TABLE.search(line))
    for sentence in _SENTENCE_END.split(prose):
        yield " ".join(sentence.split())


def is_chain(sentence: str) -> bool:
    """Tell whether a reader must look back more than twice, or back from what points back."""
    many = len(POINTERS.findall(sentence)) > MOST_POINTERS
    return many or CHAINED.search(sentence) is not None


@pytest.mark.parametrize(
    "sentence",
    [
        "Return those of that which is behind the end.",
        "The order is that in which they lie.",
        "Those whose place is known, those of the log and those that have none.",
        "The files, one of which must be there.",
    ],
)
def test_a_chain_of_pronouns_is_found(sentence: str) -> None:
    assert is_chain(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Return the token if it is of one of those kinds.",
        "Return the records whose place is behind those of the index.",
        "a  those of which  whose",
    ],
)
def test_a_sentence_that_points_back_once_or_twice_is_none(sentence: str) -> None:
    assert not any(map(is_chain, sentences(sentence)))


def test_no_docstring_is_a_chain_of_pronouns() -> None:
    found = []
    for path in (*SOURCES, *TESTS):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                docstring = ast.get_docstring(node) or ""
                found += [(str(path), one) for one in sentences(docstring) if is_chain(one)]
    assert found == []
