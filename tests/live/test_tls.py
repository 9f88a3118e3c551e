"""TLS on loopback: the chain and the name of a server, and our own certificate."""

import socket
import ssl
from pathlib import Path

import pytest

from live.conftest import PATIENT
from live.loopback import Play, json_answer, listening, read_request
from mqstore.errors import InvalidOptionError
from mqstore.live.remoting.connection import Connection, NotUnderstoodError
from mqstore.live.remoting.errors import BrokerUnavailableError
from mqstore.live.remoting.requests import GET_BROKER_RUNTIME_INFO
from mqstore.live.remoting.tls import Tls

FILES = Path(__file__).parent / "tls"
CA, STRANGER = str(FILES / "ca.pem"), str(FILES / "stranger.pem")
CLIENT = {"cert_file": str(FILES / "client.pem"), "key_file": str(FILES / "client.key")}


def serving(name: str, *, wants_certificate: bool = False) -> Play:
    """Speak TLS with the certificate of that name, and answer every request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FILES / f"{name}.pem", FILES / f"{name}.key")
    if wants_certificate:
        context.load_verify_locations(CA)
        context.verify_mode = ssl.CERT_REQUIRED

    def play(peer: socket.socket) -> None:
        with context.wrap_socket(peer, server_side=True) as secure:
            while (request := read_request(secure)) is not None:
                secure.sendall(json_answer(request["opaque"], 0, b"{}"))

    return play


def ask(address: str, tls: Tls | None) -> int:
    context = None if tls is None else tls.context()
    with Connection(address, PATIENT, tls=context) as connection:
        return connection.receive(connection.send(GET_BROKER_RUNTIME_INFO())).code


@pytest.mark.parametrize(
    ("server", "tls"),
    [
        ("server", Tls(CA)),
        ("server", Tls(CA, verify_host_name=False)),
        ("elsewhere", Tls(CA, verify_host_name=False)),
    ],
)
def test_a_trusted_server_is_asked(server: str, tls: Tls) -> None:
    with listening(serving(server)) as address:
        assert ask(address, tls) == 0


@pytest.mark.parametrize(
    ("server", "tls", "words"),
    [
        ("server", Tls(STRANGER), "not trusted"),
        ("server", Tls(STRANGER, verify_host_name=False), "not trusted"),
        ("server", Tls(), "not trusted"),
        ("elsewhere", Tls(CA), "tlsVerifyHostname"),
        ("server", None, "tls=true"),
    ],
)
def test_any_other_server_is_not_and_the_error_says_what_to_set(
    server: str, tls: Tls | None, words: str
) -> None:
    with listening(serving(server)) as address:
        with pytest.raises(NotUnderstoodError, match=words) as caught:
            ask(address, tls)
        assert address in str(caught.value)


def answers_plainly(peer: socket.socket) -> None:
    """Answer requests, and close at the begin of a handshake, as a broker without TLS does."""
    while (request := read_request(peer)) is not None:
        peer.sendall(json_answer(request["opaque"], 0, b"{}"))


def closes(peer: socket.socket) -> None:
    """End every connection at its first bytes, as a load balancer without its server does."""
    peer.recv(1_000)


def test_a_plain_server_is_told_from_one_of_tls() -> None:
    words = "speaks plainly: set tls=false"
    with listening(answers_plainly) as address, pytest.raises(NotUnderstoodError, match=words):
        ask(address, Tls(CA))


@pytest.mark.parametrize("tls", [None, Tls(CA)])
def test_who_closes_every_connection_is_not_taken_for_one_of_the_other_speech(
    tls: Tls | None,
) -> None:
    words = "in front of a server"
    with listening(closes) as address, pytest.raises(BrokerUnavailableError, match=words) as caught:
        ask(address, tls)
    assert not isinstance(caught.value, NotUnderstoodError)


def test_our_certificate_is_shown_where_it_is_wanted() -> None:
    with listening(serving("server", wants_certificate=True)) as address:
        assert ask(address, Tls(CA, **CLIENT)) == 0
        with pytest.raises(NotUnderstoodError, match="tlsCertFile"):
            ask(address, Tls(CA))


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="tlsCertFile"):
        Tls(CA, cert_file=CLIENT["cert_file"]).context()
    with pytest.raises(InvalidOptionError, match="tlsCaFile"):
        Tls(CLIENT["key_file"]).context()
