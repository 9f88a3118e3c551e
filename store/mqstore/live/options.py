"""Options of reading from a running cluster: each declared once, parsed to plain values.

A field of LiveOptions is an option. Its LiveOption has the name as the user's guide spells it,
the parser of its text and its default as text, which is parsed like any other.

Reference: org.apache.rocketmq.client.ClientConfig, NettyClientConfig, TlsSystemConfig for what
the Java client calls the same; org.apache.rocketmq.client.Validators#checkGroup.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, get_type_hints

from mqstore.errors import InvalidOptionError
from mqstore.live.origin.pull import MAX_MESSAGES
from mqstore.live.remoting.address import Address, name_servers, server
from mqstore.live.remoting.cluster import READ_FROM, TOOLS_CONSUMER, ClusterSettings
from mqstore.live.remoting.connection import Limits
from mqstore.live.remoting.credentials import Credentials, choose
from mqstore.live.remoting.tls import Tls
from mqstore.options.grammar import boolean, choice, count, did_you_mean, duration, group_name, size
from mqstore.options.secret import Secret, parse_secret

_MAX_IN_FLIGHT: Final = 256
_LEAST_FRAME_BYTES: Final = 64 * 1024
_MOST_FRAME_BYTES: Final = 256 * 1024 * 1024
_MOST_MS: Final = 24 * 60 * 60 * 1000
_ONLY_WITH_TLS: Final = ("tlsCaFile", "tlsCertFile", "tlsKeyFile", "tlsVerifyHostname")


@dataclass(frozen=True, slots=True)
class LiveOption:
    """One option: its name, how its text is read, its default as text (None: none)."""

    name: str
    parse: Callable[[str, str], Any]
    default: str | None = None


def _any_text(_name: str, text: str) -> str:
    return text


def milliseconds(name: str, text: str, *, low: int = 1) -> int:
    """Return a duration from ``low`` ms to 24 hours; raises InvalidOptionError."""
    found = duration(name, text)
    if not low <= found <= _MOST_MS:
        raise InvalidOptionError(name, text, f"must be from {low} ms to 24h")
    return found


def _addresses(name: str, text: str) -> dict[str, str]:
    form = '{"broker-a":"host:port"}'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOptionError(name, text, f"is not JSON ({error}): write {form}") from None
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise InvalidOptionError(name, text, f"must be JSON such as {form}")
    return {broker: server(name, host) for broker, host in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """The options of a cluster, set or by default. ``given`` names those that were set."""

    given: frozenset[str]
    name_servers: Annotated[tuple[str, ...] | None, LiveOption("nameServers", name_servers)]
    consumer_group: Annotated[str, LiveOption("consumerGroup", group_name, TOOLS_CONSUMER)]
    access_key: Annotated[Secret | None, LiveOption("accessKey", parse_secret)]
    secret_key: Annotated[Secret | None, LiveOption("secretKey", parse_secret)]
    security_token: Annotated[Secret | None, LiveOption("securityToken", parse_secret)]
    credentials_file: Annotated[str | None, LiveOption("credentialsFile", _any_text)]
    tls: Annotated[bool, LiveOption("tls", boolean, "false")]
    tls_ca_file: Annotated[str | None, LiveOption("tlsCaFile", _any_text)]
    tls_cert_file: Annotated[str | None, LiveOption("tlsCertFile", _any_text)]
    tls_key_file: Annotated[str | None, LiveOption("tlsKeyFile", _any_text)]
    tls_verify_host_name: Annotated[bool, LiveOption("tlsVerifyHostname", boolean, "true")]
    connect_timeout_ms: Annotated[int, LiveOption("connectTimeout", milliseconds, "3s")]
    request_timeout_ms: Annotated[int, LiveOption("requestTimeout", milliseconds, "10s")]
    retry_timeout_ms: Annotated[
        int, LiveOption("retryTimeout", partial(milliseconds, low=0), "60s")
    ]
    pulls_in_flight: Annotated[
        int, LiveOption("pullsInFlight", partial(count, high=_MAX_IN_FLIGHT), "8")
    ]
    pull_batch_size: Annotated[
        int, LiveOption("pullBatchSize", partial(count, high=MAX_MESSAGES), "1000")
    ]
    max_frame_bytes: Annotated[
        int,
        LiveOption(
            "maxFrameBytes", partial(size, low=_LEAST_FRAME_BYTES, high=_MOST_FRAME_BYTES), "17m"
        ),
    ]
    read_from: Annotated[str, LiveOption("readFrom", partial(choice, words=READ_FROM), "master")]
    broker_addresses: Annotated[Mapping[str, str], LiveOption("brokerAddresses", _addresses, "{}")]


def _declared() -> dict[str, LiveOption]:
    hints = get_type_hints(LiveOptions, include_extras=True)
    found = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
    return {name: option for name, option in found.items() if isinstance(option, LiveOption)}


LIVE_OPTIONS: Final = _declared()
"""The options by the field of LiveOptions that each is."""


def parse_options(options: Mapping[str, str]) -> LiveOptions:
    """Return the values of options by their names, in any case; connects to nothing.

    Raises InvalidOptionError, which never shows a secret, for a value that is not accepted, an
    unknown name, and options that contradict each other.
    """
    by_name = {option.name.lower(): (field, option) for field, option in LIVE_OPTIONS.items()}
    values: dict[str, Any] = {}
    given = set()
    for name, text in options.items():
        if name.lower() not in by_name:
            names = [option.name for option in LIVE_OPTIONS.values()]
            advice = did_you_mean(name, names) or f"the options are {', '.join(names)}"
            raise InvalidOptionError(name, "***", f"unknown option; {advice.strip()}")
        field, option = by_name[name.lower()]
        values[field] = option.parse(option.name, text)
        given.add(option.name)
    for field, option in LIVE_OPTIONS.items():
        if field not in values:
            default = option.default
            values[field] = None if default is None else option.parse(option.name, default)
    return LiveOptions(given=frozenset(given), **values)


def cluster_settings(
    options: LiveOptions, address: Address | None, environment: Mapping[str, str]
) -> ClusterSettings:
    """Return what a Cluster is made of, for the address of a path or the option nameServers.

    Keys that no option gives are taken from a file, or from variables of the ``environment``
    (see credentials.ENVIRONMENT). Raises InvalidOptionError.
    """
    return ClusterSettings(
        name_servers=_servers(options, address),
        credentials=_credentials(options, environment),
        tls=_tls(options, address),
        limits=Limits(
            options.connect_timeout_ms, options.request_timeout_ms, options.max_frame_bytes
        ),
        retry_timeout_ms=options.retry_timeout_ms,
        consumer_group=options.consumer_group,
        read_from=options.read_from,
        broker_addresses=options.broker_addresses,
        pulls_in_flight=options.pulls_in_flight,
        pull_batch_size=options.pull_batch_size,
    )


def _servers(options: LiveOptions, address: Address | None) -> tuple[str, ...]:
    named = options.name_servers
    if address is None and named is None:
        expected = "is needed where no path rocketmq://HOST:9876/TOPIC names the cluster"
        raise InvalidOptionError("nameServers", "", expected)
    if address is not None and named is not None:
        expected = "cannot stand with a path rocketmq://…, which names the name servers"
        raise InvalidOptionError("nameServers", ",".join(named), expected)
    return address.name_servers if address is not None else (named or ())


def _credentials(options: LiveOptions, environment: Mapping[str, str]) -> Credentials | None:
    named = {
        "accessKey": options.access_key,
        "secretKey": options.secret_key,
        "securityToken": options.security_token,
    }
    set_ = {name: secret for name, secret in named.items() if secret is not None}
    path = options.credentials_file
    return choose(set_, None if path is None else ("credentialsFile", path), environment)


def _tls(options: LiveOptions, address: Address | None) -> Tls | None:
    by_path = address is not None and address.tls
    if by_path and "tls" in options.given and not options.tls:
        raise InvalidOptionError("tls", "false", "the path says rocketmqs://, which is TLS")
    if not (by_path or options.tls):
        for name in _ONLY_WITH_TLS:
            if name in options.given:
                expected = "is for TLS: set tls=true, or write rocketmqs://"
                raise InvalidOptionError(name, "…", expected)
        return None
    if options.tls_key_file is not None and options.tls_cert_file is None:
        raise InvalidOptionError("tlsKeyFile", options.tls_key_file, "needs tlsCertFile beside it")
    return Tls(
        options.tls_ca_file,
        options.tls_cert_file,
        options.tls_key_file,
        options.tls_verify_host_name,
    )
