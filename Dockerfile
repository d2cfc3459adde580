# The image, built with Docker: the files that `make image` puts into it,
# for a user who is not root. The server writes no file, so its root may be read-only.
#
#   docker build --build-arg VERSION=0.1.0 -t seamark .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY tools/go.mod tools/go.sum tools/
RUN cd tools && go mod download
COPY . .
ARG VERSION=0.0.0-dev
ARG COMMIT=
ARG DATE=1970-01-01T00:00:00Z
# Without a default, which BuildKit would take for every platform.
ARG TARGETPLATFORM
# With the file capability for port 53, which COPY keeps.
RUN cd tools && go run ./image -source .. -root /root/image -platforms "${TARGETPLATFORM:-linux/amd64}" \
    -version "$VERSION" -commit "$COMMIT" -date "$DATE"

FROM scratch
COPY --from=build /root/image/ /
USER 65532:65532
EXPOSE 53/udp 53/tcp 9153/tcp 8080/tcp 8181/tcp
ENTRYPOINT ["/seamark"]
