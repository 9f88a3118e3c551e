"""TLS towards brokers and name servers: trusted CAs, the client certificate, the check of names.

A broker is checked against what it registered at the name server, mostly an IP address, so a
certificate needs it among its names; the check of names can be left out, that of the chain not.

Reference: org.apache.rocketmq.remoting.netty.TlsHelper#buildSslContext, TlsSystemConfig.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqstore.errors import InvalidOptionError
from mqstore.options.grammar import boolean
from mqstore.options.option import any_text, option

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of PEM: whom ``ca_file`` trusts (None: whom the system does), our own cert and key.

    Pickles into tasks; the files must be where a task runs.
    """

    ca_file: str | None = option("tlsCaFile", any_text)
    cert_file: str | None = option("tlsCertFile", any_text)
    key_file: str | None = option("tlsKeyFile", any_text)
    verify_host_name: bool = option("tlsVerifyHostname", boolean, True)

    def context(self) -> "ssl.SSLContext":
        """Return the context for connections; raises InvalidOptionError for unusable files."""
        import ssl  # noqa: PLC0415 - reads of directories parse these options too

        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ValueError) as error:
            raise InvalidOptionError(
                "tlsCaFile", self.ca_file, f"is no file of certificates in PEM: {_why(error)}"
            ) from None
        context.check_hostname = self.verify_host_name
        if self.cert_file is not None:
            try:
                # The empty password keeps OpenSSL from asking for one on the terminal.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except (OSError, ValueError) as error:
                raise InvalidOptionError(
                    "tlsCertFile",
                    self.cert_file,
                    f"is no certificate with its key in PEM, without a password: {_why(error)}",
                ) from None
        return context


def _why(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or str(error) or type(error).__name__
