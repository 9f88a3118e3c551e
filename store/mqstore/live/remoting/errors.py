"""The errors of clusters, each with the name of its condition.

StoreError
├── ServerError               what a broker or name server did, at its address
│   ├── BrokerUnavailableError  it cannot be reached, or the connection broke
│   │   ├── BrokerTimeoutError  the same, because no answer came in time
│   │   └── LocalModeError      a proxy in local mode, which answers nothing about messages
│   └── BrokenAnswerError     an answer that RocketMQ's protocol does not allow
├── RequestRefusedError       a request that a broker or name server answered with an error
│   ├── AccessDeniedError     the same, because of ACL 1.0 or 2.0
│   └── NotServedError        a request that no RocketMQ proxy serves
└── NoMasterError             a broker of which no master is registered
"""

from mqstore.errors import StoreError, shown


class ServerError(StoreError):
    """What a broker or name server did: its address, and a reason with the option that helps."""

    condition = "MQLOG_SERVER_ERROR"
    text = "{address}: {reason!l}"
    address: str
    reason: str


class BrokerUnavailableError(ServerError):
    """A server cannot be reached, closed the connection, or is too busy."""

    condition = "MQLOG_BROKER_UNAVAILABLE"


class BrokerTimeoutError(BrokerUnavailableError):
    """A broker or name server did not answer in time: it is frozen, overloaded or cut off."""

    condition = "MQLOG_BROKER_UNAVAILABLE.TIMEOUT"


class LocalModeError(BrokerUnavailableError):
    """A RocketMQ proxy in local mode: it answers routes, and no request about messages."""

    condition = "MQLOG_PROXY_LOCAL_MODE"


class BrokenAnswerError(ServerError):
    """A server's answer breaks RocketMQ's protocol, or is larger than a limit."""

    condition = "MQLOG_BROKEN_ANSWER"


class RequestRefusedError(StoreError):
    """A server's refusal: its address, the request's name, a ResponseCode, its own words."""

    condition = "MQLOG_REQUEST_REFUSED"
    text = "{address} refused {request!s} with code {code}: {remark}"
    address: str
    request: str
    code: int
    remark: str


class AccessDeniedError(RequestRefusedError):
    """The credentials are unknown there, or lack ``rights``."""

    condition = "MQLOG_ACCESS_DENIED"
    text = (
        "{address} refused {request!s} with code {code}: {sentence!s}. Check accessKey and "
        "secretKey; their user needs {rights}"
    )
    rights: str

    @property
    def sentence(self) -> str:
        """Return the server's words without a full stop."""
        return shown(self.remark).rstrip(".")


class NotServedError(RequestRefusedError):
    """A request that a RocketMQ proxy does not serve: only name servers and brokers do."""

    condition = "MQLOG_NOT_SERVED_BY_PROXY"
    text = (
        "{address} is a RocketMQ proxy, and proxies do not serve {request!s}. Name the name "
        "servers instead (rocketmq://NAMESERVER:9876), from where they and brokers can be reached"
    )


class NoMasterError(StoreError):
    """No master of a broker is registered at the name servers."""

    condition = "MQLOG_NO_MASTER"
    what: str
