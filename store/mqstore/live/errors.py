"""The errors of clusters: part of the tree in ``mqstore.errors``."""

from mqstore.errors import REASON_CHARS, StoreError, shown


class ServerError(StoreError):
    """What a broker or name server did: its address, and a reason with the option that helps."""

    condition = "MQLOG_SERVER_ERROR"

    def message(self) -> str:
        """Name the address and what happened there."""
        address, reason = self.args
        return f"{shown(address)}: {shown(reason, REASON_CHARS)}"


class BrokerUnavailableError(ServerError):
    """A server cannot be reached, closed the connection, or is too busy."""

    condition = "MQLOG_BROKER_UNAVAILABLE"


class BrokerTimeoutError(BrokerUnavailableError):
    """A broker or name server did not answer in time: it is frozen, overloaded or cut off."""

    condition = "MQLOG_BROKER_UNAVAILABLE.TIMEOUT"


class BrokenAnswerError(ServerError):
    """A server's answer breaks RocketMQ's protocol, or is larger than a limit."""

    condition = "MQLOG_BROKEN_ANSWER"


class RequestRefusedError(StoreError):
    """A server's refusal: its address, the request's name, a ResponseCode, its own words."""

    condition = "MQLOG_REQUEST_REFUSED"

    def message(self) -> str:
        """Name the server, the request, the code and what the server says."""
        address, request, code, remark = self.args
        return f"{shown(address)} refused {request} with code {code}: {shown(remark)}"


class AccessDeniedError(RequestRefusedError):
    """The credentials are unknown there, or lack a right; the last argument names those needed."""

    condition = "MQLOG_ACCESS_DENIED"

    def message(self) -> str:
        """Say what was refused, and which options and rights it depends on."""
        told = RequestRefusedError(*self.args[:4]).message().rstrip(".")
        return f"{told}. Check accessKey and secretKey; their user needs {shown(self.args[4])}"


class NoMasterError(StoreError):
    """No master of a broker is registered at the name servers."""

    condition = "MQLOG_NO_MASTER"
