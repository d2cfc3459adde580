package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// slices is the path of all EndpointSlices.
const slices = "/apis/discovery.k8s.io/v1/endpointslices"

// watchMany watches all EndpointSlices as so many servers do, each with a connection of its own, and discards what it
// receives. It writes a line when all watches have begun, and ends with its input.
func watchMany(ctx context.Context, kubeconfig string, number int, from io.Reader, to io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, err := newClient(kubeconfig)
	if err != nil {
		return err
	}
	raw, err := client.Get().AbsPath(slices).Param("limit", "1").SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return err
	}
	var now metav1.PartialObjectMetadataList
	if err := json.Unmarshal(raw, &now); err != nil {
		return err
	}

	ended := make(chan error, number+1)
	for range number {
		body, err := watchFrom(ctx, kubeconfig, now.ResourceVersion)
		if err != nil {
			return err
		}
		defer body.Close()
		go func() {
			_, err := io.Copy(io.Discard, body)
			ended <- fmt.Errorf("a watch has ended: %w", err)
		}()
	}

	fmt.Fprintln(to, "watching")
	go func() {
		_, err := io.Copy(io.Discard, from)
		ended <- err
	}()
	return <-ended
}

// watchFrom begins a watch after a version, in the form that the server requests.
func watchFrom(ctx context.Context, kubeconfig, version string) (io.ReadCloser, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Proxy = http.ProxyFromEnvironment // otherwise client-go shares a connection
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}

	url := config.Host + slices + "?watch=true&allowWatchBookmarks=true&resourceVersion=" + version
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		resp.Body.Close()
		return nil, fmt.Errorf("watching: %s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return resp.Body, nil
}
