package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The chart has the dashboard of this program.
func TestDashboardCurrent(t *testing.T) {
	want, err := dashboard()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("../../deploy/helm/seamark", file))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is old: run go run ./dashboard ../deploy/helm/seamark in tools, then go run ./chart ../deploy", file)
	}
}
