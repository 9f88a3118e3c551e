"""The options of a running cluster, from texts to the settings that a Cluster is made of.

Each is declared where its value is: in ClusterSettings, Limits and Tls, or here, if more than one
of them decides.

Reference: org.apache.rocketmq.remoting.netty.TlsSystemConfig.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.live.remoting.address import Address, name_servers
from mqstore.live.remoting.credentials import Credentials, choose
from mqstore.live.remoting.settings import ClusterSettings, Limits
from mqstore.live.remoting.tls import Tls
from mqstore.options.grammar import boolean
from mqstore.options.option import any_text, option, options_of, values_of
from mqstore.options.secret import Secret, parse_secret
from mqstore.options.texts import parse


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoAndWhere:
    """The options that name a cluster, and those who speak to it."""

    name_servers: tuple[str, ...] | None = option("nameServers", name_servers)
    access_key: Secret | None = option("accessKey", parse_secret)
    secret_key: Secret | None = option("secretKey", parse_secret)
    security_token: Secret | None = option("securityToken", parse_secret)
    credentials_file: str | None = option("credentialsFile", any_text)
    tls: bool = option("tls", boolean, False)


DECLARED_IN: Final = (WhoAndWhere, Tls, ClusterSettings, Limits)
LIVE_OPTIONS: Final = {f: o for kind in DECLARED_IN for f, o in options_of(kind).items()}
"""The options by the field that each is."""


def cluster_settings(
    texts: Mapping[str, str], address: Address | None, environment: Mapping[str, str]
) -> ClusterSettings:
    """Return what a Cluster is made of, for the address of a path or the option nameServers.

    ``texts`` are options by name, in any case; connects to nothing. Keys that no option gives are
    taken from a file, or from variables of the ``environment`` (see credentials.ENVIRONMENT).
    Raises InvalidOptionError, which never shows a secret, for a value that is not accepted, an
    unknown name, and options that contradict each other.
    """
    lowered = {name.lower(): text for name, text in texts.items()}
    values, given = parse(lowered, LIVE_OPTIONS, {})
    named = WhoAndWhere(**values_of(WhoAndWhere, values))
    tls = Tls(**values_of(Tls, values))
    return ClusterSettings(
        name_servers=_servers(named, address),
        credentials=_credentials(named, environment),
        tls=tls if _speaks_tls(named, tls, given, address) else None,
        limits=Limits(**values_of(Limits, values)),
        **values_of(ClusterSettings, values),
    )


def _servers(options: WhoAndWhere, address: Address | None) -> tuple[str, ...]:
    named = options.name_servers
    if address is None and named is None:
        expected = "is needed where no path rocketmq://HOST:9876/TOPIC names the cluster"
        raise InvalidOptionError("nameServers", "", expected)
    if address is not None and named is not None:
        expected = "cannot stand with a path rocketmq://…, which names the name servers"
        raise InvalidOptionError("nameServers", ",".join(named), expected)
    return address.name_servers if address is not None else (named or ())


def _credentials(options: WhoAndWhere, environment: Mapping[str, str]) -> Credentials | None:
    named = {
        "accessKey": options.access_key,
        "secretKey": options.secret_key,
        "securityToken": options.security_token,
    }
    set_ = {name: secret for name, secret in named.items() if secret is not None}
    path = options.credentials_file
    return choose(set_, None if path is None else ("credentialsFile", path), environment)


def _speaks_tls(
    options: WhoAndWhere, tls: Tls, given: Collection[str], address: Address | None
) -> bool:
    by_path = address is not None and address.tls
    if by_path and "tls" in given and not options.tls:
        raise InvalidOptionError("tls", "false", "the path says rocketmqs://, which is TLS")
    if not (by_path or options.tls):
        for option_ in options_of(Tls).values():
            if option_.name in given:
                expected = "is for TLS: set tls=true, or write rocketmqs://"
                raise InvalidOptionError(option_.name, "…", expected)
        return False
    if tls.key_file is not None and tls.cert_file is None:
        raise InvalidOptionError("tlsKeyFile", tls.key_file, "needs tlsCertFile beside it")
    return True
