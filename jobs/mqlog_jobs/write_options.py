"""Options of a write to a cluster, as a command's flags give them."""

from collections.abc import Mapping

from mqstore.deliver.settings import AT_LEAST_ONCE, SendSettings
from mqstore.errors import InvalidOptionError
from mqstore.places import SECRETS, is_cluster
from pyspark_mqlog.options import parse_write


def settings_of(address: str, topic: str, options: Mapping[str, str]) -> SendSettings:
    """Return the settings of a write to a topic, at least once.

    Raises InvalidOptionError: for secrets too, which would show in the list of processes.
    """
    check_cluster(address)
    check_secrets(options)
    found = parse_write({"path": address, "topic": topic, **options})
    assert isinstance(found, SendSettings)
    if found.delivery != AT_LEAST_ONCE:
        expected = "standard input cannot be read again: exactly once is for df.write"
        raise InvalidOptionError("delivery", found.delivery, expected)
    return found


def check_cluster(address: str) -> None:
    """Raise InvalidOptionError unless ``address`` is that of a cluster."""
    if not is_cluster(address):
        expected = "must be a running cluster: rocketmq://HOST:9876, with TLS rocketmqs://HOST:9876"
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
