"""Credentials of ACL 1.0 and 2.0, which no error or log shows, and the signature of requests.

Both versions sign alike: base64 of the HMAC-SHA1, with the secret key, of all values of the
header's fields in the order of their names, then the body.

Reference: org.apache.rocketmq.acl.common.AclClientRPCHook#doBeforeRequest,
AclUtils#combineRequestContent, AclSigner#calSignature; conf/tools.yml (AclUtils#getAclRPCHook)
for the names in a file.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.options.secret import HIDDEN, Secret

ENVIRONMENT: Final = {
    "accessKey": "MQLOG_ACCESS_KEY",
    "secretKey": "MQLOG_SECRET_KEY",
    "securityToken": "MQLOG_SECURITY_TOKEN",
}
"""The environment variable that stands for each option where no option names credentials."""

_MOST_FILE_BYTES: Final = 64 * 1024
_LINE: Final = re.compile(r"\s*(accessKey|secretKey|securityToken)\s*[:=]\s*(.*?)\s*")


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key and what proves that it is ours. Pickles into tasks; see Secret."""

    access_key: Secret
    secret_key: Secret
    security_token: Secret | None = field(default=None)

    def sign(self, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the fields with AccessKey, SecurityToken and the Signature of them and the body.

        The fields must be all that is sent: a broker signs what it received.
        """
        signed = {**fields, "AccessKey": self.access_key.reveal()}
        if self.security_token is not None:
            signed["SecurityToken"] = self.security_token.reveal()
        content = "".join(signed[name] for name in sorted(signed)).encode() + body
        mac = hmac.new(self.secret_key.reveal().encode(), content, hashlib.sha1)
        return {**signed, "Signature": base64.b64encode(mac.digest()).decode()}


def read_file(option: str, path: str) -> dict[str, Secret]:
    """Return accessKey, secretKey and securityToken of a file of lines ``name: value``.

    ``name=value`` is taken too, quotes around a value are not part of it, other lines say
    nothing. Raises InvalidOptionError, which never shows a value, for a file that cannot be read
    or lacks one of the first two.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MOST_FILE_BYTES).decode(errors="replace")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no path of a file"
        raise InvalidOptionError(option, path, f"cannot be read: {reason}") from None
    matches = filter(None, map(_LINE.fullmatch, text.splitlines()))
    found = {match[1]: Secret(match[2].strip("'\"")) for match in matches}
    for name in ("accessKey", "secretKey"):
        if name not in found or not found[name].reveal():
            raise InvalidOptionError(option, path, f"has no line with {name}: VALUE")
    return found


def choose(
    options: Mapping[str, Secret], file: tuple[str, str] | None, environment: Mapping[str, str]
) -> Credentials | None:
    """Return the credentials of the options, else of the ``file``, else of the environment.

    ``options`` and the file name accessKey, secretKey, securityToken; ``file`` is the option's
    name and the path. None: requests are not signed. Raises InvalidOptionError, without a value,
    where one key comes without the other, or options and a file are both given.
    """
    if options and file is not None:
        name = next(iter(options))
        raise InvalidOptionError(file[0], file[1], f"cannot stand with {name}")
    if options:
        source, found = "option", dict(options)
    elif file is not None:
        source, found = "file", read_file(*file)
    else:
        source = "environment"
        found = {n: Secret(environment[v]) for n, v in ENVIRONMENT.items() if environment.get(v)}
    if not found:
        return None
    for one, other in (("accessKey", "secretKey"), ("secretKey", "accessKey")):
        if one not in found:
            named = ENVIRONMENT if source == "environment" else {one: one, other: other}
            given = next(iter(found))
            raise InvalidOptionError(
                named.get(given, given), HIDDEN, f"needs {named[one]} beside it"
            )
    return Credentials(found["accessKey"], found["secretKey"], found.get("securityToken"))
