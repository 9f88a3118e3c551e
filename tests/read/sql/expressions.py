"""SQL92 expressions and properties made by a seed: whole ones, odd ones and broken ones."""

import random
from collections.abc import Iterator
from typing import Final

NAMES: Final = ("a", "b", "c", "Name_1", "$d")
VALUES: Final = [
    *("0", "5", "7", "-5", "+5", "007", "5.0", "5.5", ".5", "5.", "1e3", "1E400", "-0.0", "0.0"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "9007199254740993"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 40),
    *("0" * 30 + "7", "NaN", "-Infinity", "Infinity", "nan", "1.5f", "2D", "0x1p3", "0x1.8P-1d"),
    *("1e99999999999", "1e-99999999999", "0e99999999999", "-0x1p99999999999", "0x0p99999999999"),
    *(
        "0x1p-99999999999",
        "0x1.fffffffffffff8p1023",
        "0x.p1",
        "1_000",
        "１.５",
        "-３",
        "+٣",
        "5.5e+0",
    ),
    *("true", "TRUE", "false", "yes", "x", "it's", "", " 5", "5 ", "\t5.5\n", "+", "-", ".", "1e"),
    *(
        "abc",
        "xabcx",
        "٣",
        "５",
        "-１２",
        "𝟓",
        "grün",
        "日本語",
        "😀5",
        "K",
        "tr\u00fce",
        "5\u00a0",
    ),
]
TEXTS: Final = ("x", "5", "abc", "b", "it''s", "", "true", "grün", "日本語", "😀", "0", "5.5")
NUMBERS: Final = [
    *("0", "5", "7", "5L", "2147483647", "2147483648", "9007199254740993", "9223372036854775807"),
    *("5.0", "5.5", ".5", "5.", "1e3", "4.9E-324", "1.7976931348623157E308", "9007199254740992.0"),
]
ODD_NUMBERS: Final = ("007", "0.0", "1e400", "9223372036854775808", "5e", "0l", "9" * 30)
SIGNS: Final = ("=", "<>", "<", "<=", ">", ">=")
SPACES: Final = (" ", " ", " ", "  ", "\n", "\t", " /* AND 'b */ ", " -- OR x\n")
WORDS: Final = [
    *("AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "TRUE", "FALSE", "CONTAINS", "(", ")"),
    *(",", "-", "+", "LIKE", "'x'", "5", "a", "=", "<>", "!", "--", "/*", "'", "garbage", "é"),
]


def messages(seed: int, count: int) -> list[dict[str, str]]:
    """Return the properties of messages; the first have one value each, so that all come."""
    rng = random.Random(seed)
    found = [{"a": value} for value in VALUES] + [{}]
    while len(found) < count:
        names = rng.sample(NAMES, rng.randint(1, len(NAMES)))
        found.append({name: rng.choice(VALUES) for name in names})
    return found[:count]


def expressions(seed: int, count: int) -> Iterator[str]:
    """Yield expressions: three of four follow the grammar, of the others a word is wrong."""
    rng = random.Random(seed)
    for number in range(count):
        words = list(_condition(rng, rng.randint(0, 4)))
        if number % 4 == 3:
            _spoil(rng, words)
        yield _joined(rng, words)


def _joined(rng: random.Random, words: list[str]) -> str:
    return "".join(word + rng.choice(SPACES) for word in words).rstrip(" ")


def _spoil(rng: random.Random, words: list[str]) -> None:
    place = rng.randrange(len(words))
    how = rng.randrange(4)
    if how == 0:
        del words[place]
    elif how == 1:
        words.insert(place, rng.choice(WORDS))
    elif how == 2:
        words[place] = rng.choice([*WORDS, *ODD_NUMBERS])
    else:
        words.append(rng.choice(WORDS))


def _condition(rng: random.Random, depth: int) -> Iterator[str]:
    how = rng.randrange(10)
    if depth and how < 5:
        yield from _grouped(rng, depth)
        yield _cased(rng, rng.choice(("AND", "OR")))
        yield from _grouped(rng, depth)
    elif depth and how == 5:
        yield _cased(rng, "NOT")
        yield from _grouped(rng, depth)
    else:
        yield from _test(rng, depth)


def _grouped(rng: random.Random, depth: int) -> Iterator[str]:
    if rng.random() < 0.5:
        yield from _condition(rng, depth - 1)
    else:
        yield "("
        yield from _condition(rng, depth - 1)
        yield ")"


def _test(rng: random.Random, depth: int) -> Iterator[str]:
    how = rng.randrange(8)
    if how < 3:
        yield from _operand(rng, depth)
        yield rng.choice(SIGNS)
        yield from _operand(rng, depth)
    elif how == 3:
        yield from _operand(rng, depth)
        yield from (_cased(rng, "IS"), *_maybe_not(rng), _cased(rng, "NULL"))
    elif how == 4:
        yield rng.choice(NAMES)
        yield from (*_maybe_not(rng), _cased(rng, "BETWEEN"))
        low, high = sorted(rng.sample(range(len(NUMBERS)), 2))
        yield rng.choice((NUMBERS[low], rng.choice(NAMES), f"-{NUMBERS[high]}"))
        yield _cased(rng, "AND")
        yield rng.choice((NUMBERS[high], rng.choice(NAMES)))
    elif how == 5:
        yield rng.choice(NAMES)
        yield from (*_maybe_not(rng), _cased(rng, "IN"), "(")
        texts = [_text(rng) for _ in range(rng.randint(1, 7))]
        yield from ", ".join(texts).split(" ")
        yield ")"
    elif how == 6:
        yield from _operand(rng, depth)
        word = rng.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
        yield from (*_maybe_not(rng), _cased(rng, word), _text(rng))
    else:
        yield rng.choice((*NAMES, "TRUE", "FALSE", "NULL"))


def _operand(rng: random.Random, depth: int) -> Iterator[str]:
    how = rng.randrange(20)
    if how < 9:
        yield rng.choice(NAMES)
    elif how < 14:
        yield rng.choice(NUMBERS)
    elif how < 16:
        yield _text(rng)
    elif how == 16:
        yield rng.choice(("TRUE", "FALSE", "NULL"))
    elif how == 17:
        yield rng.choice("+-")
        yield rng.choice((*NUMBERS, *NAMES, "'x'", "TRUE"))
    elif depth:
        if how == 18:
            yield "-"
        yield "("
        yield from _condition(rng, depth - 1)
        yield ")"
    else:
        yield from ("(", rng.choice(NAMES), ")")


def _maybe_not(rng: random.Random) -> tuple[str, ...]:
    return (_cased(rng, "NOT"),) if rng.random() < 0.3 else ()


def _text(rng: random.Random) -> str:
    return f"'{rng.choice(TEXTS)}'"


def _cased(rng: random.Random, word: str) -> str:
    return rng.choice((word, word, word.lower(), word.title()))
