"""Options of a write to a cluster, as a command's flags give them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mqstore.deliver.settings import AT_LEAST_ONCE, SendSettings
from mqstore.errors import (
    InvalidMessageError,
    InvalidOptionError,
    UnknownGroupError,
    UnknownTopicError,
)
from mqstore.options import store_paths
from mqstore.request.places import SECRETS, is_cluster
from mqstore.request.write import write_settings


def settings_of(address: str, topic: str, options: Mapping[str, str]) -> SendSettings:
    """Return the settings of a write to a topic, at least once.

    Raises InvalidOptionError: for secrets too, which would show in the list of processes.
    """
    check_cluster(address)
    check_secrets(options)
    found = cluster_settings(address, {"topic": topic, **options})
    if found.delivery != AT_LEAST_ONCE:
        expected = "standard input cannot be read again: exactly once is for df.write"
        raise InvalidOptionError("delivery", found.delivery, expected)
    return found


def cluster_settings(address: str, options: Mapping[str, str]) -> SendSettings:
    """Return the settings of a write to the cluster at ``address``; raises InvalidOptionError."""
    texts = {name.lower(): text for name, text in options.items()}
    found = write_settings((address,), texts, "must be a running cluster")
    assert isinstance(found, SendSettings)
    return found


@contextmanager
def advising(*words: tuple[str, str]) -> Iterator[None]:
    """Let errors that advise an option of a write advise what a command has instead.

    ``words`` are texts of such errors, each with its replacement.
    """
    try:
        yield
    except (InvalidMessageError, InvalidOptionError, UnknownGroupError, UnknownTopicError) as error:
        for old, new in words:
            error.args = tuple(
                one.replace(old, new) if isinstance(one, str) else one for one in error.args
            )
        raise


def check_cluster(address: str) -> None:
    """Raise InvalidOptionError unless ``address`` is that of a cluster."""
    if not is_cluster(address):
        form = "rocketmq://HOST:9876, with TLS rocketmqs://HOST:9876"
        expected = f"must be a running cluster: {store_paths.cluster_meant(address) or form}"
        raise InvalidOptionError("ADDRESS", address, expected)


def check_secrets(options: Mapping[str, str]) -> None:
    """Raise InvalidOptionError for an option that would show a secret."""
    secret = next((n for n in options if n.lower() in {s.lower() for s in SECRETS}), None)
    if secret is not None:
        expected = (
            "would show in the list of processes: set MQLOG_ACCESS_KEY and MQLOG_SECRET_KEY, "
            "or name a file: --option credentialsFile=FILE"
        )
        raise InvalidOptionError(secret, "***", expected)
