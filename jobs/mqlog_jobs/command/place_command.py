"""Commands that read places and print rows: the arguments and options that all of them have."""

import inspect
from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

from mqlog_jobs.command.app import command
from mqlog_jobs.command.parameters import (
    AsCsv,
    AsJson,
    CommitLog,
    FromLog,
    Options,
    OptionsOfRead,
    Stores,
)

_Body = TypeVar("_Body", bound=Callable[..., None])
_STORES: Final = "stores"
_OF_ALL: Final[dict[str, tuple[Any, object]]] = {
    "commit_log": (CommitLog, None),
    "from_log": (FromLog, False),
    "options": (Options, None),
    "as_json": (AsJson, False),
    "as_csv": (AsCsv, False),
}


def place_command(
    panel: str,
    *examples: str,
    stores: Any = Stores,
    without: Collection[str] = (),
    in_front: Collection[str] = (),
    takes_reads: bool = False,
) -> Callable[[_Body], _Body]:
    """Make a function of (named, form, *, …) a command of places.

    ``named`` is a Named of the places and of the options -o, --commit-log and --from-log, ``form``
    a Form of --json and --csv; the function declares what it takes beside these. Its positional
    parameters are arguments behind the places, but those ``in_front``. ``stores`` is the type of
    the places; ``without`` names options of all such commands that this one does not have.
    With ``takes_reads`` -o takes the options of a read too.
    """
    shared = {name: of for name, of in _OF_ALL.items() if name not in without}
    if takes_reads:
        shared["options"] = (OptionsOfRead, None)

    def decorated(function: _Body) -> _Body:
        own = list(inspect.signature(function).parameters.values())[2:]
        positional, keyword = (
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        )
        arguments = [one for one in own if one.kind is positional]
        options = [one for one in own if one.kind is keyword]
        place = inspect.Parameter(_STORES, positional, annotation=stores)
        added = [
            inspect.Parameter(name, keyword, default=default, annotation=kind)
            for name, (kind, default) in shared.items()
        ]

        def run(**given: Any) -> None:
            from mqlog_jobs.output.form import Form  # noqa: PLC0415 - a help starts fast
            from mqlog_jobs.places import Named  # noqa: PLC0415

            form = Form(given.pop("as_json", False), given.pop("as_csv", False))
            named = Named.of(
                given.pop(_STORES),
                given.pop("commit_log", None),
                given.pop("options", None),
                from_log=given.pop("from_log", False),
            )
            function(named, form, **given)

        front = [one for one in arguments if one.name in in_front]
        behind = [one for one in arguments if one.name not in in_front]
        parameters = [*front, place, *behind, *options, *added]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        command(panel, *examples)(run)
        return function

    return decorated
