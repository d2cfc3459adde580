# The image: one static binary, nothing else, for a user who is not root. It
# writes no file, so its root may be read-only.
#
#   docker build --build-arg VERSION=$(git describe --tags --always) -t seamark .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN make build PGO=auto VERSION=${VERSION}
# Port 53 as uid 65532: container runtimes that do not lower
# net.ipv4.ip_unprivileged_port_start need a file capability.
RUN apt-get update && apt-get install -y --no-install-recommends libcap2-bin \
    && setcap cap_net_bind_service=+ep bin/seamark

FROM scratch
# Roots of certificates, for upstreams over TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/bin/seamark /seamark
USER 65532:65532
EXPOSE 53/udp 53/tcp 9153/tcp 8080/tcp 8181/tcp
ENTRYPOINT ["/seamark"]
