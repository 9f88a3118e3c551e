#!/bin/sh
# The certificates of these tests, valid for a hundred years; the keys protect nothing.
#   ca.pem        signs server.pem (for 127.0.0.1), elsewhere.pem (for another host) and client.pem
#   stranger.pem  a CA that signed none of them
set -eu
cd "$(dirname "$0")"
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 \
        -subj "/CN=$1" -addext "basicConstraints=critical,CA:TRUE" \
        -addext "keyUsage=critical,keyCertSign" -keyout "$1.key" -out "$1.pem"
}
signed() {
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$1" \
        -keyout "$1.key" -out "$1.csr"
    printf 'basicConstraints=CA:FALSE\nsubjectAltName=%s\n' "$2" > extensions
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 36500 \
        -extfile extensions -out "$1.pem"
}
authority ca
authority stranger
signed server IP:127.0.0.1
signed elsewhere DNS:elsewhere.example
signed client DNS:client.example
rm -f ./*.csr ./*.srl extensions ca.key stranger.key
